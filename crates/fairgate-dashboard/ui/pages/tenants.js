/** Tenants: all of them, and one with its limits, budgets, failures and keys. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { connection } from '../core/connection.js';
import { several } from '../core/format.js';
import { livePools } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { href, setQuery } from '../core/router.js';
import { mayChange } from '../core/session.js';
import { declaredBadge } from '../components/declared.js';
import { name } from '../components/name.js';
import { number, share } from '../components/number.js';
import { changeButton, loaded, pageHead, section } from '../components/page.js';
import { stateBadge } from '../components/state.js';
import { RowOrder, dataTable, sortKey } from '../components/table.js';
import { openLimits } from '../changes/limits.js';
import { openNewTenant } from '../changes/tenant.js';
import { whenChanged } from '../changes/change.js';
import { TenantPage } from './tenant.js';

/** How often the directory is read, in milliseconds, and how many tenants are listed. */
const READ_MS = 15_000;
const LISTED = 1000;

class TenantsPage {
  title = 'Tenants';

  /** @param {import('../core/router.js').Route} route */
  constructor(route) {
    this.query = route.query;
    this.order = new RowOrder('name');
    /** @type {Resource<Api.TenantPage>} */
    this.tenants = new Resource(() => read(at`/tenants`, { limit: LISTED, group: this.query.get('group') }), READ_MS).start();
    /** @type {Resource<Api.GroupPage>} */
    this.groups = new Resource(() => read(at`/groups`, { limit: LISTED }), READ_MS).start();
    this.stop = whenChanged(() => {
      void this.tenants.refresh();
      void this.groups.refresh();
    });
    this.keys = [sortKey(this.order, () => this.columns())];
  }

  /** @param {import('../core/router.js').Route} route */
  enter(route) {
    this.query = route.query;
    this.order.sortAgain();
    void this.tenants.refresh();
  }

  leave() {
    this.tenants.stop();
    this.groups.stop();
    this.stop();
  }

  view() {
    const groups = this.groups.value?.items ?? [];
    const group = this.query.get('group') ?? '';
    const add = groups.length ? changeButton('Add a tenant…', () => openNewTenant(groups.map((each) => each.name)), may()) : nothing;
    return html`
      ${pageHead('Tenants', this.sentence(groups), add)}
      ${groups.length ? section('Groups', this.groupTable(groups)) : nothing}
      ${section(group ? html`Tenants of ${name(group)}` : 'Tenants', loaded(this.tenants, (value) => html`${dataTable({
        caption: 'Tenants: group, weight, state, waiting, in flight',
        columns: this.columns(),
        rows: value.items,
        key: (tenant) => tenant.name,
        order: this.order,
        empty: html`<p>No tenant yet. Add one here, or:</p><pre>fairgate tenant add search --group prod</pre>`,
      })}${value.next ? html`<p class="quiet">The first ${LISTED} by name; search with / for others.</p>` : nothing}`), group ? html`<button @click=${() => setQuery({ group: null })}>All groups</button>` : nothing)}`;
  }

  /** @param {Api.Group[]} groups */
  sentence(groups) {
    const page = this.tenants.value;
    if (!page) return 'Reading the directory.';
    const tenants = page.items;
    const disabled = tenants.filter((tenant) => tenant.disabled).length;
    return `${several(tenants.length, 'tenant')}${page.next ? ' and more' : ''} in ${several(groups.length, 'group')}; ${disabled === 0 ? 'none is disabled' : `${disabled} ${disabled === 1 ? 'is' : 'are'} disabled`}.`;
  }

  /** @param {Api.Group[]} groups */
  groupTable(groups) {
    return dataTable({
      caption: 'Groups and their weights',
      rows: groups,
      key: (group) => group.name,
      columns: [
        { id: 'name', title: 'group', cell: (group) => html`<a href=${href(['tenants'], { group: group.name })}>${name(group.name)}</a>${declaredBadge(group)}` },
        { id: 'weight', title: 'weight', isNumber: true, cell: (group) => number(group.weight) },
        { id: 'actions', title: 'change', cell: (group) => html`<span class="row-actions">${changeButton('Budgets…', () => void openLimits('groups', group.name, group.name), { ...may(), of: group, label: `Budgets of ${group.name}` })}</span>` },
      ],
    });
  }

  /** @returns {import('../components/table.js').Column<Api.Tenant>[]} */
  columns() {
    const rows = liveRows();
    const row = (/** @type {Api.Tenant} */ tenant) => rows.get(tenant.name);
    return [
      { id: 'name', title: 'tenant', cell: (tenant) => html`<a href=${href(['tenants', tenant.name])}>${name(tenant.name)}</a>${declaredBadge(tenant)}`, order: (tenant) => tenant.name },
      { id: 'group', title: 'group', cell: (tenant) => name(tenant.group), order: (tenant) => tenant.group },
      { id: 'weight', title: 'weight', isNumber: true, cell: (tenant) => number(tenant.weight), order: (tenant) => tenant.weight },
      { id: 'state', title: 'state', cell: (tenant) => stateBadge(tenant.disabled ? 'disabled' : (row(tenant)?.state ?? 'idle')), order: (tenant) => (tenant.disabled ? 'disabled' : row(tenant)?.state) },
      { id: 'due', title: 'due', isNumber: true, cell: (tenant) => share(row(tenant)?.due_share), order: (tenant) => row(tenant)?.due_share, help: 'in the pool in which it has most requests' },
      { id: 'got', title: 'got', isNumber: true, cell: (tenant) => share(row(tenant)?.got_share), order: (tenant) => row(tenant)?.got_share },
      { id: 'in_flight', title: 'in flight', isNumber: true, cell: (tenant) => number(row(tenant)?.in_flight ?? 0), order: (tenant) => row(tenant)?.in_flight ?? 0 },
      { id: 'waiting', title: 'waiting', isNumber: true, cell: (tenant) => number(row(tenant)?.waiting ?? 0), order: (tenant) => row(tenant)?.waiting ?? 0 },
    ];
  }
}

function may() {
  return { mayChange: mayChange(), isOffline: connection.lostAt !== null };
}

/** Returns each tenant's row of the pool in which it has most requests. */
function liveRows() {
  /** @type {Map<string, import('../core/types.js').FlowRow>} */
  const rows = new Map();
  for (const row of livePools().flatMap((pool) => pool.tenants)) {
    const tenant = row.tenant ?? '';
    const known = rows.get(tenant);
    if (!known || row.waiting + row.in_flight > known.waiting + known.in_flight) rows.set(tenant, row);
  }
  return rows;
}

/** @param {import('../core/router.js').Route} route */
export const open = (route) => (route.parts[1] ? new TenantPage(route.parts[1]) : new TenantsPage(route));
