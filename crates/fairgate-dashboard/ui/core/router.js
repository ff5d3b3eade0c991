/**
 * Addresses of the pages: everything is after `#`, so that one file serves all of them and a link can be sent.
 * `#/pools/llama?by=tenant` has the parts `pools`, `llama` and the query `by=tenant`. No token is ever in an address.
 */
import { requestUpdate } from './update.js';

/** @typedef {{ parts: string[], query: URLSearchParams, hash: string }} Route */

/** @type {{ now: Route }} */
export const router = { now: parse('') };

/** @type {(route: Route) => void} */
let onRoute = () => {};

/**
 * Reads a hash. Parts that are not escaped well are taken as they are.
 * @param {string} hash
 * @returns {Route}
 */
export function parse(hash) {
  const [path, search = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter(Boolean).map(unescaped);
  return { parts, query: new URLSearchParams(search), hash };
}

/** @param {string} part */
function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Makes an address of parts and a query.
 * @param {string[]} parts
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function href(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

/**
 * Goes to an address, as a new entry of the browser's history.
 * @param {string} address
 */
export function go(address) {
  location.hash = address;
}

/**
 * Changes the query of the page that is open, without a new entry in the history.
 * @param {Record<string, string | number | null | undefined>} changed
 */
export function setQuery(changed) {
  const query = Object.fromEntries(router.now.query);
  const address = href(router.now.parts, { ...query, ...changed });
  history.replaceState(null, '', address);
  follow();
}

/**
 * Starts to follow the address.
 * @param {(route: Route) => void} listener
 */
export function startRouter(listener) {
  onRoute = listener;
  addEventListener('hashchange', follow);
  follow();
}

function follow() {
  router.now = parse(location.hash);
  onRoute(router.now);
  requestUpdate();
}
