//! How budgets stand.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_store::{BudgetLeft, Period, Scope};
use serde::Serialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment;
use super::path::Named;
use crate::app::App;
use crate::forward::unix_now;

/// Tokens for a calendar period, and what is left of them.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Budget)]
pub(super) struct BudgetBody {
    /// Whose: `tenant` or `key`.
    scope: &'static str,
    /// Per what: `day` or `month`, in UTC.
    period: &'static str,
    /// How many tokens it has.
    limit_tokens: u64,
    /// How many are used.
    used_tokens: u64,
    /// How many are reserved by what is in flight.
    reserved_tokens: u64,
    /// How many are left.
    left_tokens: u64,
    /// When it starts anew.
    #[schema(format = DateTime)]
    resets_at: String,
}

/// The budgets of a tenant or key.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = BudgetList)]
pub(super) struct BudgetList {
    /// Its budgets; none where it has none.
    items: Vec<BudgetBody>,
}

impl From<BudgetLeft> for BudgetBody {
    fn from(budget: BudgetLeft) -> Self {
        let taken = budget.used.saturating_add(budget.reserved);
        Self {
            scope: match budget.scope {
                Scope::Tenant => "tenant",
                Scope::Key => "key",
            },
            period: match budget.period {
                Period::Day => "day",
                Period::Month => "month",
            },
            limit_tokens: budget.limit,
            used_tokens: budget.used,
            reserved_tokens: budget.reserved,
            left_tokens: budget.limit.saturating_sub(taken),
            resets_at: moment::shown(budget.resets_at),
        }
    }
}

/// The budgets of a tenant and, where one is named, of one of its keys.
pub(super) async fn budgets(
    app: &App,
    tenant: &str,
    key: Option<&str>,
) -> Result<Vec<BudgetBody>, ApiError> {
    let budgets = app.store.budgets(tenant, key, unix_now()).await?;
    Ok(budgets.into_iter().map(BudgetBody::from).collect())
}

/// Shows how a tenant's budgets stand.
#[utoipa::path(
    get, path = "/api/v1/tenants/{name}/budgets", tag = "usage",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 200, description = "Its budgets", body = BudgetList)),
)]
pub(super) async fn of_tenant(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(name): Named,
) -> Result<Json<BudgetList>, ApiError> {
    if !app.identity.directory().tenants.iter().any(|tenant| tenant.name == name) {
        return Err(ApiError::not_found("tenant", &name));
    }
    Ok(Json(BudgetList { items: budgets(&app, &name, None).await? }))
}

/// Shows how a key's budgets stand, and those of its tenant.
#[utoipa::path(
    get, path = "/api/v1/keys/{id}/budgets", tag = "usage",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, description = "Its budgets", body = BudgetList)),
)]
pub(super) async fn of_key(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(id): Named,
) -> Result<Json<BudgetList>, ApiError> {
    let directory = app.identity.directory();
    let key = directory.keys.iter().find(|key| key.id == id);
    let key = key.ok_or_else(|| ApiError::not_found("key", &id))?;
    Ok(Json(BudgetList { items: budgets(&app, &key.tenant, Some(&id)).await? }))
}
