//! Reads the pools of a configuration.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use fairgate_core::units::OverlapCredit;

use crate::classes::ClassArbiter;
use crate::config::{
    BrownoutConfig, CostConfig, HostedBudget, HostedOverBudget, ModelConfig, PoolConfig,
    PrefixIndexConfig, PrefixScope, has_load_node,
};
use crate::defaults;
use crate::field::{ConfigField, ConfigSection};
use crate::read::cost::{FILE_TOKENS_MAX, check_unit, check_whole_load_is_seen, cost};
use crate::read::hosted::hosted_budget;
use crate::read::leases::{check as check_leases, leases};
use crate::read::pool_policy::{PoolPolicy, pool_policy};
use crate::read::upstream::UpstreamDraft;
use crate::read::{TIMEOUT, model_name, name};
use crate::suggest::did_you_mean;

const POOL: &[&str] = &[
    "name",
    "models",
    "workers",
    "leases",
    "capacity",
    "policy",
    "policy_file",
    "partition",
    "max_queue",
    "queue_timeout",
    "brownout",
    "retries",
    "down_wait",
    "overloaded_status",
    "cost",
    "prefix_index",
    "sticky_sessions",
    "overlap_credit",
    "observe",
    "hosted_over_budget",
];

const MODEL: &[&str] = &["name", "upstream_name", "hosted", "hosted_budget", "context_tokens"];

/// Range of the wait for workers that are down; zero refuses at once.
const DOWN_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// Settings of a pool that are known even if other settings of the pool are invalid.
pub(super) struct PoolDraft {
    pub(super) models: Vec<String>,
    pub(super) workers: Vec<String>,
    /// True if the pool's slots are leased. Clients of such a pool may name any model.
    pub(super) is_leased: bool,
    pub(super) config: Option<PoolConfig>,
}

/// Names that earlier pools of the file use, and settings of the file on which pools depend.
#[derive(Default)]
struct PoolNamesTaken {
    names: BTreeMap<String, usize>,
    /// Models of earlier pools, each with the path of its pool in the file.
    models: BTreeMap<String, String>,
    /// Upstreams of earlier pools, each with the path of the last pool that lists it.
    workers: BTreeMap<String, String>,
    /// True if the file has prices.
    has_prices: bool,
}

/// Reads the pools. `upstreams` is `None` if they could not be read.
pub(super) fn pools(
    field: ConfigField<'_>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
    has_prices: bool,
) -> Option<Vec<PoolDraft>> {
    let mut taken = PoolNamesTaken { has_prices, ..PoolNamesTaken::default() };
    let fields = field.list()?;
    let drafts: Vec<PoolDraft> =
        fields.iter().map(|field| pool(field.clone(), upstreams, &mut taken)).collect();
    for (field, draft) in fields.iter().zip(&drafts) {
        check_whole_load_is_seen(field, draft, &drafts, upstreams.unwrap_or_default());
    }
    Some(drafts)
}

fn pool(
    field: ConfigField<'_>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
    taken: &mut PoolNamesTaken,
) -> PoolDraft {
    let nothing =
        PoolDraft { models: Vec::new(), workers: Vec::new(), is_leased: false, config: None };
    let (path, line) = (field.path.clone(), field.node.place.line);
    let Some(section) = field.clone().section(POOL) else { return nothing };
    let name = section.required("name", "what metrics and the ledger call it", name);
    if let Some(name) = &name
        && let Some(first) = taken.names.insert(name.clone(), line)
    {
        field.wrong::<()>(format!("another pool is called {name:?}, on line {first}"));
    }
    let leases = section.or("leases", None, leases);
    if !matches!(leases, Some(None)) {
        check_leases(&section, name.as_deref(), upstreams);
        let config = config(&section, name, Some(Vec::new()), Some(Vec::new()), upstreams);
        let config = config.and_then(|config| Some(PoolConfig { leases: leases?, ..config }));
        return PoolDraft { is_leased: true, config, ..nothing };
    }
    let models = section.required("models", "the models that it serves", |field| {
        let read = |field| model(field, &path, taken);
        all(field.list()?.into_iter().map(read).collect())
    });
    let mut named = Vec::new();
    let workers = section.required("workers", "the names of its upstreams", |field| {
        let read = |field| worker(field, &path, upstreams, taken, &mut named);
        all(field.list()?.into_iter().map(read).collect())
    });
    let known_models = models.iter().flatten().map(|model| model.name.clone()).collect();
    let config = config(&section, name, models, workers, upstreams);
    PoolDraft { models: known_models, workers: named, is_leased: false, config }
}

