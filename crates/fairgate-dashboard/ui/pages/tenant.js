/** One tenant: its shares, budgets, failures of the last day, limits and keys. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { connection } from '../core/connection.js';
import { count, percent, several } from '../core/format.js';
import { livePools } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href } from '../core/router.js';
import { mayChange } from '../core/session.js';
import { budgetList } from '../components/budgets.js';
import { declaredBadge, declaredReason } from '../components/declared.js';
import { name } from '../components/name.js';
import { age, number, share } from '../components/number.js';
import { changeButton, loaded, pageHead, section } from '../components/page.js';
import { stateBadge } from '../components/state.js';
import { dataTable } from '../components/table.js';
import { openCap, openWeight } from '../changes/flow.js';
import { openNewKey, openRevoke, openRotate } from '../changes/key.js';
import { openLimits } from '../changes/limits.js';
import { openDisable } from '../changes/tenant.js';
import { whenChanged } from '../changes/change.js';

/** How often the directory is read, in milliseconds. */
const READ_MS = 15_000;

/** Labels of the limits. */
const LIMITS = /** @type {[string, string][]} */ ([
  ['in_flight', 'in flight in each pool'],
  ['queued_requests', 'waiting requests'],
  ['queued_bytes', 'bytes of waiting requests'],
  ['requests_per_minute', 'requests a minute'],
  ['tokens_per_minute', 'tokens a minute'],
  ['tokens_per_day', 'tokens a day'],
  ['tokens_per_month', 'tokens a month'],
  ['money_per_day', 'money a day'],
  ['money_per_month', 'money a month'],
  ['hosted_tokens_per_day', 'hosted tokens a day'],
  ['hosted_tokens_per_month', 'hosted tokens a month'],
  ['hosted_money_per_day', 'hosted money a day'],
  ['hosted_money_per_month', 'hosted money a month'],
  ['hosted', 'hosted workers'],
]);

export class TenantPage {
  /** @param {string} tenant */
  constructor(tenant) {
    this.tenant = tenant;
    this.title = `Tenant ${tenant}`;
    /** @type {Resource<Api.Tenant>} */
    this.body = new Resource(() => read(at`/tenants/${tenant}`), READ_MS).start();
    /** @type {Resource<Api.BudgetList>} */
    this.budgets = new Resource(() => read(at`/tenants/${tenant}/budgets`), READ_MS).start();
    /** @type {Resource<Api.BudgetList>} */
    this.groupBudgets = new Resource(() => this.readGroupBudgets(), READ_MS).start();
    /** @type {Resource<Api.KeyPage>} */
    this.keyList = new Resource(() => read(at`/keys`, { tenant, limit: 1000 }), READ_MS).start();
    /** @type {Resource<Api.Usage>} */
    this.outcomes = new Resource(() => read(at`/usage`, { by: 'outcome', tenant, since: '24h' }), READ_MS).start();
    /** @type {Resource<Api.Usage>} */
    this.byKey = new Resource(() => read(at`/usage`, { by: 'key', tenant, since: '24h' }), READ_MS).start();
    this.stop = whenChanged(() => this.all().forEach((resource) => void resource.refresh()));
  }

  all() {
    return [this.body, this.budgets, this.groupBudgets, this.keyList, this.outcomes, this.byKey];
  }

  async readGroupBudgets() {
    const { group } = await read(at`/tenants/${this.tenant}`);
    return read(at`/groups/${group}/budgets`);
  }

  leave() {
    this.all().forEach((resource) => resource.stop());
    this.stop();
  }

  view() {
    const tenant = this.body.value;
    const title = html`Tenant ${name(this.tenant)}`;
    if (!tenant) return html`${pageHead(title, this.body.isMissing() ? 'There is no tenant of this name.' : 'Reading it.')}${loaded(this.body, () => nothing)}`;
    const may = { mayChange: mayChange(), isOffline: connection.lostAt !== null };
    return html`
      ${pageHead(html`${title}${declaredBadge(tenant)}`, this.sentence(tenant), html`
        ${changeButton(tenant.disabled ? 'Enable…' : 'Disable…', () => openDisable(tenant), { ...may, of: tenant })}
        ${changeButton('Limits…', () => void openLimits('tenants', this.tenant, this.tenant), { ...may, of: tenant })}
        <a class="button" href=${href(['requests'], { list: 'ended', tenant: this.tenant })}>Its requests</a>
        <a class="button" href=${href(['usage'], { by: 'day', tenant: this.tenant })}>Its usage</a>`)}
      ${tenant.declared ? html`<p class="note" id="declared">${declaredReason(tenant)}</p>` : nothing}
      ${section('In the pools', this.pools({ ...may, of: tenant }))}
      ${section('Keys', loaded(this.keyList, (keys) => this.keyTable(keys.items)), changeButton('Add a key…', () => openNewKey(this.tenant), may))}
      <div class="columns">
        ${section('Budgets', html`${loaded(this.budgets, (budgets) => budgetList(budgets.items))}${this.groupBudgets.value?.items.length ? html`<h3>Of its group</h3>${budgetList(this.groupBudgets.value.items)}` : nothing}`)}
        ${section('Limits', limitsView(tenant.limits))}
        ${section('Ends in the last 24 h', loaded(this.outcomes, outcomesView))}
      </div>`;
  }

