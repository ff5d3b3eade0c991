//! All requests of a pool that wait or are in flight. The requests are stored in a slab under their handles, and the
//! waiting ones are linked in order of arrival.
//!
//! The slab grows without copying, so a million waiting requests cost their own size and no more. Data that only a
//! request in flight has is in a separate list, whose entries are reused, so that a grant allocates nothing.
//!
//! Handles are the lowest free numbers, given in the order of events, so every replica of a log gives the same ones.
//! Callers can keep their own data about a request in a list, indexed by its handle. Requests whose own timeout is
//! shorter than the pool's are in a separate index, ordered by deadline.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::rate::TakenQuota;
use crate::slab::Slab;
use crate::units::{Micros, TaskWeight, Ticks, Tokens};

/// The number of a request while it waits or is in flight. A request gets the lowest handle that is free when it is
/// accepted.
///
/// Handles are assigned in the order of events, so every replica of a log assigns the same handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestHandle(pub(crate) u32);

impl RequestHandle {
    /// Returns the handle as an index, under which callers may keep their own data of the request in a list.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The position of a request in the order of accepted submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubmitSeq(pub(crate) u64);

const NONE: u32 = u32::MAX;

/// A request that waits or is in flight.
#[derive(Clone, Debug)]
pub(crate) struct PoolRequestState {
    pub(crate) seq: SubmitSeq,
    /// Time of the submit.
    pub(crate) at: Micros,
    pub(crate) tick: Ticks,
    pub(crate) cost: Tokens,
    pub(crate) input: Tokens,
    /// The greatest number of the request's input tokens that were cached on one eligible worker at the submit.
    pub(crate) cached_best: Tokens,
    /// Tokens that the request's grant takes from the worker's token rate.
    pub(crate) quota: Tokens,
    pub(crate) priority: i64,
    /// Longest time the request may wait, which is the lesser of its own timeout and the pool's; no limit if absent.
    pub(crate) timeout: Option<Micros>,
    /// Cached input tokens of the request by worker, sorted by worker name; `None` if the submit named none.
    pub(crate) cached: Option<Box<CachedAt>>,
    pub(crate) weight: TaskWeight,
    /// The queue in which the request waits, or from which it was dispatched.
    pub(crate) queue: u32,
    /// Number of the request's want, which is the set of its constraints on workers; equal wants share a number.
    pub(crate) want: u32,
    /// Handle of the request before this one in the pool's waiting list; `u32::MAX` if there is none.
    prev: u32,
    next: u32,
    /// Handle of the request before this one in its queue, in order of arrival; `u32::MAX` if there is none. See
    /// [`crate::queue`].
    pub(crate) queue_prev: u32,
    pub(crate) queue_next: u32,
    flight: u32,
}

/// The queue of a waiting request, with its neighbours in that queue and in the pool's waiting list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingLinks {
    pub(crate) queue: u32,
    prev: u32,
    next: u32,
    pub(crate) queue_prev: u32,
    pub(crate) queue_next: u32,
}

/// Cached input tokens of a request by worker name, sorted by name.
pub(crate) type CachedAt = Vec<(Arc<str>, Tokens)>;

/// Reads the cached tokens of one request for many workers. Callers usually look up workers in the order of their
/// names. Then the next worker's tokens are the next entry of the list, and no search is needed.
pub(crate) struct CachedTokensReader<'a> {
    cached: &'a [(Arc<str>, Tokens)],
    next: usize,
    input: Tokens,
}

impl CachedTokensReader<'_> {
    pub(crate) fn on(&mut self, worker: &str) -> Tokens {
        let is_next = self.cached.get(self.next).is_some_and(|(name, _)| **name == *worker);
        let place = match is_next {
            true => Ok(self.next),
            false => self.cached.binary_search_by(|(name, _)| (**name).cmp(worker)),
        };
        let Ok(place) = place else { return Tokens(0) };
        self.next = place + 1;
        self.cached[place].1.min(self.input)
    }
}

