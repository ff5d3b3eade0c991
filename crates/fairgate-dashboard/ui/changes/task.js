/** Actions on a task of the fleet. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at } from '../core/api.js';
import { name } from '../components/name.js';
import { openDialog } from '../components/dialog.js';
import { make } from './change.js';

/** @typedef {'cancel' | 'pause' | 'resume' | 'restart' | 'skip' | 'answer'} TaskAction */

/** @type {Record<Exclude<TaskAction, 'answer'>, { text: string, submit: string, follows: string, isDangerous?: boolean, hasReason?: boolean }>} */
const ACTIONS = {
  cancel: { text: 'Cancel', submit: 'Cancel the task', follows: 'It fails at once. An agent that works on it is stopped at its next heartbeat.', isDangerous: true, hasReason: true },
  pause: { text: 'Pause', submit: 'Pause the task', follows: 'Nobody works on it until it is resumed. An agent that does is stopped at its next heartbeat.', hasReason: true },
  resume: { text: 'Resume', submit: 'Resume the task', follows: 'It is ready again, with its place by priority and share.' },
  restart: { text: 'Restart', submit: 'Restart the task', follows: 'It begins again from its prompt; its retries are counted anew. What was used stays counted.' },
  skip: { text: 'Skip', submit: 'Skip the task', follows: 'It counts as done, without a result, and tasks that need it can start.', hasReason: true },
};

/** States in which each action is possible, as docs/fleet.md lists them. @type {Record<TaskAction, string[]>} */
const ALLOWED = {
  answer: ['WAITING_INPUT'],
  pause: ['DEFINED', 'READY', 'ASSIGNED', 'IN_PROGRESS', 'WAITING_INPUT'],
  resume: ['PAUSED'],
  restart: ['BLOCKED', 'FAILED'],
  skip: ['BLOCKED', 'FAILED'],
  cancel: ['DEFINED', 'READY', 'ASSIGNED', 'IN_PROGRESS', 'WAITING_INPUT', 'PAUSED', 'BLOCKED'],
};

/**
 * Returns the actions that a task in this state can take.
 * @param {string} state
 * @returns {TaskAction[]}
 */
export function actionsOf(state) {
  return /** @type {TaskAction[]} */ (Object.keys(ALLOWED)).filter((action) => ALLOWED[action].includes(state));
}

/**
 * Returns the button's text of an action.
 * @param {TaskAction} action
 */
export function actionText(action) {
  return action === 'answer' ? 'Answer…' : `${ACTIONS[action].text}…`;
}

/**
 * @param {string} id
 * @param {TaskAction} action
 * @param {string | null} [question]
 */
export function openAction(id, action, question = null) {
  if (action === 'answer') return openAnswer(id, question);
  const { text, submit, follows, isDangerous, hasReason } = ACTIONS[action];
  openDialog({
    title: html`${text} ${name(id)}`,
    fields: hasReason ? [{ name: 'reason', label: 'Reason', help: 'Stands in the task’s history. It can be left out.' }] : [],
    consequences: () => [follows],
    submit,
    isDangerous,
    run: async (values) => {
      const reason = values.reason?.trim();
      const undoable = action === 'pause' || action === 'resume';
      const audited = { label: action === 'pause' ? 'Paused' : 'Resumed', action: `task.${action}`, object: id, subject: id };
      await make('POST', at`/tasks/${id}/actions`, { action, ...(reason ? { reason } : {}) }, undoable ? audited : null);
      return null;
    },
  });
}

/**
 * @param {string} id
 * @param {string | null} question
 */
function openAnswer(id, question) {
  openDialog({
    title: html`Answer ${name(id)}`,
    fields: [{ name: 'text', label: question || 'Answer', type: 'area', isRequired: true }],
    consequences: () => ['The task is ready again, and whoever takes it gets question and answer.', 'This cannot be undone.'],
    submit: 'Send the answer',
    run: async (values) => {
      await make('POST', at`/tasks/${id}/actions`, { action: 'answer', text: values.text }, null);
      return null;
    },
  });
}
