//! Requests that are queued or in flight, and the end of a request.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attempt::AttemptBody;
use super::live::ServiceView;
use crate::weight_number::WeightNumber;

/// State of a request in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// The request is queued for a slot.
    Waiting,
    /// The request has a slot at a worker.
    InFlight,
}

/// A request that is queued or in flight.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Request)]
pub struct RequestBody {
    /// Id of the request, as in the response header `x-fairgate-request-id`.
    pub id: String,
    /// Name of the request's pool.
    pub pool: String,
    /// State of the request: `waiting` or `in_flight`.
    pub state: RequestState,
    /// Group of the client's tenant.
    pub group: Option<String>,
    /// Tenant of the client's key.
    pub tenant: Option<String>,
    /// Id of the client's key.
    pub key: Option<String>,
    /// Project of the client's task; null unless the request came with a task key.
    pub project: Option<String>,
    /// Task of the client; null unless the request came with a task key.
    pub task: Option<String>,
    /// Policy class in which the request is queued; null if it has no class.
    pub class: Option<String>,
    /// Agent that the client named; null if the client named none.
    pub agent: Option<String>,
    /// Session that the client named; null if the client named none.
    pub session: Option<String>,
    /// Priority of the request within its queue; a higher priority goes first. A retry may have a higher priority than
    /// the request asked for.
    pub priority: i64,
    /// Weight of the request in the queue depth of a `load` node; null if the pool's policy has no such node.
    #[schema(value_type = Option<f64>)]
    pub weight: Option<WeightNumber>,
    /// Worker that the request asked for, as `name` or `name/rank`; null if it asked for none.
    pub pin: Option<String>,
    /// Taints that the worker of the request must have.
    pub requires: Vec<String>,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` or `money`.
    #[serde(default)]
    pub unit: String,
    /// Estimated cost of the request, in the unit of the pool. A tenant sees `cost_uncached` here.
    #[serde(default)]
    pub cost: u64,
    /// Estimated cost as if no part of the prompt were cached, in the unit of the pool. Null if the
    /// request has ended since the snapshot.
    pub cost_uncached: Option<u64>,
    /// The same as `cost`; null if the pool does not count tokens.
    pub cost_tokens: Option<u64>,
    /// The same as `cost_uncached`; null if the pool does not count tokens.
    pub cost_uncached_tokens: Option<u64>,
    /// Time at which the request was submitted to its pool, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub submitted_at: String,
    /// Time in the queue until now, or until the grant if the request is in flight, in microseconds.
    pub waited_us: u64,
    /// Expected wait in milliseconds. In a list of requests, this is the number of queued requests in the request's
    /// flow ÷ the flow's grants per second in the last minute, which is the wait of the flow's last request. For a
    /// single request, this is `expected_wait_ms` of `waiting`. Null if the request is in flight, or nothing was
    /// granted in the last minute.
    pub expected_wait_ms: Option<u64>,
    /// Time since the grant, in microseconds; null if the request is queued.
    pub in_flight_us: Option<u64>,
    /// Worker that runs the request; null if the request is queued, or if the pool has no workers. Also null for a
    /// tenant in a pool whose tenants share a cache, because the worker would show what others have cached.
    pub worker: Option<String>,
}

/// Requests that are queued or in flight, in order of arrival in each pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RequestList)]
pub struct RequestList {
    /// The requests that match the filter, up to the limit.
    pub items: Vec<RequestBody>,
    /// Number of matching requests that are not in `items`, because they are beyond the limit.
    pub omitted: u64,
}

/// State of a request, with the reasons for it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RequestDetail)]
pub struct RequestDetail {
    /// Id of the request, as in the call.
    pub id: String,
    /// State of the request: `waiting`, `in_flight` or `ended`.
    pub state: String,
    /// The state and the reason for it, in one sentence.
    #[serde(default)]
    pub summary: String,
    /// Expected wait in milliseconds, as in `waiting`. Null unless the request waits.
    pub expected_wait_ms: Option<u64>,
    /// The request, if it is queued or in flight.
    pub request: Option<RequestBody>,
    /// Requests ahead of this request, and the flows that contain it; null unless it is queued.
    pub waiting: Option<WaitingBody>,
    /// Explanation of the state, one sentence per entry.
    pub story: Vec<String>,
    /// Rows of the ledger, if the request has ended or was tried before.
    pub attempts: Vec<AttemptBody>,
}

/// Requests ahead of a queued request, and the flows that contain it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Waiting)]
pub struct WaitingBody {
    /// Number of grants before the grant of this request, if no further request arrives. Null if
    /// this request could never be granted in the current state.
    pub grants_ahead: Option<u64>,
    /// Number of other requests that are before this request in its queue.
    pub ahead_in_queue: u64,
    /// Expected wait in milliseconds: (grants ahead + 1) ÷ the pool's grants per second of the last minute. Null if
    /// nothing was granted in that minute, or the request could never be granted in the current state.
    pub expected_wait_ms: Option<u64>,
    /// Requests that would be granted before this request, by flow.
    pub ahead: Vec<AheadBody>,
    /// Flows that contain the request, from the root down.
    pub levels: Vec<LevelBody>,
}

/// Requests of one flow that would be granted before another request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Ahead)]
pub struct AheadBody {
    /// Path of the flow, from the root down. A tenant does not see the names of other tenants.
    pub path: Vec<String>,
    /// Number of these requests.
    pub requests: u64,
    /// Sum of the costs of these requests, in the unit of the pool. Null for a tenant if the tenants of the pool share
    /// cached prompts.
    pub cost: Option<u64>,
    /// The same as `cost`; null if the pool does not count tokens.
    pub tokens: Option<u64>,
}

/// One level of a queued request's path through the policy.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Level)]
pub struct LevelBody {
    /// Attribute by which flows are named at this level.
    pub by: String,
    /// Name of the flow at this level.
    pub flow: String,
    /// Readiness of the flow: `ready`, `held` (by an operator), `at_cap` (its cap is reached) or `blocked` (nothing in
    /// it can be granted now, although the pool has a free slot).
    pub readiness: String,
    /// Number of queued requests in the flow.
    pub waiting: u32,
    /// Number of the flow's requests in flight.
    pub in_flight: u32,
    /// Service that the flow got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

impl RequestState {
    /// Returns the name of the state in JSON bodies.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::InFlight => "in_flight",
        }
    }
}
