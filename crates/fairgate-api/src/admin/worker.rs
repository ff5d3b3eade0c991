//! Workers of a pool, their load and the limits of their providers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::checked_text::AsciiName;
use super::schema_names::TaintNameSchema;
use crate::json_field;
use crate::whole_number::JsonWholeNumber;

/// A worker of a pool, with its state and load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerBody {
    /// Name of the worker; unique within the pool.
    pub name: String,
    /// State of the worker: `up`, `drained` (an operator stopped new requests), `unhealthy` (health checks fail),
    /// `broken` (requests to it fail), `overloaded` (its engine is past a threshold), `paused` (its provider asked for
    /// a pause) or `out` (its provider's account is spent or blocked).
    pub state: String,
    /// Reason for the state; null if nothing more is known.
    pub reason: Option<String>,
    /// Time since which the worker takes no requests, RFC 3339 in UTC. A failed trial does not
    /// change this time. Null unless the state is `unhealthy` or `broken`.
    #[schema(format = DateTime)]
    pub down_since: Option<String>,
    /// Time at which the worker is tried again, RFC 3339 in UTC. For an `unhealthy` worker, this is
    /// the next health check; for a `broken` one, the end of the circuit's pause. Null if the next
    /// request tries it, and in every other state.
    #[schema(format = DateTime)]
    pub retry_at: Option<String>,
    /// Origin of the worker: `file`, `api` (added while the gateway ran) or `dns`.
    pub source: String,
    /// Address to which requests are sent: the configured URL, or the address that DNS returned. `leases` for a worker
    /// whose slots client programs lease.
    pub address: String,
    /// Number of requests in flight on the worker.
    pub in_flight: u64,
    /// Input tokens of the requests in flight that the worker still has to process, as far as the gateway knows.
    pub prefill_tokens: u64,
    /// Maximum number of requests in flight; null means no maximum.
    pub slots: Option<u64>,
    /// Last change of the slots, with its reason; null if the slots never changed.
    pub slots_reason: Option<String>,
    /// Latest metrics of the worker's engine; null if no metrics were read.
    pub engine: Option<EngineBody>,
    /// Cache hits that the worker reported in its responses; null if the worker reported none.
    pub cache: Option<CacheBody>,
    /// Assumed size of the worker's cache; null if the pool has no `prefix_index`.
    pub cache_size: Option<CacheSizeBody>,
    /// Tier of the worker. 0 is an own worker; a higher tier is used when no lower one has room.
    pub tier: u32,
    /// Limits of the provider's account; null if the worker uses no account. If the worker's models
    /// have separate limits, this object has no rates, and shows a pause or a reason only if it
    /// concerns all of these models.
    pub quota: Option<QuotaBody>,
    /// Limits of each model, with the model's name at the provider. Empty if the worker has one model, or if all models
    /// share the account's limits. `*` stands for all models beyond the first 64.
    pub models: Vec<ModelQuotaBody>,
}

/// Limits of one model of a provider's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ModelQuota)]
pub struct ModelQuotaBody {
    /// Name of the model, as the provider has it.
    pub model: String,
    /// Limits of the model.
    pub quota: QuotaBody,
}

/// Cached tokens that a worker reported in its responses, counted since the worker was added. Responses without a
/// number of cached tokens are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Cache)]
pub struct CacheBody {
    /// Input tokens of all counted responses.
    pub input_tokens: u64,
    /// Input tokens that the worker reported as cached.
    pub cached_tokens: u64,
    /// Input tokens that the gateway expected to be cached when the requests arrived. Null if the pool has neither
    /// `prefix_index` nor `sticky_sessions`.
    pub expected_tokens: Option<u64>,
}

/// Size of a worker's cache, in tokens. The prefix index uses the smaller of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CacheSize)]
pub struct CacheSizeBody {
    /// Size that the engine's metrics state, or `cache_tokens` of the pool's `prefix_index` if they state none.
    pub believed_tokens: u64,
    /// Size that the gateway learned from the numbers of cached tokens in the worker's answers; at least 1/32
    /// of `believed_tokens`. Null unless the answers show a cache smaller than `believed_tokens`.
    pub learned_tokens: Option<u64>,
}

