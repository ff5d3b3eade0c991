//! The OpenAPI document. It is made of the descriptions of all handlers, and of the parts that all operations have in
//! common.

use std::sync::LazyLock;

use axum::response::IntoResponse;
use fairgate_api::admin::RequestState;
use fairgate_api::leases::LEASES;
use fairgate_proxy::forward::LeasesApi;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::{
    ErrorBody, attempts, audit, budgets, calibration, config, events, export, fairshare, fleet,
    groups, health, history, hosted, keys, me, metrics, own_usage, policy_tree, pools, prices,
    reload, requests, session, tenants, undo, usage, what_if, workers,
};

/// The OpenAPI document, built at the first use.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut api = AdminApiDocument::openapi();
    api.merge(LeasesApi::openapi());
    let mut document = serde_json::to_value(api).unwrap_or_default();
    complete(&mut document);
    document
});

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fairgate admin API",
        description = "Groups, tenants and keys; what they use; who has what of each pool, and why; the fleet of agents. The admin token \
                       opens everything; a tenant's key opens what is about that tenant alone; an agent's token what that \
                       agent does. Moments are RFC 3339, the fleet's microseconds since 1970, and every number's name ends in its unit unless it counts things. Money is decimal text, exact to six \
                       places, in the installation's currency.",
        license(name = "MIT OR Apache-2.0"),
    ),
    paths(
        groups::list, groups::show, groups::create, groups::patch, groups::remove,
        tenants::list, tenants::show, tenants::create, tenants::patch, tenants::remove,
        keys::list, keys::show, keys::create, keys::patch, keys::rotate, keys::revoke,
        budgets::spent, budgets::of_group, budgets::of_tenant, budgets::of_key, hosted::show, hosted::patch,
        prices::list,
        usage::usage, export::check, attempts::list, audit::list, undo::undo,
        pools::list, pools::show, pools::hold, pools::resume, pools::set_weight, pools::set_cap,
        workers::list, workers::add, workers::patch, workers::remove, workers::drain, workers::undrain,
        reload::reload, reload::check, config::show, config::policy, what_if::what_if, what_if::request_journal,
        fairshare::live, fairshare::stream,
        requests::list, requests::show, me::me, own_usage::attempts, own_usage::usage,
        history::of_pool, history::mine, calibration::of_pool,
        session::begin, session::show, session::end, events::stream,
        fleet::overview::show,
        fleet::projects::list, fleet::projects::show, fleet::projects::create, fleet::projects::patch,
        fleet::tasks::list, fleet::tasks::show, fleet::tasks::create, fleet::tasks::patch, fleet::tasks::act,
        fleet::tasks::why, fleet::log::show,
        fleet::agents::list, fleet::agents::create, fleet::agents::patch, fleet::agents::rotate,
        fleet::workspaces::list, fleet::workspaces::create, fleet::workspaces::remove,
        fleet::webhooks::list, fleet::webhooks::events, fleet::webhooks::test,
        fleet::claims::claim, fleet::claims::heartbeat, fleet::claims::complete, fleet::claims::fail,
        fleet::claims::ask, fleet::claims::release, fleet::claims::result, fleet::log::append,
        fleet::held_project::add_tasks, fleet::held_project::why, fleet::held_project::share,
        health::healthz, health::readyz, metrics::metrics,
        serve,
    ),
    components(schemas(ErrorBody, usage::UsageBy, usage::UsageFormat, attempts::OutcomeNameSchema, own_usage::OwnUsageBy, policy_tree::PolicyFlowBody, policy_tree::PolicyNodeBody, RequestState)),
    tags(
        (name = "directory", description = "Groups, tenants, keys, and who changed them"),
        (name = "usage", description = "The ledger and the budgets"),
        (name = "operation", description = "Pools, workers, the configuration, the live view"),
        (name = "tenants", description = "What a tenant's own key may see"),
        (name = "fleet", description = "Projects, tasks, agents and workspaces; moments are microseconds since 1970"),
        (name = "agents", description = "What an agent does with its own token, also where clients connect"),
        (name = "health", description = "For load balancers and Prometheus"),
    ),
)]
struct AdminApiDocument;

