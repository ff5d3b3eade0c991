//! Tells the pools how a backend is doing, as events about one of their workers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_core::event::WorkerState;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{EngineHook, Standing, Upstream, health, scrape};
use crate::in_flight::InFlight;
use crate::pools::{Reporter, Stands};

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
    pub(crate) reporter: Arc<Reporter>,
    /// Who believes something of its workers' caches.
    pub(crate) hook: Arc<dyn EngineHook>,
    /// What is in flight on that worker.
    pub(crate) in_flight: InFlight,
    /// How long what needs a worker that is down may wait for it.
    pub(crate) down_wait: Duration,
}

/// What a pool was told of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct News {
    standing: Standing,
    /// Whether it has been down for longer than the pool waits.
    overdue: bool,
    /// How many requests it takes at once.
    slots: u64,
    /// Whether its engine has too much to do.
    overloaded: bool,
}

/// The pools that have the backend as a worker, and what each was told last.
pub(super) struct Told {
    employers: Mutex<Vec<(Employer, Option<News>)>>,
}

impl Watcher {
    /// Watches a backend; for which pools, [`watch_for`](Self::watch_for) says.
    pub(crate) fn start(upstream: Arc<Upstream>) -> Self {
        let told = Arc::new(Told { employers: Mutex::default() });
        let mut tasks = vec![
            tokio::spawn(tell(upstream.clone(), told.clone())),
            tokio::spawn(health::probe(upstream.clone())),
        ];
        if let Some(health) = upstream.config.health.clone() {
            tasks.push(tokio::spawn(health::ask(upstream.clone(), health)));
        }
        if let Some(metrics) = upstream.config.metrics.clone() {
            tasks.push(tokio::spawn(scrape::read(upstream.clone(), metrics, told.clone())));
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
    let mut down_since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if sweep_at <= now {
            upstream.sweep();
            sweep_at = now + SWEEP_EVERY;
        }
        let (standing, until) = upstream.condition.look(now);
        let down = announce(&upstream, &told, standing, down_since.is_some());
        if down && down_since.is_none() {
            // It may be another process that comes back.
            told.for_each_hook(|hook| hook.restarted(&upstream.name));
        }
        down_since = down.then(|| down_since.unwrap_or(now));
        let (behind, next) = told.behind(&upstream, standing, down_since, now);
        for (employer, news) in behind {
            employer.reporter.stands(&upstream.name, stands(news, &employer, now));
        }
        let wake_at = [until, next].into_iter().flatten().fold(sweep_at, Instant::min);
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
        Standing::Broken => ("it answers nobody", upstream.complaints.last_request()),
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

    /// Whether any pool is told what is seen of it.
    pub(super) fn is_observed(&self) -> bool {
        self.lock().iter().any(|(employer, _)| employer.reporter.observes())
    }

    /// How many requests all pools have in flight on it.
    pub(super) fn in_flight(&self) -> u64 {
        self.lock().iter().map(|(employer, _)| employer.in_flight.now()).sum()
    }

    /// Tells everybody who believes something of its cache.
    pub(super) fn for_each_hook(&self, tell: impl Fn(&dyn EngineHook)) {
        let hooks: Vec<_> = self.lock().iter().map(|(employer, _)| employer.hook.clone()).collect();
        hooks.iter().for_each(|hook| tell(&**hook));
    }

    /// The pools that were not told this yet, with what they are told; they count as told. And when there is more to tell
    /// if nothing happens.
    fn behind(
        &self,
        upstream: &Upstream,
        standing: Standing,
        down_since: Option<Instant>,
        now: Instant,
    ) -> (Vec<(Employer, News)>, Option<Instant>) {
        let (mut behind, mut next) = (Vec::new(), None::<Instant>);
        let slots = upstream.engine.slots().unwrap_or(u64::MAX);
        let overloaded = upstream.engine.overloaded().is_some();
        for (employer, last) in self.lock().iter_mut() {
            let overdue_at = down_since.map(|since| since + employer.down_wait);
            let overdue = overdue_at.is_some_and(|at| at <= now);
            let news = News { standing, overdue, slots, overloaded };
            if *last != Some(news) {
                *last = Some(news);
                behind.push((employer.clone(), news));
            }
            if let Some(at) = overdue_at.filter(|_| !news.overdue) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        (behind, next)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Employer, Option<News>)>> {
        self.employers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the core is told. A worker that is down is paused: what comes waits for it with what is there. Once it has been
/// down for too long it is overloaded: what comes and could go nowhere else is refused. One that is tried takes one more
/// than what has been on it since before it broke.
fn stands(news: News, employer: &Employer, now: Instant) -> Stands {
    let slots = news.slots;
    let up = Stands { state: WorkerState::Up, slots, down_until: None };
    match (news.standing, news.overdue) {
        (Standing::Unhealthy | Standing::Broken, true) => {
            Stands { state: WorkerState::Overloaded, ..up }
        }
        (Standing::Unhealthy | Standing::Broken, false) => {
            Stands { down_until: Some(now + employer.down_wait), ..up }
        }
        (Standing::Trial, _) => Stands { slots: slots.min(employer.in_flight.now() + 1), ..up },
        (Standing::Up, _) if news.overloaded => Stands { state: WorkerState::Overloaded, ..up },
        (Standing::Up, _) => up,
    }
}
