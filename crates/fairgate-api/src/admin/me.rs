//! Shares, limits and budgets of a tenant, as the tenant itself sees them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BudgetBody, ClassView, FlowNow, LimitsBody, ServiceView};
use crate::rights::RightsBody;

/// Shares, limits and budgets of the key's tenant.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Me)]
pub struct MeBody {
    /// Name of the tenant's group.
    pub group: String,
    /// Name of the key's tenant.
    pub tenant: String,
    /// Id of the key; not secret.
    pub key: String,
    /// Rights of the key: the settings that the key may choose for its requests.
    #[serde(flatten)]
    pub rights: RightsBody,
    /// Limits of the tenant, with the requests and tokens that are left of the limits per minute.
    pub tenant_limits: LimitsLeftBody,
    /// Limits of the key, with the requests and tokens that are left of the limits per minute.
    pub key_limits: LimitsLeftBody,
    /// All budgets that requests of the key use, namely those of the tenant, the key and the group. If the key may use
    /// hosted workers, the budgets of the hosted tier and of models on hosted workers are included.
    pub budgets: Vec<BudgetBody>,
    /// The tenant's share of each pool.
    pub pools: Vec<MyPoolBody>,
}

/// Limits, with the requests and tokens that are left of the limits per minute. A null number means no limit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitsLeft)]
pub struct LimitsLeftBody {
    /// The limits themselves, without their use.
    pub limits: LimitsBody,
    /// Number of requests that may be sent now under the limit `requests_per_minute`.
    pub requests_left: Option<i64>,
    /// Tokens that are left now under the limit `tokens_per_minute`. Below 0 if more tokens were used than the limit
    /// allows.
    pub tokens_left: Option<i64>,
}

/// A tenant's share of one pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = MyPool)]
pub struct MyPoolBody {
    /// Name of the pool, as in the configuration.
    pub pool: String,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` or `money`. Fields whose names contain no
    /// unit are in this unit.
    pub unit: String,
    /// The state of the tenant's requests and the reason for it, in one sentence.
    pub summary: String,
    /// Maximum number of requests in flight in the pool, over all tenants.
    pub slots: u64,
    /// Number of the tenant's requests in flight.
    pub in_flight: u64,
    /// Expected wait of the tenant's last waiting request, in milliseconds: waiting requests of the
    /// tenant ÷ the tenant's grants per second in the last minute. Null if none waits, if nothing
    /// was granted in that minute, or if the policy does not share by tenants.
    pub expected_wait_ms: Option<u64>,
    /// State of the tenant's requests now, and the tenant's part of the last minute. The parts are null if the
    /// tenants of the pool share cached prompts.
    #[serde(flatten)]
    pub now: FlowNow,
    /// Former name of `slots`.
    #[schema(deprecated)]
    pub max_in_flight: u64,
    /// Former name of `waiting`.
    #[schema(deprecated)]
    pub queued: u64,
    /// Former name of `cap`.
    #[schema(deprecated)]
    pub slot_cap: Option<u64>,
    /// Part of the pool that the tenant's weight gives it at this instant, among the tenants that have requests now, from
    /// 0 to 1.
    pub weight_share: Option<f64>,
    /// Lag: the service that the tenant is owed, in the unit of the pool. Below 0, the tenant got
    /// more than its share. Null if the tenants of the pool share cached prompts. All counts of
    /// service in the pool are then null, because they would show what others have sent.
    pub lag: Option<i64>,
    /// Maximum possible lag now. Null if the tenant has no queued request, or if the policy divides slots by weight
    /// (`partition`).
    pub lag_bound: Option<i64>,
    /// The same as `lag`; null if the pool does not count tokens.
    pub lag_tokens: Option<i64>,
    /// The same as `lag_bound`; null if the pool does not count tokens.
    pub lag_bound_tokens: Option<i64>,
    /// Service that the tenant got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
    /// Policy classes that the key may use; empty if the pool's policy has no classes. The numbers of a class are the
    /// sums over all tenants.
    pub classes: Vec<ClassView>,
    /// Explanation of the share, in words.
    pub why: String,
}
