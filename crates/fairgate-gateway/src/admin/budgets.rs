//! Handlers for budgets, with the use and the balance of each.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_money::{Currency, MicroUnits};
use fairgate_store::{
    BudgetBalance, BudgetOwners, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::money::{self, MoneyText};
use super::path::PathName;
use crate::control_plane::ControlPlane;
use fairgate_time::wall_clock;

/// A budget of provider tokens or money for a calendar period, with its balance. The amounts in tokens are null for a
/// budget in money, and the amounts in money are null for a budget in tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Budget)]
pub(super) struct BudgetBody {
    /// Kind of the owner: `group`, `tenant`, `key`, `hosted_model` for a model on hosted workers, or `hosted` for the
    /// hosted tier as a whole.
    scope: &'static str,
    /// Name of the group, tenant or model, id of the key, or `*` for the hosted tier.
    owner: String,
    /// Length of the period: `day` or `month`, in UTC.
    period: &'static str,
    /// Unit of the amounts: `tokens` (provider tokens) or `money`.
    unit: &'static str,
    /// Workers whose use counts: `any`, or only `hosted` ones.
    tier: &'static str,
    /// Provider tokens that the budget allows per period.
    limit_tokens: Option<u64>,
    /// Provider tokens that were used in this period.
    used_tokens: Option<u64>,
    /// Provider tokens that are reserved for requests in flight.
    reserved_tokens: Option<u64>,
    /// Provider tokens that are left: limit − used − reserved, at least 0.
    left_tokens: Option<u64>,
    /// Money that the budget allows per period, as a decimal text.
    #[schema(value_type = Option<String>)]
    limit_money: Option<MoneyText>,
    /// Money that was used in this period, as a decimal text.
    #[schema(value_type = Option<String>)]
    used_money: Option<MoneyText>,
    /// Money that is reserved for requests in flight, as a decimal text.
    #[schema(value_type = Option<String>)]
    reserved_money: Option<MoneyText>,
    /// Money that is left: limit − used − reserved, at least 0.
    #[schema(value_type = Option<String>)]
    left_money: Option<MoneyText>,
    /// Currency of the amounts of money, such as `USD`; null for a budget in tokens.
    currency: Option<String>,
    /// Time at which the next period begins and the use is reset to 0, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    resets_at: String,
}

/// The budgets of a group, a tenant, a key or the hosted tier.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = BudgetList)]
pub(super) struct BudgetList {
    /// The budgets; empty if there are none.
    items: Vec<BudgetBody>,
}

impl BudgetBody {
    fn new(budget: BudgetBalance, currency: Option<Currency>) -> Self {
        let left = budget.limit.saturating_sub(budget.used.saturating_add(budget.reserved));
        let is_money = budget.unit == BudgetUnit::Money;
        let tokens = |amount| (!is_money).then_some(amount);
        let money = |amount| is_money.then_some(MoneyText(MicroUnits(amount)));
        Self {
            scope: match budget.scope {
                BudgetScope::Group => "group",
                BudgetScope::Tenant => "tenant",
                BudgetScope::Key => "key",
                BudgetScope::HostedModel => "hosted_model",
                BudgetScope::Hosted => "hosted",
            },
            owner: budget.owner,
            period: match budget.period {
                BudgetPeriod::Day => "day",
                BudgetPeriod::Month => "month",
            },
            unit: if is_money { "money" } else { "tokens" },
            tier: match budget.tier {
                BudgetTier::Any => "any",
                BudgetTier::Hosted => "hosted",
            },
            limit_tokens: tokens(budget.limit),
            used_tokens: tokens(budget.used),
            reserved_tokens: tokens(budget.reserved),
            left_tokens: tokens(left),
            limit_money: money(budget.limit),
            used_money: money(budget.used),
            reserved_money: money(budget.reserved),
            left_money: money(left),
            currency: currency.filter(|_| is_money).map(String::from),
            resets_at: fairgate_time::to_rfc3339(budget.resets_at),
        }
    }
}

/// Returns the budgets of these owners, each with its balance.
pub(super) async fn budgets(
    app: &ControlPlane,
    owners: BudgetOwners<'_>,
) -> Result<Vec<BudgetBody>, ApiError> {
    let budgets = app.data.store.budgets(owners, wall_clock::now()).await?;
    let currency = match budgets.iter().any(|budget| budget.unit == BudgetUnit::Money) {
        true => money::currency(app).await?,
        false => None,
    };
    Ok(budgets.into_iter().map(|budget| BudgetBody::new(budget, currency)).collect())
}

/// Returns the budgets that the configuration gives to models on hosted workers, for the models that `asked` accepts.
pub(super) async fn model_budgets(
    app: &ControlPlane,
    asked: impl Fn(&str) -> bool,
) -> Result<Vec<BudgetBody>, ApiError> {
    let mut all = Vec::new();
    for name in app.data.pools.models().into_iter().filter(|name| asked(name)) {
        let of_model = app.data.pools.model(&name).map(|model| model.hosted_budgets());
        if let Some(of_model) = of_model.filter(|budgets| !budgets.is_empty()) {
            let owners =
                BudgetOwners { model: Some((&name, &of_model)), ..BudgetOwners::default() };
            all.extend(budgets(app, owners).await?);
        }
    }
    Ok(all)
}

/// Shows the budgets of a group, each with its balance.
#[utoipa::path(
    get, path = "/api/v1/groups/{name}/budgets", tag = "usage",
    params(("name" = String, Path, description = "The group's name")),
    responses((status = 200, description = "Its budgets", body = BudgetList)),
)]
pub(super) async fn of_group(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<BudgetList>, ApiError> {
    if !app.data.identity.directory().groups.iter().any(|group| group.name == name) {
        return Err(ApiError::not_found("group", &name));
    }
    let owners = BudgetOwners { group: Some(&name), ..BudgetOwners::default() };
    Ok(Json(BudgetList { items: budgets(&app, owners).await? }))
}

/// Shows the budgets of a tenant, each with its balance.
#[utoipa::path(
    get, path = "/api/v1/tenants/{name}/budgets", tag = "usage",
    params(("name" = String, Path, description = "The tenant's name")),
    responses((status = 200, description = "Its budgets", body = BudgetList)),
)]
pub(super) async fn of_tenant(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<BudgetList>, ApiError> {
    if !app.data.identity.directory().tenants.iter().any(|tenant| tenant.name == name) {
        return Err(ApiError::not_found("tenant", &name));
    }
    Ok(Json(BudgetList { items: budgets(&app, BudgetOwners::tenant(&name)).await? }))
}

/// Shows the budgets of a key and of the key's tenant, each with its balance.
#[utoipa::path(
    get, path = "/api/v1/keys/{id}/budgets", tag = "usage",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, description = "Its budgets", body = BudgetList)),
)]
pub(super) async fn of_key(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(id): PathName,
) -> Result<Json<BudgetList>, ApiError> {
    let directory = app.data.identity.directory();
    let key = directory.keys.iter().find(|key| key.id == id);
    let key = key.ok_or_else(|| ApiError::not_found("key", &id))?;
    let owners = BudgetOwners { key: Some(&id), ..BudgetOwners::tenant(&key.tenant) };
    Ok(Json(BudgetList { items: budgets(&app, owners).await? }))
}
