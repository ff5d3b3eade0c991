/** What is around every page: the header, the bars that say when something is old, the undo, the dialog. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { connection } from '../core/connection.js';
import { localTime, shortName, utcTime } from '../core/format.js';
import { keys } from '../core/keys.js';
import { pause, togglePause } from '../core/pause.js';
import { session, signOut } from '../core/session.js';
import { chooseTheme, theme } from '../core/theme.js';
import { dialogView, openNotice } from './dialog.js';
import { choice } from './page.js';
import { undoBar } from './undo_bar.js';

/**
 * Draws the whole page.
 * @param {object} shell
 * @param {unknown} shell.nav links of the header
 * @param {unknown} shell.search
 * @param {unknown} shell.page
 */
export function shell({ nav, search, page }) {
  return html`<div ?inert=${session.state === 'closed'}>
    <a class="skip" href="#main" @click=${skip}>Skip to the page</a>
    <header>
      <span class="brand" translate="no">Fairgate</span>
      ${nav}
      ${search}
      ${status()}
    </header>
    ${bars()}
    <main id="main" tabindex="-1">${page}</main>
    ${undoBar()}
    ${dialogView()}
  </div>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.querySelector('main')?.focus();
}

function status() {
  const info = session.info;
  const who = info?.name ?? info?.tenant ?? info?.kind ?? '';
  const sign = connection.lostAt ? ['bad', '▲', 'not connected'] : pause.since ? ['warn', '‖', 'paused'] : ['good', '●', 'live'];
  return html`<div class="status">
    <span class="state ${sign[0]}" id="connection"><span aria-hidden="true">${sign[1]}</span> ${sign[2]}</span>
    ${info?.gateway ? html`<span class="gateway" id="gateway" title="the gateway that answers">${shortName(info.gateway)}</span>` : nothing}
    <button aria-pressed=${pause.since ? 'true' : 'false'} title="p" @click=${togglePause}>${pause.since ? 'Go on' : 'Pause'}</button>
    <button title="?" @click=${openHelp}>Help</button>
    <details class="menu">
      <summary>${who ? shortName(who) : 'menu'}</summary>
      <div class="menu-body">
        <p class="quiet">Signed in as ${session.info?.actor ?? who}${session.info?.may_write ? '' : ', may look only'}.</p>
        ${choice('Colours', [['system', 'as the system'], ['light', 'light'], ['dark', 'dark']], theme.choice, (value) => chooseTheme(/** @type {any} */ (value)))}
        <button @click=${signOut}>Sign out</button>
      </div>
    </details>
  </div>`;
}

function bars() {
  const { lostAt } = connection;
  return html`<div role="alert">${
    lostAt
      ? html`<p class="bar-note bad" id="lost">Not connected since <time datetime=${lostAt.toISOString()} title=${utcTime(lostAt)}>${localTime(lostAt)}</time>, trying again. Grey numbers are from before.</p>`
      : nothing
  }</div>
  <div role="status">${
    pause.since
      ? html`<p class="bar-note warn" id="paused">Paused at ${localTime(pause.since)}. Press p to go on.</p>`
      : nothing
  }</div>`;
}

/** Opens the list of keys. */
export function openHelp() {
  const all = [...keys.page, ...keys.always];
  openNotice(
    'Keys',
    html`<dl class="keys">${all.map((binding) => html`<div><dt>${binding.keys.split(' ').map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${binding.does}</dd></div>`)}
      <div><dt><kbd>↑</kbd> <kbd>↓</kbd> <kbd>Home</kbd> <kbd>End</kbd></dt><dd>between the rows of a table; Enter opens</dd></div>
      <div><dt><kbd>Esc</kbd></dt><dd>closes a dialog</dd></div></dl>
      <p class="quiet">Times are local, 24 hours; UTC is in the tooltip. “–” is unknown or does not apply; 0 is zero.</p>`,
  );
}
