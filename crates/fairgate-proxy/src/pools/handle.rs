//! One running pool with its settings and workers, and the views that the live API shows of the workers.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use fairgate_config::{CostUnit, ModelConfig, PoolConfig, PrefixScope, Tokenizer};
use fairgate_core::attribute::Attribute;
use fairgate_core::units::TaskWeight;
use fairgate_dialect::estimate::{TokenEstimator, TokenWeights, TokenizerTable};
use fairgate_dialect::{Dialect, model_weight};
use fairgate_runtime::Gate;

use super::cache_hits::{CacheHits, CacheView};
use super::client_flow_names::ClientFlowNames;
use super::policy_queries;
use super::prefixes::{CacheSizeView, WorkerCaches};

use super::roster::WorkerSource;
use super::spending::TenantSpending;
use super::uncached_costs::UncachedCosts;
use super::worker_meters::AddressSlots;
use crate::live_count::LiveCount;
use crate::slot_time_books::SlotTimePrice;
use crate::upstream::{
    EngineSnapshot, ProviderAccount, QuotaView, Upstream, UpstreamOutage, UpstreamStanding,
};
use crate::worker_reporter::{ReportedWorker, WorkerReporter};
use crate::worker_time::{
    self, AttemptTerms, CostTerms, WorkerCalibration, WorkerMeter, WorkerTimeTerms,
};

/// A running pool with its gate, settings, workers and estimates.
pub struct PoolHandle {
    /// Name of the pool; unique within the configuration.
    pub name: Arc<str>,
    /// Handle to the pool's scheduler.
    pub gate: Gate,
    pub(super) setup: ArcSwap<PoolSetup>,
    pub(crate) estimator: TokenEstimator,
    pub(crate) names: ClientFlowNames,
    /// Price of the time for which a request holds a slot.
    pub(crate) slot_time_price: SlotTimePrice,
    /// Usage of the pool's requests, by tenant and tier.
    pub spending: TenantSpending,
    /// Reporter of the observed state of workers to the pool's scheduler.
    pub(crate) reporter: Arc<WorkerReporter>,
    /// Costs of requests as if nothing were cached. Tenants see these costs.
    pub uncached_costs: Arc<UncachedCosts>,
    /// The assumed contents of the workers' caches.
    pub(crate) caches: Arc<WorkerCaches>,
    /// Numbers of queued requests, by model.
    pub(super) queued: QueuedByModel,
    /// Number of times at which the scheduler's scores started again from 0, because the policy or
    /// the unit changed.
    pub(super) books_begun: AtomicU64,
}

/// Numbers of queued requests, by the models of the configuration.
#[derive(Default)]
pub(super) struct QueuedByModel(Mutex<BTreeMap<Box<str>, LiveCount>>);

impl QueuedByModel {
    /// Returns the counter of a model.
    pub(super) fn count(&self, model: &str) -> LiveCount {
        self.lock().entry(model.into()).or_default().clone()
    }

