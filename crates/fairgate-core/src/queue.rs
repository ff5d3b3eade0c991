//! A queue at the bottom of the tree: higher priority first, then `fcfs` by arrival or `wspt` by cost; and what has
//! waited too long before all of these.
//!
//! Requests of a queue are linked in order of arrival. While all have one priority, which is the usual case, that is the
//! order of an `fcfs` queue and nothing more is kept. An index by the queue's order is built when a second priority
//! comes, and for `wspt` always.
//!
//! With `max_wait`, the oldest of the requests that have waited that long and have an open place is the head. Requests
//! become late in order of arrival, so only the oldest of each *want* (what it demands of a worker) can be that one.

use core::cmp::Reverse;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use crate::policy::{self, BusyThresholds, Order};
use crate::requests::{Handle, Request, Requests, Seq};
use crate::units::Micros;

/// The place of a request in its queue.
type Key = (Reverse<i64>, u64, Seq);

const NONE: u32 = u32::MAX;

/// Requests in the order in which they would be dispatched.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    order: Order,
    /// The flow around it.
    pub(crate) flow: u32,
    first: u32,
    last: u32,
    len: u32,
    /// The priority of all requests, while there is no index.
    priority: i64,
    index: Option<BTreeMap<Key, Handle>>,
    pub(crate) ageing: Option<Box<Ageing>>,
    /// From when on a worker is busy for the requests of this queue.
    pub(crate) busy: BusyThresholds,
    /// The demand of its head that it watches, and that of its oldest request where a late flow may
    /// dispatch that one; see [`crate::workers`].
    pub(crate) watched: [Option<u32>; 2],
}

/// What a queue with a longest wait keeps besides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ageing {
    pub(crate) max_wait: Micros,
    /// The requests of each want, oldest first.
    pub(crate) by_want: BTreeMap<u32, BTreeSet<(Seq, Handle)>>,
    /// The demands that it watches, by want.
    pub(crate) watched: BTreeMap<u32, u32>,
    /// When the next oldest of a want becomes late, as it is entered among the pool's timers.
    pub(crate) due: Option<Micros>,
}

impl Queue {
    pub(crate) fn new(policy: policy::Queue, busy: BusyThresholds, flow: u32) -> Self {
        let ageing = policy.max_wait.map(|max_wait| Ageing { max_wait, ..Ageing::default() });
        Self {
            order: policy.order,
            flow,
            first: NONE,
            last: NONE,
            len: 0,
            priority: 0,
            index: None,
            ageing: ageing.map(Box::new),
            busy,
            watched: [None; 2],
        }
    }

    fn key(&self, request: &Request) -> Key {
        let cost = match self.order {
            Order::Fcfs => 0,
            Order::Wspt => request.cost.0,
        };
        (Reverse(request.priority), cost, request.seq)
    }

    /// Appends a request. Requests come in seq order.
    pub(crate) fn push(&mut self, handle: Handle, requests: &mut Requests) {
        let last = self.last;
        let request = requests.get_mut(handle);
        request.queue_prev = last;
        request.queue_next = NONE;
        let (priority, want, seq) = (request.priority, request.want, request.seq);
        match last {
            NONE => self.first = handle.0,
            last => requests.get_mut(Handle(last)).queue_next = handle.0,
        }
        self.last = handle.0;
        self.len += 1;
        if self.len == 1 {
            self.priority = priority;
        }
        if self.index.is_none() && (self.order == Order::Wspt || self.priority != priority) {
            let entries = self.arrivals(requests).map(|h| (self.key(requests.get(h)), h));
            self.index = Some(entries.collect());
        } else if let Some(mut index) = self.index.take() {
            index.insert(self.key(requests.get(handle)), handle);
            self.index = Some(index);
        }
        if let Some(ageing) = &mut self.ageing {
            ageing.by_want.entry(want).or_default().insert((seq, handle));
        }
    }

    /// Takes a request out.
    #[inline]
    pub(crate) fn remove(&mut self, handle: Handle, requests: &mut Requests) {
        let request = requests.get(handle);
        let (prev, next) = (request.queue_prev, request.queue_next);
        if let Some(mut index) = self.index.take() {
            index.remove(&self.key(request));
            self.index = (self.len > 1 || self.order == Order::Wspt).then_some(index);
        }
        if let Some(ageing) = &mut self.ageing
            && let Some(equal) = ageing.by_want.get_mut(&request.want)
        {
            equal.remove(&(request.seq, handle));
            if equal.is_empty() {
                ageing.by_want.remove(&request.want);
            }
        }
        match prev {
            NONE => self.first = next,
            prev => requests.get_mut(Handle(prev)).queue_next = next,
        }
        match next {
            NONE => self.last = prev,
            next => requests.get_mut(Handle(next)).queue_prev = prev,
        }
        self.len -= 1;
    }

    /// Its requests in order of arrival.
    fn arrivals<'a>(&self, requests: &'a Requests) -> impl Iterator<Item = Handle> + use<'a> {
        core::iter::successors(self.oldest(), |handle| {
            let next = requests.get(*handle).queue_next;
            (next != NONE).then_some(Handle(next))
        })
    }

    /// The request that has waited longest.
    pub(crate) fn oldest(&self) -> Option<Handle> {
        (self.first != NONE).then_some(Handle(self.first))
    }

    /// The first in its order.
    pub(crate) fn head(&self) -> Option<Handle> {
        match &self.index {
            Some(index) => index.first_key_value().map(|(_, handle)| *handle),
            None => self.oldest(),
        }
    }

    /// The last in its order: who makes room when the pool is full.
    pub(crate) fn last(&self) -> Option<Handle> {
        match &self.index {
            Some(index) => index.last_key_value().map(|(_, handle)| *handle),
            None => (self.last != NONE).then_some(Handle(self.last)),
        }
    }

    /// Whether a newcomer would stand behind everything that waits here.
    pub(crate) fn would_be_last(&self, newcomer: &Request, requests: &Requests) -> bool {
        let last = self.last().map(|last| self.key(requests.get(last)));
        last.is_none_or(|last| last < self.key(newcomer))
    }

    /// How many requests stand before this one.
    pub(crate) fn ahead_of(&self, handle: Handle, requests: &Requests) -> usize {
        match &self.index {
            Some(index) => index.range(..self.key(requests.get(handle))).count(),
            None => self.arrivals(requests).take_while(|h| *h != handle).count(),
        }
    }

    /// The oldest request that is late and has an open place: it goes before the queue's order.
    pub(crate) fn late(
        &self,
        now: Micros,
        requests: &Requests,
        is_open: impl Fn(u32) -> bool,
    ) -> Option<Handle> {
        let ageing = self.ageing.as_ref()?;
        let oldest =
            ageing.by_want.iter().filter_map(|(want, equal)| Some((*want, equal.first()?)));
        oldest
            .filter(|(_, (_, handle))| ageing.is_late(requests.get(*handle), now))
            .filter(|(want, _)| is_open(*want))
            .map(|(_, oldest)| *oldest)
            .min()
            .map(|(_, handle)| handle)
    }
}

impl Ageing {
    fn is_late(&self, request: &Request, now: Micros) -> bool {
        now.0 - request.at.0 >= self.max_wait.0
    }

    /// When the next request becomes late that could then be the head.
    pub(crate) fn next_due(&self, now: Micros, requests: &Requests) -> Option<Micros> {
        let oldest = self.by_want.values().filter_map(BTreeSet::first);
        let due =
            oldest.map(|(_, handle)| requests.get(*handle).at.0.saturating_add(self.max_wait.0));
        due.filter(|due| *due > now.0).min().map(Micros)
    }
}
