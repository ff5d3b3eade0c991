//! One pool at work.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use fairgate_config::{PoolConfig, Tokenizer};
use fairgate_core::attribute::Attribute;
use fairgate_dialect::Dialect;
use fairgate_dialect::estimate::{Estimator, Table, Weights};
use fairgate_runtime::Gate;

use super::hits::{CacheHits, CacheView};
use super::names::Names;
use super::prefixes::Caches;
use super::reporter::Reporter;
use super::roster::WorkerSource;
use super::spending::Spending;
use super::traits;
use crate::in_flight::InFlight;
use crate::occupation::Occupation;
use crate::upstream::{EngineSight, Standing, Upstream};

/// One pool at work.
pub struct PoolHandle {
    /// Its name.
    pub name: Arc<str>,
    /// The way into it.
    pub gate: Gate,
    pub(super) setup: ArcSwap<Setup>,
    pub(crate) estimator: Estimator,
    pub(crate) names: Names,
    /// What time in its slots is worth.
    pub(crate) occupation: Occupation,
    /// What its requests came to, by tenant and tier.
    pub(crate) spending: Spending,
    /// Tells it what is observed of its workers.
    pub(crate) reporter: Arc<Reporter>,
    /// What its workers' caches are believed to hold.
    pub(crate) caches: Arc<Caches>,
}

/// What a reload may change about a pool.
pub(crate) struct Setup {
    pub(crate) config: PoolConfig,
    pub(crate) weights: Weights,
    /// What counts input tokens, where they are not estimated from bytes.
    pub(crate) tokens: Option<Table>,
    pub(crate) workers: Vec<Arc<Worker>>,
    /// Whether the policy shares by what clients name themselves.
    pub(crate) by_agent: bool,
    pub(crate) by_session: bool,
    pub(crate) by_class: bool,
    /// The classes and families that a request may name, sorted.
    pub(crate) class_names: Vec<Box<str>>,
    /// Whether a name that is none of these stands for the policy's default class.
    pub(crate) lists_classes: bool,
    /// Whether any of its workers has a provider with limits behind it.
    pub(crate) is_hosted: bool,
    /// Whether any of its workers is of a higher tier than its own ones.
    pub(crate) has_hosted_tier: bool,
    /// Whether the core is told of first tokens: where a class counts what is in prefill, or where an index says what each of
    /// several workers has cached, so that prefill is what a worker still has to do.
    ///
    /// Elsewhere it is not, so that a worker's "prefill" is the input of all that is in flight on it, and a request is placed
    /// where the fewest tokens are in flight. Were first tokens told, a worker with many long answers under way would
    /// look as idle as an empty one.
    pub(crate) tells_first_token: bool,
}

/// An upstream as a pool uses it.
pub(crate) struct Worker {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) in_flight: InFlight,
    /// Whether an operator has it take nothing new.
    pub(crate) is_drained: bool,
    /// What its answers say of its cache.
    pub(crate) hits: CacheHits,
    /// Whether the pool expects anything to be in its cache.
    pub(crate) expects_hits: bool,
}

/// How a worker stands, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// `up`, `drained` (an operator has it take nothing new), `unhealthy` (health checks fail), `broken` (requests fail on it),
    /// `overloaded` (its engine has too much to do), `paused` (its provider wants nothing for a while) or `out` (its provider's
    /// account is spent or blocked).
    pub state: &'static str,
    /// Why, where more can be said.
    pub reason: Option<String>,
    /// Where it is from.
    pub source: WorkerSource,
    /// Where requests are sent.
    pub address: String,
    /// How many requests run on it.
    pub in_flight: u64,
    /// How many it takes; any number where absent.
    pub slots: Option<u64>,
    /// Why its slots changed last, where they follow its engine.
    pub slots_reason: Option<String>,
    /// What its engine says, where it is read.
    pub engine: Option<EngineView>,
    /// What its answers said of its cache, where they did.
    pub cache: Option<CacheView>,
    /// Its tier: 0 is an own worker, higher ones are used when no lower one has room.
    pub tier: u32,
    /// The limits of its provider's account, where it is hosted.
    pub quota: Option<QuotaView>,
}

