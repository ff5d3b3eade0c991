//! Reports the observed state of a pool's workers to the pool, as worker events. One task of each
//! pool does this, and no other code reports worker events. Reporting can be switched off, for
//! pools that get their events from another process.
//!
//! Observers record a change here and continue without waiting. A newer change of a worker
//! overwrites one that was not reported yet. So changes do not accumulate, however often a provider
//! changes its limits.
//!
//! Health, circuits, rates, pauses and engine metrics are all reported here. A worker's downtime
//! and its provider's pause both set `pause_until`; reported separately, one would overwrite the
//! other. Here they are joined: the worker is paused until the later of the two ends. A request
//! that met a limit waits until its pool knows the pause ([`WorkerReporter::wait_flushed`]) before
//! it is submitted again.
//!
//! A worker is removed only after all pending reports about it were sent. A later report would
//! create the worker again in the core.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_config::PoolConfig;
use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute};
use fairgate_runtime::Gate;
use tokio::sync::{Mutex as TurnMutex, Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Queue and task that report worker changes to one pool.
pub(crate) struct WorkerReporter {
    queue: Arc<ReportQueue>,
    gate: Gate,
    task: JoinHandle<()>,
}

struct ReportQueue {
    reports: Mutex<PendingReports>,
    changed: Notify,
    observes: AtomicBool,
    /// Number of recorded changes that were sent to the pool so far.
    flushed: watch::Sender<u64>,
    /// Held while a report is being sent to the pool.
    report_lock: TurnMutex<()>,
    /// Capacity that was last sent to the pool.
    capacity: AtomicU64,
}

#[derive(Default)]
struct PendingReports {
    workers: BTreeMap<Arc<str>, WorkerReport>,
    /// Number of changes that were recorded so far.
    notes: u64,
    /// Removed workers that still have requests in flight.
    departing: Vec<Arc<dyn ReportedWorker>>,
    /// Capacity that the file states; `None` if the file states none, so that the sum of the
    /// workers' slots counts.
    stated_capacity: Option<u64>,
}

/// Observed state of one worker.
#[derive(Clone, Default)]
struct WorkerReport {
    worker: Option<Arc<dyn ReportedWorker>>,
    availability: Option<WorkerAvailability>,
    rates: Option<WorkerRates>,
    /// Time at which the pause of the worker's provider ends.
    paused_until: Option<Instant>,
    /// True while the account at the worker's provider is spent or blocked.
    is_out: bool,
    /// Requests and tokens that the worker's provider would accept at once, if they are not
    /// reported yet. Cleared after each report.
    remaining: RemainingQuota,
    is_changed: bool,
}

/// State and slots of a worker, and the end of its downtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerAvailability {
    pub(crate) state: WorkerState,
    pub(crate) slots: u64,
    /// Time until which requests for the worker wait for its return; `None` if the worker is not
    /// down.
    pub(crate) down_until: Option<Instant>,
}

/// Rate limits of a worker, which are a fraction of the limits of its provider's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerRates {
    pub(crate) requests: Option<PerMinute>,
    pub(crate) tokens: Option<PerMinute>,
    pub(crate) burst: BurstSeconds,
}

/// Requests and tokens that a worker's provider would accept at once; a field is `None` if there is nothing to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemainingQuota {
    pub(crate) requests: Option<u64>,
    pub(crate) tokens: Option<u64>,
}

/// A worker whose state is reported to its pool.
pub(crate) trait ReportedWorker: Send + Sync {
    /// Returns the name of the worker in the pool.
    fn name(&self) -> &Arc<str>;

    /// Returns true if an operator drains the worker.
    fn is_drained(&self) -> bool;

    /// Returns the name of the worker's upstream, and the slots that all workers of that upstream
    /// share. The number is `None` if the slots are not limited.
    fn upstream_slots(&self) -> (&str, Option<u64>);
}

