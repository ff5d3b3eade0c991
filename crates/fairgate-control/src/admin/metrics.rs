//! Handler of `/metrics`, for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::auth::is_admin;
use crate::control_plane::ControlPlane;
use crate::metrics::{self, CONTENT_TYPE as OPEN_METRICS};
use crate::projects_cache::FleetScrape;

/// Shows the metrics. No token is needed, but names of tenants and projects are shown only to the admin token.
#[utoipa::path(
    get, path = "/metrics", tag = "health", security((), ("admin" = [])),
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")),
)]
pub(super) async fn metrics(
    State(app): State<Arc<ControlPlane>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let with_tenants = is_admin(&headers, &app);
    app.data.metrics.set_rows_waiting(app.data.store.rows_waiting());
    app.data.metrics.set_rounds_not_journaled(app.fleet.rounds_not_journaled());
    let fleet = app.projects.scrape(&app.fleet).await;
    let (pools, FleetScrape { projects, webhooks }) = (app.data.pools.all(), &*fleet);
    let export = app.export.as_ref().map(|export| export.status());
    let counters = &app.data.metrics;
    let text =
        metrics::render(counters, &pools, projects, webhooks, export.as_ref(), with_tenants).await;
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}
