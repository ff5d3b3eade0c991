/** Pause of everything live. Rows stand still until `p` is pressed again. */
import { requestUpdate } from './update.js';

/** @type {{ since: Date | null }} */
export const pause = { since: null };

/** @type {Set<(isPaused: boolean) => void>} */
const listeners = new Set();

/** @param {(isPaused: boolean) => void} listener */
export function whenPaused(listener) {
  listeners.add(listener);
}

/** Pauses, or goes on. */
export function togglePause() {
  pause.since = pause.since ? null : new Date();
  for (const listener of listeners) listener(pause.since !== null);
  requestUpdate();
}
