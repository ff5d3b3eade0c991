/** The keyboard: single keys, and `g` followed by a letter for the pages. Keys typed into a field do nothing here. */

/** How long `g` waits for its second letter, in milliseconds. */
const SEQUENCE_MS = 1500;

/**
 * @typedef {object} KeyBinding
 * @property {string} keys `p`, `/`, or two keys such as `g p`
 * @property {string} does what it does, for the help
 * @property {() => void} run
 */

/** @type {{ always: KeyBinding[], page: KeyBinding[] }} */
export const keys = { always: [], page: [] };

let first = '';
let firstAt = 0;

/** Starts to listen. */
export function startKeys() {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector('dialog[open]')) return;
    if (moveInTable(event)) return;
    const now = Date.now();
    const pressed = now - firstAt < SEQUENCE_MS && first ? `${first} ${event.key}` : event.key;
    first = '';
    const binding = [...keys.page, ...keys.always].find((each) => each.keys === pressed);
    if (binding) {
      event.preventDefault();
      binding.run();
    } else if (event.key === 'g') {
      [first, firstAt] = ['g', now];
    }
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName);
}

/**
 * Moves the focus between the rows of a table with the arrow keys, Home and End.
 * @param {KeyboardEvent} event
 */
function moveInTable(event) {
  const row = event.target instanceof Element ? event.target.closest('[data-row]') : null;
  const table = row?.closest('table');
  if (!row || !table) return false;
  const rows = [...table.querySelectorAll('[data-row]')].filter((each) => focusable(each));
  const last = rows.length - 1;
  const index = rows.indexOf(row);
  const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: last }[event.key];
  if (next === undefined) return false;
  event.preventDefault();
  focusable(rows[Math.max(0, Math.min(last, next))])?.focus();
  return true;
}

/**
 * @param {Element} row
 * @returns {HTMLElement | null}
 */
function focusable(row) {
  return row.querySelector('a[href], button:not([disabled])');
}
