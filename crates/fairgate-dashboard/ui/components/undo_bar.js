/** The last changes, each with its undo, for ten minutes. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { connection } from '../core/connection.js';
import { shortName } from '../core/format.js';
import { UNDO_MS, forgetUndo, offeredUndos, takeBack, undo } from '../core/undo.js';

/** Draws the bar, if anything can be undone. */
export function undoBar() {
  const entries = offeredUndos();
  const problem = undo.problem ? html`<p class="note bad" role="alert">${undo.problem}</p>` : nothing;
  return html`<aside class="undo-bar" aria-label="Changes of the last ten minutes">
    ${problem}
    <div role="status">${entries.slice(0, 3).map(entryView)}</div>
  </aside>`;
}

/** @param {import('../core/undo.js').UndoEntry} entry */
function entryView(entry) {
  const minutes = Math.max(1, Math.ceil((entry.at + UNDO_MS - Date.now()) / 60_000));
  const subject = `${entry.label} (${shortName(entry.subject)})`;
  return html`<div class="undo" data-subject=${entry.subject}>
    <span>${subject}</span>
    <button ?disabled=${connection.lostAt !== null} @click=${() => takeBack(entry)}>Undo (${minutes} min)</button>
    <button class="plain" aria-label="Hide: ${subject}" @click=${() => forgetUndo(entry)}>✕</button>
  </div>`;
}
