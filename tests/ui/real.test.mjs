// The pages in front of `fairgate serve` and `fairgate-sim`, in scenes whose truth is known: what is shown equals the API,
// a change on a page changes what the gateway does, and a tenant's session shows nothing of others. Nothing here is about
// time: each check waits for the state that it expects.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import * as format from '../../crates/fairgate-dashboard/ui/core/format.js';
import { expectAccessible, expectNoFaults, launch, numbersOf, open, picture, signIn, visit } from './browser.mjs';
import { SLOTS, startGateway } from './real_gateway.mjs';
import { everyCall, sessionOf } from './every_call.mjs';

/** How the pages write the states of flows. */
const STATES = { idle: 'idle', waiting: 'waiting', held: 'held', at_cap: 'at its cap', over_budget: 'over budget', rate_limited: 'rate limited', disabled: 'disabled', never_seen: 'never came' };

/** Columns of a pool's flows, and the fields of the API that they show. */
const FLOW_COLUMNS = { due: 'due_share', got: 'got_share', asked: 'asked_share', in_flight: 'in_flight', waiting: 'waiting', wait_p95: 'wait_p95_ms' };

/** Tenants whose requests in the pool `still` do not move. */
const SCENE = ['scene-held', 'scene-capped', 'scene-idle', 'scene-waits'];

let browser, gateway, keys;

before(async () => {
  [browser, gateway] = await Promise.all([launch(), startGateway()]);
  keys = await setScenes(gateway);
});

after(async () => {
  await browser?.close();
  await gateway?.close();
});

/** Waits until `look` does not fail any more: pages draw in the next frame, and the gateway counts every five seconds. */
async function eventually(look, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((done) => setTimeout(done, 250));
    }
  }
}

/** Opens a window that is signed in as an operator, and closes it after the test. */
async function signedIn(t, at = gateway, options = {}) {
  const page = await open(browser, options);
  page.setDefaultTimeout(60_000);
  t.after(() => page.context().close());
  await signIn(page, `${at.admin}/`, at.token);
  return page;
}

async function live(pool) {
  const view = await gateway.api('GET', `/fairshare/live?pool=${pool}`);
  return view.pools[0];
}

/** Makes the tenants, and sends the requests that stay where they are. Returns the tenants' keys. */
async function setScenes(at) {
  const keys = {};
  for (const name of [...SCENE, 'scene-broke', 'scene-sleeper']) keys[name] = await at.tenant(name, 'scenes');
  for (const name of ['loud', 'quiet', 'large', 'small']) keys[name] = await at.tenant(name, 'movers', name === 'large' ? { weight: 700 } : {});
  keys.classes = await at.key('quiet', { classes: ['chat', 'batch'] });
  await at.api('PATCH', '/tenants/scene-capped', { limits: { in_flight: 1 } });
  await at.api('PATCH', '/tenants/scene-broke', { limits: { tokens_per_day: 0 } });
  const is = (inFlight, waiting) => eventually(async () => {
    const pool = (await at.api('GET', '/fairshare/live?pool=still')).pools[0];
    assert.deepEqual([pool.in_flight, pool.waiting], [inFlight, waiting]);
  });
  for (const name of SCENE) at.stay(keys[name], 1, 'still');
  await is(4, 0);
  await at.api('POST', '/pools/still/hold', { by: 'tenant', flow: 'scene-held' });
  at.stay(keys['scene-held'], 2, 'still');
  at.stay(keys['scene-capped'], 3, 'still');
  at.stay(keys['scene-waits'], 2, 'still');
  await is(4, 7);
  assert.equal(await at.send(keys['scene-broke'], { model: 'still' }), 429);
  at.flood(keys['scene-broke'], 1, { model: 'still', pauseMs: 2000 });
  return keys;
}

/** Fails unless a table shows these rows of the API: all of them, no others, with these columns. */
async function expectRows(page, caption, rows, keyOf, columns) {
  const shown = await numbersOf(page, caption);
  assert.deepEqual(Object.keys(shown).sort(), rows.map(keyOf).sort(), caption);
  for (const row of rows) {
    const seen = shown[keyOf(row)];
    const expected = Object.fromEntries(Object.entries(columns).map(([column, field]) => [column, (typeof field === 'function' ? field(row) : row[field]) ?? '–']));
    assert.deepEqual(Object.fromEntries(Object.keys(columns).map((column) => [column, seen[column]])), expected, `${caption}: ${keyOf(row)}`);
  }
}