/// What an engine says of itself, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineView {
    /// `vllm`, `sglang` or `llama.cpp`.
    pub kind: &'static str,
    /// Requests that it works on.
    pub running: u64,
    /// Requests in its own queue.
    pub waiting: u64,
    /// The part of its cache in use, in thousandths.
    pub cache_used_milli: Option<u64>,
    /// How many tokens its cache holds.
    pub cache_tokens: Option<u64>,
    /// It is overloaded where more requests wait in its own queue.
    pub overload_waiting: Option<u64>,
    /// It is overloaded where more of its cache is in use, in thousandths.
    pub overload_cache_milli: Option<u64>,
}

impl EngineView {
    fn of(sight: &EngineSight) -> Option<Self> {
        let reading = sight.reading?;
        Some(Self {
            kind: reading.kind.name(),
            running: reading.running,
            waiting: reading.waiting,
            cache_used_milli: reading.cache_used_milli,
            cache_tokens: reading.cache_tokens,
            overload_waiting: sight.overload.waiting,
            overload_cache_milli: sight.overload.cache_milli,
        })
    }
}

/// The limits of a provider's account, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaView {
    /// The account's name.
    pub account: String,
    /// Requests a minute, and where that is from: `file`, `header` or `learned`.
    pub requests: Option<(u64, &'static str)>,
    /// Tokens a minute, and where that is from.
    pub tokens: Option<(u64, &'static str)>,
    /// For how much longer nothing is sent.
    pub paused: Option<Duration>,
    /// How long the provider asked for, where it did.
    pub asked: Option<Duration>,
    /// Why nothing is sent until somebody pays or asks: the provider's own word.
    pub out: Option<String>,
}

impl Setup {
    pub(super) fn new(config: PoolConfig, workers: Vec<Arc<Worker>>) -> Self {
        let weights = Weights {
            input_milli: config.cost.input_milli,
            cached_milli: config.cost.cached_milli,
            output_milli: config.cost.output_milli,
        };
        let shares = |by| traits::shares_by(&config.policy, by);
        Self {
            weights,
            tokens: match config.cost.tokenizer {
                Tokenizer::Learned => None,
                Tokenizer::O200k => Some(Table::O200k),
                Tokenizer::Cl100k => Some(Table::Cl100k),
            },
            has_hosted_tier: workers.iter().any(|worker| worker.is_hosted_tier()),
            is_hosted: workers.iter().any(|worker| worker.upstream.account.is_some()),
            tells_first_token: traits::counts_prefill(&config.policy)
                || (config.prefix_index.is_some() && workers.len() > 1),
            workers,
            by_agent: shares(Attribute::Agent),
            by_session: shares(Attribute::Session),
            by_class: shares(Attribute::Class),
            class_names: class_names(&config),
            lists_classes: traits::lists_classes(&config.policy),
            config,
        }
    }

    /// The class that a request is queued in which names this class or family, or none, and has so many uncached input
    /// tokens. `None` where the policy has no classes.
    pub(crate) fn class(&self, named: Option<&str>, uncached_tokens: u64) -> Option<Arc<str>> {
        match &self.config.classes {
            Some(classes) => Some(classes.resolve(named, uncached_tokens).class.as_str().into()),
            None if self.by_class => traits::class_of(&self.config.policy, named),
            None => None,
        }
    }

    /// The worker of that name.
    pub(crate) fn worker(&self, name: &str) -> Option<&Arc<Worker>> {
        self.workers.iter().find(|worker| &*worker.upstream.name == name)
    }

    /// Whether any of its upstreams speaks this dialect. Of a pool whose workers are still to be found, that is not known.
    pub(crate) fn speaks(&self, dialect: Dialect) -> bool {
        self.workers.is_empty() || self.workers.iter().any(|worker| worker.upstream.speaks(dialect))
    }

    /// Whether it has a worker of the lowest tier that speaks this dialect.
    pub(crate) fn has_own(&self, dialect: Dialect) -> bool {
        let own = |worker: &&Arc<Worker>| !worker.is_hosted_tier();
        self.workers.iter().filter(own).any(|worker| worker.upstream.speaks(dialect))
    }

    /// The workers that a request may go to: those that speak its dialect and were not tried, of all tiers or of the lowest
    /// one. `None` where that is all of them.
    pub(crate) fn allowed(
        &self,
        dialect: Dialect,
        tried: &[Arc<str>],
        hosted: bool,
    ) -> Option<Vec<Box<str>>> {
        let fit = |worker: &&Arc<Worker>| {
            worker.upstream.speaks(dialect)
                && !tried.contains(&worker.upstream.name)
                && (hosted || !worker.is_hosted_tier())
        };
        if self.workers.iter().all(|worker| fit(&worker)) {
            return None;
        }
        Some(
            self.workers.iter().filter(fit).map(|worker| (&*worker.upstream.name).into()).collect(),
        )
    }
}

/// What a request may name: the families and explicit classes of a policy file, else the classes of the tree.
fn class_names(config: &PoolConfig) -> Vec<Box<str>> {
    let Some(classes) = &config.classes else { return traits::class_names(&config.policy) };
    let explicit = classes.explicit().map(|class| class.as_str().into());
    let mut names: Vec<Box<str>> = classes.families().map(Into::into).chain(explicit).collect();
    names.sort_unstable();
    names
}

impl PoolHandle {
    /// What is in force now.
    pub(crate) fn setup(&self) -> Guard<Arc<Setup>> {
        self.setup.load()
    }

    /// Whether any of its workers is of a higher tier than its own ones.
    pub(crate) fn has_hosted_tier(&self) -> bool {
        self.setup.load().has_hosted_tier
    }

    /// Its configuration in force.
    pub fn config(&self) -> PoolConfig {
        self.setup.load().config.clone()
    }

    /// How its workers stand, in the order of the configuration.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.setup.load().workers.iter().map(|worker| worker.view()).collect()
    }
}

