//! Switches from one configuration to the next in two phases. Everything that can fail is done in the first phase, and
//! the switch in the second.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::{Config, PoolConfig};
use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_dialect::estimate::{TokenEstimator, TokenizerTable};
use fairgate_runtime::Gate;
use tokio::sync::OwnedMutexGuard;

use super::account_models;
use super::account_models::{AccountModelKey, AccountModels, PlannedWorker};
use super::cache_hits::CacheHits;
use super::client_flow_names::ClientFlowNames;
use super::gates;
use super::handle::{PoolHandle, PoolSetup, PoolWorker, QueuedByModel};
use super::learned_rates;
use super::prefixes::WorkerCaches;
use super::roster::WorkerRoster;
use super::spending::TenantSpending;
use super::state_units;
use super::worker_meters::WorkerMeters;
use super::workers::WorkerRemoval;
use super::{Pools, ServedModel, ServedPools, WorkerSources};
use crate::live_count::LiveCount;
use crate::slot_time_books::SlotTimePrice;
use crate::upstream::{
    AccountMember, PoolOfWorker, ProviderAccount, Upstream, UpstreamError, UpstreamWatcher,
};
use crate::worker_reporter::WorkerReporter;

/// Maximum number of (tenant, model) pairs whose output length a pool remembers.
const ESTIMATED_NAMES_MAX: usize = 16_384;

/// Reason why the pools cannot be started or changed as configured.
#[derive(Debug, thiserror::Error)]
pub enum PoolsError {
    /// The files, address or credential of an upstream cannot be used.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// A pool names an upstream that does not exist.
    #[error("pool {pool:?} names the upstream {upstream:?}, and there is none")]
    NoUpstream {
        /// Name of the pool.
        pool: String,
        /// Name of the missing upstream.
        upstream: String,
    },
    /// The folder of the state files could not be created.
    #[error("folder {}: {source}", folder.display())]
    Folder {
        /// Path of the folder.
        folder: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file with operators' changes to workers cannot be read.
    #[error(
        "{}: {source}. Move the file away to start without what was said of workers: those added are gone, those drained work again",
        file.display()
    )]
    Workers {
        /// Path of the file.
        file: PathBuf,
        /// Reason why the file cannot be read.
        source: io::Error,
    },
    /// The state file of a pool cannot be used, because it is corrupt or from an earlier version of the scheduler's
    /// rules.
    #[error(
        "pool {pool:?}: {problem}. Move the file away to start without it: the pool's scores then start at 0"
    )]
    State {
        /// Name of the pool.
        pool: String,
        /// Reason why the file cannot be used.
        problem: fairgate_runtime::StateFileError,
    },
    /// The gate of a pool did not start.
    #[error("pool {pool:?}: {source}")]
    Gate {
        /// Name of the pool.
        pool: String,
        /// Reason why the gate did not start.
        source: fairgate_runtime::GateStartError,
    },
}

/// Pools of the next configuration, ready to take over. Dropping the value leaves the served pools unchanged.
pub struct PreparedPools {
    /// Lock that blocks all other changes until this one is in force, or dropped.
    sources: OwnedMutexGuard<WorkerSources>,
    file: Arc<Config>,
    roster: WorkerRoster,
    /// How the workers are removed that the next configuration does not have.
    pub(super) removal: WorkerRemoval,
    upstreams: HashMap<Arc<str>, PreparedUpstream>,
    models: AccountModels,
    accounts: BTreeMap<AccountModelKey, Arc<ProviderAccount>>,
    pools: Vec<PreparedPool>,
}

/// An upstream that is already watched, or a new one.
enum PreparedUpstream {
    Kept(Arc<UpstreamWatcher>),
    New(Arc<Upstream>),
}

impl PreparedUpstream {
    fn upstream(&self) -> &Arc<Upstream> {
        match self {
            Self::Kept(watcher) => watcher.upstream(),
            Self::New(upstream) => upstream,
        }
    }
}

struct PreparedPool {
    config: PoolConfig,
    /// The running pool, or the gate of a new pool.
    from: PreparedGate,
}

enum PreparedGate {
    Running(Arc<PoolHandle>),
    New(Gate),
}