/// Metrics of an engine, with its overload thresholds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Engine)]
pub struct EngineBody {
    /// Kind of the engine: `vllm`, `sglang` or `llama.cpp`.
    pub kind: String,
    /// Number of requests that the engine is processing.
    pub running: u64,
    /// Number of requests in the engine's own queue.
    pub waiting: u64,
    /// Fraction of the cache that is in use, in thousandths; null if the engine does not report it.
    pub cache_used_thousandths: Option<u64>,
    /// Size of the cache in tokens; null if the engine does not report it.
    pub cache_tokens: Option<u64>,
    /// Number of requests in the engine's own queue above which the engine is overloaded. Null means that the queue
    /// never counts as overload.
    pub overload_waiting: Option<u64>,
    /// Fraction of the engine's cache in use, in thousandths, above which the engine is overloaded. Null means that the
    /// cache never counts as overload.
    pub overload_cache_thousandths: Option<u64>,
}

/// Quotas of a provider's account, with the current pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Quota)]
pub struct QuotaBody {
    /// Name of the account, as in the configuration.
    pub account: String,
    /// Requests that the account allows per minute; null means no limit.
    pub requests_per_minute: Option<u64>,
    /// Origin of `requests_per_minute`: `file`, `header` (the provider sent it) or `learned`.
    pub requests_from: Option<String>,
    /// Tokens, as the provider counts them, that the account allows per minute; null means no limit.
    pub tokens_per_minute: Option<u64>,
    /// Origin of `tokens_per_minute`: `file` or `header`.
    pub tokens_from: Option<String>,
    /// Time until the pause after a provider's refusal ends and requests are sent again, in milliseconds. Null if there
    /// is no pause.
    pub paused_ms: Option<u64>,
    /// Pause that the provider asked for, in milliseconds. The gateway pauses for at most 60 000 ms.
    pub asked_ms: Option<u64>,
    /// The provider's reason why the account is spent or blocked. The gateway then sends no
    /// client's request to the account. Once a minute, the gateway sends a small request of its
    /// own, and it uses the account again when the provider accepts that request. A person has to
    /// resolve the problem with the provider. Null if the account is usable.
    pub out: Option<String>,
}

/// The workers of a pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = WorkerList)]
pub struct WorkerList {
    /// The workers: first those of the configuration file and of DNS in the file's order, then those that were added.
    pub items: Vec<WorkerBody>,
}

/// Body of a request that adds a worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewWorker)]
pub struct NewWorker {
    /// Name of the worker: 1 to 64 letters, digits and `- _ .`. The name must differ from the names of all upstreams of
    /// the configuration file and of all other workers.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub name: String,
    /// Base URL of the worker, such as `http://10.0.0.7:8000`.
    pub url: String,
    /// Upstream of the configuration file whose settings the worker takes over: credential, timeouts, health check,
    /// metrics, and every setting that is absent here.
    pub like: String,
    /// Maximum number of requests in flight on each rank of the worker; the maximum of `like` if absent.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1_000_000)]
    pub slots: Option<JsonWholeNumber>,
    /// Tier of the worker, 0 to 100; the tier of `like` if absent.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = u32, required = false, maximum = 100)]
    pub tier: Option<JsonWholeNumber>,
    /// Number of data-parallel ranks; the number of `like` if absent.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = u32, required = false, minimum = 1, maximum = 65_536)]
    pub ranks: Option<JsonWholeNumber>,
    /// Taints that requests may require of the worker; the taints of `like` if absent.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Vec<TaintNameSchema>, required = false)]
    pub taints: Option<Vec<AsciiName<128>>>,
    /// Maximum number of tokens in one batch (vLLM's `--max-num-batched-tokens`); the maximum of `like` if absent.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = u64, required = false, minimum = 1)]
    pub batch_tokens: Option<JsonWholeNumber>,
}

/// Changes to a worker. Only the overload thresholds can be changed. Above a threshold, the
/// worker's engine counts as overloaded and gets no new requests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WorkerPatch)]
pub struct WorkerPatch {
    /// The thresholds; null restores those of the configuration file.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    pub overload: Option<OverloadBody>,
}

/// Thresholds for an engine's metrics, above which the engine counts as overloaded.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Overload)]
pub struct OverloadBody {
    /// Number of requests in the engine's own queue above which the engine is overloaded. If absent, the queue never
    /// counts as overload.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = u64, required = false)]
    pub waiting: Option<JsonWholeNumber>,
    /// Fraction of the engine's cache in use, in thousandths, above which the engine is overloaded. If absent, the
    /// cache never counts as overload.
    #[serde(
        default,
        deserialize_with = "json_field::present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1000)]
    pub cache_thousandths: Option<JsonWholeNumber>,
}
