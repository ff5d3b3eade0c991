/** Overview: one sentence for all pools, what needs somebody, and a line for each pool. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { durationOfMs, several } from '../core/format.js';
import { live, livePools } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href } from '../core/router.js';
import { fillBar, sparkline } from '../components/bars.js';
import { name } from '../components/name.js';
import { number, timeOfMs } from '../components/number.js';
import { failureNote, loaded, pageHead, section } from '../components/page.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';
import { needs, outsideRows } from './needs.js';

/** @typedef {import('../core/types.js').LivePool} LivePool */

/** How often what is not in the stream is read, in milliseconds. */
const READ_MS = 10_000;

class OverviewPage {
  title = 'Overview';
  order = new RowOrder('name');
  /** @type {Resource<Api.FleetView>} */
  fleet = new Resource(() => read(at`/fleet`), READ_MS).start();
  /** @type {Resource<Api.TaskPage>} */
  questions = new Resource(() => read(at`/tasks`, { state: 'WAITING_INPUT', limit: 100 }), READ_MS).start();
  /** @type {Resource<Api.ReadinessBody>} */
  health = new Resource(readHealth, READ_MS).start();
  /** @type {Resource<Api.PoolList>} */
  pools = new Resource(() => read(at`/pools`), READ_MS).start();
  /** @type {Resource<Api.Hosted>} */
  hosted = new Resource(() => read(at`/hosted`), READ_MS).start();
  /** @type {Resource<Api.BudgetList>} */
  spent = new Resource(() => read(at`/budgets`, { used_percent: 90 }), READ_MS).start();
  history = new Resource(readHistories, READ_MS).start();

  /** Number of pools whose history was asked for: they are known only after the first look at them. */
  asked = 0;

  keys = [sortKey(this.order, () => this.columns())];

  leave() {
    for (const resource of [this.fleet, this.questions, this.health, this.pools, this.hosted, this.spent, this.history]) resource.stop();
  }

  view() {
    const pools = livePools();
    if (pools.length !== this.asked) {
      this.asked = pools.length;
      void this.history.refresh();
    }
    const list = needs({
      pools,
      health: this.health.value,
      questions: this.questions.value?.items ?? [],
      settings: this.pools.value?.items ?? [],
      budgets: [...(this.hosted.value?.budgets ?? []), ...(this.spent.value?.items ?? [])],
    });
    return html`
      ${pageHead('Overview', pools.length || live.at ? overviewSentence(pools, list.length) : 'Waiting for the first look at the pools.')}
      ${live.error && !live.at ? failureNote(live.error) : nothing}
      ${section('Needs somebody', list.length ? html`<ul class="needs">${list.map(needView)}</ul>` : html`<p class="empty" id="nothing-needed">Nothing needs anybody.</p>`)}
      ${section('Pools', dataTable({
        caption: 'Pools: slots, waiting, waits, refusals, flows outside their bound, waiting in the last hour',
        columns: this.columns(),
        rows: pools,
        key: (pool) => pool.pool,
        order: this.order,
        empty: firstSteps(),
      }))}
      ${this.fleet.value?.projects?.length ? section('Fleet', loaded(this.fleet, fleetLine), html`<a href=${href(['fleet'])}>Open the fleet</a>`) : nothing}`;
  }

