// What needs somebody, from what the API says: each kind alone, the order of all, and nothing where nothing is wrong.
// No browser needed; what the list imports looks at the address of the page and makes a node for lit-html.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { budgets, pools, spentBudgets } from './fake_data.mjs';

globalThis.location = { pathname: '/' };
globalThis.document = { createTreeWalker: () => ({}), createComment: () => ({}), hidden: false };
globalThis.sessionStorage = globalThis.localStorage = { getItem: () => null, setItem: () => {} };
const { needs } = await import('../../crates/fairgate-dashboard/ui/pages/needs.js');
const { live } = await import('../../crates/fairgate-dashboard/ui/core/live.js');
const service = await import('../../crates/fairgate-dashboard/ui/components/service.js');

/** Returns a template as text, without its tags. */
function textOf(value) {
  if (value === null || value === undefined || typeof value === 'symbol') return '';
  if (Array.isArray(value)) return value.map(textOf).join('');
  if (typeof value !== 'object') return String(value).replace(/\u202f/g, ' ');
  if (!value.strings) return '';
  const all = value.strings.map((part, index) => part + (index < value.values.length ? textOf(value.values[index]) : '')).join('');
  return all.replace(/<[^>]*>/g, '');
}

/** A pool with one worker that is up, and one tenant within its bound. */
function quietPool() {
  const pool = structuredClone(pools()[1]);
  const worker = { ...pool.workers[0], name: 'w', state: 'up', reason: null, quota: null };
  return { ...pool, pool: 'p', workers: [worker], waiting: 0 };
}

const HEALTH = { ready: true, reasons: [], degraded: [], warnings: [] };
const SETTINGS = { name: 'p', queued: 10, queued_max: 200, journal: { status: 'writing', error: null } };

/** Returns the needs of a gateway in which nothing is wrong but what `change` says. */
function needsOf(change = {}) {
  const list = needs({ pools: [quietPool()], health: HEALTH, questions: [], settings: [SETTINGS], budgets: [], ...change });
  return list.map((need) => ({ ...need, subject: textOf(need.subject), text: textOf(need.text) }));
}

/** Returns the only need, which must be of this kind. */
function only(kind, change) {
  const list = needsOf(change);
  assert.deepEqual(list.map((need) => need.kind), [kind], JSON.stringify(list));
  return list[0];
}

const withWorkers = (...workers) => ({ pools: [{ ...quietPool(), workers: [quietPool().workers[0], ...workers.map((worker) => ({ ...quietPool().workers[0], ...worker }))] }] });

test('nothing is listed where nothing is wrong', () => {
  assert.deepEqual(needsOf(), []);
  const [day] = budgets('chat');
  assert.deepEqual(needsOf({ budgets: [day], health: null }), []);
});

test('a gateway that is not ready, and a database that is away, say so in the gateway’s words', () => {
  const notReady = only('health', { health: { ...HEALTH, ready: false, reasons: ['the gateway is draining'] } });
  assert.deepEqual([notReady.tone, notReady.subject, notReady.text], ['bad', 'gateway', 'the gateway is draining']);
  const away = only('store', { health: { ...HEALTH, warnings: ['the database does not answer: rows are kept in files'] } });
  assert.deepEqual([away.tone, away.text], ['bad', 'the database does not answer: rows are kept in files']);
});

test('a pool without a worker that is up is named once, by the view or by the gateway', () => {
  const down = { ...quietPool(), workers: [{ ...quietPool().workers[0], state: 'drained' }] };
  for (const change of [{ pools: [down] }, { health: { ...HEALTH, degraded: ['p'] } }, { pools: [down], health: { ...HEALTH, degraded: ['p'] } }]) {
    const need = only('no_worker', change);
    assert.deepEqual([need.subject, need.text, need.address], ['p', 'no worker takes requests', '#/workers?pool=p']);
  }
});

test('an account that is out names the provider’s reason', () => {
  const quota = { account: 'main', out: 'insufficient_quota: no credit', paused_ms: null };
  const need = only('account_out', withWorkers({ name: 'openai', state: 'out', quota }));
  assert.deepEqual([need.subject, need.text], ['p / openai', 'its account cannot be used: insufficient_quota: no credit']);
});

test('a broken worker says since when and when it is tried again, an unhealthy one too', () => {
  const now = Date.now();
  const at = (seconds) => new Date(now + seconds * 1000).toISOString();
  const worker = { name: 'vllm-c', state: 'broken', reason: 'connect: refused', down_since: at(-41), retry_at: at(12) };
  assert.match(only('worker_down', withWorkers(worker)).text, /^broken since \d\d:\d\d:\d\d, tried again in 1[12] s: connect: refused$/);
  const trial = { ...worker, retry_at: null };
  assert.match(only('worker_down', withWorkers(trial)).text, /, the next request tries it: connect/);
  const checked = { ...worker, state: 'unhealthy', retry_at: at(-1) };
  assert.match(only('worker_down', withWorkers(checked)).text, /^unhealthy since .*, being checked now: /);
  // The clock of the gateway counts, not that of the browser.
  live.clockAheadMs = 60_000;
  assert.match(only('worker_down', withWorkers(worker)).text, /tried again in 7[12] s/);
  live.clockAheadMs = 0;
});