/** Fails unless the page of a pool shows what the API says, by tenants and by what else there is. */
async function expectPool(page, pool) {
  for (const [by, list, name] of [['tenant', 'tenants', 'tenant'], ['group', 'groups', 'name'], ['class', 'classes', 'name']]) {
    const there = (await live(pool))[list];
    if (there.length === 0) continue;
    await visit(page, `#/pools/${pool}?by=${by}`);
    await eventually(async () => {
      const rows = (await live(pool))[list];
      await expectRows(page, `Flows of ${pool} by ${by}`, rows, (row) => row[name], FLOW_COLUMNS);
      const shown = await numbersOf(page, `Flows of ${pool} by ${by}`);
      for (const row of rows) assert.ok(shown[row[name]].state.includes(STATES[row.state]), `${row[name]}: ${shown[row[name]].state}, ${row.state}`);
    });
  }
  await eventually(async () => {
    const now = await live(pool);
    const facts = await page.evaluate(() => Object.fromEntries([...document.querySelectorAll('#pool-facts [data-field]')].map((each) => [each.dataset.field, [...each.querySelectorAll('data')].map((data) => Number(data.value))])));
    assert.deepEqual(facts.in_flight, [now.in_flight, now.slots]);
    assert.deepEqual([facts.waiting, facts.granted, facts.refused], [[now.waiting], [now.granted], [now.refused]]);
    assert.deepEqual(facts.waits, [now.wait_p50_ms, now.wait_p95_ms].filter((each) => each !== null));
  });
}

test('held, capped, over budget, idle, never seen: the pool’s page shows each as the API has it', async (t) => {
  const page = await signedIn(t);
  await expectPool(page, 'still');
  await visit(page, '#/pools/still?by=tenant');
  const expected = { 'scene-held': ['held', 1, 2], 'scene-capped': ['at its cap', 1, 3], 'scene-idle': ['idle', 1, 0], 'scene-waits': ['waiting', 1, 2], 'scene-broke': ['over budget', 0, 0] };
  await eventually(async () => {
    const shown = await numbersOf(page, 'Flows of still by tenant');
    const seen = Object.fromEntries(Object.entries(shown).map(([name, row]) => [name, [row.state.replace(/^\S+\s+/, ''), row.in_flight, row.waiting]]));
    assert.deepEqual(seen, expected);
  });
  await page.click('button:has-text("Which tenants never came?")');
  const all = (await gateway.api('GET', '/fairshare/live?pool=still&all=true')).pools[0].tenants;
  const never = all.filter((row) => row.state === 'never_seen').map((row) => row.tenant);
  assert.ok(never.includes('scene-sleeper') && !never.includes('scene-broke'), never.join());
  await page.waitForSelector('#never-came a');
  assert.deepEqual((await page.locator('#never-came a').allTextContents()).sort(), never.sort());
  await visit(page, '#/pools/still?by=tenant&flow=scene-broke');
  await page.waitForSelector('#flow-panel:has-text("Its budget is used up")');
  await picture(page, 'real-pool');
  expectNoFaults(page, 'the scenes');
});

test('a tenant over its rate stands there as rate limited, with its own page', async (t) => {
  const key = await gateway.tenant('hasty', 'movers', { limits: { requests_per_minute: 1 } });
  t.after(gateway.flood(key, 1, { tokens: 1, pauseMs: 500 }));
  await eventually(async () => assert.equal((await live('llama')).tenants.find((row) => row.tenant === 'hasty')?.state, 'rate_limited'));
  const page = await signedIn(t);
  await visit(page, '#/pools/llama?by=tenant&flow=hasty');
  await eventually(async () => {
    const shown = await numbersOf(page, 'Flows of llama by tenant');
    assert.equal(shown.hasty.state.replace(/^\S+\s+/, ''), 'rate limited');
  });
  expectNoFaults(page, 'a rate');
  const own = await open(browser);
  t.after(() => own.context().close());
  await signIn(own, `${gateway.url}/me`, key);
  const { pools } = await gateway.api('GET', '/me', undefined, key);
  const { summary } = pools.find((pool) => pool.pool === 'llama');
  assert.match(summary, /minute|rate/i);
  await own.waitForSelector('[data-pool=llama]:has-text("rate limited")');
});

