//! Gauges of the pools and their workers, filled at each scrape.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::CostUnit;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_proxy::metrics::PoolLabel;
use fairgate_runtime::{GateStatus, JournalStatus};
use futures_util::future::join_all;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::timeout;

use super::classes::ClassGauges;
use super::service_gauges::{ServiceGauges, ServiceNames};
use crate::lag_in_tokens::FlowLag;
use fairgate_proxy::pools::{PoolHandle, WorkerView};

/// Time limit for a pool's answer to a scrape.
const POOL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    pool: Arc<str>,
    worker: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    pool: Arc<str>,
    end: &'static str,
}

type Gauges = Family<PoolLabel, Gauge>;
type Counters = Family<PoolLabel, Counter>;

/// The metrics that are read from the pools, created and filled once for each scrape.
#[derive(Debug, Default)]
struct PoolGauges {
    with_tenants: bool,
    answers: Gauges,
    capacity: Gauges,
    in_flight: Gauges,
    queued: Gauges,
    draining: Gauges,
    ends: Family<EndLabels, Counter>,
    journal_lost: Counters,
    journal_gaps: Counters,
    journal_writing: Gauges,
    state_failing: Gauges,
    bound_used: Family<PoolLabel, Gauge<f64, std::sync::atomic::AtomicU64>>,
    outside: Gauges,
    service: ServiceGauges,
    /// Service gauges of pools that count tokens, under names that end in `_tokens`.
    service_tokens: ServiceGauges,
    worker_up: Family<WorkerLabels, Gauge>,
    worker_in_flight: Family<WorkerLabels, Gauge>,
    worker_slots: Family<WorkerLabels, Gauge>,
    engine_running: Family<WorkerLabels, Gauge>,
    engine_waiting: Family<WorkerLabels, Gauge>,
    worker_input: Family<WorkerLabels, Counter>,
    worker_cached: Family<WorkerLabels, Counter>,
    worker_expected: Family<WorkerLabels, Counter>,
    cache_believed: Family<WorkerLabels, Gauge>,
    cache_learned: Family<WorkerLabels, Gauge>,
    classes: ClassGauges,
}

/// Asks all pools at once, and the operating system for the memory of this process. Returns a registry with the
/// results.
pub(super) async fn registry_of(pools: &[Arc<PoolHandle>], with_tenants: bool) -> Registry {
    let seen = PoolGauges { with_tenants, ..PoolGauges::default() };
    join_all(pools.iter().map(|pool| seen.read_pool(pool))).await;
    let mut registry = Registry::with_prefix("fairgate");
    seen.register_in(&mut registry);
    register_memory(&mut registry);
    registry
}

/// Adds the memory of this process, if the operating system reports it.
fn register_memory(to: &mut Registry) {
    if let Some(bytes) = resident_bytes() {
        let gauge: Gauge = Gauge::default();
        gauge.set(gauge_value(bytes));
        let help = "Resident memory of the process, as the operating system counts it";
        to.register_with_unit("resident_memory", help, Unit::Bytes, gauge);
    }
}

/// Returns a registry in which every metric has one series, for the reference of metrics.
#[cfg(test)]
pub(super) fn sample_registry() -> Registry {
    let seen = PoolGauges::default();
    let pool: Arc<str> = "small".into();
    let label = PoolLabel { pool: pool.clone() };
    let of_pool = [
        &seen.answers,
        &seen.capacity,
        &seen.in_flight,
        &seen.queued,
        &seen.draining,
        &seen.journal_writing,
        &seen.state_failing,
        &seen.outside,
    ];
    for family in of_pool {
        family.get_or_create(&label).set(1);
    }
    for family in [&seen.journal_lost, &seen.journal_gaps] {
        family.get_or_create(&label).inc();
    }
    seen.bound_used.get_or_create(&label).set(1.0);
    seen.ends.get_or_create(&EndLabels { pool: pool.clone(), end: "settled" }).inc();
    seen.service.fill_sample(Some("tokens"));
    seen.service_tokens.fill_sample(None);
    let label = WorkerLabels { pool, worker: "gpu-1".into() };
    let of_worker = [
        &seen.worker_up,
        &seen.worker_in_flight,
        &seen.worker_slots,
        &seen.engine_running,
        &seen.engine_waiting,
        &seen.cache_believed,
        &seen.cache_learned,
    ];
    for family in of_worker {
        family.get_or_create(&label).set(1);
    }
    for family in [&seen.worker_input, &seen.worker_cached, &seen.worker_expected] {
        family.get_or_create(&label).inc();
    }
    seen.classes.fill_sample();
    let mut registry = Registry::with_prefix("fairgate");
    seen.register_in(&mut registry);
    register_memory(&mut registry);
    registry
}

