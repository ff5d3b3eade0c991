//! The fleet as a whole.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_fleet::FleetView;

use crate::admin::api_error::ApiError;
use crate::admin::auth::Admin;
use crate::app::App;

/// Shows each project's share beside its target, what runs, what waits and why, and the agents.
#[utoipa::path(
    get, path = "/api/v1/fleet", tag = "fleet",
    responses((status = 200, description = "The fleet at this moment", body = FleetView)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
) -> Result<Json<FleetView>, ApiError> {
    Ok(Json(app.fleet.view().await?))
}