test('overview, workers, requests and one of them show what the API says', async (t) => {
  const page = await signedIn(t);
  const pools = async () => (await gateway.api('GET', '/fairshare/live')).pools;
  await eventually(async () => {
    await expectRows(page, 'Pools: slots', await pools(), (pool) => pool.pool, { in_flight: 'in_flight', waiting: 'waiting', wait_p50: 'wait_p50_ms', wait_p95: 'wait_p95_ms', refused: 'refused', outside: () => 0 });
  });
  assert.match(await page.textContent('#lead'), /still is full: 4 of 4 slots, 7 wait\./);
  const { gateway: named } = await gateway.api('GET', '/session');
  assert.ok(named.length > 0);
  assert.equal(await page.textContent('header #gateway'), format.shortName(named));
  await picture(page, 'real-overview');

  await visit(page, '#/workers');
  for (const pool of await pools()) {
    await eventually(async () => {
      const now = (await live(pool.pool)).workers;
      await expectRows(page, `Workers of ${pool.pool}`, now, (worker) => worker.name, { in_flight: 'in_flight', prefill: 'prefill_tokens' });
    });
  }

  await visit(page, '#/requests?list=live&pool=still');
  await page.waitForFunction(() => /^7 requests wait, 4 are in flight\.$/.test(document.querySelector('#lead')?.textContent.trim()));
  const { items } = await gateway.api('GET', '/requests?pool=still');
  await eventually(async () => {
    const shown = await page.locator('fg-rows [data-id]').evaluateAll((rows) => rows.map((row) => `${row.dataset.id} ${row.textContent.includes('in flight') ? 'in_flight' : 'waiting'}`));
    assert.deepEqual(shown.sort(), items.map((item) => `${item.id} ${item.state}`).sort());
  });

  const waiting = items.find((item) => item.tenant === 'scene-waits' && item.state === 'waiting');
  // The expected wait grows while nothing is granted, so it is compared with the answer that the page had.
  let last = null;
  page.on('response', async (response) => {
    if (response.url().endsWith(waiting.id)) last = await response.json();
  });
  await visit(page, `#/requests/${waiting.id}`);
  await eventually(async () => {
    const answer = await gateway.api('GET', `/requests/${waiting.id}`);
    const fact = (title) => page.locator(`dl.facts div:has(dt:text-is("${title}")) data`).evaluateAll((all) => all.map((each) => Number(each.value)));
    assert.deepEqual(await fact('before it'), [answer.waiting.grants_ahead, answer.waiting.ahead_in_queue]);
    assert.deepEqual(await fact('expected wait'), [last.expected_wait_ms].filter((each) => each !== null));
    assert.equal((await page.textContent('#lead')).trim(), format.sentence(last.summary));
    assert.match(last.summary, /pool is full/);
    const levels = answer.waiting.levels.map((level, index) => ({ ...level, index: String(index) }));
    await expectRows(page, 'The flows that the request is in', levels, (level) => level.index, { waiting: 'waiting', in_flight: 'in_flight', got: 'got', due: 'due', bound: 'bound' });
  });
  expectNoFaults(page, 'the first pages');
});

test('a weight set on the page changes the shares; what ended is shown as the API has it', async (t) => {
  const page = await signedIn(t);
  const stops = [gateway.flood(keys.loud, 12), gateway.flood(keys.quiet, 12)];
  t.after(() => stops.forEach((stop) => stop()));
  await visit(page, '#/pools/llama?by=tenant');
  const shown = async () => (await numbersOf(page, 'Flows of llama by tenant')).quiet;
  await eventually(async () => {
    const quiet = await shown();
    assert.ok(quiet.due > 0.4 && quiet.due < 0.6 && quiet.got > 0.35 && quiet.got < 0.65 && quiet.waiting > 0, JSON.stringify(quiet));
  });
  await page.click('button[aria-label="Weight of quiet"]');
  await page.fill('#field-weight', '900');
  await page.waitForSelector('.consequences:has-text("nothing in flight is cut off")');
  await page.click('dialog button:has-text("Set the weight")');
  await page.waitForSelector('dialog', { state: 'hidden' });
  await eventually(async () => {
    const rows = (await live('llama')).tenants;
    const quiet = rows.find((row) => row.tenant === 'quiet');
    assert.deepEqual([quiet.weight, quiet.weight_share], [900, 0.9]);
    assert.equal((await shown()).weight, 900);
  });
  // Both are parts of the last minute, which the new weight fills by and by.
  await eventually(async () => {
    const quiet = await shown();
    assert.ok(quiet.due > 0.65 && quiet.got > 0.65, JSON.stringify(quiet));
  }, 120);
  stops.forEach((stop) => stop());
  await eventually(async () => assert.equal((await live('llama')).in_flight, 0));
  await expectPool(page, 'llama');

  await visit(page, '#/requests?tenant=quiet');
  await page.waitForSelector('fg-rows [data-index="9"]');
  const { items } = await gateway.api('GET', '/attempts?last=true&tenant=quiet&limit=500');
  const known = new Map(items.map((row) => [`${row.request} ${row.attempt}`, [row.waited_us, row.first_token_us, row.total_us, row.charged_tokens].filter((each) => each !== null)]));
  const rows = await page.locator('fg-rows [data-id]').evaluateAll((all) => all.map((row) => [row.dataset.id, [...row.querySelectorAll('data')].map((data) => Number(data.value))]));
  assert.ok(rows.length >= 10);
  for (const [id, numbers] of rows) assert.deepEqual(numbers, known.get(id), id);

  const [ended] = items;
  await visit(page, `#/requests/${ended.request}`);
  const { attempts } = await gateway.api('GET', `/requests/${ended.request}`);
  await expectRows(page, 'Attempts of this request', attempts, (row) => String(row.attempt), { waited: 'waited_us', first: 'first_token_us', total: 'total_us', estimate: 'estimate_tokens', input: 'input_tokens', output: 'output_tokens', charged: 'charged_tokens' });
  await page.click('button:has-text("Explain it from the journal")');
  await page.waitForSelector('#journal li');
  const told = await gateway.api('GET', `/requests/${ended.request}/journal`);
  assert.ok(told.story.length > 1, told.story.join());
  assert.deepEqual((await page.locator('#journal li').allTextContents()).map((line) => line.trim()), told.story);
  expectNoFaults(page, 'a weight');
});