/// The data that a request has from its grant to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlightState {
    pub(crate) granted_at: Micros,
    /// Sequence number of the grant among all grants of the pool, counted from 0.
    pub(crate) number: u64,
    /// Generations of the flows on the request's path, innermost first, as the charges at the grant returned them.
    pub(crate) generations: Vec<u64>,
    /// True if the present policy tree granted the request. If the tree was replaced since, no flow is charged when the
    /// request ends.
    pub(crate) charged: bool,
    pub(crate) place: Option<crate::workers::WorkerRank>,
    /// Prefill tokens of the request that its rank still counts as load.
    pub(crate) prefill: Tokens,
    /// The amount that the request's grant took from the worker's token rate; `None` if the worker has no such rate.
    pub(crate) taken: Option<TakenQuota>,
}

impl PoolRequestState {
    /// Creates a request as it arrives. The request is in no queue or list yet.
    pub(crate) fn new(seq: SubmitSeq, at: Micros, tick: Ticks) -> Self {
        Self {
            seq,
            at,
            tick,
            cost: Tokens(1),
            input: Tokens(1),
            cached_best: Tokens(0),
            quota: Tokens(1),
            priority: 0,
            timeout: None,
            cached: None,
            weight: TaskWeight::ONE,
            queue: 0,
            want: 0,
            prev: NONE,
            next: NONE,
            queue_prev: NONE,
            queue_next: NONE,
            flight: NONE,
        }
    }

    /// Returns the number of this request's input tokens that are cached on a worker.
    pub(crate) fn cached_on(&self, worker: &str) -> Tokens {
        self.cached_in_turn().on(worker)
    }

    /// Returns a reader of this request's cached tokens, for many workers one after another.
    pub(crate) fn cached_in_turn(&self) -> CachedTokensReader<'_> {
        let cached = self.cached.as_ref().map_or(&[][..], |cached| cached);
        CachedTokensReader { cached, next: 0, input: self.input }
    }

    /// Returns the time at which this request expires, in 128 bits so that the sum of two times fits; [`NO_DEADLINE`]
    /// if the request has no timeout.
    pub(crate) fn deadline(&self) -> u128 {
        match self.timeout {
            Some(timeout) => u128::from(self.at.0) + u128::from(timeout.0),
            None => NO_DEADLINE,
        }
    }

    /// Returns the queue and the neighbours of this request while it waits.
    #[inline]
    pub(crate) fn links(&self) -> WaitingLinks {
        let Self { queue, prev, next, queue_prev, queue_next, .. } = *self;
        WaitingLinks { queue, prev, next, queue_prev, queue_next }
    }

    /// Returns true if the request was granted and has not ended.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.flight != NONE
    }
}

/// The deadline of a request without a timeout, which is later than every other deadline.
pub(crate) const NO_DEADLINE: u128 = u128::MAX;

/// The requests of a pool.
#[derive(Clone, Debug)]
pub(crate) struct RequestTable {
    slab: Slab<PoolRequestState>,
    free: FreeHandles,
    /// Number of handles that exist, in use or free. All handles are below this number.
    handles: u32,
    flights: Vec<InFlightState>,
    free_flights: Vec<u32>,
    first_waiting: u32,
    last_waiting: u32,
    waiting: u64,
    in_flight: u64,
    /// The waiting requests whose own timeout is shorter than the pool's, ordered by deadline. Requests with the pool's
    /// timeout expire in order of arrival, so the waiting list is enough for them.
    deadlines: BTreeSet<(u128, RequestHandle)>,
}

