//! State of a flow now, and its parts of the tokens of the last minute.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a flow now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowCondition {
    /// No request of the flow waits. Some of its requests may be in flight.
    #[default]
    Idle,
    /// Requests of the flow wait.
    Waiting,
    /// An operator holds the flow, or a flow that contains it.
    Held,
    /// The flow has as many requests in flight as its cap allows.
    AtCap,
    /// A request of the flow was refused in the last minute, because a budget is used up.
    OverBudget,
    /// A request of the flow was refused in the last minute, because of a limit per minute.
    RateLimited,
    /// The tenant is disabled.
    Disabled,
    /// The gateway knows of no request of the tenant in this pool: none waits, was served lately or
    /// was refused.
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

/// State of a flow now, and its shares of the service in the last `window_s` seconds. A share is a
/// number from 0 to 1: the flow's part of the sum over all flows of the same kind in the pool. A
/// share is null if that sum is 0, or if the policy does not divide by this kind.
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
    /// Share of the service that the flow was due.
    pub due_share: Option<f64>,
    /// Share of the service that the flow got. It is 0 if the flow got back more for estimates that
    /// were too high than its grants cost.
    pub got_share: Option<f64>,
    /// Share of the service that the flow asked for.
    pub asked_share: Option<f64>,
    /// Sum of the estimated costs of the requests that the flow submitted, granted or not, in the
    /// unit of the pool. Null if the policy does not divide by this kind.
    pub asked: Option<u64>,
    /// The same as `asked`; null if the pool does not count tokens.
    pub asked_tokens: Option<u64>,
    /// Time over which the parts, `asked`, `refused` and the waits are counted, in seconds: 60, or less after a
    /// start. They are counted every 5 seconds.
    pub window_s: u64,
    /// True if the policy promises the flow its share. False in deficit round robin, in load and
    /// bands nodes, and in a partitioned node. If false, a difference outside the bound is no
    /// fault.
    pub promised: bool,
    /// Number of the flow's requests that were refused.
    pub refused: u64,
    /// The last refusal of one of the flow's requests; null if there was none since the gateway
    /// started.
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
    /// Clears `asked_tokens`, for a pool that does not count tokens.
    pub fn clear_token_names(&mut self) {
        self.asked_tokens = None;
    }
}
