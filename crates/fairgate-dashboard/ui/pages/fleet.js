/** Fleet: projects with due and got, the board of tasks by state, the agents, and one task. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { duration, moment, percent, several } from '../core/format.js';
import { onEvent } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href } from '../core/router.js';
import { shareBar } from '../components/bars.js';
import { name } from '../components/name.js';
import { age, number, share } from '../components/number.js';
import { loaded, pageHead, section } from '../components/page.js';
import { stateBadge } from '../components/state.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';
import { whenChanged } from '../changes/change.js';
import { TaskPage, taskActions } from './task.js';

/** How often the fleet is read, in milliseconds; a change of a task is told by the stream at once. */
const READ_MS = 5000;

/** Tasks that a column of the board lists. */
const LISTED = 20;

/** Columns of the board: title, states, what to do about an empty one is nothing. */
const COLUMNS = /** @type {[title: string, states: string[]][]} */ ([
  ['Needs a person', ['WAITING_INPUT']],
  ['Running', ['ASSIGNED', 'IN_PROGRESS']],
  ['Ready', ['READY']],
  ['Paused', ['PAUSED']],
  ['Blocked', ['BLOCKED']],
  ['Defined', ['DEFINED']],
  ['Failed', ['FAILED']],
  ['Done', ['COMPLETED']],
]);

class FleetPage {
  title = 'Fleet';
  order = new RowOrder('project');
  /** @type {Resource<Api.FleetView>} */
  fleet = new Resource((signal) => read(at`/fleet`, {}, signal), READ_MS).start();
  /** @type {Resource<Map<string, Api.TaskLine[]>>} */
  tasks = new Resource((signal) => readBoard(signal), READ_MS).start();
  keys = [sortKey(this.order, () => this.columns())];
  stops = [onEvent('fleet', () => this.readSoon()), whenChanged(() => this.readSoon())];
  timer = 0;

  leave() {
    this.fleet.stop();
    this.tasks.stop();
    clearTimeout(this.timer);
    for (const stop of this.stops) stop();
  }

  /** Reads again after the events of the same moment have come. */
  readSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      void this.fleet.refresh();
      void this.tasks.refresh();
    }, 300);
  }

  view() {
    const fleet = this.fleet.value;
    return html`
      ${pageHead('Fleet', fleet ? this.sentence(fleet) : 'Reading the fleet.')}
      ${loaded(this.fleet, (value) => section('Projects', dataTable({
        caption: 'Projects: due, got, used, budget, running',
        columns: this.columns(),
        rows: value.projects,
        key: (row) => row.id,
        order: this.order,
        empty: html`<p>No project yet. Add one:</p><pre>fairgate project add web --tenant TENANT</pre>`,
      })))}
      ${section('Board', loaded(this.tasks, (board) => this.board(board)))}
      ${fleet ? section('Agents', agents(fleet)) : nothing}`;
  }

  /** @param {Api.FleetView} fleet */
  sentence(fleet) {
    const people = this.tasks.value?.get('WAITING_INPUT')?.length ?? 0;
    const [first] = [...fleet.projects].sort((a, b) => b.used - a.used);
    const owed = first && first.due_share !== null && first.due_share !== undefined ? html`; ${name(first.id)} has ${percent(first.got_share)} of the ${percent(first.due_share)} that it is due` : nothing;
    return html`${number(fleet.used)} tokens in ${duration(fleet.window_s * 1e6)}${owed}. ${people === 0 ? 'No task waits for a person.' : `${several(people, 'task waits', 'tasks wait')} for a person.`}`;
  }

  /** @returns {import('../components/table.js').Column<Api.ProjectView>[]} */
  columns() {
    return [
      { id: 'project', title: 'project', cell: (row) => name(row.id), order: (row) => row.id },
      { id: 'status', title: 'status', cell: (row) => stateBadge(row.status) },
      { id: 'due', title: 'due', isNumber: true, cell: (row) => share(row.due_share), order: (row) => row.due_share },
      { id: 'got', title: 'got', isNumber: true, cell: (row) => share(row.got_share), order: (row) => row.got_share },
      { id: 'bar', title: 'got ▇ / due │', cell: (row) => shareBar(row.got_share, row.due_share) },
      { id: 'used', title: 'tokens used', isNumber: true, cell: (row) => number(row.used), order: (row) => row.used },
      { id: 'reserved', title: 'set aside', isNumber: true, cell: (row) => number(row.reserved), help: 'tokens that running tasks may still use' },
      { id: 'budget', title: 'budget', isNumber: true, cell: (row) => number(row.budget), help: 'tokens in the window' },
      { id: 'ready', title: 'ready', isNumber: true, cell: (row) => number(row.ready), order: (row) => row.ready },
      { id: 'running', title: 'running', isNumber: true, cell: (row) => html`${number(row.running)}/${number(row.concurrency)}`, order: (row) => row.running },
    ];
  }

  /** @param {Map<string, Api.TaskLine[]>} board */
  board(board) {
    const all = [...board.values()].reduce((sum, tasks) => sum + tasks.length, 0);
    if (all === 0) return html`<div class="empty">No task yet. Add one:<pre>fairgate task add --project web "Write the release notes"</pre></div>`;
    return html`<div class="board">${COLUMNS.map(([title, states]) => {
      const tasks = states.flatMap((state) => board.get(state) ?? []);
      return html`<section aria-label=${title} data-column=${states[0]}>
        <h3>${title} <span class="quiet">${number(tasks.length)}${tasks.length >= 1000 ? ' or more' : ''}</span></h3>
        <ul>${tasks.slice(0, LISTED).map(card)}</ul>
        ${tasks.length > LISTED ? html`<p class="quiet">and ${tasks.length - LISTED} more</p>` : nothing}
      </section>`;
    })}</div>`;
  }
}

