// The pages in front of a fake gateway: looks, hostile names, keyboard, undo, a lost connection, 100 000 rows.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { HOSTILE } from './fake_data.mjs';
import { startFake } from './fake_gateway.mjs';
import { PAGES, expectAccessible, expectNoFaults, launch, numbersOf, open, picture, settle, signIn, visit } from './browser.mjs';

let browser, fake;

before(async () => {
  [browser, fake] = await Promise.all([launch(), startFake({ isFrozen: true })]);
});

after(async () => {
  await browser?.close();
  fake?.close();
});

/** Opens a window that is signed in, and closes it after the test. */
async function signedIn(t, options) {
  const page = await open(browser, options);
  t.after(() => page.context().close());
  await signIn(page, `${fake.url}/`);
  return page;
}

test('a wrong token is refused with the gateway’s sentence, and typed text stays', async () => {
  const page = await open(browser);
  page.expectsFailures = true;
  await page.goto(`${fake.url}/`);
  await page.fill('#token', 'wrong');
  await page.fill('#name', 'on-call');
  await page.click('button:has-text("Sign in")');
  await page.waitForSelector('[role=alert]:has-text("This token is not known.")');
  assert.equal(await page.inputValue('#name'), 'on-call');
  await expectAccessible(page, 'login');
  await picture(page, 'login');
  await page.context().close();
});

for (const theme of ['light', 'dark']) {
  test(`every page in ${theme}: a sentence, nothing in the console, nothing found by axe`, async (t) => {
    const page = await signedIn(t, { theme });
    for (const [name, hash] of PAGES) {
      await visit(page, hash);
      assert.ok((await page.textContent('#lead')).trim().length > 5, `${name} begins with a sentence`);
      assert.equal(await page.locator('h1').count(), 1, name);
      await picture(page, `${name}-${theme}`);
      await expectAccessible(page, `${name}, ${theme}`);
      const hacked = await page.evaluate(() => window.hacked);
      assert.equal(hacked, undefined, name);
      expectNoFaults(page, `${name}, ${theme}`);
    }
  });
}

test('names are text: isolated, 60 characters, and no element comes of them', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  assert.equal(await page.locator('main img, main script').count(), 0);
  const names = await page.locator('td[data-column=name] bdi').allTextContents();
  assert.ok(names.includes(HOSTILE[0]) && names.includes(HOSTILE[1]), names.join('\n'));
  assert.ok(names.some((each) => each.includes('⟨U+202E⟩evil')), 'a turn of direction is shown, not obeyed');
  assert.ok(names.every((each) => [...each].length <= 60));
  await page.click(`a:has-text("${HOSTILE[0].slice(0, 12)}") >> nth=0`);
  await page.waitForSelector('#flow-panel');
  assert.equal(await page.getAttribute('#flow-panel', 'data-flow'), HOSTILE[0], 'its address leads back to it');
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  expectNoFaults(page, 'hostile names');
});

test('numbers of the pool are those of the API, and a drift without a promise is no fault', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  await page.keyboard.press('p');
  const shown = await numbersOf(page, 'Flows of llama by tenant');
  const [pool] = fake.state.pools;
  assert.equal(Object.keys(shown).length, pool.tenants.length);
  for (const row of pool.tenants.slice(1)) {
    const seen = shown[row.tenant];
    assert.equal(seen.waiting, row.waiting, row.tenant);
    assert.equal(seen.in_flight, row.in_flight, row.tenant);
    if (row.due_share !== null) assert.deepEqual([seen.due, seen.got], [row.due_share, row.got_share], row.tenant);
    else assert.deepEqual([seen.due, seen.got], ['–', '–'], row.tenant);
  }
  assert.equal(await page.locator('tr.outside').count(), 0);
  assert.match(await page.textContent('tr[data-row=evals]'), /held/);
  assert.match(await page.textContent('tr[data-row=search]'), /at its cap/);
});

