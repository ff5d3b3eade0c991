//! What the answers of a worker say of its cache, beside what was expected of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one worker in one pool. Only answers that say how much was cached are counted.
#[derive(Clone, Default)]
pub(crate) struct CacheHits(Arc<Counts>);

#[derive(Default)]
struct Counts {
    input: AtomicU64,
    cached: AtomicU64,
    expected: AtomicU64,
}

/// What the answers of a worker said of its cache, in tokens since the worker came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheView {
    /// Input tokens of the answers that said how many of these were cached.
    pub input: u64,
    /// How many of these were cached.
    pub cached: u64,
    /// How many the pool expected to be cached there when the requests came; none where it has neither an index of
    /// prefixes nor sticky sessions.
    pub expected: Option<u64>,
}

impl CacheHits {
    /// An answer said that so many of its input tokens were cached, where so many were expected.
    pub(crate) fn count(&self, input: u64, cached: u64, expected: u64) {
        let Counts { input: inputs, cached: hits, expected: expectations } = &*self.0;
        inputs.fetch_add(input, Ordering::Relaxed);
        hits.fetch_add(cached, Ordering::Relaxed);
        expectations.fetch_add(expected.min(input), Ordering::Relaxed);
    }

    /// What was counted so far. `None` where no answer has said anything.
    pub(super) fn view(&self, is_expected: bool) -> Option<CacheView> {
        let Counts { input, cached, expected } = &*self.0;
        let input = input.load(Ordering::Relaxed);
        (input > 0).then(|| CacheView {
            input,
            cached: cached.load(Ordering::Relaxed),
            expected: is_expected.then(|| expected.load(Ordering::Relaxed)),
        })
    }
}