impl Worker {
    /// Whether requests for it go to the same address as for the other. At another one there is another cache.
    pub(super) fn is_where(&self, other: &Self) -> bool {
        let (here, there) = (&self.upstream.config, &other.upstream.config);
        (&here.url, here.connect_to) == (&there.url, there.connect_to)
    }

    /// Whether it is used only when no own worker has room.
    pub(crate) fn is_hosted_tier(&self) -> bool {
        self.upstream.config.tier > 0
    }

    fn view(&self) -> WorkerView {
        let Upstream { config, account, engine, condition, .. } = &*self.upstream;
        let quota = account.as_ref().map(|account| account.view());
        let sight = engine.sight();
        let overloaded = sight.overloaded.map(|why| why.to_string());
        let (state, reason) = match condition.standing() {
            _ if self.is_drained => ("drained", None),
            Standing::Up if quota.as_ref().is_some_and(|quota| quota.out.is_some()) => {
                ("out", None)
            }
            Standing::Up if quota.as_ref().is_some_and(|quota| quota.paused.is_some()) => {
                ("paused", None)
            }
            Standing::Up if overloaded.is_some() => ("overloaded", overloaded),
            Standing::Up => ("up", None),
            Standing::Unhealthy => ("unhealthy", self.upstream.check_problem()),
            Standing::Broken | Standing::Trial => ("broken", self.upstream.request_problem()),
        };
        let address = match config.connect_to {
            _ if config.is_leased => "leases".to_owned(),
            Some(address) => address.to_string(),
            None => config.url.to_string(),
        };
        WorkerView {
            name: config.name.clone(),
            state,
            reason,
            source: WorkerSource::of(config),
            address,
            in_flight: self.in_flight.now(),
            slots: self.upstream.slots_in_all(),
            slots_reason: sight.slots_reason.clone(),
            engine: EngineView::of(&sight),
            cache: self.hits.view(self.expects_hits),
            tier: config.tier,
            quota,
        }
    }
}