test('a drift without a promise is no fault: quanta are not shares', async (t) => {
  const page = await signedIn(t);
  // Equal quanta, requests of 2 : 3 tokens: the ratio of tokens is 2 : 3 for ever.
  const text = (tokens) => 'word '.repeat(tokens);
  const stops = [['chat', 200], ['batch', 300]].map(([name, tokens]) => gateway.flood(keys.classes, 4, { model: 'rounds', tokens: 1, text: text(tokens), headers: { 'x-fairgate-class': name } }));
  t.after(() => stops.forEach((stop) => stop()));
  await visit(page, '#/pools/rounds?by=class&flow=batch');
  await eventually(async () => {
    const rows = (await live('rounds')).classes;
    assert.ok(rows.length === 2 && rows.some((row) => row.within_bound === false), JSON.stringify(rows.map((row) => [row.name, row.difference, row.bound])));
    // The page shows a difference that is beyond the bound as well.
    const shown = await page.locator('#flow-panel dl.facts div:has(dt:text-is("got − due")) data').first().getAttribute('value');
    assert.ok(Math.abs(Number(shown)) > Math.min(...rows.map((row) => row.bound)), shown);
  }, 120);
  assert.ok((await live('rounds')).classes.every((row) => row.promised === false));
  assert.equal(await page.locator('tr.outside').count(), 0);
  assert.ok(!/outside its|a fault/.test(await page.textContent('main')), 'no word of a fault');
  await visit(page, '#/');
  await page.waitForSelector('main table');
  assert.equal(await page.locator('[data-need=outside_bound]').count(), 0);
  assert.match(await page.textContent('#lead'), /Everyone is within their bound\./);
  stops.forEach((stop) => stop());
  await eventually(async () => assert.equal((await live('rounds')).in_flight, 0));
  await expectPool(page, 'rounds');
  expectNoFaults(page, 'a drift');
});

test('a partition divides slots, and says nothing of a bound', async (t) => {
  const page = await signedIn(t);
  const stops = [gateway.flood(keys.large, 12, { model: 'parts' }), gateway.flood(keys.small, 6, { model: 'parts' })];
  t.after(() => stops.forEach((stop) => stop()));
  await visit(page, '#/pools/parts?by=tenant');
  await eventually(async () => {
    const shown = await numbersOf(page, 'Flows of parts by tenant');
    assert.deepEqual([shown.large.in_flight, shown.small.in_flight], [7, 1], JSON.stringify(shown));
    assert.ok(shown.large.waiting > 0 && shown.small.waiting > 0);
  });
  assert.ok((await live('parts')).tenants.every((row) => row.promised === false));
  assert.equal(await page.locator('tr.outside').count(), 0);
  stops.forEach((stop) => stop());
  await eventually(async () => assert.equal((await live('parts')).in_flight, 0));
  await expectPool(page, 'parts');
  expectNoFaults(page, 'a partition');
});

test('a pool that shares worker time: flows, history and one request in the time of its worker', async (t) => {
  const page = await signedIn(t);
  const stops = [gateway.flood(keys.loud, 6, { model: 'timed' }), gateway.flood(keys.quiet, 6, { model: 'timed' })];
  t.after(() => stops.forEach((stop) => stop()));
  await visit(page, '#/pools/timed?by=tenant&flow=loud');
  assert.equal(await page.textContent('[data-field=unit]'), 'worker time');
  const field = (name) => page.locator(`#flow-panel [data-field=${name}] data`).getAttribute('value').then(Number);
  await eventually(async () => {
    const row = (await live('timed')).tenants.find((each) => each.tenant === 'loud');
    assert.deepEqual([row.got_tokens, row.asked_tokens], [null, null]);
    assert.ok(row.asked > 0 && row.got_share > 0, JSON.stringify(row));
    const shown = (await numbersOf(page, 'Flows of timed by tenant')).loud;
    assert.deepEqual([shown.due, shown.got, shown.asked, await field('asked')], [row.due_share, row.got_share, row.asked_share, row.asked]);
  });
  // The parts over time, and the difference of the flow: both are drawn, in the pool's unit.
  for (const title of ['Parts of the worker time got (solid) and due (dashed), by tenant', 'Difference between got and due, in worker time']) {
    const chart = page.locator('figure.chart', { has: page.locator(`figcaption:text-is("${title}")`) });
    await chart.locator('canvas').waitFor();
    await chart.locator('summary').click();
    await eventually(async () => assert.ok((await chart.locator('td').allTextContents()).some((cell) => /\d/.test(cell)), title));
  }
  await eventually(async () => {
    const { items } = await gateway.api('GET', '/requests?pool=timed');
    const waiting = items.find((item) => item.state === 'waiting');
    await visit(page, `#/requests/${waiting.id}`);
    assert.deepEqual([waiting.unit, waiting.cost_tokens], ['worker_time', null]);
    assert.equal(Number(await page.locator('[data-field=cost] data').getAttribute('value')), waiting.cost);
    assert.match(await page.textContent('[data-field=cost]'), /of worker time$/);
  });
  stops.forEach((stop) => stop());
  await eventually(async () => assert.equal((await live('timed')).in_flight, 0));
  await expectPool(page, 'timed');
  expectNoFaults(page, 'worker time');
});

