//! Handlers for the limits of the hosted tier as a whole.

use super::limits::{hosted_budgets, hosted_limits};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::HostedBody;
use fairgate_api::admin::HostedLimits;
use fairgate_store::{BudgetOwners, DirectoryChange};
use serde::Deserialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::budgets::{budgets, model_budgets};
use super::change::{change, require_result};
use super::name::JsonObject;
use crate::control_plane::ControlPlane;

/// Changes to the hosted tier.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HostedPatch)]
pub(super) struct PatchHosted {
    /// The new limits. They replace all old limits, so a limit that is absent here is removed.
    #[schema(value_type = HostedLimits)]
    limits: JsonObject<HostedLimits>,
}

async fn hosted_body(
    app: &ControlPlane,
    limits: HostedLimits,
) -> Result<Json<HostedBody>, ApiError> {
    let owners = BudgetOwners { hosted: true, ..BudgetOwners::default() };
    let mut budgets = budgets(app, owners).await?;
    budgets.extend(model_budgets(app, |_| true).await?);
    Ok(Json(HostedBody { limits, budgets }))
}

/// Shows the limits for all tenants together on hosted workers.
#[utoipa::path(
    get, path = "/api/v1/hosted", tag = "usage",
    responses((status = 200, description = "The hosted tier", body = HostedBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
) -> Result<Json<HostedBody>, ApiError> {
    let limits = hosted_limits(&app.data.identity.directory().hosted);
    hosted_body(&app, limits).await
}

/// Changes the limits for all tenants together on hosted workers.
#[utoipa::path(
    patch, path = "/api/v1/hosted", tag = "usage", request_body = PatchHosted,
    responses(
        (status = 200, description = "The hosted tier as it is now", body = HostedBody),
        (status = 409, description = "It has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    JsonBody(patch): JsonBody<PatchHosted>,
) -> Result<Json<HostedBody>, ApiError> {
    let budgets = hosted_budgets(patch.limits.0);
    let changed =
        require_result(change(&app, &admin, DirectoryChange::SetHosted { budgets }).await?.hosted)?;
    hosted_body(&app, hosted_limits(&changed)).await
}
