//! Pools.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::classes::Arbiter;
use crate::config::{
    BrownoutConfig, CostConfig, HostedBudget, HostedOverBudget, ModelConfig, PoolConfig,
    PrefixIndexConfig, PrefixScope, Tokenizer,
};
use crate::defaults;
use crate::field::{Field, Section};
use crate::read::hosted::hosted_budget;
use crate::read::leases::{check as check_leases, leases};
use crate::read::sharing::shared;
use crate::read::upstream::Upstream;
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
    "observe",
    "hosted_over_budget",
];

const MODEL: &[&str] = &["name", "upstream_name", "hosted", "hosted_budget"];

/// What may be waited for workers that are down; nothing, where one would rather be refused at once.
const DOWN_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// What is known of a pool even where something is wrong with it.
pub(super) struct Pool {
    pub(super) models: Vec<String>,
    pub(super) workers: Vec<String>,
    /// Whether its slots are leased: then its clients may name any model.
    pub(super) is_leased: bool,
    pub(super) config: Option<PoolConfig>,
}

/// What earlier pools have taken, and what else of the file matters to them.
#[derive(Default)]
struct Taken {
    names: BTreeMap<String, usize>,
    /// Models, by the path of the pool that has them.
    models: BTreeMap<String, String>,
    /// Upstreams, by the path of the first pool that uses them.
    workers: BTreeMap<String, String>,
    /// Whether the file has prices.
    has_prices: bool,
}

/// Reads the pools. Upstreams are none where nothing is known of them.
pub(super) fn pools(
    field: Field<'_>,
    upstreams: Option<&[Upstream<'_>]>,
    has_prices: bool,
) -> Option<Vec<Pool>> {
    let mut taken = Taken { has_prices, ..Taken::default() };
    Some(field.list()?.into_iter().map(|field| pool(field, upstreams, &mut taken)).collect())
}

fn pool(field: Field<'_>, upstreams: Option<&[Upstream<'_>]>, taken: &mut Taken) -> Pool {
    let nothing = Pool { models: Vec::new(), workers: Vec::new(), is_leased: false, config: None };
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
        return Pool { is_leased: true, config, ..nothing };
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
    Pool { models: known_models, workers: named, is_leased: false, config }
}

/// All of them, where all are right. They have all been read by then, and have said what is wrong.
fn all<T>(read: Vec<Option<T>>) -> Option<Vec<T>> {
    read.into_iter().collect()
}