test('fleet: the board, a question that is answered on the page, the task', async (t) => {
  await gateway.api('POST', '/projects', { id: 'web', tenant: 'loud', weight: 2 });
  await gateway.api('POST', '/tasks', { tasks: [1, 2, 3].map((number) => ({ id: `web-${number}`, project: 'web', prompt: 'Do it.', title: `Task ${number}` })) });
  const { token } = await gateway.api('POST', '/agents', { id: 'ada', reports_tokens: true });
  const claim = await gateway.api('POST', '/agents/ada/claim', {}, token);
  await gateway.api('POST', `/agents/ada/tasks/${claim.task}/ask`, { epoch: claim.epoch, question: 'Which region?', tokens: 300 }, token);
  const page = await signedIn(t);
  await visit(page, '#/');
  await page.waitForSelector('[data-need=task]');
  await visit(page, '#/fleet');
  const projects = async () => (await gateway.api('GET', '/fleet')).projects;
  await eventually(async () => expectRows(page, 'Projects: due', await projects(), (row) => row.id, { used: 'used', reserved: 'reserved', ready: 'ready', running: 'running', due: 'due_share', got: 'got_share' }));
  await page.waitForSelector(`[data-column=WAITING_INPUT] [data-task="${claim.task}"]`);
  await page.click(`button[aria-label="Answer… ${claim.task}"]`);
  await page.waitForSelector('dialog label:has-text("Which region?")');
  await page.fill('#field-text', 'eu-west');
  await page.click('dialog button:has-text("Send the answer")');
  await page.waitForSelector(`[data-column=WAITING_INPUT] [data-task="${claim.task}"]`, { state: 'detached' });
  assert.equal((await gateway.api('GET', `/tasks/${claim.task}`)).answer, 'eu-west');
  await visit(page, `#/fleet/tasks/${claim.task}`);
  const why = await gateway.api('GET', `/tasks/${claim.task}/why`);
  await page.waitForFunction((sentence) => document.querySelector('#lead')?.textContent.includes(sentence), why.sentence);
  expectNoFaults(page, 'the fleet');
});

test('tenants, usage, what if, audit and configuration show what the API says', async (t) => {
  const page = await signedIn(t);
  await visit(page, '#/tenants');
  const tenants = (await gateway.api('GET', '/tenants?limit=1000')).items;
  await page.waitForSelector('tr[data-row="scene-broke"]:has-text("over budget")');
  await expectRows(page, 'Tenants: group', tenants, (tenant) => tenant.name, { weight: 'weight', group: 'group' });

  await visit(page, '#/tenants/scene-capped');
  const owned = (await gateway.api('GET', '/keys?tenant=scene-capped')).items;
  await page.waitForSelector(`tr[data-row="${owned[0].id}"]`);
  await expectRows(page, 'Keys of the tenant', owned, (key) => key.id, { weight: 'weight' });
  await expectRows(page, 'The tenant in each pool', [{ pool: 'still', in_flight: 1, cap: 1, waiting: 3 }], (row) => row.pool, { in_flight: 'in_flight', cap: 'cap', waiting: 'waiting' });

  await visit(page, '#/tenants/in-file');
  const { file, line } = (await gateway.api('GET', '/tenants/in-file')).declared;
  assert.equal(await page.textContent('#declared'), `Declared in ${file}, line ${line}: change it there and reload.`);
  assert.ok(await page.isDisabled('button:text-is("Limits…")'));
  await assert.rejects(gateway.api('PATCH', '/tenants/in-file', { weight: 5 }), /409 .*declared_in_file/);

  await visit(page, '#/usage?by=tenant&last=24h');
  await eventually(async () => {
    const { rows } = await gateway.api('GET', '/usage?by=tenant&since=24h&quantiles=true');
    await expectRows(page, 'Usage by tenant', rows, (row) => `${row.name}\u0000`, { requests: 'requests', failed: 'failed', charged: 'charged_tokens', got: 'got_share', input: 'input_tokens', output: 'output_tokens', wait_p50: 'waited_p50_us', wait_p95: 'waited_p95_us', wait_max: 'waited_max_us' });
  });

  await visit(page, '#/what-if?pool=llama&by=tenant&flow=loud');
  await page.fill('#what-if input[name=weight]', '5000');
  // The journal is younger than an hour, so the page asks again, since its beginning.
  page.expectsFailures = true;
  const [asked] = await Promise.all([page.waitForResponse((response) => response.url().endsWith('/what-if') && response.ok()), page.click('#what-if button:has-text("Run")')]);
  await page.waitForSelector('tr[data-row=loud]');
  await page.waitForSelector('main:has-text("The journal begins at")');
  page.expectsFailures = false;
  const question = asked.request().postDataJSON();
  assert.deepEqual([question.pool, question.by, question.weights], ['llama', 'tenant', [{ by: 'tenant', flow: 'loud', weight: 5000 }]]);
  const { flows } = await gateway.api('POST', '/what-if', question);
  assert.deepEqual(flows.map((row) => row.flow).sort(), ['hasty', 'loud', 'quiet']);
  for (const row of flows) {
    const cell = (column) => page.textContent(`tr[data-row="${row.flow}"] td[data-column=${column}]`);
    const pair = (field, write) => `${write(row.recorded[field])} → ${write(row.what_if[field])}`;
    assert.equal((await cell('requests')).trim(), format.count(row.requests));
    for (const [column, field, write] of [['granted', 'granted', format.count], ['tokens', 'tokens', format.count], ['wait_p95', 'wait_p95_us', format.duration], ['wait_max', 'wait_max_us', format.duration]]) {
      assert.equal((await cell(column)).trim(), pair(field, write), `${row.flow}: ${column}`);
    }
  }

  await visit(page, '#/audit');
  const audit = (await gateway.api('GET', '/audit?limit=100')).items;
  await page.waitForSelector(`tr[data-row="${audit[0].id}"]`);
  await expectRows(page, 'Changes, the latest first', audit, (entry) => String(entry.id), { action: 'action', subject: 'subject', actor: 'actor' });
  await page.waitForSelector('tr:has-text("tenant.patch"):has-text("weight: 100 → 900"):has-text("admin:on-call")');

  await visit(page, '#/configuration');
  const { settings } = await gateway.api('GET', '/config');
  await page.waitForSelector('td code');
  await expectRows(page, 'Options of the configuration', settings, (setting) => setting.path, {});
  assert.ok(!(await page.textContent('body')).includes(gateway.token));
  expectNoFaults(page, 'the other pages');
});

