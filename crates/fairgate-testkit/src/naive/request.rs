//! An accepted request, and the order of requests in a queue.

use std::cmp::{Ordering, Reverse};

use fairgate_core::event::Submit;
use fairgate_core::policy::QueueOrder;
use fairgate_core::units::Micros;

/// An accepted request. None of its fields changes while it is queued or in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaiveRequest {
    /// The submit as it was in the event.
    pub submit: Submit,
    /// Sequence number among the accepted submits, counted from 0.
    pub seq: u64,
    /// Time of the submit.
    pub at: Micros,
    /// Value of the pool's tick counter at the submit.
    pub tick: u64,
    /// Number of input tokens: the submit's `input`, else its `cost` as written, else 1.
    pub input: u64,
    /// Largest number of input tokens that any eligible worker had cached at the submit.
    pub cached: u64,
    /// Cost in tokens, at least 1.
    pub cost: u64,
    /// Time at which the request expires, in microseconds; `None` if it never expires.
    pub deadline: Option<u128>,
}

impl NaiveRequest {
    /// Returns the tokens that the request's grant takes from a token rate: "the request's `quota`
    /// (default: its cost)".
    pub(super) fn quota(&self) -> u64 {
        self.submit.quota.map_or(self.cost, |tokens| tokens.0)
    }

    /// Returns the number of the request's input tokens that a worker has cached, at most all of
    /// them.
    pub(super) fn cached_on(&self, worker: &str) -> u64 {
        cached_on(&self.submit, input_of(&self.submit), worker)
    }

    /// Compares two requests in the order of a queue. The lesser request is dispatched first.
    pub(super) fn compare(&self, other: &Self, order: QueueOrder) -> Ordering {
        // "Higher priority first; then `fcfs` by seq, `wspt` by cost, then seq, `edf` by deadline (none: after
        // all others), then seq."
        let key = |r: &Self| match order {
            QueueOrder::Fcfs => (Reverse(r.submit.priority), 0, r.seq),
            QueueOrder::Wspt => (Reverse(r.submit.priority), u128::from(r.cost), r.seq),
            QueueOrder::Edf => (Reverse(r.submit.priority), r.deadline.unwrap_or(u128::MAX), r.seq),
        };
        key(self).cmp(&key(other))
    }
}

/// Returns the input tokens of a submit: its `input`, else its `cost` as written, else 1.
pub(super) fn input_of(submit: &Submit) -> u64 {
    submit.input.or(submit.cost).map_or(1, |tokens| tokens.0)
}

/// Returns the number of a submit's tokens that one worker has cached, at most `input`.
pub(super) fn cached_on(submit: &Submit, input: u64, worker: &str) -> u64 {
    let stated = submit.cached.iter().find(|(name, _)| **name == *worker);
    stated.map_or(0, |(_, tokens)| tokens.0.min(input))
}
