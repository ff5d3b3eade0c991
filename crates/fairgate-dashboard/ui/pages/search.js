/** Search: tenants, keys, requests, tasks, workers and pools of a name. The server looks, not the loaded page. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { several } from '../core/format.js';
import { livePools } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href } from '../core/router.js';
import { name } from '../components/name.js';
import { loaded, pageHead } from '../components/page.js';

/** Tenants and keys that are looked through for a part of a name, and how many of each are listed. */
const LISTED = 1000;
const SHOWN = 100;

/** @typedef {{ kind: string, name: string, address: string }} Hit */

class SearchPage {
  title = 'Search';

  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    this.text = route.query.get('q') ?? '';
    this.hits = new Resource(() => find(this.text)).start();
  }

  /** @param {import('../core/router.js').Route} route */
  enter(route) {
    this.text = route.query.get('q') ?? '';
    void this.hits.refresh();
  }

  leave() {
    this.hits.stop();
  }

  view() {
    const found = this.hits.value;
    const sentence = found ? (found.length ? html`${several(found.length, 'thing')} of the name ${name(this.text)}.` : html`Nothing is called ${name(this.text)}. Requests and tasks are found by their whole id.`) : 'Looking.';
    return html`${pageHead('Search', sentence)}
      ${loaded(this.hits, (hits) => (hits.length ? html`<ul class="needs" id="hits">${hits.map((hit) => html`<li><span><span class="quiet">${hit.kind}</span> <a href=${hit.address}>${name(hit.name)}</a></span></li>`)}</ul>` : nothing))}`;
  }
}

/**
 * @param {string} text
 * @returns {Promise<Hit[]>}
 */
async function find(text) {
  if (!text) return [];
  const contains = (/** @type {string} */ each) => each.toLowerCase().includes(text.toLowerCase());
  const [tenants, attempts, keys] = await Promise.all([
    read(at`/tenants`, { limit: LISTED }),
    read(at`/attempts`, { request: text, limit: 1 }),
    read(at`/keys`, { limit: LISTED }),
  ]);
  const names = tenants.items.map((/** @type {Api.Tenant} */ each) => each.name).filter(contains);
  /** @type {Hit[]} */
  const hits = names.slice(0, SHOWN).map((/** @type {string} */ each) => ({ kind: 'tenant', name: each, address: href(['tenants', each]) }));
  const ofText = keys.items.filter((/** @type {Api.Key} */ key) => key.id === text || contains(key.name ?? ''));
  for (const key of ofText.slice(0, SHOWN)) hits.push({ kind: `key of ${key.tenant}`, name: key.name || key.hint, address: href(['tenants', key.tenant]) });
  if (attempts.items.length) hits.push({ kind: 'request', name: text, address: href(['requests', text]) });
  for (const pool of livePools()) {
    if (contains(pool.pool)) hits.push({ kind: 'pool', name: pool.pool, address: href(['pools', pool.pool]) });
    for (const worker of pool.workers.filter((each) => contains(each.name))) {
      hits.push({ kind: `worker of ${pool.pool}`, name: worker.name, address: href(['workers'], { pool: pool.pool }) });
    }
  }
  return hits.length ? hits : findById(text);
}

/**
 * Looks for what is known by its whole id alone.
 * @param {string} text
 * @returns {Promise<Hit[]>}
 */
async function findById(text) {
  const there = (/** @type {string} */ path) => read(path).catch(() => null);
  const [tenant, request, task] = await Promise.all([there(at`/tenants/${text}`), there(at`/requests/${text}`), there(at`/tasks/${text}`)]);
  /** @type {Hit[]} */
  const hits = [];
  if (tenant) hits.push({ kind: 'tenant', name: tenant.name, address: href(['tenants', tenant.name]) });
  if (request) hits.push({ kind: 'request', name: request.id, address: href(['requests', request.id]) });
  if (task) hits.push({ kind: 'task', name: task.id, address: href(['fleet', 'tasks', task.id]) });
  return hits;
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => new SearchPage(route);