test('hostile texts from the gateway are text on every page', async (t) => {
  const markup = `<img src=x onerror="window.hacked = 1">`;
  const script = `"><script>window.hacked = 2</script>`;
  const turned = '\u202eevil\u202c';
  const texts = [markup, script, turned, 'javascript:window.hacked=3', 'x'.repeat(128)];
  // Tenants, groups and projects have plain names. Keys, models, agents, sessions and tasks are named by others.
  for (const name of [...texts.slice(0, 3), 'x'.repeat(512)]) await assert.rejects(gateway.tenant(name, 'movers'), /a name is 1 to 128 letters/);
  for (const name of ['\u0007bell', 'x'.repeat(512)]) await assert.rejects(gateway.key('quiet', { name }), /422/);
  await gateway.tenant('odd', 'movers');
  for (const name of texts) {
    const key = await gateway.key('odd', { name });
    assert.equal(await gateway.send(key, { tokens: 1, headers: { 'x-fairgate-agent': markup.replaceAll(' ', ''), 'x-fairgate-session': script.replaceAll(' ', '') } }), 200);
    assert.equal(await gateway.send(key, { tokens: 1, model: name }), 404);
  }
  await gateway.api('POST', '/tasks', { tasks: [{ id: 'web-odd', project: 'web', prompt: markup, title: `${markup}${turned}` }] });
  const page = await signedIn(t);
  await visit(page, '#/tenants/odd');
  await eventually(async () => {
    const shown = await page.locator('main bdi').allTextContents();
    assert.ok(shown.includes(markup) && shown.includes(script), shown.join('\n'));
    assert.ok(shown.includes('⟨U+202E⟩evil⟨U+202C⟩'), 'a turn of direction is shown, not obeyed');
    assert.ok(shown.some((each) => each.startsWith('xxxx')) && shown.every((each) => [...each].length <= 60));
  });
  const pages = ['#/', '#/pools/llama?by=tenant&flow=odd', '#/requests?tenant=odd', '#/fleet', '#/fleet/tasks/web-odd', '#/tenants/odd', '#/usage?by=key', '#/usage?by=model&split=key', '#/audit', `#/search?q=${encodeURIComponent(script)}`, `#/pools/${encodeURIComponent(markup)}`, `#/tenants/${encodeURIComponent(markup)}`];
  page.expectsFailures = true;
  for (const hash of pages) {
    await visit(page, hash);
    assert.equal(await page.locator('main img, main script').count(), 0, hash);
    assert.equal(await page.locator('main a[href^="javascript:"]').count(), 0, hash);
    assert.equal(await page.evaluate(() => window.hacked), undefined, hash);
    expectNoFaults(page, hash);
  }
  await picture(page, 'real-hostile');
});

test('every page with real data: a sentence, nothing in the console, nothing found by axe', async (t) => {
  const page = await signedIn(t);
  const pages = ['#/', '#/pools', '#/pools/still?flow=scene-waits', '#/pools/rounds?by=class', '#/pools/parts', '#/pools/timed?flow=loud', '#/requests?list=live', '#/requests', '#/workers', '#/fleet', '#/fleet/tasks/web-2', '#/tenants', '#/tenants/loud', '#/usage?by=tenant&split=model', '#/what-if?pool=llama', '#/audit', '#/configuration', '#/search?q=loud'];
  for (const hash of pages) {
    await visit(page, hash);
    assert.ok((await page.textContent('#lead')).trim().length > 5, hash);
    assert.equal(await page.locator('main [role=alert]').count(), 0, `${hash} says that something failed`);
    await expectAccessible(page, hash);
    expectNoFaults(page, hash);
  }
});

