//! Reports the condition of an upstream, as worker events, to the pools that have it as a worker.
//!
//! An upstream that is down is first paused (`pause_until`), so that requests for it wait. After
//! `down_wait` it is reported as `overloaded`, so that new requests that no other worker can serve
//! are refused. The pause and the overload are events, so they are in the journal.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_core::event::WorkerState;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::slot_division::{SlotUse, divide_slots};
use super::{EngineHook, Upstream, UpstreamStanding, engine, health, scrape};
use crate::live_count::LiveCount;
use crate::worker_reporter::{WorkerAvailability, WorkerReporter};

/// Interval at which the slots of an upstream are divided among its workers.
const DIVIDE_EVERY: Duration = Duration::from_secs(1);
/// Interval at which idle connections are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Watches one upstream until the watcher is dropped.
pub(crate) struct UpstreamWatcher {
    pools: Arc<PoolsOfWorker>,
    upstream: Arc<Upstream>,
    tasks: Vec<JoinHandle<()>>,
}

/// A pool, and a worker of the upstream in that pool. An upstream with an account may have several
/// workers in a pool, one for each model.
#[derive(Clone)]
pub(crate) struct PoolOfWorker {
    pub(crate) pool: Arc<str>,
    /// Name of the worker in the core.
    pub(crate) worker: Arc<str>,
    /// Numbers of queued requests of the worker's models, one for each model.
    pub(crate) waiting: Vec<LiveCount>,
    /// Slots of the worker when it was added, for each rank.
    pub(crate) first_slots: u64,
    /// True if the pool has no other upstream.
    pub(crate) is_only_upstream: bool,
    pub(crate) reporter: Arc<WorkerReporter>,
    /// Observer that learns of restarts and of the cache size of the worker's engine.
    pub(crate) hook: Arc<dyn EngineHook>,
    /// Number of the pool's requests in flight on the worker.
    pub(crate) in_flight: LiveCount,
    /// Maximum time that requests wait for this worker while it is down.
    pub(crate) down_wait: Duration,
}

/// State of a worker as it was last sent to a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReportedState {
    standing: UpstreamStanding,
    /// True if the worker has been down longer than the pool's `down_wait`.
    overdue: bool,
    /// Slots of the worker per rank; `u64::MAX` if unlimited.
    slots: u64,
    /// Slots per rank of all workers of the upstream in the same pool together.
    slots_together: u64,
    /// True if the worker's engine is overloaded.
    overloaded: bool,
}

/// The pools that have the upstream as a worker, each with the state that was last sent to it.
pub(super) struct PoolsOfWorker {
    pools: Mutex<Vec<(PoolOfWorker, Option<ReportedState>)>>,
}

impl UpstreamWatcher {
    /// Starts watching an upstream. [`set_pools`](Self::set_pools) sets the pools to report to.
    pub(crate) fn start(upstream: Arc<Upstream>) -> Self {
        let pools = Arc::new(PoolsOfWorker { pools: Mutex::default() });
        let mut tasks = vec![
            tokio::spawn(report_changes(upstream.clone(), pools.clone())),
            tokio::spawn(health::run_probes(upstream.clone())),
        ];
        if let Some(health) = upstream.config.health.clone() {
            tasks.push(tokio::spawn(health::run_checks(upstream.clone(), health)));
        }
        if let Some(metrics) = upstream.config.metrics.clone() {
            tasks.push(tokio::spawn(scrape::run_readings(
                upstream.clone(),
                metrics,
                pools.clone(),
            )));
        }
        Self { pools, upstream, tasks }
    }

    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// Sets the pools that have the upstream as a worker; the state of the upstream is sent to all of them again.
    pub(crate) fn set_pools(&self, members: Vec<PoolOfWorker>) {
        *self.pools.lock() = members.into_iter().map(|one| (one, None)).collect();
        self.upstream.condition.changed.notify_one();
    }
}