impl WorkerReporter {
    /// Starts the task that reports to a pool. The task reports only while this process observes the pool.
    pub(crate) fn start(gate: Gate, config: &PoolConfig) -> Self {
        let queue = Arc::new(ReportQueue {
            reports: Mutex::default(),
            changed: Notify::new(),
            observes: AtomicBool::new(config.observe),
            flushed: watch::Sender::new(0),
            report_lock: TurnMutex::default(),
            capacity: AtomicU64::new(config.capacity),
        });
        let task = tokio::spawn(report_changes(queue.clone(), gate.clone()));
        Self { queue, gate, task }
    }

    /// Sets the workers of the pool; changes of other workers are ignored.
    pub(crate) fn set_workers<W: ReportedWorker + 'static>(
        &self,
        workers: &[Arc<W>],
        config: &PoolConfig,
    ) {
        let mut reports = self.queue.lock();
        let mut kept: BTreeMap<_, _> = workers
            .iter()
            .map(|worker| {
                let name = worker.name();
                let mut report = reports.workers.remove(name).unwrap_or_default();
                let was_drained = report.worker.as_ref().is_some_and(|worker| worker.is_drained());
                // The change is reported after any report that is being sent now.
                report.is_changed |= was_drained != worker.is_drained();
                report.worker = Some(worker.clone());
                (name.clone(), report)
            })
            .collect();
        let was_off = !self.queue.observes.swap(config.observe, Ordering::Relaxed);
        if config.observe && was_off {
            kept.values_mut().for_each(|report| report.is_changed = true);
        }
        reports.workers = kept;
        reports.stated_capacity = Some(config.capacity).filter(|_| !config.follows_slots);
        self.queue.changed.notify_one();
    }

    /// Returns true if this process reports the state of the pool's workers to the pool; false if another process does.
    pub(crate) fn is_observing(&self) -> bool {
        self.queue.observes.load(Ordering::Relaxed)
    }

    /// Marks a worker as leaving. Until the worker has left, its slots still count towards the capacity.
    pub(crate) fn add_departing<W: ReportedWorker + 'static>(&self, worker: &Arc<W>) {
        self.queue.lock().departing.push(worker.clone());
    }

    /// Records that a leaving worker has no requests in flight any more.
    pub(crate) fn remove_departing<W: ReportedWorker + 'static>(&self, worker: &Arc<W>) {
        self.queue
            .lock()
            .departing
            .retain(|departing| !std::ptr::addr_eq(Arc::as_ptr(departing), Arc::as_ptr(worker)));
    }

    /// Waits until the report that is being sent now has arrived at the pool.
    pub(crate) async fn wait_current_report(&self) {
        drop(self.queue.report_lock.lock().await);
    }

    /// Sends the pool its capacity, if the capacity has changed.
    pub(crate) async fn report_capacity(&self) {
        let _telling = self.queue.report_lock.lock().await;
        self.queue.report_capacity(&self.gate).await;
    }

    /// Returns the number of requests that the pool may have in flight at once.
    pub(crate) fn capacity(&self) -> u64 {
        self.queue.lock().capacity()
    }

    /// Returns true if the worker's provider accepts nothing at the moment, because of a pause or a spent account.
    pub(crate) fn is_paused(&self, worker: &str, now: Instant) -> bool {
        let reports = self.queue.lock();
        reports
            .workers
            .get(worker)
            .is_some_and(|report| report.is_out || report.paused_until.is_some_and(|it| it > now))
    }

    /// Records the availability of a worker.
    pub(crate) fn set_availability(&self, worker: &str, stands: WorkerAvailability) {
        self.queue.record(worker, |report| report.availability = Some(stands));
    }

    /// Records the rate limits of a worker.
    pub(crate) fn set_rates(&self, worker: &str, rates: WorkerRates) {
        self.queue.record(worker, |report| report.rates = Some(rates));
    }

    /// Waits until the pool has received all changes that were recorded before this call. They then
    /// apply to requests that are submitted afterwards.
    pub(crate) async fn wait_flushed(&self) {
        let notes = self.queue.lock().notes;
        let mut told = self.queue.flushed.subscribe();
        if self.queue.observes.load(Ordering::Relaxed) {
            // The sender is dropped only with the pool.
            let _ = told.wait_for(|told| *told >= notes).await;
        }
    }

    /// Records that a worker's provider accepts nothing until `until`, and the quota that is left
    /// then.
    pub(crate) fn pause_until(&self, worker: &str, until: Instant, left: RemainingQuota) {
        self.queue.record(worker, |report| {
            report.paused_until = Some(until);
            report.remaining.overwrite_with(left);
        });
    }

    /// Records that the account at a worker's provider is spent or blocked; if `is_out` is false,
    /// that it is usable again. Requests do not wait for a worker whose account is spent or
    /// blocked.
    pub(crate) fn set_out_of_service(&self, worker: &str, is_out: bool) {
        self.queue.record(worker, |report| report.is_out = is_out);
    }

    /// Records the requests and tokens that a worker's provider would accept at once.
    pub(crate) fn set_remaining(&self, worker: &str, left: RemainingQuota) {
        self.queue.record(worker, |report| report.remaining.overwrite_with(left));
    }
}

