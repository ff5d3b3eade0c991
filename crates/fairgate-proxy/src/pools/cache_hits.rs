//! Counts the cached tokens that a worker's answers report, beside those that the pool expected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the input tokens and cached tokens of one worker in one pool. Only answers that report cached tokens are
/// counted.
#[derive(Clone, Default)]
pub(crate) struct CacheHits(Arc<CacheHitCounts>);

#[derive(Default)]
struct CacheHitCounts {
    input: AtomicU64,
    cached: AtomicU64,
    expected: AtomicU64,
}

/// Cached tokens that a worker's answers reported, since the worker was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheView {
    /// Input tokens of the answers that reported cached tokens.
    pub input: u64,
    /// Input tokens that the answers reported as cached.
    pub cached: u64,
    /// Input tokens that the pool expected to be cached when the requests arrived; `None` if the pool has neither a
    /// prefix index nor sticky sessions.
    pub expected: Option<u64>,
}

impl CacheHits {
    /// Counts an answer that reported `cached` of its `input` tokens as cached. The pool had
    /// expected `expected` tokens.
    pub(crate) fn count(&self, input: u64, cached: u64, expected: u64) {
        let CacheHitCounts { input: inputs, cached: hits, expected: expectations } = &*self.0;
        inputs.fetch_add(input, Ordering::Relaxed);
        hits.fetch_add(cached, Ordering::Relaxed);
        expectations.fetch_add(expected.min(input), Ordering::Relaxed);
    }

    /// Returns the counts so far; `None` if no answer has reported cached tokens.
    pub(super) fn view(&self, is_expected: bool) -> Option<CacheView> {
        let CacheHitCounts { input, cached, expected } = &*self.0;
        let input = input.load(Ordering::Relaxed);
        (input > 0).then(|| CacheView {
            input,
            cached: cached.load(Ordering::Relaxed),
            expected: is_expected.then(|| expected.load(Ordering::Relaxed)),
        })
    }
}