/// Returns the OpenAPI document as JSON.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// Shows this OpenAPI document.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "This document", body = Object)),
)]
pub(super) async fn serve() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// Adds the parts that all operations have in common, so that no handler can forget them.
fn complete(document: &mut Value) {
    close_variants(document);
    document["components"]["securitySchemes"] = json!({
        "admin": {"type": "http", "scheme": "bearer", "description": "The admin token"},
        "tenant": {"type": "http", "scheme": "bearer", "description": "A tenant's key"},
        "agent": {"type": "http", "scheme": "bearer", "description": "An agent's own token"},
    });
    document["security"] = json!([{"admin": []}]);
    let Some(paths) = document["paths"].as_object_mut() else { return };
    add_links(paths);
    for (path, item) in paths {
        let Some(operations) = item.as_object_mut() else { continue };
        for (method, operation) in operations {
            operation["operationId"] = operation_id(method, path).into();
            if path.starts_with(LEASES) {
                add_refusals(operation, &LEASE_REFUSALS, "DialectError");
                continue;
            }
            if method != "get" && !is_for_agents(operation) && path != session::SESSION_PATH {
                add_actor(operation);
            }
            let statuses = refusals(path, operation);
            add_refusals(operation, &statuses, "ErrorBody");
            add_parameter_formats(operation);
        }
    }
    for field in ["since", "until"] {
        let pointer = format!("/components/schemas/WhatIf/properties/{field}");
        if let Some(schema) = document.pointer_mut(&pointer) {
            schema["anyOf"] = moments(&[json!({"type": "null"})]);
            schema.as_object_mut().map(|schema| schema.remove("type"));
        }
    }
}

/// Forbids unknown fields in the variants of a task action, because the derived schema does not forbid them.
fn close_variants(document: &mut Value) {
    let kinds = document.pointer_mut("/components/schemas/TaskAction/oneOf");
    for kind in kinds.and_then(Value::as_array_mut).into_iter().flatten() {
        kind["additionalProperties"] = false.into();
    }
}

/// Returns an operation id such as `get_tenants_name_budgets`.
fn operation_id(method: &str, path: &str) -> String {
    let path = path.trim_start_matches("/api/v1").replace(['{', '}'], "");
    format!("{method}{}", path.replace(['/', '.'], "_"))
}

/// Returns true for an operation of agents. Agents are identified by their tokens, so these operations need no actor
/// header.
fn is_for_agents(operation: &Value) -> bool {
    operation["security"]
        .as_array()
        .is_some_and(|security| security.contains(&json!({"agent": []})))
}

/// Adds the optional header in which the author of a change may give a name.
fn add_actor(operation: &mut Value) {
    let actor = json!({
        "name": "x-fairgate-actor",
        "in": "header",
        "description": "Who asks, for the audit trail",
        "required": false,
        "schema": {"type": "string", "pattern": "^[!-~]{1,64}$"},
    });
    match operation.get_mut("parameters").and_then(Value::as_array_mut) {
        Some(parameters) => parameters.push(actor),
        None => operation["parameters"] = json!([actor]),
    }
}

/// Returns the error responses of an operation beyond those that its handler lists.
fn refusals(path: &str, operation: &Value) -> Vec<(&'static str, &'static str)> {
    let mut refusals = Vec::new();
    let security = operation["security"].as_array();
    if !security.is_some_and(|security| security.contains(&json!({}))) {
        refusals.push(("401", "No token or key, or not a good one"));
        refusals.push((
            "403",
            "A tenant's key where the admin token is needed, or the other way round",
        ));
        refusals
            .push(("503", "The database or a pool does not answer, or too much is asked at once"));
    }
    if operation["parameters"].is_array() {
        refusals.push(("400", "A parameter, a header or the body cannot be read"));
    }
    if operation["requestBody"].is_object() {
        refusals.push(("400", "A parameter, a header or the body cannot be read"));
        refusals.push(("413", "The body is larger than 1 MiB"));
        refusals.push(("415", "The body is not said to be JSON"));
        refusals.push(("422", "A field has a value that it may not have"));
    }
    if path.contains('{') {
        refusals.push(("404", "There is nothing of that name"));
    }
    refusals
}

