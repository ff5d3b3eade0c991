/** A tenant's page: one sentence, the share and why, the waits, the budgets, what waits, what ended. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { isNumber, percent, several } from '../core/format.js';
import { Resource } from '../core/resource.js';
import { session } from '../core/session.js';
import { shareBar } from '../components/bars.js';
import { budgetList } from '../components/budgets.js';
import { name } from '../components/name.js';
import { number, share, time, timeOfMs, when } from '../components/number.js';
import { loaded, pageHead, section } from '../components/page.js';
import { service } from '../components/service.js';
import { stateBadge, statusBadge } from '../components/state.js';
import { dataTable } from '../components/table.js';
import { waitingChart, waitsChart } from './history_charts.js';

/** @typedef {import('../core/types.js').Sent<Api.MyPool>} MyPool */

/** How often my state and my lists are read, in milliseconds. */
const READ_MS = 2000;
const LIST_MS = 5000;

export class MyPage {
  constructor() {
    /** @type {Resource<Api.Me>} */
    this.me = new Resource((signal) => read(at`/me`, {}, signal), READ_MS).start();
    /** @type {Resource<Api.RequestList>} */
    this.requests = new Resource((signal) => read(at`/requests`, { limit: 100 }, signal), READ_MS).start();
    /** @type {Resource<Api.AttemptList>} */
    this.ended = new Resource((signal) => read(at`/me/attempts`, { limit: 50, last: true }, signal), LIST_MS).start();
    /** @type {Resource<Api.MyHistory>} */
    this.history = new Resource((signal) => read(at`/me/history`, { since: '1h', step: 60 }, signal), LIST_MS).start();
    /** @type {Resource<Api.Usage>} */
    this.usage = new Resource((signal) => read(at`/me/usage`, { by: 'day', since: '7d', quantiles: true }, signal), LIST_MS * 6).start();
    /** @type {Map<string, Resource<Api.RequestDetail>>} */
    this.whys = new Map();
    /** @type {import('../core/keys.js').KeyBinding[]} */
    this.keys = [];
  }

  view() {
    const me = this.me.value;
    if (!me) return html`${pageHead('My page', 'Reading your share.')}${loaded(this.me, () => nothing)}`;
    const pools = /** @type {MyPool[]} */ (me.pools);
    return html`
      ${pageHead(html`You are ${name(me.tenant)}, in group ${name(me.group)}`, meSentence(pools))}
      ${pools.map((pool) => this.pool(pool))}
      ${section('What waits and is in flight', loaded(this.requests, (value) => this.waiting(value.items)))}
      <div class="columns">
        ${section('Budgets', html`${budgetList(me.budgets)}<p class="quiet">Your group’s and your tenant’s budgets bind too, so all are listed.</p>`)}
        ${section('Your key', keyFacts(me))}
      </div>
      ${section('What ended', loaded(this.ended, (value) => ended(value.items)))}
      ${section('Usage, last 7 days', loaded(this.usage, usage))}`;
  }

  /** @param {MyPool} pool */
  pool(pool) {
    const history = this.history.value;
    const mine = history?.pools?.find((each) => each.pool === pool.pool);
    return html`<div data-pool=${pool.pool}>${section(html`Pool ${name(pool.pool)}`, html`
      <p>${pool.summary ?? pool.why}</p>
      <dl class="facts">
        <div><dt>state</dt><dd>${pool.state ? stateBadge(pool.state) : nothing}</dd></div>
        <div><dt>due / got</dt><dd data-field="due">${share(pool.due_share)} / ${share(pool.got_share)}</dd><dd>${shareBar(pool.got_share, pool.due_share)}</dd></div>
        <div><dt>waiting</dt><dd data-field="waiting">${number(pool.waiting)} requests</dd></div>
        <div><dt>in flight</dt><dd data-field="in_flight">${number(pool.in_flight)}${isNumber(pool.cap) ? html` of ${number(pool.cap)}, your cap` : nothing}</dd></div>
        <div><dt>asked for in ${pool.window_s} s</dt><dd data-field="asked">${service(pool.asked, pool.unit)}</dd></div>
        <div><dt>expected wait</dt><dd>${timeOfMs(pool.expected_wait_ms)}</dd></div>
        <div><dt>wait p50 / p95</dt><dd>${timeOfMs(pool.wait_p50_ms)} / ${timeOfMs(pool.wait_p95_ms)}</dd></div>
      </dl>
      ${history && mine ? html`<div class="columns"><div>${waitingChart(history, mine)}</div><div>${waitsChart(history, mine)}</div></div>` : nothing}
      <p class="quiet">${pool.why}</p>`)}</div>`;
  }

