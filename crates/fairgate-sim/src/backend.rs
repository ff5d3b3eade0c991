//! What all requests share: slots, cache, mischief and books.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, watch};

use crate::answer::Input;
use crate::ask::{Ask, Route};
use crate::connection::Phase;
use crate::fault::{Fault, Mischief};
use crate::options::SimOptions;
use crate::prefix_cache::PrefixCache;
use crate::prompt::CACHE_BLOCK_TOKENS;
use crate::stats::{Stats, Tally};

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) options: SimOptions,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) prefills: Semaphore,
    pub(crate) phase: watch::Sender<Phase>,
    cache: Mutex<PrefixCache>,
    mischief: Mutex<Mischief>,
    tally: Mutex<Tally>,
    healthy: AtomicBool,
    /// When it started, so that a revived backend does not give out the ids of the one before.
    born_ms: u128,
    answers: AtomicU64,
}

impl Backend {
    pub(crate) fn new(options: SimOptions) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(options.slots)),
            prefills: Semaphore::new(
                options.prefill_at_once.unwrap_or(options.slots).min(Semaphore::MAX_PERMITS),
            ),
            phase: watch::Sender::new(Phase::Running),
            cache: Mutex::new(PrefixCache::new(options.prefix_cache_blocks)),
            mischief: Mutex::default(),
            tally: Mutex::default(),
            healthy: AtomicBool::new(true),
            born_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |s| s.as_millis()),
            answers: AtomicU64::new(0),
            options,
        }
    }

    /// When it started, in milliseconds since 1970.
    pub(crate) fn born_ms(&self) -> u128 {
        self.born_ms
    }

    pub(crate) fn next_id(&self, route: Route) -> String {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        format!("{}sim{:x}x{number}", route.id_prefix(), self.born_ms)
    }

    /// The input of a request, which the cache now knows.
    pub(crate) fn input(&self, ask: &Ask) -> Input {
        let tokens = ask.input_tokens(&self.options);
        if self.options.prefix_cache_blocks == 0 {
            return Input { tokens, cached: None };
        }
        let mut cache = locked(&self.cache);
        let hits: usize = ask.prompts.iter().map(|prompt| cache.visit(&prompt.blocks)).sum();
        let cached = u64::try_from(hits).unwrap_or(u64::MAX).saturating_mul(CACHE_BLOCK_TOKENS);
        // The last token is always worked on: its answer is what is wanted.
        Input { tokens, cached: Some(cached.min(tokens.saturating_sub(1))) }
    }

    pub(crate) fn take_fault(&self) -> Option<Fault> {
        locked(&self.mischief).take()
    }

    pub(crate) fn set_mischief(&self, mischief: Mischief) {
        *locked(&self.mischief) = mischief;
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        locked(&self.tally)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.tally().stats()
    }

    pub(crate) fn healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::Relaxed);
    }

    pub(crate) fn running(&self) -> bool {
        *self.phase.borrow() == Phase::Running
    }

    /// Waits until the backend is told to end, which is when even a hanging request ends.
    pub(crate) async fn ending(&self) {
        let mut phase = self.phase.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
    }
}

/// A panic while a lock is held would be a bug; counts that are off by one are better than no counts.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