impl Drop for WorkerReporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PendingReports {
    /// Returns the number of requests that the pool may have in flight. The slots of a leaving
    /// worker count until it has left. Otherwise its requests in flight would take slots from the
    /// other workers.
    fn capacity(&self) -> u64 {
        let sum = || {
            let staying = self.workers.values().filter_map(|report| report.worker.as_ref());
            // The workers of one upstream share its slots.
            let upstreams: BTreeMap<_, _> =
                staying.chain(&self.departing).map(|worker| worker.upstream_slots()).collect();
            upstreams.into_values().flatten().fold(0, u64::saturating_add).max(1)
        };
        self.stated_capacity.unwrap_or_else(sum)
    }
}

impl RemainingQuota {
    /// Overwrites each field that `newer` states.
    fn overwrite_with(&mut self, newer: Self) {
        self.requests = newer.requests.or(self.requests);
        self.tokens = newer.tokens.or(self.tokens);
    }
}

impl ReportQueue {
    /// Sends the pool its capacity, if the capacity has changed. The caller must hold `report_lock`.
    async fn report_capacity(&self, gate: &Gate) {
        let capacity = self.lock().capacity();
        if self.capacity.swap(capacity, Ordering::Relaxed) != capacity {
            // Fails only if the gate is closed; the capacity then has no effect.
            let _ = gate.set_capacity(capacity).await;
        }
    }

    /// Records a change of a worker. The change is ignored if the pool does not have the worker.
    fn record(&self, worker: &str, write: impl FnOnce(&mut WorkerReport)) {
        let mut reports = self.lock();
        reports.notes += 1;
        if let Some(report) = reports.workers.get_mut(worker) {
            write(report);
            report.is_changed = true;
        }
        self.changed.notify_one();
    }

    /// Returns the next worker with a change to report. If there is none, all recorded changes were sent, and the error
    /// is their number.
    fn next(&self) -> Result<(Arc<str>, WorkerReport), u64> {
        let mut reports = self.lock();
        let notes = reports.notes;
        let next = reports.workers.iter_mut().find(|(_, report)| report.is_changed);
        let (name, report) = next.ok_or(notes)?;
        let news = report.clone();
        (report.is_changed, report.remaining) = (false, RemainingQuota::default());
        Ok((name.clone(), news))
    }

