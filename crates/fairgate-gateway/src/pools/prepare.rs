//! From one configuration to the next, in two phases: everything that can fail is tried first, then it is switched.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::{Config, PoolConfig, QuotaConfig, UpstreamConfig};
use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_dialect::estimate::{Estimator, Table};
use fairgate_runtime::Gate;
use tokio::sync::OwnedMutexGuard;

use super::gates;
use super::handle::{PoolHandle, Setup, Worker};
use super::hits::CacheHits;
use super::names::Names;
use super::prefixes::Caches;
use super::remembered;
use super::reporter::Reporter;
use super::roster::Roster;
use super::spending::Spending;
use super::workers::Removal;
use super::{Model, Pools, Served, Staff};
use crate::in_flight::InFlight;
use crate::occupation::Occupation;
use crate::upstream::{Account, Employer, Member, Upstream, UpstreamError, Watcher};

/// How many (tenant, model) pairs a pool remembers the output of.
const ESTIMATED_NAMES_MAX: usize = 16_384;

/// Pools that cannot be as configured.
#[derive(Debug, thiserror::Error)]
pub enum PoolsError {
    /// An upstream's files or address.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// A pool names an upstream that there is not.
    #[error("pool {pool:?} names the upstream {upstream:?}, and there is none")]
    NoUpstream {
        /// The pool.
        pool: String,
        /// The upstream.
        upstream: String,
    },
    /// The folder of the state files.
    #[error("folder {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What operators said of workers, kept from before, cannot be read.
    #[error(
        "{}: {source}. Move the file away to start without what was said of workers: those added are gone, those drained work again",
        file.display()
    )]
    Workers {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// A pool's state file cannot be used: it is broken, or of an earlier edition of the scheduler's rules.
    #[error(
        "pool {pool:?}: {problem}. Move the file away to start without it: the pool's scores then start at 0"
    )]
    State {
        /// The pool.
        pool: String,
        /// What is wrong with the file.
        problem: fairgate_runtime::StateError,
    },
    /// A pool's gate did not start.
    #[error("pool {pool:?}: {source}")]
    Gate {
        /// The pool.
        pool: String,
        /// Why.
        source: fairgate_runtime::StartError,
    },
}

/// The next configuration's pools, ready to take over. Dropped, they are as if they had never been.
pub(crate) struct Prepared {
    /// Nobody else changes anything until this is in force, or dropped.
    staff: OwnedMutexGuard<Staff>,
    file: Arc<Config>,
    roster: Roster,
    /// How workers go that are no longer there.
    pub(super) removal: Removal,
    upstreams: HashMap<Arc<str>, Made>,
    accounts: BTreeMap<Arc<str>, Arc<Account>>,
    pools: Vec<PreparedPool>,
}

/// An upstream that is watched already, or a new one.
enum Made {
    Kept(Arc<Watcher>),
    New(Arc<Upstream>),
}

impl Made {
    fn upstream(&self) -> &Arc<Upstream> {
        match self {
            Self::Kept(watcher) => watcher.upstream(),
            Self::New(upstream) => upstream,
        }
    }
}

struct PreparedPool {
    config: PoolConfig,
    /// The pool that goes on, or the gate of a new one.
    from: Origin,
}

enum Origin {
    Running(Arc<PoolHandle>),
    New(Gate),
}

impl Pools {
    /// Makes everything that the next configuration needs. Changes nothing that is served.
    pub(crate) async fn prepare(&self, next: &Config) -> Result<Prepared, PoolsError> {
        let staff = self.staff.clone().lock_owned().await;
        let mut roster = staff.roster.clone();
        roster.keep_found(next);
        for lost in roster.lost_with(next) {
            tracing::warn!("{lost}: it is left out");
        }
        self.prepare_with(staff, Arc::new(next.clone()), roster)
    }

