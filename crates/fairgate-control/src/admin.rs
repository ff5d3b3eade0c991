//! The admin API under `/api/v1`, and `/metrics`, `/healthz` and `/readyz`. Each handler only parses the request, calls
//! the module that owns the data, and writes the response. Every change is audited with the name of its actor.
//!
//! The admin token opens everything except the paths on which agents act for themselves. A tenant's key opens only
//! `/api/v1/me` and the requests, projects and tasks of that tenant. An agent's token opens only the paths under
//! `/api/v1/agents/{id}/` with the id of that agent. If the admin API has an address of its own, the paths for tenants
//! and agents are also served at the clients' address.

mod api_error;
mod attempts;
mod audit;
mod auth;
mod body;
mod budgets;
mod calibration;
mod change;
mod config;
mod declared;
mod events;
mod explanation;
mod export;
mod fairshare;
mod fleet;
mod flow_settings;
mod groups;
mod health;
mod history;
mod hosted;
mod keys;
mod limits;
mod me;
mod metrics;
pub mod moment;
mod money;
mod name;
mod openapi;
mod own_usage;
mod page;
mod pages;
mod path;
mod policy_tree;
mod pools;
mod prices;
mod query;
mod reload;
mod requests;
mod session;
mod tenants;
mod undo;
mod unit_switch;
mod usage;
mod weight;
mod what_if;
mod workers;

use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Router, middleware};
use http::Method;

use self::api_error::ApiError;
use crate::control_plane::ControlPlane;

pub use self::openapi::document;
pub use self::pages::is_page;
use fairgate_api::error::ErrorBody;

/// Returns the router with all routes of the admin API. It is served at an address of its own, or together with the
/// routes for clients.
pub fn router(app: Arc<ControlPlane>) -> Router {
    Router::new()
        .route("/", get(pages::show))
        .route("/me", get(pages::show))
        .route("/favicon.ico", get(pages::show))
        .route("/assets/{*file}", get(pages::show))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/api/v1/openapi.json", get(openapi::serve))
        .route("/api/v1/groups", get(groups::list).post(groups::create))
        .route(
            "/api/v1/groups/{name}",
            get(groups::show).patch(groups::patch).delete(groups::remove),
        )
        .route("/api/v1/groups/{name}/budgets", get(budgets::of_group))
        .route("/api/v1/budgets", get(budgets::spent))
        .route("/api/v1/hosted", get(hosted::show).patch(hosted::patch))
        .route("/api/v1/prices", get(prices::list))
        .route("/api/v1/tenants", get(tenants::list).post(tenants::create))
        .route(
            "/api/v1/tenants/{name}",
            get(tenants::show).patch(tenants::patch).delete(tenants::remove),
        )
        .route("/api/v1/tenants/{name}/budgets", get(budgets::of_tenant))
        .route("/api/v1/keys", get(keys::list).post(keys::create))
        .route("/api/v1/keys/{id}", get(keys::show).patch(keys::patch))
        .route("/api/v1/keys/{id}/rotate", post(keys::rotate))
        .route("/api/v1/keys/{id}/revoke", post(keys::revoke))
        .route("/api/v1/keys/{id}/budgets", get(budgets::of_key))
        .route("/api/v1/usage", get(usage::usage))
        .route("/api/v1/attempts", get(attempts::list))
        .route("/api/v1/export/check", get(export::check))
        .route("/api/v1/audit", get(audit::list))
        .route("/api/v1/audit/{id}/undo", post(undo::undo))
        .route("/api/v1/pools", get(pools::list))
        .route("/api/v1/pools/{pool}", get(pools::show))
        .route("/api/v1/pools/{pool}/policy", get(config::policy))
        .route("/api/v1/pools/{pool}/history", get(history::of_pool))
        .route("/api/v1/pools/{pool}/calibration", get(calibration::of_pool))
        .route("/api/v1/pools/{pool}/hold", post(pools::hold))
        .route("/api/v1/pools/{pool}/weight", post(pools::set_weight))
        .route("/api/v1/pools/{pool}/cap", post(pools::set_cap))
        .route("/api/v1/pools/{pool}/resume", post(pools::resume))
        .route("/api/v1/pools/{pool}/workers", get(workers::list).post(workers::add))
        .route(
            "/api/v1/pools/{pool}/workers/{worker}",
            axum::routing::patch(workers::patch).delete(workers::remove),
        )
        .route("/api/v1/pools/{pool}/workers/{worker}/drain", post(workers::drain))
        .route("/api/v1/pools/{pool}/workers/{worker}/undrain", post(workers::undrain))
        .route("/api/v1/config", get(config::show))
        .route("/api/v1/config/reload", post(reload::reload))
        .route("/api/v1/config/check", post(reload::check))
        .route("/api/v1/fairshare/live", get(fairshare::live))
        .route("/api/v1/fairshare/live/stream", get(fairshare::stream))
        .route("/api/v1/what-if", post(what_if::what_if))
        .route("/api/v1/requests", get(requests::list))
        .route("/api/v1/requests/{id}", get(requests::show))
        .route("/api/v1/requests/{id}/journal", get(what_if::request_journal))
        .route("/api/v1/me", get(me::me))
        .route("/api/v1/me/attempts", get(own_usage::attempts))
        .route("/api/v1/me/usage", get(own_usage::usage))
        .route("/api/v1/events", get(events::stream))
        .route("/api/v1/session", get(session::show).post(session::begin).delete(session::end))
        .route("/api/v1/me/history", get(history::mine))
        .merge(fleet::routes())
        .fallback(|| async { ApiError::no_path() })
        .method_not_allowed_fallback(|| async { ApiError::wrong_method() })
        .layer(middleware::from_fn_with_state(app.clone(), session::find_session))
        .with_state(app)
}

/// Returns true for a path that a tenant's key or an agent's token opens, and that is therefore also served to clients.
pub fn is_for_clients(method: &Method, path: &str) -> bool {
    let own = path.strip_prefix("/api/v1/");
    own.is_some_and(|own| {
        matches!(
            own,
            "events" | "me" | "me/attempts" | "me/history" | "me/usage" | "requests" | "session"
        ) || own.starts_with("requests/")
            || fleet::is_for_clients(method, own)
    })
}