test('a flow outside a promised bound stands in red, with a word and on the overview', async (t) => {
  const row = fake.state.pools[0].tenants[1];
  Object.assign(row, { within_bound: false, difference: -30_000 });
  t.after(() => Object.assign(row, { within_bound: true, difference: -4000 }));
  const page = await signedIn(t);
  await visit(page, '#/');
  assert.match(await page.textContent('[data-need=outside_bound]'), /llama \/ search.*6\s000 tokens: a fault of the gateway/s);
  await visit(page, '#/pools/llama');
  assert.match(await page.textContent('tr.outside'), /▲ outside its bound/);
});

test('a pool that shares worker time shows worker time: flows, charts, one request, what if', async (t) => {
  const page = await signedIn(t);
  const [chat] = fake.state.pools.find((pool) => pool.pool === 'timed').tenants;
  await visit(page, '#/pools/timed?flow=chat');
  assert.equal(await page.textContent('[data-field=unit]'), 'worker time');
  const asked = fake.state.calls.findLast((call) => call.path === '/pools/timed/history' && call.query.get('flow') === null);
  assert.equal(asked.query.get('by'), 'tenant', 'its rows are flows of the policy');
  const exact = (field) => page.locator(`#flow-panel [data-field=${field}] data`).getAttribute('value').then(Number);
  assert.deepEqual([await exact('asked'), await exact('difference'), await exact('bound')], [chat.asked, chat.difference, chat.bound]);
  assert.match((await page.textContent('#flow-panel [data-field=asked]')).replace('\u202f', ' '), /^41 s of worker time$/);
  assert.match((await page.textContent('#flow-panel [data-field=difference]')).replace('\u202f', ' '), /^\+1\.2 s of worker time$/);
  // Both charts have lines, and their numbers have the unit.
  for (const [title, text] of [['Parts of the worker time got (solid) and due (dashed), by tenant', /\d\s%/], ['Difference between got and due, in worker time', /\d\s(ms|s|min)$/]]) {
    const chart = page.locator('figure.chart', { has: page.locator(`figcaption:text-is("${title}")`) });
    assert.equal(await chart.locator('canvas').count(), 1, title);
    await chart.locator('summary').click();
    await chart.locator('td').first().waitFor();
    const cells = await chart.locator('td').allTextContents();
    assert.ok(cells.length > 20 && cells.some((cell) => text.test(cell)), `${title}: ${cells.slice(0, 8).join()}`);
  }
  await picture(page, 'pool-worker-time-light');
  await visit(page, '#/requests/req-timed');
  assert.match((await page.textContent('[data-field=cost]')).replace('\u202f', ' '), /^2\.1 s of worker time$/);
  assert.equal(await page.locator('th:text-is("got, worker time")').count(), 1);
  const levels = await numbersOf(page, 'The flows that the request is in');
  assert.deepEqual([levels[0].got, levels[0].due, levels[0].difference, levels[0].bound], [312_000_000, 310_800_000, 1_200_000, 4_000_000]);
  await visit(page, '#/what-if?pool=timed&flow=chat');
  await page.fill('#what-if input[name=weight]', '50');
  await page.click('#what-if button:has-text("Run")');
  await page.waitForSelector('th:has-text("worker time")');
  expectNoFaults(page, 'worker time');
});

test('a worker that is left alone says since when, and when it is tried again', async (t) => {
  const worker = fake.state.pools[0].workers.find((each) => each.name === 'vllm-c');
  const before = { ...worker };
  t.after(() => Object.assign(worker, before));
  Object.assign(worker, { down_since: new Date(Date.now() - 41_000).toISOString(), retry_at: new Date(Date.now() + 600_000).toISOString() });
  const page = await signedIn(t);
  await visit(page, '#/workers');
  const row = page.locator('tr[data-row="vllm-c"]');
  assert.equal(await row.locator('[data-field=down-since] time').getAttribute('datetime'), worker.down_since);
  const left = Number(await row.locator('[data-field=retry] data').getAttribute('value'));
  assert.ok(left > 500_000 && left <= 600_000, `${left} ms`);
  assert.match(await row.textContent(), /broken since [\d:]+, tried again in 10\smin\s*connect: connection refused/);
  assert.match(await page.textContent('#lead'), /vllm-c has been broken since .*, tried again in/);
  await visit(page, '#/');
  assert.match(await page.textContent('[data-need=worker_down]'), /llama \/ vllm-c broken since [\d:]+, tried again in 10\smin: connect/);
  worker.retry_at = null;
  await page.reload();
  await page.waitForSelector('[data-need=worker_down]:has-text("the next request tries it")');
  expectNoFaults(page, 'a worker that is left alone');
});

