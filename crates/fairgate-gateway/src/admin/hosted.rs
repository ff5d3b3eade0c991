//! The hosted tier as a whole: what all tenants together may use on hosted workers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_store::{Change, Owners};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Admin;
use super::body::Body;
use super::budgets::{BudgetBody, budgets, model_budgets};
use super::change::{change, made};
use super::limits::HostedLimits;
use super::name::Object;
use crate::app::App;

/// What all tenants together may use on hosted workers, and what is left of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Hosted)]
pub(super) struct HostedBody {
    /// The limits.
    limits: HostedLimits,
    /// How the budgets stand: those of the tier as a whole, then those that the configuration gives models.
    budgets: Vec<BudgetBody>,
}

/// What is new about the hosted tier.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HostedPatch)]
pub(super) struct PatchHosted {
    /// All of its limits: those absent in here are lifted.
    #[schema(value_type = HostedLimits)]
    limits: Object<HostedLimits>,
}

async fn told(app: &App, limits: HostedLimits) -> Result<Json<HostedBody>, ApiError> {
    let owners = Owners { hosted: true, ..Owners::default() };
    let mut budgets = budgets(app, owners).await?;
    budgets.extend(model_budgets(app, |_| true).await?);
    Ok(Json(HostedBody { limits, budgets }))
}

/// Shows what all tenants together may use on hosted workers.
#[utoipa::path(
    get, path = "/api/v1/hosted", tag = "usage",
    responses((status = 200, description = "The hosted tier", body = HostedBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
) -> Result<Json<HostedBody>, ApiError> {
    let limits = HostedLimits::from(app.identity.directory().hosted.as_slice());
    told(&app, limits).await
}

/// Changes what all tenants together may use on hosted workers.
#[utoipa::path(
    patch, path = "/api/v1/hosted", tag = "usage", request_body = PatchHosted,
    responses(
        (status = 200, description = "The hosted tier as it is now", body = HostedBody),
        (status = 409, description = "It has a budget in money, and no currency is known", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<App>>,
    admin: Admin,
    Body(patch): Body<PatchHosted>,
) -> Result<Json<HostedBody>, ApiError> {
    let budgets = patch.limits.0.into();
    let changed = made(change(&app, &admin, Change::SetHosted { budgets }).await?.hosted)?;
    told(&app, HostedLimits::from(changed.as_slice())).await
}