    /// Forgets the counters of models that are no longer configured. Requests that are still queued keep theirs.
    pub(super) fn retain(&self, config: &PoolConfig) {
        self.lock().retain(|name, _| config.models.iter().any(|model| *model.name == **name));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, LiveCount>> {
        // Every change is one insertion or removal, so poison is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings of a pool that a reload may change.
pub struct PoolSetup {
    /// Configuration of the pool.
    pub config: PoolConfig,
    pub(crate) weights: TokenWeights,
    /// Terms that apply while the pool has no own worker, because none was found yet.
    start_terms: WorkerTimeTerms,
    /// Tokenizer table that counts input tokens; `None` if input tokens are estimated from bytes.
    pub(crate) tokens: Option<TokenizerTable>,
    pub(crate) workers: Vec<Arc<PoolWorker>>,
    /// True if the policy shares by the agents that clients name. The next two fields say the same
    /// of sessions and classes.
    pub(crate) by_agent: bool,
    pub(crate) by_session: bool,
    pub(crate) by_class: bool,
    /// Classes and families that a request may name, sorted.
    pub(crate) class_names: Vec<Box<str>>,
    /// True if a class name that the policy does not list means the policy's default class.
    pub(crate) lists_classes: bool,
    /// Classes and families that a key without a list of classes may name, if classes have a strict
    /// order. `None` if they have no strict order; such a key may then name any class.
    pub strict_defaults: Option<Vec<Box<str>>>,
    /// Names of the class or family that a request gets if it names none. Every key may name these.
    pub default_classes: Vec<Box<str>>,
    /// True if the policy has a `load` node, so that weights of requests have an effect.
    pub has_load_node: bool,
    /// Weights of the pool's models; empty if weights do not depend on the model.
    model_weights: BTreeMap<String, TaskWeight>,
    /// True if any queue of the pool serves the earliest deadline first.
    pub(crate) has_edf_queues: bool,
    /// True if any worker of the pool uses a provider's account.
    pub(crate) is_hosted: bool,
    /// True if any worker of the pool has a tier above 0.
    pub(crate) has_hosted_tier: bool,
    /// True if first tokens are reported to the core. This is done in two cases: a class counts
    /// requests in prefill, or a prefix index knows the cached tokens of several workers, so that
    /// prefill is the work that a worker still has to do.
    ///
    /// Otherwise first tokens are not reported. A worker's "prefill" is then the input of all
    /// requests in flight on it, and a request goes to the worker with the fewest tokens in flight.
    /// If first tokens were reported, a worker with many long answers in progress would seem as
    /// idle as an empty one.
    pub(crate) reports_first_token: bool,
}

/// A worker of one pool, made from an upstream. An upstream with an account has one worker for each
/// model (`account_models.rs`).
pub(crate) struct PoolWorker {
    /// Name of the worker in the core: that of the upstream, or `UPSTREAM/MODEL`.
    pub(crate) name: Arc<str>,
    pub(crate) upstream: Arc<Upstream>,
    /// Limits of the provider's account for the worker's models; `None` if the upstream uses no account.
    pub(crate) account: Option<Arc<ProviderAccount>>,
    /// Models that are sent to the worker, as clients name them; `None` if all models of the pool are.
    pub(crate) models: Option<Vec<Box<str>>>,
    /// Numbers of queued requests of these models.
    pub(crate) waiting: Vec<LiveCount>,
    /// Slots of the worker when it was added, for each rank.
    pub(crate) first_slots: u64,
    pub(crate) in_flight: LiveCount,
    /// True if an operator drains the worker, so that it gets no new requests.
    pub(crate) is_drained: bool,
    /// Counts of the cached tokens that the worker's answers report.
    pub(crate) hits: CacheHits,
    /// Meter of the worker's time; `None` for hosted workers, and if the pool does not observe its workers and states no
    /// prices.
    pub(crate) meter: Option<Arc<WorkerMeter>>,
    /// Slots of the worker's address over all pools and upstreams, for the meter.
    pub(crate) metered_slots: AddressSlots,
    /// True if the pool expects cached tokens on the worker, because the pool has a prefix index or sticky sessions.
    pub(crate) expects_hits: bool,
}

impl ReportedWorker for PoolWorker {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    fn upstream_slots(&self) -> (&str, Option<u64>) {
        (&self.upstream.name, self.upstream.total_slots())
    }
}

/// State of a worker, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Name of the worker.
    pub name: String,
    /// State of the worker: `up`, `drained` (an operator stopped new requests), `unhealthy` (health checks fail),
    /// `broken` (requests to it fail), `overloaded` (its engine is above a threshold), `paused` (its provider asked for
    /// a pause) or `out` (its provider's account is spent or blocked).
    pub state: &'static str,
    /// Reason for the state; `None` if nothing more is known.
    pub reason: Option<String>,
    /// Time for which the worker takes no requests; `None` unless the state is `unhealthy` or `broken`.
    pub outage: Option<UpstreamOutage>,
    /// Origin of the worker: file, API or DNS.
    pub source: WorkerSource,
    /// Address to which requests are sent.
    pub address: String,
    /// Number of this pool's requests in flight on the worker.
    pub in_flight: u64,
    /// Slots of the worker over all its ranks; `None` if unlimited.
    pub slots: Option<u64>,
    /// Last change of the worker's slots, with its reason; `None` if the slots never changed.
    pub slots_reason: Option<String>,
    /// Latest metrics of the worker's engine; `None` if no metrics were read.
    pub engine: Option<EngineView>,
    /// Cached tokens that the worker's answers reported; `None` if no answer reported any.
    pub cache: Option<CacheView>,
    /// Assumed size of the worker's cache; `None` if the pool has no prefix index.
    pub cache_size: Option<CacheSizeView>,
    /// Tier of the worker. Tier 0 is an own worker; higher tiers are used when no lower one has
    /// room.
    pub tier: u32,
    /// Limits of the provider's account that the worker uses; `None` if it uses no account. If each
    /// of its models has limits of its own, this view has no rates, and it shows a pause or a
    /// reason only if that concerns all of these models.
    pub quota: Option<QuotaView>,
    /// Limits of each model, with the model's name at the provider. Empty if the worker has one model, or if all models
    /// share their limits.
    pub models: Vec<(String, QuotaView)>,
}

/// Metrics of an engine, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineView {
    /// Kind of engine: `vllm`, `sglang` or `llama.cpp`.
    pub kind: &'static str,
    /// Requests that the engine is working on.
    pub running: u64,
    /// Requests in the engine's own queue.
    pub waiting: u64,
    /// Fraction of the engine's cache that is in use, in thousandths; `None` if the engine does not report it.
    pub cache_used_milli: Option<u64>,
    /// Size of the engine's cache in tokens; `None` if the engine does not report it.
    pub cache_tokens: Option<u64>,
    /// Number of requests in the engine's own queue above which the engine counts as overloaded; `None` means never.
    pub overload_waiting: Option<u64>,
    /// Fraction of the engine's cache in use, in thousandths, above which the engine counts as overloaded; `None` means
    /// never.
    pub overload_cache_milli: Option<u64>,
}

impl EngineView {
    fn of(recent: &EngineSnapshot) -> Option<Self> {
        let reading = recent.reading?;
        Some(Self {
            kind: reading.kind.name(),
            running: reading.running,
            waiting: reading.waiting,
            cache_used_milli: reading.cache_used_milli,
            cache_tokens: reading.cache_tokens,
            overload_waiting: recent.overload.waiting,
            overload_cache_milli: recent.overload.cache_milli,
        })
    }
}

impl PoolSetup {
    /// Returns true if a request costs less because another tenant has sent the same prompt. Tenants are then not shown
    /// the token counts of the scheduler, because these counts would show which prompts other tenants have sent.
    pub fn shares_cached_prompts(&self) -> bool {
        self.config.prefix_index.is_some_and(|index| index.scope == PrefixScope::Pool)
    }

