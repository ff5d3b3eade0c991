//! The state that all requests of one backend share, such as slots, prefix cache, faults and counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_time::wall_clock;
use tokio::sync::{Semaphore, watch};

use crate::answer::InputTokens;
use crate::connection::SimPhase;
use crate::fault::{InjectedFaults, SimFault};
use crate::options::SimOptions;
use crate::prefix_cache::PrefixCache;
use crate::prompt::CACHE_BLOCK_TOKENS;
use crate::request::SimRequest;
use crate::route::SimRoute;
use crate::stats::{SimStats, StatsRecorder};

#[derive(Debug)]
pub(crate) struct BackendState {
    pub(crate) options: SimOptions,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) prefills: Semaphore,
    pub(crate) phase: watch::Sender<SimPhase>,
    cache: Mutex<PrefixCache>,
    injected_faults: Mutex<InjectedFaults>,
    tally: Mutex<StatsRecorder>,
    healthy: AtomicBool,
    /// Start time of the backend in milliseconds since 1970. The start time is part of the answers' ids, so that a
    /// restarted backend does not repeat an id.
    born_ms: u128,
    answers: AtomicU64,
}

impl BackendState {
    pub(crate) fn new(options: SimOptions) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(options.slots)),
            prefills: Semaphore::new(
                options.prefill_at_once.unwrap_or(options.slots).min(Semaphore::MAX_PERMITS),
            ),
            phase: watch::Sender::new(SimPhase::Running),
            cache: Mutex::new(PrefixCache::new(options.prefix_cache_blocks)),
            injected_faults: Mutex::default(),
            tally: Mutex::default(),
            healthy: AtomicBool::new(true),
            born_ms: wall_clock::since_1970().as_millis(),
            answers: AtomicU64::new(0),
            options,
        }
    }

    /// Returns the start time of the backend in milliseconds since 1970.
    pub(crate) fn born_ms(&self) -> u128 {
        self.born_ms
    }

    pub(crate) fn next_id(&self, route: SimRoute) -> String {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        format!("{}sim{:x}x{number}", route.id_prefix(), self.born_ms)
    }

    /// Returns the number of input tokens of a request, and adds the request's prompts to the prefix cache.
    pub(crate) fn input(&self, request: &SimRequest) -> InputTokens {
        let tokens = request.input_tokens(&self.options);
        if self.options.prefix_cache_blocks == 0 {
            return InputTokens { tokens, cached: None };
        }
        let mut cache = locked(&self.cache);
        let hits: usize = request.prompts.iter().map(|prompt| cache.visit(&prompt.blocks)).sum();
        let cached = u64::try_from(hits).unwrap_or(u64::MAX).saturating_mul(CACHE_BLOCK_TOKENS);
        // The last token is never cached: the first output token is computed from it.
        InputTokens { tokens, cached: Some(cached.min(tokens.saturating_sub(1))) }
    }

    pub(crate) fn take_fault(&self) -> Option<SimFault> {
        locked(&self.injected_faults).take()
    }

    pub(crate) fn set_injected_faults(&self, mischief: InjectedFaults) {
        *locked(&self.injected_faults) = mischief;
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, StatsRecorder> {
        locked(&self.tally)
    }

    pub(crate) fn stats(&self) -> SimStats {
        self.tally().stats()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::Relaxed);
    }

    pub(crate) fn is_running(&self) -> bool {
        *self.phase.borrow() == SimPhase::Running
    }

    /// Waits until the backend is stopping or killed, because requests that hang by a fault end at that moment.
    pub(crate) async fn wait_ending(&self) {
        let mut phase = self.phase.subscribe();
        // The sender is a field of `self`, so it exists and this cannot fail.
        let _ = phase.wait_for(|phase| *phase != SimPhase::Running).await;
    }
}

/// Locks a mutex. Ignores poisoning, because counts that are off by one after a panic are better than none.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