impl Drop for UpstreamWatcher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Reports every change of the upstream's standing, in order, forever.
async fn report_changes(upstream: Arc<Upstream>, pools: Arc<PoolsOfWorker>) {
    let mut sweep_at = Instant::now() + SWEEP_EVERY;
    // Workers start as up, which needs no report.
    let mut down_since: Option<Instant> = None;
    let mut turn = 0_u64;
    loop {
        let now = Instant::now();
        turn = turn.wrapping_add(1);
        if sweep_at <= now {
            upstream.sweep();
            sweep_at = now + SWEEP_EVERY;
        }
        let (standing, until) = upstream.condition.update_standing(now);
        let down = announce(&upstream, &pools, standing, down_since.is_some());
        if down && down_since.is_none() {
            // After the outage, another process may serve the address.
            pools.for_each_hook(|hook| hook.restarted(&upstream.name));
        }
        down_since = down.then(|| down_since.unwrap_or(now));
        let (behind, next) = pools.take_outdated(&upstream, standing, down_since, now, turn);
        for (member, state) in behind {
            member.reporter.set_availability(&member.worker, availability(state, &member, now));
        }
        let wake_at = [until, next].into_iter().flatten().fold(sweep_at, Instant::min);
        tokio::select! {
            () = upstream.condition.changed.notified() => {}
            () = sleep_until(wake_at) => {}
        }
    }
}

/// Logs, for each pool of the worker, that the worker went down or is back. Returns true if the worker is down now.
fn announce(
    upstream: &Upstream,
    pools: &PoolsOfWorker,
    standing: UpstreamStanding,
    was_down: bool,
) -> bool {
    let (why, cause) = match standing {
        UpstreamStanding::Up => ("", None),
        // The trial is still running.
        UpstreamStanding::Trial => return was_down,
        UpstreamStanding::Unhealthy => {
            ("its health checks fail", upstream.failure_log.last_check())
        }
        UpstreamStanding::Broken => ("it answers nobody", upstream.failure_log.last_request()),
    };
    let down = standing != UpstreamStanding::Up;
    let (worker, cause) = (&upstream.name, cause.map(|cause| cause.to_string()));
    for pool in pools.pools().into_iter().filter(|_| down != was_down) {
        match down {
            true => tracing::warn!(%pool, %worker, why, cause, "a worker is down"),
            false => tracing::info!(%pool, %worker, "a worker is back"),
        }
    }
    down
}

impl PoolsOfWorker {
    /// Returns the names of the pools, without duplicates.
    fn pools(&self) -> Vec<Arc<str>> {
        let mut pools: Vec<_> = self.lock().iter().map(|(member, _)| member.pool.clone()).collect();
        pools.dedup();
        pools
    }

    /// Returns true if this process observes any of the pools.
    pub(super) fn is_observed(&self) -> bool {
        self.lock().iter().any(|(member, _)| member.reporter.is_observing())
    }

    /// Returns the number of requests of all pools that are in flight on the upstream.
    pub(super) fn in_flight(&self) -> u64 {
        self.lock().iter().map(|(member, _)| member.in_flight.now()).sum()
    }

    /// Calls `tell` with every pool's observer of the engine.
    pub(super) fn for_each_hook(&self, tell: impl Fn(&dyn EngineHook)) {
        let hooks: Vec<_> = self.lock().iter().map(|(member, _)| member.hook.clone()).collect();
        hooks.iter().for_each(|hook| tell(&**hook));
    }

