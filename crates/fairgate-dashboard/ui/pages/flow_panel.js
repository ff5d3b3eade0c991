/** One flow of a pool: what it asks for, its difference over time, its keys, its refusals, its budgets. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { connection } from '../core/connection.js';
import { isNumber, percent } from '../core/format.js';
import { Resource } from '../core/resource.js';
import { href, setQuery } from '../core/router.js';
import { mayChange } from '../core/session.js';
import { budgetList } from '../components/budgets.js';
import { name } from '../components/name.js';
import { number, share, timeOfMs, when } from '../components/number.js';
import { changeButton, loaded, section } from '../components/page.js';
import { amount, service, serviceDifference } from '../components/service.js';
import { stateBadge } from '../components/state.js';
import { openLimits } from '../changes/limits.js';
import { differenceChart, waitingChart } from './history_charts.js';

/** How often the panel reads, in milliseconds. */
const READ_MS = 5000;

export class FlowPanel {
  /**
   * @param {() => string} pool name of the pool, if its policy divides by this kind
   * @param {'tenant' | 'group' | 'class' | 'project'} by
   * @param {string} flow
   */
  constructor(pool, by, flow) {
    this.pool = pool;
    this.by = by;
    this.flow = flow;
    /** @type {Resource<Api.History | null>} */
    this.history = new Resource((signal) => (pool() ? read(at`/pools/${pool()}/history`, { by, flow, since: '15m', step: 5 }, signal) : Promise.resolve(null)), READ_MS).start();
    this.usage = by === 'tenant' ? new Resource(() => this.readKeys(), READ_MS * 3).start() : null;
    this.budgets = by === 'tenant' ? new Resource(() => read(at`/tenants/${flow}/budgets`), READ_MS * 3).start() : null;
  }

  leave() {
    this.history.stop();
    this.usage?.stop();
    this.budgets?.stop();
  }

  /** Reads which keys of the tenant used how much in the last 15 minutes. */
  async readKeys() {
    /** @type {[Api.Usage, Api.KeyPage]} */
    const [usage, keys] = await Promise.all([read(at`/usage`, { by: 'key', tenant: this.flow, since: '15m' }), read(at`/keys`, { tenant: this.flow, limit: 1000 })]);
    const names = new Map(keys.items.map((/** @type {Api.Key} */ key) => [key.id, key.name || key.hint]));
    const total = usage.rows.reduce((/** @type {number} */ sum, /** @type {Api.UsageRow} */ row) => sum + row.charged_tokens, 0);
    return usage.rows
      .map((/** @type {Api.UsageRow} */ row) => ({ id: row.name, name: names.get(row.name) ?? row.name, requests: row.requests, part: total ? row.charged_tokens / total : null }))
      .sort((a, b) => b.requests - a.requests);
  }

  /**
   * @param {import('../core/types.js').FlowRow | null} row
   * @param {import('../core/types.js').LivePool} pool
   */
  view(row, pool) {
    const isTenant = this.by === 'tenant';
    const links = html`
      <a class="button" href=${href(['requests'], { list: 'live', pool: pool.pool, ...(isTenant ? { tenant: this.flow } : {}) })}>Its requests</a>
      ${isTenant ? html`<a class="button" href=${href(['tenants', this.flow])}>The tenant</a>` : nothing}
      ${isTenant ? html`<a class="button" href=${href(['what-if'], { pool: pool.pool, by: this.by, flow: this.flow })}>What if…</a>` : nothing}
      ${isTenant ? changeButton('Limits…', () => openLimits('tenants', this.flow, this.flow), { mayChange: mayChange(), isOffline: connection.lostAt !== null }) : nothing}
      <button @click=${() => setQuery({ flow: null })} aria-label="Close ${this.flow}">Close</button>`;
    return html`<div id="flow-panel" data-flow=${this.flow}>${section(name(this.flow), html`
      <p>${row ? flowSentence(row, pool) : 'It has no request in this pool now.'}</p>
      ${row ? flowFacts(row, pool.unit) : nothing}
      <div class="columns">
        <div>${loaded(this.history, (history) => (history?.flows?.[0] ? html`${differenceChart(history, history.flows[0])}${waitingChart(history, history.flows[0])}` : html`<p class="empty">No history of this flow yet.</p>`))}</div>
        ${isTenant ? html`<div>${this.keysView()}${this.budgetsView()}</div>` : nothing}
      </div>`, links)}</div>`;
  }