    /// Returns the family of a policy class; `None` if the class is in no family. The classes of one family differ by
    /// the number of input tokens that are not cached.
    pub fn family(&self, class: &str) -> Option<&str> {
        let classes = self.config.classes.as_ref()?;
        let class = classes.all().iter().find(|known| known.name.as_str() == class)?;
        class.cell.as_ref().map(|cell| &*cell.family)
    }

    pub(super) fn new(config: PoolConfig, workers: Vec<Arc<PoolWorker>>) -> Self {
        let weights = TokenWeights {
            input_milli: config.cost.input_milli,
            cached_milli: config.cost.cached_milli,
            output_milli: config.cost.output_milli,
        };
        let shares = |by| policy_queries::shares_by(&config.policy, by);
        let start = WorkerMeter::new(config.capacity, config.cost.prices).price_set();
        Self {
            weights,
            start_terms: WorkerTimeTerms::of(&start),
            tokens: match config.cost.tokenizer {
                Tokenizer::Learned => None,
                Tokenizer::O200k => Some(TokenizerTable::O200k),
                Tokenizer::Cl100k => Some(TokenizerTable::Cl100k),
            },
            has_hosted_tier: workers.iter().any(|worker| worker.is_hosted_tier()),
            is_hosted: workers.iter().any(|worker| worker.account.is_some()),
            reports_first_token: policy_queries::counts_prefill(&config.policy)
                || (config.prefix_index.is_some() && config.workers.len() > 1),
            workers,
            by_agent: shares(Attribute::Agent),
            by_session: shares(Attribute::Session),
            by_class: shares(Attribute::Class),
            class_names: class_names(&config),
            lists_classes: policy_queries::lists_classes(&config.policy),
            strict_defaults: strict_defaults(&config),
            default_classes: default_classes(&config),
            has_load_node: config.has_load_node(),
            model_weights: model_weights(&config),
            has_edf_queues: policy_queries::has_edf_queues(&config.policy),
            config,
        }
    }

