//! Metrics, for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::auth::is_admin;
use crate::app::App;
use crate::metrics::CONTENT_TYPE as OPEN_METRICS;

/// Shows the metrics. They need no token; only with the admin token are tenants and projects named in them.
#[utoipa::path(
    get, path = "/metrics", tag = "health", security((), ("admin" = [])),
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")),
)]
pub(super) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> impl IntoResponse {
    let with_tenants = is_admin(&headers, &app);
    app.metrics.rows_waiting(app.store.rows_waiting());
    let projects = app.control.fleet.projects(&app.fleet).await;
    let text = app.metrics.render(&app.pools.all(), &projects, with_tenants).await;
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}
