/** What if: an hour of the journal under another weight or another policy, and what would have been different. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, change, ApiFailure } from '../core/api.js';
import { connection } from '../core/connection.js';
import { count, duration, exact, isNumber, several } from '../core/format.js';
import { livePools } from '../core/live.js';
import { mayChange } from '../core/session.js';
import { requestUpdate } from '../core/update.js';
import { wholeNumber } from '../components/dialog.js';
import { name } from '../components/name.js';
import { when } from '../components/number.js';
import { choice, failureNote, pageHead, section, select } from '../components/page.js';
import { formatOfUnit, unitName } from '../components/service.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';

/** @typedef {Api.WhatIfRun} Side */
/** @typedef {Api.WhatIfFlow} DiffRow */

const WINDOWS = /** @type {[string, string][]} */ ([['15m', 'last 15 min'], ['1h', 'last hour'], ['6h', 'last 6 h'], ['24h', 'last 24 h']]);

class WhatIfPage {
  title = 'What if';

  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    const { query } = route;
    this.pool = query.get('pool') ?? '';
    this.since = '1h';
    /** @type {'weight' | 'policy'} */
    this.kind = 'weight';
    this.by = query.get('by') ?? 'tenant';
    this.flow = query.get('flow') ?? '';
    this.weight = '';
    this.policy = '';
    this.isRunning = false;
    /** @type {Error | null} */
    this.error = null;
    /** @type {Api.WhatIfResult | null} */
    this.result = null;
    /** Unit of the pool that the result is of. */
    this.unit = 'tokens';
    /** @type {string | null} */
    this.begins = null;
    this.order = new RowOrder('requests', true);
    this.keys = [sortKey(this.order, () => this.columns())];
  }

  view() {
    const pools = livePools().map((pool) => pool.pool);
    if (!this.pool && pools.length) this.pool = pools[0];
    return html`
      ${pageHead('What if', this.result ? whatIfSentence(this.result) : 'Replays what the journal recorded, with another weight or policy, and compares. Nothing that runs is changed.')}
      ${mayChange() ? section('Try', this.form(pools)) : html`<p class="note">Those who may only look cannot run this: it takes a processor for a while.</p>`}
      ${this.error ? this.failure(this.error) : nothing}
      ${this.result ? section('Recorded → what if', html`${this.bars(this.result)}${dataTable({
        caption: 'Each flow as recorded and as it would have been',
        columns: this.columns(),
        rows: this.result.flows,
        key: (row) => row.flow,
        order: this.order,
        empty: 'No request in this time.',
      })}${this.begins ? html`<p class="quiet">The journal begins at ${when(this.begins)}, so this is since then.</p>` : nothing}<p class="quiet">What this cannot know: clients would have behaved differently.</p>`) : nothing}`;
  }

  /** @param {string[]} pools */
  form(pools) {
    const typed = (/** @type {'flow' | 'weight' | 'policy'} */ field) => (/** @type {Event} */ event) => {
      this[field] = /** @type {HTMLInputElement} */ (event.target).value;
    };
    return html`<form class="filters" id="what-if" @submit=${(/** @type {Event} */ event) => void this.run(event)}>
      ${select('pool', pools.map((pool) => [pool, pool]), this.pool, (pool) => this.set({ pool }))}
      ${choice('Time', WINDOWS, this.since, (since) => this.set({ since }))}
      ${choice('Change', [['weight', 'another weight'], ['policy', 'another policy']], this.kind, (kind) => this.set({ kind }))}
      ${this.kind === 'weight'
        ? html`${select('of', [['tenant', 'tenant'], ['group', 'group'], ['class', 'class'], ['key', 'key'], ['project', 'project']], this.by, (by) => this.set({ by }))}
          <label>name <input name="flow" .value=${this.flow} @input=${typed('flow')} required></label>
          <label>weight <input name="weight" inputmode="numeric" .value=${this.weight} @input=${typed('weight')} required></label>`
        : html`<label class="wide">policy, as in a policy file <textarea name="policy" rows="8" cols="60" .value=${this.policy} @input=${typed('policy')}></textarea></label>`}
      <button class="primary" ?disabled=${this.isRunning || connection.lostAt !== null || !this.pool}>${this.isRunning ? 'Running…' : 'Run'}</button>
    </form>`;
  }

  /** @param {Record<string, string>} changed */
  set(changed) {
    Object.assign(this, changed);
    requestUpdate();
  }

  /** @param {Event} event */
  async run(event) {
    event.preventDefault();
    this.error = null;
    const weight = wholeNumber(this.weight);
    if (this.kind === 'weight' && (!this.flow.trim() || !weight)) {
      this.error = new Error('Write a name and a weight, a whole number from 1 on.');
      requestUpdate();
      return;
    }
    this.isRunning = true;
    requestUpdate();
    await this.ask(this.since, weight);
    this.isRunning = false;
    requestUpdate();
  }

  /**
   * Asks what would have been since a time. If the journal begins later, since then.
   * @param {string} since
   * @param {number | null} weight
   * @returns {Promise<void>}
   */
  async ask(since, weight) {
    const what = this.kind === 'weight' ? { weights: [{ by: this.by, flow: this.flow.trim(), weight }] } : { policy_file: this.policy };
    try {
      this.result = await change('POST', at`/what-if`, { pool: this.pool, since, ...(this.kind === 'weight' ? { by: this.by } : {}), ...what });
      this.begins = since === this.since ? null : since;
      this.order.sortAgain();
    } catch (error) {
      const begins = error instanceof ApiFailure && error.code === 'not_kept' && since === this.since ? /begins at (\S+);/.exec(error.message)?.[1] : null;
      if (begins) return this.ask(begins, weight);
      this.error = /** @type {Error} */ (error);
    }
  }

  /** @param {Error} error */
  failure(error) {
    const problems = error instanceof ApiFailure ? error.problems : [];
    return html`${failureNote(error)}${problems.length ? html`<ul>${problems.map((problem) => html`<li>${problem.line ? `line ${problem.line}, ` : ''}${name(problem.field)}: ${problem.message}</li>`)}</ul>` : nothing}`;
  }

  /** @param {{ flows: DiffRow[] }} result */
  bars(result) {
    const rows = [...result.flows].sort((a, b) => b.requests - a.requests).slice(0, 12);
    const top = Math.max(1, ...rows.flatMap((row) => [row.recorded.wait_p95_us ?? 0, row.what_if.wait_p95_us ?? 0]));
    const width = (/** @type {number | null | undefined} */ us) => (((us ?? 0) / top) * 100).toFixed(2);
    return html`<figure class="chart"><figcaption>Wait p95: recorded above, what if below</figcaption>
      <div class="usage-bars">${rows.map((row) => html`<span>${name(row.flow)}</span>
        <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="${row.flow}: ${duration(row.recorded.wait_p95_us)} → ${duration(row.what_if.wait_p95_us)}">
          <rect class="fill" width=${width(row.recorded.wait_p95_us)} height="4"></rect><rect class="after" y="5" width=${width(row.what_if.wait_p95_us)} height="4"></rect></svg>
        <span class="number">${duration(row.recorded.wait_p95_us)} → ${duration(row.what_if.wait_p95_us)}</span>`)}</div></figure>`;
  }

  /** @returns {import('../components/table.js').Column<DiffRow>[]} */
  columns() {
    const pair = (/** @type {keyof Side} */ field, /** @type {(value: any) => string} */ format) => (/** @type {DiffRow} */ row) => html`<span title="${exact(row.recorded[field])} → ${exact(row.what_if[field])}">${format(row.recorded[field])} → ${format(row.what_if[field])}</span>`;
    return [
      { id: 'flow', title: this.result?.by ?? 'flow', cell: (row) => name(row.flow), order: (row) => row.flow },
      { id: 'requests', title: 'requests', isNumber: true, cell: (row) => count(row.requests), order: (row) => row.requests },
      { id: 'granted', title: 'granted', isNumber: true, cell: pair('granted', count), order: (row) => row.what_if.granted },
      { id: 'tokens', title: unitName(this.result?.unit), isNumber: true, cell: pair('tokens', formatOfUnit(this.result?.unit)), order: (row) => row.what_if.tokens },
      { id: 'refused', title: 'refused', isNumber: true, cell: pair('refused', count), order: (row) => row.what_if.refused },
      { id: 'wait_p50', title: 'wait p50', isNumber: true, cell: pair('wait_p50_us', duration), order: (row) => row.what_if.wait_p50_us },
      { id: 'wait_p95', title: 'wait p95', isNumber: true, cell: pair('wait_p95_us', duration), order: (row) => row.what_if.wait_p95_us },
      { id: 'wait_max', title: 'longest wait', isNumber: true, cell: pair('wait_max_us', duration), order: (row) => row.what_if.wait_max_us },
    ];
  }
}

/**
 * Names the flows whose waits would have changed most.
 * @param {{ flows: DiffRow[] }} result
 */
export function whatIfSentence(result) {
  const moved = result.flows
    .map((row) => ({ row, by: Math.abs((row.what_if.wait_p95_us ?? 0) - (row.recorded.wait_p95_us ?? 0)) }))
    .filter(({ by }) => isNumber(by) && by > 0)
    .sort((a, b) => b.by - a.by)
    .slice(0, 2);
  const refused = result.flows.reduce((sum, row) => sum + row.what_if.refused, 0);
  if (result.flows.length === 0) return 'The journal has no request in this time.';
  if (moved.length === 0) return 'Nothing would have been different in the waits.';
  return html`${moved.map(({ row }) => html`${name(row.flow)}: wait p95 ${duration(row.recorded.wait_p95_us)} → ${duration(row.what_if.wait_p95_us)}. `)}${refused === 0 ? 'Nobody is refused.' : `${several(refused, 'request')} refused.`}`;
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => new WhatIfPage(route);
