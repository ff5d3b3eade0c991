/** Audit: who changed what, when, from what to what. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { several } from '../core/format.js';
import { onEvent } from '../core/live.js';
import { pause } from '../core/pause.js';
import { router, setQuery, href } from '../core/router.js';
import { requestUpdate } from '../core/update.js';
import { same } from '../core/undo.js';
import { whenChanged } from '../changes/change.js';
import { name } from '../components/name.js';
import { when } from '../components/number.js';
import { failureNote, pageHead, section } from '../components/page.js';
import { dataTable } from '../components/table.js';

const PAGE_ROWS = 100;
const FILTERS = /** @type {const} */ (['actor', 'action', 'subject', 'since', 'until']);

class AuditPage {
  title = 'Audit';

  constructor() {
    /** @type {Api.AuditEntry[]} */
    this.rows = [];
    /** @type {number | null} */
    this.next = null;
    /** @type {Error | null} */
    this.error = null;
    this.isLoaded = false;
    this.stops = [onEvent('audit', () => this.again()), whenChanged(() => this.again())];
    void this.load(null);
  }

  again() {
    if (!pause.since) void this.load(null);
  }

  enter() {
    void this.load(null);
  }

  leave() {
    for (const stop of this.stops) stop();
  }

  filters() {
    return Object.fromEntries(FILTERS.map((id) => [id, router.now.query.get(id)]));
  }

  /** @param {number | null} before */
  async load(before) {
    try {
      const page = await read(at`/audit`, { ...this.filters(), limit: PAGE_ROWS, before });
      this.rows = before === null ? page.items : this.rows.concat(page.items);
      this.next = page.next ?? null;
      this.error = null;
      this.isLoaded = true;
    } catch (error) {
      this.error = /** @type {Error} */ (error);
    }
    requestUpdate();
  }

  view() {
    const isFiltered = Object.values(this.filters()).some(Boolean);
    return html`
      ${pageHead('Audit', this.sentence())}
      <form class="filters" @submit=${submitted}>
        ${FILTERS.map((id) => html`<label>${id} <input name=${id} .value=${router.now.query.get(id) ?? ''} placeholder=${id === 'since' ? '7d' : 'any'} autocomplete="off"></label>`)}
        <button>Filter</button>
        ${isFiltered ? html`<a class="button" href=${href(['audit'])}>Clear</a>` : nothing}
      </form>
      ${this.error ? failureNote(this.error) : nothing}
      ${section('Changes, the latest first', html`${dataTable({
        caption: 'Changes, the latest first',
        columns: columns(),
        rows: this.rows,
        key: (row) => String(row.id),
        empty: this.isLoaded ? (isFiltered ? 'No change matches. Take a filter away.' : 'Nobody has changed anything yet.') : 'Loading…',
      })}${this.next === null ? nothing : html`<button @click=${() => void this.load(this.next)}>Older</button>`}`)}`;
  }

  sentence() {
    if (!this.isLoaded) return 'Reading who changed what.';
    const [latest] = this.rows;
    if (!latest) return 'Nobody has changed anything that matches.';
    return html`${several(this.rows.length, 'change')}${this.next === null ? '' : ' and more'}; the latest by ${name(latest.actor)}, ${when(latest.at)}.`;
  }
}

/** @param {Event} event */
function submitted(event) {
  event.preventDefault();
  const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
  setQuery(Object.fromEntries([...form].map(([id, value]) => [id, String(value).trim()])));
}

/** @returns {import('../components/table.js').Column<Api.AuditEntry>[]} */
function columns() {
  return [
    { id: 'at', title: 'at', cell: (row) => when(row.at) },
    { id: 'actor', title: 'by', cell: (row) => html`<a href=${href(['audit'], { actor: row.actor })}>${name(row.actor)}</a>` },
    { id: 'action', title: 'action', cell: (row) => name(row.action) },
    { id: 'subject', title: 'of', cell: (row) => html`<a href=${href(['audit'], { subject: row.subject })}>${name(row.subject)}</a>` },
    { id: 'change', title: 'from → to', cell: (row) => changesOf(row.before, row.after).map(({ field, from, to }) => html`<div><span class="quiet">${field}:</span> ${name(from)} → ${name(to)}</div>`) },
  ];
}

/**
 * Returns the fields that differ between two bodies, nested ones by their path.
 * @param {any} before
 * @param {any} after
 * @param {string} [path]
 * @returns {{ field: string, from: string, to: string }[]}
 */
export function changesOf(before, after, path = '') {
  const fields = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...fields].flatMap((field) => {
    const [from, to] = [before?.[field], after?.[field]];
    if (same(from, to)) return [];
    if (isObject(from) || isObject(to)) return changesOf(isObject(from) ? from : {}, isObject(to) ? to : {}, `${path}${field}.`);
    return [{ field: path + field, from: shown(from), to: shown(to) }];
  });
}

/** @param {any} value */
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param {any} value */
function shown(value) {
  if (value === null || value === undefined) return '–';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

export const open = () => new AuditPage();
