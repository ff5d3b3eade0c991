/**
 * Undo of the last changes, for ten minutes. An entry names the audit entry of the change, so it outlives a reload of the
 * page. The gateway makes the inverse change, and refuses it where somebody has changed the same since: it compares and
 * changes in one step, so nobody comes between.
 */
import { at, change, read, ApiFailure } from './api.js';
import { requestUpdate } from './update.js';

/** How long an undo is offered, in milliseconds. */
export const UNDO_MS = 10 * 60 * 1000;

const KEY = 'fairgate-undo';

/** Number of audit entries among which that of a change is looked for. */
const LOOKED_AT = 20;

/**
 * A change as the audit trail has it.
 * @typedef {object} AuditedChange
 * @property {string} label what was done, such as `Capped at 8`
 * @property {string} action the audit trail's word, such as `tenant.patch`
 * @property {string} object the audit trail's subject: the tenant, group, key, project, task or pool
 * @property {string} [part] flow or worker of the pool that was changed
 * @property {string} subject what was changed, for people
 *
 * @typedef {object} UndoEntry
 * @property {string} label
 * @property {string} action
 * @property {string} subject
 * @property {number} at when, in milliseconds since 1970
 * @property {number} audit id of the audit entry
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

/** Returns the id of the newest audit entry; 0 if there is none. */
export async function newestAudit() {
  const { items } = await read(at`/audit`, { limit: 1 });
  return items[0]?.id ?? 0;
}

/**
 * Offers to undo a change that was made after this audit entry. A change that changed nothing has none of its own, and
 * some kinds cannot be undone.
 * @param {AuditedChange} made
 * @param {number} after
 */
export async function offerUndo({ label, action, object, part, subject }, after) {
  const { items } = await read(at`/audit`, { action, subject: object, limit: LOOKED_AT });
  const isIt = (/** @type {Api.AuditEntry} */ entry) => entry.id > after && entry.undo && (part === undefined || [entry.after?.flow, entry.after?.worker, entry.after?.name].includes(part));
  const entry = items.find(isIt);
  undo.problem = null;
  if (entry) keep([{ label, action, subject, at: Date.now(), audit: entry.id }, ...undo.entries]);
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
    await change('POST', at`/audit/${entry.audit}/undo`);
    keep(undo.entries.filter((other) => other !== entry));
  } catch (error) {
    const isChanged = error instanceof ApiFailure && error.code === 'changed_since';
    undo.problem = isChanged
      ? `Not undone: somebody changed ${entry.subject} since. Open it to see what it is now.`
      : `Not undone: ${error instanceof Error ? error.message : error}`;
  }
  requestUpdate();
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