/** @param {Api.TaskLine} task */
function card(task) {
  const soon = task.resume_after ? moment(task.resume_after) : null;
  return html`<li data-task=${task.id}>
    <a href=${href(['fleet', 'tasks', task.id])}>${name(task.id)}</a> ${task.agent ? html`<span class="quiet">${name(task.agent)}</span>` : nothing}
    <div>${name(task.title)}</div>
    ${soon && soon.getTime() > Date.now() ? html`<div class="quiet">in ${duration((soon.getTime() - Date.now()) * 1000)}</div>` : nothing}
    ${task.state === 'WAITING_INPUT' ? taskActions(task, ['answer']) : nothing}
  </li>`;
}

/** @param {Api.FleetView} fleet */
function agents(fleet) {
  return dataTable({
    caption: 'Agents: state, task, last seen',
    rows: fleet.agents,
    key: (agent) => agent.id,
    empty: html`<p>No agent yet. Add one:</p><pre>fairgate agent add ada</pre>`,
    columns: [
      { id: 'agent', title: 'agent', cell: (agent) => name(agent.id) },
      { id: 'state', title: 'state', cell: (agent) => stateBadge(agent.state) },
      { id: 'task', title: 'task', cell: (agent) => (agent.task ? html`<a href=${href(['fleet', 'tasks', agent.task])}>${name(agent.task)}</a>` : html`<span class="quiet">free</span>`) },
      { id: 'connected', title: 'asks for work', cell: (agent) => (fleet.connected.includes(agent.id) ? html`<span class="state good">● now</span>` : html`<span class="state quiet">○ no</span>`) },
      { id: 'seen', title: 'last seen', cell: (agent) => age(agent.last_seen) },
      { id: 'labels', title: 'labels', cell: (agent) => (agent.labels ?? []).map((/** @type {string} */ label) => html`${name(label)} `) },
    ],
  });
}

/**
 * Reads the tasks of each state, at most 1000 of one.
 * @param {AbortSignal} signal
 * @returns {Promise<Map<string, Api.TaskLine[]>>}
 */
async function readBoard(signal) {
  const states = COLUMNS.flatMap(([, all]) => all);
  const lists = await Promise.all(states.map((state) => read(at`/tasks`, { state, limit: 1000 }, signal)));
  return new Map(states.map((state, index) => [state, lists[index].items]));
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => (route.parts[1] === 'tasks' && route.parts[2] ? new TaskPage(route.parts[2]) : new FleetPage());