  /** @returns {import('../components/table.js').Column<LivePool>[]} */
  columns() {
    return [
      { id: 'name', title: 'pool', cell: (pool) => html`<a href=${href(['pools', pool.pool])}>${name(pool.pool)}</a>`, order: (pool) => pool.pool },
      { id: 'load', title: 'slots', cell: (pool) => fillBar(pool.in_flight, pool.slots, 'slots in use') },
      { id: 'in_flight', title: 'in flight', isNumber: true, cell: (pool) => html`${number(pool.in_flight)}/${number(pool.slots)}`, order: (pool) => pool.in_flight },
      { id: 'waiting', title: 'waiting', isNumber: true, cell: (pool) => number(pool.waiting), order: (pool) => pool.waiting },
      { id: 'wait_p50', title: 'wait p50', isNumber: true, cell: (pool) => timeOfMs(pool.wait_p50_ms), order: (pool) => pool.wait_p50_ms, help: 'half of the requests that went in the window had waited less' },
      { id: 'wait_p95', title: 'wait p95', isNumber: true, cell: (pool) => timeOfMs(pool.wait_p95_ms), order: (pool) => pool.wait_p95_ms },
      { id: 'refused', title: 'refused', isNumber: true, cell: (pool) => number(pool.refused), order: (pool) => pool.refused, help: 'requests refused in the window' },
      { id: 'outside', title: 'flows outside', isNumber: true, cell: (pool) => number(outsideRows(pool).length), order: (pool) => outsideRows(pool).length, help: 'flows whose promised bound does not hold' },
      { id: 'history', title: 'waiting, last hour', cell: (pool) => sparkline(this.history.value?.get(pool.pool) ?? [], `waiting in ${pool.pool} in the last hour`) },
    ];
  }
}

/**
 * Says in one sentence how the pools are.
 * @param {LivePool[]} pools
 * @param {number} needed
 */
export function overviewSentence(pools, needed) {
  if (pools.length === 0) return 'There is no pool. Add one to the configuration file, and reload.';
  const full = pools.filter((pool) => pool.waiting > 0);
  const outside = pools.some((pool) => outsideRows(pool).length > 0);
  const waits = full.map((pool) => html`${name(pool.pool)} is full: ${number(pool.in_flight)} of ${several(pool.slots, 'slot')}, ${number(pool.waiting)} ${pool.waiting === 1 ? 'waits' : 'wait'}. `);
  const room = full.length === 0 ? 'Nothing waits in any pool. ' : pools.length > full.length ? `${several(pools.length - full.length, 'other pool has', 'other pools have')} room. ` : '';
  const bound = outside ? html`<strong>Somebody is outside a promised bound.</strong> ` : 'Everyone is within their bound. ';
  return html`${waits}${room}${bound}${needed === 0 ? 'Nothing needs you.' : `${several(needed, 'thing needs', 'things need')} you.`}`;
}

/** @param {import('./needs.js').Need} need */
function needView(need) {
  return html`<li data-need=${need.kind}>
    <span><span class="state ${need.tone}"><span aria-hidden="true">${need.tone === 'bad' ? '▲' : '●'}</span> ${need.subject}</span> ${need.text}</span>
    <a href=${need.address}>${need.where}<span class="hidden">: ${need.kind}</span></a>
  </li>`;
}

/** @param {Api.FleetView} fleet */
function fleetLine(fleet) {
  return html`<p>${several(fleet.projects.length, 'project')}, ${several(fleet.agents.length, 'agent')}, ${several(fleet.running.length, 'task')} running; ${number(fleet.used)} tokens in ${durationOfMs(fleet.window_s * 1000)}.</p>`;
}

function firstSteps() {
  return html`<p>No pool has been seen yet. Send a first request, with a key of a tenant:</p>
    <pre>curl ${location.origin}/v1/chat/completions -H "authorization: Bearer $KEY" \\
  -H "content-type: application/json" -d '{"model":"sim","messages":[{"role":"user","content":"Hello"}]}'</pre>`;
}

async function readHealth() {
  const response = await fetch('/readyz', { cache: 'no-store' });
  return response.json();
}

/** Reads what waited in each pool in the last hour. A pool that does not answer has no line; the others do. */
async function readHistories() {
  const histories = await Promise.all(
    livePools().map(async (pool) => {
      const history = await read(at`/pools/${pool.pool}/history`, { step: 60, since: '1h' }).catch(() => null);
      return /** @type {const} */ ([pool.pool, history?.all.waiting ?? []]);
    }),
  );
  return new Map(histories);
}

export const open = () => new OverviewPage();
