/** Pools: one with its flows, due against got, now and over time; and what can be done about it. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { connection } from '../core/connection.js';
import { isNumber, percent, several } from '../core/format.js';
import { live, livePools } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href, setQuery } from '../core/router.js';
import { mayChange } from '../core/session.js';
import { fillBar, shareBar } from '../components/bars.js';
import { name } from '../components/name.js';
import { number, share, timeOfMs } from '../components/number.js';
import { changeButton, choice, failureNote, loaded, pageHead, section } from '../components/page.js';
import { unitName } from '../components/service.js';
import { stateBadge } from '../components/state.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';
import { openCap, openHold, openWeight } from '../changes/flow.js';
import { WINDOWS, sharesChart, waitingChart, waitsChart } from './history_charts.js';
import { isOutside } from './needs.js';
import { FlowPanel } from './flow_panel.js';

/** @typedef {import('../core/types.js').FlowRow} FlowRow */
/** @typedef {import('../core/types.js').LivePool} LivePool */
/** @typedef {'tenant' | 'group' | 'class' | 'project'} By */

/** How often the history is read, in milliseconds: as often as the gateway adds a point. */
const HISTORY_MS = 5000;

const LISTS = /** @type {const} */ ({ tenant: 'tenants', group: 'groups', class: 'classes', project: 'projects' });

/** @param {FlowRow} row */
export function flowName(row) {
  return row.tenant ?? row.name ?? '';
}

