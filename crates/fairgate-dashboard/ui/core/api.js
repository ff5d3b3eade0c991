/**
 * The client of the admin API: same origin, JSON, the session's cookie. Every failure is an `ApiFailure` with the
 * gateway's own sentence.
 */
import { audience } from './audience.js';
import { noteAnswer, noteLoss } from './connection.js';

/**
 * Header of every call. It says whose cookie counts, the operators' or a tenant's, and it cannot be sent by pages of
 * other origins: the gateway demands it of each change.
 */
const SESSION_HEADER = 'x-fairgate-session';


/** @typedef {string | number | boolean | null | undefined} QueryValue */

/** Failure of a call: the status and the body of the gateway's error, or status 0 if it did not answer. */
export class ApiFailure extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {{ field?: string, retryAfterS?: number, problems?: { line?: number | null, field: string, message: string }[] }} [more]
   */
  constructor(status, code, message, more = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = more.field;
    this.retryAfterS = more.retryAfterS;
    this.problems = more.problems ?? [];
  }
}

/** @type {() => void} */
let onSignedOut = () => {};

/**
 * Registers what happens when the gateway says 401.
 * @param {() => void} listener
 */
export function whenSignedOut(listener) {
  onSignedOut = listener;
}

/**
 * Makes a path of the API. Values are escaped, so a name cannot leave its place: at`/tenants/${name}/budgets`.
 * @param {TemplateStringsArray} parts
 * @param {...(string | number)} values
 */
export function at(parts, ...values) {
  const rest = values.map((value, index) => encodeURIComponent(String(value)) + parts[index + 1]);
  return '/api/v1' + parts[0] + rest.join('');
}

/**
 * Reads. Empty, null and undefined query values are left out.
 * @param {string} path a path from `at`
 * @param {Record<string, QueryValue>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function read(path, query = {}, signal) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return call('GET', text ? `${path}?${text}` : path, undefined, signal);
}

/**
 * Changes something.
 * @param {'POST' | 'PATCH' | 'PUT' | 'DELETE'} method
 * @param {string} path a path from `at`
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export function change(method, path, body) {
  return call(method, path, body);
}

/**
 * @param {string} method
 * @param {string} url
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 */
async function call(method, url, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { accept: 'application/json', [SESSION_HEADER]: audience };
  if (body !== undefined) headers['content-type'] = 'application/json';
  const init = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal };
  let response;
  try {
    response = await fetch(url, { ...init, credentials: 'same-origin', redirect: 'error', cache: 'no-store' });
  } catch (error) {
    if (signal?.aborted) throw error;
    noteLoss();
    throw new ApiFailure(0, 'not_connected', 'The gateway does not answer.');
  }
  noteAnswer();
  if (response.ok) return response.status === 204 ? null : parsed(response);
  const failure = await failureOf(response);
  if (response.status === 401 && !url.startsWith('/api/v1/session')) onSignedOut();
  throw failure;
}

/** @param {Response} response */
async function parsed(response) {
  const text = await response.text();
  if (!(response.headers.get('content-type') ?? '').includes('json')) return text;
  return JSON.parse(text);
}

/** @param {Response} response */
async function failureOf(response) {
  const retry = Number(response.headers.get('retry-after')) || undefined;
  try {
    const { error } = await response.json();
    return new ApiFailure(response.status, error.code, error.message, {
      field: error.field,
      problems: error.problems,
      retryAfterS: retry,
    });
  } catch {
    return new ApiFailure(response.status, `http_${response.status}`, `The gateway answered ${response.status}.`, {
      retryAfterS: retry,
    });
  }
}
