//! Connects the prefix index of `fairgate-prefix` to a pool. The index knows the prompt prefixes
//! that each worker of the pool has cached.
//!
//! The index makes no decisions. With each submit, the core gets the number of the request's tokens
//! that each worker has cached, and weighs these numbers against the load.
//!
//! The cached tokens are an assumption that is fixed at the submit. They are looked up once, with
//! the cost and the class that follow from them, and are in the journal. The cached tokens that the
//! answer reports settle the request and correct the index. If a worker cannot be reached, or its
//! metrics show that its process has changed, its cache is assumed to be empty.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use fairgate_config::{PoolConfig, PrefixIndexConfig, PrefixScope};
use fairgate_core::units::Tokens;
use fairgate_dialect::{PromptPiece, RequestFields, Route};
use fairgate_prefix::{
    CacheIdentity, CacheReport, PrefixIndex, PromptChain, PromptChainBuilder, SecretKey,
};

use super::handle::PoolWorker;
use super::sessions::StickySessions;
use crate::upstream::EngineHook;

/// Assumed memory of one block, in bytes; `cargo xtask bench prefix` measures at most 80.
const BLOCK_MEMORY_BYTES: u64 = 100;

/// Index of the prefixes that the workers of a pool have cached.
pub(crate) struct PoolPrefixIndex {
    key: SecretKey,
    /// Random seed of the hashes by which the index divides tenants into cohorts. The cache reports
    /// of a cohort are counted together. Because of the seed, no tenant can choose its cohort.
    origins: RandomState,
    config: PrefixIndexConfig,
    known: Mutex<PrefixIndexState>,
}

struct PrefixIndexState {
    index: PrefixIndex,
    workers: HashMap<Arc<str>, fairgate_prefix::PrefixWorker>,
    /// Size of a worker's cache in tokens, if the worker's metrics do not state the size.
    cache_tokens: u64,
}

/// Size of a worker's cache in tokens, both as stated and as learned. The index uses the smaller number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizeView {
    /// Size that the engine's metrics state, or `cache_tokens` of the configuration if they state none.
    pub believed: u64,
    /// Size that follows from the cached tokens that the worker's answers report; `None` unless it is smaller than
    /// `believed`.
    pub learned: Option<u64>,
}

/// A request's prompt, and the workers that had cached it when the request arrived. The value does not change while the
/// request is queued.
pub(crate) struct RequestPrefix {
    chain: PromptChain,
    /// Hash of the tenant's name.
    origin: u64,
    /// Cached tokens by worker; workers without cached tokens are left out.
    pub(crate) cached: Vec<(Arc<str>, Tokens)>,
}

impl RequestPrefix {
    /// Returns the most tokens cached on any of the eligible workers.
    pub(crate) fn most_cached(&self, is_eligible: impl Fn(&str) -> bool) -> u64 {
        let eligible = self.cached.iter().filter(|(worker, _)| is_eligible(worker));
        eligible.map(|(_, tokens)| tokens.0).max().unwrap_or(0)
    }
}

/// A prompt that was sent to a worker.
pub(crate) struct SentPrompt {
    index: Arc<PoolPrefixIndex>,
    route: fairgate_prefix::PrefixRoute,
}

impl SentPrompt {
    /// Records the cached input tokens that the answer reported.
    pub(crate) fn answered(&self, prefix: &RequestPrefix, input_tokens: u64, cached_tokens: u64) {
        let report = CacheReport { input_tokens, cached_tokens, origin: prefix.origin };
        self.index.known().index.observed(&self.route, &prefix.chain, report);
    }

    /// Records that the worker did not answer, or refused the request.
    pub(crate) fn refused(&self, prefix: &RequestPrefix) {
        self.index.known().index.refused(&self.route, &prefix.chain);
    }
}

/// Assumptions about the workers' caches, from a prefix index or from sticky sessions; the pool may
/// have neither. A reload may switch the index and the sessions on or off.
#[derive(Default)]
pub(crate) struct WorkerCaches {
    index: ArcSwapOption<PoolPrefixIndex>,
    sessions: ArcSwapOption<StickySessions>,
}

impl WorkerCaches {
    /// Returns the prefix index, if the pool has one.
    pub(crate) fn index(&self) -> Option<Arc<PoolPrefixIndex>> {
        self.index.load_full()
    }

    /// Returns the session index, if the pool has sticky sessions.
    pub(crate) fn sessions(&self) -> Option<Arc<StickySessions>> {
        self.sessions.load_full()
    }

    /// Returns the assumed cache size of a worker, if the pool has a prefix index.
    pub(super) fn cache_size(&self, worker: &str) -> Option<CacheSizeView> {
        self.index()?.cache_size(worker)
    }

    /// Forgets the cache of a worker that has restarted or cannot be reached.
    pub(crate) fn forget(&self, worker: &str) {
        self.index().inspect(|index| index.forget(worker));
        self.sessions().inspect(|sessions| sessions.forget(worker));
    }

    /// Applies the pool's configuration and workers. An index whose configuration is unchanged keeps its contents.
    pub(super) fn set_workers(&self, config: &PoolConfig, workers: &[Arc<PoolWorker>]) {
        let PoolConfig { prefix_index, sticky_sessions, .. } = config;
        if self.index.load().as_ref().map(|index| index.config) != *prefix_index {
            self.index.store(prefix_index.map(|config| Arc::new(PoolPrefixIndex::new(config))));
        }
        if self.sessions.load().is_some() != *sticky_sessions {
            self.sessions.store(sticky_sessions.then(Arc::default));
        }
        if let Some(index) = self.index() {
            index.set_workers(workers);
        }
        if let Some(sessions) = self.sessions() {
            sessions.set_workers(workers.iter().map(|worker| &worker.upstream.name));
        }
    }
}

