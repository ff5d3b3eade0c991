/** Reload of the configuration file. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at } from '../core/api.js';
import { openDialog } from '../components/dialog.js';
import { make } from './change.js';

/** Opens the dialog of a reload; what has changed is told afterwards. */
export function openReload() {
  openDialog({
    title: 'Reload the configuration',
    consequences: () => [
      'The file is read again. What differs is applied at once; if anything in it is wrong, nothing is.',
      'Weights and caps that were set on a pool’s classes are dropped where the file changes that pool’s policy. Nothing in flight is cut off.',
    ],
    submit: 'Reload',
    run: async () => {
      const { changes } = await make('POST', at`/config/reload`, undefined, null);
      return changes.length === 0
        ? html`<p>Read. Nothing differs from what runs.</p>`
        : html`<ul>${changes.map((/** @type {string} */ line) => html`<li>${line}</li>`)}</ul>`;
    },
  });
}