    /// Returns the unit in which the pool's scheduler counts.
    pub fn unit(&self) -> CostUnit {
        self.config.cost.unit
    }

    /// Returns the terms that give the expected cost of a request, whichever worker it goes to. A
    /// hosted worker has no time of its own, so its requests are counted by the same terms.
    pub(crate) fn expected_terms(&self) -> CostTerms {
        match self.unit() {
            CostUnit::Tokens => CostTerms::Tokens,
            CostUnit::WorkerTime => CostTerms::WorkerTime(self.mean_terms()),
            CostUnit::Money => CostTerms::Money,
        }
    }

    /// Returns the terms by which an attempt that starts now on this worker is counted.
    pub(crate) fn attempt_terms(&self, worker: &PoolWorker) -> AttemptTerms {
        let Some(meter) = &worker.meter else { return AttemptTerms::of(self.expected_terms()) };
        match self.unit() {
            CostUnit::WorkerTime => {
                let (terms, id) = meter.charged_terms(&self.config.name, &worker.name);
                let cost = CostTerms::WorkerTime(terms);
                AttemptTerms { cost, worker: Some(terms), price_set: Some(id) }
            }
            _ => AttemptTerms {
                worker: Some(WorkerTimeTerms::of(&meter.price_set())),
                ..AttemptTerms::of(self.expected_terms())
            },
        }
    }

    /// Returns the terms by which an attempt is settled. `granted` are its terms at the grant. They
    /// are returned unchanged, unless they were a guess; then the present terms of the worker are
    /// returned.
    pub(crate) fn settlement_terms(
        &self,
        worker: &PoolWorker,
        granted: AttemptTerms,
    ) -> AttemptTerms {
        if !granted.is_guess() {
            return granted;
        }
        let now = self.attempt_terms(worker);
        // A change of the unit applies only to later attempts.
        if discriminant(&now.cost) == discriminant(&granted.cost) { now } else { granted }
    }

    /// Returns the mean terms of the own workers, weighted by their slots.
    fn mean_terms(&self) -> WorkerTimeTerms {
        let workers = u64::try_from(self.workers.len()).unwrap_or(u64::MAX).max(1);
        let part = self.config.capacity.div_ceil(workers);
        let own = self.workers.iter().filter_map(|worker| {
            let terms = WorkerTimeTerms::of(&worker.meter.as_ref()?.price_set());
            // Slots of the upstream only: other pools and upstreams may use the same address.
            Some((terms, worker.upstream.total_slots().unwrap_or(part)))
        });
        WorkerTimeTerms::mean(&own.collect::<Vec<_>>()).unwrap_or(self.start_terms)
    }

    /// Returns the mean prices of the own workers in picoseconds, in the order of their names in the configuration.
    pub fn mean_prices(&self) -> [u64; 6] {
        worker_time::in_order(&self.mean_terms().prices)
    }

    /// Returns the number of input tokens that are expected to be cached, from the cached part that
    /// was reported for the recent requests of this tenant and model.
    pub(crate) fn usually_cached(&self, tenant: &str, model: &str, input: u64) -> u64 {
        let mut meters = self.workers.iter().filter_map(|worker| worker.meter.as_ref());
        let Some(typical) = meters.find_map(|meter| meter.typical_request(tenant, model)) else {
            return 0;
        };
        let cached = u128::from(input) * u128::from(typical.cached.min(typical.input))
            / u128::from(typical.input.max(1));
        u64::try_from(cached).unwrap_or(input)
    }

