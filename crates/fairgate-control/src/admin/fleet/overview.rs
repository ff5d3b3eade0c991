//! Handler for the overview of the fleet.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::fleet::FleetView;

use crate::admin::api_error::ApiError;
use crate::admin::auth::AdminCaller;
use crate::control_plane::ControlPlane;

/// Shows the fleet: the share that each project got and was due, the running tasks, the waiting
/// tasks with their reasons, and the agents.
#[utoipa::path(
    get, path = "/api/v1/fleet", tag = "fleet",
    responses((status = 200, description = "The fleet at this moment", body = FleetView)),
)]
pub(in crate::admin) async fn show(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
) -> Result<Json<FleetView>, ApiError> {
    Ok(Json(app.fleet.view().await?))
}
