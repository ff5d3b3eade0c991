/**
 * Shapes that several files name. What the gateway sends is described by its OpenAPI document, of which
 * `cargo xtask test ui` makes the types of the namespace `Api`: a field that is renamed there is an error here.
 *
 * @template T
 * @typedef {{ [Field in keyof T]-?: T[Field] }} Sent an answer of which no field is left out, as it is in the live view
 */
/**
 * @typedef {'weight' | 'weight_share' | 'in_flight' | 'expected_wait_ms'} OwnFields fields that each kind of row has itself
 *
 * @typedef {Sent<Pick<Api.TenantView | Api.GroupView | Api.Class, keyof Api.FlowNow | keyof Api.Service | OwnFields>>} FlowNumbers
 *
 * @typedef {object} FlowNames
 * @property {Api.TenantView['tenant']} [tenant] name, of a tenant's row
 * @property {Api.TenantView['group']} [group] name of the tenant's group
 * @property {Api.GroupView['name'] & Api.Class['name']} [name] name, of all other rows
 *
 * @typedef {FlowNumbers & FlowNames} FlowRow a class, group, tenant or project of a pool
 *
 * @typedef {Sent<Api.Worker>} WorkerRow
 *
 * @typedef {object} LiveRows
 * @property {FlowRow[]} tenants
 * @property {FlowRow[]} groups
 * @property {FlowRow[]} classes
 * @property {FlowRow[]} projects
 * @property {WorkerRow[]} workers
 *
 * @typedef {Sent<Omit<Api.PoolView, keyof LiveRows>> & LiveRows} LivePool
 *
 * @typedef {import('../vendor/lit-html/lit-html.js').TemplateResult} TemplateResult
 *
 * @typedef {object} Page one page while it is open
 * @property {string} title
 * @property {() => unknown} view
 * @property {(route: import('./router.js').Route) => void} [enter] the query of its address changed
 * @property {() => void} [leave]
 * @property {import('./keys.js').KeyBinding[]} [keys]
 */
export {};
