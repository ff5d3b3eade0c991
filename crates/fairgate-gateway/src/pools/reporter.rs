//! Tells a pool what is observed of its workers, as worker events. One task for each pool, and the only one that does: where
//! another process feeds a pool's events, this one can be switched off.
//!
//! Whoever observes something leaves it here and goes on. What is new about a worker replaces what was not told yet, so
//! nothing piles up, however often a provider changes its mind.

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

use super::handle::Worker;

/// The way to tell a pool about its workers.
pub(crate) struct Reporter {
    desk: Arc<Desk>,
    gate: Gate,
    task: JoinHandle<()>,
}

struct Desk {
    reports: Mutex<Reports>,
    news: Notify,
    observes: AtomicBool,
    /// How many notes the pool has been told.
    told: watch::Sender<u64>,
    /// Held while the pool is being told something.
    telling: TurnMutex<()>,
    /// The capacity that the pool was told last.
    capacity: AtomicU64,
}

#[derive(Default)]
struct Reports {
    workers: BTreeMap<Arc<str>, Report>,
    /// How many notes there have been.
    notes: u64,
    /// Workers that go and on which something is still in flight.
    departing: Vec<Arc<Worker>>,
    /// What the file states; none where the capacity is the sum of the workers' slots.
    stated_capacity: Option<u64>,
}

/// What is known of a worker.
#[derive(Clone, Default)]
struct Report {
    worker: Option<Arc<Worker>>,
    stands: Option<Stands>,
    rates: Option<Rates>,
    /// Until when its provider wants nothing.
    rests_until: Option<Instant>,
    /// Whether its provider will take nothing until somebody pays or asks.
    is_out: bool,
    /// What its provider would take at once, where that is news.
    left: Left,
    is_news: bool,
}

/// Whether a worker takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stands {
    pub(crate) state: WorkerState,
    pub(crate) slots: u64,
    /// Until when what needs it waits for it to come back.
    pub(crate) down_until: Option<Instant>,
}

/// What a worker's provider lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) requests: Option<PerMinute>,
    pub(crate) tokens: Option<PerMinute>,
    pub(crate) burst: BurstSeconds,
}

/// What a worker's provider would take at once; absent where nothing is to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) requests: Option<u64>,
    pub(crate) tokens: Option<u64>,
}

impl Reporter {
    /// Starts to tell a pool, where it is observed by this process.
    pub(crate) fn start(gate: Gate, config: &PoolConfig) -> Self {
        let desk = Arc::new(Desk {
            reports: Mutex::default(),
            news: Notify::new(),
            observes: AtomicBool::new(config.observe),
            told: watch::Sender::new(0),
            telling: TurnMutex::default(),
            capacity: AtomicU64::new(config.capacity),
        });
        let task = tokio::spawn(tell(desk.clone(), gate.clone()));
        Self { desk, gate, task }
    }

    /// The pool has these workers from now on: of others nothing is told.
    pub(crate) fn employ(&self, workers: &[Arc<Worker>], config: &PoolConfig) {
        let mut reports = self.desk.lock();
        let mut kept: BTreeMap<_, _> = workers
            .iter()
            .map(|worker| {
                let name = &worker.upstream.name;
                let mut report = reports.workers.remove(name).unwrap_or_default();
                let was_drained = report.worker.as_ref().is_some_and(|worker| worker.is_drained);
                // Once more after whatever is being told of it at this moment.
                report.is_news |= was_drained != worker.is_drained;
                report.worker = Some(worker.clone());
                (name.clone(), report)
            })
            .collect();
        let was_off = !self.desk.observes.swap(config.observe, Ordering::Relaxed);
        if config.observe && was_off {
            kept.values_mut().for_each(|report| report.is_news = true);
        }
        reports.workers = kept;
        reports.stated_capacity = Some(config.capacity).filter(|_| !config.follows_slots);
        self.desk.news.notify_one();
    }

    /// Whether the pool is told what this process sees of its workers.
    pub(crate) fn observes(&self) -> bool {
        self.desk.observes.load(Ordering::Relaxed)
    }

    /// A worker goes. Until it has left, what is in flight on it counts beside the others' slots.
    pub(crate) fn departs(&self, worker: &Arc<Worker>) {
        self.desk.lock().departing.push(worker.clone());
    }

    /// Nothing is in flight any more on a worker that went.
    pub(crate) fn has_departed(&self, worker: &Arc<Worker>) {
        self.desk.lock().departing.retain(|departing| !Arc::ptr_eq(departing, worker));
    }

    /// Waits until the pool has been told what is being told it at this moment.
    pub(crate) async fn pause(&self) {
        drop(self.desk.telling.lock().await);
    }

    /// Tells the pool its capacity, where that has changed.
    pub(crate) async fn tell_capacity(&self) {
        let _telling = self.desk.telling.lock().await;
        self.desk.tell_capacity(&self.gate).await;
    }

    /// Whether a worker takes requests.
    pub(crate) fn stands(&self, worker: &str, stands: Stands) {
        self.desk.note(worker, |report| report.stands = Some(stands));
    }

    /// What a worker's provider lets through.
    pub(crate) fn may(&self, worker: &str, rates: Rates) {
        self.desk.note(worker, |report| report.rates = Some(rates));
    }

    /// Waits until the pool has been told all that was noted so far: who is submitted then is not granted in ignorance of it.
    pub(crate) async fn is_told(&self) {
        let notes = self.desk.lock().notes;
        let mut told = self.desk.told.subscribe();
        if self.desk.observes.load(Ordering::Relaxed) {
            // The sender is gone only with the pool.
            let _ = told.wait_for(|told| *told >= notes).await;
        }
    }