    /// The same for another roster.
    pub(super) fn prepare_with(
        &self,
        staff: OwnedMutexGuard<Staff>,
        file: Arc<Config>,
        roster: Roster,
    ) -> Result<Prepared, PoolsError> {
        let next = &roster.applied_to(&file);
        let served = self.served.load();
        let mut upstreams = HashMap::new();
        let mut accounts = BTreeMap::new();
        let remembered = remembered::read(&next.data_dir);
        for config in &next.upstreams {
            let kept = served.upstreams.get(config.name.as_str());
            let account = account_name(config).map(|name| {
                let served = served.accounts.get(&name).cloned();
                let account = accounts.entry(name.clone()).or_insert_with(|| {
                    let learned = remembered.get(&*name).copied();
                    let new = || Arc::new(Account::new(name, config.quota.clone(), learned));
                    served.unwrap_or_else(new)
                });
                account.clone()
            });
            let made = match kept.filter(|watcher| watcher.upstream().config == *config) {
                Some(watcher) => Made::Kept(watcher.clone()),
                None => Made::New(Arc::new(Upstream::new(config.clone(), account)?)),
            };
            upstreams.insert(made.upstream().name.clone(), made);
        }
        let mut pools = Vec::new();
        for config in &next.pools {
            let mut workers = Vec::new();
            for name in &config.workers {
                let made = upstreams.get(name.as_str()).ok_or_else(|| PoolsError::NoUpstream {
                    pool: config.name.clone(),
                    upstream: name.clone(),
                })?;
                workers.push(&made.upstream().config);
            }
            let from = match served.pools.get(config.name.as_str()) {
                Some(running) => Origin::Running(running.clone()),
                None => Origin::New(gates::open(next, config, workers.into_iter())?),
            };
            pools.push(PreparedPool { config: config.clone(), from });
        }
        let removal = Removal::Drained;
        Ok(Prepared { staff, file, roster, removal, upstreams, accounts, pools })
    }

    /// Puts what was prepared in the place of what was served. What is gone may finish within `grace`.
    pub(crate) async fn switch(&self, mut prepared: Prepared, grace: Duration) {
        let before = self.served.load_full();
        let mut served = Served::default();
        let mut employers: HashMap<Arc<str>, Vec<Employer>> = HashMap::new();
        let mut members: BTreeMap<Arc<str>, Vec<Member>> = BTreeMap::new();
        for PreparedPool { config, from } in prepared.pools {
            let pool = match from {
                Origin::Running(handle) => {
                    let workers =
                        Workers { upstreams: &prepared.upstreams, roster: &prepared.roster };
                    adopt(&handle, config, workers, prepared.removal).await;
                    handle
                }
                Origin::New(gate) => {
                    let workers =
                        Workers { upstreams: &prepared.upstreams, roster: &prepared.roster };
                    let pool = fresh(gate, config, workers).await;
                    load_table(pool.setup().tokens).await;
                    Arc::new(pool)
                }
            };
            for worker in &pool.setup().workers {
                if let Some(account) = &worker.upstream.account {
                    let name = worker.upstream.name.clone();
                    let member =
                        Member::new(pool.name.clone(), name, &pool.reporter, pool.gate.clone());
                    members.entry(account.name.clone()).or_default().push(member);
                }
                let employer = Employer {
                    pool: pool.name.clone(),
                    reporter: pool.reporter.clone(),
                    hook: pool.caches.clone(),
                    in_flight: worker.in_flight.clone(),
                    down_wait: pool.setup().config.down_wait,
                };
                employers.entry(worker.upstream.name.clone()).or_default().push(employer);
            }
            for model in &pool.setup().config.models {
                let entry = Model { pool: pool.clone(), config: model.clone() };
                served.models.insert(model.name.as_str().into(), Arc::new(entry));
            }
            served.pools.insert(pool.name.clone(), pool);
        }
        for (name, made) in prepared.upstreams {
            let employers = employers.remove(&name).unwrap_or_default();
            let watcher = match made {
                Made::Kept(watcher) => {
                    watcher.watch_for(employers);
                    watcher
                }
                Made::New(upstream) => {
                    let watcher = Watcher::start(upstream);
                    watcher.watch_for(employers);
                    Arc::new(watcher)
                }
            };
            let upstream = watcher.upstream();
            upstream.judge_by(prepared.roster.overload(&upstream.config));
            served.upstreams.insert(name, watcher);
        }
        for (name, account) in prepared.accounts {
            let upstreams = served.upstreams.values().map(|watcher| watcher.upstream());
            let mut of_it = upstreams
                .filter(|it| it.account.as_ref().is_some_and(|account| account.name == name));
            if let Some(upstream) = of_it.next() {
                let members = members.remove(&name).unwrap_or_default();
                account.serve(upstream.config.quota.clone(), members);
            }
            if !before.accounts.contains_key(&name) {
                tokio::spawn(Account::tend(Arc::downgrade(&account)));
            }
            served.accounts.insert(name, account);
        }
        retire(&before.pools, &served.pools, grace);
        self.served.store(Arc::new(served));
        *prepared.staff = Staff { file: prepared.file, roster: prepared.roster };
    }
}