impl Pools {
    /// Creates everything that the next configuration needs. Does not change the served configuration.
    pub async fn prepare(&self, next: &Config) -> Result<PreparedPools, PoolsError> {
        let sources = self.worker_sources.clone().lock_owned().await;
        let mut roster = sources.roster.clone();
        roster.retain_discovered(next);
        for lost in roster.lost_with(next) {
            tracing::warn!("{lost}: it is left out");
        }
        self.prepare_with(sources, Arc::new(next.clone()), roster)
    }

    /// Creates everything that the next configuration needs. The next configuration is `file` with the workers of
    /// `roster`. Does not change the served configuration.
    pub(super) fn prepare_with(
        &self,
        sources: OwnedMutexGuard<WorkerSources>,
        file: Arc<Config>,
        roster: WorkerRoster,
    ) -> Result<PreparedPools, PoolsError> {
        let next = &roster.applied_to(&file);
        let served = self.served.load();
        let mut upstreams = HashMap::new();
        let mut accounts = BTreeMap::new();
        let models = AccountModels::of(next);
        let remembered = learned_rates::read(&next.data_dir);
        for config in &next.upstreams {
            let kept = served.upstreams.get(config.name.as_str());
            let made = match kept.filter(|watcher| watcher.upstream().config == *config) {
                Some(watcher) => PreparedUpstream::Kept(watcher.clone()),
                None => PreparedUpstream::New(Arc::new(Upstream::new(config.clone())?)),
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
                let upstream = &made.upstream().config;
                for planned in models.workers(upstream, config) {
                    let PlannedWorker { name, limits, first_slots, .. } = planned;
                    workers.push(gates::new_worker(upstream, &name, first_slots));
                    if let Some(key) = limits.filter(|key| !accounts.contains_key(key)) {
                        let kept = served.accounts.get(&key).cloned();
                        let account = kept.unwrap_or_else(|| {
                            let learned = learned_rates::of(&remembered, &key);
                            let (account, model) = (key.account.clone(), key.model.clone());
                            let quota = upstream.quota.clone();
                            Arc::new(ProviderAccount::new(account, model, quota, learned))
                        });
                        accounts.insert(key, account);
                    }
                }
            }
            let from = match served.pools.get(config.name.as_str()) {
                Some(running) => PreparedGate::Running(running.clone()),
                None => PreparedGate::New(gates::open(next, config, workers)?),
            };
            pools.push(PreparedPool { config: config.clone(), from });
        }
        let removal = WorkerRemoval::Drained;
        Ok(PreparedPools { sources, file, roster, removal, upstreams, models, accounts, pools })
    }