  keysView() {
    return html`<h3>Keys, last 15 minutes</h3>${this.usage ? loaded(this.usage, (keys) => (keys.length
      ? html`<ul class="needs" id="flow-keys">${keys.slice(0, 8).map((key) => html`<li><span>${name(key.name)}</span><span>${share(key.part)} of its tokens, ${number(key.requests)} requests</span></li>`)}</ul>`
      : html`<p class="empty">None of its requests ended in that time.</p>`)) : nothing}`;
  }

  budgetsView() {
    return html`<h3>Budgets</h3>${this.budgets ? loaded(this.budgets, (budgets) => budgetList(budgets.items)) : nothing}`;
  }
}

/**
 * Says what a flow does: how much more than its due it asks for, and what follows.
 * @param {import('../core/types.js').FlowRow} row
 * @param {import('../core/types.js').LivePool} pool
 */
export function flowSentence(row, pool) {
  if (row.state === 'held') return 'An operator holds it: it gets no slot until it is resumed.';
  if (row.state === 'disabled') return 'It is disabled: all its keys are refused.';
  if (row.state === 'over_budget') return 'Its budget is used up: its requests are refused until the budget begins anew or is raised.';
  if (row.state === 'at_cap') return html`It has ${number(row.in_flight)} in flight, as many as its cap allows; the rest waits in its own queue.`;
  if (row.waiting === 0) return 'Nothing of it waits.';
  const others = pool.waiting - row.waiting;
  const rest = others > 0 ? html`; ${number(others)} of others wait too` : '; the others do not';
  const asked = row.asked_share;
  if (isNumber(asked) && isNumber(row.due_share) && row.due_share > 0 && asked > row.due_share * 1.2) {
    return html`It asks for ${(asked / row.due_share).toFixed(1)} times what it is due (${percent(asked)} against ${percent(row.due_share)}), so it waits${rest}.`;
  }
  return html`${number(row.waiting)} of its requests wait: the pool is full${rest}.`;
}

/**
 * @param {import('../core/types.js').FlowRow} row
 * @param {string} unit
 */
function flowFacts(row, unit) {
  return html`<dl class="facts">
    <div><dt>state</dt><dd>${stateBadge(row.state)}</dd></div>
    <div><dt>due / got</dt><dd>${share(row.due_share)} / ${share(row.got_share)}</dd></div>
    <div><dt>asked for</dt><dd>${share(row.asked_share)}, <span data-field="asked">${service(row.asked, unit)}</span></dd></div>
    <div><dt>got − due</dt><dd><span data-field="difference">${serviceDifference(row.difference, unit)}</span>${isNumber(row.bound) && row.promised ? html`, bound ±<span data-field="bound">${amount(row.bound, unit)}</span>` : nothing}</dd></div>
    <div><dt>expected wait</dt><dd>${timeOfMs(row.expected_wait_ms)}</dd></div>
    <div><dt>wait p50 / p95</dt><dd>${timeOfMs(row.wait_p50_ms)} / ${timeOfMs(row.wait_p95_ms)}</dd></div>
    <div><dt>refused in the window</dt><dd>${number(row.refused)} requests</dd></div>
    <div><dt>last refusal</dt><dd>${row.last_refusal ? html`${row.last_refusal.code}, ${when(row.last_refusal.at)}` : 'none'}</dd></div>
  </dl>`;
}
