/** My page, for a tenant's key: my share and why, my waits, my budgets, what ended. Others are only ever counted. */
import { html, nothing, render } from './vendor/lit-html/lit-html.js';
import { loginView } from './components/login.js';
import { syncDialog } from './components/dialog.js';
import { openHelp, shell } from './components/shell.js';
import { keys, startKeys } from './core/keys.js';
import { togglePause } from './core/pause.js';
import { askSession, session } from './core/session.js';
import { startTheme } from './core/theme.js';
import { onUpdate, requestUpdate } from './core/update.js';
import { MyPage } from './pages/my_page.js';

const root = /** @type {HTMLElement} */ (document.getElementById('app'));

/** @type {MyPage | null} */
let page = null;

/** Draws everything. */
function paint() {
  if (session.state === 'unknown') return;
  document.title = 'My page · Fairgate';
  const isOpen = session.state === 'open' || session.ended;
  const login = session.state === 'closed' ? loginView(signedIn) : nothing;
  render(html`${isOpen && page ? shell({ nav: html`<nav aria-label="Pages"><ul><li><a href="#/" aria-current="page">My page</a></li></ul></nav>`, search: nothing, page: page.view() }) : nothing}${login}`, root);
  syncDialog();
}

function signedIn() {
  page ??= new MyPage();
  keys.page = page.keys;
  requestUpdate();
}

keys.always = [
  { keys: 'p', does: 'pause, or go on', run: togglePause },
  { keys: '?', does: 'this list', run: openHelp },
];

/** Asks who is signed in, again and again while the gateway does not answer. */
async function start() {
  try {
    await askSession();
    root.replaceChildren();
    if (session.state === 'open') signedIn();
    onUpdate(paint);
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
