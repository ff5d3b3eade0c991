//! Workers and the limits of their providers, as they are shown.

use std::time::Duration;

use fairgate_core::snapshot::Snapshot;
use serde::Serialize;
use utoipa::ToSchema;

use crate::pools::{CacheView, EngineView, PoolHandle, QuotaView};

/// A worker of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Worker)]
pub struct WorkerBody {
    /// Its name.
    pub name: String,
    /// `up`, `drained` (an operator has it take nothing new), `unhealthy` (health checks fail), `broken` (requests fail on it),
    /// `overloaded` (its engine has too much to do), `paused` (its provider wants nothing for a while) or `out` (its provider's
    /// account is spent or blocked).
    pub state: &'static str,
    /// Why, where more can be said.
    pub reason: Option<String>,
    /// Where it is from: `file`, `api` (it was added while the gateway ran) or `dns`.
    pub source: &'static str,
    /// Where requests are sent: its url, or the address that was found.
    pub address: String,
    /// How many requests are in flight on it.
    pub in_flight: u64,
    /// Input tokens of these that it has not worked on yet, as far as the gateway knows.
    pub prefill_tokens: u64,
    /// How many it takes; null is any number.
    pub slots: Option<u64>,
    /// How its slots changed last and why; null where they have not.
    pub slots_reason: Option<String>,
    /// What its engine says of itself; null where that is not read.
    pub engine: Option<EngineBody>,
    /// What its answers said of its cache; null where none has said anything.
    pub cache: Option<CacheBody>,
    /// Its tier: 0 is an own worker, higher ones are used when no lower one has room.
    pub tier: u32,
    /// The limits of its provider's account; null where it is not hosted.
    pub quota: Option<QuotaBody>,
}

/// What the answers of a worker said of its cache, in tokens since the gateway knows the worker. Answers that do not say how much
/// was cached are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Cache)]
pub struct CacheBody {
    /// Input tokens of these answers.
    pub input_tokens: u64,
    /// How many of them were cached.
    pub cached_tokens: u64,
    /// How many of them the gateway expected to be cached there when the requests came; null where the pool has neither
    /// `prefix_index` nor `sticky_sessions`.
    pub expected_tokens: Option<u64>,
}

impl From<CacheView> for CacheBody {
    fn from(CacheView { input, cached, expected }: CacheView) -> Self {
        Self { input_tokens: input, cached_tokens: cached, expected_tokens: expected }
    }
}

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Engine)]
pub struct EngineBody {
    /// `vllm`, `sglang` or `llama.cpp`.
    pub kind: &'static str,
    /// Requests that it works on.
    pub running: u64,
    /// Requests in its own queue.
    pub waiting: u64,
    /// The part of its cache in use, in thousandths; null where it does not say.
    pub cache_used_thousandths: Option<u64>,
    /// How many tokens its cache holds; null where it does not say.
    pub cache_tokens: Option<u64>,
    /// It is overloaded where more requests than this wait in its own queue; null is never.
    pub overload_waiting: Option<u64>,
    /// It is overloaded where more than this part of its cache is in use, in thousandths; null is never.
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

/// The limits of a provider's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Quota)]
pub struct QuotaBody {
    /// The account's name.
    pub account: String,
    /// Requests a minute; null is no limit.
    pub requests_per_minute: Option<u64>,
    /// Where that number is from: `file`, `header` (the provider said so) or `learned`.
    pub requests_from: Option<&'static str>,
    /// Tokens a minute, as the provider counts them; null is no limit.
    pub tokens_per_minute: Option<u64>,
    /// Where that number is from: `file` or `header`.
    pub tokens_from: Option<&'static str>,
    /// For how many milliseconds nothing more is sent, because the provider refused a request.
    pub paused_ms: Option<u64>,
    /// How many milliseconds the provider asked for; no pause is longer than 60 000.
    pub asked_ms: Option<u64>,
    /// Why nothing is sent until somebody pays or asks: the provider's own word.
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

/// The workers of a pool, of which this is a snapshot.
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
        tier: worker.tier,
        quota: worker.quota.map(Into::into),
    });
    workers.collect()
}

/// What is left of the prefill of all that is in flight on a worker.
fn prefill_tokens(snapshot: &Snapshot, worker: &str) -> u64 {
    let workers = snapshot.workers.iter().flat_map(|workers| &workers.list);
    let Some(number) = workers.into_iter().find(|it| &*it.said.name == worker) else { return 0 };
    let flights = snapshot.requests.iter().filter_map(|request| request.flight.as_ref());
    let on_it = flights.filter(|flight| flight.place.is_some_and(|(on, _)| on == number.number));
    on_it.map(|flight| flight.prefill.0).fold(0, u64::saturating_add)
}
