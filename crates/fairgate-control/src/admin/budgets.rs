//! Handlers for budgets, with the use and the balance of each.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{BudgetBody, BudgetList, MoneyText};
use fairgate_money::{Currency, MicroUnits};
use fairgate_store::{
    BudgetBalance, BudgetOwners, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, budgets_used,
};
use fairgate_time::wall_clock;
use serde::Deserialize;
use utoipa::IntoParams;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::money;
use super::page::LONGEST_PAGE;
use super::path::PathName;
use super::query::QueryParams;
use crate::control_plane::ControlPlane;

/// Default of `used_percent`: the least used part of a listed budget, in percent.
const NEARLY_SPENT: u32 = 90;

/// Selects budgets by the part that is used.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SpentQuery {
    /// Returns only budgets of which at least this part is used in the current period, 1 to 100 percent (default 90).
    #[param(minimum = 1, maximum = 100, nullable = false)]
    used_percent: Option<u32>,
}

/// Returns a budget as the API shows it.
fn budget_body(budget: BudgetBalance, currency: Option<Currency>) -> BudgetBody {
    let left = budget.limit.saturating_sub(budget.used.saturating_add(budget.reserved));
    let is_money = budget.unit == BudgetUnit::Money;
    let tokens = |amount| (!is_money).then_some(amount);
    let money = |amount| is_money.then_some(MoneyText(MicroUnits(amount)));
    BudgetBody {
        scope: match budget.scope {
            BudgetScope::Group => "group",
            BudgetScope::Tenant => "tenant",
            BudgetScope::Key => "key",
            BudgetScope::HostedModel => "hosted_model",
            BudgetScope::Hosted => "hosted",
        }
        .to_owned(),
        owner: budget.owner,
        period: match budget.period {
            BudgetPeriod::Day => "day",
            BudgetPeriod::Month => "month",
        }
        .to_owned(),
        unit: if is_money { "money" } else { "tokens" }.to_owned(),
        tier: match budget.tier {
            BudgetTier::Any => "any",
            BudgetTier::Hosted => "hosted",
        }
        .to_owned(),
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

/// Returns the budgets of these owners, each with its balance.
pub(super) async fn budgets(
    app: &ControlPlane,
    owners: BudgetOwners<'_>,
) -> Result<Vec<BudgetBody>, ApiError> {
    let budgets = app.data.store.budgets(owners, wall_clock::now()).await?;
    bodies(app, budgets).await
}

/// Returns these budgets as the API shows them.
async fn bodies(
    app: &ControlPlane,
    budgets: Vec<BudgetBalance>,
) -> Result<Vec<BudgetBody>, ApiError> {
    let currency = match budgets.iter().any(|budget| budget.unit == BudgetUnit::Money) {
        true => money::currency(app).await?,
        false => None,
    };
    Ok(budgets.into_iter().map(|budget| budget_body(budget, currency)).collect())
}

/// Lists the budgets of tenants and groups that are spent or nearly spent.
///
/// The fullest budget comes first; at most 1000 are listed. Budgets of 0, which are a way to stop a tenant, are left out.
#[utoipa::path(
    get, path = "/api/v1/budgets", tag = "usage", params(SpentQuery),
    responses((status = 200, description = "The budgets", body = BudgetList)),
)]
pub(super) async fn spent(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<SpentQuery>,
) -> Result<Json<BudgetList>, ApiError> {
    let percent = query.used_percent.unwrap_or(NEARLY_SPENT);
    if !(1..=100).contains(&percent) {
        let message = format!("used_percent must be 1 to 100 and is {percent}");
        return Err(ApiError::bad_request("invalid_query", message).in_field("used_percent"));
    }
    let now = wall_clock::now();
    let mut balances =
        app.data.store.inspect(move |transaction| budgets_used(transaction, percent, now)).await?;
    // Used parts are compared as fractions, without division.
    balances.sort_by(|a, b| {
        let part = |one: &BudgetBalance, other: &BudgetBalance| {
            u128::from(one.used) * u128::from(other.limit)
        };
        part(b, a).cmp(&part(a, b)).then_with(|| a.owner.cmp(&b.owner))
    });
    balances.truncate(LONGEST_PAGE as usize);
    Ok(Json(BudgetList { items: bodies(&app, balances).await? }))
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
