/** Keys: a new one, a rotated one, a revoked one. A secret is shown once, and never kept by the page. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at } from '../core/api.js';
import { name } from '../components/name.js';
import { openDialog } from '../components/dialog.js';
import { make } from './change.js';

/** @param {string} tenant */
export function openNewKey(tenant) {
  openDialog({
    title: html`Add a key of ${name(tenant)}`,
    fields: [{ name: 'name', label: 'Name', help: 'What it is for, such as nightly-eval. Shown beside its usage.' }],
    consequences: () => ['Its secret is shown once, here.'],
    submit: 'Add the key',
    run: async (values) => secretOnce(await make('POST', at`/keys`, { tenant, name: values.name.trim() }, null)),
  });
}

/** @param {{ id: string, name: string, hint: string }} key */
export function openRotate(key) {
  openDialog({
    title: html`Rotate key ${name(key.name || key.hint)}`,
    consequences: () => ['The old secret stops at once: programs that use it are refused until they have the new one.', 'This cannot be undone.'],
    submit: 'Rotate it',
    isDangerous: true,
    run: async () => secretOnce(await make('POST', at`/keys/${key.id}/rotate`, undefined, null)),
  });
}

/** @param {{ id: string, name: string, hint: string }} key */
export function openRevoke(key) {
  openDialog({
    title: html`Revoke key ${name(key.name || key.hint)}`,
    consequences: () => ['It is refused from the next request on, for good. Requests in flight go on.', 'This cannot be undone.'],
    submit: 'Revoke it',
    isDangerous: true,
    run: async () => {
      await make('POST', at`/keys/${key.id}/revoke`, undefined, null);
      return null;
    },
  });
}

/** @param {{ secret: string }} answer */
function secretOnce(answer) {
  return html`<p>The secret, shown this once. Copy it now:</p><pre class="secret">${answer.secret}</pre>`;
}
