/** Usage: tokens and money by day, tenant, model and more; one split by another. */
import { html, nothing, svg } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { count, money, percent, several } from '../core/format.js';
import { Resource } from '../core/resource.js';
import { setQuery } from '../core/router.js';
import { name } from '../components/name.js';
import { number, share, time } from '../components/number.js';
import { choice, loaded, pageHead, section, select } from '../components/page.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';

/** What usage can be counted by, and the windows that are offered. */
const BY = ['day', 'hour', 'tenant', 'group', 'key', 'model', 'pool', 'worker', 'class', 'project', 'agent', 'outcome', 'tier'];
const WINDOWS = /** @type {[string, string][]} */ ([['24h', '24 h'], ['7d', '7 d'], ['30d', '30 d'], ['90d', '90 d']]);

/** Parts that are drawn with a colour of their own; the rest is one part. */
const NAMED = 6;

class UsagePage {
  title = 'Usage';

  /**
   * @param {URLSearchParams} query
   * @param {string} path of the API
   * @param {string[]} by
   */
  constructor(query, path, by) {
    this.query = query;
    this.path = path;
    this.by = by;
    this.order = new RowOrder('name', true);
    /** @type {Resource<Api.Usage>} */
    this.usage = new Resource((signal) => read(path, this.asked(), signal), 30_000).start();
    this.keys = [sortKey(this.order, () => this.columns(null))];
  }

  asked() {
    const by = this.query.get('by') ?? 'day';
    const split = this.query.get('split') ?? '';
    return { by, split: split === by ? '' : split, since: this.query.get('last') ?? '7d', tenant: this.query.get('tenant'), quantiles: true };
  }

  unit() {
    return this.query.get('unit') === 'money' ? 'money' : 'tokens';
  }

  /** @param {import('../core/router.js').Route} route */
  enter(route) {
    this.query = route.query;
    this.order.sortAgain();
    this.usage.value = null;
    void this.usage.refresh();
  }

  leave() {
    this.usage.stop();
  }

  view() {
    const asked = this.asked();
    const kinds = /** @type {[string, string][]} */ (this.by.map((each) => [each, each]));
    const controls = html`
      ${select('by', kinds, asked.by, (by) => setQuery({ by }))}
      ${select('split', [['', 'none'], ...kinds.filter(([each]) => each !== asked.by)], asked.split, (split) => setQuery({ split }))}
      ${choice('Unit', [['tokens', 'tokens'], ['money', 'money']], this.unit(), (unit) => setQuery({ unit }))}
      ${choice('Last', WINDOWS, asked.since, (last) => setQuery({ last }))}
      <a class="button" href=${this.csv()} download="usage.csv">CSV</a>`;
    return html`
      ${pageHead('Usage', this.usage.value ? usageSentence(this.usage.value, asked.tenant) : 'Counting.', controls)}
      ${loaded(this.usage, (usage) => html`
        ${section(`By ${usage.by}${usage.split ? `, split by ${usage.split}` : ''}`, html`${this.picture(usage)}${this.table(usage)}`)}
        ${usage.currency ? nothing : html`<p class="quiet">There are no prices in the file, so money is not counted.</p>`}
        ${usage.omitted ? html`<p class="quiet">${several(usage.omitted, 'more row')} not listed; choose a shorter time, or no split.</p>` : nothing}`)}`;
  }

  csv() {
    const query = new URLSearchParams();
    for (const [field, value] of Object.entries({ ...this.asked(), format: 'csv' })) if (value) query.set(field, String(value));
    return `${this.path}?${query}`;
  }

  /** @param {Api.Usage} usage */
  picture(usage) {
    const isMoney = this.unit() === 'money' && usage.currency;
    const amount = (/** @type {Api.UsageRow} */ row) => (isMoney ? Number(row.money) : row.charged_tokens);
    const shown = (/** @type {number} */ value) => (isMoney ? money(value.toFixed(2), usage.currency) : `${count(value)} tokens`);
    return stackedBars(usage.rows, amount, shown);
  }

  /** @param {Api.Usage} usage */
  table(usage) {
    return dataTable({
      caption: `Usage by ${usage.by}`,
      columns: this.columns(usage),
      rows: usage.rows,
      key: (/** @type {Api.UsageRow} */ row) => `${row.name}\u0000${row.split ?? ''}`,
      order: this.order,
      empty: 'Nothing was used in this time. Choose a longer one, or send a request.',
    });
  }

