/** One task: why it is where it is, its history, its log, and what can be done. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { connection } from '../core/connection.js';
import { duration, money } from '../core/format.js';
import { onEvent } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href } from '../core/router.js';
import { mayChange } from '../core/session.js';
import { name } from '../components/name.js';
import { number, when } from '../components/number.js';
import { changeButton, loaded, pageHead, section } from '../components/page.js';
import { stateBadge } from '../components/state.js';
import { dataTable } from '../components/table.js';
import { whenChanged } from '../changes/change.js';
import { actionText, actionsOf, openAction } from '../changes/task.js';

/** How often a task is read, in milliseconds. */
const READ_MS = 5000;

export class TaskPage {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.title = `Task ${id}`;
    /** @type {Resource<Api.TaskView>} */
    this.task = new Resource((signal) => read(at`/tasks/${id}`, {}, signal), READ_MS).start();
    /** @type {Resource<Api.TaskExplanation>} */
    this.why = new Resource((signal) => read(at`/tasks/${id}/why`, {}, signal), READ_MS).start();
    /** @type {Resource<Api.LogPage>} */
    this.log = new Resource((signal) => read(at`/tasks/${id}/log`, {}, signal), READ_MS).start();
    const again = () => [this.task, this.why, this.log].forEach((resource) => void resource.refresh());
    this.stops = [onEvent('fleet', (event) => event.task === id && again()), whenChanged(again)];
  }

  leave() {
    for (const resource of [this.task, this.why, this.log]) resource.stop();
    for (const stop of this.stops) stop();
  }

  view() {
    const task = this.task.value;
    if (!task) return html`${pageHead(html`Task ${name(this.id)}`, this.task.isMissing() ? 'There is no task of this id.' : 'Reading it.')}${loaded(this.task, () => nothing)}`;
    return html`
      ${pageHead(html`Task ${name(this.id)}`, this.why.value?.sentence ?? 'Reading why it is where it is.', taskActions(task, actionsOf(task.state)))}
      ${task.question ? section('Question', html`<p id="question">${name(task.question)}</p>${task.answer ? html`<p>Answer: ${name(task.answer)}</p>` : nothing}`) : nothing}
      ${section('Now', facts(task))}
      ${this.why.value?.facts?.length ? section('Why', html`<dl class="facts">${this.why.value.facts.map((fact) => html`<div><dt>${fact.name}</dt><dd>${name(fact.value)}</dd></div>`)}</dl>`) : nothing}
      ${section('History', history(task))}
      ${section('Log', loaded(this.log, (log) => (log.text ? html`<pre>${log.text.slice(-20_000)}</pre>` : html`<p class="empty">Nothing was logged.</p>`)))}`;
  }
}

/** @typedef {Api.TaskLine & Pick<Partial<Api.TaskView>, 'question'>} ListedTask a task of a list, or a whole one */

/**
 * Draws buttons for the actions of a task.
 * @param {ListedTask} task
 * @param {import('../changes/task.js').TaskAction[]} actions
 */
export function taskActions(task, actions) {
  const may = { mayChange: mayChange(), isOffline: connection.lostAt !== null };
  return html`<span class="row-actions">${actions.map((action) => changeButton(actionText(action), () => void act(task, action), { ...may, label: `${actionText(action)} ${task.id}` }))}</span>`;
}

/**
 * Opens the dialog of an action. A question is in the full task only, so it is read first.
 * @param {ListedTask} task
 * @param {import('../changes/task.js').TaskAction} action
 */
async function act(task, action) {
  const question = action === 'answer' ? (task.question ?? (await read(at`/tasks/${task.id}`)).question) : null;
  openAction(task.id, action, question);
}

/** @param {Api.TaskView} task */
function facts(task) {
  return html`<dl class="facts">
    <div><dt>state</dt><dd>${stateBadge(task.state)}</dd></div>
    <div><dt>title</dt><dd>${name(task.title)}</dd></div>
    <div><dt>project</dt><dd>${name(task.project)}</dd></div>
    <div><dt>agent</dt><dd>${name(task.agent)}</dd></div>
    <div><dt>tokens used / expected</dt><dd>${number(task.used)} / ${number(task.estimate)}</dd></div>
    <div><dt>money</dt><dd>${money(task.money)}</dd></div>
    <div><dt>calls</dt><dd>${number(task.calls)}</dd></div>
    <div><dt>agent’s time</dt><dd>${duration(task.agent_ms * 1000)}</dd></div>
    <div><dt>retries</dt><dd>${number(task.retries)} of ${number(task.retries_max)}</dd></div>
    <div><dt>priority</dt><dd>${number(task.priority)}</dd></div>
    <div><dt>created</dt><dd>${when(task.created_at)}</dd></div>
    <div><dt>lease until</dt><dd>${when(task.lease_until)}</dd></div>
    <div><dt>needs</dt><dd>${Object.entries(task.needs ?? {}).map(([id, state]) => html`<a href=${href(['fleet', 'tasks', id])}>${name(id)}</a> ${stateBadge(/** @type {string} */ (state))} `)}</dd></div>
    <div><dt>needed by</dt><dd>${(task.needed_by ?? []).map((/** @type {string} */ id) => html`<a href=${href(['fleet', 'tasks', id])}>${name(id)}</a> `)}</dd></div>
  </dl>`;
}

/** @param {Api.TaskView} task */
function history(task) {
  return dataTable({
    caption: 'Changes of the task’s state',
    rows: [...task.history].reverse(),
    key: (entry) => `${entry.at} ${entry.to}`,
    columns: [
      { id: 'at', title: 'at', cell: (entry) => when(entry.at) },
      { id: 'from', title: 'from', cell: (entry) => stateBadge(entry.from) },
      { id: 'to', title: 'to', cell: (entry) => stateBadge(entry.to) },
      { id: 'actor', title: 'by', cell: (entry) => name(entry.actor) },
      { id: 'reason', title: 'reason', cell: (entry) => name(entry.reason) },
    ],
  });
}