impl PoolGauges {
    async fn read_pool(&self, pool: &PoolHandle) {
        let labels = PoolLabel { pool: pool.name.clone() };
        let both = async { (pool.gate.status().await, pool.gate.fairness().await) };
        let (live, fairness) = match timeout(POOL_TIMEOUT, both).await {
            Ok((live, fairness)) => (live.ok(), fairness.ok()),
            Err(_) => (None, None),
        };
        self.answers.get_or_create(&labels).set(i64::from(live.is_some()));
        if let Some(live) = live {
            self.set_live(&labels, &live);
        }
        if let Some(fairness) = fairness {
            let unit = pool.setup().unit();
            self.set_fairness(&labels, &fairness);
            self.service.read_pool(&labels.pool, Some(unit.name()), &fairness, self.with_tenants);
            if unit == CostUnit::Tokens {
                self.service_tokens.read_pool(&labels.pool, None, &fairness, self.with_tenants);
            }
            self.classes.read_pool(&labels.pool, &fairness, unit);
        }
        for worker in pool.workers() {
            self.set_worker(&labels.pool, worker);
        }
    }

    fn set_live(&self, labels: &PoolLabel, live: &GateStatus) {
        self.capacity.get_or_create(labels).set(gauge_value(live.capacity));
        self.in_flight.get_or_create(labels).set(gauge_value(live.in_flight));
        self.queued.get_or_create(labels).set(gauge_value(live.waiting));
        self.draining.get_or_create(labels).set(i64::from(live.draining));
        let counts = &live.counts;
        let ends = [
            ("rejected", counts.rejected),
            ("expired", counts.expired),
            ("left", counts.abandoned),
            ("drained", counts.drained),
            ("settled", counts.settled),
            ("failed", counts.failed),
            ("given_back", counts.given_back),
            ("dropped", counts.dropped),
        ];
        for (end, count) in ends {
            let labels = EndLabels { pool: labels.pool.clone(), end };
            self.ends.get_or_create(&labels).inc_by(count);
        }
        self.journal_lost.get_or_create(labels).inc_by(live.journal.events_lost);
        self.journal_gaps.get_or_create(labels).inc_by(live.journal.gaps);
        if live.journal.status != JournalStatus::Off {
            let writing = live.journal.status == JournalStatus::Writing;
            self.journal_writing.get_or_create(labels).set(i64::from(writing));
        }
        self.state_failing.get_or_create(labels).set(i64::from(live.state.error.is_some()));
    }

    fn set_fairness(&self, labels: &PoolLabel, nodes: &[NodeFairness]) {
        let all = nodes.iter().flat_map(|node| &node.flows).filter_map(FlowLag::of);
        let used = all.filter_map(|lag| lag.bound_used_thousandths()).max().unwrap_or(0);
        self.bound_used.get_or_create(labels).set(used as f64 / 1000.0);
        // drr promises no shares, so the difference of its classes has no bound.
        let outside = shares(nodes).filter(|flow| !flow.is_within_bound()).count();
        self.outside.get_or_create(labels).set(gauge_value(outside));
    }

    fn set_worker(&self, pool: &Arc<str>, worker: WorkerView) {
        let labels = WorkerLabels { pool: pool.clone(), worker: worker.name };
        self.worker_up.get_or_create(&labels).set(i64::from(worker.state == "up"));
        self.worker_in_flight.get_or_create(&labels).set(gauge_value(worker.in_flight));
        if let Some(slots) = worker.slots {
            self.worker_slots.get_or_create(&labels).set(gauge_value(slots));
        }
        if let Some(cache) = worker.cache {
            self.worker_input.get_or_create(&labels).inc_by(cache.input);
            self.worker_cached.get_or_create(&labels).inc_by(cache.cached);
            if let Some(expected) = cache.expected {
                self.worker_expected.get_or_create(&labels).inc_by(expected);
            }
        }
        if let Some(size) = worker.cache_size {
            self.cache_believed.get_or_create(&labels).set(gauge_value(size.believed));
            if let Some(learned) = size.learned {
                self.cache_learned.get_or_create(&labels).set(gauge_value(learned));
            }
        }
        if let Some(engine) = worker.engine {
            self.engine_running.get_or_create(&labels).set(gauge_value(engine.running));
            self.engine_waiting.get_or_create(&labels).set(gauge_value(engine.waiting));
        }
    }