  /**
   * @param {Api.Usage | null} usage
   * @returns {import('../components/table.js').Column<Api.UsageRow>[]}
   */
  columns(usage) {
    return [
      { id: 'name', title: usage?.by ?? 'name', cell: (row) => name(row.name), order: (row) => row.name },
      ...(usage?.split ? [{ id: 'split', title: usage.split, cell: (/** @type {Api.UsageRow} */ row) => name(row.split), order: (/** @type {Api.UsageRow} */ row) => row.split }] : []),
      { id: 'requests', title: 'requests', isNumber: true, cell: (row) => number(row.requests), order: (row) => row.requests },
      { id: 'failed', title: 'failed', isNumber: true, cell: (row) => number(row.failed), order: (row) => row.failed },
      { id: 'charged', title: 'tokens charged', isNumber: true, cell: (row) => number(row.charged_tokens), order: (row) => row.charged_tokens },
      { id: 'got', title: 'got', isNumber: true, cell: (row) => share(row.got_share), order: (row) => row.got_share, help: 'part of all tokens charged in this time' },
      { id: 'input', title: 'input tokens', isNumber: true, cell: (row) => number(row.input_tokens), order: (row) => row.input_tokens },
      { id: 'cached', title: 'cached tokens', isNumber: true, cell: (row) => number(row.cached_tokens), order: (row) => row.cached_tokens, help: 'input tokens that were read from a cache' },
      { id: 'output', title: 'output tokens', isNumber: true, cell: (row) => number(row.output_tokens), order: (row) => row.output_tokens },
      ...(usage?.currency ? [{ id: 'money', title: usage.currency, isNumber: true, cell: (/** @type {Api.UsageRow} */ row) => money(row.money), order: (/** @type {Api.UsageRow} */ row) => Number(row.money) }] : []),
      { id: 'wait_p50', title: 'wait p50', isNumber: true, cell: (row) => time(row.waited_p50_us), order: (row) => row.waited_p50_us },
      { id: 'wait_p95', title: 'wait p95', isNumber: true, cell: (row) => time(row.waited_p95_us), order: (row) => row.waited_p95_us },
      { id: 'wait_max', title: 'longest wait', isNumber: true, cell: (row) => time(row.waited_max_us), order: (row) => row.waited_max_us },
    ];
  }
}

/**
 * Says how much was used.
 * @param {Api.Usage} usage
 * @param {string | null} tenant
 */
export function usageSentence(usage, tenant) {
  const requests = usage.rows.reduce((/** @type {number} */ sum, /** @type {Api.UsageRow} */ row) => sum + row.requests, 0);
  const tokens = usage.rows.reduce((/** @type {number} */ sum, /** @type {Api.UsageRow} */ row) => sum + row.charged_tokens, 0);
  const failed = usage.rows.reduce((/** @type {number} */ sum, /** @type {Api.UsageRow} */ row) => sum + row.failed, 0);
  const cost = usage.rows.reduce((/** @type {number} */ sum, /** @type {Api.UsageRow} */ row) => sum + Number(row.money), 0);
  return html`${tenant ? html`${name(tenant)}: ` : nothing}${several(requests, 'request')}, ${count(tokens)} tokens charged${usage.currency ? `, ${money(cost.toFixed(2), usage.currency)}` : ''}; ${failed === 0 ? 'none failed' : `${several(failed, 'request')} failed`}.`;
}

/**
 * Draws a bar for each name, with a part for each split. The table below has the same numbers.
 * @param {Api.UsageRow[]} rows
 * @param {(row: any) => number} amount
 * @param {(value: number) => string} shown
 */
function stackedBars(rows, amount, shown) {
  if (rows.length === 0) return nothing;
  const sums = new Map();
  const splits = new Map();
  for (const row of rows) {
    sums.set(row.name, (sums.get(row.name) ?? 0) + amount(row));
    splits.set(row.split ?? '', (splits.get(row.split ?? '') ?? 0) + amount(row));
  }
  const top = Math.max(1, ...sums.values());
  const total = [...sums.values()].reduce((sum, value) => sum + value, 0);
  const named = [...splits].sort((a, b) => b[1] - a[1]).slice(0, NAMED).map(([split]) => split);
  const color = (/** @type {string} */ split) => (named.includes(split) ? named.indexOf(split) + 1 : 'muted');
  return html`<figure class="chart">
    ${named.length > 1 ? html`<ul class="legend">${named.map((split, index) => html`<li><span class="swatch color-${index + 1}" aria-hidden="true"></span>${name(split)} ${percent(total ? splits.get(split) / total : null)}</li>`)}${splits.size > NAMED ? html`<li><span class="swatch" aria-hidden="true"></span>others</li>` : nothing}</ul>` : nothing}
    <div class="usage-bars">${[...sums].sort((a, b) => (a[0] < b[0] ? 1 : -1)).slice(0, 60).map(([each, value]) => html`<span>${name(each)}</span>
      <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="${each}: ${shown(value)}">${parts(rows.filter((row) => row.name === each), amount, top, color)}</svg>
      <span class="number">${shown(value)}</span>`)}</div>
  </figure>`;
}

/**
 * @param {Api.UsageRow[]} rows of one name
 * @param {(row: any) => number} amount
 * @param {number} top
 * @param {(split: string) => number | string} color
 */
function parts(rows, amount, top, color) {
  let x = 0;
  return [...rows].sort((a, b) => amount(b) - amount(a)).map((row) => {
    const width = (amount(row) / top) * 100;
    const drawn = svg`<rect class="fill-${color(row.split ?? '')}" x=${x.toFixed(3)} width=${width.toFixed(3)} height="10"></rect>`;
    x += width;
    return drawn;
  });
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => new UsagePage(route.query, at`/usage`, BY);