/// Returns all values, or `None` if one of them is missing because an error was recorded for it.
fn all<T>(read: Vec<Option<T>>) -> Option<Vec<T>> {
    read.into_iter().collect()
}

fn config(
    section: &ConfigSection<'_>,
    name: Option<String>,
    models: Option<Vec<ModelConfig>>,
    workers: Option<Vec<String>>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) -> Option<PoolConfig> {
    let capacity = capacity(section, workers.as_deref(), upstreams);
    let hosted_over_budget = hosted_over_budget(section, workers.as_deref(), upstreams);
    let prefix_index = section.optional("prefix_index", prefix_index);
    let sticky_sessions =
        section.or("sticky_sessions", false, |field| sticky_sessions(field, section));
    let overlap_credit = section.or("overlap_credit", OverlapCredit::DEFAULT, overlap_credit);
    let shared = pool_policy(section, models.as_deref(), workers.as_deref(), upstreams);
    let max_queue =
        section.or("max_queue", defaults::MAX_QUEUE, |field| field.integer(1..=1_000_000));
    let queue_timeout =
        section.or("queue_timeout", defaults::QUEUE_TIMEOUT, |field| field.duration(TIMEOUT));
    let brownout = section.optional("brownout", brownout);
    let retries = section.or("retries", defaults::RETRIES, |field| field.integer(0..=10));
    let down_wait = section.or("down_wait", defaults::DOWN_WAIT, |field| field.duration(DOWN_WAIT));
    let overloaded_status = section.or("overloaded_status", defaults::OVERLOADED_STATUS, |field| {
        field.one_of(&[("529", 529), ("503", 503), ("429", 429)])
    });
    let default_cost = match &shared {
        Some(PoolPolicy { classes: Some(classes), .. })
            if classes.arbiter() == ClassArbiter::Drr =>
        {
            defaults::DYNAMO_COST
        }
        _ => defaults::COST,
    };
    let has_load_node = shared.as_ref().is_some_and(|shared| has_load_node(&shared.policy));
    let default_cost = CostConfig { weights_by_model: has_load_node, ..default_cost };
    let cost = section.or("cost", default_cost.clone(), |field| cost(field, default_cost));
    let observe =
        section.or("observe", true, |field| observe(field, workers.as_deref(), upstreams));
    if let (Some(cost), Some(workers), Some(observe)) = (&cost, &workers, observe) {
        check_unit(section, cost, workers, upstreams.unwrap_or_default(), observe)?;
    }
    let PoolPolicy { policy, classes, class_deadlines } = shared?;
    Some(PoolConfig {
        name: name?,
        capacity: capacity?.slots,
        follows_slots: capacity?.follows_slots,
        policy,
        classes,
        prefix_index: prefix_index?,
        sticky_sessions: sticky_sessions?,
        overlap_credit: overlap_credit?,
        max_queue: max_queue?,
        queue_timeout: queue_timeout?,
        class_deadlines,
        brownout: brownout?,
        models: models?,
        workers: workers?,
        leases: None,
        retries: retries?,
        down_wait: down_wait?,
        overloaded_status: overloaded_status?,
        cost: cost?,
        observe: observe?,
        hosted_over_budget: hosted_over_budget?,
    })
}