fn config(
    section: &Section<'_>,
    name: Option<String>,
    models: Option<Vec<ModelConfig>>,
    workers: Option<Vec<String>>,
    upstreams: Option<&[Upstream<'_>]>,
) -> Option<PoolConfig> {
    let capacity = capacity(section, workers.as_deref(), upstreams);
    let hosted_over_budget = hosted_over_budget(section, workers.as_deref(), upstreams);
    let prefix_index = section.optional("prefix_index", prefix_index);
    let sticky_sessions =
        section.or("sticky_sessions", false, |field| sticky_sessions(field, section));
    let shared = shared(section, models.as_deref(), workers.as_deref(), upstreams);
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
        Some((_, Some(classes))) if classes.arbiter() == Arbiter::Drr => defaults::DYNAMO_COST,
        _ => defaults::COST,
    };
    let cost = section.or("cost", default_cost.clone(), |field| cost(field, default_cost));
    let observe =
        section.or("observe", true, |field| observe(field, workers.as_deref(), upstreams));
    let (policy, classes) = shared?;
    Some(PoolConfig {
        name: name?,
        capacity: capacity?.slots,
        follows_slots: capacity?.follows_slots,
        policy,
        classes,
        prefix_index: prefix_index?,
        sticky_sessions: sticky_sessions?,
        max_queue: max_queue?,
        queue_timeout: queue_timeout?,
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

fn model(field: Field<'_>, pool: &str, taken: &mut Taken) -> Option<ModelConfig> {
    let model = match field.scalar() {
        Some(_) => ModelConfig {
            name: model_name(field.clone())?,
            upstream_name: None,
            hosted: true,
            hosted_budget: HostedBudget::default(),
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
            ModelConfig {
                name: name?,
                upstream_name: upstream_name?,
                hosted: hosted?,
                hosted_budget: budget?.unwrap_or_default(),
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
    field: Field<'_>,
    pool: &str,
    upstreams: Option<&[Upstream<'_>]>,
    taken: &mut Taken,
    named: &mut Vec<String>,
) -> Option<String> {
    let worker = field.clone().text()?.to_owned();
    named.push(worker.clone());
    // Where no upstream could be read, that has been said.
    let upstreams = upstreams?;
    let is_it = |upstream: &&Upstream<'_>| upstream.name.as_deref() == Some(&worker);
    let Some(upstream) = upstreams.iter().find(is_it) else {
        let names = upstreams.iter().filter_map(|upstream| upstream.name.as_deref());
        let guess = did_you_mean(&worker, names);
        return field.wrong(format!("no upstream is called {worker:?}{guess}"));
    };
    match taken.workers.insert(worker.clone(), pool.to_owned()) {
        Some(first) if first == pool => {
            field.wrong(format!("the upstream {worker:?} is listed twice"))
        }
        // Each pool counts for itself, so two of them would send it twice what it takes.
        Some(first) if upstream.slots.and_then(|slots| slots.first).is_some() => field.wrong(format!(
            "the upstream {worker:?} works for {first} already and has slots, which each pool would count for \
             itself: list it a second time under another name with its own part of the slots, or remove its slots"
        )),
        _ => Some(worker),
    }
}

/// How many requests may be in flight at once, and whether that is the sum of the workers' slots.
#[derive(Clone, Copy)]
struct Capacity {
    slots: u64,
    follows_slots: bool,
}

/// What is stated, or the sum of the workers' slots where all state theirs.
fn capacity(
    section: &Section<'_>,
    workers: Option<&[String]>,
    upstreams: Option<&[Upstream<'_>]>,
) -> Option<Capacity> {
    if let Some(capacity) = section.optional("capacity", |field| field.integer(1..=1_000_000))? {
        return Some(Capacity { slots: capacity, follows_slots: false });
    }
    let mut sum = 0;
    for worker in workers? {
        let is_it = |upstream: &&Upstream<'_>| upstream.name.as_ref() == Some(worker);
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
    Some(Capacity { slots: sum, follows_slots: true })
}

/// Slots that follow an engine do so by what is observed.
fn observe(
    field: Field<'_>,
    workers: Option<&[String]>,
    upstreams: Option<&[Upstream<'_>]>,
) -> Option<bool> {
    let observe = field.clone().boolean()?;
    let is_auto = |upstream: &&Upstream<'_>| {
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

/// What is stated, or waiting for own workers where there is one.
fn hosted_over_budget(
    section: &Section<'_>,
    workers: Option<&[String]>,
    upstreams: Option<&[Upstream<'_>]>,
) -> Option<HostedOverBudget> {
    let words = [("wait", HostedOverBudget::Wait), ("refuse", HostedOverBudget::Refuse)];
    let is_own = |upstream: &&Upstream<'_>| {
        let works_here = |name: &String| workers.is_some_and(|workers| workers.contains(name));
        upstream.tier.is_none_or(|tier| tier == 0) && upstream.name.as_ref().is_some_and(works_here)
    };
    // Where workers or upstreams could not be read, that has been said.
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

fn prefix_index(field: Field<'_>) -> Option<PrefixIndexConfig> {
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

/// An index knows more than a session's last worker: both together would contradict each other.
fn sticky_sessions(field: Field<'_>, pool: &Section<'_>) -> Option<bool> {
    let sticky = field.clone().boolean()?;
    if sticky && pool.has("prefix_index") {
        return field.wrong(
            "cannot act beside prefix_index, which knows where each prompt is cached: remove one of them",
        );
    }
    Some(sticky)
}

fn brownout(field: Field<'_>) -> Option<BrownoutConfig> {
    let section = field.section(&["wait", "max_tokens"])?;
    let wait = section.or("wait", defaults::BROWNOUT_WAIT, |field| field.duration(TIMEOUT));
    let max_tokens = section
        .or("max_tokens", defaults::BROWNOUT_MAX_TOKENS, |field| field.integer(1..=10_000_000));
    Some(BrownoutConfig { wait: wait?, max_tokens: max_tokens? })
}

const COST: &[&str] =
    &["input", "cached_input", "output", "output_default", "max_tokens_default", "tokenizer"];

const TOKENIZERS: [(&str, Tokenizer); 3] =
    [("learned", Tokenizer::Learned), ("o200k", Tokenizer::O200k), ("cl100k", Tokenizer::Cl100k)];

fn cost(field: Field<'_>, default: CostConfig) -> Option<CostConfig> {
    let section = field.section(COST)?;
    let weight =
        |name, default| section.or(name, default, |field| field.thousandths(0..=1_000_000));
    let tokens = |name, default| section.or(name, default, |field| field.integer(1..=10_000_000));
    let input = weight("input", default.input_milli);
    let cached = weight("cached_input", default.cached_milli);
    let output = weight("output", default.output_milli);
    let output_default = tokens("output_default", default.output_default);
    let max_tokens_default = tokens("max_tokens_default", default.max_tokens_default);
    let tokenizer = section.or("tokenizer", default.tokenizer, |field| field.one_of(&TOKENIZERS));
    if (input, output) == (Some(0), Some(0)) {
        return section.field.wrong(
            "input and output cannot both be 0: requests would cost nothing, and nothing be shared",
        );
    }
    Some(CostConfig {
        input_milli: input?,
        cached_milli: cached?,
        output_milli: output?,
        output_default: output_default?,
        max_tokens_default: max_tokens_default?,
        tokenizer: tokenizer?,
    })
}
