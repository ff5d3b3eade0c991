/** Tenants: a new one, a disabled one, its weight. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at } from '../core/api.js';
import { name } from '../components/name.js';
import { openDialog, wholeNumber } from '../components/dialog.js';
import { make } from './change.js';

/** @param {string[]} groups */
export function openNewTenant(groups) {
  openDialog({
    title: 'Add a tenant',
    fields: [
      { name: 'name', label: 'Name', isRequired: true },
      { name: 'group', label: 'Group', isRequired: true, type: 'select', choices: groups.map((group) => [group, group]), value: groups[0] ?? '' },
      { name: 'weight', label: 'Weight', type: 'number', min: 1, max: 1_000_000, value: '100' },
    ],
    consequences: () => ['It gets a share as soon as it has a key and sends something. Add a key on its page.', 'This cannot be undone; it can be disabled.'],
    submit: 'Add the tenant',
    run: async (values) => {
      await make('POST', at`/tenants`, { name: values.name.trim(), group: values.group, weight: wholeNumber(values.weight) ?? 100 }, null);
      return null;
    },
  });
}

/**
 * @param {{ name: string, disabled: boolean }} tenant
 */
export function openDisable(tenant) {
  const disabled = !tenant.disabled;
  const path = at`/tenants/${tenant.name}`;
  openDialog({
    title: html`${disabled ? 'Disable' : 'Enable'} ${name(tenant.name)}`,
    consequences: () =>
      disabled
        ? ['All its keys are refused from the next request on. Requests that wait or are in flight go on.']
        : ['Its keys work again.'],
    submit: disabled ? 'Disable it' : 'Enable it',
    isDangerous: disabled,
    run: async () => {
      await make('PATCH', path, { disabled }, {
        label: disabled ? 'Disabled' : 'Enabled', action: 'tenant.patch', object: tenant.name, subject: tenant.name,
      });
      return null;
    },
  });
}