  /** @param {Api.Request[]} items */
  waiting(items) {
    return dataTable({
      caption: 'My requests that wait or are in flight',
      rows: items,
      key: (item) => item.id,
      empty: 'Nothing of yours waits or is in flight.',
      columns: [
        { id: 'id', title: 'request', cell: (item) => name(item.id) },
        { id: 'state', title: 'state', cell: (item) => stateBadge(item.state) },
        { id: 'came', title: 'came', cell: (item) => when(item.submitted_at) },
        { id: 'waited', title: 'waited', isNumber: true, cell: (item) => time(item.waited_us) },
        { id: 'expected', title: 'expected wait', isNumber: true, cell: (item) => timeOfMs(item.expected_wait_ms) },
        { id: 'why', title: 'why', cell: (item) => this.why(item) },
      ],
    });
  }

  /** @param {Api.Request} item */
  why(item) {
    const known = this.whys.get(item.id);
    if (!known) {
      const ask = () => this.whys.set(item.id, new Resource(() => read(at`/requests/${item.id}`)).start());
      return html`<button aria-label="Why does ${item.id} wait?" @click=${ask}>Why?</button>`;
    }
    return loaded(known, (answer) => html`${answer.summary ?? answer.story?.[0] ?? 'It has ended.'}`);
  }
}

/**
 * Says in a sentence or two how it stands for the tenant.
 * @param {MyPool[]} pools
 */
export function meSentence(pools) {
  const busy = pools.filter((pool) => pool.waiting + pool.in_flight > 0);
  if (busy.length === 0) return 'Nothing of yours waits or is in flight.';
  const waiting = pools.reduce((sum, pool) => sum + pool.waiting, 0);
  const flight = pools.reduce((sum, pool) => sum + pool.in_flight, 0);
  const [first] = [...busy].sort((a, b) => b.waiting - a.waiting);
  const due = isNumber(first.due_share) ? html` You are due ${percent(first.due_share)} of ${name(first.pool)} and got ${percent(first.got_share)}.` : nothing;
  const wait = waiting > 0 && isNumber(first.expected_wait_ms) ? html` The last of them waits about ${timeOfMs(first.expected_wait_ms)} more.` : nothing;
  return html`${several(waiting, 'request of yours waits', 'requests of yours wait')}, ${flight} ${flight === 1 ? 'is' : 'are'} in flight.${wait}${due}`;
}

/** @param {Api.Me} me */
function keyFacts(me) {
  return html`<dl class="facts">
    <div><dt>key</dt><dd>${name(session.info?.name ?? me.key)}</dd></div>
    <div><dt>models</dt><dd>${me.models ? me.models.map((model) => html`${name(model)} `) : 'all'}</dd></div>
    <div><dt>classes</dt><dd>${me.classes?.length ? me.classes.map((each) => html`${name(each)} `) : 'the default'}</dd></div>
    <div><dt>requests left this minute</dt><dd>${number(me.tenant_limits?.requests_left)}</dd></div>
    <div><dt>tokens left this minute</dt><dd>${number(me.tenant_limits?.tokens_left)}</dd></div>
  </dl>`;
}

/** @param {Api.Attempt[]} rows */
function ended(rows) {
  return dataTable({
    caption: 'My ended requests, the latest first',
    rows,
    key: (row) => `${row.request} ${row.attempt}`,
    empty: html`<p>You have sent nothing yet. Try, with your key in <code>KEY</code>:</p>
      <pre>curl ${location.origin}/v1/chat/completions -H "authorization: Bearer $KEY" \\
  -H "content-type: application/json" -d '{"model":"MODEL","messages":[{"role":"user","content":"Hello"}]}'</pre>`,
    columns: [
      { id: 'at', title: 'at', cell: (row) => when(row.started_at) },
      { id: 'request', title: 'request', cell: (row) => name(row.request) },
      { id: 'model', title: 'model', cell: (row) => name(row.model) },
      { id: 'status', title: 'status', cell: (row) => statusBadge(row.status, row.code) },
      { id: 'waited', title: 'waited', isNumber: true, cell: (row) => time(row.waited_us) },
      { id: 'total', title: 'total', isNumber: true, cell: (row) => time(row.total_us) },
      { id: 'tokens', title: 'tokens', isNumber: true, cell: (row) => number(row.charged_tokens) },
    ],
  });
}

/** @param {Api.Usage} usage */
function usage(usage) {
  return dataTable({
    caption: 'My usage by day',
    rows: [...usage.rows].reverse(),
    key: (row) => row.name,
    empty: 'Nothing was used in this time.',
    columns: [
      { id: 'day', title: 'day (UTC)', cell: (row) => name(row.name) },
      { id: 'requests', title: 'requests', isNumber: true, cell: (row) => number(row.requests) },
      { id: 'failed', title: 'failed', isNumber: true, cell: (row) => number(row.failed) },
      { id: 'charged', title: 'tokens charged', isNumber: true, cell: (row) => number(row.charged_tokens) },
      { id: 'wait_p95', title: 'wait p95', isNumber: true, cell: (row) => time(row.waited_p95_us) },
    ],
  });
}