    fn lock(&self) -> MutexGuard<'_, PendingReports> {
        // Every change is a few assignments, so poison is harmless.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports every change to the pool, forever.
async fn report_changes(queue: Arc<ReportQueue>, gate: Gate) {
    loop {
        queue.changed.notified().await;
        while queue.observes.load(Ordering::Relaxed) {
            let _telling = queue.report_lock.lock().await;
            let (name, report) = match queue.next() {
                Ok(next) => next,
                Err(notes) => {
                    queue.flushed.send_replace(notes);
                    break;
                }
            };
            let (change, until) = change(&name, &report, Instant::now());
            // Fails only if the gate is closed; the report then has no effect.
            let _ = match until {
                Some(until) => gate.pause_worker(change, until).await,
                None => gate.change_worker(change).await,
            };
            queue.report_capacity(&gate).await;
        }
        if !queue.observes.load(Ordering::Relaxed) {
            // Another process reports, so nobody has to wait for this task.
            let notes = queue.lock().notes;
            queue.flushed.send_replace(notes);
        }
    }
}

/// Returns the event for a worker, and the end of the worker's pause; `None` if the worker is not paused. The pause
/// lasts until the worker's downtime and its provider's pause have both ended.
fn change(name: &str, report: &WorkerReport, now: Instant) -> (WorkerChange, Option<Instant>) {
    let WorkerReport {
        availability: stands,
        rates,
        paused_until: rests_until,
        is_out,
        remaining: left,
        ..
    } = report;
    let state = stands.map(|stands| stands.state);
    let is_drained = report.worker.as_ref().is_some_and(|worker| worker.is_drained());
    let change = WorkerChange {
        name: name.into(),
        state: match () {
            () if is_drained => Some(WorkerState::Drain),
            () if *is_out => Some(WorkerState::Overloaded),
            () => state.or(Some(WorkerState::Up)),
        },
        slots: stands.map(|stands| stands.slots),
        requests_per_minute: rates.map(|rates| rates.requests),
        tokens_per_minute: rates.map(|rates| rates.tokens),
        burst_seconds: rates.map(|rates| rates.burst),
        requests_remaining: left.requests,
        tokens_remaining: left.tokens,
        pause_until: Some(Micros(0)),
        ..WorkerChange::default()
    };
    let until = stands.and_then(|stands| stands.down_until).max(*rests_until);
    (change, until.filter(|until| *until > now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const UP: WorkerAvailability =
        WorkerAvailability { state: WorkerState::Up, slots: 4, down_until: None };

    fn queue() -> ReportQueue {
        let workers = BTreeMap::from([("w".into(), WorkerReport::default())]);
        ReportQueue {
            reports: Mutex::new(PendingReports { workers, ..PendingReports::default() }),
            changed: Notify::new(),
            observes: AtomicBool::new(true),
            flushed: watch::Sender::new(0),
            report_lock: TurnMutex::default(),
            capacity: AtomicU64::new(0),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_back_still_waits_for_its_provider() {
        let now = Instant::now();
        let [soon, later] = [1, 5].map(|seconds| now + Duration::from_secs(seconds));
        let report = WorkerReport {
            availability: Some(UP),
            paused_until: Some(later),
            ..WorkerReport::default()
        };
        assert_eq!(change("w", &report, now).1, Some(later));
        let down = WorkerAvailability { down_until: Some(soon), ..UP };
        let report = WorkerReport {
            availability: Some(down),
            paused_until: Some(now),
            ..WorkerReport::default()
        };
        assert_eq!(change("w", &report, now).1, Some(soon));
        let report = WorkerReport {
            availability: Some(UP),
            paused_until: Some(now),
            ..WorkerReport::default()
        };
        assert_eq!(change("w", &report, now).1, None);
    }

    #[tokio::test]
    async fn news_is_told_once_and_only_of_workers_that_the_pool_has() {
        let queue = queue();
        queue.record("stranger", |report| report.availability = Some(UP));
        assert!(queue.next().is_err());
        queue.record("w", |report| {
            report.remaining.overwrite_with(RemainingQuota { requests: Some(5), tokens: None })
        });
        queue.record("w", |report| {
            report.remaining.overwrite_with(RemainingQuota { requests: Some(3), tokens: Some(7) })
        });
        let (_, told) = queue.next().unwrap();
        assert_eq!(told.remaining, RemainingQuota { requests: Some(3), tokens: Some(7) });
        assert!(queue.next().is_err());
        queue.record("w", |report| report.availability = Some(UP));
        // What was left then is not what is left now.
        assert_eq!(queue.next().unwrap().1.remaining, RemainingQuota::default());
    }
}
