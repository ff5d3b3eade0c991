/** What needs somebody, worst first. Pure: from what the API says to a list, so it is tested without a browser. */
import { html } from '../vendor/lit-html/lit-html.js';
import { count, durationOfMs, percent, several } from '../core/format.js';
import { usedPart } from '../core/budget.js';
import { href } from '../core/router.js';
import { name } from '../components/name.js';
import { when } from '../components/number.js';
import { outageTimes } from '../components/outage.js';
import { serviceText } from '../components/service.js';

/** Part of a queue, and of a budget, from which it is called nearly full. */
const NEARLY = 0.9;

/**
 * @typedef {object} Need
 * @property {number} rank order: the smallest is worst; of one rank, `bad` is before `warn`
 * @property {string} kind stable word, for tests
 * @property {'bad' | 'warn'} tone
 * @property {unknown} subject
 * @property {unknown} text
 * @property {string} address
 * @property {string} where
 *
 * @typedef {object} NeedSources
 * @property {import('../core/types.js').LivePool[]} pools
 * @property {Api.ReadinessBody | null} health answer of /readyz
 * @property {{ id: string }[]} questions tasks that wait for a person
 * @property {Api.Pool[]} settings items of /pools
 * @property {Api.Budget[]} budgets budgets of all hosted use, and spent ones of tenants and groups
 */

/**
 * Returns the rows of a pool that are outside a bound that is promised. A flow of a policy without such a promise may
 * be far from its share, and nothing is wrong.
 * @param {import('../core/types.js').LivePool} pool
 */
export function outsideRows(pool) {
  return [...pool.groups, ...pool.tenants, ...pool.classes, ...pool.projects].filter(isOutside);
}

/** @param {import('../core/types.js').FlowRow} row */
export function isOutside(row) {
  return row.promised === true && row.within_bound === false;
}

/**
 * @param {NeedSources} sources
 * @returns {Need[]}
 */
export function needs({ pools, health, questions, settings, budgets }) {
  /** @type {Need[]} */
  const list = [];
  const gateway = { rank: 0, subject: 'gateway', address: href(['configuration']), where: 'Configuration' };
  for (const reason of health?.reasons ?? []) list.push({ ...gateway, kind: 'health', tone: 'bad', text: reason });
  for (const warning of health?.warnings ?? []) list.push({ ...gateway, kind: 'store', tone: 'bad', text: warning });
  const withoutWorker = new Set([...(health?.degraded ?? []), ...pools.filter(hasNoWorkerUp).map((pool) => pool.pool)]);
  for (const pool of withoutWorker) list.push(needOfWorkers(pool));
  for (const pool of pools) list.push(...needsOfPool(pool));
  for (const pool of settings) list.push(...needsOfSettings(pool));
  list.push(...needsOfBudgets(budgets));
  for (const task of questions) list.push(needOfTask(task.id));
  const order = (/** @type {Need} */ need) => 2 * need.rank + (need.tone === 'bad' ? 0 : 1);
  return list.sort((a, b) => order(a) - order(b));
}

/** @param {import('../core/types.js').LivePool} pool */
function hasNoWorkerUp(pool) {
  return pool.workers.length > 0 && pool.workers.every((worker) => worker.state !== 'up');
}

/**
 * @param {string} pool
 * @returns {Need}
 */
function needOfWorkers(pool) {
  return { rank: 1, kind: 'no_worker', tone: 'bad', subject: name(pool), text: 'no worker takes requests', address: href(['workers'], { pool }), where: 'Workers' };
}

/**
 * @param {import('../core/types.js').LivePool} pool
 * @returns {Need[]}
 */
function needsOfPool(pool) {
  /** @type {Need[]} */
  const list = [];
  for (const worker of pool.workers) {
    const need = needOfWorker(pool.pool, worker);
    if (need) list.push(need);
  }
  for (const row of outsideRows(pool)) {
    const flow = row.tenant ?? row.name ?? '';
    list.push({ rank: 3, kind: 'outside_bound', tone: 'bad', subject: html`${name(pool.pool)} / ${name(flow)}`, text: `outside its promised bound by ${serviceText(Math.abs(row.difference ?? 0) - (row.bound ?? 0), pool.unit)}: a fault of the gateway, not of the tenant`, address: href(['pools', pool.pool], { flow }), where: 'Pool' });
  }
  return list;
}

