/** Limits and budgets of a tenant, a key or a group. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { same } from '../core/undo.js';
import { name } from '../components/name.js';
import { declaredReason } from '../components/declared.js';
import { openDialog } from '../components/dialog.js';
import { make } from './change.js';

/** @typedef {import('../components/dialog.js').DialogField} DialogField */

/** @type {DialogField[]} */
const RATES = [
  { name: 'in_flight', label: 'In flight at most', type: 'number', unit: 'requests in each pool', min: 1 },
  { name: 'queued_requests', label: 'Waiting at most', type: 'number', unit: 'requests', min: 1 },
  { name: 'queued_bytes', label: 'Size of what waits at most', type: 'number', unit: 'bytes', min: 1 },
  { name: 'requests_per_minute', label: 'Requests', type: 'number', unit: 'a minute', min: 1 },
  { name: 'tokens_per_minute', label: 'Tokens', type: 'number', unit: 'a minute', min: 1 },
];

/** @type {DialogField[]} */
const BUDGETS = [
  { name: 'tokens_per_day', label: 'Tokens a day', type: 'number', unit: 'tokens' },
  { name: 'tokens_per_month', label: 'Tokens a month', type: 'number', unit: 'tokens' },
  { name: 'money_per_day', label: 'Money a day' },
  { name: 'money_per_month', label: 'Money a month' },
  { name: 'hosted_tokens_per_day', label: 'Hosted tokens a day', type: 'number', unit: 'tokens' },
  { name: 'hosted_tokens_per_month', label: 'Hosted tokens a month', type: 'number', unit: 'tokens' },
  { name: 'hosted_money_per_day', label: 'Hosted money a day' },
  { name: 'hosted_money_per_month', label: 'Hosted money a month' },
];

/** @type {DialogField} */
const HOSTED = { name: 'hosted', label: 'Hosted workers', type: 'select', choices: [['', 'allowed'], ['never', 'never']] };

/**
 * @param {'tenants' | 'groups' | 'keys'} kind
 * @param {string} id
 * @param {string} shown name for people
 */
export async function openLimits(kind, id, shown) {
  const path = kind === 'tenants' ? at`/tenants/${id}` : kind === 'groups' ? at`/groups/${id}` : at`/keys/${id}`;
  /** @type {(Api.Tenant | Api.Key) & { limits: Record<string, any> }} */
  const object = await read(path);
  const { limits } = object;
  const fields = [...(kind === 'groups' ? [] : RATES), ...BUDGETS, ...(kind === 'groups' ? [] : [HOSTED])];
  openDialog({
    title: html`Limits and budgets of ${name(shown)}`,
    locked: declaredReason(object) || undefined,
    fields: fields.map((field) => ({ ...field, value: limits[field.name] === null || limits[field.name] === undefined ? '' : String(limits[field.name]) })),
    consequences: (values) => {
      const after = limitsOf(fields, values);
      const changed = fields.filter((field) => !same(after[field.name], limits[field.name]));
      if (changed.length === 0) return ['Nothing is changed yet. Empty means no limit.'];
      return [
        `${changed.map((field) => `${field.label}: ${limits[field.name] ?? 'no limit'} → ${after[field.name] ?? 'no limit'}`).join('; ')}.`,
        'Counts from the next request on; nothing in flight is cut off. What was used today and this month still counts.',
      ];
    },
    submit: 'Set the limits',
    run: async (values) => {
      const after = limitsOf(fields, values);
      await make('PATCH', path, { limits: after }, {
        label: 'Limits set', action: `${kind.slice(0, -1)}.patch`, object: id, subject: shown,
      });
      return null;
    },
  });
}

/**
 * @param {DialogField[]} fields
 * @param {Record<string, string>} values
 * @returns {Record<string, string | number | null>}
 */
function limitsOf(fields, values) {
  return Object.fromEntries(
    fields.map((field) => {
      const text = (values[field.name] ?? '').trim();
      if (text === '') return [field.name, null];
      return [field.name, field.type === 'number' ? Number(text) : text];
    }),
  );
}
