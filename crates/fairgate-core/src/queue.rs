//! A queue at the bottom of the tree: higher priority first, then `fcfs` by arrival or `wspt` by cost.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use crate::policy::{BusyThresholds, Order};
use crate::requests::{Request, Seq, Slot};

/// The place of a request in its queue.
type Key = (Reverse<i64>, u64, Seq);

/// Requests in the order in which they would be dispatched.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    order: Order,
    entries: BTreeMap<Key, Slot>,
    /// From when on a worker is busy for the requests of this queue.
    pub(crate) busy: BusyThresholds,
    /// The flow around it.
    pub(crate) flow: u32,
    /// The demand of its head that it watches, and that of its oldest request where a late flow may
    /// dispatch that one; see [`crate::workers`].
    pub(crate) watched: [Option<u32>; 2],
}

impl Queue {
    pub(crate) fn new(order: Order, busy: BusyThresholds, flow: u32) -> Self {
        Self { order, entries: BTreeMap::new(), busy, flow, watched: [None; 2] }
    }

    fn key(&self, request: &Request) -> Key {
        let cost = match self.order {
            Order::Fcfs => 0,
            Order::Wspt => request.cost.0,
        };
        (Reverse(request.priority), cost, request.seq)
    }

    pub(crate) fn push(&mut self, slot: Slot, request: &Request) {
        self.entries.insert(self.key(request), slot);
    }

    pub(crate) fn remove(&mut self, request: &Request) {
        self.entries.remove(&self.key(request));
    }

    /// What it would dispatch next.
    pub(crate) fn head(&self) -> Option<Slot> {
        self.entries.first_key_value().map(|(_, slot)| *slot)
    }

    /// The last in its order: who makes room when the pool is full.
    pub(crate) fn last(&self) -> Option<Slot> {
        self.entries.last_key_value().map(|(_, slot)| *slot)
    }

    /// Whether a newcomer would stand behind everything that waits here.
    pub(crate) fn would_be_last(&self, newcomer: &Request) -> bool {
        self.entries.last_key_value().is_none_or(|(key, _)| *key < self.key(newcomer))
    }

    /// The requests that stand before this one.
    pub(crate) fn ahead_of(&self, request: &Request) -> impl Iterator<Item = Slot> + '_ {
        self.entries.range(..self.key(request)).map(|(_, slot)| *slot)
    }
}