    /// Puts the prepared configuration in force. Pools that are no longer configured may finish their requests within
    /// `grace`.
    pub async fn switch(&self, mut prepared: PreparedPools, grace: Duration) {
        let before = self.served.load_full();
        let meters = prepared.meters(&before);
        let mut served = ServedPools::default();
        let mut worker_pools: HashMap<Arc<str>, Vec<PoolOfWorker>> = HashMap::new();
        let mut members: BTreeMap<AccountModelKey, Vec<AccountMember>> = BTreeMap::new();
        for PreparedPool { config, from } in prepared.pools {
            let workers = WorkerInputs {
                upstreams: &prepared.upstreams,
                roster: &prepared.roster,
                models: &prepared.models,
                accounts: &prepared.accounts,
                meters: &meters,
            };
            let pool = match from {
                PreparedGate::Running(handle) => {
                    let (unit_before, unit) = (handle.setup().unit(), config.cost.unit);
                    update_pool(&handle, config, workers, prepared.removal).await;
                    if unit != unit_before {
                        state_units::keep(&prepared.file.data_dir, &handle.name, unit).await;
                    }
                    handle
                }
                PreparedGate::New(gate) => {
                    let pool = new_pool(gate, config, workers).await;
                    load_table(pool.setup().tokens).await;
                    Arc::new(pool)
                }
            };
            for worker in &pool.setup().workers {
                if let Some(account) = &worker.account {
                    let (pool_name, waiting) = (pool.name.clone(), worker.waiting.clone());
                    let name = worker.name.clone();
                    let member = AccountMember::new(pool_name, name, &pool.reporter, waiting);
                    let (account, model) = (account.name.clone(), account.model.clone());
                    let key = AccountModelKey { account, model };
                    members.entry(key).or_default().push(member);
                }
                let is_only_upstream = pool
                    .setup()
                    .workers
                    .iter()
                    .all(|other| other.upstream.name == worker.upstream.name);
                let worker_pool = PoolOfWorker {
                    pool: pool.name.clone(),
                    worker: worker.name.clone(),
                    waiting: worker.waiting.clone(),
                    first_slots: worker.first_slots,
                    is_only_upstream,
                    reporter: pool.reporter.clone(),
                    hook: pool.caches.clone(),
                    in_flight: worker.in_flight.clone(),
                    down_wait: pool.setup().config.down_wait,
                };
                worker_pools.entry(worker.upstream.name.clone()).or_default().push(worker_pool);
            }
            for model in &pool.setup().config.models {
                let waiting = pool.queued_requests(&model.name);
                let entry = ServedModel { pool: pool.clone(), config: model.clone(), waiting };
                served.models.insert(model.name.as_str().into(), Arc::new(entry));
            }
            served.pools.insert(pool.name.clone(), pool);
        }
        for (name, made) in prepared.upstreams {
            let worker_pools = worker_pools.remove(&name).unwrap_or_default();
            let watcher = match made {
                PreparedUpstream::Kept(watcher) => {
                    watcher.set_pools(worker_pools);
                    watcher
                }
                PreparedUpstream::New(upstream) => {
                    let watcher = UpstreamWatcher::start(upstream);
                    watcher.set_pools(worker_pools);
                    Arc::new(watcher)
                }
            };
            let upstream = watcher.upstream();
            upstream.set_overload_thresholds(prepared.roster.overload(&upstream.config));
            served.upstreams.insert(name, watcher);
        }
        for (key, account) in prepared.accounts {
            // All upstreams of an account state the same options.
            let mut upstreams = served.upstreams.values().map(|watcher| watcher.upstream());
            let of_it = |it: &&Arc<Upstream>| {
                account_models::account_name(&it.config).as_ref() == Some(&key.account)
            };
            if let Some(upstream) = upstreams.find(of_it) {
                let members = members.remove(&key).unwrap_or_default();
                account.set_members(upstream.config.quota.clone(), members);
            }
            if !before.accounts.contains_key(&key) {
                tokio::spawn(ProviderAccount::run_updates(Arc::downgrade(&account)));
            }
            served.accounts.insert(key, account);
        }
        drain_removed_pools(&before.pools, &served.pools, grace);
        self.served.store(Arc::new(served));
        *prepared.sources = WorkerSources { file: prepared.file, roster: prepared.roster };
    }
}

impl PreparedPools {
    /// Returns the meters of all workers. Meters of the currently served pools are kept.
    fn meters(&self, before: &ServedPools) -> WorkerMeters {
        let pools: Vec<&PoolConfig> = self.pools.iter().map(|pool| &pool.config).collect();
        let upstream = |name: &str| self.upstreams.get(name).map(|made| made.upstream().clone());
        WorkerMeters::of(&pools, upstream, &before.pools)
    }
}

/// Upstreams and roster from which the workers of a pool are made.
#[derive(Clone, Copy)]
struct WorkerInputs<'a> {
    upstreams: &'a HashMap<Arc<str>, PreparedUpstream>,
    roster: &'a WorkerRoster,
    models: &'a AccountModels,
    accounts: &'a BTreeMap<AccountModelKey, Arc<ProviderAccount>>,
    meters: &'a WorkerMeters,
}

