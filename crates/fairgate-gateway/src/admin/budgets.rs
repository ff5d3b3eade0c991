//! How budgets stand.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_money::{Currency, MicroUnits};
use fairgate_store::{BudgetLeft, BudgetTier, Owners, Period, Scope, Unit};
use serde::Serialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment;
use super::money::{self, Money};
use super::path::Named;
use crate::app::App;
use crate::forward::unix_now;

/// Provider tokens or money for a calendar period, and what is left of them. Amounts in tokens are null for a budget in
/// money, and the other way round.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Budget)]
pub(super) struct BudgetBody {
    /// Whose: `group`, `tenant`, `key`, `hosted_model` for a model on hosted workers, or `hosted` for the hosted tier as a
    /// whole.
    scope: &'static str,
    /// The group's, tenant's or model's name, the key's id, or `*`.
    owner: String,
    /// Per what: `day` or `month`, in UTC.
    period: &'static str,
    /// What it counts: `tokens` (provider tokens) or `money`.
    unit: &'static str,
    /// On which workers: `any`, or `hosted` ones only.
    tier: &'static str,
    /// How many provider tokens it has.
    limit_tokens: Option<u64>,
    /// How many are used.
    used_tokens: Option<u64>,
    /// How many are reserved by what is in flight.
    reserved_tokens: Option<u64>,
    /// How many are left.
    left_tokens: Option<u64>,
    /// How much money it has, as a decimal text.
    #[schema(value_type = Option<String>)]
    limit_money: Option<Money>,
    /// How much is used.
    #[schema(value_type = Option<String>)]
    used_money: Option<Money>,
    /// How much is reserved by what is in flight.
    #[schema(value_type = Option<String>)]
    reserved_money: Option<Money>,
    /// How much is left.
    #[schema(value_type = Option<String>)]
    left_money: Option<Money>,
    /// The currency of the amounts of money, such as `USD`.
    currency: Option<String>,
    /// When it starts anew.
    #[schema(format = DateTime)]
    resets_at: String,
}

/// The budgets of a group, a tenant, a key or the hosted tier.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = BudgetList)]
pub(super) struct BudgetList {
    /// Its budgets; none where it has none.
    items: Vec<BudgetBody>,
}

impl BudgetBody {
    fn new(budget: BudgetLeft, currency: Option<Currency>) -> Self {
        let left = budget.limit.saturating_sub(budget.used.saturating_add(budget.reserved));
        let is_money = budget.unit == Unit::Money;
        let tokens = |amount| (!is_money).then_some(amount);
        let money = |amount| is_money.then_some(Money(MicroUnits(amount)));
        Self {
            scope: match budget.scope {
                Scope::Group => "group",
                Scope::Tenant => "tenant",
                Scope::Key => "key",
                Scope::HostedModel => "hosted_model",
                Scope::Hosted => "hosted",
            },
            owner: budget.owner,
            period: match budget.period {
                Period::Day => "day",
                Period::Month => "month",
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
            resets_at: moment::shown(budget.resets_at),
        }
    }
}

/// The budgets of these owners.
pub(super) async fn budgets(app: &App, owners: Owners<'_>) -> Result<Vec<BudgetBody>, ApiError> {
    let budgets = app.store.budgets(owners, unix_now()).await?;
    let currency = match budgets.iter().any(|budget| budget.unit == Unit::Money) {
        true => money::currency(app).await?,
        false => None,
    };
    Ok(budgets.into_iter().map(|budget| BudgetBody::new(budget, currency)).collect())
}

/// The budgets that the configuration gives models on hosted workers; of those models that are `asked` about.
pub(super) async fn model_budgets(
    app: &App,
    asked: impl Fn(&str) -> bool,
) -> Result<Vec<BudgetBody>, ApiError> {
    let mut all = Vec::new();
    for name in app.pools.models().into_iter().filter(|name| asked(name)) {
        let of_model = app.pools.model(&name).map(|model| model.hosted_budgets());
        if let Some(of_model) = of_model.filter(|budgets| !budgets.is_empty()) {
            let owners = Owners { model: Some((&name, &of_model)), ..Owners::default() };
            all.extend(budgets(app, owners).await?);
        }
    }
    Ok(all)
}

/// Shows how a group's budgets stand.
#[utoipa::path(
    get, path = "/api/v1/groups/{name}/budgets", tag = "usage",
    params(("name" = String, Path, description = "The group's name")),
    responses((status = 200, description = "Its budgets", body = BudgetList)),
)]
pub(super) async fn of_group(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(name): Named,
) -> Result<Json<BudgetList>, ApiError> {
    if !app.identity.directory().groups.iter().any(|group| group.name == name) {
        return Err(ApiError::not_found("group", &name));
    }
    let owners = Owners { group: Some(&name), ..Owners::default() };
    Ok(Json(BudgetList { items: budgets(&app, owners).await? }))
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
    Ok(Json(BudgetList { items: budgets(&app, Owners::tenant(&name)).await? }))
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
    let owners = Owners { key: Some(&id), ..Owners::tenant(&key.tenant) };
    Ok(Json(BudgetList { items: budgets(&app, owners).await? }))
}