test('a tenant’s page shows its own numbers', async (t) => {
  const page = await open(browser);
  t.after(() => page.context().close());
  await signIn(page, `${gateway.url}/me`, keys['scene-waits']);
  await eventually(async () => {
    const me = await gateway.api('GET', '/me', undefined, keys['scene-waits']);
    const mine = me.pools.find((pool) => pool.pool === 'still');
    const field = (name) => page.locator(`[data-pool=still] [data-field=${name}] data`).evaluateAll((all) => all.map((each) => Number(each.value)));
    assert.deepEqual([await field('waiting'), await field('in_flight')], [[2], [1]]);
    assert.deepEqual([mine.waiting, mine.in_flight], [2, 1]);
    assert.deepEqual(await field('due'), [mine.due_share, mine.got_share].filter((each) => each !== null));
  });
  const text = await page.textContent('body');
  for (const other of [...SCENE, 'scene-broke', 'loud', 'quiet'].filter((name) => name !== 'scene-waits')) assert.ok(!text.includes(other), other);
  const broke = await open(browser);
  t.after(() => broke.context().close());
  await signIn(broke, `${gateway.url}/me`, keys['scene-broke']);
  await broke.waitForSelector('[data-pool=still]:has-text("A budget is used up")');
  expectNoFaults(page, 'my page');
});

test('a tenant’s session is tried on every route with every field: nothing of others', async () => {
  const [state, texts] = await ownAndForeign('scene-waits');
  const session = await sessionOf(gateway.url, keys['scene-waits']);
  let answered = 0;
  for (const call of everyCall(await (await fetch(`${gateway.admin}/api/v1/openapi.json`)).json(), texts.names)) {
    const response = await session(call.method, call.path, call.body);
    const text = await response.text();
    const isOk = response.status < 300;
    answered += isOk ? 1 : 0;
    const asked = decodeURIComponent(call.path) + JSON.stringify(call.body ?? '');
    // A refusal may repeat what the caller wrote; an answer may not even do that.
    const found = texts.forbidden.filter((each) => text.includes(each) && (isOk || !asked.includes(each)));
    assert.deepEqual(found, [], `${call.method} ${call.path} ${JSON.stringify(call.body ?? null)}: ${response.status} ${text.slice(0, 500)}`);
  }
  assert.ok(answered >= 6, `${answered} calls were answered`);
  assert.deepEqual(await state(), await ownAndForeign('scene-waits').then(([again]) => again()), 'nothing was changed');
  const events = await eventsOf(session);
  assert.ok(events.includes('event: ended'), events.slice(0, 500));
  assert.deepEqual(texts.forbidden.filter((each) => events.includes(each)), []);
});

/** Returns what reads the state that a tenant must not change, and the texts that a tenant must not see. */
async function ownAndForeign(own) {
  const lists = await Promise.all(['tenants', 'groups', 'keys', 'projects', 'agents'].map(async (list) => (await gateway.api('GET', `/${list}?limit=1000`)).items));
  const [tenants, groups, all] = lists;
  const requests = (await gateway.api('GET', '/requests')).items;
  const ended = (await gateway.api('GET', '/attempts?last=true&limit=200')).items;
  const others = tenants.map((tenant) => tenant.name).filter((name) => name !== own);
  const foreignKeys = all.filter((key) => key.tenant !== own);
  const ids = [...requests.map((request) => [request.tenant, request.id]), ...ended.map((row) => [row.tenant, row.request])].filter(([tenant]) => tenant !== own).map(([, id]) => id);
  // `large`, `small`, `loud` and `quiet` are words of their own; the names of the scenes are not.
  const forbidden = [...others.filter((name) => name.startsWith('scene-')), 'movers', ...foreignKeys.flatMap((key) => [key.id, key.name]), ...ids, 'web-1', gateway.token];
  const names = ['scene-held', 'movers', foreignKeys[0].id, ids[0], 'web-1', 'still'];
  const state = async () => JSON.stringify([lists.map((list) => list.map(({ last_used_at: _, used: __, last_seen: ___, ...rest }) => rest)), (await gateway.api('GET', '/pools')).items.map((pool) => [pool.name, pool.held])]);
  return [state, { forbidden: [...new Set(forbidden)].filter((each) => each !== `key of ${own}`), names, groups }];
}

/** Reads a tenant's events until one of its requests has ended, while others do things as well. */
async function eventsOf(session) {
  const abort = new AbortController();
  const response = await session('GET', '/api/v1/events?kinds=live,ended', undefined, abort.signal);
  assert.equal(response.status, 200);
  await gateway.api('POST', '/pools/still/resume', { by: 'tenant', flow: 'scene-held' });
  await gateway.api('POST', '/pools/still/hold', { by: 'tenant', flow: 'scene-held' });
  assert.equal(await gateway.send(keys.loud, { tokens: 1 }), 200);
  await gateway.api('POST', '/tasks', { tasks: [{ id: 'web-9', project: 'web', prompt: 'Do it.', title: 'Task 9' }] });
  assert.equal(await gateway.send(keys['scene-waits'], { tokens: 1 }), 200);
  let text = '';
  for await (const chunk of response.body) {
    text += Buffer.from(chunk).toString();
    if (text.includes('event: ended')) break;
  }
  abort.abort();
  return text;
}