impl RequestTable {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::default(),
            free: FreeHandles::default(),
            handles: 0,
            flights: Vec::new(),
            free_flights: Vec::new(),
            first_waiting: NONE,
            last_waiting: NONE,
            waiting: 0,
            in_flight: 0,
            deadlines: BTreeSet::new(),
        }
    }

    /// Returns the number of requests that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Takes the lowest free handle, for a request that is about to be added.
    #[inline]
    pub(crate) fn next_handle(&mut self) -> RequestHandle {
        RequestHandle(self.free.take_lowest().unwrap_or_else(|| self.grow()))
    }

    /// Adds a request at the end of the waiting list. Requests must be added in the order of their seq.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        handle: RequestHandle,
        mut request: PoolRequestState,
    ) -> &PoolRequestState {
        request.prev = self.append(handle.0);
        request.next = NONE;
        self.slab.put(handle.0, request)
    }

    /// Adds a request from a snapshot under the handle that it had. The request neither waits nor is in flight yet.
    /// Returns false if another request has this handle.
    pub(crate) fn insert_at(&mut self, handle: RequestHandle, request: PoolRequestState) -> bool {
        while self.handles <= handle.0 {
            let new = self.grow();
            self.free.put(new);
        }
        let free = self.free.take(handle.0);
        if free {
            self.slab.put(handle.0, request);
        }
        free
    }

    fn grow(&mut self) -> u32 {
        self.handles = self.handles.checked_add(1).expect("fewer than 2^32 requests at once");
        self.handles - 1
    }

    /// Forgets a request that neither waits nor is in flight any more.
    #[inline]
    pub(crate) fn remove(&mut self, handle: RequestHandle) {
        self.slab.clear(handle.0);
        self.free.put(handle.0);
    }

    /// Returns true if a request has this handle.
    pub(crate) fn is_live(&self, handle: RequestHandle) -> bool {
        self.find(handle).is_some()
    }

    /// Returns the request that has this handle; `None` if there is none.
    pub(crate) fn find(&self, handle: RequestHandle) -> Option<&PoolRequestState> {
        self.slab.get(handle.0)
    }

    pub(crate) fn get(&self, handle: RequestHandle) -> &PoolRequestState {
        self.slab.get(handle.0).expect("a live handle")
    }

    pub(crate) fn get_mut(&mut self, handle: RequestHandle) -> &mut PoolRequestState {
        self.slab.get_mut(handle.0).expect("a live handle")
    }

    /// Returns the grant data of a request; `None` if the request is not in flight.
    pub(crate) fn flight(&self, handle: RequestHandle) -> Option<&InFlightState> {
        self.flight_of(self.get(handle))
    }

    /// Returns the grant data of a request that the caller has found before; `None` if the request is not in flight.
    pub(crate) fn flight_of(&self, request: &PoolRequestState) -> Option<&InFlightState> {
        self.flights.get(request.flight as usize)
    }

    pub(crate) fn flight_mut(&mut self, handle: RequestHandle) -> Option<&mut InFlightState> {
        let flight = self.get(handle).flight;
        self.flights.get_mut(flight as usize)
    }

    /// Appends a request to the waiting list. Requests must be appended in the order of their seq.
    pub(crate) fn start_waiting(&mut self, handle: RequestHandle) {
        let prev = self.append(handle.0);
        let request = self.get_mut(handle);
        request.prev = prev;
        request.next = NONE;
    }

    /// Makes a handle the last of the waiting list. Returns the handle that was last before.
    fn append(&mut self, handle: u32) -> u32 {
        let last = core::mem::replace(&mut self.last_waiting, handle);
        match last {
            NONE => self.first_waiting = handle,
            last => self.get_mut(RequestHandle(last)).next = handle,
        }
        self.waiting += 1;
        last
    }

    /// Removes a request from the waiting list.
    pub(crate) fn stop_waiting(&mut self, handle: RequestHandle) {
        self.unlink(handle, self.get(handle).links());
    }

    /// Removes a request from the waiting list. The caller passes the links of the request, which then need not be
    /// looked up.
    #[inline]
    pub(crate) fn unlink(&mut self, handle: RequestHandle, links: WaitingLinks) {
        let WaitingLinks { prev, next, .. } = links;
        if self.has_deadlines() {
            self.forget_deadline(handle);
        }
        match prev {
            NONE => self.first_waiting = next,
            prev => self.get_mut(RequestHandle(prev)).next = next,
        }
        match next {
            NONE => self.last_waiting = prev,
            next => self.get_mut(RequestHandle(next)).prev = prev,
        }
        self.waiting -= 1;
    }

    /// Puts a request in flight. The returned data is a reused entry in which `generations` is empty; the caller must
    /// set all other fields.
    #[inline]
    pub(crate) fn put_in_flight(
        &mut self,
        handle: RequestHandle,
    ) -> (&PoolRequestState, &mut InFlightState) {
        let index = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(InFlightState::default());
            u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 requests at once")
        });
        self.in_flight += 1;
        let request = self.slab.get_mut(handle.0).expect("a live handle");
        request.flight = index;
        let flight = &mut self.flights[index as usize];
        flight.generations.clear();
        (request, flight)
    }

    /// Ends a request in flight and forgets it.
    #[inline]
    pub(crate) fn end_flight(&mut self, handle: RequestHandle) {
        let place = self.slab.place(handle.0).expect("a live handle");
        let request = place.as_ref().expect("a live handle");
        self.in_flight -= 1;
        self.free_flights.push(request.flight);
        *place = None;
        self.free.put(handle.0);
    }

    /// Stores the deadline of a waiting request whose own timeout is shorter than the pool's.
    pub(crate) fn note_deadline(&mut self, handle: RequestHandle) {
        self.deadlines.insert((self.get(handle).deadline(), handle));
    }

    #[inline(never)]
    fn forget_deadline(&mut self, handle: RequestHandle) {
        self.deadlines.remove(&(self.get(handle).deadline(), handle));
    }

    /// Returns true if the table stores any deadline.
    pub(crate) fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// Returns the earliest of the stored deadlines; `None` if no deadline is stored.
    pub(crate) fn earliest_deadline(&self) -> Option<u128> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the waiting requests that have waited too long, in seq order. `timeout` is the pool's queue timeout,
    /// which no request's own timeout exceeds.
    pub(crate) fn expired(&self, now: Micros, timeout: Option<Micros>) -> Vec<RequestHandle> {
        let noted = self.deadlines.range(..=(u128::from(now.0), RequestHandle(u32::MAX)));
        let mut expired: Vec<RequestHandle> = noted.map(|(_, handle)| *handle).collect();
        if let Some(timeout) = timeout {
            let is_due = |handle: &RequestHandle| now.0 - self.get(*handle).at.0 >= timeout.0;
            expired.extend(self.waiting_handles().take_while(is_due));
        }
        expired.sort_unstable_by_key(|handle| self.get(*handle).seq);
        expired.dedup();
        expired
    }

    /// Removes all stored deadlines, so that requests no longer expire by a timeout of their own.
    pub(crate) fn forget_deadlines(&mut self) {
        self.deadlines.clear();
    }

    /// Returns the request that has waited longest; `None` if no request waits.
    pub(crate) fn oldest_waiting(&self) -> Option<RequestHandle> {
        (self.first_waiting != NONE).then_some(RequestHandle(self.first_waiting))
    }

    /// Returns the waiting requests in seq order.
    pub(crate) fn waiting_handles(&self) -> impl Iterator<Item = RequestHandle> + '_ {
        core::iter::successors(self.oldest_waiting(), |handle| {
            let next = self.get(*handle).next;
            (next != NONE).then_some(RequestHandle(next))
        })
    }

    /// Returns the requests in flight, in the order in which they were granted.
    pub(crate) fn handles_in_flight(&self) -> Vec<RequestHandle> {
        let mut handles: Vec<(u64, RequestHandle)> = Vec::new();
        for (handle, request) in self.slab.iter() {
            if let Some(flight) = self.flights.get(request.flight as usize) {
                handles.push((flight.number, RequestHandle(handle)));
            }
        }
        handles.sort_unstable();
        handles.into_iter().map(|(_, handle)| handle).collect()
    }
}

