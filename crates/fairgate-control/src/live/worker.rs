//! Views of workers and of their providers' limits.

use std::time::Duration;

use fairgate_api::admin::{
    CacheBody, CacheSizeBody, EngineBody, ModelQuotaBody, QuotaBody, WorkerBody,
};
use fairgate_core::snapshot::Snapshot;

use fairgate_proxy::pools::QuotaView;
use fairgate_proxy::pools::{CacheSizeView, CacheView, EngineView, PoolHandle};

fn cache_body(CacheView { input, cached, expected }: CacheView) -> CacheBody {
    CacheBody { input_tokens: input, cached_tokens: cached, expected_tokens: expected }
}

fn cache_size_body(CacheSizeView { believed, learned }: CacheSizeView) -> CacheSizeBody {
    CacheSizeBody { believed_tokens: believed, learned_tokens: learned }
}

fn engine_body(engine: EngineView) -> EngineBody {
    EngineBody {
        kind: engine.kind.to_owned(),
        running: engine.running,
        waiting: engine.waiting,
        cache_used_thousandths: engine.cache_used_milli,
        cache_tokens: engine.cache_tokens,
        overload_waiting: engine.overload_waiting,
        overload_cache_thousandths: engine.overload_cache_milli,
    }
}

fn quota_body(quota: QuotaView) -> QuotaBody {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    QuotaBody {
        account: quota.account,
        requests_per_minute: quota.requests.map(|(rate, _)| rate),
        requests_from: quota.requests.map(|(_, from)| from.to_owned()),
        tokens_per_minute: quota.tokens.map(|(rate, _)| rate),
        tokens_from: quota.tokens.map(|(_, from)| from.to_owned()),
        paused_ms: quota.paused.map(ms),
        asked_ms: quota.asked.map(ms),
        out: quota.out,
    }
}

/// Returns the views of a pool's workers; `snapshot` supplies the input tokens that the workers still have to process.
pub(crate) fn workers(snapshot: &Snapshot, pool: &PoolHandle) -> Vec<WorkerBody> {
    let workers = pool.workers().into_iter().map(|worker| WorkerBody {
        prefill_tokens: prefill_tokens(snapshot, &worker.name),
        name: worker.name,
        state: worker.state.to_owned(),
        reason: worker.reason,
        down_since: worker.outage.map(|outage| fairgate_time::to_rfc3339(outage.since)),
        retry_at: worker.outage.and_then(|outage| outage.retry_at).map(fairgate_time::to_rfc3339),
        source: worker.source.name().to_owned(),
        address: worker.address,
        in_flight: worker.in_flight,
        slots: worker.slots,
        slots_reason: worker.slots_reason,
        engine: worker.engine.map(engine_body),
        cache: worker.cache.map(cache_body),
        cache_size: worker.cache_size.map(cache_size_body),
        tier: worker.tier,
        quota: worker.quota.map(quota_body),
        models: worker
            .models
            .into_iter()
            .map(|(model, quota)| ModelQuotaBody { model, quota: quota_body(quota) })
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