    /// Returns the class in which a request is queued; `None` if the policy has no classes. `named` is the class or
    /// family that the request names, if any, and `uncached_tokens` is the number of its input tokens that are not
    /// cached.
    pub(crate) fn class(&self, named: Option<&str>, uncached_tokens: u64) -> Option<Arc<str>> {
        match &self.config.classes {
            Some(classes) => Some(classes.resolve(named, uncached_tokens).class.as_str().into()),
            None if self.by_class => policy_queries::class_of(&self.config.policy, named),
            None => None,
        }
    }

    /// Returns the weight of a request for this model that states none.
    pub(crate) fn model_weight(&self, model: &str) -> TaskWeight {
        match self.model_weights.get(model) {
            Some(weight) => *weight,
            // A pool of leases has no models of its own: its clients name the model of each call.
            None if self.weighs_models() && !model.is_empty() => weight_of(model),
            None => TaskWeight::ONE,
        }
    }

    /// Returns true if requests have the weights of their models.
    fn weighs_models(&self) -> bool {
        self.has_load_node && self.config.cost.weights_by_model
    }

    /// Returns the worker of this upstream. If the upstream has one worker for each model, returns the first.
    pub(crate) fn worker(&self, upstream: &str) -> Option<&Arc<PoolWorker>> {
        self.workers.iter().find(|worker| &*worker.upstream.name == upstream)
    }

    /// Returns the worker with this name in the core.
    pub(crate) fn worker_in_core(&self, name: &str) -> Option<&Arc<PoolWorker>> {
        self.workers.iter().find(|worker| &*worker.name == name)
    }

    /// Returns the name in the core of this upstream's worker for this model. Returns the
    /// upstream's name if the pool has no such worker.
    pub(crate) fn name_in_core<'a>(&'a self, upstream: &'a str, model: &str) -> &'a str {
        let is_it =
            |worker: &&Arc<PoolWorker>| &*worker.upstream.name == upstream && worker.serves(model);
        self.workers.iter().find(is_it).map_or(upstream, |worker| &worker.name)
    }

    /// Returns true if any worker of the pool speaks this dialect. Also returns true if the pool has no workers yet,
    /// because their dialects are then unknown.
    pub(crate) fn speaks(&self, dialect: Dialect) -> bool {
        self.workers.is_empty() || self.workers.iter().any(|worker| worker.upstream.speaks(dialect))
    }