class PoolPage {
  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    this.pool = route.parts[1] ?? '';
    this.title = this.pool ? `Pool ${this.pool}` : 'Pools';
    this.query = route.query;
    this.order = new RowOrder('waiting', true);
    /** Name of the pool whose history was asked for: without one in the address, it is known after the first look. */
    this.asked = '';
    /** @type {FlowPanel | null} */
    this.panel = null;
    /** @type {Resource<Api.LiveView> | null} */
    this.absent = null;
    /** @type {Resource<Api.History | null>} */
    this.history = new Resource((signal) => this.readHistory(signal), HISTORY_MS).start();
    this.keys = [sortKey(this.order, () => this.columns(live.pools.get(this.name()) ?? null))];
    this.openPanel();
  }

  /** Returns the pool's name; with one pool alone, its address needs none. */
  name() {
    const pools = livePools();
    return this.pool || (pools.length === 1 ? pools[0].pool : '');
  }

  /** @returns {By} */
  by() {
    const by = this.query.get('by');
    return by && by in LISTS ? /** @type {By} */ (by) : 'tenant';
  }

  /** @returns {keyof typeof WINDOWS} */
  window() {
    const window = this.query.get('window');
    return window && window in WINDOWS ? /** @type {keyof typeof WINDOWS} */ (window) : '5m';
  }

  /** @param {import('../core/router.js').Route} route */
  enter(route) {
    const before = `${this.by()} ${this.window()}`;
    this.query = route.query;
    if (before !== `${this.by()} ${this.window()}`) {
      this.order.sortAgain();
      this.history.value = null;
      void this.history.refresh();
    }
    this.openPanel();
  }

  leave() {
    this.history.stop();
    this.absent?.stop();
    this.panel?.leave();
  }

  openPanel() {
    const flow = this.query.get('flow');
    if (flow === (this.panel?.flow ?? null) && this.by() === (this.panel?.by ?? this.by())) return;
    this.panel?.leave();
    this.panel = flow ? new FlowPanel(() => (this.divides() ? this.name() : ''), this.by(), flow) : null;
  }

  /** @param {AbortSignal} signal */
  async readHistory(signal) {
    if (!this.name()) return null;
    const { since, step } = WINDOWS[this.window()];
    // The history is that of the policy's flows. Without a name the gateway takes those at the root.
    return read(at`/pools/${this.name()}/history`, { by: this.divides() ? this.by() : null, since, step }, signal);
  }

  /** Returns true if the rows that are chosen are flows of the policy. Other rows only count requests. */
  divides() {
    const rows = live.pools.get(this.name())?.[LISTS[this.by()]] ?? [];
    return rows.some((row) => isNumber(row.got));
  }

  view() {
    const pools = livePools();
    const pool = live.pools.get(this.name());
    if (!pool) return this.withoutPool(pools);
    if (this.asked !== pool.pool) {
      this.asked = pool.pool;
      void this.history.refresh();
    }
    const rows = pool[LISTS[this.by()]];
    const selected = rows.find((row) => flowName(row) === this.panel?.flow);
    return html`
      ${pageHead(html`Pool ${name(pool.pool)}`, poolSentence(pool), this.controls(pools))}
      ${section('Now', this.now(pool))}
      ${section(`Flows by ${this.by()}`, this.flows(pool, rows), this.lists(pool))}
      ${this.panel ? this.panel.view(selected ?? null, pool) : nothing}
      ${section('Over time', loaded(this.history, (history) => (history ? this.charts(history) : nothing)), this.windows())}`;
  }

  /** @param {LivePool[]} pools */
  withoutPool(pools) {
    if (live.error && !live.at) return failureNote(live.error);
    if (!live.at) return pageHead('Pools', 'Waiting for the first look at the pools.');
    if (this.pool) return pageHead(html`Pool ${name(this.pool)}`, 'There is no pool of this name. It may have been removed by a reload.');
    return html`${pageHead('Pools', `${several(pools.length, 'pool')}. Open one to see who has what of it.`)}
      <div class="columns">${pools.map((pool) => section(html`<a href=${href(['pools', pool.pool])}>${name(pool.pool)}</a>`, html`<p>${poolSentence(pool)}</p>${fillBar(pool.in_flight, pool.slots, 'slots in use')}`))}</div>`;
  }

  /** @param {LivePool[]} pools */
  controls(pools) {
    return pools.length > 1
      ? html`<nav aria-label="Other pools">${pools.filter((pool) => pool.pool !== this.name()).slice(0, 8).map((pool) => html`<a class="button" href=${href(['pools', pool.pool])}>${name(pool.pool)}</a> `)}</nav>`
      : nothing;
  }

  /** @param {LivePool} pool */
  lists(pool) {
    /** @type {[string, string][]} */
    const kinds = [['tenant', 'tenants'], ['group', 'groups'], ['class', 'classes'], ['project', 'projects']];
    const there = kinds.filter(([by]) => by === 'tenant' || pool[LISTS[/** @type {By} */ (by)]].length > 0);
    return choice('Flows by', there, this.by(), (by) => setQuery({ by, flow: null }));
  }

  windows() {
    return choice('Window', Object.entries(WINDOWS).map(([id, { text }]) => [id, text]), this.window(), (window) => setQuery({ window }));
  }

  /** @param {LivePool} pool */
  now(pool) {
    return html`<dl class="facts" id="pool-facts">
      <div><dt>in flight</dt><dd data-field="in_flight">${number(pool.in_flight)} of ${number(pool.slots)} slots</dd><dd>${fillBar(pool.in_flight, pool.slots, 'slots in use')}</dd></div>
      <div><dt>waiting</dt><dd data-field="waiting">${number(pool.waiting)} requests</dd></div>
      <div><dt>wait p50 / p95</dt><dd data-field="waits">${timeOfMs(pool.wait_p50_ms)} / ${timeOfMs(pool.wait_p95_ms)}</dd></div>
      <div><dt>granted in ${pool.window_s ?? 60} s</dt><dd data-field="granted">${number(pool.granted)} requests</dd></div>
      <div><dt>refused in ${pool.window_s ?? 60} s</dt><dd data-field="refused">${number(pool.refused)} requests</dd></div>
      <div><dt>policy</dt><dd>${name(pool.algorithm)}</dd></div>
      <div><dt>shares out</dt><dd data-field="unit">${unitName(pool.unit)}</dd></div>
    </dl>`;
  }

  /**
   * @param {LivePool} pool
   * @param {FlowRow[]} rows
   */
  flows(pool, rows) {
    return html`${dataTable({
      caption: `Flows of ${pool.pool} by ${this.by()}: state, weight, due, got, asked, in flight, waiting, waits`,
      columns: this.columns(pool),
      rows,
      key: flowName,
      order: this.order,
      rowClass: (row) => `${isOutside(row) ? 'outside' : ''} ${flowName(row) === this.panel?.flow ? 'selected' : ''}`,
      empty: html`<p>Nothing waits. ${number(pool.in_flight)} of ${several(pool.slots, 'slot')} in use. A flow appears here with its first request.</p>`,
    })}
    ${pool.tenants_omitted > 0 && this.by() === 'tenant' ? html`<p class="quiet">and ${several(pool.tenants_omitted, 'tenant')} with fewer requests.</p>` : nothing}
    ${this.by() === 'tenant' ? this.neverCame(pool) : nothing}`;
  }

  /** @param {LivePool} pool */
  neverCame(pool) {
    if (!this.absent) {
      return html`<button class="plain quiet" @click=${() => (this.absent = new Resource(() => read(at`/fairshare/live`, { pool: pool.pool, all: true })).start())}>Which tenants never came?</button>`;
    }
    return loaded(this.absent, (view) => {
      const absent = (view.pools?.[0]?.tenants ?? []).filter((row) => row.state === 'never_seen');
      return html`<p id="never-came">Never came: ${several(absent.length, 'tenant')}${absent.length ? ': ' : '.'}${absent.slice(0, 100).map((row) => html`<a href=${href(['tenants', row.tenant ?? ''])}>${name(row.tenant)}</a> `)}</p>`;
    });
  }

  /**
   * @param {LivePool | null} pool
   * @returns {import('../components/table.js').Column<FlowRow>[]}
   */
  columns(pool) {
    const by = this.by();
    const open = (/** @type {FlowRow} */ row) => href(['pools', this.name()], { by, flow: flowName(row), window: this.window() });
    return [
      { id: 'name', title: by, cell: (row) => html`<a href=${open(row)}>${name(flowName(row))}</a>`, order: flowName },
      ...(by === 'tenant' ? [{ id: 'group', title: 'group', cell: (/** @type {FlowRow} */ row) => name(row.group), order: (/** @type {FlowRow} */ row) => row.group }] : []),
      { id: 'state', title: 'state', cell: (row) => html`${stateBadge(row.state)}${isOutside(row) ? html` <span class="state bad">▲ outside its bound</span>` : nothing}`, order: (row) => row.state },
      { id: 'weight', title: 'weight', isNumber: true, cell: (row) => number(row.weight || null), order: (row) => row.weight },
      { id: 'due', title: 'due', isNumber: true, cell: (row) => share(row.due_share), order: (row) => row.due_share, help: 'part that it was due, by weight, of what was served in the window' },
      { id: 'got', title: 'got', isNumber: true, cell: (row) => share(row.got_share), order: (row) => row.got_share, help: 'part that it really got in the window' },
      { id: 'asked', title: 'asked', isNumber: true, cell: (row) => share(row.asked_share), order: (row) => row.asked_share, help: 'part of everything that was asked for in the window' },
      { id: 'bar', title: 'got ▇ / due │', cell: (row) => shareBar(row.got_share, row.due_share, { isOutside: isOutside(row) }) },
      { id: 'in_flight', title: 'in flight', isNumber: true, cell: (row) => html`${number(row.in_flight)}${isNumber(row.cap) ? html`/${number(row.cap)}` : nothing}`, order: (row) => row.in_flight, help: 'after the stroke: its cap' },
      { id: 'waiting', title: 'waiting', isNumber: true, cell: (row) => number(row.waiting), order: (row) => row.waiting },
      { id: 'wait_p95', title: 'wait p95', isNumber: true, cell: (row) => timeOfMs(row.wait_p95_ms), order: (row) => row.wait_p95_ms },
      ...(mayChange() && pool ? [{ id: 'actions', title: 'change', cell: (/** @type {FlowRow} */ row) => this.actions(pool, row) }] : []),
    ];
  }

  /**
   * @param {LivePool} pool
   * @param {FlowRow} row
   */
  actions(pool, row) {
    const by = this.by();
    const flow = flowName(row);
    const change = { pool: pool.pool, by, flow, row, siblings: pool[LISTS[by]] };
    const may = { mayChange: mayChange(), isOffline: connection.lostAt !== null };
    return html`<span class="row-actions">
      ${changeButton('Weight…', () => openWeight(change), { ...may, label: `Weight of ${flow}` })}
      ${by === 'group' ? nothing : changeButton('Cap…', () => openCap(change), { ...may, label: `Cap of ${flow}` })}
      ${changeButton(row.state === 'held' ? 'Resume…' : 'Hold…', () => openHold(change), { ...may, label: `${row.state === 'held' ? 'Resume' : 'Hold'} ${flow}` })}
    </span>`;
  }

  /** @param {import('./history_charts.js').PoolHistory} history */
  charts(history) {
    return html`${sharesChart(history, history.by)}
      <div class="columns"><div>${waitingChart(history, history.all)}</div><div>${waitsChart(history, history.all)}</div></div>`;
  }
}

