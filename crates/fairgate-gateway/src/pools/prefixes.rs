//! Which worker of a pool holds which prompt prefix in its cache: the shell around `fairgate-prefix`.
//!
//! It decides nothing. The core is told how many tokens of a request are cached on each worker, when the request is
//! submitted, and weighs that against load.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use fairgate_config::{PoolConfig, PrefixIndexConfig, PrefixScope};
use fairgate_core::units::Tokens;
use fairgate_dialect::{Ask, Piece, Route};
use fairgate_prefix::{Chain, ChainBuilder, Identity, Index, SecretKey};

use super::handle::Worker;
use super::sessions::Sessions;
use crate::upstream::EngineHook;

/// What a block may take of memory, in bytes: measured at most 80, as `cargo xtask bench prefix` shows.
const BLOCK_MEMORY_BYTES: u64 = 100;

/// The prefixes that the workers of a pool hold.
pub(crate) struct Prefixes {
    key: SecretKey,
    config: PrefixIndexConfig,
    known: Mutex<Known>,
}

struct Known {
    index: Index,
    workers: HashMap<Arc<str>, fairgate_prefix::Worker>,
    /// The size of a worker's cache where its metrics do not say, in tokens.
    cache_tokens: u64,
}

/// A request's prompt, and where it was cached when it came. Fixed while the request waits.
pub(crate) struct Prefix {
    chain: Chain,
    /// By worker, those left out that hold nothing.
    pub(crate) cached: Vec<(Arc<str>, Tokens)>,
}

impl Prefix {
    /// The most that is cached on any of these workers, in tokens.
    pub(crate) fn most_cached(&self, is_eligible: impl Fn(&str) -> bool) -> u64 {
        let eligible = self.cached.iter().filter(|(worker, _)| is_eligible(worker));
        eligible.map(|(_, tokens)| tokens.0).max().unwrap_or(0)
    }
}

/// That a prompt was sent to a worker.
pub(crate) struct SentPrompt {
    index: Arc<Prefixes>,
    route: fairgate_prefix::Route,
}

impl SentPrompt {
    /// The answer says how many of its input tokens had been cached.
    pub(crate) fn answered(&self, prefix: &Prefix, input_tokens: u64, cached_tokens: u64) {
        let index = &mut self.index.known().index;
        index.observed(&self.route, &prefix.chain, input_tokens, cached_tokens);
    }

    /// The worker did not answer it, or refused it.
    pub(crate) fn refused(&self, prefix: &Prefix) {
        self.index.known().index.refused(&self.route, &prefix.chain);
    }
}

/// What the workers' caches are believed to hold: by an index of prefixes, by sessions, or by nobody. A reload may switch
/// either on or off.
#[derive(Default)]
pub(crate) struct Caches {
    index: ArcSwapOption<Prefixes>,
    sessions: ArcSwapOption<Sessions>,
}

impl Caches {
    /// The index, where the pool has one.
    pub(crate) fn index(&self) -> Option<Arc<Prefixes>> {
        self.index.load_full()
    }

    /// Where sessions ran, where the pool has them stick to their workers.
    pub(crate) fn sessions(&self) -> Option<Arc<Sessions>> {
        self.sessions.load_full()
    }

    /// The worker has restarted, or cannot be reached: nothing is in its cache any more.
    pub(crate) fn forget(&self, worker: &str) {
        self.index().inspect(|index| index.forget(worker));
        self.sessions().inspect(|sessions| sessions.forget(worker));
    }

    /// From now on the pool is configured so and has these workers. An index that stays as it is keeps what it knows.
    pub(super) fn employ(&self, config: &PoolConfig, workers: &[Arc<Worker>]) {
        let PoolConfig { prefix_index, sticky_sessions, .. } = config;
        if self.index.load().as_ref().map(|index| index.config) != *prefix_index {
            self.index.store(prefix_index.map(|config| Arc::new(Prefixes::new(config))));
        }
        if self.sessions.load().is_some() != *sticky_sessions {
            self.sessions.store(sticky_sessions.then(Arc::default));
        }
        if let Some(index) = self.index() {
            index.employ(workers);
        }
        if let Some(sessions) = self.sessions() {
            sessions.employ(workers.iter().map(|worker| &worker.upstream.name));
        }
    }
}