    /// Returns each pool to which the current state was not sent yet, with that state, and marks
    /// the state as sent. Also returns the next time at which the state changes without an event:
    /// when the slots are divided again, or when the `down_wait` of a pool ends.
    fn take_outdated(
        &self,
        upstream: &Upstream,
        standing: UpstreamStanding,
        down_since: Option<Instant>,
        now: Instant,
        turn: u64,
    ) -> (Vec<(PoolOfWorker, ReportedState)>, Option<Instant>) {
        let (mut behind, mut next) = (Vec::new(), None::<Instant>);
        let overloaded = upstream.engine.overloaded().is_some();
        let mut pools = self.lock();
        let slots = slots_of_workers(&pools, upstream, standing, now, turn);
        let is_divided = |slots: &WorkerSlots| slots.is_divided;
        if slots.iter().any(is_divided) {
            next = Some(now + DIVIDE_EVERY);
        }
        for ((member, last), slots) in pools.iter_mut().zip(slots) {
            let overdue_at = down_since.map(|since| since + member.down_wait);
            let overdue = overdue_at.is_some_and(|at| at <= now);
            let WorkerSlots { slots, slots_together, .. } = slots;
            let state = ReportedState { standing, overdue, slots, slots_together, overloaded };
            if *last != Some(state) {
                *last = Some(state);
                behind.push((member.clone(), state));
            }
            if let Some(at) = overdue_at.filter(|_| !state.overdue) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        (behind, next)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PoolOfWorker, Option<ReportedState>)>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slots of one worker.
struct WorkerSlots {
    slots: u64,
    slots_together: u64,
    /// True if the worker has only a part of the upstream's slots. The part changes with the load.
    is_divided: bool,
}

/// Returns the slots per rank of each worker. In each pool, the workers together have the
/// upstream's slots. During a trial, they have one more than the requests that the pool had in
/// flight on the upstream when the trial began.
///
/// The slots of an upstream are divided among its workers in a pool, that is, among models, without
/// regard to the weights of tenants. If the pool has no other upstream and its capacity is at most
/// these slots, they are not divided. Each worker may then use all of them, because the capacity
/// already limits the workers together, and the policy decides which model's request is next.
fn slots_of_workers(
    pools: &[(PoolOfWorker, Option<ReportedState>)],
    upstream: &Upstream,
    standing: UpstreamStanding,
    now: Instant,
    turn: u64,
) -> Vec<WorkerSlots> {
    let stated = upstream.engine.slots().unwrap_or(u64::MAX);
    let ranks = engine::ranks(&upstream.config).max(1);
    let mut slots = Vec::with_capacity(pools.len());
    for workers in pools.chunk_by(|(one, _), (next, _)| one.pool == next.pool) {
        let in_flight: u64 = workers.iter().map(|(worker, _)| worker.in_flight.now()).sum();
        let on_trial = workers
            .iter()
            .find_map(|(_, last)| last.filter(|last| last.standing == UpstreamStanding::Trial));
        let slots_together = match (standing, on_trial) {
            (UpstreamStanding::Trial, Some(last)) => last.slots_together,
            (UpstreamStanding::Trial, None) => stated.min(in_flight + 1),
            _ => stated,
        };
        let is_limited_by_capacity = standing != UpstreamStanding::Trial
            && workers.iter().all(|(worker, _)| {
                let capacity = worker.reporter.capacity().div_ceil(ranks);
                worker.is_only_upstream && capacity <= slots_together
            });
        let is_divided = workers.len() > 1 && slots_together != u64::MAX && !is_limited_by_capacity;
        let uses = workers.iter().map(|(worker, last)| SlotUse {
            in_flight: worker.in_flight.now().div_ceil(ranks),
            has_queue: worker.waiting.iter().any(|count| count.now() > 0)
                && !worker.reporter.is_paused(&worker.worker, now),
            now: last.map_or(worker.first_slots, |last| last.slots),
        });
        let parts = match is_divided {
            true => divide_slots(slots_together, &uses.collect::<Vec<_>>(), turn),
            false => vec![slots_together; workers.len()],
        };
        let of_worker = |slots| WorkerSlots { slots, slots_together, is_divided };
        slots.extend(parts.into_iter().map(of_worker));
    }
    slots
}

/// Returns the availability to send to the core. A worker that is down is paused, so that new
/// requests wait for it as the queued ones do. If it is down longer than `down_wait`, it is
/// overloaded, so that new requests that no other worker can serve are refused.
fn availability(state: ReportedState, member: &PoolOfWorker, now: Instant) -> WorkerAvailability {
    let slots = state.slots;
    let up = WorkerAvailability { state: WorkerState::Up, slots, down_until: None };
    match (state.standing, state.overdue) {
        (UpstreamStanding::Unhealthy | UpstreamStanding::Broken, true) => {
            WorkerAvailability { state: WorkerState::Overloaded, ..up }
        }
        (UpstreamStanding::Unhealthy | UpstreamStanding::Broken, false) => {
            WorkerAvailability { down_until: Some(now + member.down_wait), ..up }
        }
        (UpstreamStanding::Trial, _) => up,
        (UpstreamStanding::Up, _) if state.overloaded => {
            WorkerAvailability { state: WorkerState::Overloaded, ..up }
        }
        (UpstreamStanding::Up, _) => up,
    }
}