test('a paused worker says for how long', () => {
  const need = only('worker_paused', withWorkers({ name: 'openai', state: 'paused', reason: 'the provider answered 429', quota: { paused_ms: 41_000, out: null } }));
  assert.deepEqual([need.tone, need.text], ['warn', 'paused 41 s more: the provider answered 429']);
});

test('a flow outside a promised bound is a fault of ours, in the unit of its pool', () => {
  const outside = (fields, unit = 'tokens') => {
    const pool = { ...quietPool(), unit };
    return { pools: [{ ...pool, tenants: [{ ...pool.tenants[0], tenant: 'search', within_bound: false, difference: -30_000, bound: 24_000, ...fields }] }] };
  };
  const need = only('outside_bound', outside({}));
  assert.deepEqual([need.subject, need.address], ['p / search', '#/pools/p?flow=search']);
  assert.match(need.text, /by 6 000 tokens: a fault of the gateway, not of the tenant$/);
  assert.match(only('outside_bound', outside({ difference: 5_200_000, bound: 4_000_000 }, 'worker_time')).text, /by 1\.2 s of worker time: a fault/);
  assert.match(only('outside_bound', outside({}, 'money')).text, /by 6 000 micro-units of money: a fault/);
  assert.deepEqual(needsOf(outside({ promised: false })), [], 'without a promise it is no fault');
});

test('amounts have the unit of their pool', () => {
  const shown = [undefined, 'tokens', 'worker_time', 'money'].map((unit) => [service.unitName(unit), textOf(service.service(2400, unit)), textOf(service.serviceDifference(2400, unit))]);
  assert.deepEqual(shown, [
    ['tokens', '2 400 tokens', '+2 400 tokens'],
    ['tokens', '2 400 tokens', '+2 400 tokens'],
    ['worker time', '2.4 ms of worker time', '+2.4 ms of worker time'],
    ['micro-units of money', '2 400 micro-units of money', '+2 400 micro-units of money'],
  ]);
});

test('a queue is named from nine tenths on, and a journal that stopped with its reason', () => {
  assert.deepEqual(needsOf({ settings: [{ ...SETTINGS, queued: 179 }] }), []);
  const full = only('queue_full', { settings: [{ ...SETTINGS, queued: 180 }] });
  assert.match(full.text, /holds 180 of 200 requests/);
  const journal = only('journal', { settings: [{ ...SETTINGS, journal: { status: 'stopped', error: 'no space left' } }] });
  assert.equal(journal.text, 'the journal stopped: no space left');
});

test('a spent budget names its owner: a tenant, a group, a model, all hosted use', () => {
  const [tenant, group] = spentBudgets(90);
  const spent = only('budget', { budgets: [tenant] });
  assert.deepEqual([spent.tone, spent.subject, spent.address], ['bad', 'tenant api-batch', '#/tenants/api-batch']);
  assert.match(spent.text, /^its tokens of this day are used up; the budget begins anew /);
  const nearly = only('budget', { budgets: [group] });
  assert.deepEqual([nearly.tone, nearly.subject, nearly.address], ['warn', 'group batch', '#/tenants?group=batch']);
  assert.match(nearly.text, /^93\.0 % of its money of this month is used; /);
  assert.deepEqual(needsOf({ budgets: [{ ...group, used_money: '1799' }] }), [], 'nine tenths are not reached');
  assert.equal(only('budget', { budgets: [{ ...group, scope: 'hosted', owner: '*', tier: 'hosted' }] }).subject, 'all hosted use');
  assert.equal(only('budget', { budgets: [{ ...group, scope: 'hosted_model', owner: 'gpt-5' }] }).subject, 'hosted model gpt-5');
});

test('a task that waits for a person leads to its page', () => {
  const need = only('task', { questions: [{ id: 'web-199' }] });
  assert.deepEqual([need.subject, need.address], ['web-199', '#/fleet/tasks/web-199']);
});

test('the worst is first', () => {
  const workers = [{ name: 'a', state: 'paused' }, { name: 'b', state: 'broken' }, { name: 'c', state: 'out' }];
  const outside = { ...quietPool(), pool: 'q', tenants: [{ ...quietPool().tenants[0], within_bound: false, difference: 30_000 }] };
  const list = needsOf({
    pools: [...withWorkers(...workers).pools, outside],
    health: { ...HEALTH, warnings: ['the database does not answer'], degraded: ['r'] },
    questions: [{ id: 'web-1' }],
    budgets: spentBudgets(90).toReversed(),
  });
  assert.deepEqual(list.map((need) => need.kind), ['store', 'no_worker', 'account_out', 'outside_bound', 'worker_down', 'budget', 'budget', 'worker_paused', 'task']);
  assert.deepEqual(list.filter((need) => need.kind === 'budget').map((need) => need.tone), ['bad', 'warn']);
});
