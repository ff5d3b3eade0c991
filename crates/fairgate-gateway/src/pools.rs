//! The pools and their upstreams, by model.

mod discover;
mod gates;
mod handle;
mod hits;
mod kept;
mod names;
mod prefixes;
mod prepare;
mod remembered;
mod reporter;
mod roster;
mod sessions;
mod spending;
mod traits;
mod workers;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::{Config, DiscoverConfig, HostedBudget, ModelConfig};
use fairgate_money::MicroUnits;
use fairgate_store::{Budget, BudgetTier, Period, Unit};
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::timeout;

pub(crate) use self::discover::follow_names;
pub use self::discover::{Answer, Resolve};
pub use self::handle::{EngineView, PoolHandle, QuotaView, WorkerView};
pub(crate) use self::handle::{Setup, Worker};
pub use self::hits::CacheView;
pub(crate) use self::prefixes::{Prefix, SentPrompt};
pub use self::prepare::PoolsError;
pub(crate) use self::remembered::keep as keep_learned;
pub(crate) use self::reporter::{Left, Rates, Reporter, Stands};
pub use self::roster::WorkerSource;
pub(crate) use self::roster::{AddedWorker, Overload};
pub(crate) use self::sessions::LastWorker;
pub(crate) use self::spending::{Spent, TierUse};
pub(crate) use self::traits::shares_by;
pub(crate) use self::workers::{Changed, Removal, WorkerAudit, WorkerError};

use self::discover::SystemResolver;
use self::roster::Roster;

use crate::upstream::{Account, Watcher};

/// All pools. What is served changes as a whole, on reload.
pub struct Pools {
    served: ArcSwap<Served>,
    staff: Arc<Mutex<Staff>>,
    resolver: OnceLock<Box<dyn Resolve>>,
}

/// What is served is made of these. Whoever changes one of them holds the lock until it is in force.
pub(crate) struct Staff {
    /// The file's configuration.
    file: Arc<Config>,
    roster: Roster,
}

/// How long names are looked up before the gateway starts without their workers.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// What is served at one time.
#[derive(Default)]
struct Served {
    pools: BTreeMap<Arc<str>, Arc<PoolHandle>>,
    models: HashMap<Box<str>, Arc<Model>>,
    upstreams: HashMap<Arc<str>, Arc<Watcher>>,
    accounts: BTreeMap<Arc<str>, Arc<Account>>,
}

/// A model, as clients name it.
pub(crate) struct Model {
    pub(crate) pool: Arc<PoolHandle>,
    pub(crate) config: ModelConfig,
}

impl Model {
    /// What all requests for it together may use on hosted workers.
    pub(crate) fn hosted_budgets(&self) -> Vec<Budget> {
        let HostedBudget { tokens_per_day, tokens_per_month, money_per_day, money_per_month } =
            self.config.hosted_budget;
        let money = |amount: Option<MicroUnits>| amount.map(|amount| amount.0);
        let budgets = [
            (Unit::Tokens, Period::Day, tokens_per_day),
            (Unit::Tokens, Period::Month, tokens_per_month),
            (Unit::Money, Period::Day, money(money_per_day)),
            (Unit::Money, Period::Month, money(money_per_month)),
        ];
        let budget = |(unit, period, amount): (Unit, Period, Option<u64>)| {
            amount.map(|amount| Budget { period, unit, tier: BudgetTier::Hosted, amount })
        };
        budgets.into_iter().filter_map(budget).collect()
    }
}

impl Pools {
    /// Starts all pools of a configuration. Needs a tokio runtime.
    pub(crate) async fn start(config: &Config) -> Result<Self, PoolsError> {
        let kept = kept::read(&config.data_dir)
            .map_err(|source| PoolsError::Workers { file: kept::path(&config.data_dir), source })?;
        let mut roster = Roster { kept, ..Roster::default() };
        let looks = looked_up(config).into_iter().map(async |(upstream, discover)| {
            let found = timeout(FIRST_LOOK, SystemResolver.addresses(&discover.dns)).await;
            Some((upstream, found.ok()?.ok()?))
        });
        roster.found = join_all(looks).await.into_iter().flatten().collect();
        let staff = Staff { file: Arc::new(config.clone()), roster };
        let pools = Self {
            served: ArcSwap::default(),
            staff: Arc::new(Mutex::new(staff)),
            resolver: OnceLock::new(),
        };
        let prepared = pools.prepare(config).await?;
        pools.switch(prepared, config.drain_grace).await;
        Ok(pools)
    }

    /// Has names looked up by somebody else than the system. The first one stays.
    pub fn resolve_with(&self, resolver: impl Resolve + 'static) {
        let _ = self.resolver.set(Box::new(resolver));
    }

    fn resolver(&self) -> &dyn Resolve {
        self.resolver.get().map_or(&SystemResolver, |resolver| &**resolver)
    }

    /// The upstreams whose names are looked up.
    async fn looked_up(&self) -> Vec<(String, DiscoverConfig)> {
        looked_up(&self.staff.lock().await.file)
    }

    /// All pools, sorted by name.
    pub fn all(&self) -> Vec<Arc<PoolHandle>> {
        self.served.load().pools.values().cloned().collect()
    }

    /// The pool of that name.
    pub fn named(&self, name: &str) -> Option<Arc<PoolHandle>> {
        self.served.load().pools.get(name).cloned()
    }

    /// The pool that serves a model.
    pub fn serving(&self, model: &str) -> Option<Arc<PoolHandle>> {
        self.served.load().models.get(model).map(|model| model.pool.clone())
    }

    /// The names of all models, sorted.
    pub fn models(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.served.load().models.keys().map(|name| (**name).into()).collect();
        names.sort_unstable();
        names
    }

    /// Requests per minute that were learned, by account.
    fn learned(&self) -> BTreeMap<String, u64> {
        let served = self.served.load();
        let known = |account: &Arc<Account>| Some((account.name.to_string(), account.learned()?));
        served.accounts.values().filter_map(known).collect()
    }

    pub(crate) fn model(&self, name: &str) -> Option<Arc<Model>> {
        self.served.load().models.get(name).cloned()
    }
}

fn looked_up(config: &Config) -> Vec<(String, DiscoverConfig)> {
    let named = config.upstreams.iter();
    named.filter_map(|it| Some((it.name.clone(), it.discover.clone()?))).collect()
}
