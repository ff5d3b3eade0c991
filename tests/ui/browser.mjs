// One browser for all pages: Debian's chromium, driven by playwright-core.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdir, readFile } from 'node:fs/promises';

// The packages are installed under target/, not beside these files.
const packages = createRequire(`${process.env.FAIRGATE_UI_PACKAGES ?? ''}/package.json`);
const { chromium } = packages('playwright-core');
const AXE = packages.resolve('axe-core/axe.min.js');
const SCREENSHOTS = process.env.FAIRGATE_UI_SCREENSHOTS;

/** The pages that operators have, each with its address. */
export const PAGES = [
  ['overview', '#/'],
  ['pools', '#/pools'],
  ['pool', '#/pools/llama?flow=api-batch'],
  ['requests-live', '#/requests?list=live'],
  ['requests', '#/requests'],
  ['request', '#/requests/req-0000007'],
  ['request-waiting', '#/requests/req-live-40'],
  ['workers', '#/workers'],
  ['fleet', '#/fleet'],
  ['task', '#/fleet/tasks/web-199'],
  ['tenants', '#/tenants'],
  ['tenant', '#/tenants/api-batch'],
  ['usage', '#/usage?split=tenant'],
  ['what-if', '#/what-if?pool=llama&flow=api-batch'],
  ['audit', '#/audit'],
  ['configuration', '#/configuration'],
  ['search', '#/search?q=chat'],
];

export function launch() {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
}

/** Opens a window of its own: no cookies, no kept choice. What goes wrong in it is collected. */
export async function open(browser, { theme = 'light', size = { width: 1440, height: 900 } } = {}) {
  const context = await browser.newContext({ colorScheme: theme, viewport: size, locale: 'en-GB', timezoneId: 'Europe/Berlin', reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const faults = [];
  page.on('console', (message) => {
    // A refused login is a 401 by design, and the browser writes each one down.
    if (message.type() === 'error' && !page.expectsFailures) faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error.stack ?? error)));
  page.on('dialog', (dialog) => {
    faults.push(`a dialog said ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.faults = faults;
  return page;
}

/** Signs in and waits for the page. */
export async function signIn(page, url, token = 'right', name = 'on-call') {
  page.expectsFailures = true;
  await page.goto(url);
  await page.fill('#token', token);
  if (await page.locator('#name').count()) await page.fill('#name', name);
  await page.click('button:has-text("Sign in")');
  await page.waitForSelector('header');
  await page.waitForSelector('main #lead');
  page.expectsFailures = false;
}

/** Goes to a page and waits until nothing is being read. */
export async function visit(page, hash) {
  await page.evaluate((to) => (location.hash = to), hash);
  await page.waitForFunction((to) => location.hash === to && document.querySelector('main #lead')?.textContent?.trim(), hash);
  await settle(page);
}

/** Waits until nothing says that it is loading, and two frames have been drawn. */
export async function settle(page) {
  await page.waitForFunction(() => {
    const isBusy = /^(Reading|Counting|Looking|Waiting for)/.test(document.querySelector('#lead')?.textContent.trim() ?? 'Reading');
    return !isBusy && ![...document.querySelectorAll('main p, main .empty')].some((each) => each.textContent.trim() === 'Loading…');
  });
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** Fails if axe finds anything: WCAG 2.2 AA and best practice. */
export async function expectAccessible(page, what) {
  if (!(await page.evaluate(() => 'axe' in window))) await page.evaluate(await readFile(AXE, 'utf8'));
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] });
    return violations.map((each) => `${each.id}: ${each.help}\n${each.nodes.slice(0, 3).map((node) => `    ${node.html.slice(0, 200)}\n    ${node.any.concat(node.all).map((check) => check.message).join('; ')}`).join('\n')}`);
  });
  assert.deepEqual(found, [], `axe on ${what}`);
}

/** Keeps a picture, if a folder for pictures is named. */
export async function picture(page, name) {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: `${SCREENSHOTS}/${name}.png` });
}

/** Fails if anything went wrong in this window since it was opened. */
export function expectNoFaults(page, what) {
  assert.deepEqual(page.faults, [], `console of ${what}`);
}

/** Reads the exact numbers of a table: for each row's key, for each column, the value of its first number. */
export function numbersOf(page, caption) {
  return page.evaluate((wanted) => {
    const table = [...document.querySelectorAll('table')].find((each) => each.caption?.textContent.startsWith(wanted));
    const rows = [...(table?.querySelectorAll('tbody tr') ?? [])].map((row) => [
      row.dataset.row,
      Object.fromEntries([...row.children].map((cell) => [cell.dataset.column, cell.querySelector('data') ? Number(cell.querySelector('data').value) : cell.textContent.trim()])),
    ]);
    return Object.fromEntries(rows);
  }, caption);
}
