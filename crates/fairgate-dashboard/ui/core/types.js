/**
 * Shapes that several files name. What the gateway sends is described by its OpenAPI document, of which
 * `cargo xtask test ui` makes the types of the namespace `Api`; here is only what the pages make of it.
 *
 * @typedef {object} FlowRow a class, group, tenant or project of a pool
 * @property {string} [tenant] name, of a tenant's row
 * @property {string} [group] name of the tenant's group
 * @property {string} [name] name, of all other rows
 * @property {number | null} weight
 * @property {string} state
 * @property {number | null} due_share
 * @property {number | null} got_share
 * @property {number | null} asked_share
 * @property {number | null} asked_tokens
 * @property {number | null} weight_share
 * @property {number} window_s
 * @property {boolean} promised
 * @property {number | null} got_tokens
 * @property {number | null} due_tokens
 * @property {number | null} difference_tokens
 * @property {number | null} bound_tokens
 * @property {boolean | null} within_bound
 * @property {number} in_flight
 * @property {number} waiting
 * @property {number | null} cap
 * @property {number | null} expected_wait_ms
 * @property {number | null} wait_p50_ms
 * @property {number | null} wait_p95_ms
 * @property {number} refused
 *
 * @typedef {object} WorkerRow
 * @property {string} name
 * @property {string} state
 * @property {string | null} reason
 * @property {string} source
 * @property {string} address
 * @property {number} in_flight
 * @property {number} prefill_tokens
 * @property {number | null} slots
 * @property {string | null} slots_reason
 * @property {any} engine
 * @property {any} cache
 * @property {any} quota
 * @property {number} tier
 *
 * @typedef {object} LivePool
 * @property {string} pool
 * @property {string} algorithm
 * @property {number} slots
 * @property {number} in_flight
 * @property {number} waiting
 * @property {number} window_s
 * @property {number} granted
 * @property {number} refused
 * @property {number | null} wait_p50_ms
 * @property {number | null} wait_p95_ms
 * @property {FlowRow[]} tenants
 * @property {FlowRow[]} groups
 * @property {FlowRow[]} classes
 * @property {FlowRow[]} projects
 * @property {number} tenants_omitted
 * @property {WorkerRow[]} workers
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