fn model(field: ConfigField<'_>, pool: &str, taken: &mut PoolNamesTaken) -> Option<ModelConfig> {
    let model = match field.scalar() {
        Some(_) => ModelConfig {
            name: model_name(field.clone())?,
            upstream_name: None,
            hosted: true,
            hosted_budget: HostedBudget::default(),
            context_tokens: None,
        },
        None => {
            let section = field.clone().section(MODEL)?;
            let name = section.required("name", "what clients ask for", model_name);
            let upstream_name = section.optional("upstream_name", model_name);
            let uses = [("allowed", true), ("never", false)];
            let hosted = section.or("hosted", true, |field| field.one_of(&uses));
            let budget = section.optional("hosted_budget", |field| {
                if hosted == Some(false) {
                    return field.wrong("is for what hosted: never forbids: remove one of them");
                }
                hosted_budget(field, taken.has_prices)
            });
            let context_tokens =
                section.optional("context_tokens", |field| field.integer(1..=FILE_TOKENS_MAX));
            ModelConfig {
                name: name?,
                upstream_name: upstream_name?,
                hosted: hosted?,
                hosted_budget: budget?.unwrap_or_default(),
                context_tokens: context_tokens?,
            }
        }
    };
    match taken.models.insert(model.name.clone(), pool.to_owned()) {
        None => Some(model),
        Some(first) if first == pool => {
            field.wrong(format!("the model {:?} is listed twice", model.name))
        }
        Some(first) => field.wrong(format!(
            "the model {:?} is in {first} already: a request for it must lead to one pool",
            model.name
        )),
    }
}

fn worker(
    field: ConfigField<'_>,
    pool: &str,
    upstreams: Option<&[UpstreamDraft<'_>]>,
    taken: &mut PoolNamesTaken,
    named: &mut Vec<String>,
) -> Option<String> {
    let worker = field.clone().text()?.to_owned();
    named.push(worker.clone());
    // An error was recorded before if the upstreams could not be read.
    let upstreams = upstreams?;
    let is_it = |upstream: &&UpstreamDraft<'_>| upstream.name.as_deref() == Some(&worker);
    let Some(upstream) = upstreams.iter().find(is_it) else {
        let names = upstreams.iter().filter_map(|upstream| upstream.name.as_deref());
        let guess = did_you_mean(&worker, names);
        return field.wrong(format!("no upstream is called {worker:?}{guess}"));
    };
    match taken.workers.insert(worker.clone(), pool.to_owned()) {
        Some(first) if first == pool => {
            field.wrong(format!("the upstream {worker:?} is listed twice"))
        }
        // Each pool counts slots separately, so two pools would send the upstream twice its limit.
        Some(first) if upstream.slots.and_then(|slots| slots.first).is_some() => field.wrong(format!(
            "the upstream {worker:?} works for {first} already and has slots, which each pool would count for \
             itself: list it a second time under another name with its own part of the slots, or remove its slots"
        )),
        _ => Some(worker),
    }
}

/// Largest number of requests in flight of a pool, and a flag that is true if this is the sum of the workers' slots.
#[derive(Clone, Copy)]
struct PoolCapacity {
    slots: u64,
    follows_slots: bool,
}

/// Reads the stated capacity, or sums up the workers' slots. Records an error if no capacity is stated and a worker
/// states no slots.
fn capacity(
    section: &ConfigSection<'_>,
    workers: Option<&[String]>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) -> Option<PoolCapacity> {
    if let Some(capacity) = section.optional("capacity", |field| field.integer(1..=1_000_000))? {
        return Some(PoolCapacity { slots: capacity, follows_slots: false });
    }
    let mut sum = 0;
    for worker in workers? {
        let is_it = |upstream: &&UpstreamDraft<'_>| upstream.name.as_ref() == Some(worker);
        let upstream = upstreams?.iter().find(is_it)?;
        match upstream.slots?.first {
            Some(slots) => sum += slots * u64::from(upstream.ranks?),
            None => {
                let what = format!(
                    "how many requests may be in flight at once (it would be the sum of the workers' slots, but {worker:?} \
                     states none)"
                );
                return section.missing("capacity", &what);
            }
        }
    }
    Some(PoolCapacity { slots: sum, follows_slots: true })
}

/// Reads `observe`. Automatic slots depend on observation, so `false` is an error if a worker has them.
fn observe(
    field: ConfigField<'_>,
    workers: Option<&[String]>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) -> Option<bool> {
    let observe = field.clone().boolean()?;
    let is_auto = |upstream: &&UpstreamDraft<'_>| {
        let works_here = |name: &String| workers.is_some_and(|workers| workers.contains(name));
        upstream.slots.is_some_and(|slots| slots.auto.is_some())
            && upstream.name.as_ref().is_some_and(works_here)
    };
    match upstreams.into_iter().flatten().find(is_auto).and_then(|auto| auto.name.as_ref()) {
        Some(auto) if !observe => field.wrong(format!(
            "the slots of {auto:?} follow its engine (slots: auto), which needs observe: true: state its slots as a number"
        )),
        _ => Some(observe),
    }
}