/**
 * Says in a sentence or two how a pool is: whether it is full, and whose requests wait.
 * @param {LivePool} pool
 */
export function poolSentence(pool) {
  const outside = pool.tenants.filter(isOutside);
  const fault = outside.length ? html`<strong class="state bad">▲ ${several(outside.length, 'tenant is', 'tenants are')} outside a promised bound: a fault of the gateway.</strong> ` : nothing;
  if (pool.waiting === 0) return html`${fault}Nothing waits. ${number(pool.in_flight)} of ${several(pool.slots, 'slot')} in use.`;
  const state = pool.in_flight >= pool.slots ? 'Full: ' : '';
  const loudest = [...pool.tenants].sort((a, b) => b.waiting - a.waiting)[0];
  return html`${fault}${state}${number(pool.in_flight)} of ${several(pool.slots, 'slot')} in use, ${number(pool.waiting)} ${pool.waiting === 1 ? 'request waits' : 'requests wait'}.${loudest && loudest.waiting > 0 ? whoWaits(loudest) : nothing}`;
}

/**
 * Names the flow of which most waits; if it asks for more than it is due, that is the reason.
 * @param {FlowRow} loudest
 */
function whoWaits(loudest) {
  const { asked_share: asked, due_share: due } = loudest;
  const isOver = isNumber(asked) && isNumber(due) && asked > due;
  const why = isOver ? html` asked for ${percent(asked)} and is due ${percent(due)}` : ' has most of it';
  return html` ${name(flowName(loudest))}${why}: ${number(loudest.waiting)} of those that wait are its own.`;
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => new PoolPage(route);