/// The free handles. The lowest one is not in the set, because usually only one handle is free.
#[derive(Clone, Debug, Default)]
struct FreeHandles {
    lowest: Option<u32>,
    others: HandleSet,
}

impl FreeHandles {
    fn put(&mut self, handle: u32) {
        match self.lowest {
            None => self.lowest = Some(handle),
            Some(lowest) if handle < lowest => {
                self.others.put(lowest);
                self.lowest = Some(handle);
            }
            Some(lowest) if handle > lowest => self.others.put(handle),
            Some(_) => {}
        }
    }

    fn take_lowest(&mut self) -> Option<u32> {
        let lowest = self.lowest.take();
        if lowest.is_some() && self.others.len > 0 {
            self.lowest = self.others.take_lowest();
        }
        lowest
    }

    /// Removes a handle from the free handles. Returns true if the handle was free.
    fn take(&mut self, handle: u32) -> bool {
        if self.lowest == Some(handle) {
            self.take_lowest();
            return true;
        }
        self.others.take(handle)
    }
}

/// A set of handles as a tree of bits. A bit of `levels[k + 1]` is set if the corresponding word of `levels[k]` is
/// above zero. Finding the lowest handle takes one step per level, and six levels are enough for 2³² handles.
#[derive(Clone, Debug, Default)]
struct HandleSet {
    len: usize,
    levels: [Vec<u64>; 6],
}

