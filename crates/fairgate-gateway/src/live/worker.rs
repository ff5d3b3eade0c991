//! Views of workers and of their providers' limits.

use std::time::Duration;

use fairgate_core::snapshot::Snapshot;
use serde::Serialize;
use utoipa::ToSchema;

use crate::pools::{CacheSizeView, CacheView, EngineView, PoolHandle};
use crate::upstream::QuotaView;

/// A worker of a pool, with its state and load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerBody {
    /// Name of the worker; unique within the pool.
    pub name: String,
    /// State of the worker: `up`, `drained` (an operator stopped new requests), `unhealthy` (health checks fail),
    /// `broken` (requests to it fail), `overloaded` (its engine is past a threshold), `paused` (its provider asked for
    /// a pause) or `out` (its provider's account is spent or blocked).
    pub state: &'static str,
    /// Reason for the state; null if nothing more is known.
    pub reason: Option<String>,
    /// Origin of the worker: `file`, `api` (added while the gateway ran) or `dns`.
    pub source: &'static str,
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
    /// Limits of the provider's account; null if the worker uses no account. If each of the worker's models has limits
    /// of its own, this object has no rates, and shows a pause or a reason only if it concerns all of these models.
    pub quota: Option<QuotaBody>,
    /// Limits of each model, with the model's name at the provider. Empty if the worker has one model, or if all models
    /// share the account's limits. `*` stands for all models beyond the first 64.
    pub models: Vec<ModelQuotaBody>,
}

/// Limits of one model of a provider's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ModelQuota)]
pub struct ModelQuotaBody {
    /// Name of the model, as the provider has it.
    pub model: String,
    /// Limits of the model.
    pub quota: QuotaBody,
}

/// Cached tokens that a worker reported in its responses, counted since the worker was added. Responses without a
/// number of cached tokens are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
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

impl From<CacheView> for CacheBody {
    fn from(CacheView { input, cached, expected }: CacheView) -> Self {
        Self { input_tokens: input, cached_tokens: cached, expected_tokens: expected }
    }
}

/// Size of a worker's cache, in tokens. The prefix index uses the smaller one of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CacheSize)]
pub struct CacheSizeBody {
    /// Size that the engine's metrics state, or `cache_tokens` of the pool's `prefix_index` if they state none.
    pub believed_tokens: u64,
    /// Size that follows from the cached tokens that the worker reported, from 1/32 of `believed_tokens` to
    /// `believed_tokens`. Null unless the reports show a cache smaller than `believed_tokens`.
    pub learned_tokens: Option<u64>,
}

impl From<CacheSizeView> for CacheSizeBody {
    fn from(CacheSizeView { believed, learned }: CacheSizeView) -> Self {
        Self { believed_tokens: believed, learned_tokens: learned }
    }
}

/// Metrics of an engine, with its overload thresholds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Engine)]
pub struct EngineBody {
    /// Kind of the engine: `vllm`, `sglang` or `llama.cpp`.
    pub kind: &'static str,
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

impl From<EngineView> for EngineBody {
    fn from(engine: EngineView) -> Self {
        Self {
            kind: engine.kind,
            running: engine.running,
            waiting: engine.waiting,
            cache_used_thousandths: engine.cache_used_milli,
            cache_tokens: engine.cache_tokens,
            overload_waiting: engine.overload_waiting,
            overload_cache_thousandths: engine.overload_cache_milli,
        }
    }
}

/// Quotas of a provider's account, with the current pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Quota)]
pub struct QuotaBody {
    /// Name of the account, as in the configuration.
    pub account: String,
    /// Requests that the account allows per minute; null means no limit.
    pub requests_per_minute: Option<u64>,
    /// Origin of `requests_per_minute`: `file`, `header` (the provider sent it) or `learned`.
    pub requests_from: Option<&'static str>,
    /// Tokens, as the provider counts them, that the account allows per minute; null means no limit.
    pub tokens_per_minute: Option<u64>,
    /// Origin of `tokens_per_minute`: `file` or `header`.
    pub tokens_from: Option<&'static str>,
    /// Time until the pause after a provider's refusal ends and requests are sent again, in milliseconds. Null if there
    /// is no pause.
    pub paused_ms: Option<u64>,
    /// Pause that the provider asked for, in milliseconds. The gateway pauses for at most 60 000 ms.
    pub asked_ms: Option<u64>,
    /// The provider's reason why the account is spent or blocked. The gateway then sends no request of a client to the
    /// account. Once a minute it sends a small request of its own, and it resumes when the provider accepts that one. A
    /// person has to resolve the problem with the provider. Null if the account is usable.
    pub out: Option<String>,
}

impl From<QuotaView> for QuotaBody {
    fn from(quota: QuotaView) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            account: quota.account,
            requests_per_minute: quota.requests.map(|(rate, _)| rate),
            requests_from: quota.requests.map(|(_, from)| from),
            tokens_per_minute: quota.tokens.map(|(rate, _)| rate),
            tokens_from: quota.tokens.map(|(_, from)| from),
            paused_ms: quota.paused.map(ms),
            asked_ms: quota.asked.map(ms),
            out: quota.out,
        }
    }
}

/// Returns the views of a pool's workers; `snapshot` supplies the input tokens that the workers still have to process.
pub(crate) fn workers(snapshot: &Snapshot, pool: &PoolHandle) -> Vec<WorkerBody> {
    let workers = pool.workers().into_iter().map(|worker| WorkerBody {
        prefill_tokens: prefill_tokens(snapshot, &worker.name),
        name: worker.name,
        state: worker.state,
        reason: worker.reason,
        source: worker.source.name(),
        address: worker.address,
        in_flight: worker.in_flight,
        slots: worker.slots,
        slots_reason: worker.slots_reason,
        engine: worker.engine.map(Into::into),
        cache: worker.cache.map(Into::into),
        cache_size: worker.cache_size.map(Into::into),
        tier: worker.tier,
        quota: worker.quota.map(Into::into),
        models: worker
            .models
            .into_iter()
            .map(|(model, quota)| ModelQuotaBody { model, quota: quota.into() })
            .collect(),
    });
    workers.collect()
}

/// Sums the remaining prefill of all requests in flight on a worker, in tokens.
fn prefill_tokens(snapshot: &Snapshot, worker: &str) -> u64 {
    // The workers of an upstream's models are called `UPSTREAM/MODEL`; no upstream's name has a slash.
    let is_it = |name: &str| {
        let rest = name.strip_prefix(worker);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let workers = snapshot.workers.iter().flat_map(|workers| &workers.list);
    let numbers: Vec<_> =
        workers.filter(|it| is_it(&it.settings.name)).map(|it| it.number).collect();
    let flights = snapshot.requests.iter().filter_map(|request| request.flight.as_ref());
    let on_it = flights.filter(|flight| flight.place.is_some_and(|(on, _)| numbers.contains(&on)));
    on_it.map(|flight| flight.prefill.0).fold(0, u64::saturating_add)
}
