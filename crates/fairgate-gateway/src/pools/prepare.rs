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

use super::gates;
use super::handle::{PoolHandle, Setup, Worker};
use super::names::Names;
use super::remembered;
use super::reporter::Reporter;
use super::spending::Spending;
use super::{Model, Pools, Served};
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
    pub(crate) fn prepare(&self, next: &Config) -> Result<Prepared, PoolsError> {
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
        Ok(Prepared { upstreams, accounts, pools })
    }

    /// Puts what was prepared in the place of what was served. What is gone may finish within `grace`.
    pub(crate) async fn switch(&self, prepared: Prepared, grace: Duration) {
        let before = self.served.load_full();
        let mut served = Served::default();
        let mut employers: HashMap<Arc<str>, Vec<Employer>> = HashMap::new();
        let mut members: BTreeMap<Arc<str>, Vec<Member>> = BTreeMap::new();
        for PreparedPool { config, from } in prepared.pools {
            let pool = match from {
                Origin::Running(handle) => {
                    adopt(&handle, config, &prepared.upstreams).await;
                    handle
                }
                Origin::New(gate) => {
                    let pool = fresh(gate, config, &prepared.upstreams);
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
    }
}

/// The account that an upstream draws on: the one that it names, or one of its own; none where it is not hosted.
fn account_name(upstream: &UpstreamConfig) -> Option<Arc<str>> {
    let QuotaConfig { account, .. } = &upstream.quota;
    match account {
        Some(account) => Some(account.as_str().into()),
        // No account can be called so.
        None => upstream.quota.is_hosted().then(|| format!("upstream {}", upstream.name).into()),
    }
}

fn workers_of(
    config: &PoolConfig,
    upstreams: &HashMap<Arc<str>, Made>,
    before: &[Arc<Worker>],
) -> Vec<Arc<Worker>> {
    let found = config.workers.iter().filter_map(|name| upstreams.get(name.as_str()));
    found
        .map(|made| {
            let upstream = made.upstream().clone();
            // A worker that stays keeps its count, also where its upstream was made anew.
            let same = before.iter().find(|worker| worker.upstream.name == upstream.name);
            let in_flight = same.map_or_else(InFlight::default, |worker| worker.in_flight.clone());
            Arc::new(Worker { upstream, in_flight })
        })
        .collect()
}

/// Loads the table before the first request would have to wait for it, which takes a few hundred milliseconds.
async fn load_table(table: Option<Table>) {
    if let Some(table) = table.filter(|table| !table.is_loaded()) {
        // A runtime that is shutting down loads nothing, and needs nothing.
        let _ = tokio::task::spawn_blocking(move || table.load()).await;
    }
}

fn fresh(gate: Gate, config: PoolConfig, upstreams: &HashMap<Arc<str>, Made>) -> PoolHandle {
    let workers = workers_of(&config, upstreams, &[]);
    let reporter = Arc::new(Reporter::start(gate.clone(), config.observe));
    reporter.employ(workers.iter().map(|worker| &worker.upstream.name), config.observe);
    PoolHandle {
        name: config.name.as_str().into(),
        gate,
        estimator: Estimator::new(config.cost.output_default, ESTIMATED_NAMES_MAX),
        names: Names::default(),
        setup: ArcSwap::from_pointee(Setup::new(config, workers)),
        occupation: Occupation::default(),
        spending: Spending::default(),
        reporter,
    }
}

/// Makes a running pool what it is to be from now on. A gate that is closed has no use for any of it.
async fn adopt(pool: &Arc<PoolHandle>, config: PoolConfig, upstreams: &HashMap<Arc<str>, Made>) {
    let old = pool.setup.load_full();
    let workers = workers_of(&config, upstreams, &old.workers);
    let next = Arc::new(Setup::new(config, workers));
    load_table(next.tokens).await;
    pool.estimator.set_output_default(next.config.cost.output_default);
    pool.setup.store(next.clone());
    let names = next.workers.iter().map(|worker| &worker.upstream.name);
    pool.reporter.employ(names, next.config.observe);
    for worker in &next.workers {
        let config = &worker.upstream.config;
        let before = old.worker(&worker.upstream.name).map(|worker| worker.upstream.config.tier);
        if before.is_none() {
            let _ = pool.gate.worker(gates::arrival(config)).await;
        } else if before != Some(config.tier) {
            let name = (&*worker.upstream.name).into();
            let tier = Some(config.tier.into());
            let _ = pool.gate.worker(WorkerChange { name, tier, ..WorkerChange::default() }).await;
        }
    }
    if old.config.policy != next.config.policy {
        let _ = pool.gate.policy(next.config.policy.clone()).await;
    }
    if old.config.capacity != next.config.capacity {
        let _ = pool.gate.capacity(next.config.capacity).await;
    }
    for worker in &old.workers {
        if next.worker(&worker.upstream.name).is_none() {
            dismiss(pool.clone(), worker.clone()).await;
        }
    }
}

/// A worker takes nothing more, and is forgotten once nothing is in flight on it.
async fn dismiss(pool: Arc<PoolHandle>, worker: Arc<Worker>) {
    let turned = |state| WorkerChange {
        name: (&*worker.upstream.name).into(),
        state: Some(state),
        ..WorkerChange::default()
    };
    let _ = pool.gate.worker(turned(WorkerState::Drain)).await;
    let gone = turned(WorkerState::Gone);
    tokio::spawn(async move {
        worker.in_flight.none().await;
        // It may have been taken on again in the meantime.
        if pool.setup().worker(&worker.upstream.name).is_none() {
            let _ = pool.gate.worker(gone).await;
        }
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
