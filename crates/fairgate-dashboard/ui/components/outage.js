/** Since when a worker takes no requests, and when it is tried again. */
import { html } from '../vendor/lit-html/lit-html.js';
import { moment } from '../core/format.js';
import { live } from '../core/live.js';
import { timeOfMs, when } from './number.js';

/** @typedef {Pick<import('../core/types.js').WorkerRow, 'state' | 'down_since' | 'retry_at'>} Outage */

/**
 * Returns the time until the worker is tried again, in milliseconds by the clock of the gateway. Null if nothing is
 * planned: the next request, or a check that is under way, tries it.
 * @param {Outage} worker
 * @param {number} [now] time of the gateway, in milliseconds since 1970
 */
export function retryInMs(worker, now = Date.now() - live.clockAheadMs) {
  const at = moment(worker.retry_at);
  const left = at ? at.getTime() - now : 0;
  return left > 0 ? Math.ceil(left / 1000) * 1000 : null;
}

/**
 * Says when the worker is tried again.
 * @param {Outage} worker
 */
function nextTry(worker) {
  const left = retryInMs(worker);
  if (left !== null) return html`tried again in <span data-field="retry">${timeOfMs(left)}</span>`;
  return worker.state === 'unhealthy' ? 'being checked now' : 'the next request tries it';
}

/**
 * Draws the times of an outage: `since 12:03:41, tried again in 12 s`. Draws nothing for a worker without one.
 * @param {Outage} worker
 */
export function outageTimes(worker) {
  if (!worker.down_since) return null;
  return html`since <span data-field="down-since">${when(worker.down_since)}</span>, ${nextTry(worker)}`;
}
