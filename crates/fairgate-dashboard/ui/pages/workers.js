/** Workers: load, engine, cache, limits of providers; drain, thresholds, a new one. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { connection } from '../core/connection.js';
import { durationOfMs, isNumber, several } from '../core/format.js';
import { live, livePools } from '../core/live.js';
import { setQuery } from '../core/router.js';
import { mayChange } from '../core/session.js';
import { fillBar } from '../components/bars.js';
import { name } from '../components/name.js';
import { number, share } from '../components/number.js';
import { outageTimes } from '../components/outage.js';
import { changeButton, pageHead, section, select } from '../components/page.js';
import { stateBadge } from '../components/state.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';
import { openDrain, openNewWorker, openOverload } from '../changes/worker.js';

/** @typedef {import('../core/types.js').WorkerRow} WorkerRow */

class WorkersPage {
  title = 'Workers';

  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    this.query = route.query;
    this.order = new RowOrder('name');
    this.keys = [sortKey(this.order, () => this.columns(''))];
  }

  /** @param {import('../core/router.js').Route} route */
  enter(route) {
    this.query = route.query;
    this.order.sortAgain();
  }

  view() {
    const chosen = this.query.get('pool') ?? '';
    const pools = livePools().filter((pool) => !chosen || pool.pool === chosen);
    const workers = pools.flatMap((pool) => pool.workers);
    const choices = /** @type {[string, string][]} */ ([['', 'all'], ...livePools().map((pool) => [pool.pool, pool.pool])]);
    return html`
      ${pageHead('Workers', live.at ? workersSentence(workers) : 'Waiting for the first look at the pools.', select('pool', choices, chosen, (pool) => setQuery({ pool })))}
      ${pools.map((pool) => section(html`Workers of ${name(pool.pool)}`, this.table(pool.pool, pool.workers), this.add(pool.pool, pool.workers)))}`;
  }

  /**
   * @param {string} pool
   * @param {WorkerRow[]} workers
   */
  add(pool, workers) {
    return workers.length ? changeButton('Add a worker…', () => openNewWorker(pool, workers), may()) : nothing;
  }

  /**
   * @param {string} pool
   * @param {WorkerRow[]} workers
   */
  table(pool, workers) {
    return dataTable({
      caption: `Workers of ${pool}: state, load, engine, cache, limits`,
      columns: this.columns(pool),
      rows: workers,
      key: (worker) => worker.name,
      order: this.order,
      empty: 'This pool has no worker, so its requests wait. Add one to the configuration file, and reload.',
    });
  }

  /**
   * @param {string} pool
   * @returns {import('../components/table.js').Column<WorkerRow>[]}
   */
  columns(pool) {
    return [
      { id: 'name', title: 'worker', cell: (worker) => html`<span title=${worker.address}>${name(worker.name)}</span>`, order: (worker) => worker.name },
      { id: 'state', title: 'state', cell: (worker) => html`${stateBadge(worker.state)}${worker.down_since ? html` <small>${outageTimes(worker)}</small>` : nothing}${worker.reason ? html` <small>${worker.reason}</small>` : nothing}`, order: (worker) => worker.state },
      { id: 'load', title: 'load', cell: (worker) => fillBar(worker.in_flight, worker.slots, 'requests in flight') },
      { id: 'in_flight', title: 'in flight', isNumber: true, cell: (worker) => html`${number(worker.in_flight)}${isNumber(worker.slots) ? html`/${number(worker.slots)}` : nothing}`, order: (worker) => worker.in_flight, help: 'after the stroke: its slots' },
      { id: 'engine', title: 'engine run / wait', isNumber: true, cell: (worker) => (worker.engine ? html`${number(worker.engine.running)} / ${number(worker.engine.waiting)}` : number(null)), help: 'requests that the engine itself reports as running and as waiting' },
      { id: 'prefill', title: 'prefill left', isNumber: true, cell: (worker) => html`${number(worker.prefill_tokens)} tokens`, order: (worker) => worker.prefill_tokens },
      { id: 'cache', title: 'cache used', isNumber: true, cell: (worker) => share(isNumber(worker.engine?.cache_used_thousandths) ? worker.engine.cache_used_thousandths / 1000 : null) },
      { id: 'hits', title: 'hits / expected', isNumber: true, cell: hits, help: 'input tokens that the worker reported as cached, and that the gateway expected to be, since the worker was added' },
      { id: 'limits', title: 'provider', cell: limits },
      ...(mayChange() ? [{ id: 'actions', title: 'change', cell: (/** @type {WorkerRow} */ worker) => this.actions(pool, worker) }] : []),
    ];
  }

  /**
   * @param {string} pool
   * @param {WorkerRow} worker
   */
  actions(pool, worker) {
    return html`<span class="row-actions">
      ${changeButton(worker.state === 'drained' ? 'Take back…' : 'Drain…', () => openDrain(pool, worker), { ...may(), label: `${worker.state === 'drained' ? 'Take back' : 'Drain'} ${worker.name}` })}
      ${worker.engine ? changeButton('Thresholds…', () => openOverload(pool, worker), { ...may(), label: `Overload thresholds of ${worker.name}` }) : nothing}
    </span>`;
  }
}

function may() {
  return { mayChange: mayChange(), isOffline: connection.lostAt !== null };
}

/** @param {WorkerRow} worker */
function hits(worker) {
  const cache = worker.cache;
  if (!cache || !cache.input_tokens) return share(null);
  const expected = isNumber(cache.expected_tokens) ? cache.expected_tokens / cache.input_tokens : null;
  return html`${share(cache.cached_tokens / cache.input_tokens)} / ${share(expected)}`;
}

/** @param {WorkerRow} worker */
function limits(worker) {
  const quota = worker.quota;
  if (!quota) return number(null);
  const rates = [
    isNumber(quota.requests_per_minute) ? html`${number(quota.requests_per_minute)} requests/min` : null,
    isNumber(quota.tokens_per_minute) ? html`${number(quota.tokens_per_minute)} tokens/min` : null,
  ].filter(Boolean);
  const paused = isNumber(quota.paused_ms) ? html`<span class="state warn">‖ ${durationOfMs(quota.paused_ms)} left</span>` : nothing;
  return html`${name(quota.account)} ${rates.map((rate) => html`<span class="quiet">${rate}</span> `)}${paused}${quota.out ? html`<span class="state bad">✕ ${quota.out}</span>` : nothing}`;
}

/** @param {WorkerRow[]} workers */
export function workersSentence(workers) {
  if (workers.length === 0) return 'There is no worker.';
  const up = workers.filter((worker) => worker.state === 'up');
  const others = workers.filter((worker) => worker.state !== 'up');
  const first = `${up.length} of ${several(workers.length, 'worker')} ${up.length === 1 ? 'takes' : 'take'} requests.`;
  return html`${first} ${others.slice(0, 3).map((worker) => html`${name(worker.name)} ${worker.down_since ? 'has been' : 'is'} ${worker.state}${worker.down_since ? html` ${outageTimes(worker)}` : nothing}${worker.reason ? `: ${worker.reason}` : ''}. `)}${others.length > 3 ? `${others.length - 3} more do not.` : ''}`;
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => new WorkersPage(route);
