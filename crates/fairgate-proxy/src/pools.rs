//! All pools with their upstreams. A pool is found by its name, or by a model that it serves.

mod account_models;
mod cache_hits;
mod client_flow_names;
mod discover;
mod gates;
mod handle;
mod learned_rates;
mod operator_changes;
mod policy_queries;
mod prefixes;
mod prepare;
mod roster;
mod sessions;
mod spending;
mod state_files;
mod state_units;
mod uncached_costs;
mod worker_meters;
mod workers;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::{Config, DiscoverConfig, HostedBudget, ModelConfig};
use fairgate_money::MicroUnits;
use fairgate_store::{Budget, BudgetPeriod, BudgetTier, BudgetUnit};
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::timeout;

pub use self::cache_hits::CacheView;
pub(crate) use self::discover::follow_names;
pub use self::discover::{DnsAnswer, DnsResolver};
pub use self::gates::journal_folder;
pub use self::handle::PoolSetup;
pub(crate) use self::handle::PoolWorker;
pub use self::handle::{EngineView, PoolHandle, WorkerView};
pub(crate) use self::learned_rates::keep as keep_learned;
pub use self::policy_queries::{
    class_names as policy_classes, has_caps, is_band, shares_by, takes_weights,
};
pub use self::prefixes::CacheSizeView;
pub(crate) use self::prefixes::{RequestPrefix, SentPrompt};
pub use self::prepare::{PoolsError, PreparedPools};
pub use self::roster::WorkerSource;
pub use self::roster::{AddedWorker, OverloadThresholds};
pub(crate) use self::sessions::LastWorker;
pub use self::spending::{SpentByTier, TenantSpending, TierUse};
pub(crate) use self::uncached_costs::UncachedCostGuard;
pub use self::uncached_costs::UncachedCosts;
pub use self::workers::{ChangeEffect, WorkerAudit, WorkerError, WorkerRemoval};
pub use crate::upstream::{QuotaView, UpstreamOutage};
pub use crate::worker_time::{
    TenantWork, TypicalRequest, WorkerCalibration, nearest_token_weights,
};

use self::account_models::AccountModelKey;
use self::discover::SystemResolver;
use self::roster::WorkerRoster;

use crate::fast_map::FastMap;
use crate::live_count::LiveCount;
use crate::upstream::{ProviderAccount, UpstreamWatcher};
use crate::worker_time::WorkerMeter;

/// All pools of a gateway. A reload replaces the served configuration as a whole.
pub struct Pools {
    served: ArcSwap<ServedPools>,
    worker_sources: Arc<Mutex<WorkerSources>>,
    resolver: OnceLock<Box<dyn DnsResolver>>,
}

/// Inputs from which the served configuration is made. A change holds their lock until the new
/// configuration is in force.
pub(crate) struct WorkerSources {
    /// The configuration as the file states it.
    file: Arc<Config>,
    roster: WorkerRoster,
}

/// Maximum time for the first DNS look-ups. After it, the gateway starts without the workers whose
/// names have no answer yet.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Pools, models, upstreams and accounts of the configuration in force.
#[derive(Default)]
struct ServedPools {
    pools: BTreeMap<Arc<str>, Arc<PoolHandle>>,
    models: FastMap<Box<str>, Arc<ServedModel>>,
    upstreams: FastMap<Arc<str>, Arc<UpstreamWatcher>>,
    accounts: BTreeMap<AccountModelKey, Arc<ProviderAccount>>,
}

/// A model, under the name that clients use.
pub struct ServedModel {
    pub(crate) pool: Arc<PoolHandle>,
    pub(crate) config: ModelConfig,
    /// Number of the model's queued requests.
    pub(crate) waiting: LiveCount,
}

impl ServedModel {
    /// Returns the budgets for hosted workers that all requests for this model share.
    pub fn hosted_budgets(&self) -> Vec<Budget> {
        let HostedBudget { tokens_per_day, tokens_per_month, money_per_day, money_per_month } =
            self.config.hosted_budget;
        let money = |amount: Option<MicroUnits>| amount.map(|amount| amount.0);
        let budgets = [
            (BudgetUnit::Tokens, BudgetPeriod::Day, tokens_per_day),
            (BudgetUnit::Tokens, BudgetPeriod::Month, tokens_per_month),
            (BudgetUnit::Money, BudgetPeriod::Day, money(money_per_day)),
            (BudgetUnit::Money, BudgetPeriod::Month, money(money_per_month)),
        ];
        let budget = |(unit, period, amount): (BudgetUnit, BudgetPeriod, Option<u64>)| {
            amount.map(|amount| Budget { period, unit, tier: BudgetTier::Hosted, amount })
        };
        budgets.into_iter().filter_map(budget).collect()
    }
}