impl WorkerInputs<'_> {
    /// Creates the workers of a pool. Workers of one upstream are adjacent.
    fn of(
        self,
        config: &PoolConfig,
        queued: &QueuedByModel,
        before: &[Arc<PoolWorker>],
    ) -> Vec<Arc<PoolWorker>> {
        let found = config.workers.iter().filter_map(|name| self.upstreams.get(name.as_str()));
        let planned = found.flat_map(|made| {
            let upstream = made.upstream();
            let workers = self.models.workers(&upstream.config, config);
            workers.into_iter().map(move |worker| (upstream, worker))
        });
        planned
            .map(|(upstream, planned)| {
                let PlannedWorker { name, limits, models, first_slots } = planned;
                // A worker that is kept also keeps its in-flight count, even if its upstream was
                // created again.
                let same = before.iter().find(|worker| worker.name == name);
                let in_flight =
                    same.map_or_else(LiveCount::default, |worker| worker.in_flight.clone());
                let is_of_it = |worker: &&Arc<PoolWorker>| worker.upstream.name == upstream.name;
                let hits = before.iter().find(is_of_it);
                let waiting = match &models {
                    Some(models) => models.iter().map(|model| queued.count(model)).collect(),
                    None => config.models.iter().map(|model| queued.count(&model.name)).collect(),
                };
                Arc::new(PoolWorker {
                    account: limits.and_then(|key| self.accounts.get(&key).cloned()),
                    is_drained: self.roster.is_drained(&config.name, &upstream.name),
                    hits: hits.map_or_else(CacheHits::default, |worker| worker.hits.clone()),
                    meter: self.meters.meter(config, &upstream.config),
                    metered_slots: self.meters.slots(&upstream.config),
                    expects_hits: config.prefix_index.is_some() || config.sticky_sessions,
                    upstream: upstream.clone(),
                    name,
                    models,
                    waiting,
                    first_slots,
                    in_flight,
                })
            })
            .collect()
    }
}

/// Loads a tokenizer table in advance. Loading takes a few hundred milliseconds, for which the first request would
/// otherwise have to wait.
async fn load_table(table: Option<TokenizerTable>) {
    if let Some(table) = table.filter(|table| !table.is_loaded()) {
        // Fails only if the runtime is shutting down; then no table is needed.
        let _ = tokio::task::spawn_blocking(move || table.load()).await;
    }
}

async fn new_pool(gate: Gate, config: PoolConfig, workers: WorkerInputs<'_>) -> PoolHandle {
    let queued = QueuedByModel::default();
    let workers = workers.of(&config, &queued, &[]);
    let reporter = Arc::new(WorkerReporter::start(gate.clone(), &config));
    reporter.set_workers(&workers, &config);
    let caches = Arc::new(WorkerCaches::default());
    caches.set_workers(&config, &workers);
    if workers.is_empty() {
        require_workers(&gate).await;
    }
    for worker in workers.iter().filter(|worker| worker.is_drained) {
        let _ = gate.change_worker(worker_state_change(worker, WorkerState::Drain)).await;
    }
    PoolHandle {
        name: config.name.as_str().into(),
        gate,
        estimator: TokenEstimator::new(config.cost.output_default, ESTIMATED_NAMES_MAX),
        names: ClientFlowNames::default(),
        setup: ArcSwap::from_pointee(PoolSetup::new(config, workers)),
        slot_time_price: SlotTimePrice::new(),
        spending: TenantSpending::default(),
        reporter,
        uncached_costs: Arc::default(),
        caches,
        queued,
        books_begun: AtomicU64::new(0),
    }
}

/// Makes a pool without workers require a worker for each grant. Without this, a pool that never
/// had a worker would grant requests without one. That would be wrong for a pool whose workers DNS
/// has not found yet.
async fn require_workers(gate: &Gate) {
    for state in [WorkerState::Drain, WorkerState::Gone] {
        let name = "none".into();
        let change = WorkerChange { name, state: Some(state), ..WorkerChange::default() };
        let _ = gate.change_worker(change).await;
    }
}

fn worker_state_change(worker: &PoolWorker, state: WorkerState) -> WorkerChange {
    let name = (&*worker.name).into();
    WorkerChange { name, state: Some(state), ..WorkerChange::default() }
}

