//! What the pools look like when somebody scrapes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_runtime::{JournalStatus, Live};
use futures_util::future::join_all;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::timeout;

use super::classes::Classes;
use super::instruments::PoolLabel;
use crate::lag::Lag;
use crate::pools::{PoolHandle, WorkerView};

/// How long a pool may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Of how many tenants a pool's lags are shown: those with the largest, either way.
const TENANTS_SHOWN: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    pool: Arc<str>,
    worker: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    pool: Arc<str>,
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    pool: Arc<str>,
    end: &'static str,
}

type Gauges = Family<PoolLabel, Gauge>;
type Counters = Family<PoolLabel, Counter>;

/// Everything that is asked at a scrape.
#[derive(Debug, Default)]
struct Seen {
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
    lag: Gauges,
    bound: Gauges,
    bound_used: Family<PoolLabel, Gauge<f64, std::sync::atomic::AtomicU64>>,
    outside: Gauges,
    off: Gauges,
    tenant_got: Family<TenantLabels, Gauge>,
    tenant_due: Family<TenantLabels, Gauge>,
    tenant_off_bound: Family<TenantLabels, Gauge>,
    tenant_lag: Family<TenantLabels, Gauge>,
    tenant_bound: Family<TenantLabels, Gauge>,
    worker_up: Family<WorkerLabels, Gauge>,
    worker_in_flight: Family<WorkerLabels, Gauge>,
    worker_slots: Family<WorkerLabels, Gauge>,
    engine_running: Family<WorkerLabels, Gauge>,
    engine_waiting: Family<WorkerLabels, Gauge>,
    worker_input: Family<WorkerLabels, Counter>,
    worker_cached: Family<WorkerLabels, Counter>,
    worker_expected: Family<WorkerLabels, Counter>,
    classes: Classes,
}

/// Asks all pools at once, and the system how large this process is.
pub(super) async fn registry_of(pools: &[Arc<PoolHandle>], with_tenants: bool) -> Registry {
    let seen = Seen { with_tenants, ..Seen::default() };
    join_all(pools.iter().map(|pool| seen.look_at(pool))).await;
    let mut registry = Registry::with_prefix("fairgate");
    seen.register_in(&mut registry);
    if let Some(bytes) = resident_bytes() {
        let gauge: Gauge = Gauge::default();
        gauge.set(whole(bytes));
        let help = "Memory that this process has in use, as the system counts it";
        registry.register_with_unit("resident_memory", help, Unit::Bytes, gauge);
    }
    registry
}

impl Seen {
    async fn look_at(&self, pool: &PoolHandle) {
        let labels = PoolLabel { pool: pool.name.clone() };
        let both = async { (pool.gate.live().await, pool.gate.fairness().await) };
        let (live, fairness) = match timeout(PATIENCE, both).await {
            Ok((live, fairness)) => (live.ok(), fairness.ok()),
            Err(_) => (None, None),
        };
        self.answers.get_or_create(&labels).set(i64::from(live.is_some()));
        if let Some(live) = live {
            self.live(&labels, &live);
        }
        if let Some(fairness) = fairness {
            self.fairness(&labels, &fairness);
            self.classes.look_at(&labels.pool, &fairness);
        }
        for worker in pool.workers() {
            self.worker(&labels.pool, worker);
        }
    }