impl HandleSet {
    fn put(&mut self, handle: u32) {
        let mut index = handle as usize;
        for (depth, level) in self.levels.iter_mut().enumerate() {
            let (had_it, had_any) = set_bit(level, index);
            if depth == 0 && !had_it {
                self.len += 1;
            }
            if had_any {
                return;
            }
            index /= 64;
        }
    }

    #[inline(never)]
    fn take_lowest(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let word = *level.get(index)?;
            if word == 0 {
                return None;
            }
            index = index * 64 + word.trailing_zeros() as usize;
        }
        let handle = u32::try_from(index).ok()?;
        self.take(handle).then_some(handle)
    }

    /// Removes a handle from the set. Returns true if the handle was in the set.
    fn take(&mut self, handle: u32) -> bool {
        let mut index = handle as usize;
        for (depth, level) in self.levels.iter_mut().enumerate() {
            let Some(word) = level.get_mut(index / 64) else { return false };
            let bit = 1 << (index % 64);
            if depth == 0 {
                if *word & bit == 0 {
                    return false;
                }
                self.len -= 1;
            }
            *word &= !bit;
            if *word != 0 {
                return true;
            }
            index /= 64;
        }
        true
    }
}

/// Sets a bit. Returns two values: whether the bit was already set, and whether any bit of its 64-bit word was already
/// set.
fn set_bit(words: &mut Vec<u64>, index: usize) -> (bool, bool) {
    if words.len() <= index / 64 {
        words.resize(index / 64 + 1, 0);
    }
    let word = &mut words[index / 64];
    let bit = 1 << (index % 64);
    let had = (*word & bit != 0, *word != 0);
    *word |= bit;
    had
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// Compares the free handles with an ordered set, over a fixed pseudo-random sequence that uses
    /// several levels.
    #[test]
    fn the_lowest_free_handle_is_given() {
        let (mut free, mut model) = (FreeHandles::default(), BTreeSet::new());
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        for step in 0..60_000u64 {
            let handle = next(if step % 1000 < 500 { 300 } else { 20_000 }) as u32;
            match next(3) {
                0 => assert_eq!(free.take_lowest(), model.pop_first()),
                1 => assert_eq!(free.take(handle), model.remove(&handle)),
                _ => {
                    free.put(handle);
                    model.insert(handle);
                }
            }
        }
    }

    /// With several chunks and reused handles, each request is found under its handle.
    #[test]
    fn requests_keep_their_places_over_chunks() {
        const CHUNK: usize = 1024;
        let mut requests = RequestTable::new();
        let enter = |requests: &mut RequestTable, seq: usize| {
            let handle = requests.next_handle();
            requests
                .enter(handle, PoolRequestState::new(SubmitSeq(seq as u64), Micros(0), Ticks(0)));
            handle
        };
        let handles: Vec<_> = (0..3 * CHUNK).map(|seq| enter(&mut requests, seq)).collect();
        for handle in handles.iter().step_by(3) {
            requests.stop_waiting(*handle);
            assert_eq!(requests.get(*handle).seq.0, u64::from(handle.0));
            requests.remove(*handle);
        }
        let again: Vec<_> = (3 * CHUNK..4 * CHUNK).map(|seq| enter(&mut requests, seq)).collect();
        assert_eq!(
            again.iter().map(|h| h.0).collect::<Vec<_>>(),
            (0..3 * CHUNK as u32).step_by(3).collect::<Vec<_>>()
        );
        let waiting: Vec<u64> = requests.waiting_handles().map(|h| requests.get(h).seq.0).collect();
        assert!(waiting.is_sorted() && waiting.len() as u64 == requests.waiting());
    }
}