/// Returns the event for a worker that is new or has changed; `None` if nothing changed. If this
/// process observes the pool, the reporter ends a drain instead of this event, because the reporter
/// knows whether the worker is up.
fn worker_change(
    worker: &PoolWorker,
    before: Option<&Arc<PoolWorker>>,
    pool: &PoolConfig,
) -> Option<WorkerChange> {
    let config = &worker.upstream.config;
    let was_drained = before.map(|before| before.is_drained);
    let state = match (was_drained, worker.is_drained) {
        (None | Some(false), true) => Some(WorkerState::Drain),
        // A worker that is added again while it drains takes requests again.
        (None, false) => Some(WorkerState::Up),
        (Some(true), false) => Some(WorkerState::Up).filter(|_| !pool.observe),
        (Some(true), true) | (Some(false), false) => None,
    };
    match before.map(|before| &before.upstream.config) {
        None => {
            let new = gates::new_worker(config, &worker.name, worker.first_slots);
            Some(WorkerChange { state, ..new })
        }
        Some(before) if before != config => {
            let changed = gates::changed_worker(before, config, &worker.name, worker.first_slots);
            Some(WorkerChange { state, ..changed })
        }
        Some(_) => state.map(|state| worker_state_change(worker, state)),
    }
}

/// Applies the next configuration to a running pool. Errors of the gate are ignored, because a closed gate needs no
/// changes.
async fn update_pool(
    pool: &Arc<PoolHandle>,
    config: PoolConfig,
    workers: WorkerInputs<'_>,
    removal: WorkerRemoval,
) {
    let old = pool.setup.load_full();
    let workers = workers.of(&config, &pool.queued, &old.workers);
    pool.queued.retain(&config);
    let next = Arc::new(PoolSetup::new(config, workers));
    load_table(next.tokens).await;
    pool.estimator.set_output_default(next.config.cost.output_default);
    pool.setup.store(next.clone());
    let leaving: Vec<_> = old
        .workers
        .iter()
        .filter(|worker| next.worker_in_core(&worker.name).is_none())
        .cloned()
        .collect();
    leaving.iter().for_each(|worker| pool.reporter.add_departing(worker));
    pool.reporter.set_workers(&next.workers, &next.config);
    pool.caches.set_workers(&next.config, &next.workers);
    let moved = next.workers.iter().filter(|worker| {
        old.worker(&worker.upstream.name).is_some_and(|before| !before.has_same_address(worker))
    });
    moved.for_each(|worker| pool.caches.forget(&worker.upstream.name));
    // Wait for the report that is being sent, so that it cannot bring back a removed worker.
    pool.reporter.wait_current_report().await;
    for worker in &next.workers {
        let before = old.worker_in_core(&worker.name);
        if let Some(change) = worker_change(worker, before, &next.config) {
            let _ = pool.gate.change_worker(change).await;
        }
    }
    if old.config.policy != next.config.policy || old.unit() != next.unit() {
        // A new policy starts with empty scores, even if it equals the one before.
        let _ = pool.gate.set_policy(next.config.policy.clone()).await;
        pool.books_begun.fetch_add(1, Ordering::AcqRel);
    }
    pool.reporter.report_capacity().await;
    for worker in leaving {
        remove_from_pool(pool.clone(), worker, removal).await;
    }
}

/// Removes a worker from a pool. With [`WorkerRemoval::Drained`], the worker is drained and removed once nothing is in
/// flight on it; with [`WorkerRemoval::Now`], it is removed at once.
async fn remove_from_pool(pool: Arc<PoolHandle>, worker: Arc<PoolWorker>, removal: WorkerRemoval) {
    let first = match removal {
        WorkerRemoval::Drained => WorkerState::Drain,
        WorkerRemoval::Now => WorkerState::Gone,
    };
    let _ = pool.gate.change_worker(worker_state_change(&worker, first)).await;
    tokio::spawn(async move {
        worker.in_flight.wait_none().await;
        // The worker may have been added again in the meantime.
        if removal == WorkerRemoval::Drained && pool.setup().worker_in_core(&worker.name).is_none()
        {
            let _ = pool.gate.change_worker(worker_state_change(&worker, WorkerState::Gone)).await;
        }
        // The worker's slots counted towards the capacity until now.
        pool.reporter.remove_departing(&worker);
        pool.reporter.report_capacity().await;
    });
}

/// Drains the pools that are no longer configured.
fn drain_removed_pools(
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