test('the overview lists spent budgets of tenants and groups, and a database that is away', async (t) => {
  t.after(() => (fake.state.health.warnings = []));
  fake.state.health.warnings = ['the database does not answer: rows are kept in files until it is back'];
  const page = await signedIn(t);
  await visit(page, '#/');
  await page.waitForSelector('[data-need=budget]:has-text("tenant api-batch"):has-text("are used up")');
  await page.waitForSelector('[data-need=budget]:has-text("group batch"):has-text("of its money of this month")');
  await page.waitForSelector('[data-need=store]:has-text("rows are kept in files")');
  assert.equal(fake.state.calls.findLast((call) => call.path === '/budgets').query.get('used_percent'), '90');
  await page.click('[data-need=budget]:has-text("tenant api-batch") a');
  await page.waitForSelector('h1:has-text("Tenant api-batch")');
});

test('what the file declares is marked, and cannot be changed on the pages', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/tenants');
  assert.match(await page.textContent('tr[data-row="in-file"]'), /in fairgate\.yaml:12/);
  assert.equal(await page.locator('tr[data-row="chat"] .declared').count(), 0);
  assert.ok(await page.isDisabled('button[aria-label="Budgets of kept"]'));
  assert.ok(await page.isEnabled('button[aria-label="Budgets of prod"]'));
  await visit(page, '#/tenants/in-file');
  const reason = 'Declared in /etc/fairgate/fairgate.yaml, line 12: change it there and reload.';
  assert.equal(await page.textContent('#declared'), reason);
  for (const button of ['button:text-is("Disable…")', 'button:text-is("Limits…")', 'button[aria-label="Rotate key ci"]', 'button[aria-label="Revoke key ci"]', 'button[aria-label="Limits of key ci"]']) {
    assert.ok(await page.isDisabled(button), button);
  }
  assert.equal(await page.getAttribute('button:text-is("Limits…")', 'title'), reason);
  assert.ok(await page.isEnabled('button:text-is("Add a key…")'), 'a key that the file does not declare can be added');
  await expectAccessible(page, 'a declared tenant');
  // The rows of a pool do not say it: the dialog asks, and turns itself off.
  const tenant = fake.state.directory.tenants.find((each) => each.name === 'chat');
  t.after(() => (tenant.declared = null));
  tenant.declared = { file: '/etc/fairgate/fairgate.yaml', line: 14 };
  await visit(page, '#/pools/llama');
  for (const label of ['Weight of chat', 'Cap of chat']) {
    await page.click(`button[aria-label="${label}"]`);
    await page.waitForSelector('dialog .consequences:has-text("line 14: change it there and reload")');
    assert.ok(await page.isDisabled('dialog input'), label);
    assert.ok(await page.isDisabled('dialog .submit'), label);
    await expectAccessible(page, label);
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'hidden' });
  }
  await page.click('button[aria-label="Hold chat"]');
  await page.waitForSelector('dialog .submit:enabled');
  await page.keyboard.press('Escape');
  expectNoFaults(page, 'declared objects');
});

test('the header names the gateway that answers', async (t) => {
  const page = await signedIn(t);
  assert.equal(await page.textContent('header #gateway'), 'gw-1');
  await visit(page, '#/workers');
  assert.equal(await page.textContent('header #gateway'), 'gw-1', 'on every page');
});

test('rows keep their place while their numbers change; s sorts again; p stops everything', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  const places = () => page.locator('[data-row]').evaluateAll((rows) => rows.map((row) => row.dataset.row));
  const number = () => page.locator('tr[data-row=chat] td[data-column=waiting] data').getAttribute('value');
  const [before, was] = [await places(), await number()];
  await page.waitForFunction((old) => document.querySelector('tr[data-row=chat] td[data-column=waiting] data').value !== old, was);
  assert.deepEqual(await places(), before);
  await page.keyboard.press('p');
  await page.waitForSelector('#paused');
  await settle(page);
  const paused = await number();
  await page.waitForTimeout(2200);
  assert.equal(await number(), paused);
  // A click is drawn in the next frame.
  await page.click('th button:has-text("tenant")');
  await page.waitForSelector('th[aria-sort=descending]:has-text("tenant")');
  await settle(page);
  const names = await places();
  assert.deepEqual(names, [...names].sort().reverse(), 'sorted by name');
  await page.keyboard.press('p');
  await page.waitForSelector('#paused', { state: 'detached' });
});

