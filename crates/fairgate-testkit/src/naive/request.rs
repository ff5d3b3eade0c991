//! A request and its place in a queue.

use std::cmp::{Ordering, Reverse};

use fairgate_core::event::Submit;
use fairgate_core::policy::Order;
use fairgate_core::units::Micros;

/// An accepted request. Nothing in it changes while it waits or is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What was submitted.
    pub submit: Submit,
    /// Its number among the accepted submits.
    pub seq: u64,
    /// When it was submitted.
    pub at: Micros,
    /// The pool's tick counter when it was submitted.
    pub tick: u64,
    /// Its input tokens.
    pub input: u64,
    /// The most of them that were cached on a worker eligible for it when it was submitted.
    pub cached: u64,
    /// Its cost in tokens, 1 or more.
    pub cost: u64,
}

impl Request {
    /// What its grant takes from a token rate: "the request's `quota` (default: its cost)".
    pub(super) fn quota(&self) -> u64 {
        self.submit.quota.map_or(self.cost, |tokens| tokens.0)
    }

    /// How many of its input tokens are cached on a worker: more than input counts as input.
    pub(super) fn cached_on(&self, worker: &str) -> u64 {
        cached_on(&self.submit, input_of(&self.submit), worker)
    }

    /// The order in which a queue of this kind dispatches: the lesser goes first.
    pub(super) fn compare(&self, other: &Self, order: Order) -> Ordering {
        // Higher priority first; then fcfs by seq, wspt by cost, then seq.
        let key = |r: &Self| match order {
            Order::Fcfs => (Reverse(r.submit.priority), 0, r.seq),
            Order::Wspt => (Reverse(r.submit.priority), r.cost, r.seq),
        };
        key(self).cmp(&key(other))
    }
}

/// `input`: by default `cost` as written, else 1.
pub(super) fn input_of(submit: &Submit) -> u64 {
    submit.input.or(submit.cost).map_or(1, |tokens| tokens.0)
}

/// `cached` on one worker, at most `input`.
pub(super) fn cached_on(submit: &Submit, input: u64, worker: &str) -> u64 {
    let stated = submit.cached.iter().find(|(name, _)| **name == *worker);
    stated.map_or(0, |(_, tokens)| tokens.0.min(input))
}
