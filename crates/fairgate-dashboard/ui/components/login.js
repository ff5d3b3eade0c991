/** The login. Over a page whose session ended it is a layer, so that typed text stays. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { ApiFailure } from '../core/api.js';
import { audience } from '../core/audience.js';
import { duration } from '../core/format.js';
import { session, signIn } from '../core/session.js';
import { requestUpdate } from '../core/update.js';

/** @type {{ error: Error | null, busy: boolean }} */
const state = { error: null, busy: false };

/**
 * Draws the login.
 * @param {() => void} signedIn called after a successful login
 */
export function loginView(signedIn) {
  const isTenant = audience === 'me';
  const lead = session.ended
    ? 'Your session is over. Sign in again, and go on where you were.'
    : isTenant
      ? 'Sign in with your key to see your share, your waits and your budgets.'
      : 'Sign in with the admin token, which `fairgate serve` wrote into its data folder.';
  const form = html`<form class="card" @submit=${(/** @type {Event} */ event) => submit(event, signedIn)} novalidate>
      <h1 tabindex="-1">Fairgate</h1>
      <p class="lead" id="lead">${lead}</p>
      <div class="field">
        <label for="token">${isTenant ? 'Key' : 'Token'}</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
      </div>
      ${isTenant ? nothing : html`<div class="field">
        <label for="name">Your name, for the audit trail</label>
        <input id="name" name="name" autocomplete="username" maxlength="64" placeholder="on-call">
        <small>1 to 64 letters, digits or signs, without spaces. It can be left out.</small>
      </div>`}
      ${state.error ? html`<p class="note bad" role="alert"><span aria-hidden="true">▲</span> ${sentenceOf(state.error)}</p>` : nothing}
      <div class="buttons"><button class="primary" ?disabled=${state.busy}>Sign in</button></div>
    </form>`;
  return session.ended
    ? html`<div class="login over" role="dialog" aria-modal="true" aria-labelledby="lead">${form}</div>`
    : html`<main class="login">${form}</main>`;
}

/** @param {Error} error */
function sentenceOf(error) {
  if (error instanceof ApiFailure && error.retryAfterS) {
    return `${error.message} Try again in ${duration(error.retryAfterS * 1e6)}.`;
  }
  return error.message;
}

/**
 * @param {Event} event
 * @param {() => void} signedIn
 */
async function submit(event, signedIn) {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const token = /** @type {HTMLInputElement} */ (form.elements.namedItem('token'));
  const name = /** @type {HTMLInputElement | null} */ (form.elements.namedItem('name'));
  state.busy = true;
  state.error = null;
  requestUpdate();
  try {
    await signIn(token.value.trim(), name?.value.trim() ?? '');
    token.value = '';
    signedIn();
  } catch (error) {
    state.error = /** @type {Error} */ (error);
  }
  state.busy = false;
  requestUpdate();
}
