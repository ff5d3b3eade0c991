/** What all changes have in common: send, remember how to take it back, draw again. */
import { change } from '../core/api.js';
import { offerUndo } from '../core/undo.js';
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
 * @param {Omit<import('../core/undo.js').UndoEntry, 'at'> | null} undo
 */
export async function make(method, path, body, undo) {
  const answer = await change(method, path, body);
  if (undo) offerUndo(undo);
  for (const listener of listeners) listener();
  requestUpdate();
  return answer;
}
