/**
 * Undo of the last changes, for ten minutes. An entry is data, so it outlives a reload of the page: what to look at,
 * what must stand there (or somebody changed it since, and the undo is refused), and what to send.
 */
import { at, change, read } from './api.js';
import { requestUpdate } from './update.js';

/** How long an undo is offered, in milliseconds. */
export const UNDO_MS = 10 * 60 * 1000;

const KEY = 'fairgate-undo';

/**
 * A step into an answer: a field, or the first element of a list whose fields are these.
 * @typedef {string | Record<string, unknown>} Step
 */

/**
 * @typedef {object} UndoEntry
 * @property {string} label what was done, such as `Capped at 8`
 * @property {string} action the audit trail's word, such as `tenant.patch`
 * @property {string} subject what was changed
 * @property {number} at when, in milliseconds since 1970
 * @property {{ path: string, steps: Step[], expected: unknown }} check
 * @property {{ method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown }} send
 */

/** @type {{ entries: UndoEntry[], problem: string | null }} */
export const undo = { entries: kept(), problem: null };

/** @returns {UndoEntry[]} */
function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
  } catch {
    return [];
  }
}

/** Returns the entries that are younger than ten minutes, the latest first. */
export function offeredUndos() {
  const oldest = Date.now() - UNDO_MS;
  if (undo.entries.some((entry) => entry.at < oldest)) keep(undo.entries.filter((entry) => entry.at >= oldest));
  return undo.entries;
}

/** @param {Omit<UndoEntry, 'at'>} entry */
export function offerUndo(entry) {
  undo.problem = null;
  keep([{ ...entry, at: Date.now() }, ...undo.entries]);
  requestUpdate();
}

/** @param {UndoEntry} entry */
export function forgetUndo(entry) {
  undo.problem = null;
  keep(undo.entries.filter((other) => other !== entry));
  requestUpdate();
}

/**
 * Takes a change back, unless somebody changed the same thing since.
 * @param {UndoEntry} entry
 */
export async function takeBack(entry) {
  undo.problem = null;
  try {
    const found = pick(await read(entry.check.path), entry.check.steps);
    if (!same(found, entry.check.expected)) {
      undo.problem = `Not undone: somebody changed ${entry.subject} since. Open it to see what it is now.`;
    } else {
      await change(entry.send.method, entry.send.path, entry.send.body);
      keep(undo.entries.filter((other) => other !== entry));
    }
  } catch (error) {
    undo.problem = `Not undone: ${error instanceof Error ? error.message : error}`;
  }
  requestUpdate();
}

/**
 * Follows steps into an answer. What is not there is null.
 * @param {any} value
 * @param {Step[]} steps
 */
export function pick(value, steps) {
  for (const step of steps) {
    if (value === null || value === undefined) return null;
    value = typeof step === 'string' ? value[step] : find(value, step);
  }
  return value ?? null;
}

/**
 * @param {any} list
 * @param {Record<string, unknown>} fields
 */
function find(list, fields) {
  if (!Array.isArray(list)) return null;
  return list.find((item) => Object.entries(fields).every(([name, value]) => item[name] === value)) ?? null;
}

/**
 * Compares two values of JSON. A field that is null equals one that is absent.
 * @param {any} a
 * @param {any} b
 * @returns {boolean}
 */
export function same(a, b) {
  if (a === null || a === undefined || b === null || b === undefined) return (a ?? null) === (b ?? null);
  if (typeof a !== 'object' || typeof b !== 'object') return a === b;
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].every((name) => same(a[name], b[name]));
}

/** @param {UndoEntry[]} entries */
function keep(entries) {
  undo.entries = entries;
  sessionStorage.setItem(KEY, JSON.stringify(entries));
}

/**
 * Returns the path of a pool in the API, for checks.
 * @param {string} pool
 */
export function poolPath(pool) {
  return at`/pools/${pool}`;
}
