/**
 * Whether the gateway answers. Every fetch and the stream of events report here; the bar below the header, the greyed
 * numbers and the disabled buttons read it.
 */
import { requestUpdate } from './update.js';

/** State of the connection. `lostAt` is null while the gateway answers. */
export const connection = {
  /** @type {Date | null} */
  lostAt: null,
};

/** Notes that the gateway did not answer. Only the first loss sets the time. */
export function noteLoss() {
  if (connection.lostAt) return;
  connection.lostAt = new Date();
  document.documentElement.classList.add('offline');
  requestUpdate();
}

/** Notes that the gateway answered. */
export function noteAnswer() {
  if (!connection.lostAt) return;
  connection.lostAt = null;
  document.documentElement.classList.remove('offline');
  requestUpdate();
}
