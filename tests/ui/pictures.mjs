// Takes the pictures of docs/dashboard.md, in front of the fake gateway with plain names: `cargo xtask pictures`.
import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { launch, open, settle, signIn, visit } from './browser.mjs';
import { HOSTILE } from './fake_data.mjs';
import { startFake } from './fake_gateway.mjs';
import { withPalette } from './png_palette.mjs';

const FOLDER = process.env.FAIRGATE_UI_PICTURES ?? fileURLToPath(new URL('../../docs/img/', import.meta.url));
const PLAIN = ['crawler', 'translate', 'support', 'summaries', 'notebook'];
const WIDTH = 1280;

/** The pictures: a page, the height that is shown of it, and what is done on it before. */
const PICTURES = [
  { name: 'overview', hash: '#/', height: 690 },
  { name: 'pool', hash: '#/pools/llama?flow=api-batch', height: 1180 },
  { name: 'requests', hash: '#/requests', height: 620 },
  { name: 'workers', hash: '#/workers', height: 720 },
  { name: 'fleet', hash: '#/fleet', height: 640 },
  { name: 'usage', hash: '#/usage?split=tenant', height: 700 },
  { name: 'what-if', hash: '#/what-if?pool=llama&flow=api-batch', height: 520, before: askWhatIf },
  { name: 'audit', hash: '#/audit', height: 460, before: changeSomething },
];

async function askWhatIf(page) {
  await page.fill('#what-if input[name=weight]', '50');
  await page.click('#what-if button:has-text("Run")');
  await page.waitForSelector('tr[data-row="api-batch"]');
}

/** Caps a tenant and sets the weight of another one, so that the audit trail has something. */
async function changeSomething(page) {
  for (const [button, field, value, submit] of [['Cap of api-batch', 'cap', '8', 'Set the cap'], ['Weight of evals', 'weight', '70', 'Set the weight']]) {
    await visit(page, '#/pools/llama');
    await page.click(`button[aria-label="${button}"]`);
    await page.fill(`#field-${field}`, value);
    await page.click(`dialog button:has-text("${submit}")`);
    await page.waitForSelector('dialog', { state: 'hidden' });
  }
  await visit(page, '#/audit');
  await page.waitForSelector('tr:has-text("weight: 50 → 70")');
}

/** Takes the picture of a page. Its table and its charts stand still for it. */
async function take(page, { name, height }) {
  await page.setViewportSize({ width: WIDTH, height });
  await page.mouse.move(0, 0);
  await settle(page);
  await page.evaluate(() => document.activeElement?.blur());
  await page.evaluate(() => scrollTo(0, 0));
  await writeFile(`${FOLDER}/dashboard-${name}.png`, withPalette(await page.screenshot()));
}

const names = new Map(HOSTILE.map((name, index) => [name, PLAIN[index]]));
const [browser, fake] = await Promise.all([launch(), startFake({ names, isStill: true })]);
try {
  await mkdir(FOLDER, { recursive: true });
  const page = await open(browser, { size: { width: WIDTH, height: 900 } });
  await signIn(page, `${fake.url}/`);
  for (const picture of PICTURES) {
    await visit(page, picture.hash);
    await picture.before?.(page);
    await take(page, picture);
  }
  const mine = await open(browser, { theme: 'dark', size: { width: WIDTH, height: 760 } });
  await signIn(mine, `${fake.url}/me`);
  await take(mine, { name: 'me', height: 760 });
} finally {
  await browser.close();
  fake.close();
}