    fn register_in(self, to: &mut Registry) {
        to.register("pool_answers", "1 if the pool answered this scrape, else 0", self.answers);
        let slots = Unit::Other("slots".to_owned());
        let requests = || Unit::Other("requests".to_owned());
        let tokens = || Unit::Other("tokens".to_owned());
        let help = "Slots of the pool: the number of requests that may be in flight at once";
        to.register_with_unit("pool_capacity", help, slots, self.capacity);
        let help = "Number of requests in flight in the pool";
        to.register_with_unit("pool_in_flight", help, requests(), self.in_flight);
        to.register_with_unit(
            "pool_queued",
            "Number of requests that wait in the pool's queues",
            requests(),
            self.queued,
        );
        to.register("pool_draining", "1 if the pool is draining, else 0", self.draining);
        let help = "Requests of the pool, by outcome";
        to.register("pool_ends", help, self.ends);
        let help = "Events missing from the journal because it had stopped";
        to.register("journal_events_lost", help, self.journal_lost);
        to.register("journal_gaps", "Number of times that the journal stopped", self.journal_gaps);
        let help = "1 if the journal is being written, else 0; absent if the pool has no journal";
        to.register("journal_writing", help, self.journal_writing);
        let help = "1 if the last write of the state file failed, else 0";
        to.register("state_file_failing", help, self.state_failing);
        let help = "Largest lag divided by its bound, over all flows; a value above 1 is a bug";
        to.register("pool_lag_bound_used_ratio", help, self.bound_used);
        let help =
            "Flows of share nodes whose difference between got and due is larger than their bound";
        let flows = Unit::Other("flows".to_owned());
        to.register_with_unit("pool_outside_bound", help, flows, self.outside);
        self.service.register_in(to, ServiceNames::ANY_UNIT);
        self.service_tokens.register_in(to, ServiceNames::TOKENS);
        to.register("worker_up", "1 if the worker takes requests, else 0", self.worker_up);
        let help = "Number of requests in flight on the worker";
        to.register_with_unit("worker_in_flight", help, requests(), self.worker_in_flight);
        let help = "Number of requests that the worker takes at once; absent if unlimited";
        to.register("worker_slots", help, self.worker_slots);
        let help = "Requests that the worker's engine is processing, from the engine's own metrics";
        to.register_with_unit("engine_running", help, requests(), self.engine_running);
        let help = "Requests in the engine's own queue, from the engine's own metrics";
        to.register_with_unit("engine_waiting", help, requests(), self.engine_waiting);
        let help = "Input tokens of those answers of the worker that reported cached tokens";
        to.register_with_unit("worker_input", help, tokens(), self.worker_input);
        let help = "Cached tokens that the worker reported, out of fairgate_worker_input_tokens";
        to.register_with_unit("worker_cached", help, tokens(), self.worker_cached);
        let help = "Cached tokens that the pool expected, out of fairgate_worker_input_tokens; absent without a prefix index or sticky sessions";
        to.register_with_unit("worker_cached_expected", help, tokens(), self.worker_expected);
        let help = "Cache size of the worker by its engine's metrics, else by cache_tokens; absent without a prefix index";
        to.register_with_unit("worker_cache_believed", help, tokens(), self.cache_believed);
        let help = "Cache size of the worker learned from reported cached tokens; absent unless smaller than fairgate_worker_cache_believed_tokens";
        to.register_with_unit("worker_cache_learned", help, tokens(), self.cache_learned);
        self.classes.register_in(to);
    }
}

/// Returns the flows of the share nodes.
pub(super) fn shares(nodes: &[NodeFairness]) -> impl Iterator<Item = &FlowFairness> {
    nodes.iter().filter(|node| node.kind == "share").flat_map(|node| &node.flows)
}

/// Converts a number to a gauge's type; a number that is out of range becomes the maximum.
pub(super) fn gauge_value(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Returns the resident memory of this process in bytes, from `/proc`; `None` on systems other than Linux.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