  /** @param {Api.Tenant} tenant */
  sentence(tenant) {
    const rows = this.rows();
    const waiting = rows.reduce((sum, { row }) => sum + row.waiting, 0);
    const flight = rows.reduce((sum, { row }) => sum + row.in_flight, 0);
    return html`In group ${name(tenant.group)} with weight ${number(tenant.weight)}${tenant.disabled ? html`, <strong>disabled</strong>` : nothing}: ${several(waiting, 'request waits', 'requests wait')}, ${count(flight)} in flight.${rows.length ? html` It is due ${percent(rows[0].row.due_share)} of ${name(rows[0].pool.pool)} and got ${percent(rows[0].row.got_share)}.` : nothing}`;
  }

  rows() {
    return livePools().flatMap((pool) => pool.tenants.filter((row) => row.tenant === this.tenant).map((row) => ({ pool, row })));
  }

  /** @param {{ mayChange: boolean, isOffline: boolean, of: Api.Tenant }} may */
  pools(may) {
    return dataTable({
      caption: 'The tenant in each pool',
      rows: this.rows(),
      key: ({ pool }) => pool.pool,
      empty: 'It has no request in any pool now.',
      columns: [
        { id: 'pool', title: 'pool', cell: ({ pool }) => html`<a href=${href(['pools', pool.pool], { by: 'tenant', flow: this.tenant })}>${name(pool.pool)}</a>` },
        { id: 'state', title: 'state', cell: ({ row }) => stateBadge(row.state) },
        { id: 'due', title: 'due', isNumber: true, cell: ({ row }) => share(row.due_share) },
        { id: 'got', title: 'got', isNumber: true, cell: ({ row }) => share(row.got_share) },
        { id: 'asked', title: 'asked', isNumber: true, cell: ({ row }) => share(row.asked_share) },
        { id: 'in_flight', title: 'in flight', isNumber: true, cell: ({ row }) => number(row.in_flight) },
        { id: 'cap', title: 'cap', isNumber: true, cell: ({ row }) => number(row.cap) },
        { id: 'waiting', title: 'waiting', isNumber: true, cell: ({ row }) => number(row.waiting) },
        { id: 'actions', title: 'change', cell: ({ pool, row }) => {
          const flow = { pool: pool.pool, by: /** @type {const} */ ('tenant'), flow: this.tenant, row, siblings: pool.tenants };
          return html`<span class="row-actions">${changeButton('Weight…', () => openWeight(flow), { ...may, label: `Weight in ${pool.pool}` })}${changeButton('Cap…', () => openCap(flow), { ...may, label: `Cap in ${pool.pool}` })}</span>`;
        } },
      ],
    });
  }

  /** @param {Api.Key[]} keys */
  keyTable(keys) {
    const may = { mayChange: mayChange(), isOffline: connection.lostAt !== null };
    const used = new Map((this.byKey.value?.rows ?? []).map((row) => [row.name, row.charged_tokens]));
    const total = [...used.values()].reduce((sum, tokens) => sum + tokens, 0);
    return dataTable({
      caption: 'Keys of the tenant',
      rows: keys,
      key: (key) => key.id,
      empty: 'It has no key, so it cannot send anything. Add one.',
      columns: [
        { id: 'name', title: 'key', cell: (key) => html`${name(key.name || '(no name)')} <span class="quiet">${name(key.hint)}</span>${declaredBadge(key)}` },
        { id: 'state', title: 'state', cell: (key) => (key.revoked_at ? html`<span class="state quiet">✕ revoked</span>` : html`<span class="state good">● works</span>`) },
        { id: 'used', title: 'last used', cell: (key) => (key.last_used_at ? html`${age(key.last_used_at)} ago` : html`<span class="quiet">never</span>`) },
        { id: 'part', title: 'of its tokens, 24 h', isNumber: true, cell: (key) => share(total ? (used.get(key.id) ?? 0) / total : null) },
        { id: 'weight', title: 'weight', isNumber: true, cell: (key) => number(key.weight) },
        { id: 'expires', title: 'expires', cell: (key) => (key.expires_at ? html`${key.expires_at.slice(0, 10)}` : html`<span class="quiet">never</span>`) },
        { id: 'actions', title: 'change', cell: (key) => (key.revoked_at ? nothing : html`<span class="row-actions">
          ${changeButton('Limits…', () => void openLimits('keys', key.id, key.name || key.hint), { ...may, of: key, label: `Limits of key ${key.name || key.hint}` })}
          ${changeButton('Rotate…', () => openRotate(key), { ...may, of: key, label: `Rotate key ${key.name || key.hint}` })}
          ${changeButton('Revoke…', () => openRevoke(key), { ...may, of: key, label: `Revoke key ${key.name || key.hint}` })}</span>`) },
      ],
    });
  }
}

/** @param {Api.Limits} all */
function limitsView(all) {
  const limits = /** @type {Record<string, number | string | null | undefined>} */ (all);
  const set = LIMITS.filter(([field]) => limits[field] !== null && limits[field] !== undefined);
  if (set.length === 0) return html`<p class="empty">No limit.</p>`;
  return html`<dl class="facts">${set.map(([field, label]) => html`<div data-limit=${field}><dt>${label}</dt><dd>${typeof limits[field] === 'number' ? number(limits[field]) : limits[field]}</dd></div>`)}</dl>`;
}

/** @param {Api.Usage} usage */
function outcomesView(usage) {
  if (usage.rows.length === 0) return html`<p class="empty">None of its requests ended.</p>`;
  return html`<dl class="facts">${usage.rows.map((row) => html`<div><dt>${row.name}</dt><dd>${number(row.requests)} requests</dd></div>`)}</dl>`;
}
