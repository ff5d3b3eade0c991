/** Requests: those that wait or are in flight, those that ended, and one of them with its why. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { several } from '../core/format.js';
import { pause } from '../core/pause.js';
import { Resource } from '../core/resource.js';
import { href, setQuery } from '../core/router.js';
import { requestUpdate } from '../core/update.js';
import { name } from '../components/name.js';
import { number, time, when } from '../components/number.js';
import { choice, failureNote, loaded, pageHead } from '../components/page.js';
import { rowList } from '../components/row_list.js';
import { stateBadge, statusBadge } from '../components/state.js';
import { RequestPage } from './request.js';

/** Rows a page of ended requests has, and how often the lists are read, in milliseconds. */
const PAGE_ROWS = 500;
const LIVE_MS = 2000;
const ENDED_MS = 5000;

/** Filters of each list: the query's name, its label. */
const FILTERS = {
  live: /** @type {const} */ ([['tenant', 'tenant'], ['pool', 'pool']]),
  ended: /** @type {const} */ ([['tenant', 'tenant'], ['status', 'status'], ['code', 'code'], ['pool', 'pool'], ['worker', 'worker'], ['model', 'model'], ['class', 'class'], ['key', 'key'], ['waited_min_ms', 'waited ≥ ms'], ['since', 'since']]),
};

class RequestsPage {
  title = 'Requests';

  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    this.query = route.query;
    this.ended = new EndedList();
    /** @type {Resource<Api.RequestList>} */
    this.current = new Resource((signal) => read(at`/requests`, { ...this.filters(), limit: 1000 }, signal), LIVE_MS);
    this.keys = [{ keys: 'f', does: 'go to the first filter', run: focusFilter }];
    this.begin();
  }

  /** @returns {'live' | 'ended'} */
  list() {
    return this.query.get('list') === 'live' ? 'live' : 'ended';
  }

  /** @returns {Record<string, string>} */
  filters() {
    return Object.fromEntries(FILTERS[this.list()].flatMap(([id]) => (this.query.get(id) ? [[id, /** @type {string} */ (this.query.get(id))]] : [])));
  }

  begin() {
    if (this.list() === 'live') {
      this.ended.stop();
      this.current.start();
    } else {
      this.current.stop();
      this.ended.start(this.filters());
    }
  }

  /** @param {import('../core/router.js').Route} route */
  enter(route) {
    this.query = route.query;
    this.begin();
  }

  leave() {
    this.current.stop();
    this.ended.stop();
  }

  view() {
    const list = this.list();
    const controls = choice('List', [['live', 'live'], ['ended', 'ended']], list, (value) => setQuery({ list: value }));
    return html`
      ${pageHead('Requests', list === 'live' ? this.liveSentence() : this.ended.sentence(), controls)}
      <form class="filters" @submit=${(/** @type {Event} */ event) => this.filter(event)}>
        ${FILTERS[list].map(([id, label]) => html`<label>${label} <input name=${id} .value=${this.query.get(id) ?? ''} placeholder="any" autocomplete="off"></label>`)}
        <button>Filter</button>
        ${Object.keys(this.filters()).length ? html`<a class="button" href=${href(['requests'], { list })}>Clear</a>` : nothing}
      </form>
      ${list === 'live' ? loaded(this.current, (value) => this.liveList(value)) : this.ended.view()}`;
  }

  /** @param {Event} event */
  filter(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    setQuery(Object.fromEntries([...form].map(([id, value]) => [id, String(value).trim()])));
  }

  liveSentence() {
    const value = this.current.value;
    if (!value) return 'Reading what waits and what is in flight.';
    const waiting = value.items.filter((item) => item.state === 'waiting').length;
    return `${several(waiting, 'request waits', 'requests wait')}, ${value.items.length - waiting} ${value.items.length - waiting === 1 ? 'is' : 'are'} in flight${value.omitted ? `; ${several(value.omitted, 'more')} not listed` : ''}.`;
  }

  /** @param {Api.RequestList} value */
  liveList(value) {
    return rowList(
      {
        label: 'Requests that wait or are in flight',
        columns: ['came', 'request', 'tenant', 'pool', 'state', 'class', 'waited', 'in flight', 'worker'],
        rows: value.items,
        key: (row) => row.id,
        isComplete: true,
        loadMore: () => {},
        cells: (/** @type {Api.Request} */ row) => [when(row.submitted_at), requestLink(row.id), name(row.tenant), name(row.pool), stateBadge(row.state), name(row.class), time(row.waited_us), time(row.in_flight_us), name(row.worker)],
      },
      'live-requests',
      'Nothing waits and nothing is in flight. What has ended is in the other list.',
    );
  }
}

function focusFilter() {
  const first = document.querySelector('.filters input');
  if (first instanceof HTMLElement) first.focus();
}

/** @param {string} id */
function requestLink(id) {
  return html`<a href=${href(['requests', id])}>${name(id)}</a>`;
}

