//! The pools and their upstreams, by model.

mod gates;
mod handle;
mod names;
mod prepare;
mod remembered;
mod reporter;
mod spending;
mod traits;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use fairgate_config::{Config, HostedBudget, ModelConfig};
use fairgate_money::MicroUnits;
use fairgate_store::{Budget, BudgetTier, Period, Unit};

pub use self::handle::{PoolHandle, QuotaView, WorkerView};
pub(crate) use self::handle::{Setup, Worker};
pub use self::prepare::PoolsError;
pub(crate) use self::remembered::keep as keep_learned;
pub(crate) use self::reporter::{Left, Rates, Reporter, Stands};
pub(crate) use self::spending::{Spent, TierUse};

use crate::upstream::{Account, Watcher};

/// All pools. What is served changes as a whole, on reload.
pub struct Pools {
    served: ArcSwap<Served>,
}

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
        let pools = Self { served: ArcSwap::default() };
        let prepared = pools.prepare(config)?;
        pools.switch(prepared, config.drain_grace).await;
        Ok(pools)
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
