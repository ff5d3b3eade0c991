//! Decides which workers an upstream with an account has in a pool, and which limits apply to each
//! of them.
//!
//! Providers limit each model separately. If one worker stood for all models of an account, a
//! reached limit of one model would stop all others. In the core an upstream with an account is
//! therefore one worker for each model that the pool sends to it. The worker has the name of the
//! upstream if there is one model, else `UPSTREAM/MODEL`. The submit of a request lists the workers
//! of its model as allowed.
//!
//! Models are those of the configuration, under the upstream's names for them, so clients cannot
//! add any. The first [`MODELS_MAX`] models of an account have limits of their own. All others
//! share one set of limits, and one worker `UPSTREAM/*`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_config::{Config, PoolConfig, UpstreamConfig};

/// Maximum number of models of an account that have limits of their own.
const MODELS_MAX: usize = 64;
/// Common name of all models beyond the first [`MODELS_MAX`].
const REST: &str = "*";

/// Identifies a set of limits by its account and its model. `model` is `None` if all models share
/// the account's limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AccountModelKey {
    pub(crate) account: Arc<str>,
    /// The model, as the provider names it, or `*`.
    pub(crate) model: Option<Arc<str>>,
}

impl AccountModelKey {
    /// Returns the key under which a learned rate is kept across restarts.
    pub(super) fn file_key(&self) -> String {
        match &self.model {
            Some(model) => format!("{}/{model}", self.account),
            None => self.account.to_string(),
        }
    }
}

/// A worker of a pool, before it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedWorker {
    /// Name of the worker in the core.
    pub(super) name: Arc<str>,
    /// Account and model whose limits the worker has; `None` if the upstream uses no account.
    pub(super) limits: Option<AccountModelKey>,
    /// Models that are sent to the worker, as clients name them; `None` if all models of the pool are.
    pub(super) models: Option<Vec<Box<str>>>,
    /// Slots of the worker when it is added, for each rank.
    pub(super) first_slots: u64,
}

/// The name under which limits are kept, and the models of a pool that share them, as clients name
/// them. The name is `None` if the account's models share all limits.
type ModelGroup = (Option<Arc<str>>, Vec<Box<str>>);

/// The models of each account that have limits of their own.
#[derive(Debug, Default)]
pub(super) struct AccountModels(BTreeMap<Arc<str>, Vec<Arc<str>>>);

impl AccountModels {
    pub(super) fn of(config: &Config) -> Self {
        let mut models: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for pool in &config.pools {
            let named = |upstream: &&UpstreamConfig| pool.workers.contains(&upstream.name);
            for upstream in config.upstreams.iter().filter(named) {
                let Some(account) = account_name(upstream).filter(|_| is_split(upstream)) else {
                    continue;
                };
                let known = models.entry(account).or_default();
                for model in &pool.models {
                    let model = upstream.model_name(model);
                    let is_new = model != REST && !known.iter().any(|known| **known == *model);
                    if is_new && known.len() < MODELS_MAX {
                        known.push(model.into());
                    }
                }
            }
        }
        Self(models)
    }

    /// Returns the workers of an upstream in a pool.
    pub(super) fn workers(
        &self,
        upstream: &UpstreamConfig,
        pool: &PoolConfig,
    ) -> Vec<PlannedWorker> {
        let account = account_name(upstream);
        let mut groups: Vec<ModelGroup> = Vec::new();
        for model in &pool.models {
            let theirs = account.as_ref().filter(|_| is_split(upstream));
            let state = theirs.map(|account| self.state_of(account, upstream.model_name(model)));
            match groups.iter_mut().find(|(known, _)| *known == state) {
                Some((_, models)) => models.push(model.name.as_str().into()),
                None => groups.push((state, vec![model.name.as_str().into()])),
            }
        }
        if groups.is_empty() {
            groups.push((None, Vec::new()));
        }
        let count = groups.len();
        let planned = groups.into_iter().enumerate().map(|(place, (model, models))| {
            let name = match &model {
                Some(model) if count > 1 => format!("{}/{model}", upstream.name).into(),
                _ => upstream.name.as_str().into(),
            };
            let limits = account.clone().map(|account| AccountModelKey { account, model });
            let models = (count > 1).then_some(models);
            PlannedWorker { name, limits, models, first_slots: first_slots(upstream, place, count) }
        });
        planned.collect()
    }

    /// Returns the name under which the limits of `model` are kept: the model's own, or `*`.
    fn state_of(&self, account: &str, model: &str) -> Arc<str> {
        let known = self.0.get(account).into_iter().flatten().find(|known| ***known == *model);
        known.cloned().unwrap_or_else(|| REST.into())
    }
}

