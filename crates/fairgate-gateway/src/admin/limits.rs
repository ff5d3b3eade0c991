//! Limits, as the API shows them: one number each.

use fairgate_store::{Budget, Limits, Period};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::name::{Object, Whole};

/// What a tenant, with all its keys, or a key may use. What is absent or null is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Limits)]
pub(super) struct LimitsBody {
    /// How many of its requests may be in flight at once, in each pool.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) in_flight: Option<Whole>,
    /// How many of its requests may wait at once.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_requests: Option<Whole>,
    /// How many bytes of request bodies it may have waiting at once.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_bytes: Option<Whole>,
    /// Requests a minute.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) requests_per_minute: Option<Whole>,
    /// Tokens a minute, as charged.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_minute: Option<Whole>,
    /// Tokens a calendar day (UTC), as charged.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_day: Option<Whole>,
    /// Tokens a calendar month (UTC), as charged.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_month: Option<Whole>,
}

impl From<&Limits> for LimitsBody {
    fn from(limits: &Limits) -> Self {
        let budget = |period| {
            limits.budgets.iter().find(|budget| budget.period == period).map(|b| Whole(b.tokens))
        };
        Self {
            in_flight: limits.in_flight.map(Whole),
            queued_requests: limits.queued_requests.map(Whole),
            queued_bytes: limits.queued_bytes.map(Whole),
            requests_per_minute: limits.requests_per_minute.map(Whole),
            tokens_per_minute: limits.tokens_per_minute.map(Whole),
            tokens_per_day: budget(Period::Day),
            tokens_per_month: budget(Period::Month),
        }
    }
}

impl From<Object<LimitsBody>> for Limits {
    fn from(body: Object<LimitsBody>) -> Self {
        body.0.into()
    }
}

impl From<LimitsBody> for Limits {
    fn from(body: LimitsBody) -> Self {
        let budgets = [(Period::Day, body.tokens_per_day), (Period::Month, body.tokens_per_month)];
        let budget =
            |(period, tokens): (_, Option<Whole>)| Some(Budget { tokens: tokens?.0, period });
        Self {
            in_flight: body.in_flight.map(|limit| limit.0),
            queued_requests: body.queued_requests.map(|limit| limit.0),
            queued_bytes: body.queued_bytes.map(|limit| limit.0),
            requests_per_minute: body.requests_per_minute.map(|limit| limit.0),
            tokens_per_minute: body.tokens_per_minute.map(|limit| limit.0),
            budgets: budgets.into_iter().filter_map(budget).collect(),
        }
    }
}