test('cookies of one port open nothing on the other', async (t) => {
  const ask = (page, path, who) => page.evaluate(async ([to, word]) => (await fetch(to, { headers: { 'x-fairgate-session': word } })).status, [`/api/v1${path}`, who]);
  const operator = await signedIn(t);
  operator.expectsFailures = true;
  assert.equal(await ask(operator, '/tenants', 'admin'), 200);
  await operator.goto(`${gateway.url}/me`);
  await operator.waitForSelector('.login #token');
  for (const [path, who] of [['/session', 'admin'], ['/session', 'me'], ['/tenants', 'admin'], ['/me', 'admin'], ['/me', 'me'], ['/requests', 'admin']]) {
    assert.ok([401, 404].includes(await ask(operator, path, who)), `${path} at the clients' address`);
  }
  const tenant = await open(browser);
  t.after(() => tenant.context().close());
  await signIn(tenant, `${gateway.url}/me`, keys['scene-waits']);
  assert.equal(await ask(tenant, '/me', 'me'), 200);
  tenant.expectsFailures = true;
  await tenant.goto(`${gateway.admin}/`);
  await tenant.waitForSelector('.login #token');
  for (const [path, who] of [['/session', 'me'], ['/session', 'admin'], ['/me', 'me'], ['/me', 'admin'], ['/requests', 'me'], ['/tenants', 'me'], ['/events', 'me']]) {
    assert.equal(await ask(tenant, path, who), 401, `${path} at the operators' address`);
  }
  await tenant.fill('#token', keys['scene-waits']);
  await tenant.click('button:has-text("Sign in")');
  await tenant.waitForSelector('[role=alert]:has-text("no token")');
});

test('the flood: who only clicks what the pages show finds it, caps it, and sees what follows; on PostgreSQL', async (t) => {
  const flooded = await startGateway({ postgres: true });
  t.after(() => flooded.close());
  const chat = await flooded.tenant('chat', 'prod');
  const batch = await flooded.tenant('api-batch', 'batch');
  flooded.flood(chat, 2);
  flooded.flood(batch, 64);
  const page = await signedIn(t, flooded);

  // The overview names the pool that is full.
  await page.waitForFunction(() => / is full: \d+ of \d+ slots, \d+ wait\./.test(document.querySelector('#lead')?.textContent));
  const [, pool] = /(\S+) is full:/.exec(await page.textContent('#lead'));
  await page.click(`main td[data-column=name] a:has-text("${pool}")`);

  // Its page names the tenant whose requests wait.
  const named = /waits?\. (\S+) (asked for [\d.]+\s% and is due [\d.]+\s%|has most of it): \d+ of those that wait are its own/;
  await page.waitForFunction((pattern) => new RegExp(pattern).test(document.querySelector('#lead')?.textContent), named.source);
  const [, who] = named.exec(await page.textContent('#lead'));
  await page.click(`td[data-column=name] a:has-text("${who}")`);
  await page.waitForFunction(() => /times what it is due|of its requests wait: the pool is full/.test(document.querySelector('#flow-panel p')?.textContent));
  await page.waitForSelector('#flow-keys li');
  assert.match(await page.textContent('#flow-keys li >> nth=0'), /100\s% of its tokens/);
  await picture(page, 'real-flood');

  // The dialog says what will follow; the row and the sentence say that it did.
  await page.click(`button[aria-label="Cap of ${who}"]`);
  await page.fill('#field-cap', '2');
  await page.waitForSelector('.consequences:has-text("nothing is cut off")');
  await page.click('dialog button:has-text("Set the cap")');
  await page.waitForSelector('dialog', { state: 'hidden' });
  await page.waitForSelector(`tr[data-row="${who}"]:has-text("at its cap")`);
  await eventually(async () => {
    const row = (await numbersOf(page, `Flows of ${pool} by tenant`))[who];
    assert.deepEqual([row.in_flight, row.state.replace(/^\S+\s+/, '')], [2, 'at its cap']);
    const used = await page.locator('#pool-facts [data-field=in_flight] data').first().getAttribute('value');
    assert.ok(Number(used) <= 4 && Number(used) < SLOTS, `${used} slots in use`);
  });
  await page.waitForSelector('#flow-panel p:has-text("as many as its cap allows")');
  await picture(page, 'real-flood-capped');

  // The audit trail has it, with the name that was given at the login; and so has the database.
  await page.click('nav a:text-is("Audit")');
  await page.waitForSelector(`tr:has-text("tenant.patch"):has-text("${who}"):has-text("limits.in_flight: – → 2"):has-text("admin:on-call")`);
  const [entry] = (await flooded.api('GET', '/audit?action=tenant.patch')).items;
  assert.deepEqual([entry.actor, entry.subject, entry.before.limits.in_flight ?? null, entry.after.limits.in_flight], ['admin:on-call', 'api-batch', null, 2]);

  // What was capped can be set free again: the inverse change, in the trail too.
  await page.click(`.undo[data-subject="${who}"] button:has-text("Undo")`);
  await page.waitForSelector('tr:has-text("limits.in_flight: 2 → –")');
  expectNoFaults(page, 'the flood');
});