/// The account that an upstream draws on: the one that it names, or one of its own; none where it is not hosted. Workers that
/// were made from an upstream have its credential, and so draw on its account.
fn account_name(upstream: &UpstreamConfig) -> Option<Arc<str>> {
    let QuotaConfig { account, .. } = &upstream.quota;
    match account {
        Some(account) => Some(account.as_str().into()),
        // No account can be called so.
        None => (upstream.quota.is_hosted() || upstream.is_leased)
            .then(|| format!("upstream {}", upstream.name_in_file()).into()),
    }
}

/// What a pool's workers are made of.
#[derive(Clone, Copy)]
struct Workers<'a> {
    upstreams: &'a HashMap<Arc<str>, Made>,
    roster: &'a Roster,
}

impl Workers<'_> {
    fn of(self, config: &PoolConfig, before: &[Arc<Worker>]) -> Vec<Arc<Worker>> {
        let found = config.workers.iter().filter_map(|name| self.upstreams.get(name.as_str()));
        found
            .map(|made| {
                let upstream = made.upstream().clone();
                // A worker that stays keeps its count, also where its upstream was made anew.
                let same = before.iter().find(|worker| worker.upstream.name == upstream.name);
                let in_flight =
                    same.map_or_else(InFlight::default, |worker| worker.in_flight.clone());
                let is_drained = self.roster.is_drained(&config.name, &upstream.name);
                let hits = same.map_or_else(CacheHits::default, |worker| worker.hits.clone());
                let expects_hits = config.prefix_index.is_some() || config.sticky_sessions;
                Arc::new(Worker { upstream, in_flight, is_drained, hits, expects_hits })
            })
            .collect()
    }
}

/// Loads the table before the first request would have to wait for it, which takes a few hundred milliseconds.
async fn load_table(table: Option<Table>) {
    if let Some(table) = table.filter(|table| !table.is_loaded()) {
        // A runtime that is shutting down loads nothing, and needs nothing.
        let _ = tokio::task::spawn_blocking(move || table.load()).await;
    }
}

async fn fresh(gate: Gate, config: PoolConfig, workers: Workers<'_>) -> PoolHandle {
    let workers = workers.of(&config, &[]);
    let reporter = Arc::new(Reporter::start(gate.clone(), &config));
    reporter.employ(&workers, &config);
    let caches = Arc::new(Caches::default());
    caches.employ(&config, &workers);
    if workers.is_empty() {
        name_a_worker(&gate).await;
    }
    for worker in workers.iter().filter(|worker| worker.is_drained) {
        let _ = gate.worker(turned(worker, WorkerState::Drain)).await;
    }
    PoolHandle {
        name: config.name.as_str().into(),
        gate,
        estimator: Estimator::new(config.cost.output_default, ESTIMATED_NAMES_MAX),
        names: Names::default(),
        setup: ArcSwap::from_pointee(Setup::new(config, workers)),
        occupation: Occupation::default(),
        spending: Spending::default(),
        reporter,
        caches,
    }
}

/// A pool that has never named a worker grants requests that go nowhere. One whose workers are all still to be found says that
/// it has some.
async fn name_a_worker(gate: &Gate) {
    for state in [WorkerState::Drain, WorkerState::Gone] {
        let name = "none".into();
        let change = WorkerChange { name, state: Some(state), ..WorkerChange::default() };
        let _ = gate.worker(change).await;
    }
}

fn turned(worker: &Worker, state: WorkerState) -> WorkerChange {
    let name = (&*worker.upstream.name).into();
    WorkerChange { name, state: Some(state), ..WorkerChange::default() }
}