test('a cap from the page: what will follow, the change, its audit entry, its undo', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  await page.click('button[aria-label="Cap of api-batch"]');
  await page.fill('#field-cap', '8');
  await page.waitForSelector('.consequences:has-text("4 requests of it end by themselves; nothing is cut off.")');
  await picture(page, 'dialog-cap-light');
  await expectAccessible(page, 'a dialog');
  await page.click('dialog button:has-text("Set the cap")');
  await page.waitForSelector('dialog', { state: 'hidden' });
  await page.waitForSelector('tr[data-row="api-batch"]:has-text("at its cap")');
  await visit(page, '#/audit');
  await page.waitForSelector('tr:has-text("tenant.patch"):has-text("limits.in_flight: – → 8")');
  await page.click('.undo[data-subject="api-batch"] button:has-text("Undo")');
  await page.waitForSelector('tr:has-text("limits.in_flight: 8 → –")');
  assert.deepEqual(fake.state.directory.tenants.find((each) => each.name === 'api-batch').limits.in_flight ?? null, null);
  await page.waitForSelector('.undo', { state: 'detached' });
  expectNoFaults(page, 'a cap');
});

test('an undo is refused where somebody changed the same thing since, and outlives a reload', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  await page.click('button[aria-label="Weight of search"]');
  await page.fill('#field-weight', '50');
  await page.waitForSelector('.consequences:has-text("Due 15.9 %")');
  await page.click('dialog button:has-text("Set the weight")');
  await page.waitForSelector('.undo[data-subject="search"]');
  await page.reload();
  await page.waitForSelector('.undo[data-subject="search"]');
  const tenant = fake.state.directory.tenants.find((each) => each.name === 'search');
  tenant.weight = 70;
  await page.click('.undo[data-subject="search"] button:has-text("Undo")');
  await page.waitForSelector('[role=alert]:has-text("somebody changed search since")');
  assert.equal(tenant.weight, 70);
  await page.click('button[aria-label^="Hide"]');
  tenant.weight = 100;
});

test('thresholds, an added worker, a project’s weight and a paused task have an undo', async (t) => {
  const page = await signedIn(t);
  const [llama] = fake.state.pools;
  llama.projects = [{ ...structuredClone(llama.groups[0]), name: 'web', weight: 3 }];
  t.after(() => {
    llama.projects = [];
  });
  const takeBack = async (subject) => {
    await page.waitForSelector('dialog', { state: 'hidden' });
    await page.click(`.undo[data-subject="${subject}"] button:has-text("Undo")`);
    await page.waitForSelector(`.undo[data-subject="${subject}"]`, { state: 'detached' });
  };

  await visit(page, '#/workers');
  const { engine } = llama.workers.find((each) => each.name === 'vllm-a');
  const waiting = engine.overload_waiting;
  await page.click('button[aria-label="Overload thresholds of vllm-a"]');
  await page.fill('#field-waiting', '9');
  await page.click('dialog button:has-text("Set the thresholds")');
  await page.waitForSelector('.undo[data-subject="vllm-a"]:has-text("Thresholds set in llama")');
  assert.equal(engine.overload_waiting, 9);
  await takeBack('vllm-a');
  assert.equal(engine.overload_waiting, waiting);

  await page.click('button:has-text("Add a worker…") >> nth=0');
  await page.fill('#field-name', 'vllm-new');
  await page.fill('#field-url', 'http://10.0.0.9:8000');
  await page.click('dialog button:has-text("Add the worker")');
  await page.waitForSelector('tr[data-row="vllm-new"]');
  await takeBack('vllm-new');
  await page.waitForSelector('tr[data-row="vllm-new"]', { state: 'detached' });

  await visit(page, '#/pools/llama?by=project');
  await page.click('button[aria-label="Weight of web"]');
  await page.fill('#field-weight', '7');
  await page.click('dialog button:has-text("Set the weight")');
  await page.waitForSelector('.undo[data-subject="web"]:has-text("Weight 3 → 7")');
  assert.equal(llama.projects[0].weight, 7);
  await takeBack('web');
  assert.equal(llama.projects[0].weight, 3);

  const task = fake.state.tasks.find((each) => each.state === 'READY');
  await visit(page, `#/fleet/tasks/${task.id}`);
  await page.click('button:has-text("Pause…")');
  await page.click('dialog button:has-text("Pause the task")');
  await page.waitForSelector(`.undo[data-subject="${task.id}"]:has-text("Paused")`);
  assert.equal(task.state, 'PAUSED');
  await takeBack(task.id);
  assert.equal(task.state, 'READY');
  expectNoFaults(page, 'undo');
});