    fn live(&self, labels: &PoolLabel, live: &Live) {
        self.capacity.get_or_create(labels).set(whole(live.capacity));
        self.in_flight.get_or_create(labels).set(whole(live.in_flight));
        self.queued.get_or_create(labels).set(whole(live.waiting));
        self.draining.get_or_create(labels).set(i64::from(live.draining));
        let counts = &live.counts;
        let ends = [
            ("rejected", counts.rejected),
            ("expired", counts.expired),
            ("left", counts.left),
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

    fn fairness(&self, labels: &PoolLabel, nodes: &[NodeFairness]) {
        let all = || nodes.iter().flat_map(|node| &node.flows).filter_map(Lag::of);
        let most = |lag: Lag| lag.bound.map_or(0, |(_, most)| most);
        let largest = |values: &mut dyn Iterator<Item = i128>| whole(values.max().unwrap_or(0));
        self.lag.get_or_create(labels).set(largest(&mut all().map(|lag| lag.tokens)));
        self.bound.get_or_create(labels).set(largest(&mut all().map(most)));
        let used = all().filter_map(|lag| lag.bound_used_thousandths()).max().unwrap_or(0);
        self.bound_used.get_or_create(labels).set(used as f64 / 1000.0);
        // drr promises no shares, and there a class may drift as far as it will.
        let shares = nodes.iter().filter(|node| node.kind == "share").flat_map(|node| &node.flows);
        let outside = shares.clone().filter(|flow| !flow.is_within_bound()).count();
        self.outside.get_or_create(labels).set(whole(outside));
        let off = shares.filter_map(FlowFairness::difference).map(i128::unsigned_abs).max();
        self.off.get_or_create(labels).set(whole(off.unwrap_or(0)));
        let shown = if self.with_tenants { largest_of_tenants(nodes) } else { Vec::new() };
        if self.with_tenants {
            for (tenant, service) in furthest_tenants(nodes) {
                let labels = TenantLabels { pool: labels.pool.clone(), tenant: tenant.to_owned() };
                self.tenant_got.get_or_create(&labels).set(whole(service.got));
                self.tenant_due.get_or_create(&labels).set(whole(service.due));
                self.tenant_off_bound.get_or_create(&labels).set(whole(service.bound));
            }
        }
        for (tenant, lag) in shown {
            let labels = TenantLabels { pool: labels.pool.clone(), tenant: tenant.to_owned() };
            self.tenant_lag.get_or_create(&labels).set(whole(lag.tokens));
            if let Some((_, most)) = lag.bound {
                self.tenant_bound.get_or_create(&labels).set(whole(most));
            }
        }
    }

    fn worker(&self, pool: &Arc<str>, worker: WorkerView) {
        let labels = WorkerLabels { pool: pool.clone(), worker: worker.name };
        self.worker_up.get_or_create(&labels).set(i64::from(worker.state == "up"));
        self.worker_in_flight.get_or_create(&labels).set(whole(worker.in_flight));
        if let Some(slots) = worker.slots {
            self.worker_slots.get_or_create(&labels).set(whole(slots));
        }
        if let Some(cache) = worker.cache {
            self.worker_input.get_or_create(&labels).inc_by(cache.input);
            self.worker_cached.get_or_create(&labels).inc_by(cache.cached);
            if let Some(expected) = cache.expected {
                self.worker_expected.get_or_create(&labels).inc_by(expected);
            }
        }
        if let Some(engine) = worker.engine {
            self.engine_running.get_or_create(&labels).set(whole(engine.running));
            self.engine_waiting.get_or_create(&labels).set(whole(engine.waiting));
        }
    }

    fn register_in(self, to: &mut Registry) {
        to.register("pool_answers", "Whether the pool answered this scrape", self.answers);
        let slots = Unit::Other("slots".to_owned());
        let requests = || Unit::Other("requests".to_owned());
        let tokens = || Unit::Other("tokens".to_owned());
        let help = "How many requests may be in flight";
        to.register_with_unit("pool_capacity", help, slots, self.capacity);
        let help = "How many requests are in flight";
        to.register_with_unit("pool_in_flight", help, requests(), self.in_flight);
        to.register_with_unit("pool_queued", "How many requests wait", requests(), self.queued);
        to.register("pool_draining", "Whether the pool is closing", self.draining);
        let help = "What became of the requests that came to the pool";
        to.register("pool_ends", help, self.ends);
        let help = "Events that are in no journal because it had stopped";
        to.register("journal_events_lost", help, self.journal_lost);
        to.register("journal_gaps", "How often the journal has stopped", self.journal_gaps);
        let help = "Whether the journal is being written; absent where none is kept";
        to.register("journal_writing", help, self.journal_writing);
        let help = "Whether the state file could not be written the last time";
        to.register("state_file_failing", help, self.state_failing);
        let help = "The largest lag of any flow: what it is owed";
        to.register_with_unit("pool_lag", help, tokens(), self.lag);
        let help = "The largest lag that any flow could have now";
        to.register_with_unit("pool_lag_bound", help, tokens(), self.bound);
        let help = "The most that any flow uses of its bound: above 1 is a bug";
        to.register("pool_lag_bound_used_ratio", help, self.bound_used);
        let help = "Flows of share nodes that got more, or less, than they were due by more than their bound";
        let flows = Unit::Other("flows".to_owned());
        to.register_with_unit("pool_outside_bound", help, flows, self.outside);
        let help =
            "The largest difference between what a flow of a share node got and what it was due";
        to.register_with_unit("pool_difference", help, tokens(), self.off);
        let help = "What a tenant was served; of the 50 tenants whose difference is largest";
        to.register_with_unit("tenant_got", help, tokens(), self.tenant_got);
        let help = "What that tenant was due by its weight";
        to.register_with_unit("tenant_due", help, tokens(), self.tenant_due);
        let help = "How far what that tenant got should be from what it was due, at most";
        to.register_with_unit("tenant_difference_bound", help, tokens(), self.tenant_off_bound);
        let help = "What a tenant is owed; of the 50 tenants that are furthest from their share";
        to.register_with_unit("tenant_lag", help, tokens(), self.tenant_lag);
        let help = "How far behind that tenant could be now";
        to.register_with_unit("tenant_lag_bound", help, tokens(), self.tenant_bound);
        to.register("worker_up", "Whether the worker takes requests", self.worker_up);
        let help = "How many requests are in flight on the worker";
        to.register_with_unit("worker_in_flight", help, requests(), self.worker_in_flight);
        let help = "How many requests the worker takes at once; absent where it is any number";
        to.register("worker_slots", help, self.worker_slots);
        let help = "Requests that the worker's engine works on, as it says";
        to.register_with_unit("engine_running", help, requests(), self.engine_running);
        let help = "Requests in the own queue of the worker's engine, as it says";
        to.register_with_unit("engine_waiting", help, requests(), self.engine_waiting);
        let help = "Input tokens of the worker's answers that said how many of them were cached";
        to.register_with_unit("worker_input", help, tokens(), self.worker_input);
        let help = "Of these, tokens that the worker had cached, as its answers say";
        to.register_with_unit("worker_cached", help, tokens(), self.worker_cached);
        let help = "Of these, tokens that the pool expected to be cached there; absent without an index or sticky sessions";
        to.register_with_unit("worker_cached_expected", help, tokens(), self.worker_expected);
        self.classes.register_in(to);
    }
}

/// The tenants whose lags are largest, either way. A tenant that is in several nodes of the tree counts by its largest.
fn largest_of_tenants(nodes: &[NodeFairness]) -> Vec<(&str, Lag)> {
    let nodes = nodes.iter().filter(|node| node.by == Attribute::Tenant);
    let mut lags: Vec<(&str, Lag)> = nodes
        .flat_map(|node| &node.flows)
        .filter_map(|flow| Some((&*flow.name, Lag::of(flow)?)))
        .collect();
    lags.sort_by_key(|(tenant, lag)| (std::cmp::Reverse(lag.tokens.unsigned_abs()), *tenant));
    let mut seen = std::collections::HashSet::new();
    lags.retain(|(tenant, _)| seen.insert(*tenant));
    lags.truncate(TENANTS_SHOWN);
    lags
}

/// What a tenant was served beside what it was due, in tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    got: i128,
    due: i128,
    bound: u128,
}

/// The tenants whose got is furthest from their due. A tenant that is in several nodes counts with all of them together.
fn furthest_tenants(nodes: &[NodeFairness]) -> Vec<(&str, Service)> {
    let mut tenants: BTreeMap<&str, Service> = BTreeMap::new();
    let nodes = nodes.iter().filter(|node| node.by == Attribute::Tenant);
    for flow in nodes.flat_map(|node| &node.flows) {
        let Some(due) = flow.due else { continue };
        let service = tenants.entry(&flow.name).or_default();
        service.got = service.got.saturating_add(flow.got);
        service.due = service.due.saturating_add(due.tokens);
        service.bound = service.bound.saturating_add(due.bound);
    }
    let mut tenants: Vec<(&str, Service)> = tenants.into_iter().collect();
    tenants
        .sort_by_key(|(_, service)| std::cmp::Reverse((service.got - service.due).unsigned_abs()));
    tenants.truncate(TENANTS_SHOWN);
    tenants
}

/// As far as a gauge goes.
pub(super) fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// What Linux says; nothing elsewhere.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
