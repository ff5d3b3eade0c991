//! Checks that a model has a price if a budget or a pool counts its use in money. Without a price,
//! a request would cost nothing: its budget would never be used up, or its tenant would be served
//! before all others. The gateway refuses such requests.

use fairgate_money::ModelPrices;

use super::pool::PoolDraft;
use super::upstream::UpstreamDraft;
use crate::config::{CostUnit, ModelConfig, PoolConfig};
use crate::declared::{DeclaredBudget, DeclaredDirectory, DeclaredKey, DeclaredTenant};
use crate::field::ConfigField;

/// The models of all pools with their prices.
pub(super) struct PricedModels<'a> {
    prices: &'a ModelPrices,
    /// The pools, with their indexes in the file. Pools that could not be read are left out.
    pools: Vec<(usize, &'a PoolConfig)>,
    hosted: Vec<&'a str>,
}

/// Requests that a declared budget counts.
#[derive(Clone, Copy)]
struct CountedRequests<'a> {
    /// Key that makes the requests; `None` for all keys that the file does not declare.
    key: Option<&'a DeclaredKey>,
    may_use_hosted: bool,
}

impl<'a> CountedRequests<'a> {
    fn of_key(key: &'a DeclaredKey, tenant: &DeclaredTenant) -> Self {
        let may_use_hosted = !tenant.limits.never_hosted && !key.limits.never_hosted;
        Self { key: Some(key), may_use_hosted }
    }

    /// Returns the requests of a tenant: those of its declared keys, or of any key if the file
    /// declares none for it.
    fn of_tenant(tenant: &'a DeclaredTenant, declared: &'a DeclaredDirectory) -> Vec<Self> {
        let keys = declared.keys.iter().filter(|key| key.tenant == tenant.name);
        let counted: Vec<Self> = keys.map(|key| Self::of_key(key, tenant)).collect();
        match counted.is_empty() {
            true => vec![Self { key: None, may_use_hosted: !tenant.limits.never_hosted }],
            false => counted,
        }
    }

    /// Returns the requests of a group: those of its declared tenants, or of any tenant if the file
    /// declares none in it.
    fn of_group(group: &str, declared: &'a DeclaredDirectory) -> Vec<Self> {
        let tenants = declared.tenants.iter().filter(|tenant| tenant.group == group);
        let counted: Vec<Self> =
            tenants.flat_map(|tenant| Self::of_tenant(tenant, declared)).collect();
        match counted.is_empty() {
            true => vec![Self { key: None, may_use_hosted: true }],
            false => counted,
        }
    }

    fn may_request(self, model: &str) -> bool {
        let matches = |name: &String| match name.strip_suffix('*') {
            Some(beginning) => model.starts_with(beginning),
            None => name == model,
        };
        let allowed = self.key.and_then(|key| key.rights.models.as_ref());
        allowed.is_none_or(|allowed| allowed.iter().any(matches))
    }

    fn may_use_worker(self, worker: &String) -> bool {
        let allowed = self.key.and_then(|key| key.rights.workers.as_ref());
        allowed.is_none_or(|allowed| allowed.contains(worker))
    }
}

