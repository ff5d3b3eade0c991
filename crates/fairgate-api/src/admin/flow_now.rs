//! State of a flow now, and its parts of the tokens of the last minute.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a flow now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowCondition {
    /// Nothing of it waits. Requests of it may be in flight.
    #[default]
    Idle,
    /// Requests of it wait.
    Waiting,
    /// An operator holds it, or a flow around it.
    Held,
    /// It has as many requests in flight as its cap allows.
    AtCap,
    /// A request of it was refused in the last minute, because a budget is used up.
    OverBudget,
    /// A request of it was refused in the last minute, because of a limit per minute.
    RateLimited,
    /// The tenant is disabled.
    Disabled,
    /// No request of the tenant has come to this pool, as far as the gateway knows: none waits or was served lately, and
    /// none was refused.
    NeverSeen,
}

/// The last refusal of a flow's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LastRefusal {
    /// Stable code of the refusal, such as `queue_full`.
    pub code: String,
    /// Time of the refusal, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub at: String,
}

/// State of a flow now, and its part of the last `window_s` seconds. A part is a number from 0 to 1, of what all
/// flows of the same kind in the pool got, were due or asked for; null if that was nothing, or if the policy does not
/// divide by this kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FlowNow {
    /// State of the flow. The first of these that holds: `disabled`, `held`, `over_budget`, `rate_limited`, `at_cap`,
    /// `waiting`, `idle`.
    pub state: FlowCondition,
    /// Number of requests that wait for a slot.
    pub waiting: u64,
    /// Maximum number of requests in flight; null means no maximum.
    pub cap: Option<u64>,
    /// Part of the service that the flow was due.
    pub due_share: Option<f64>,
    /// Part of the service that the flow got. A flow with more refunds of estimates than grants has 0.
    pub got_share: Option<f64>,
    /// Part of the service that was asked for.
    pub asked_share: Option<f64>,
    /// Cost that the flow's requests were expected to have when they came, granted or not, in the unit of the pool. Null if
    /// the policy does not divide by this kind.
    pub asked: Option<u64>,
    /// The same as `asked`; null if the pool does not count tokens.
    pub asked_tokens: Option<u64>,
    /// Time over which the parts, `asked`, `refused` and the waits are counted, in seconds: 60, or less after a
    /// start. They are counted every 5 seconds.
    pub window_s: u64,
    /// True if the policy promises the flow its share. False in deficit round robin, in load and bands
    /// nodes and in a partitioned node; being outside the bound is then no fault.
    pub promised: bool,
    /// Number of requests that were refused.
    pub refused: u64,
    /// The last refusal of one of its requests; null if there was none since the gateway started.
    pub last_refusal: Option<LastRefusal>,
    /// Median wait of the requests that were granted, in milliseconds.
    pub wait_p50_ms: Option<u64>,
    /// Wait in milliseconds that 95 % of the granted requests did not exceed.
    pub wait_p95_ms: Option<u64>,
    /// True if an operator holds the flow.
    #[serde(skip)]
    pub held: bool,
}

impl FlowNow {
    /// Clears the field that counts tokens by its name.
    pub fn clear_token_names(&mut self) {
        self.asked_tokens = None;
    }
}
