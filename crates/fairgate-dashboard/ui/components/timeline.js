/** One request over time: what it waited, when its first token came, how long the answer took. */
import { html, svg, nothing } from '../vendor/lit-html/lit-html.js';
import { duration, moment } from '../core/format.js';
import { when } from './number.js';
import { name } from './name.js';

/**
 * @typedef {object} TimelineStep
 * @property {string} kind class of the style sheet
 * @property {string} label
 * @property {number} us length in microseconds
 */

/**
 * Returns the steps of an attempt. Numbers of the ledger count from the arrival.
 * @param {{ waited_us: number, first_token_us?: number | null, total_us: number }} attempt
 * @returns {TimelineStep[]}
 */
export function stepsOf(attempt) {
  const { waited_us: waited, total_us: total } = attempt;
  const first = attempt.first_token_us ?? null;
  const steps = [{ kind: 'waited', label: 'waited', us: Math.min(waited, total) }];
  if (first !== null && first >= waited) {
    steps.push({ kind: 'first-token', label: 'first token', us: first - waited });
    steps.push({ kind: 'answer', label: 'answer', us: Math.max(0, total - first) });
  } else {
    steps.push({ kind: 'answer', label: 'answer', us: Math.max(0, total - waited) });
  }
  return steps.filter((step) => step.us > 0);
}

/**
 * Draws an attempt as a line of steps, with the same numbers as text below.
 * @param {Api.Attempt} attempt a row of the ledger
 */
export function timeline(attempt) {
  const steps = stepsOf(attempt);
  const total = Math.max(1, steps.reduce((sum, step) => sum + step.us, 0));
  const began = moment(attempt.started_at);
  const ended = began ? new Date(began.getTime() + attempt.total_us / 1000) : null;
  const label = `${steps.map((step) => `${step.label} ${duration(step.us)}`).join(', then ')}`;
  let x = 0;
  return html`<div class="timeline">
    <div class="ends"><span>came ${when(attempt.started_at)}</span><span>settled ${ended ? when(ended.toISOString()) : nothing}</span></div>
    <svg viewBox="0 0 100 12" preserveAspectRatio="none" role="img" aria-label=${label}>
      ${steps.map((step) => {
        const width = (step.us / total) * 100;
        const drawn = svg`<rect class=${step.kind} x=${x.toFixed(3)} width=${Math.max(0.4, width).toFixed(3)} height="12"></rect>`;
        x += width;
        return drawn;
      })}
    </svg>
    <ul class="legend">${steps.map((step) => html`<li><span class="swatch ${step.kind}" aria-hidden="true"></span>${step.label} ${duration(step.us)}</li>`)}
      ${attempt.worker ? html`<li>on ${name(attempt.worker)}</li>` : nothing}</ul>
  </div>`;
}
