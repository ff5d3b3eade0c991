/** The operators' pages: which one is open, and what is around it. */
import { html, nothing, render } from './vendor/lit-html/lit-html.js';
import { loginView } from './components/login.js';
import { syncDialog } from './components/dialog.js';
import { failureNote } from './components/page.js';
import { openHelp, shell } from './components/shell.js';
import { keys, startKeys } from './core/keys.js';
import { startLive } from './core/live.js';
import { togglePause } from './core/pause.js';
import { go, href, router, startRouter } from './core/router.js';
import { askSession, session } from './core/session.js';
import { startTheme } from './core/theme.js';
import { onUpdate, requestUpdate } from './core/update.js';

/**
 * @typedef {object} PageEntry
 * @property {string} part first part of the address
 * @property {string} title
 * @property {string} letter second key after `g`
 * @property {() => Promise<{ open: (route: import('./core/router.js').Route) => import('./core/types.js').Page }>} load
 */

/** @type {PageEntry[]} */
const PAGES = [
  { part: '', title: 'Overview', letter: 'o', load: () => import('./pages/overview.js') },
  { part: 'pools', title: 'Pools', letter: 'p', load: () => import('./pages/pool.js') },
  { part: 'requests', title: 'Requests', letter: 'r', load: () => import('./pages/requests.js') },
  { part: 'workers', title: 'Workers', letter: 'w', load: () => import('./pages/workers.js') },
  { part: 'fleet', title: 'Fleet', letter: 'f', load: () => import('./pages/fleet.js') },
  { part: 'tenants', title: 'Tenants', letter: 't', load: () => import('./pages/tenants.js') },
  { part: 'usage', title: 'Usage', letter: 'u', load: () => import('./pages/usage.js') },
  { part: 'what-if', title: 'What if', letter: 'i', load: () => import('./pages/what_if.js') },
  { part: 'audit', title: 'Audit', letter: 'a', load: () => import('./pages/audit.js') },
  { part: 'configuration', title: 'Configuration', letter: 'c', load: () => import('./pages/configuration.js') },
];

/** @type {PageEntry} */
const SEARCH = { part: 'search', title: 'Search', letter: '', load: () => import('./pages/search.js') };

/** @type {{ page: import('./core/types.js').Page | null, path: string, error: Error | null, isLive: boolean }} */
const state = { page: null, path: '\u0000', error: null, isLive: false };

const root = /** @type {HTMLElement} */ (document.getElementById('app'));

/** Draws everything. */
function paint() {
  if (session.state === 'unknown') return;
  document.title = `${state.page?.title ?? 'Fairgate'} · Fairgate`;
  const isOpen = session.state === 'open' || session.ended;
  const login = session.state === 'closed' ? loginView(signedIn) : nothing;
  render(html`${isOpen ? shell({ nav: nav(), search: search(), page: pageView() }) : nothing}${login}`, root);
  syncDialog();
}

function pageView() {
  if (state.error) return failureNote(state.error);
  return state.page ? state.page.view() : html`<p class="quiet">Loading…</p>`;
}

function nav() {
  const part = router.now.parts[0] ?? '';
  return html`<nav aria-label="Pages"><ul>${PAGES.map((page) => html`<li>
    <a href=${href(page.part ? [page.part] : [])} title="g ${page.letter}" aria-current=${page.part === part ? 'page' : nothing}>${page.title}</a>
  </li>`)}</ul></nav>`;
}

function search() {
  return html`<form class="search" role="search" @submit=${searched}>
    <input id="search" name="q" type="search" aria-label="Search: tenant, key, request, task, worker" placeholder="/ search" autocomplete="off">
  </form>`;
}

/** @param {Event} event */
function searched(event) {
  event.preventDefault();
  const input = /** @type {HTMLInputElement} */ (document.getElementById('search'));
  if (input.value.trim()) go(href(['search'], { q: input.value.trim() }));
}

function signedIn() {
  if (!state.isLive) {
    state.isLive = true;
    startLive();
    startRouter(routed);
  }
}

/** @param {import('./core/router.js').Route} route */
async function routed(route) {
  const path = route.parts.join('/');
  if (path === state.path && state.page) {
    state.page.enter?.(route);
    return;
  }
  state.page?.leave?.();
  const isFirst = state.path === '\u0000';
  Object.assign(state, { page: null, path, error: null });
  keys.page = [];
  const entry = [...PAGES, SEARCH].find((page) => page.part === (route.parts[0] ?? '')) ?? PAGES[0];
  try {
    const module = await entry.load();
    if (state.path !== path) return;
    state.page = module.open(route);
    keys.page = state.page.keys ?? [];
  } catch (error) {
    state.error = /** @type {Error} */ (error);
  }
  requestUpdate();
  // The heading gets the focus, so that a screen reader says where one is.
  if (!isFirst) requestAnimationFrame(() => requestAnimationFrame(focusHeading));
}

function focusHeading() {
  if (document.querySelector('dialog[open]')) return;
  document.querySelector('h1')?.focus();
  scrollTo(0, 0);
}

keys.always = [
  { keys: '/', does: 'search', run: () => document.getElementById('search')?.focus() },
  { keys: 'p', does: 'pause, or go on', run: togglePause },
  { keys: '?', does: 'this list', run: openHelp },
  ...PAGES.map((page) => ({
    keys: `g ${page.letter}`,
    does: page.title,
    run: () => go(href(page.part ? [page.part] : [])),
  })),
];

/** Asks who is signed in, again and again while the gateway does not answer. */
async function start() {
  try {
    await askSession();
    root.replaceChildren();
    onUpdate(paint);
    if (session.state === 'open') signedIn();
  } catch {
    const note = root.querySelector('.starting');
    if (note) note.textContent = 'Fairgate: the gateway does not answer, trying again…';
    setTimeout(start, 2000);
  }
}

startTheme();
startKeys();
// Ages tick without a fetch.
setInterval(requestUpdate, 1000);
void start();