/// Error responses of every request about leases. Leases are served at the clients' address, with the error format of
/// that address.
const LEASE_REFUSALS: [(&str, &str); 4] = [
    ("400", "A parameter or the body cannot be read, or has a value that it may not have"),
    ("401", "No key, or not a good one"),
    ("413", "The body is larger than 64 KiB"),
    ("503", "The gateway ends, the database does not answer, or too much is asked at once"),
];

fn add_refusals(operation: &mut Value, refusals: &[(&str, &str)], schema: &str) {
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    let Some(responses) = responses else { return };
    for (status, description) in refusals {
        responses.entry(*status).or_insert_with(|| {
            json!({
                "description": description,
                "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}},
            })
        });
    }
}

/// Adds links from a created object to the operations on it.
fn add_links(paths: &mut Map<String, Value>) {
    let by_name = ("name", "$response.body#/name");
    let by_id = ("id", "$response.body#/key/id");
    for (list, (parameter, value), links) in [
        (
            "groups",
            by_name,
            &[
                "get_groups_name",
                "patch_groups_name",
                "delete_groups_name",
                "get_groups_name_budgets",
            ][..],
        ),
        (
            "tenants",
            by_name,
            &[
                "get_tenants_name",
                "patch_tenants_name",
                "delete_tenants_name",
                "get_tenants_name_budgets",
            ],
        ),
        (
            "keys",
            by_id,
            &[
                "get_keys_id",
                "patch_keys_id",
                "post_keys_id_rotate",
                "post_keys_id_revoke",
                "get_keys_id_budgets",
            ],
        ),
        ("projects", ("id", "$response.body#/id"), &["get_projects_id", "patch_projects_id"]),
        (
            "tasks",
            ("id", "$response.body#/added/0/id"),
            &[
                "get_tasks_id",
                "patch_tasks_id",
                "post_tasks_id_actions",
                "get_tasks_id_why",
                "get_tasks_id_log",
            ],
        ),
        (
            "agents",
            ("id", "$response.body#/agent/id"),
            &["patch_agents_id", "post_agents_id_rotate"],
        ),
        ("workspaces", ("id", "$response.body#/id"), &["delete_workspaces_id"]),
    ] {
        let made = paths
            .get_mut(&format!("/api/v1/{list}"))
            .and_then(|item| item.pointer_mut("/post/responses/201"));
        let Some(made) = made else { continue };
        let link = |id: &&str| {
            let link = json!({"operationId": id, "parameters": {parameter: value}});
            ((*id).to_owned(), link)
        };
        made["links"] = Value::Object(links.iter().map(link).collect());
    }
}

/// Adds the accepted formats of `since` and `until`, and the accepted values of `step`.
fn add_parameter_formats(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        match parameter["name"].as_str() {
            Some("since" | "until") => parameter["schema"] = json!({"anyOf": moments(&[])}),
            Some("step") => parameter["schema"]["enum"] = json!([5, 60]),
            _ => {}
        }
    }
}

/// Returns the schemas of all formats of a time, followed by the schemas in `more`.
fn moments(more: &[Value]) -> Value {
    let formats = [
        json!({"type": "string", "format": "date-time"}),
        json!({"type": "string", "pattern": "^[0-9]{1,6}[smhdw]$"}),
        json!({"type": "string", "pattern": "^[0-9]{1,10}$"}),
    ];
    formats.iter().chain(more).cloned().collect()
}