/// What the pool is told of a worker that is new or not as before. Where this process observes it, the reporter says that it
/// is up again: it may be down.
fn news_of(
    worker: &Worker,
    before: Option<&Arc<Worker>>,
    pool: &PoolConfig,
) -> Option<WorkerChange> {
    let config = &worker.upstream.config;
    let was_drained = before.map(|before| before.is_drained);
    let state = match (was_drained, worker.is_drained) {
        (None | Some(false), true) => Some(WorkerState::Drain),
        // One that is taken on again while it drains works again.
        (None, false) => Some(WorkerState::Up),
        (Some(true), false) => Some(WorkerState::Up).filter(|_| !pool.observe),
        (Some(true), true) | (Some(false), false) => None,
    };
    match before.map(|before| &before.upstream.config) {
        None => Some(WorkerChange { state, ..gates::arrival(config) }),
        Some(before) if before != config => {
            Some(WorkerChange { state, ..gates::renewed(before, config) })
        }
        Some(_) => state.map(|state| turned(worker, state)),
    }
}

/// Makes a running pool what it is to be from now on. A gate that is closed has no use for any of it.
async fn adopt(pool: &Arc<PoolHandle>, config: PoolConfig, workers: Workers<'_>, removal: Removal) {
    let old = pool.setup.load_full();
    let workers = workers.of(&config, &old.workers);
    let next = Arc::new(Setup::new(config, workers));
    load_table(next.tokens).await;
    pool.estimator.set_output_default(next.config.cost.output_default);
    pool.setup.store(next.clone());
    let leaving: Vec<_> = old
        .workers
        .iter()
        .filter(|worker| next.worker(&worker.upstream.name).is_none())
        .cloned()
        .collect();
    leaving.iter().for_each(|worker| pool.reporter.departs(worker));
    pool.reporter.employ(&next.workers, &next.config);
    pool.caches.employ(&next.config, &next.workers);
    let moved = next.workers.iter().filter(|worker| {
        old.worker(&worker.upstream.name).is_some_and(|before| !before.is_where(worker))
    });
    moved.for_each(|worker| pool.caches.forget(&worker.upstream.name));
    // What was being told of the workers from before is told by then, so that nobody comes back who is gone.
    pool.reporter.pause().await;
    for worker in &next.workers {
        if let Some(change) = news_of(worker, old.worker(&worker.upstream.name), &next.config) {
            let _ = pool.gate.worker(change).await;
        }
    }
    if old.config.policy != next.config.policy {
        let _ = pool.gate.policy(next.config.policy.clone()).await;
    }
    pool.reporter.tell_capacity().await;
    for worker in leaving {
        dismiss(pool.clone(), worker, removal).await;
    }
}

/// A worker takes nothing more, and is forgotten once nothing is in flight on it, or at once.
async fn dismiss(pool: Arc<PoolHandle>, worker: Arc<Worker>, removal: Removal) {
    let first = match removal {
        Removal::Drained => WorkerState::Drain,
        Removal::Now => WorkerState::Gone,
    };
    let _ = pool.gate.worker(turned(&worker, first)).await;
    tokio::spawn(async move {
        worker.in_flight.none().await;
        // It may have been taken on again in the meantime.
        if removal == Removal::Drained && pool.setup().worker(&worker.upstream.name).is_none() {
            let _ = pool.gate.worker(turned(&worker, WorkerState::Gone)).await;
        }
        // Until now what was in flight on it had its slots.
        pool.reporter.has_departed(&worker);
        pool.reporter.tell_capacity().await;
    });
}

/// Pools that are no longer configured are drained.
fn retire(
    before: &BTreeMap<Arc<str>, Arc<PoolHandle>>,
    now: &BTreeMap<Arc<str>, Arc<PoolHandle>>,
    grace: Duration,
) {
    for pool in before.values().filter(|pool| !now.contains_key(&pool.name)) {
        let pool = pool.clone();
        tokio::spawn(async move {
            if let Ok(drained) = pool.gate.drain(grace).await {
                tracing::info!(pool = %pool.name, still_in_flight = drained.still_in_flight, "a pool is gone");
            }
        });
    }
}
