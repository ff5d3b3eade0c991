//! Budgets, which limit the usage in a calendar period, counted in provider tokens or in money.

use fairgate_time::UnixMicros;
use fairgate_usage::{LeaseLost, TaskCapReached, WindowBudgetExhausted};
use serde::{Deserialize, Serialize};

/// Limit on the usage of tokens or money in one calendar period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Calendar period after which the budget starts again at 0.
    pub period: BudgetPeriod,
    /// Unit of `amount`: tokens or money.
    pub unit: BudgetUnit,
    /// Workers whose usage counts against the budget.
    pub tier: BudgetTier,
    /// Maximum usage in one period, in provider tokens or in micro-units of the installation's
    /// currency; 0 or more.
    pub amount: u64,
}

impl Budget {
    /// Creates a budget of provider tokens on any worker.
    pub fn tokens(amount: u64, period: BudgetPeriod) -> Self {
        Self { period, unit: BudgetUnit::Tokens, tier: BudgetTier::Any, amount }
    }

    /// Returns the key of the budget among those of its owner. The budgets of an owner are stored
    /// and listed in the order of this key.
    pub(crate) fn kind(&self) -> (BudgetTier, BudgetUnit, BudgetPeriod) {
        (self.tier, self.unit, self.period)
    }
}

/// A calendar period in UTC.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum BudgetPeriod {
    /// A UTC day, from midnight to midnight.
    Day,
    /// A UTC month, from its first day to the first day of the next.
    Month,
}

/// Unit in which a budget counts usage.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum BudgetUnit {
    /// Provider tokens: input and output tokens as the provider counts them, not weighted.
    Tokens,
    /// Money, in micro-units of the installation's currency.
    Money,
}

/// Workers that a budget covers.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum BudgetTier {
    /// All workers, own and hosted.
    Any,
    /// Hosted workers only, which are those of tier 1 and above.
    Hosted,
}

/// Permission to use hosted workers.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum HostedUse {
    /// Requests may go to hosted workers, within the budgets.
    #[default]
    Allowed,
    /// Requests go to own workers only.
    Never,
}

/// Kind of owner of a budget. A transaction in PostgreSQL locks the sums in the order of these
/// variants. The sums of tenants and keys come first, because few requests share them. The sums of
/// the hosted tier and of groups come last, so that they are locked for the shortest time, because
/// many requests share them.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum BudgetScope {
    /// A tenant, identified by its name.
    Tenant,
    /// A key, identified by its id.
    Key,
    /// A model on the hosted tier. The budgets of models are in the configuration, not in the database.
    #[serde(rename = "hosted_model")]
    HostedModel,
    /// The hosted tier as a whole.
    Hosted,
    /// A group, identified by its name.
    Group,
}

/// Owner name of the budgets of the hosted tier as a whole.
pub(crate) const HOSTED_OWNER: &str = "*";

/// Owners whose budgets are looked up. `None` selects no owner of that kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetOwners<'a> {
    /// Name of the group whose budgets are looked up.
    pub group: Option<&'a str>,
    /// Name of the tenant whose budgets are looked up.
    pub tenant: Option<&'a str>,
    /// Id of the key whose budgets are looked up.
    pub key: Option<&'a str>,
    /// True to look up the budgets of the hosted tier as a whole, too.
    pub hosted: bool,
    /// Name of a model on the hosted tier, and the budgets that the configuration states for it.
    pub model: Option<(&'a str, &'a [Budget])>,
}

impl<'a> BudgetOwners<'a> {
    /// Selects a single tenant and no other owner.
    pub fn tenant(name: &'a str) -> Self {
        Self { tenant: Some(name), ..Self::default() }
    }

    /// Returns the owner name of the hosted tier; `None` if the hosted tier is not selected.
    pub(crate) fn hosted_owner(&self) -> Option<&'static str> {
        self.hosted.then_some(HOSTED_OWNER)
    }
}

/// A budget that has no room for a request. All amounts are in `unit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetExhausted {
    /// Kind of the budget's owner.
    pub scope: BudgetScope,
    /// Name of the group, tenant or model, id of the key, or `*` for the hosted tier as a whole.
    pub owner: String,
    /// Calendar period of the budget.
    pub period: BudgetPeriod,
    /// Unit of all amounts of this value.
    pub unit: BudgetUnit,
    /// Workers whose usage counts against the budget.
    pub tier: BudgetTier,
    /// Maximum usage in one period.
    pub limit: u64,
    /// Amount used so far in the current period.
    pub used: u64,
    /// Amount reserved for requests that have not ended yet.
    pub reserved: u64,
    /// Amount that the reservation of the request needed.
    pub wanted: u64,
    /// True if the request is refused only because another request with files is in flight. The budget then has room
    /// for this request, but not for twice the wanted amount.
    pub waits_for_files: bool,
    /// Time at which the next period begins and the budget starts again at 0.
    pub resets_at: UnixMicros,
}

/// Reason why a reservation was refused. A refused reservation changes nothing in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservationRefused {
    /// A budget of the group, tenant or key has no room for the request.
    Budget(BudgetExhausted),
    /// The request is for a task whose claim is no longer in force.
    LeaseLost(LeaseLost),
    /// The request is for a task, and the budget of its project or of all projects has no room for the request.
    Window(WindowBudgetExhausted),
    /// The request is for a task whose own cap has no room for the request.
    TaskCap(TaskCapReached),
}

impl From<TaskCapReached> for ReservationRefused {
    fn from(reached: TaskCapReached) -> Self {
        Self::TaskCap(reached)
    }
}

impl From<BudgetExhausted> for ReservationRefused {
    fn from(exhausted: BudgetExhausted) -> Self {
        Self::Budget(exhausted)
    }
}

impl From<LeaseLost> for ReservationRefused {
    fn from(lost: LeaseLost) -> Self {
        Self::LeaseLost(lost)
    }
}

impl From<WindowBudgetExhausted> for ReservationRefused {
    fn from(exhausted: WindowBudgetExhausted) -> Self {
        Self::Window(exhausted)
    }
}

/// Balance of a budget. All amounts are in `unit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BudgetBalance {
    /// Kind of the budget's owner.
    pub scope: BudgetScope,
    /// Name of the group, tenant or model, id of the key, or `*` for the hosted tier as a whole.
    pub owner: String,
    /// Calendar period of the budget.
    pub period: BudgetPeriod,
    /// Unit of all amounts of this value.
    pub unit: BudgetUnit,
    /// Workers whose usage counts against the budget.
    pub tier: BudgetTier,
    /// Maximum usage in one period.
    pub limit: u64,
    /// Amount used so far in the current period.
    pub used: u64,
    /// Amount reserved for requests that have not ended yet.
    pub reserved: u64,
    /// Time at which the next period begins and the budget starts again at 0.
    pub resets_at: UnixMicros,
}

/// Result of a granted reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationGrant {
    /// True if the request may go to hosted workers. Always false if the reservation has no
    /// `hosted` amounts.
    pub hosted: bool,
    /// Budget that keeps the request from hosted workers; `None` if the request may go to hosted workers, or if the
    /// reservation did not ask for them.
    pub hosted_exhausted: Option<BudgetExhausted>,
}
