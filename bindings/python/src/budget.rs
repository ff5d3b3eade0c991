//! What one agent may spend, in tokens: reserved when it asks, settled when its request ends.
//!
//! spent + reserved ≤ limit holds whenever a request is let through, so that any number of concurrent requests
//! together stay within the limit as far as their estimates are true. A request that used more than its estimate
//! is charged what it used, and the next ones find less left.

use std::collections::VecDeque;

use crate::desk::Number;

/// A budget of tokens.
#[derive(Debug)]
pub(crate) struct Budget {
    /// How much may be spent in all.
    pub(crate) limit: u64,
    /// What ended requests used.
    pub(crate) spent: u64,
    /// The estimates of requests that wait for a slot or hold one.
    pub(crate) reserved: u64,
    /// Whether a request that does not fit waits, or is refused.
    pub(crate) waits: bool,
    /// The requests that wait until they fit, first come first.
    pub(crate) parked: VecDeque<Number>,
}

impl Budget {
    pub(crate) fn new(limit: u64, waits: bool) -> Self {
        Self { limit, spent: 0, reserved: 0, waits, parked: VecDeque::new() }
    }

    /// What is neither spent nor reserved.
    pub(crate) fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent).saturating_sub(self.reserved)
    }

    /// Reserves an estimate where it fits and nobody waits before it.
    pub(crate) fn reserve(&mut self, cost: u64) -> bool {
        let fits = self.parked.is_empty() && cost <= self.left();
        if fits {
            self.reserved += cost;
        }
        fits
    }

    /// The first who waits, if it fits now; its estimate is then reserved.
    pub(crate) fn admit(&mut self, cost_of: impl Fn(Number) -> u64) -> Option<Number> {
        let first = *self.parked.front()?;
        let cost = cost_of(first);
        if cost > self.left() {
            return None;
        }
        self.parked.pop_front();
        self.reserved += cost;
        Some(first)
    }

    /// A request left without having run.
    pub(crate) fn unreserve(&mut self, cost: u64) {
        self.reserved = self.reserved.saturating_sub(cost);
    }

    /// A request ended and used this much.
    pub(crate) fn settle(&mut self, cost: u64, used: u64) {
        self.unreserve(cost);
        self.spent = self.spent.saturating_add(used);
    }

    /// Forgets what is reserved and who waits, as after a fork.
    pub(crate) fn forget_requests(&mut self) {
        self.reserved = 0;
        self.parked.clear();
    }
}
