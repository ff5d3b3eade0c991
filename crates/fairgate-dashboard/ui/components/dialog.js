/**
 * Dialogs of changes: a few fields, sentences that say what will follow while one types, and the gateway's own words if
 * it refuses. The dialog stays open until the gateway has accepted.
 */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { live } from '../vendor/lit-html/directives/live.js';
import { connection } from '../core/connection.js';
import { session } from '../core/session.js';
import { requestUpdate } from '../core/update.js';

/**
 * @typedef {object} DialogField
 * @property {string} name
 * @property {string} label
 * @property {'text' | 'number' | 'area' | 'select' | 'check'} [type]
 * @property {string} [unit]
 * @property {string} [help]
 * @property {string} [value]
 * @property {boolean} [isRequired]
 * @property {number} [min]
 * @property {number} [max]
 * @property {[value: string, text: string][]} [choices]
 *
 * @typedef {Record<string, string>} DialogValues
 *
 * @typedef {object} DialogSpec
 * @property {unknown} title
 * @property {DialogField[]} [fields]
 * @property {(values: DialogValues) => unknown[]} consequences what will follow, sentence by sentence
 * @property {string} submit text of the button
 * @property {boolean} [isDangerous]
 * @property {boolean} [isUnaudited] nothing is written into the audit trail
 * @property {string} [locked] why nothing can be changed here: the fields are off, and nothing can be sent
 * @property {(values: DialogValues) => Promise<unknown>} run what is returned is shown before the dialog closes
 */

/** @type {{ spec: DialogSpec | null, values: DialogValues, error: Error & { field?: string } | null, busy: boolean, result: unknown, cameFrom: Element | null }} */
const state = { spec: null, values: {}, error: null, busy: false, result: null, cameFrom: null };

/** @param {DialogSpec} spec */
export function openDialog(spec) {
  const values = Object.fromEntries((spec.fields ?? []).map((field) => [field.name, field.value ?? '']));
  Object.assign(state, { spec, values, error: null, busy: false, result: null, cameFrom: document.activeElement });
  requestUpdate();
}

/**
 * Turns the fields of a dialog off, if it is still open, and says why.
 * @param {DialogSpec} spec
 * @param {string} reason
 */
export function lockDialog(spec, reason) {
  if (state.spec !== spec || !reason) return;
  spec.locked = reason;
  requestUpdate();
}

/**
 * Opens a dialog that only says something.
 * @param {unknown} title
 * @param {unknown} content
 */
export function openNotice(title, content) {
  openDialog({ title, consequences: () => [], submit: '', run: async () => null });
  state.result = content;
}

/** Closes the dialog, and gives the focus back to what opened it. */
export function closeDialog() {
  const cameFrom = state.cameFrom;
  Object.assign(state, { spec: null, result: null, cameFrom: null });
  document.querySelector('dialog')?.close();
  if (cameFrom instanceof HTMLElement && cameFrom.isConnected) cameFrom.focus();
  requestUpdate();
}

/** Opens or closes the element after it was drawn. */
export function syncDialog() {
  const element = document.querySelector('dialog');
  if (state.spec && element && !element.open) {
    element.showModal();
    const first = element.querySelector('input, select, textarea, .submit');
    if (first instanceof HTMLElement) first.focus();
  }
}

/** Draws the dialog that is open, if one is. */
export function dialogView() {
  const { spec } = state;
  return html`<dialog aria-labelledby="dialog-title" @cancel=${cancelled}>
    ${spec ? (state.result ? resultView(spec) : formView(spec)) : nothing}
  </dialog>`;
}

/** @param {Event} event */
function cancelled(event) {
  event.preventDefault();
  closeDialog();
}

/** @param {DialogSpec} spec */
function formView(spec) {
  const sentences = spec.locked ? [spec.locked] : spec.consequences(state.values).filter(Boolean);
  const actor = session.info?.actor ?? session.info?.name ?? 'you';
  return html`<form @submit=${submitted} novalidate>
    <h2 id="dialog-title">${spec.title}</h2>
    <fieldset ?disabled=${spec.locked !== undefined}>${(spec.fields ?? []).map(fieldView)}</fieldset>
    <div class="consequences" role="status" aria-label="What will follow">
      ${sentences.map((sentence) => html`<p>${sentence}</p>`)}
      ${spec.isUnaudited || spec.locked ? nothing : html`<p class="quiet">Goes into the audit trail as ${actor}.</p>`}
    </div>
    ${state.error ? html`<p class="note bad" role="alert"><span aria-hidden="true">▲</span> ${state.error.message}</p>` : nothing}
    <div class="buttons">
      <button type="button" @click=${closeDialog}>Cancel</button>
      <button class="submit ${spec.isDangerous ? 'danger' : 'primary'}" ?disabled=${state.busy || spec.locked !== undefined || connection.lostAt !== null}>${spec.submit}</button>
    </div>
  </form>`;
}

