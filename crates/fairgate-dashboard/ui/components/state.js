/** States in words, with a sign before each: colour is never alone. */
import { html } from '../vendor/lit-html/lit-html.js';

/** @type {Record<string, [sign: string, tone: string, text: string]>} */
const STATES = {
  // Flows.
  idle: ['·', 'quiet', 'idle'],
  waiting: ['◷', 'info', 'waiting'],
  held: ['‖', 'warn', 'held'],
  at_cap: ['▣', 'info', 'at its cap'],
  over_budget: ['▲', 'bad', 'over budget'],
  rate_limited: ['▲', 'warn', 'rate limited'],
  disabled: ['✕', 'warn', 'disabled'],
  never_seen: ['○', 'quiet', 'never came'],
  // Workers.
  up: ['●', 'good', 'up'],
  drained: ['‖', 'warn', 'drained'],
  unhealthy: ['▲', 'bad', 'unhealthy'],
  broken: ['▲', 'bad', 'broken'],
  overloaded: ['▣', 'warn', 'overloaded'],
  paused: ['‖', 'warn', 'paused'],
  out: ['✕', 'bad', 'out'],
  // Requests.
  in_flight: ['▶', 'good', 'in flight'],
  // Tasks and agents.
  DEFINED: ['·', 'quiet', 'defined'],
  READY: ['◷', 'info', 'ready'],
  ASSIGNED: ['▶', 'good', 'assigned'],
  IN_PROGRESS: ['▶', 'good', 'running'],
  WAITING_INPUT: ['●', 'warn', 'needs a person'],
  PAUSED: ['‖', 'warn', 'paused'],
  COMPLETED: ['✓', 'quiet', 'done'],
  FAILED: ['✕', 'bad', 'failed'],
  BLOCKED: ['▣', 'bad', 'blocked'],
  ACTIVE: ['●', 'good', 'active'],
  RETIRED: ['✕', 'quiet', 'retired'],
  ARCHIVED: ['·', 'quiet', 'archived'],
};

/**
 * Draws a state.
 * @param {string} state
 */
export function stateBadge(state) {
  const [sign, tone, text] = STATES[state] ?? ['·', 'quiet', state];
  return html`<span class="state ${tone}"><span aria-hidden="true">${sign}</span> ${text}</span>`;
}

/**
 * Draws the status of an answer with the error code, if there is one.
 * @param {number} status
 * @param {string | null | undefined} code
 */
export function statusBadge(status, code) {
  const tone = status >= 500 ? 'bad' : status >= 400 || status === 0 ? 'warn' : 'good';
  const sign = tone === 'good' ? '✓' : tone === 'warn' ? '▲' : '✕';
  return html`<span class="state ${tone}"><span aria-hidden="true">${sign}</span> ${status || 'left'}${code ? ` ${code}` : ''}</span>`;
}