    /// A worker's provider wants nothing until then, and has nothing left that it would take at once.
    pub(crate) fn rests(&self, worker: &str, until: Instant, left: Left) {
        self.desk.note(worker, |report| {
            report.rests_until = Some(until);
            report.left.meet(left);
        });
    }

    /// Whether a worker's provider will take nothing until somebody pays or asks: nobody waits for that.
    pub(crate) fn is_out(&self, worker: &str, is_out: bool) {
        self.desk.note(worker, |report| report.is_out = is_out);
    }

    /// What a worker's provider would take at once.
    pub(crate) fn has_left(&self, worker: &str, left: Left) {
        self.desk.note(worker, |report| report.left.meet(left));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reports {
    /// How many requests the pool may have in flight. Workers that go have their slots until they have left: else what is in
    /// flight on them would take the place of what the others could work on.
    fn capacity(&self) -> u64 {
        let sum = || {
            let staying = self.workers.values().filter_map(|report| report.worker.as_ref());
            let slots = |worker: &Arc<Worker>| worker.upstream.slots_in_all();
            let all = staying.chain(&self.departing).filter_map(slots);
            all.fold(0, u64::saturating_add).max(1)
        };
        self.stated_capacity.unwrap_or_else(sum)
    }
}

impl Left {
    /// What is newer counts.
    fn meet(&mut self, newer: Self) {
        self.requests = newer.requests.or(self.requests);
        self.tokens = newer.tokens.or(self.tokens);
    }
}

impl Desk {
    /// Tells the pool its capacity, where that has changed. Only while nothing else is told.
    async fn tell_capacity(&self, gate: &Gate) {
        let capacity = self.lock().capacity();
        if self.capacity.swap(capacity, Ordering::Relaxed) != capacity {
            // A gate that has closed has no use for it.
            let _ = gate.capacity(capacity).await;
        }
    }

    /// Notes something of a worker that the pool has.
    fn note(&self, worker: &str, write: impl FnOnce(&mut Report)) {
        let mut reports = self.lock();
        reports.notes += 1;
        if let Some(report) = reports.workers.get_mut(worker) {
            write(report);
            report.is_news = true;
        }
        self.news.notify_one();
    }

    /// The next worker of whom there is something to tell; else how many notes the pool has been told.
    fn next(&self) -> Result<(Arc<str>, Report), u64> {
        let mut reports = self.lock();
        let notes = reports.notes;
        let next = reports.workers.iter_mut().find(|(_, report)| report.is_news);
        let (name, report) = next.ok_or(notes)?;
        let news = report.clone();
        (report.is_news, report.left) = (false, Left::default());
        Ok((name.clone(), news))
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        // Every change is a few assignments.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the pool whatever is new, for ever.
async fn tell(desk: Arc<Desk>, gate: Gate) {
    loop {
        desk.news.notified().await;
        while desk.observes.load(Ordering::Relaxed) {
            let _telling = desk.telling.lock().await;
            let (name, report) = match desk.next() {
                Ok(next) => next,
                Err(notes) => {
                    desk.told.send_replace(notes);
                    break;
                }
            };
            let (change, until) = change(&name, &report, Instant::now());
            // A gate that has closed has no use for it.
            let _ = match until {
                Some(until) => gate.pause_worker(change, until).await,
                None => gate.worker(change).await,
            };
            desk.tell_capacity(&gate).await;
        }
        if !desk.observes.load(Ordering::Relaxed) {
            // Another process tells it: nobody waits for us to.
            let notes = desk.lock().notes;
            desk.told.send_replace(notes);
        }
    }
}

/// The event, and until when the worker is to be left alone: as long as it is down or its provider wants nothing.
fn change(name: &str, report: &Report, now: Instant) -> (WorkerChange, Option<Instant>) {
    let Report { stands, rates, rests_until, is_out, left, .. } = report;
    let state = stands.map(|stands| stands.state);
    let is_drained = report.worker.as_ref().is_some_and(|worker| worker.is_drained);
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

    const UP: Stands = Stands { state: WorkerState::Up, slots: 4, down_until: None };

    fn desk() -> Desk {
        let workers = BTreeMap::from([("w".into(), Report::default())]);
        Desk {
            reports: Mutex::new(Reports { workers, ..Reports::default() }),
            news: Notify::new(),
            observes: AtomicBool::new(true),
            told: watch::Sender::new(0),
            telling: TurnMutex::default(),
            capacity: AtomicU64::new(0),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_back_still_waits_for_its_provider() {
        let now = Instant::now();
        let [soon, later] = [1, 5].map(|seconds| now + Duration::from_secs(seconds));
        let report = Report { stands: Some(UP), rests_until: Some(later), ..Report::default() };
        assert_eq!(change("w", &report, now).1, Some(later));
        let down = Stands { down_until: Some(soon), ..UP };
        let report = Report { stands: Some(down), rests_until: Some(now), ..Report::default() };
        assert_eq!(change("w", &report, now).1, Some(soon));
        let report = Report { stands: Some(UP), rests_until: Some(now), ..Report::default() };
        assert_eq!(change("w", &report, now).1, None);
    }

    #[tokio::test]
    async fn news_is_told_once_and_only_of_workers_that_the_pool_has() {
        let desk = desk();
        desk.note("stranger", |report| report.stands = Some(UP));
        assert!(desk.next().is_err());
        desk.note("w", |report| report.left.meet(Left { requests: Some(5), tokens: None }));
        desk.note("w", |report| report.left.meet(Left { requests: Some(3), tokens: Some(7) }));
        let (_, told) = desk.next().unwrap();
        assert_eq!(told.left, Left { requests: Some(3), tokens: Some(7) });
        assert!(desk.next().is_err());
        desk.note("w", |report| report.stands = Some(UP));
        // What was left then is not what is left now.
        assert_eq!(desk.next().unwrap().1.left, Left::default());
    }
}
