//! The API of leases, which are slots for programs that call a provider themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json_field;
use crate::weight_number::WeightNumber;

/// Path of the lease API.
pub const LEASES: &str = "/v1/leases";

/// Body of a request that submits a lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LeaseSubmission)]
pub struct LeaseSubmissionBody {
    /// Name of the pool. May be left out if only one pool leases its slots.
    #[schema(value_type = Option<String>)]
    pub pool: Option<Box<str>>,
    /// The client's own id for the lease. A repeated submission with the same id returns the same lease.
    #[schema(value_type = Option<String>)]
    pub id: Option<Box<str>>,
    /// Name of the client program, with which the program can ask for the changes of all its leases
    /// at once.
    #[schema(value_type = Option<String>)]
    pub client: Option<Box<str>>,
    /// The agent that makes the call, if the pool's policy shares by agent.
    #[schema(value_type = Option<String>)]
    pub agent: Option<Box<str>>,
    /// The session of the call, if the pool's policy shares by session.
    #[schema(value_type = Option<String>)]
    pub session: Option<Box<str>>,
    /// Class of the call, if the key may choose one.
    #[schema(value_type = Option<String>)]
    pub class: Option<Box<str>>,
    /// Priority of the call; a higher number goes first within its flow. 0 if absent.
    pub priority: i64,
    /// Weight of the call in the queue depth of a `load` node: 0.001 to 1 000 000, with at most
    /// three decimals. The weight may not exceed the larger of its model's weight and the key's
    /// `weight_max`. If absent, the call has the weight of its model, or 1 without a model.
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1_000_000, multiple_of = 0.001)]
    pub weight: Option<WeightNumber>,
    /// Model of the call, for the ledger and the prices. It must be in the key's list of models, if the key has one.
    pub model: Option<String>,
    /// Expected charge, in weighted tokens.
    pub cost: Option<u64>,
    /// Input tokens that the call is expected to use.
    pub input_tokens: Option<u64>,
    /// Output tokens that the call is expected to use.
    pub output_tokens: Option<u64>,
    /// The longest wait for the slot, from the submission, in milliseconds: 1 to 86400000. After that the lease is
    /// refused with 504 `deadline_passed`. If absent, the deadline of its key or class applies. The wait is never
    /// longer than the pool's `queue_timeout`.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<u64>,
    /// Time to wait for the grant before this request is answered, in milliseconds; at most half of the lease's TTL.
    pub wait_ms: u64,
}

/// The result of a call. If the client states no tokens, the estimate is charged.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = LeaseSettlement)]
pub struct LeaseSettlementBody {
    /// Charge in weighted tokens; computed with the pool's weights if absent. If the price of the time in the slot is
    /// higher, that price is charged instead.
    pub tokens: Option<u64>,
    /// Input tokens that the call used.
    pub input_tokens: Option<u64>,
    /// Input tokens that the provider read from its cache; included in `input_tokens`.
    pub cached_tokens: Option<u64>,
    /// Output tokens that the call used.
    pub output_tokens: Option<u64>,
    /// Outcome of the call; `completed` if absent.
    pub outcome: LeaseOutcome,
    /// HTTP status of the provider's response, if the client has it.
    pub status: Option<u16>,
    /// Body of the provider's response, if it was an error.
    pub body: String,
    /// Headers of the provider's response; those about rate limits are read.
    pub headers: BTreeMap<String, String>,
}

/// Outcome of a call. Both outcomes cost at least the price of the time in the slot.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LeaseOutcome)]
pub enum LeaseOutcome {
    /// The provider answered the call.
    #[default]
    Completed,
    /// The call has no usable answer.
    Failed,
}

/// A provider's response that refuses a call because of a limit.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseLimited)]
pub struct LeaseLimitedBody {
    /// HTTP status of the provider's response.
    pub status: u16,
    /// Headers of the provider's response; those about rate limits are read.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Body of the provider's response.
    #[serde(default)]
    pub body: String,
}

/// A lease, as its client sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Lease)]
pub struct LeaseBody {
    /// The gateway's id of the lease.
    pub id: String,
    /// The client's own id of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_id: Option<String>,
    /// Name of the pool.
    pub pool: String,
    /// Time after which the lease is lost unless its client renews it, in milliseconds.
    pub ttl_ms: u64,
    /// State of the lease now.
    pub state: LeaseState,
    /// Weight of the lease in the queue depth of a `load` node. Null if the pool's policy has no such node, so that
    /// weights have no effect.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json_field::nullable"
    )]
    #[schema(value_type = Option<f64>)]
    pub weight: Option<Option<WeightNumber>>,
    /// Expected wait in milliseconds: requests waiting in the lease's flow ÷ the flow's grants per second in the last
    /// minute. Present for a queued lease. Null if the gateway has not computed it for this response, or if nothing was
    /// granted in the last minute.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json_field::nullable"
    )]
    pub expected_wait_ms: Option<Option<u64>>,
    /// Number of this grant of the lease: 1 for the first grant, and one more after each refusal by
    /// the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Time in the queue, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// Weighted tokens that the lease's tenant was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<u64>,
    /// Tokens that the call took from token budgets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_tokens: Option<u64>,
    /// Price of the call, in millionths of the installation's currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money_micro_units: Option<u64>,
    /// Refusal of the lease; present only in the list of a client program's changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<LeaseRefusal>,
}

/// The state of a lease. `lost` and `refused` occur only in the list of changes, because a request for one lost or
/// refused lease gets an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// The lease waits for a slot.
    #[default]
    Queued,
    /// The client may make its call.
    Granted,
    /// The client reported the end of its call.
    Settled,
    /// The client cancelled the lease.
    Cancelled,
    /// The client did not renew the lease in time.
    Lost,
    /// The gateway refused the lease.
    Refused,
}

/// The refusal of a lease.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseRefusal {
    /// HTTP status of the refusal.
    pub status: u16,
    /// Stable code of the refusal.
    pub code: String,
    /// Text that says why, for people.
    pub message: String,
    /// Milliseconds after which to try again, if known.
    pub retry_after_ms: Option<u64>,
}

/// An error in OpenAI's format.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = DialectError)]
pub struct DialectErrorBody {
    /// The error with its code and message.
    pub error: DialectErrorFields,
}

/// The fields of an error in OpenAI's format.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = DialectErrorFields)]
pub struct DialectErrorFields {
    /// Text that says what happened, for people.
    pub message: String,
    /// Kind of the error, such as `invalid_request_error`.
    pub r#type: String,
    /// Name of the wrong field; null if the error is not about one field.
    pub param: Option<String>,
    /// Stable code of the error.
    pub code: String,
}

/// The leases of a client program that have changed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LeaseChangesBody {
    /// The changed leases, in their current state.
    pub leases: Vec<LeaseBody>,
    /// Number of the last change in this list, which the client sends as `after` in its next request.
    pub latest: u64,
}