test('what the gateway refuses stands in the dialog, beside its field', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  await page.click('button[aria-label="Weight of chat"]');
  await page.fill('#field-weight', 'many');
  await page.click('dialog button:has-text("Set the weight")');
  await page.waitForSelector('dialog [role=alert]:has-text("write a whole number")');
  page.expectsFailures = true;
  await page.fill('#field-weight', '13');
  await page.click('dialog button:has-text("Set the weight")');
  await page.waitForSelector('dialog [role=alert]:has-text("13 is refused")');
  assert.equal(await page.getAttribute('#field-weight', 'aria-invalid'), 'true');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'hidden' });
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Weight of chat', 'the focus comes back');
});

test('hold, drain, answer and revoke from the pages', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  await page.click('button[aria-label="Hold chat"]');
  await page.click('dialog button:has-text("Hold it")');
  await page.waitForSelector('button[aria-label="Resume chat"]');
  await page.click('.undo[data-subject="chat"] button:has-text("Undo")');
  await page.waitForSelector('button[aria-label="Hold chat"]');
  await visit(page, '#/workers');
  await page.click('button[aria-label="Drain vllm-a"]');
  await page.click('dialog button:has-text("Drain it")');
  await page.waitForSelector('tr[data-row="vllm-a"]:has-text("drained")');
  await page.click('button[aria-label="Take back vllm-a"]');
  await page.click('dialog button:has-text("Take it back")');
  await page.waitForSelector('tr[data-row="vllm-a"]:has-text("up")');
  await visit(page, '#/fleet');
  await page.click('button[aria-label="Answer… web-199"]');
  await page.waitForSelector('dialog label:has-text("Which region?")');
  await page.fill('#field-text', 'eu-west');
  await page.click('dialog button:has-text("Send the answer")');
  await page.waitForSelector('[data-task="web-199"]', { state: 'attached' });
  await page.waitForSelector('[data-column=WAITING_INPUT] [data-task="web-199"]', { state: 'detached' });
  await visit(page, '#/tenants/api-batch');
  await page.click('button[aria-label="Rotate key nightly-eval"]');
  await page.click('dialog button:has-text("Rotate it")');
  await page.waitForSelector('.secret:has-text("fg-secret-shown-once")');
  await page.click('dialog button:has-text("Done")');
  // A secret is shown once.
  await page.waitForSelector('text=fg-secret-shown-once', { state: 'detached' });
  await page.click('button[aria-label="Revoke key nightly-eval"]');
  await page.waitForSelector('dialog:has-text("cannot be undone")');
  await page.click('dialog button:has-text("Revoke it")');
  await page.waitForSelector('tr[data-row="k-1"]:has-text("revoked")');
  expectNoFaults(page, 'changes');
});

test('the keyboard alone reaches everything, and one sees where one is', async (t) => {
  const page = await signedIn(t);
  const letters = { o: 'Overview', r: 'Requests', w: 'Workers', f: 'Fleet', t: 'Tenants', u: 'Usage', i: 'What if', a: 'Audit', c: 'Configuration', p: 'Pools' };
  for (const [letter, title] of Object.entries(letters)) {
    await page.keyboard.press('g');
    await page.keyboard.press(letter);
    await page.waitForSelector(`h1:has-text("${title}")`);
    await settle(page);
    await expectTabReachesAll(page, title);
  }
  await page.keyboard.press('/');
  await page.keyboard.type('chat');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#hits a:has-text("chat")');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('?');
  await page.waitForSelector('dialog:has-text("Keys")');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'hidden' });
  await visit(page, '#/pools/llama');
  await page.focus('tr[data-row=chat] a');
  const before = await page.evaluate(() => document.activeElement.closest('tr').rowIndex);
  await page.keyboard.press('ArrowDown');
  assert.equal(await page.evaluate(() => document.activeElement.closest('tr').rowIndex), before + 1);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#flow-panel');
});