impl<'a> PricedModels<'a> {
    pub(super) fn new(
        prices: &'a ModelPrices,
        upstreams: &'a [UpstreamDraft<'_>],
        pools: &'a [PoolDraft],
    ) -> Self {
        let configs = upstreams.iter().filter_map(|upstream| upstream.config.as_ref());
        let hosted = configs.filter(|config| config.tier > 0).map(|config| config.name.as_str());
        let read = |(place, pool): (usize, &'a PoolDraft)| Some((place, pool.config.as_ref()?));
        Self {
            prices,
            pools: pools.iter().enumerate().filter_map(read).collect(),
            hosted: hosted.collect(),
        }
    }

    fn is_hosted(&self, worker: &str) -> bool {
        self.hosted.contains(&worker)
    }

    fn has_price(&self, model: &ModelConfig, worker: &str) -> bool {
        self.prices.all().any(|price| {
            price.model == model.name && price.upstream.as_deref().is_none_or(|name| name == worker)
        })
    }

    /// Checks the pools that count money: each of their models needs a price on all workers of its pool.
    pub(super) fn check_units(&self, root: &ConfigField<'_>) {
        let counts_money = |pool: &PoolConfig| pool.cost.unit == CostUnit::Money;
        for (pool_place, pool) in self.pools.iter().filter(|(_, pool)| counts_money(pool)) {
            for (place, model) in pool.models.iter().enumerate() {
                let lacks_price = |worker: &&String| !self.has_price(model, worker);
                if let Some(worker) = pool.workers.iter().find(lacks_price) {
                    let message = format!(
                        "has no price on {worker:?}, and the pool counts money (cost.unit): add a price of {:?} to prices, or \
                         state unit: tokens",
                        model.name
                    );
                    wrong_at(root, &format!("pools[{pool_place}].models[{place}]"), message);
                }
            }
        }
    }

    /// Checks the budgets of models on hosted workers: each needs a price on all hosted workers of its pool.
    pub(super) fn check_hosted_budgets(&self, root: &ConfigField<'_>) {
        for (pool_place, pool) in &self.pools {
            for (place, model) in pool.models.iter().enumerate() {
                let budget = &model.hosted_budget;
                if budget.money_per_day.is_none() && budget.money_per_month.is_none() {
                    continue;
                }
                let mut hosted = pool.workers.iter().filter(|worker| self.is_hosted(worker));
                if let Some(worker) = hosted.find(|worker| !self.has_price(model, worker)) {
                    let path = format!("pools[{pool_place}].models[{place}].hosted_budget");
                    let message = format!(
                        "counts money, and the model {:?} has no price on {worker:?}: add one to prices (0 if it costs \
                         nothing), or state tokens",
                        model.name
                    );
                    wrong_at(root, &path, message);
                }
            }
        }
    }

    /// Checks the money budgets of the groups, tenants and keys that the file declares. Each model
    /// that a request under such a budget may name needs the prices that the gateway requires.
    pub(super) fn check_declared_budgets(
        &self,
        root: &ConfigField<'_>,
        declared: &DeclaredDirectory,
    ) {
        for (place, group) in declared.groups.iter().enumerate() {
            let counted = || CountedRequests::of_group(&group.name, declared);
            self.check_limits(root, &format!("groups[{place}]"), &group.budgets, counted);
        }
        for (place, tenant) in declared.tenants.iter().enumerate() {
            let counted = || CountedRequests::of_tenant(tenant, declared);
            self.check_limits(root, &format!("tenants[{place}]"), &tenant.limits.budgets, counted);
        }
        for (place, key) in declared.keys.iter().enumerate() {
            let tenant = declared.tenants.iter().find(|tenant| tenant.name == key.tenant);
            let Some(tenant) = tenant else { continue };
            let counted = || vec![CountedRequests::of_key(key, tenant)];
            self.check_limits(root, &format!("keys[{place}]"), &key.limits.budgets, counted);
        }
    }

    /// Checks the budgets of one owner at `path`. Records an error at the first that counts money without a price.
    fn check_limits<'b>(
        &self,
        root: &ConfigField<'_>,
        path: &str,
        budgets: &[DeclaredBudget],
        counted: impl Fn() -> Vec<CountedRequests<'b>>,
    ) {
        for budget in budgets.iter().filter(|budget| budget.is_money) {
            let mut without =
                counted().into_iter().filter_map(|requests| self.unpriced(requests, budget));
            if let Some(message) = without.next() {
                let tier = if budget.is_hosted { "hosted_" } else { "" };
                let period = if budget.is_monthly { "month" } else { "day" };
                wrong_at(root, &format!("{path}.limits.{tier}money_per_{period}"), message);
                return;
            }
        }
    }

    /// Returns the error for the first model that these requests may name and whose cost would be
    /// unknown; `None` if there is none. A model needs a price on one worker, and on each hosted
    /// worker that may be used. The gateway has the same rule.
    fn unpriced(&self, requests: CountedRequests<'_>, budget: &DeclaredBudget) -> Option<String> {
        for (_, pool) in &self.pools {
            let workers: Vec<_> =
                pool.workers.iter().filter(|worker| requests.may_use_worker(worker)).collect();
            for model in pool.models.iter().filter(|model| requests.may_request(&model.name)) {
                let may_use_hosted = requests.may_use_hosted && model.hosted;
                let is_used = |worker: &&&String| may_use_hosted || !self.is_hosted(worker);
                let hosted = |worker: &&&String| may_use_hosted && self.is_hosted(worker);
                if budget.is_hosted && !workers.iter().any(|worker| hosted(&worker)) {
                    continue;
                }
                let unpriced = |worker: &&&String| !self.has_price(model, worker);
                let is_free = workers.iter().filter(is_used).all(|worker| unpriced(&worker));
                let first = workers.iter().filter(is_used).find(unpriced);
                let first_hosted = workers.iter().filter(hosted).find(unpriced);
                if let Some(worker) = first_hosted.or(first.filter(|_| is_free)) {
                    return Some(message(&model.name, worker, requests.key));
                }
            }
        }
        None
    }
}

fn message(model: &str, worker: &str, key: Option<&DeclaredKey>) -> String {
    match key {
        None => format!(
            "counts money, and the model {model:?} has no price on {worker:?}: add one to prices (0 if it costs nothing), or \
             state tokens"
        ),
        Some(key) => format!(
            "counts money, and the model {model:?}, which the key {:?} of {:?} may request, has no price on {worker:?}: add \
             one to prices (0 if it costs nothing), name the key's models without it, or state tokens",
            key.name, key.tenant
        ),
    }
}

fn wrong_at(root: &ConfigField<'_>, path: &str, message: String) {
    let place = root.node.locate(path).unwrap_or(root.node.place);
    root.wrong_at::<()>(place, path, message);
}
