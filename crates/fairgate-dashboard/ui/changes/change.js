/** What all changes have in common: send, remember how to take it back, draw again. */
import { change } from '../core/api.js';
import { newestAudit, offerUndo } from '../core/undo.js';
import { requestUpdate } from '../core/update.js';

/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * Registers what reads again after a change. Returns what ends it.
 * @param {() => void} listener
 */
export function whenChanged(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/**
 * Sends a change, and offers to take it back.
 * @param {'POST' | 'PATCH' | 'DELETE'} method
 * @param {string} path
 * @param {unknown} body
 * @param {import('../core/undo.js').AuditedChange | null} audited null if the change cannot be undone
 */
export async function make(method, path, body, audited) {
  const before = audited ? await newestAudit() : 0;
  const answer = await change(method, path, body);
  // Whether it can be undone is found out by the way: the change itself is made.
  if (audited) void offerUndo(audited, before).catch(() => {});
  for (const listener of listeners) listener();
  requestUpdate();
  return answer;
}
