//! Liveness and readiness of the gateway.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_config::OnStoreFailure;
use fairgate_proxy::pools::PoolHandle;
use fairgate_store::StoreError;
use http::StatusCode;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::control_plane::ControlPlane;

/// Time limit for the database's answer to a readiness check.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Liveness of the process.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct HealthBody {
    /// Always `ok`, because a dead process does not answer.
    status: &'static str,
}

/// Readiness of the gateway to serve requests.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ReadinessBody {
    /// True if requests can be served.
    ready: bool,
    /// Reasons why the gateway is not ready; empty if it is ready.
    reasons: Vec<String>,
    /// Names of the pools without a worker that is up.
    degraded: Vec<String>,
    /// Problems that do not make the gateway unready.
    warnings: Vec<String>,
}

/// Reports that the process runs.
#[utoipa::path(
    get, path = "/healthz", tag = "health", security(()),
    responses((status = 200, description = "It lives", body = HealthBody)),
)]
pub(super) async fn healthz() -> Json<HealthBody> {
    Json(HealthBody { status: "ok" })
}

/// Reports whether requests can be served.
///
/// The gateway is ready if ledger rows can be stored, at least one pool has a worker that is up,
/// and the gateway is not draining. Pools without a worker that is up are listed in `degraded`; the
/// other pools are still served. If only the database does not answer, requests without budgets are
/// still served, so the gateway stays ready and lists a warning.
#[utoipa::path(
    get, path = "/readyz", tag = "health", security(()),
    responses(
        (status = 200, description = "They can", body = ReadinessBody),
        (status = 503, description = "They cannot", body = ReadinessBody),
    ),
)]
pub(super) async fn readyz(State(app): State<Arc<ControlPlane>>) -> Response {
    let mut reasons = Vec::new();
    if !app.data.phase.is_serving() {
        reasons.push("the gateway is draining".to_owned());
    }
    let pinged = timeout(DATABASE_TIMEOUT, app.data.store.ping()).await;
    let can_record = app.data.store.can_record() && !matches!(pinged, Ok(Err(StoreError::Closed)));
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
    if !can_record && app.data.config.load().on_store_failure == OnStoreFailure::Refuse {
        reasons.push("rows cannot be kept, neither in files nor in the database".to_owned());
    }
    warnings.extend(app.export.as_ref().and_then(|export| export.status().warning()));
    let pools = app.data.pools.all();
    let is_up = |pool: &PoolHandle| pool.workers().iter().any(|worker| worker.state == "up");
    let (up, down): (Vec<_>, Vec<_>) = pools.iter().partition(|pool| is_up(pool));
    let degraded: Vec<String> = down.iter().map(|pool| pool.name.to_string()).collect();
    if up.is_empty() {
        reasons.push("no pool has a worker that is up".to_owned());
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ReadinessBody { ready, reasons, degraded, warnings })).into_response()
}