/// Returns true if each model of an upstream with an account has limits of its own. Returns false
/// if the models share the account's limits. Also returns false for a pool of leases, which has one
/// worker for all models because its clients may name any model.
fn is_split(upstream: &UpstreamConfig) -> bool {
    !upstream.quota.shared_limits && !upstream.is_leased
}

/// Returns the first slots per rank of the worker at index `place`, when the slots of an upstream
/// are divided equally among `count` workers.
fn first_slots(upstream: &UpstreamConfig, place: usize, count: usize) -> u64 {
    let Some(slots) = upstream.slots else { return u64::MAX };
    let (place, count) = (place as u64, (count as u64).max(1));
    slots / count + u64::from(place < slots % count)
}

/// Returns the name of the account that an upstream uses: the account that its configuration names.
/// If it names none, a hosted or leased upstream has an account of its own, and any other upstream
/// has none. Workers that are made from an upstream use the upstream's credential, and therefore
/// its account.
pub(super) fn account_name(upstream: &UpstreamConfig) -> Option<Arc<str>> {
    match &upstream.quota.account {
        Some(account) => Some(account.as_str().into()),
        // A configured account name cannot contain a space, so there is no conflict.
        None => (upstream.quota.is_hosted() || upstream.is_leased)
            .then(|| format!("upstream {}", upstream.name_in_file()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(models: &[String]) -> Config {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let mut config = Config::embedded("d".into(), ([127, 0, 0, 1], 0).into(), url);
        config.upstreams[0].name = "paid".into();
        config.upstreams[0].slots = Some(7);
        config.upstreams[0].quota.account = Some("main".into());
        let pool = &mut config.pools[0];
        pool.workers = vec!["paid".into()];
        let model = pool.models[0].clone();
        pool.models = models
            .iter()
            .map(|name| {
                let mut model = model.clone();
                model.name = name.clone();
                model
            })
            .collect();
        config
    }

    fn workers(config: &Config) -> Vec<PlannedWorker> {
        AccountModels::of(config).workers(&config.upstreams[0], &config.pools[0])
    }

    fn names(config: &Config) -> Vec<String> {
        workers(config).into_iter().map(|worker| worker.name.to_string()).collect()
    }

    fn models(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("m{number}")).collect()
    }

    #[test]
    fn an_upstream_with_an_account_is_one_worker_for_each_model() {
        assert_eq!(names(&config(&models(1))), ["paid"]);
        let mut two = config(&["a".into(), "b/c".into()]);
        assert_eq!(names(&two), ["paid/a", "paid/b/c"]);
        let planned = workers(&two);
        let slots: Vec<u64> = planned.iter().map(|worker| worker.first_slots).collect();
        assert_eq!(slots, [4, 3]);
        assert_eq!(planned[1].models.as_deref(), Some(&["b/c".into()][..]));
        // Two names of one model of the provider share its limits.
        two.upstreams[0].aliases.insert("b/c".into(), "a".into());
        assert_eq!(names(&two), ["paid"]);
        two.upstreams[0].aliases.clear();
        two.upstreams[0].quota.shared_limits = true;
        assert_eq!(names(&two), ["paid"]);
        assert_eq!(workers(&two)[0].limits.as_ref().unwrap().model, None);
        two.upstreams[0].quota.shared_limits = false;
        two.upstreams[0].quota.account = None;
        assert_eq!(names(&two), ["paid"], "an upstream without an account");
        assert_eq!(workers(&two)[0].limits, None);
    }

    #[test]
    fn the_models_above_64_share_one_state() {
        let many = config(&models(100));
        let planned = workers(&many);
        assert_eq!(planned.len(), MODELS_MAX + 1);
        let rest = planned.last().unwrap();
        assert_eq!((&*rest.name, rest.models.as_ref().unwrap().len()), ("paid/*", 36));
        assert_eq!(planned.iter().map(|worker| worker.first_slots).sum::<u64>(), 7);
        // A model that is called so is one of the rest, and no second worker of that name.
        assert_eq!(names(&config(&["*".into(), "a".into()])), ["paid/*", "paid/a"]);
    }

    #[test]
    fn the_models_of_an_account_are_counted_over_all_pools() {
        let mut two_pools = config(&models(60));
        let mut second = two_pools.pools[0].clone();
        second.name = "second".into();
        second.models.iter_mut().for_each(|model| model.name.insert(0, 'x'));
        two_pools.pools.push(second);
        let known = AccountModels::of(&two_pools);
        assert_eq!(known.0["main"].len(), MODELS_MAX);
        let second = known.workers(&two_pools.upstreams[0], &two_pools.pools[1]);
        assert_eq!(second.len(), 5, "four of their own, and the rest");
    }
}