impl Pools {
    /// Starts all pools of a configuration. Must be called inside a tokio runtime.
    pub(crate) async fn start(config: &Config) -> Result<Self, PoolsError> {
        let kept = operator_changes::read(&config.data_dir).map_err(|source| {
            PoolsError::Workers { file: operator_changes::path(&config.data_dir), source }
        })?;
        let mut roster = WorkerRoster { changes: kept, ..WorkerRoster::default() };
        let looks = looked_up(config).into_iter().map(async |(upstream, discover)| {
            let found = timeout(FIRST_LOOK, SystemResolver.addresses(&discover.dns)).await;
            Some((upstream, found.ok()?.ok()?))
        });
        roster.found = join_all(looks).await.into_iter().flatten().collect();
        let sources = WorkerSources { file: Arc::new(config.clone()), roster };
        let pools = Self {
            served: ArcSwap::default(),
            worker_sources: Arc::new(Mutex::new(sources)),
            resolver: OnceLock::new(),
        };
        let prepared = pools.prepare(config).await?;
        pools.switch(prepared, config.drain_grace).await;
        Ok(pools)
    }

    /// Replaces the system's DNS resolver. Only the first call has an effect.
    pub fn set_resolver(&self, resolver: impl DnsResolver + 'static) {
        let _ = self.resolver.set(Box::new(resolver));
    }

    fn resolver(&self) -> &dyn DnsResolver {
        self.resolver.get().map_or(&SystemResolver, |resolver| &**resolver)
    }

    /// Returns the upstreams whose workers are found by DNS.
    async fn discovered_upstreams(&self) -> Vec<(String, DiscoverConfig)> {
        looked_up(&self.worker_sources.lock().await.file)
    }

    /// Returns all pools, sorted by name.
    pub fn all(&self) -> Vec<Arc<PoolHandle>> {
        self.served.load().pools.values().cloned().collect()
    }

    /// Returns the pool with this name; `None` if there is no such pool.
    pub fn named(&self, name: &str) -> Option<Arc<PoolHandle>> {
        self.served.load().pools.get(name).cloned()
    }

    /// Returns the pool that serves this model; `None` if no pool serves it.
    pub fn serving(&self, model: &str) -> Option<Arc<PoolHandle>> {
        self.served.load().models.get(model).map(|model| model.pool.clone())
    }

    /// Returns the names of all models, sorted.
    pub fn models(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.served.load().models.keys().map(|name| (**name).into()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the learned rate of each account in requests per minute, by the account's key in the file of learned
    /// rates. `None` for an account without a learned rate.
    fn learned(&self) -> BTreeMap<String, Option<u64>> {
        let served = self.served.load();
        served.accounts.iter().map(|(key, account)| (key.file_key(), account.learned())).collect()
    }

    /// Returns the accounts' states, one for each model with limits of its own. The states of one
    /// account are adjacent.
    pub(crate) fn accounts(&self) -> Vec<Arc<ProviderAccount>> {
        self.served.load().accounts.values().cloned().collect()
    }

    /// Returns the meters of all workers that have one, without duplicates.
    pub(crate) fn worker_meters(&self) -> Vec<Arc<WorkerMeter>> {
        let mut meters: Vec<Arc<WorkerMeter>> = Vec::new();
        for pool in self.served.load().pools.values() {
            let setup = pool.setup();
            for meter in setup.workers.iter().filter_map(|worker| worker.meter.as_ref()) {
                if !meters.iter().any(|known| Arc::ptr_eq(known, meter)) {
                    meters.push(meter.clone());
                }
            }
        }
        meters
    }

    /// Returns the model of this name; `None` if no pool serves it.
    pub fn model(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.served.load().models.get(name).cloned()
    }
}

fn looked_up(config: &Config) -> Vec<(String, DiscoverConfig)> {
    let named = config.upstreams.iter();
    named.filter_map(|it| Some((it.name.clone(), it.discover.clone()?))).collect()
}