impl EngineHook for Caches {
    fn restarted(&self, worker: &str) {
        self.forget(worker);
    }

    fn cache_holds(&self, worker: &str, tokens: u64) {
        self.index().inspect(|index| index.resize(worker, tokens));
    }
}

impl Prefixes {
    pub(super) fn new(config: PrefixIndexConfig) -> Self {
        let blocks = usize::try_from(config.memory_bytes_max / BLOCK_MEMORY_BYTES);
        let known = Known {
            index: Index::new(blocks.unwrap_or(usize::MAX)),
            workers: HashMap::new(),
            cache_tokens: config.cache_tokens,
        };
        Self { key: SecretKey::new(random()), config, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // What a panic left is at worst a wrong belief about a cache.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these are the pool's workers. What is known of those that stay is kept.
    fn employ(&self, workers: &[Arc<Worker>]) {
        let names: HashSet<&Arc<str>> = workers.iter().map(|it| &it.upstream.name).collect();
        let known = &mut *self.known();
        known.workers.retain(|name, worker| {
            let stays = names.contains(name);
            if !stays {
                known.index.remove(*worker);
            }
            stays
        });
        for Worker { upstream, .. } in workers.iter().map(|worker| &**worker) {
            let (index, default) = (&mut known.index, known.cache_tokens);
            known.workers.entry(upstream.name.clone()).or_insert_with(|| {
                // An engine tells the size of its cache only when that is news.
                let reading = upstream.engine.sight().reading;
                index.add(reading.and_then(|reading| reading.cache_tokens).unwrap_or(default))
            });
        }
    }

    /// The salt under which an engine keeps this tenant's prompts apart. `None` where all tenants share.
    /// `own` is what the client sent as its salt, as it stands in the body: it goes on keeping apart what it kept apart.
    pub(crate) fn salt(&self, tenant: &str, own: &[u8]) -> Option<String> {
        match self.config.scope {
            PrefixScope::Pool => None,
            PrefixScope::Tenant => {
                let mut hasher = blake3::Hasher::new();
                hasher.update(&(tenant.len() as u64).to_le_bytes());
                hasher.update(tenant.as_bytes()).update(own);
                Some(hasher.finalize().to_hex()[..32].to_owned())
            }
        }
    }

    /// Where the prompt of a request is cached. `None` where it has none that an engine would keep.
    pub(crate) fn look_up(
        &self,
        ask: &Ask,
        route: Route,
        body: &[u8],
        (tenant, model): (&str, &str),
        input_tokens: u64,
    ) -> Option<Box<Prefix>> {
        let salt = match self.config.scope {
            PrefixScope::Pool => "",
            PrefixScope::Tenant => tenant,
        };
        let mut builder = ChainBuilder::new(self.key, Identity { model, adapter: "", salt });
        let is_known = ask.prompt(route, body, |piece| match piece {
            Piece::Text(bytes) => builder.text(bytes),
            Piece::File { bytes, counted_bytes } => builder.file(bytes, counted_bytes),
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
        // The journal should not depend on the order of a hash map.
        cached.sort_unstable();
        Some(Box::new(Prefix { chain, cached }))
    }

    /// The prompt is sent to this worker. `None` where it is not the pool's any more.
    pub(crate) fn sent(self: Arc<Self>, worker: &str, prefix: &Prefix) -> Option<SentPrompt> {
        let mut known = self.known();
        let worker = *known.workers.get(worker)?;
        let route = known.index.routed(worker, &prefix.chain)?;
        drop(known);
        Some(SentPrompt { index: self, route })
    }

    /// The worker has restarted, or cannot be reached: its cache is empty when it is back.
    fn forget(&self, worker: &str) {
        let mut known = self.known();
        if let Some(worker) = known.workers.get(worker).copied() {
            known.index.forget(worker);
        }
    }

    /// The worker's own metrics say how many tokens its cache holds.
    fn resize(&self, worker: &str, cache_tokens: u64) {
        let mut known = self.known();
        if let Some(worker) = known.workers.get(worker).copied() {
            known.index.resize(worker, cache_tokens);
        }
    }
}

/// A key that no client can know: the standard library's hashers have secret keys of the system's.
fn random() -> [u8; 16] {
    let half = |number: u8| RandomState::new().hash_one(number);
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_le_bytes()
}