/** @param {DialogSpec} spec */
function resultView(spec) {
  return html`<h2 id="dialog-title">${spec.title}</h2>
    ${state.result}
    <div class="buttons"><button class="submit primary" @click=${closeDialog}>Done</button></div>`;
}

/** @param {DialogField} field */
function fieldView(field) {
  const isWrong = state.error?.field?.split('.').pop() === field.name;
  const unit = field.unit ? html`<span class="unit">${field.unit}</span>` : nothing;
  const help = field.help ? html`<small id="help-${field.name}">${field.help}</small>` : nothing;
  return html`<div class="field">
    <label for="field-${field.name}">${field.label}</label>
    <span class="input">${inputView(field, isWrong)}${unit}</span>
    ${help}
  </div>`;
}

/**
 * @param {DialogField} field
 * @param {boolean} isWrong
 */
function inputView(field, isWrong) {
  const id = `field-${field.name}`;
  const value = state.values[field.name];
  const invalid = isWrong ? 'true' : nothing;
  const help = field.help ? `help-${field.name}` : nothing;
  /** @param {Event} event */
  const typed = (event) => {
    const input = /** @type {HTMLInputElement} */ (event.target);
    state.values[field.name] = field.type === 'check' ? (input.checked ? 'true' : '') : input.value;
    requestUpdate();
  };
  switch (field.type) {
    case 'area':
      return html`<textarea id=${id} name=${field.name} rows="6" aria-invalid=${invalid} aria-describedby=${help} .value=${live(value)} @input=${typed}></textarea>`;
    case 'select':
      return html`<select id=${id} name=${field.name} aria-describedby=${help} @change=${typed}>
        ${(field.choices ?? []).map(([each, text]) => html`<option value=${each} ?selected=${each === value}>${text}</option>`)}
      </select>`;
    case 'check':
      return html`<input id=${id} name=${field.name} type="checkbox" ?checked=${value === 'true'} @change=${typed}>`;
    default:
      return html`<input id=${id} name=${field.name} type="text" inputmode=${field.type === 'number' ? 'numeric' : 'text'} autocomplete="off"
        ?required=${field.isRequired} aria-invalid=${invalid} aria-describedby=${help} .value=${live(value)} @input=${typed}>`;
  }
}

/** @param {Event} event */
async function submitted(event) {
  event.preventDefault();
  const { spec } = state;
  if (!spec || spec.locked || state.busy) return;
  state.error = firstMistake(spec);
  if (!state.error) {
    state.busy = true;
    requestUpdate();
    try {
      state.result = (await spec.run(state.values)) ?? null;
      if (state.result === null) closeDialog();
    } catch (error) {
      state.error = /** @type {Error} */ (error);
    }
    state.busy = false;
  }
  requestUpdate();
}

/**
 * Finds the first field that cannot be sent: a missing value, or text where a whole number belongs.
 * @param {DialogSpec} spec
 */
function firstMistake(spec) {
  for (const field of spec.fields ?? []) {
    const value = (state.values[field.name] ?? '').trim();
    if (value === '' && !field.isRequired) continue;
    const message = mistakeIn(field, value);
    if (message) return Object.assign(new Error(`${field.label}: ${message}`), { field: field.name });
  }
  return null;
}

/**
 * @param {DialogField} field
 * @param {string} value
 */
function mistakeIn(field, value) {
  if (value === '') return 'this is needed.';
  if (field.type !== 'number') return null;
  const { min = 0, max = Number.MAX_SAFE_INTEGER } = field;
  if (!/^\d+$/.test(value)) return 'write a whole number.';
  return Number(value) < min || Number(value) > max ? `must be ${min} to ${max}.` : null;
}

/**
 * Reads a whole number of a field; null if it is empty.
 * @param {string | undefined} text
 */
export function wholeNumber(text) {
  const trimmed = (text ?? '').trim();
  return /^\d+$/.test(trimmed) ? Number(trimmed) : null;
}
