//! Whether the process lives, and whether it can serve.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_config::OnStoreFailure;
use fairgate_store::StoreError;
use http::StatusCode;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::app::App;
use crate::pools::PoolHandle;

/// How long the database may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The process lives.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`.
    status: &'static str,
}

/// Whether requests can be served.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    /// Whether they can.
    ready: bool,
    /// Why not; none where they can.
    reasons: Vec<String>,
    /// The pools that have no worker that is up, in order.
    degraded: Vec<String>,
    /// What is wrong and yet no reason to send nobody here.
    warnings: Vec<String>,
}

/// Says that the process lives.
#[utoipa::path(
    get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "It lives", body = Health)),
)]
pub(super) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Says whether requests can be served: rows can be kept, at least one pool has a worker that is up, nothing drains. Pools
/// that have none are named as degraded: those that can serve are not taken out of service with them. While only the
/// database is away, requests without budgets are served, so that is a warning.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "They can", body = Readiness),
        (status = 503, description = "They cannot", body = Readiness),
    ),
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let mut reasons = Vec::new();
    if !app.phase.is_serving() {
        reasons.push("the gateway is draining".to_owned());
    }
    let pinged = timeout(PATIENCE, app.store.ping()).await;
    let can_record = app.store.can_record() && !matches!(pinged, Ok(Err(StoreError::Closed)));
    let away = match pinged {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some("the database does not answer as it should"),
        Err(_) => Some("the database does not answer"),
    };
    let mut warnings = Vec::new();
    match away {
        Some(away) if can_record => warnings.push(format!(
            "{away}: requests with a budget are refused, rows are kept in files until it is back"
        )),
        Some(away) => reasons.push(away.to_owned()),
        None => {}
    }
    if !can_record && app.config.load().on_store_failure == OnStoreFailure::Refuse {
        reasons.push("rows cannot be kept, neither in files nor in the database".to_owned());
    }
    let pools = app.pools.all();
    let is_up = |pool: &PoolHandle| pool.workers().iter().any(|worker| worker.state == "up");
    let (up, down): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| is_up(pool));
    let degraded: Vec<String> = down.iter().map(|pool| pool.name.to_string()).collect();
    if up.is_empty() {
        reasons.push("no pool has a worker that is up".to_owned());
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready, reasons, degraded, warnings })).into_response()
}
