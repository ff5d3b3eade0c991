//! A queue at the bottom of the tree. Requests of higher priority go first; at equal priority, `fcfs` orders by
//! arrival, `wspt` by cost and `edf` by deadline. A request that has waited `max_wait` is *late* and goes before all
//! others.
//!
//! Requests of a queue are linked in order of arrival. While all have the same priority, which is the usual case, an
//! `fcfs` queue needs no index, because its order is the order of arrival. The queue builds an index when a request of
//! a second priority arrives, and always has one for `wspt` and `edf`.
//!
//! With `max_wait`, the head is the oldest late request that has an open worker, if there is one. Requests become late
//! in order of arrival, so such a head is also the oldest of all requests with the same *want* (set of constraints on
//! workers). So only the oldest request of each want needs to be checked.

use core::cmp::Reverse;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use crate::policy::{self, BusyThresholds, QueueOrder};
use crate::requests::{PoolRequestState, RequestHandle, RequestTable, SubmitSeq, WaitingLinks};
use crate::units::Micros;

/// The sort key of a request in its queue: priority (higher first), then cost or deadline, then seq.
type QueueKey = (Reverse<i64>, u128, SubmitSeq);

const NONE: u32 = u32::MAX;

/// The waiting requests of one queue, in the order in which they would be dispatched.
#[derive(Clone, Debug)]
pub(crate) struct RequestQueue {
    order: QueueOrder,
    /// Number of the flow that contains the queue.
    pub(crate) flow: u32,
    first: u32,
    last: u32,
    len: u32,
    /// The priority that all requests of the queue have. Only valid while the queue has no index.
    priority: i64,
    index: Option<BTreeMap<QueueKey, RequestHandle>>,
    pub(crate) ageing: Option<Box<MaxWaitState>>,
    /// The thresholds at which a worker counts as busy for the requests of this queue.
    pub(crate) busy: BusyThresholds,
    /// The demands that the queue watches. The first is the demand of its head. The second is the demand of its oldest
    /// request, if a load node may dispatch that request because the flow is late. See [`crate::workers`].
    pub(crate) watched: [Option<u32>; 2],
    /// True if the queue's node watches the demand of the head in place of the queue; see [`crate::share`].
    pub(crate) is_grouped: bool,
}

/// Additional state of a queue with a longest wait (`max_wait`).
#[derive(Clone, Debug, Default)]
pub(crate) struct MaxWaitState {
    pub(crate) max_wait: Micros,
    /// The queue's requests by the number of their want, oldest first.
    pub(crate) by_want: BTreeMap<u32, BTreeSet<(SubmitSeq, RequestHandle)>>,
    /// The demands that the queue watches, by the number of the want.
    pub(crate) watched: BTreeMap<u32, u32>,
    /// The next time at which the oldest request of some want becomes late; `None` if there is no such time. The tree's
    /// timers have an entry for this time.
    pub(crate) due: Option<Micros>,
}