/**
 * @param {string} pool
 * @param {import('../core/types.js').WorkerRow} worker
 * @returns {Need | null}
 */
function needOfWorker(pool, worker) {
  const base = { subject: html`${name(pool)} / ${name(worker.name)}`, address: href(['workers'], { pool }), where: 'Workers' };
  const reason = worker.reason ? `: ${worker.reason}` : '';
  switch (worker.state) {
    case 'out':
      return { ...base, rank: 2, kind: 'account_out', tone: 'bad', text: `its account cannot be used${worker.quota?.out ? `: ${worker.quota.out}` : reason}` };
    case 'broken':
    case 'unhealthy':
      return { ...base, rank: 4, kind: 'worker_down', tone: 'bad', text: html`${worker.state}${worker.down_since ? html` ${outageTimes(worker)}` : ''}${reason}` };
    case 'paused':
      return { ...base, rank: 5, kind: 'worker_paused', tone: 'warn', text: `paused${worker.quota?.paused_ms ? ` ${durationOfMs(worker.quota.paused_ms)} more` : ''}${reason}` };
    default:
      return null;
  }
}

/**
 * @param {Api.Pool} pool
 * @returns {Need[]}
 */
function needsOfSettings(pool) {
  /** @type {Need[]} */
  const list = [];
  if (pool.queued_max > 0 && pool.queued >= NEARLY * pool.queued_max) {
    list.push({ rank: 4, kind: 'queue_full', tone: 'warn', subject: name(pool.name), text: `its queue holds ${count(pool.queued)} of ${several(pool.queued_max, 'request')}; further ones are refused when it is full`, address: href(['pools', pool.name]), where: 'Pool' });
  }
  if (pool.journal?.error) {
    list.push({ rank: 4, kind: 'journal', tone: 'bad', subject: name(pool.name), text: `the journal stopped: ${pool.journal.error}`, address: href(['configuration']), where: 'Configuration' });
  }
  return list;
}

/**
 * @param {Api.Budget[]} budgets
 * @returns {Need[]}
 */
function needsOfBudgets(budgets) {
  return budgets.flatMap((budget) => {
    const used = usedPart(budget);
    if (used === null || used < NEARLY) return [];
    /** @type {'bad' | 'warn'} */
    const tone = used >= 1 ? 'bad' : 'warn';
    const unit = budget.unit === 'money' ? 'money' : 'tokens';
    const tier = budget.tier === 'hosted' ? ' on hosted workers' : '';
    const what = `its ${unit} of this ${budget.period}${tier} ${unit === 'money' ? 'is' : 'are'} used`;
    const part = used >= 1 ? `${what} up` : `${percent(used)} of ${what}`;
    return [{ rank: 4, kind: 'budget', tone, text: html`${part}; the budget begins anew ${when(budget.resets_at)}`, ...placeOf(budget) }];
  });
}

/**
 * Names the owner of a budget, and where it is changed.
 * @param {Api.Budget} budget
 */
function placeOf({ scope, owner }) {
  switch (scope) {
    case 'tenant':
      return { subject: html`tenant ${name(owner)}`, address: href(['tenants', owner]), where: 'Tenant' };
    case 'group':
      return { subject: html`group ${name(owner)}`, address: href(['tenants'], { group: owner }), where: 'Group' };
    case 'hosted_model':
      return { subject: html`hosted model ${name(owner)}`, address: href(['usage'], { by: 'model' }), where: 'Usage' };
    default:
      return { subject: 'all hosted use', address: href(['usage']), where: 'Usage' };
  }
}

/**
 * @param {string} id
 * @returns {Need}
 */
function needOfTask(id) {
  return { rank: 6, kind: 'task', tone: 'warn', subject: name(id), text: 'waits for an answer from a person', address: href(['fleet', 'tasks', id]), where: 'Fleet' };
}
