/** One request: why it waits or waited, its time step by step, its rows of the ledger. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { count, sentence } from '../core/format.js';
import { Resource } from '../core/resource.js';
import { href } from '../core/router.js';
import { name } from '../components/name.js';
import { number, time, timeOfMs, when } from '../components/number.js';
import { loaded, pageHead, section } from '../components/page.js';
import { amount, amountDifference, service, unitName } from '../components/service.js';
import { stateBadge, statusBadge } from '../components/state.js';
import { dataTable } from '../components/table.js';
import { timeline } from '../components/timeline.js';

/** How often a request that has not ended is read, in milliseconds. */
const READ_MS = 2000;

export class RequestPage {
  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    this.id = route.parts[1];
    this.title = `Request ${this.id}`;
    /** @type {Resource<Api.RequestDetail>} */
    this.request = new Resource((signal) => this.read(signal), READ_MS).start();
    /** @type {Resource<Api.RequestJournal> | null} */
    this.journal = null;
  }

  /** @param {AbortSignal} signal */
  async read(signal) {
    const answer = await read(at`/requests/${this.id}`, {}, signal);
    // What has ended changes no more.
    if (!answer.request) this.request.everyMs = 0;
    return answer;
  }

  leave() {
    this.request.stop();
    this.journal?.stop();
  }

  view() {
    const answer = this.request.value;
    const title = html`Request ${name(this.id)}`;
    if (!answer) return html`${pageHead(title, this.request.isMissing() ? 'Nobody knows a request of this id: it may be older than the ledger keeps rows.' : 'Reading it.')}${loaded(this.request, () => nothing)}`;
    const story = [...new Set(answer.story ?? [])];
    const last = answer.attempts.at(-1);
    return html`
      ${pageHead(title, sentence(answer.summary ?? story[0] ?? 'It has ended.'))}
      ${answer.request ? section('Now', nowFacts(answer.request, answer)) : nothing}
      ${answer.attempts.length ? section('Its time', answer.attempts.map(timeline)) : nothing}
      ${story.length > 1 ? section('Why, step by step', html`<ol id="story">${story.map((line) => html`<li>${sentence(line)}</li>`)}</ol>`) : nothing}
      ${answer.waiting ? section('Level by level', levels(answer.waiting, answer.request?.unit)) : nothing}
      ${last && !answer.request ? section('Why it waited', this.journalView()) : nothing}
      ${answer.attempts.length ? section('Rows of the ledger', ledger(answer.attempts)) : nothing}
      <p class="quiet">On the command line: <code>fairgate request ${this.id}</code>${last ? html` · <a href=${href(['requests'], { list: 'ended', tenant: last.tenant })}>requests of ${name(last.tenant)}</a>` : nothing}</p>`;
  }

  journalView() {
    if (!this.journal) {
      return html`<p>The journal can tell, if the pool keeps one. Reading it takes up to a few seconds.</p>
        <button @click=${() => (this.journal = new Resource(() => read(at`/requests/${this.id}/journal`)).start())}>Explain it from the journal</button>`;
    }
    return loaded(this.journal, (answer) => html`<ol id="journal">${(answer.story ?? []).map((line) => html`<li>${line}</li>`)}</ol>`);
  }
}

/**
 * @param {Api.Request} request
 * @param {Api.RequestDetail} answer
 */
function nowFacts(request, answer) {
  const { waiting } = answer;
  return html`<dl class="facts">
    <div><dt>state</dt><dd>${stateBadge(request.state)}</dd></div>
    <div><dt>pool</dt><dd><a href=${href(['pools', request.pool])}>${name(request.pool)}</a></dd></div>
    <div><dt>tenant</dt><dd>${name(request.tenant)}</dd></div>
    <div><dt>came</dt><dd>${when(request.submitted_at)}</dd></div>
    <div><dt>waited</dt><dd>${time(request.waited_us)}</dd></div>
    ${waiting ? html`<div><dt>expected wait</dt><dd>${timeOfMs(answer.expected_wait_ms ?? waiting.expected_wait_ms)}</dd></div>
    <div><dt>before it</dt><dd>${number(waiting.grants_ahead)} requests, ${number(waiting.ahead_in_queue)} of its own queue</dd></div>` : html`<div><dt>in flight</dt><dd>${time(request.in_flight_us)}</dd></div>
    <div><dt>worker</dt><dd>${name(request.worker)}</dd></div>`}
    <div><dt>cost, estimated</dt><dd data-field="cost">${service(request.cost, request.unit)}</dd></div>
  </dl>`;
}

/**
 * @param {Api.Waiting} waiting
 * @param {string | undefined} unit
 */
function levels(waiting, unit) {
  return dataTable({
    caption: 'The flows that the request is in, from the root of the policy down',
    rows: waiting.levels.map((level, index) => ({ ...level, index })),
    key: (level) => String(level.index),
    columns: [
      { id: 'by', title: 'by', cell: (level) => level.by },
      { id: 'flow', title: 'flow', cell: (level) => name(level.flow) },
      { id: 'readiness', title: 'readiness', cell: (level) => level.readiness },
      { id: 'waiting', title: 'waiting', isNumber: true, cell: (level) => number(level.waiting) },
      { id: 'in_flight', title: 'in flight', isNumber: true, cell: (level) => number(level.in_flight) },
      { id: 'got', title: `got, ${unitName(unit)}`, isNumber: true, cell: (level) => amount(level.got, unit) },
      { id: 'due', title: `due, ${unitName(unit)}`, isNumber: true, cell: (level) => amount(level.due, unit) },
      { id: 'difference', title: `difference, ${unitName(unit)}`, isNumber: true, cell: (level) => amountDifference(level.difference, unit) },
      { id: 'bound', title: `bound, ± ${unitName(unit)}`, isNumber: true, cell: (level) => amount(level.bound, unit) },
    ],
  });
}

/** @param {Api.Attempt[]} attempts */
function ledger(attempts) {
  return dataTable({
    caption: 'Attempts of this request',
    rows: attempts,
    key: (row) => String(row.attempt),
    columns: [
      { id: 'attempt', title: 'attempt', isNumber: true, cell: (row) => count(row.attempt) },
      { id: 'status', title: 'status', cell: (row) => statusBadge(row.status, row.code) },
      { id: 'outcome', title: 'outcome', cell: (row) => row.outcome },
      { id: 'model', title: 'model', cell: (row) => name(row.model) },
      { id: 'worker', title: 'worker', cell: (row) => name(row.worker) },
      { id: 'waited', title: 'waited', isNumber: true, cell: (row) => time(row.waited_us) },
      { id: 'first', title: 'first token', isNumber: true, cell: (row) => time(row.first_token_us) },
      { id: 'total', title: 'total', isNumber: true, cell: (row) => time(row.total_us) },
      { id: 'estimate', title: 'expected tokens', isNumber: true, cell: (row) => number(row.estimate_tokens) },
      { id: 'input', title: 'input tokens', isNumber: true, cell: (row) => number(row.input_tokens) },
      { id: 'output', title: 'output tokens', isNumber: true, cell: (row) => number(row.output_tokens) },
      { id: 'charged', title: 'tokens charged', isNumber: true, cell: (row) => number(row.charged_tokens) },
      { id: 'money', title: 'money', isNumber: true, cell: (row) => row.money },
    ],
  });
}