/** Presses Tab until it comes round; every link, button and field that is seen must have had the focus, with an outline. */
async function expectTabReachesAll(page, what) {
  await page.evaluate(() => {
    const all = [...document.querySelectorAll('a[href], button:not([disabled]), input, select, textarea, summary, [tabindex="0"]')];
    window.unreached = new Set(all.filter((each) => each.checkVisibility() && !each.closest('fg-rows .rows')));
    document.activeElement.blur();
  });
  for (let presses = 0; presses < 400; presses += 1) {
    await page.keyboard.press('Tab');
    const left = await page.evaluate(() => {
      const now = document.activeElement;
      window.unreached.delete(now);
      for (const each of window.unreached) if (!each.isConnected) window.unreached.delete(each);
      if (now !== document.body && getComputedStyle(now).outlineStyle === 'none') window.unseen = now.outerHTML.slice(0, 120);
      return window.unreached.size;
    });
    if (left === 0) break;
  }
  const left = await page.evaluate(() => [[...window.unreached].map((each) => each.outerHTML.slice(0, 120)), window.unseen ?? null]);
  assert.deepEqual(left, [[], null], what);
}

test('a lost connection says since when, greys numbers and turns buttons off; it mends by itself', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/pools/llama');
  page.expectsFailures = true;
  t.after(() => fake.down(false));
  fake.down(true);
  await page.waitForSelector('#lost:has-text("Not connected since")');
  await settle(page);
  assert.ok(await page.isDisabled('button[aria-label="Cap of chat"]'));
  assert.ok(Number(await page.locator('main data').first().evaluate((each) => getComputedStyle(each).opacity)) < 1);
  await picture(page, 'lost-light');
  fake.down(false);
  await page.waitForSelector('#lost', { state: 'detached', timeout: 30_000 });
  await settle(page);
  assert.ok(await page.isEnabled('button[aria-label="Cap of chat"]'));
});

test('a session that ends shows the login over the page; what was typed stays', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/what-if?pool=llama');
  await page.fill('#what-if input[name=flow]', 'api-batch');
  await page.fill('#what-if input[name=weight]', '50');
  page.expectsFailures = true;
  fake.state.session += 1;
  await page.click('#what-if button:has-text("Run")');
  await page.waitForSelector('.login.over:has-text("Your session is over")');
  await page.fill('#token', 'right');
  await page.click('.login button:has-text("Sign in")');
  await page.waitForSelector('.login', { state: 'detached' });
  assert.equal(await page.inputValue('#what-if input[name=weight]'), '50');
  await page.click('#what-if button:has-text("Run")');
  await page.waitForSelector('tr[data-row="api-batch"]:has-text("41 s → 83 s")');
  await picture(page, 'what-if-result-light');
});

/** Scrolls the list to its end, a screen and a half in each frame. */
function scrollToTheEnd(page) {
  return page.evaluate(async () => {
    const list = document.querySelector('fg-rows');
    const scroller = list.querySelector('.scroller');
    let most = 0;
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const end = performance.now() + 90_000;
    for (;;) {
      scroller.scrollTop += 9000;
      await frame();
      most = Math.max(most, list.querySelectorAll('[data-index]').length);
      const isDone = list.getAttribute('aria-rowcount') !== '-1' && scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 1;
      if (isDone || performance.now() > end) break;
    }
    await frame();
    await frame();
    const rows = [...list.querySelectorAll('[data-index]')];
    return { most, last: rows.at(-1)?.dataset.id, count: list.getAttribute('aria-rowcount') };
  });
}

