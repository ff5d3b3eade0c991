//! Budgets with their balances.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::HostedLimits;
use super::money::MoneyText;

/// A budget of provider tokens or money for a calendar period, with its balance. The amounts in tokens are null for a
/// budget in money, and the amounts in money are null for a budget in tokens.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetBody {
    /// Kind of the owner: `group`, `tenant`, `key`, `hosted_model` for a model on hosted workers, or `hosted` for the
    /// hosted tier as a whole.
    pub scope: String,
    /// Name of the group, tenant or model, id of the key, or `*` for the hosted tier.
    pub owner: String,
    /// Length of the period: `day` or `month`, in UTC.
    pub period: String,
    /// Unit of the amounts: `tokens` (provider tokens) or `money`.
    pub unit: String,
    /// Workers whose use counts: `any`, or only `hosted` ones.
    pub tier: String,
    /// Provider tokens that the budget allows per period.
    pub limit_tokens: Option<u64>,
    /// Provider tokens that were used in this period.
    pub used_tokens: Option<u64>,
    /// Provider tokens that are reserved for requests in flight.
    pub reserved_tokens: Option<u64>,
    /// Provider tokens that are left: limit − used − reserved, at least 0.
    pub left_tokens: Option<u64>,
    /// Money that the budget allows per period, as a decimal text.
    #[schema(value_type = Option<String>)]
    pub limit_money: Option<MoneyText>,
    /// Money that was used in this period, as a decimal text.
    #[schema(value_type = Option<String>)]
    pub used_money: Option<MoneyText>,
    /// Money that is reserved for requests in flight, as a decimal text.
    #[schema(value_type = Option<String>)]
    pub reserved_money: Option<MoneyText>,
    /// Money that is left: limit − used − reserved, at least 0.
    #[schema(value_type = Option<String>)]
    pub left_money: Option<MoneyText>,
    /// Currency of the amounts of money, such as `USD`; null for a budget in tokens.
    pub currency: Option<String>,
    /// Time at which the next period begins and the use is reset to 0, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub resets_at: String,
}

/// The budgets of a group, a tenant, a key or the hosted tier.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = BudgetList)]
pub struct BudgetList {
    /// The budgets; empty if there are none.
    pub items: Vec<BudgetBody>,
}

/// Limits for all tenants together on hosted workers, with the budgets' balances.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Hosted)]
pub struct HostedBody {
    /// Limits of the hosted tier as a whole.
    pub limits: HostedLimits,
    /// The budgets, each with its balance. Those of the hosted tier as a whole come first, then those that the
    /// configuration gives to models.
    pub budgets: Vec<BudgetBody>,
}
