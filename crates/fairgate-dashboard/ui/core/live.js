/**
 * The live view of all pools. The gateway streams what changed; this file keeps the whole. Where there is no stream
 * (too many watchers, a proxy that buffers), the view is read every two seconds instead.
 */
import { at, read } from './api.js';
import { audience } from './audience.js';
import { noteAnswer, noteLoss } from './connection.js';
import { pause, whenPaused } from './pause.js';
import { askSession, session } from './session.js';
import { requestUpdate } from './update.js';

/** How often the view is read while there is no stream, and after how long a stream is tried again, in milliseconds. */
const POLL_MS = 2000;
const RETRY_MS = 15_000;

/** Rows of a pool, and the field that identifies each. */
const ROWS = /** @type {const} */ ({
  tenants: 'tenant',
  groups: 'name',
  classes: 'name',
  projects: 'name',
  workers: 'name',
});

/**
 * The live view as pages read it. `version` rises with each change.
 */
export const live = {
  /** @type {Map<string, import('./types.js').LivePool>} */
  pools: new Map(),
  /** @type {Date | null} */
  at: null,
  version: 0,
  /** How far this browser's clock is ahead of the gateway's, in milliseconds; below 0 if it is behind. */
  clockAheadMs: 0,
  /** @type {Error | null} */
  error: null,
};

/** @type {Map<string, Set<(event: any) => void>>} */
const listeners = new Map();
/** @type {EventSource | null} */
let stream = null;
let pollTimer = 0;
let retryTimer = 0;

/**
 * Listens to one kind of event of the gateway: `fleet`, `audit`, `gap`. Returns what ends it.
 * @param {string} kind
 * @param {(event: any) => void} listener
 */
export function onEvent(kind, listener) {
  const all = listeners.get(kind) ?? new Set();
  listeners.set(kind, all);
  all.add(listener);
  return () => void all.delete(listener);
}

/** Begins to follow the gateway. Called once after each login. */
export function startLive() {
  whenPaused((isPaused) => (isPaused ? close() : openStream()));
  openStream();
}

/** Returns the pools in the order of their names. */
export function livePools() {
  return [...live.pools.values()].sort((a, b) => (a.pool < b.pool ? -1 : 1));
}

function close() {
  stream?.close();
  stream = null;
  clearTimeout(pollTimer);
  clearTimeout(retryTimer);
}

function openStream() {
  close();
  const source = new EventSource(`/api/v1/events?kinds=live,fleet,audit&session=${audience}`);
  stream = source;
  source.addEventListener('open', () => {
    clearTimeout(pollTimer);
    noteAnswer();
  });
  source.addEventListener('live', (event) => applyLive(JSON.parse(event.data)));
  for (const kind of ['fleet', 'audit', 'gap']) {
    source.addEventListener(kind, (event) => {
      for (const listener of listeners.get(kind) ?? []) listener(JSON.parse(event.data));
    });
  }
  source.addEventListener('error', () => {
    // A stream that is refused is closed for good; one that broke off is tried again by the browser.
    if (source.readyState !== EventSource.CLOSED) return noteLoss();
    stream = null;
    void streamWasRefused();
  });
}

/** Finds out whether the session is over; if not, reads instead of listening until a stream can be had again. */
async function streamWasRefused() {
  try {
    await askSession();
  } catch {
    // The gateway does not answer at all: `noteLoss` has been called.
  }
  if (session.state === 'closed' || pause.since) return;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(openStream, RETRY_MS);
  await poll();
}

async function poll() {
  try {
    const view = await read(at`/fairshare/live`);
    applyLive({ at: view.at, full: true, pools: view.pools });
    live.error = null;
  } catch (error) {
    live.error = /** @type {Error} */ (error);
    requestUpdate();
  }
  clearTimeout(pollTimer);
  if (!stream && !pause.since && session.state === 'open') pollTimer = setTimeout(poll, POLL_MS);
}

/**
 * Applies one event: the whole view, or what changed in it.
 * @param {{ at: string, full: boolean, pools: any[] }} event a row is whole; fields of a pool may be left out
 */
export function applyLive(event) {
  if (event.full) live.pools.clear();
  for (const changed of event.pools) {
    const known = live.pools.get(changed.pool);
    live.pools.set(changed.pool, known ? merged(known, changed) : complete(changed));
  }
  live.at = new Date(event.at);
  live.clockAheadMs = Date.now() - live.at.getTime();
  live.version += 1;
  requestUpdate();
}

/**
 * @param {any} pool
 * @returns {import('./types.js').LivePool}
 */
function complete(pool) {
  const lists = Object.fromEntries(Object.keys(ROWS).map((name) => [name, pool[name] ?? []]));
  return { ...pool, ...lists };
}

/**
 * Merges what changed into a pool: fields are replaced, rows are replaced one by one, `gone` rows are removed.
 * @param {any} known
 * @param {any} changed
 */
function merged(known, changed) {
  const { gone = {}, ...fields } = changed;
  const pool = { ...known, ...fields };
  for (const [list, id] of Object.entries(ROWS)) {
    const removed = new Set(gone[list] ?? []);
    /** @type {Map<string, any>} */
    const rows = new Map(known[list].map((/** @type {any} */ row) => [row[id], row]));
    for (const row of changed[list] ?? []) rows.set(row[id], row);
    pool[list] = [...rows.values()].filter((row) => !removed.has(row[id]));
  }
  return pool;
}