    /// Returns the names in the core of the workers that a request may go to: those that serve this
    /// model, speak this dialect and were not tried yet. If `hosted` is false, only workers of tier
    /// 0 are returned. If `listed` is given, only workers of the listed upstreams are. Returns
    /// `None` if a request may go to all workers of the pool, including those that are added while
    /// it waits.
    pub(crate) fn allowed(
        &self,
        model: &str,
        dialect: Dialect,
        tried: &[Arc<str>],
        hosted: bool,
        listed: Option<&[Arc<str>]>,
    ) -> Option<Vec<Box<str>>> {
        let fit = |worker: &&Arc<PoolWorker>| {
            worker.serves(model)
                && worker.upstream.speaks(dialect)
                && !tried.contains(&worker.upstream.name)
                && (hosted || !worker.is_hosted_tier())
                && listed.is_none_or(|names| names.contains(&worker.upstream.name))
        };
        if listed.is_none() && self.workers.iter().all(|worker| fit(&worker)) {
            return None;
        }
        Some(self.workers.iter().filter(fit).map(|worker| (&*worker.name).into()).collect())
    }
}

/// Returns the weights of a pool's models, as their upstreams name them; empty if weights do not depend on the model.
fn model_weights(config: &PoolConfig) -> BTreeMap<String, TaskWeight> {
    if !config.cost.weights_by_model || !config.has_load_node() {
        return BTreeMap::new();
    }
    let weight =
        |model: &ModelConfig| weight_of(model.upstream_name.as_ref().unwrap_or(&model.name));
    config.models.iter().map(|model| (model.name.clone(), weight(model))).collect()
}

fn weight_of(model: &str) -> TaskWeight {
    TaskWeight::from_thousandths(model_weight(model).into()).unwrap_or(TaskWeight::ONE)
}

/// Returns the names that a request may use for its class. These are the families and explicit classes of a policy
/// file, or the classes of the policy tree if there is no such file.
fn class_names(config: &PoolConfig) -> Vec<Box<str>> {
    let Some(classes) = &config.classes else { return policy_queries::class_names(&config.policy) };
    let explicit = classes.explicit().map(|class| class.as_str().into());
    let mut names: Vec<Box<str>> = classes.families().map(Into::into).chain(explicit).collect();
    names.sort_unstable();
    names
}

/// Returns the names that a key without a list of classes may use if classes have a strict order:
/// only the default family or class. `None` if classes have no strict order.
fn strict_defaults(config: &PoolConfig) -> Option<Vec<Box<str>>> {
    let of_tree = policy_queries::strict_defaults(&config.policy)?;
    match &config.classes {
        Some(classes) => Some(vec![classes.default_family().into()]),
        None => Some(of_tree),
    }
}

/// Returns the names of the class or family that a request gets if it names none.
fn default_classes(config: &PoolConfig) -> Vec<Box<str>> {
    match &config.classes {
        Some(classes) => vec![classes.default_family().into()],
        None => policy_queries::default_classes(&config.policy),
    }
}

impl PoolHandle {
    /// Returns the settings in force.
    pub fn setup(&self) -> Guard<Arc<PoolSetup>> {
        self.setup.load()
    }

    /// Returns the number of times at which the scheduler's scores started again from 0.
    pub(crate) fn books_begun(&self) -> u64 {
        self.books_begun.load(Ordering::Acquire)
    }

    /// Returns true if any worker of the pool has a tier above 0.
    pub fn has_hosted_tier(&self) -> bool {
        self.setup.load().has_hosted_tier
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> PoolConfig {
        self.setup.load().config.clone()
    }

    /// Returns the state of the pool's upstreams, in the order of the configuration. An upstream with several workers,
    /// one for each model, is shown once.
    pub fn workers(&self) -> Vec<WorkerView> {
        let setup = self.setup.load();
        let same =
            |one: &Arc<PoolWorker>, next: &Arc<PoolWorker>| one.upstream.name == next.upstream.name;
        setup.workers.chunk_by(same).map(|workers| upstream_view(workers, &self.caches)).collect()
    }

    /// Returns the measured times and prices of each worker that has a meter. A worker with several
    /// names in the pool is returned once, with all its names.
    pub fn calibration(&self) -> Vec<WorkerCalibration> {
        let setup = self.setup.load();
        let serves = |model: &str| {
            let models = &setup.config.models;
            // The models of a pool of leases are not in its configuration.
            models.is_empty() || models.iter().any(|known| known.name == *model)
        };
        let mut metered: Vec<(String, &Arc<WorkerMeter>, u64)> = Vec::new();
        for worker in &setup.workers {
            let Some(meter) = &worker.meter else { continue };
            match metered.iter_mut().find(|(_, known, _)| Arc::ptr_eq(known, meter)) {
                Some((names, ..)) => names.extend([", ", &*worker.name]),
                None => metered.push((worker.name.to_string(), meter, worker.metered_slots.now())),
            }
        }
        let of = |(names, meter, slots): &(String, &Arc<WorkerMeter>, u64)| {
            let seen = meter.calibration(&self.name, names, *slots);
            let requests = seen.requests.into_iter().filter(|it| serves(&it.model)).collect();
            WorkerCalibration { requests, ..seen }
        };
        metered.iter().map(of).collect()
    }

    /// Returns true if the pool counts worker time and at least one of its workers has learned
    /// prices.
    pub(crate) fn learns_prices(&self) -> bool {
        let setup = self.setup.load();
        let mut meters = setup.workers.iter().filter_map(|worker| worker.meter.as_ref());
        setup.unit() == CostUnit::WorkerTime && meters.any(|meter| meter.stated().is_none())
    }

    /// Returns the number of queued requests for a model of the configuration.
    pub(super) fn queued_requests(&self, model: &str) -> LiveCount {
        self.queued.count(model)
    }
}

impl PoolWorker {
    /// Returns true if both workers have the same address, and therefore the same cache.
    pub(super) fn has_same_address(&self, other: &Self) -> bool {
        let (here, there) = (&self.upstream.config, &other.upstream.config);
        (&here.url, here.connect_to) == (&there.url, there.connect_to)
    }

