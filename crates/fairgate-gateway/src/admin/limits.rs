//! Limits, as the API shows them: one number each.

use fairgate_store::{Budget, Limits, Period};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a tenant, with all its keys, or a key may use. What is absent or null is not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Limits)]
pub(super) struct LimitsBody {
    /// How many of its requests may be in flight at once, in each pool.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) in_flight: Option<u64>,
    /// How many of its requests may wait at once.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_requests: Option<u64>,
    /// How many bytes of request bodies it may have waiting at once.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) queued_bytes: Option<u64>,
    /// Requests a minute.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) requests_per_minute: Option<u64>,
    /// Tokens a minute, as charged.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_minute: Option<u64>,
    /// Tokens a calendar day (UTC), as charged.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_day: Option<u64>,
    /// Tokens a calendar month (UTC), as charged.
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_u64)]
    pub(super) tokens_per_month: Option<u64>,
}

impl From<&Limits> for LimitsBody {
    fn from(limits: &Limits) -> Self {
        let budget = |period| {
            limits.budgets.iter().find(|budget| budget.period == period).map(|budget| budget.tokens)
        };
        Self {
            in_flight: limits.in_flight,
            queued_requests: limits.queued_requests,
            queued_bytes: limits.queued_bytes,
            requests_per_minute: limits.requests_per_minute,
            tokens_per_minute: limits.tokens_per_minute,
            tokens_per_day: budget(Period::Day),
            tokens_per_month: budget(Period::Month),
        }
    }
}

impl From<LimitsBody> for Limits {
    fn from(body: LimitsBody) -> Self {
        let budgets = [(Period::Day, body.tokens_per_day), (Period::Month, body.tokens_per_month)];
        let budget = |(period, tokens): (_, Option<u64>)| Some(Budget { tokens: tokens?, period });
        Self {
            in_flight: body.in_flight,
            queued_requests: body.queued_requests,
            queued_bytes: body.queued_bytes,
            requests_per_minute: body.requests_per_minute,
            tokens_per_minute: body.tokens_per_minute,
            budgets: budgets.into_iter().filter_map(budget).collect(),
        }
    }
}