impl EngineHook for WorkerCaches {
    fn restarted(&self, worker: &str) {
        self.forget(worker);
    }

    fn cache_holds(&self, worker: &str, tokens: u64) {
        self.index().inspect(|index| index.resize(worker, tokens));
    }
}

impl PoolPrefixIndex {
    pub(super) fn new(config: PrefixIndexConfig) -> Self {
        let blocks = usize::try_from(config.memory_bytes_max / BLOCK_MEMORY_BYTES);
        let known = PrefixIndexState {
            index: PrefixIndex::new(blocks.unwrap_or(usize::MAX)),
            workers: HashMap::new(),
            cache_tokens: config.cache_tokens,
        };
        let (key, origins) = (SecretKey::new(random()), RandomState::new());
        Self { key, origins, config, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, PrefixIndexState> {
        // A panic can leave a wrong assumption about a cache, but no worse damage.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pool's workers. The index keeps its entries for the workers that stay.
    fn set_workers(&self, workers: &[Arc<PoolWorker>]) {
        let names: HashSet<&Arc<str>> = workers.iter().map(|it| &it.upstream.name).collect();
        let known = &mut *self.known();
        known.workers.retain(|name, worker| {
            let stays = names.contains(name);
            if !stays {
                known.index.remove(*worker);
            }
            stays
        });
        for PoolWorker { upstream, .. } in workers.iter().map(|worker| &**worker) {
            let (index, default) = (&mut known.index, known.cache_tokens);
            known.workers.entry(upstream.name.clone()).or_insert_with(|| {
                // An engine reports the size of its cache only when it changes.
                let reading = upstream.engine.snapshot().reading;
                index.add(reading.and_then(|reading| reading.cache_tokens).unwrap_or(default))
            });
        }
    }

    /// Returns whether all tenants of the pool share cached prompts, or each tenant has its own.
    pub(crate) fn scope(&self) -> PrefixScope {
        self.config.scope
    }

    /// Returns the prompt of a request, with the number of its tokens that each worker has cached. `None` if the
    /// request has no prompt that an engine would cache.
    pub(crate) fn look_up(
        &self,
        ask: &RequestFields,
        route: Route,
        body: &[u8],
        (tenant, model): (&str, &str),
        input_tokens: u64,
    ) -> Option<Box<RequestPrefix>> {
        let salt = match self.config.scope {
            PrefixScope::Pool => "",
            PrefixScope::Tenant => tenant,
        };
        let mut builder =
            PromptChainBuilder::new(self.key, CacheIdentity { model, adapter: "", salt });
        let is_known = ask.prompt(route, body, |piece| match piece {
            PromptPiece::Text(bytes) => builder.text(bytes),
            PromptPiece::File { bytes, counted_bytes } => builder.file(bytes, counted_bytes),
        });
        if !is_known {
            return None;
        }
        let chain = builder.finish(input_tokens);
        let known = self.known();
        let overlap = known.index.overlap(&chain);
        let cached = known.workers.iter().filter_map(|(name, worker)| {
            let tokens = overlap.tokens(*worker);
            (tokens > 0).then(|| (name.clone(), Tokens(tokens)))
        });
        let mut cached: Vec<(Arc<str>, Tokens)> = cached.collect();
        drop(known);
        // Sorted, so that the journal does not depend on the order of a hash map.
        cached.sort_unstable();
        Some(Box::new(RequestPrefix { chain, origin: self.origins.hash_one(tenant), cached }))
    }

    /// Records that the prompt is sent to this worker. Returns `None` if the worker has left the pool.
    pub(crate) fn sent(
        self: Arc<Self>,
        worker: &str,
        prefix: &RequestPrefix,
    ) -> Option<SentPrompt> {
        let mut known = self.known();
        let worker = *known.workers.get(worker)?;
        let route = known.index.routed(worker, &prefix.chain)?;
        drop(known);
        Some(SentPrompt { index: self, route })
    }

    /// Forgets the cache of a worker that has restarted or cannot be reached.
    fn forget(&self, worker: &str) {
        let mut known = self.known();
        if let Some(worker) = known.workers.get(worker).copied() {
            known.index.forget(worker);
        }
    }

    fn cache_size(&self, worker: &str) -> Option<CacheSizeView> {
        let known = self.known();
        let worker = *known.workers.get(worker)?;
        let believed = known.index.stated_cache_tokens(worker)?;
        Some(CacheSizeView { believed, learned: known.index.learned_cache_tokens(worker) })
    }

    /// Sets the cache size that the worker's own metrics state, in tokens.
    fn resize(&self, worker: &str, cache_tokens: u64) {
        let mut known = self.known();
        if let Some(worker) = known.workers.get(worker).copied() {
            known.index.resize(worker, cache_tokens);
        }
    }
}

/// Returns a random key that no client can know. The randomness comes from the standard library's hashers, which the
/// system seeds.
fn random() -> [u8; 16] {
    let half = |number: u8| RandomState::new().hash_one(number);
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_le_bytes()
}
