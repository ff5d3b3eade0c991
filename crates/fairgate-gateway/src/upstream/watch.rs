//! Tells the pools how a backend is doing, as events about one of their workers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_runtime::Gate;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{Standing, Upstream, health};
use crate::in_flight::InFlight;

/// How often idle connections are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// Watches one backend until it is dropped.
pub(crate) struct Watcher {
    told: Arc<Told>,
    upstream: Arc<Upstream>,
    tasks: Vec<JoinHandle<()>>,
}

/// A pool that has the backend as a worker.
#[derive(Clone)]
pub(crate) struct Employer {
    pub(crate) pool: Arc<str>,
    pub(crate) gate: Gate,
    /// What is in flight on that worker.
    pub(crate) in_flight: InFlight,
}

/// The pools that have the backend as a worker, and what each was told last.
struct Told {
    employers: Mutex<Vec<(Employer, Option<Standing>)>>,
}

impl Watcher {
    /// Watches a backend; for which pools, [`watch_for`](Self::watch_for) says.
    pub(crate) fn start(upstream: Arc<Upstream>) -> Self {
        let told = Arc::new(Told { employers: Mutex::default() });
        let mut tasks = vec![tokio::spawn(tell(upstream.clone(), told.clone()))];
        if let Some(health) = upstream.config.health.clone() {
            tasks.push(tokio::spawn(health::ask(upstream.clone(), health)));
        }
        Self { told, upstream, tasks }
    }

    pub(crate) fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }

    /// These pools have it as a worker from now on; all of them are told where it stands.
    pub(crate) fn watch_for(&self, employers: Vec<Employer>) {
        *self.told.lock() = employers.into_iter().map(|one| (one, None)).collect();
        self.upstream.condition.changed.notify_one();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Passes every change of standing on, in order.
async fn tell(upstream: Arc<Upstream>, told: Arc<Told>) {
    let mut sweep_at = Instant::now() + SWEEP_EVERY;
    // Every worker is taken to be up at first, of which nothing needs to be said.
    let mut down = false;
    loop {
        let now = Instant::now();
        if sweep_at <= now {
            upstream.sweep();
            sweep_at = now + SWEEP_EVERY;
        }
        let (standing, until) = upstream.condition.look(now);
        down = announce(&upstream, &told, standing, down);
        for employer in told.behind(standing) {
            // A gate that has closed has no use for it.
            let _ = employer.gate.worker(change(&upstream, standing, &employer.in_flight)).await;
        }
        let wake_at = until.map_or(sweep_at, |until| until.min(sweep_at));
        tokio::select! {
            () = upstream.condition.changed.notified() => {}
            () = sleep_until(wake_at) => {}
        }
    }
}

/// Says in the log that a worker has gone down or is back, for each of its pools. Whether it is down now.
fn announce(upstream: &Upstream, told: &Told, standing: Standing, was_down: bool) -> bool {
    let (why, cause) = match standing {
        Standing::Up => ("", None),
        // It is tried, of which nothing is known yet.
        Standing::Trial => return was_down,
        Standing::Unhealthy => ("its health checks fail", upstream.complaints.last_check()),
        Standing::Broken => ("requests fail on it", upstream.complaints.last_request()),
    };
    let down = standing != Standing::Up;
    let (worker, cause) = (&upstream.name, cause.map(|cause| cause.to_string()));
    for pool in told.pools().into_iter().filter(|_| down != was_down) {
        match down {
            true => tracing::warn!(%pool, %worker, why, cause, "a worker is down"),
            false => tracing::info!(%pool, %worker, "a worker is back"),
        }
    }
    down
}

impl Told {
    /// The names of the pools.
    fn pools(&self) -> Vec<Arc<str>> {
        self.lock().iter().map(|(employer, _)| employer.pool.clone()).collect()
    }

    /// The pools that were not told this yet; they count as told.
    fn behind(&self, standing: Standing) -> Vec<Employer> {
        let mut employers = self.lock();
        let behind = employers.iter_mut().filter(|(_, last)| *last != Some(standing));
        behind
            .map(|(employer, last)| {
                *last = Some(standing);
                employer.clone()
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Employer, Option<Standing>)>> {
        self.employers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the core is told. Requests may wait for an overloaded worker; one that is tried takes one more than what has
/// been on it since before it broke.
fn change(upstream: &Upstream, standing: Standing, in_flight: &InFlight) -> WorkerChange {
    let state = match standing {
        Standing::Up | Standing::Trial => WorkerState::Up,
        Standing::Unhealthy | Standing::Broken => WorkerState::Overloaded,
    };
    let slots = upstream.config.slots.unwrap_or(u64::MAX);
    let slots = match standing {
        Standing::Trial => slots.min(in_flight.now() + 1),
        _ => slots,
    };
    WorkerChange {
        name: (&*upstream.name).into(),
        state: Some(state),
        slots: Some(slots),
        ..WorkerChange::default()
    }
}