/** Ended requests, the newest first, page by page from a cursor. What is loaded stays where it is. */
export class EndedList {
  /** @param {string} [path] */
  constructor(path = at`/attempts`) {
    this.path = path;
    /** @type {Api.Attempt[]} */
    this.rows = [];
    /** @type {Api.Attempt[]} */
    this.newer = [];
    /** @type {string | null} */
    this.next = null;
    /** @type {{ at: string, because: string } | null} */
    this.stopped = null;
    /** @type {Record<string, string>} */
    this.filters = {};
    this.isComplete = false;
    this.isLoading = false;
    /** @type {Error | null} */
    this.error = null;
    this.timer = 0;
    this.run = 0;
    /** Counted as rows come: the sentence is drawn each second, over rows that may be very many. */
    this.counts = { refused: 0, failed: 0 };
  }

  /** @param {Record<string, string>} filters */
  start(filters) {
    this.stop();
    Object.assign(this, { rows: [], newer: [], next: null, stopped: null, filters, isComplete: false, error: null, isLoading: false, counts: { refused: 0, failed: 0 } });
    void this.loadMore();
    this.timer = setInterval(() => void this.lookForNewer(), ENDED_MS);
  }

  stop() {
    this.run += 1;
    clearInterval(this.timer);
  }

  /** Loads the next page, unless one is being loaded. */
  async loadMore() {
    if (this.isLoading || this.isComplete) return;
    const run = this.run;
    this.isLoading = true;
    try {
      const page = await read(this.path, { ...this.filters, last: true, limit: PAGE_ROWS, cursor: this.next });
      if (run !== this.run) return;
      this.rows = this.rows.concat(page.items);
      this.count(page.items);
      this.next = page.next ?? null;
      this.stopped = page.stopped ?? null;
      this.isComplete = this.next === null;
      this.error = null;
    } catch (error) {
      if (run !== this.run) return;
      this.error = /** @type {Error} */ (error);
      // Scrolling must not ask again and again for what is refused.
      this.isComplete = true;
    }
    this.isLoading = false;
    const list = /** @type {import('../components/row_list.js').RowListElement | null} */ (document.querySelector('fg-rows.ended'));
    // While one scrolls, the list alone is drawn; the sentence above it follows within a second.
    if (list && !this.isComplete && !this.stopped) list.spec = this.spec();
    else requestUpdate();
  }

  /** Looks what has ended since the first row. It is added at once only while nobody has scrolled. */
  async lookForNewer() {
    if (pause.since || document.hidden || this.rows.length === 0) {
      if (this.rows.length === 0 && this.isComplete && !pause.since && !this.error) this.start(this.filters);
      return;
    }
    const run = this.run;
    const page = await read(this.path, { ...this.filters, last: true, limit: PAGE_ROWS, since: this.rows[0].started_at }).catch(() => null);
    if (run !== this.run || !page) return;
    const known = new Set(this.rows.slice(0, PAGE_ROWS).map(keyOf));
    this.newer = page.items.filter((/** @type {Api.Attempt} */ row) => !known.has(keyOf(row)));
    if ((document.querySelector('fg-rows .scroller')?.scrollTop ?? 0) === 0) this.showNewer();
    requestUpdate();
  }

  showNewer() {
    this.rows = this.newer.concat(this.rows);
    this.count(this.newer);
    this.newer = [];
    requestUpdate();
  }

  /** @param {Api.Attempt[]} rows */
  count(rows) {
    for (const row of rows) {
      if (row.outcome === 'refused') this.counts.refused += 1;
      else if (row.status >= 400) this.counts.failed += 1;
    }
  }

  sentence() {
    if (this.rows.length === 0) return this.isComplete ? 'No ended request matches.' : 'Reading what has ended.';
    const { refused, failed } = this.counts;
    const more = this.isComplete ? '' : ' so far; scroll for more';
    return `${several(this.rows.length, 'ended request')}${more}: ${refused} refused, ${failed} failed.`;
  }

  /** @returns {import('../components/row_list.js').RowListSpec} */
  spec() {
    return {
      label: 'Ended requests, the newest first',
      columns: ['at', 'request', 'tenant', 'model', 'status', 'waited', 'first token', 'total', 'tokens', 'worker'],
      rows: this.rows,
      key: keyOf,
      isComplete: this.isComplete || this.stopped !== null,
      loadMore: () => void this.loadMore(),
      cells: (/** @type {Api.Attempt} */ row) => [when(row.started_at), requestLink(row.request), name(row.tenant), name(row.model), statusBadge(row.status, row.code), time(row.waited_us), time(row.first_token_us), time(row.total_us), number(row.charged_tokens), name(row.worker)],
    };
  }

  view() {
    if (this.error) return failureNote(this.error);
    return html`
      <div role="status">${this.newer.length ? html`<button id="newer" @click=${() => this.showNewer()}>${several(this.newer.length, 'new row')} ↑</button>` : nothing}</div>
      ${rowList(this.spec(), 'ended', this.isComplete ? html`<p>No request matches. Take a filter away, or send a first request.</p>` : html`<p>Loading…</p>`)}
      ${this.stopped ? html`<p>Looked back to ${when(this.stopped.at)}. <button @click=${() => void this.loadMore()}>Go on</button></p>` : nothing}`;
  }
}

/** @param {Api.Attempt} row */
function keyOf(row) {
  return `${row.request} ${row.attempt}`;
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => (route.parts[1] ? new RequestPage(route) : new RequestsPage(route));