/** Returns how long the tasks of the page's thread took, in ms of the processor: other load of the machine counts not. */
function tasksOf(trace) {
  const { traceEvents } = JSON.parse(String(trace));
  const isMain = (event) => event.name === 'thread_name' && event.args.name === 'CrRendererMain';
  const threads = new Set(traceEvents.filter(isMain).map((event) => `${event.pid} ${event.tid}`));
  const tasks = traceEvents.filter((event) => event.name === 'RunTask' && threads.has(`${event.pid} ${event.tid}`));
  return tasks.map((event) => (event.tdur ?? 0) / 1000);
}

test('100 000 ended requests: few rows in the page, the last one is reached, no long task', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/requests');
  await page.waitForSelector('fg-rows [data-index="0"]');
  await browser.startTracing(page, { categories: ['toplevel', 'disabled-by-default-devtools.timeline'] });
  const measured = await scrollToTheEnd(page);
  const tasks = tasksOf(await browser.stopTracing());
  const long = tasks.filter((each) => each > 50);
  t.diagnostic(`rows in the page at most ${measured.most}; ${tasks.length} tasks, the longest ${Math.round(Math.max(...tasks))} ms, ${long.length} above 50 ms`);
  assert.equal(measured.count, '100001');
  assert.equal(measured.last, 'req-0099999 1');
  assert.ok(measured.most > 10 && measured.most < 100, String(measured.most));
  assert.ok(tasks.length > 1000, 'the tasks were seen');
  assert.ok(long.length <= 2 && long.every((each) => each <= 250), `${long.length} long tasks: ${long.join()}`);
  await page.focus('fg-rows [data-index] a');
  await page.keyboard.press('Home');
  await page.waitForSelector('fg-rows [data-index="0"] a:focus');
  await page.keyboard.press('ArrowDown');
  await page.waitForSelector('fg-rows [data-index="1"] a:focus');
});

test('filters go to the server, and a bad one is refused in words', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/requests');
  await page.fill('.filters input[name=code]', 'queue_full');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /refused/.test(document.querySelector('#lead').textContent) && [...document.querySelectorAll('fg-rows [data-index]')].every((row) => row.textContent.includes('queue_full')));
  assert.equal(fake.state.calls.findLast((call) => call.path === '/attempts' && call.query.get('cursor') === null).query.get('code'), 'queue_full');
  page.expectsFailures = true;
  await page.fill('.filters input[name=status]', 'bad');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[role=alert]:has-text("write 429 or 4xx")');
});

for (const theme of ['light', 'dark']) {
  test(`a tenant’s page in ${theme} has no other tenant’s name`, async (t) => {
    const page = await open(browser, { theme });
    t.after(() => page.context().close());
    await signIn(page, `${fake.url}/me`);
    await settle(page);
    await picture(page, `me-${theme}`);
    const text = await page.textContent('body');
    for (const other of ['chat', 'api-batch', 'evals']) assert.ok(!text.includes(other), other);
    assert.match(await page.textContent('#lead'), /12 requests of yours wait, 4 are in flight/);
    assert.ok(fake.state.calls.filter((call) => call.headers['x-fairgate-session'] === 'me').length > 3);
    await expectAccessible(page, `my page, ${theme}`);
    expectNoFaults(page, 'my page');
  });
}

test('the first paint is at most twice as late as that of an empty page', async (t) => {
  const paint = async (path) => {
    const page = await open(browser);
    page.expectsFailures = true;
    await page.goto(fake.url + path);
    const at = await page.evaluate(() => new Promise((done) => new PerformanceObserver((list) => done(list.getEntriesByName('first-contentful-paint')[0]?.startTime)).observe({ type: 'paint', buffered: true })));
    await page.context().close();
    return at;
  };
  // Both are painted in turn, so that other load of the machine meets both. The medians are compared: one paint may be late.
  const [ours, blank] = [[], []];
  const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];
  const isEarly = () => median(ours) <= 2 * median(blank);
  for (let run = 0; run < 21 && (run < 7 || !isEarly()); run += 1) {
    blank.push(await paint('/blank'));
    ours.push(await paint('/'));
  }
  const told = `first contentful paint of ${ours.length}: median ${Math.round(median(ours))} ms, of an empty page ${Math.round(median(blank))} ms`;
  t.diagnostic(told);
  assert.ok(isEarly(), told);
});
