/** What every page has: its one sentence, its sections, and what stands there while nothing can be shown. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { ApiFailure } from '../core/api.js';
import { declaredReason } from './declared.js';

/**
 * Draws the first lines of a page: its title and one sentence that says how things are.
 * @param {unknown} title
 * @param {unknown} sentence
 * @param {unknown} [controls]
 */
export function pageHead(title, sentence, controls = nothing) {
  return html`<div class="page-head">
    <h1 tabindex="-1">${title}</h1>
    <div class="controls">${controls}</div>
  </div>
  <p class="lead" id="lead">${sentence}</p>`;
}

/**
 * Draws a section with its heading.
 * @param {unknown} title
 * @param {unknown} content
 * @param {unknown} [controls]
 */
export function section(title, content, controls = nothing) {
  return html`<section class="card">
    <div class="card-head"><h2>${title}</h2><div class="controls">${controls}</div></div>
    ${content}
  </section>`;
}

/**
 * Draws what a resource has, or why there is nothing. Old values stay while a later reading fails.
 * @template T
 * @param {import('../core/resource.js').Resource<T>} resource
 * @param {(value: T) => unknown} view
 */
export function loaded(resource, view) {
  const failure = resource.error ? failureNote(resource.error) : nothing;
  if (resource.value === null) return resource.error ? failure : html`<p class="quiet" role="status">Loading…</p>`;
  return html`${failure}${view(resource.value)}`;
}

/**
 * Draws a failure: the gateway's own sentence.
 * @param {Error} error
 */
export function failureNote(error) {
  const code = error instanceof ApiFailure ? error.code : 'error';
  return html`<p class="note bad" role="alert" data-code=${code}><span aria-hidden="true">▲</span> ${error.message}</p>`;
}

/**
 * Draws a choice of a few words, as buttons of which one is pressed.
 * @param {string} label
 * @param {[value: string, text: string][]} choices
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function choice(label, choices, chosen, choose) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${choices.map(([value, text]) => html`<button aria-pressed=${value === chosen ? 'true' : 'false'} data-value=${value} @click=${() => choose(value)}>${text}</button>`)}
  </div>`;
}

/**
 * Draws a choice of many words, as a list that opens.
 * @param {string} label
 * @param {[value: string, text: string][]} choices
 * @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function select(label, choices, chosen, choose) {
  return html`<label class="field-inline">${label}
    <select @change=${(/** @type {Event} */ event) => choose(/** @type {HTMLSelectElement} */ (event.target).value)}>
      ${choices.map(([value, text]) => html`<option value=${value} ?selected=${value === chosen}>${text}</option>`)}
    </select>
  </label>`;
}

/**
 * Draws a button that changes something: off while the gateway does not answer and where the file declares the object,
 * absent for those who may only look.
 * @param {string} text
 * @param {() => void} run
 * @param {{ mayChange: boolean, isOffline: boolean, label?: string, of?: import('./declared.js').MaybeDeclared | null }} options
 */
export function changeButton(text, run, { mayChange, isOffline, label, of }) {
  if (!mayChange) return nothing;
  const reason = declaredReason(of);
  return html`<button ?disabled=${isOffline || reason !== ''} title=${reason || nothing} aria-label=${label ?? nothing} @click=${run}>${text}</button>`;
}
