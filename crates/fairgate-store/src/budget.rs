//! Budgets: what may be used in a calendar period, counted in provider tokens or in money.

use fairgate_money::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::claims::{FleetExhausted, LeaseLost};

/// An amount for a calendar period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Per what.
    pub period: Period,
    /// What is counted.
    pub unit: Unit,
    /// On which workers.
    pub tier: BudgetTier,
    /// How much: provider tokens, or micro-units of the installation's currency; 0 or more.
    pub amount: u64,
}

impl Budget {
    /// A budget of provider tokens on any worker.
    pub fn tokens(amount: u64, period: Period) -> Self {
        Self { period, unit: Unit::Tokens, tier: BudgetTier::Any, amount }
    }

    /// What makes two budgets of one owner the same budget. Budgets have no order of their own: they are stored and told in
    /// this one.
    pub(crate) fn kind(&self) -> (BudgetTier, Unit, Period) {
        (self.tier, self.unit, self.period)
    }
}

/// A calendar period in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From the first to the first.
    Month,
}

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Provider tokens: input and output tokens as a provider counts them, not weighted.
    Tokens,
    /// Micro-units of the installation's currency.
    Money,
}

/// Which workers a budget is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetTier {
    /// All of them, own and hosted.
    Any,
    /// Hosted ones: those of tier 1 and above.
    Hosted,
}

/// Whether hosted workers may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostedUse {
    /// Yes, within the budgets.
    #[default]
    Allowed,
    /// No: its requests go to own workers only.
    Never,
}

/// Who owns a budget. The order is the one in which PostgreSQL's sums are locked: those that few share come first, so that
/// those that many share are held for the shortest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// A tenant.
    Tenant,
    /// A key.
    Key,
    /// A model on the hosted tier. Its budgets are in the configuration, not here.
    #[serde(rename = "hosted_model")]
    HostedModel,
    /// The hosted tier as a whole.
    Hosted,
    /// A group.
    Group,
}

/// By what name the hosted tier as a whole owns its budgets.
pub(crate) const HOSTED_OWNER: &str = "*";

/// Whose budgets to look at; those of all who are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners<'a> {
    /// A group.
    pub group: Option<&'a str>,
    /// A tenant.
    pub tenant: Option<&'a str>,
    /// A key, by its id.
    pub key: Option<&'a str>,
    /// The hosted tier as a whole.
    pub hosted: bool,
    /// A model on the hosted tier, with the budgets that the configuration gives it.
    pub model: Option<(&'a str, &'a [Budget])>,
}

impl<'a> Owners<'a> {
    /// A tenant alone.
    pub fn tenant(name: &'a str) -> Self {
        Self { tenant: Some(name), ..Self::default() }
    }

    /// The name under which the hosted tier is looked up.
    pub(crate) fn hosted_owner(&self) -> Option<&'static str> {
        self.hosted.then_some(HOSTED_OWNER)
    }
}

/// A budget that cannot take a request. Amounts are in `unit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// What kind of owner it has.
    pub scope: Scope,
    /// Its owner: a group's, tenant's or model's name, a key's id, `*` for the hosted tier as a whole.
    pub owner: String,
    /// Its period.
    pub period: Period,
    /// What its amounts count.
    pub unit: Unit,
    /// On which workers.
    pub tier: BudgetTier,
    /// How much it has.
    pub limit: u64,
    /// How much is used.
    pub used: u64,
    /// How much is reserved by requests in flight.
    pub reserved: u64,
    /// How much the request would have reserved.
    pub wanted: u64,
    /// When it starts anew.
    pub resets_at: UnixMicros,
}

/// Why a reservation was not granted. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A budget of its group, tenant or key has no room.
    Budget(Exhausted),
    /// It was for a task, whose claim is not in force.
    LeaseLost(LeaseLost),
    /// It was for a task, and the budget of its project or of the fleet has no room.
    Fleet(FleetExhausted),
}

impl From<Exhausted> for Refused {
    fn from(exhausted: Exhausted) -> Self {
        Self::Budget(exhausted)
    }
}

impl From<LeaseLost> for Refused {
    fn from(lost: LeaseLost) -> Self {
        Self::LeaseLost(lost)
    }
}

impl From<FleetExhausted> for Refused {
    fn from(exhausted: FleetExhausted) -> Self {
        Self::Fleet(exhausted)
    }
}

/// How a budget stands. Amounts are in `unit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BudgetLeft {
    /// What kind of owner it has.
    pub scope: Scope,
    /// Its owner: a group's, tenant's or model's name, a key's id, `*` for the hosted tier as a whole.
    pub owner: String,
    /// Its period.
    pub period: Period,
    /// What its amounts count.
    pub unit: Unit,
    /// On which workers.
    pub tier: BudgetTier,
    /// How much it has.
    pub limit: u64,
    /// How much is used.
    pub used: u64,
    /// How much is reserved by requests in flight.
    pub reserved: u64,
    /// When it starts anew.
    pub resets_at: UnixMicros,
}

/// What a reservation was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Whether the request may go to hosted workers. False where that was not asked for.
    pub hosted: bool,
    /// Why it may not, where it was asked for: the budget that has no room for it there.
    pub why: Option<Exhausted>,
}