impl RequestQueue {
    pub(crate) fn new(policy: policy::QueuePolicy, busy: BusyThresholds, flow: u32) -> Self {
        let ageing =
            policy.max_wait.map(|max_wait| MaxWaitState { max_wait, ..MaxWaitState::default() });
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
            is_grouped: false,
        }
    }

    fn key(&self, request: &PoolRequestState) -> QueueKey {
        let rank = match self.order {
            QueueOrder::Fcfs => 0,
            QueueOrder::Wspt => request.cost.0.into(),
            QueueOrder::Edf => request.deadline(),
        };
        (Reverse(request.priority), rank, request.seq)
    }

    /// Appends a request to the order of arrival. Returns the handle of the request before it, and true if the caller
    /// must also call [`RequestQueue::file`]. Requests must be appended in the order of their seq.
    #[inline]
    pub(crate) fn append(
        &mut self,
        handle: RequestHandle,
        priority: i64,
        requests: &mut RequestTable,
    ) -> (u32, bool) {
        let last = core::mem::replace(&mut self.last, handle.0);
        match last {
            NONE => {
                self.first = handle.0;
                self.priority = priority;
            }
            last => requests.get_mut(RequestHandle(last)).queue_next = handle.0,
        }
        self.len += 1;
        let is_filed =
            self.keeps_more() || self.order != QueueOrder::Fcfs || self.priority != priority;
        (last, is_filed)
    }

    /// Returns true if the queue has an index or a longest wait, so that the order of arrival is not enough.
    #[inline]
    fn keeps_more(&self) -> bool {
        self.index.is_some() || self.ageing.is_some()
    }

    /// Appends a request that is already in the table. Requests must be appended in the order of their seq.
    pub(crate) fn push(&mut self, handle: RequestHandle, requests: &mut RequestTable) {
        let (last, is_filed) = self.append(handle, requests.get(handle).priority, requests);
        let request = requests.get_mut(handle);
        request.queue_prev = last;
        request.queue_next = NONE;
        if is_filed {
            self.file(handle, requests);
        }
    }

    /// Enters an appended request into the index if the queue keeps one, and into the list of its want if the queue has
    /// a longest wait.
    #[inline(never)]
    pub(crate) fn file(&mut self, handle: RequestHandle, requests: &RequestTable) {
        let request = requests.get(handle);
        if self.index.is_none()
            && (self.order != QueueOrder::Fcfs || self.priority != request.priority)
        {
            let entries = self.arrivals(requests).map(|h| (self.key(requests.get(h)), h));
            self.index = Some(entries.collect());
        } else if let Some(mut index) = self.index.take() {
            index.insert(self.key(request), handle);
            self.index = Some(index);
        }
        if let Some(ageing) = &mut self.ageing {
            ageing.by_want.entry(request.want).or_default().insert((request.seq, handle));
        }
    }

    /// Removes a request from the index and from the list of its want.
    #[inline(never)]
    fn unfile(&mut self, handle: RequestHandle, requests: &RequestTable) {
        let request = requests.get(handle);
        if let Some(mut index) = self.index.take() {
            index.remove(&self.key(request));
            self.index = (self.len > 1 || self.order != QueueOrder::Fcfs).then_some(index);
        }
        if let Some(ageing) = &mut self.ageing
            && let Some(equal) = ageing.by_want.get_mut(&request.want)
        {
            equal.remove(&(request.seq, handle));
            if equal.is_empty() {
                ageing.by_want.remove(&request.want);
            }
        }
    }

    /// Removes a request from the queue.
    #[inline]
    pub(crate) fn remove(
        &mut self,
        handle: RequestHandle,
        links: WaitingLinks,
        requests: &mut RequestTable,
    ) {
        let (prev, next) = (links.queue_prev, links.queue_next);
        if self.keeps_more() {
            self.unfile(handle, requests);
        }
        match prev {
            NONE => self.first = next,
            prev => requests.get_mut(RequestHandle(prev)).queue_next = next,
        }
        match next {
            NONE => self.last = prev,
            next => requests.get_mut(RequestHandle(next)).queue_prev = prev,
        }
        self.len -= 1;
    }

    /// Returns the requests in order of arrival.
    fn arrivals<'a>(
        &self,
        requests: &'a RequestTable,
    ) -> impl Iterator<Item = RequestHandle> + use<'a> {
        core::iter::successors(self.oldest(), |handle| {
            let next = requests.get(*handle).queue_next;
            (next != NONE).then_some(RequestHandle(next))
        })
    }

    /// Returns the request that has waited longest; `None` if the queue is empty.
    pub(crate) fn oldest(&self) -> Option<RequestHandle> {
        (self.first != NONE).then_some(RequestHandle(self.first))
    }

    /// Returns the first request in the queue's order, regardless of `max_wait`; `None` if the queue is empty.
    #[inline]
    pub(crate) fn head(&self) -> Option<RequestHandle> {
        match &self.index {
            Some(index) => first_of(index),
            None => self.oldest(),
        }
    }

    /// Returns true if the arrival or departure of this request may change the head that the queue reports, because the
    /// request is the head or may become late.
    #[inline]
    pub(crate) fn shows(&self, handle: RequestHandle) -> bool {
        self.ageing.is_some() || self.head() == Some(handle)
    }

    /// Returns the last request in the queue's order, which is the one that makes room when the pool's queue is full.
    pub(crate) fn last(&self) -> Option<RequestHandle> {
        match &self.index {
            Some(index) => index.last_key_value().map(|(_, handle)| *handle),
            None => (self.last != NONE).then_some(RequestHandle(self.last)),
        }
    }

    /// Returns true if a newcomer would come after every request that waits in this queue.
    pub(crate) fn would_be_last(
        &self,
        newcomer: &PoolRequestState,
        requests: &RequestTable,
    ) -> bool {
        let last = self.last().map(|last| self.key(requests.get(last)));
        last.is_none_or(|last| last < self.key(newcomer))
    }

    /// Returns the number of requests before this one in the queue's order.
    pub(crate) fn ahead_of(&self, handle: RequestHandle, requests: &RequestTable) -> usize {
        match &self.index {
            Some(index) => index.range(..self.key(requests.get(handle))).count(),
            None => self.arrivals(requests).take_while(|h| *h != handle).count(),
        }
    }

    /// Returns the oldest request that is late and has an open worker. Such a request goes before the queue's order.
    pub(crate) fn late(
        &self,
        now: Micros,
        requests: &RequestTable,
        is_open: impl Fn(u32) -> bool,
    ) -> Option<RequestHandle> {
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

/// Returns the first request of an index. This is a separate function so that the code for queues without an index
/// stays short.
#[inline(never)]
fn first_of(index: &BTreeMap<QueueKey, RequestHandle>) -> Option<RequestHandle> {
    index.first_key_value().map(|(_, handle)| *handle)
}

impl MaxWaitState {
    fn is_late(&self, request: &PoolRequestState, now: Micros) -> bool {
        now.0 - request.at.0 >= self.max_wait.0
    }

    /// Returns the next time at which the oldest request of a want becomes late; `None` if there is no such time.
    pub(crate) fn next_due(&self, now: Micros, requests: &RequestTable) -> Option<Micros> {
        let oldest = self.by_want.values().filter_map(BTreeSet::first);
        let due =
            oldest.map(|(_, handle)| requests.get(*handle).at.0.saturating_add(self.max_wait.0));
        due.filter(|due| *due > now.0).min().map(Micros)
    }
}