/// Reads `hosted_over_budget`. The default is `Wait` if the pool has an own worker, else `Refuse`.
fn hosted_over_budget(
    section: &ConfigSection<'_>,
    workers: Option<&[String]>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) -> Option<HostedOverBudget> {
    let words = [("wait", HostedOverBudget::Wait), ("refuse", HostedOverBudget::Refuse)];
    let is_own = |upstream: &&UpstreamDraft<'_>| {
        let works_here = |name: &String| workers.is_some_and(|workers| workers.contains(name));
        upstream.tier.is_none_or(|tier| tier == 0) && upstream.name.as_ref().is_some_and(works_here)
    };
    // An error was recorded before if workers or upstreams could not be read.
    let has_own = match (workers, upstreams) {
        (Some(_), Some(upstreams)) => upstreams.iter().any(|upstream| is_own(&upstream)),
        _ => true,
    };
    let stated = section.optional("hosted_over_budget", |field| {
        match field.clone().one_of(&words)? {
            HostedOverBudget::Wait if !has_own => field.wrong(
                "nothing could be waited for: all workers of this pool are hosted (their tier is above 0); say refuse, or add \
                 an own worker",
            ),
            stated => Some(stated),
        }
    })?;
    let default = if has_own { HostedOverBudget::Wait } else { HostedOverBudget::Refuse };
    Some(stated.unwrap_or(default))
}

fn prefix_index(field: ConfigField<'_>) -> Option<PrefixIndexConfig> {
    let section = field.section(&["scope", "cache_tokens", "memory_max"])?;
    let default = defaults::PREFIX_INDEX;
    let scopes = [("pool", PrefixScope::Pool), ("tenant", PrefixScope::Tenant)];
    let scope = section.or("scope", default.scope, |field| field.one_of(&scopes));
    let cache_tokens =
        section.or("cache_tokens", default.cache_tokens, |field| field.integer(64..=1_000_000_000));
    let memory_bytes_max =
        section.or("memory_max", default.memory_bytes_max, |field| field.size(1 << 20..=1 << 40));
    Some(PrefixIndexConfig {
        scope: scope?,
        cache_tokens: cache_tokens?,
        memory_bytes_max: memory_bytes_max?,
    })
}

/// Reads `sticky_sessions`, which is an error together with `prefix_index`. The index knows more than the session's
/// last worker, and the two could disagree.
fn sticky_sessions(field: ConfigField<'_>, pool: &ConfigSection<'_>) -> Option<bool> {
    let sticky = field.clone().boolean()?;
    if sticky && pool.has("prefix_index") {
        return field.wrong(
            "cannot act beside prefix_index, which knows where each prompt is cached: remove one of them",
        );
    }
    Some(sticky)
}

/// Reads the number of waiting tokens that a cached token outweighs: 0 to 1000.
fn overlap_credit(field: ConfigField<'_>) -> Option<OverlapCredit> {
    OverlapCredit::from_thousandths(field.thousandths(0..=1_000_000)?).ok()
}

fn brownout(field: ConfigField<'_>) -> Option<BrownoutConfig> {
    let section = field.section(&["wait", "max_tokens"])?;
    let wait = section.or("wait", defaults::BROWNOUT_WAIT, |field| field.duration(TIMEOUT));
    let max_tokens = section
        .or("max_tokens", defaults::BROWNOUT_MAX_TOKENS, |field| field.integer(1..=10_000_000));
    Some(BrownoutConfig { wait: wait?, max_tokens: max_tokens? })
}