    /// Returns true if the worker has a tier above 0, so that it is used only when no own worker has room.
    pub(crate) fn is_hosted_tier(&self) -> bool {
        self.upstream.config.tier > 0
    }

    /// Returns true if requests for this model may go to the worker.
    pub(crate) fn serves(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|known| **known == *model))
    }
}

/// Returns the view of an upstream. `workers` are its workers in one pool, at least one.
fn upstream_view(workers: &[Arc<PoolWorker>], caches: &WorkerCaches) -> WorkerView {
    let first = &workers[0];
    let Upstream { config, engine, condition, .. } = &*first.upstream;
    let (quota, models) = quota_views(workers);
    let recent = engine.snapshot();
    let overloaded = recent.overloaded.map(|why| why.to_string());
    let is_out = quota.as_ref().is_some_and(|quota| quota.out.is_some());
    let is_paused = quota.as_ref().is_some_and(|quota| quota.paused.is_some());
    let (state, reason) = match condition.standing() {
        _ if first.is_drained => ("drained", None),
        UpstreamStanding::Up if is_out => ("out", None),
        UpstreamStanding::Up if is_paused => ("paused", None),
        UpstreamStanding::Up if overloaded.is_some() => ("overloaded", overloaded),
        UpstreamStanding::Up => ("up", None),
        UpstreamStanding::Unhealthy => ("unhealthy", first.upstream.check_problem()),
        UpstreamStanding::Broken | UpstreamStanding::Trial => {
            ("broken", first.upstream.request_problem())
        }
    };
    let outage = condition.outage().filter(|_| matches!(state, "unhealthy" | "broken"));
    let address = match config.connect_to {
        _ if config.is_leased => "leases".to_owned(),
        Some(address) => address.to_string(),
        None => config.url.to_string(),
    };
    WorkerView {
        name: config.name.clone(),
        state,
        reason,
        outage,
        source: WorkerSource::of(config),
        address,
        in_flight: workers.iter().map(|worker| worker.in_flight.now()).sum(),
        slots: first.upstream.total_slots(),
        slots_reason: recent.slots_reason.clone(),
        engine: EngineView::of(&recent),
        cache: first.hits.view(first.expects_hits),
        cache_size: caches.cache_size(&first.upstream.name),
        tier: config.tier,
        quota,
        models,
    }
}

/// Returns the limits of an upstream as a whole; `None` if it uses no account. Also returns the limits of each model,
/// with the model's name, if the upstream has several workers.
fn quota_views(workers: &[Arc<PoolWorker>]) -> (Option<QuotaView>, Vec<(String, QuotaView)>) {
    let accounts = workers.iter().filter_map(|worker| worker.account.as_ref());
    let mut models: Vec<(String, QuotaView)> = accounts
        .map(|account| {
            let model = account.model.as_ref().map_or_else(String::new, ToString::to_string);
            (model, account.view())
        })
        .collect();
    if models.len() <= 1 {
        return (models.pop().map(|(_, quota)| quota), Vec::new());
    }
    let views = || models.iter().map(|(_, quota)| quota);
    let of_all = QuotaView {
        account: models[0].1.account.clone(),
        requests: None,
        tokens: None,
        // A model can be used as soon as its pause is over.
        paused: views().map(|quota| quota.paused).min().flatten(),
        asked: views().map(|quota| quota.asked).min().flatten(),
        out: views().all(|quota| quota.out.is_some()).then(|| models[0].1.out.clone()).flatten(),
    };
    (Some(of_all), models)
}
