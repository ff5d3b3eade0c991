//! Every request that waits or is in flight: a slab under its handles, and the waiting list in order of arrival.
//!
//! The slab grows without copying, so a million waiting requests cost their own size and no more. What only
//! a request in flight has lies in a slab of its own, whose entries are used again: granting allocates nothing.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::rate::Taken;
use crate::slab::Slab;
use crate::units::{Micros, TaskWeight, Ticks, Tokens};

/// A request's number while it waits or is in flight: the lowest that was free when it was accepted.
///
/// Handles are given in the order of events, so every replica of a log gives the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub(crate) u32);

impl Handle {
    /// The handle as an index: shells keep what belongs to a request in a list under it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The order of accepted submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seq(pub(crate) u64);

const NONE: u32 = u32::MAX;

/// A request that waits or is in flight.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) seq: Seq,
    /// When it was submitted, on the journal's clock and on the pool's.
    pub(crate) at: Micros,
    pub(crate) tick: Ticks,
    pub(crate) cost: Tokens,
    pub(crate) input: Tokens,
    /// The most of its input that was cached on an eligible worker when it came.
    pub(crate) cached_best: Tokens,
    /// What its grant takes from its worker's token rate.
    pub(crate) quota: Tokens,
    pub(crate) priority: i64,
    /// Its cached tokens by worker, sorted by name.
    pub(crate) cached: Option<Box<CachedAt>>,
    pub(crate) weight: TaskWeight,
    /// The queue it waits in, or was dispatched from.
    pub(crate) queue: u32,
    /// Its demands on a worker, interned.
    pub(crate) want: u32,
    /// Its neighbours in the pool's waiting list.
    prev: u32,
    next: u32,
    /// Its neighbours in its queue, in order of arrival; see [`crate::queue`].
    pub(crate) queue_prev: u32,
    pub(crate) queue_next: u32,
    flight: u32,
}

/// Cached input tokens by worker name, sorted.
pub(crate) type CachedAt = Vec<(Arc<str>, Tokens)>;

/// Cached tokens of a request, asked for many workers. Workers mostly come in the order of their names, so the next one's tokens are
/// mostly the next in the list, and no search is needed.
pub(crate) struct CachedInTurn<'a> {
    cached: &'a [(Arc<str>, Tokens)],
    next: usize,
    input: Tokens,
}

impl CachedInTurn<'_> {
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

/// What a granted request carries until it ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flight {
    pub(crate) granted_at: Micros,
    /// The order of grants.
    pub(crate) number: u64,
    /// The flows' generations on its path, innermost first.
    pub(crate) generations: Vec<u64>,
    /// Whether the tree that granted it is still there; where not, its end is charged nowhere.
    pub(crate) charged: bool,
    pub(crate) place: Option<crate::workers::Place>,
    /// Its prefill tokens that its place still counts.
    pub(crate) prefill: Tokens,
    /// What its grant took from its worker's token rate.
    pub(crate) taken: Option<Taken>,
}

impl Request {
    /// A request as it arrives; it has no place in any list yet.
    pub(crate) fn new(seq: Seq, at: Micros, tick: Ticks) -> Self {
        Self {
            seq,
            at,
            tick,
            cost: Tokens(1),
            input: Tokens(1),
            cached_best: Tokens(0),
            quota: Tokens(1),
            priority: 0,
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

    /// How many of its input tokens are cached on a worker.
    pub(crate) fn cached_on(&self, worker: &str) -> Tokens {
        self.cached_in_turn().on(worker)
    }

    /// The same for one worker after another.
    pub(crate) fn cached_in_turn(&self) -> CachedInTurn<'_> {
        let cached = self.cached.as_ref().map_or(&[][..], |cached| cached);
        CachedInTurn { cached, next: 0, input: self.input }
    }

    /// Whether it was granted and has not ended.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.flight != NONE
    }
}

/// The requests of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    slab: Slab<Request>,
    free: FreeHandles,
    /// How many handles were ever in use at once.
    handles: u32,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    first_waiting: u32,
    last_waiting: u32,
    waiting: u64,
    in_flight: u64,
}

impl Requests {
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
        }
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// How many requests are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Takes a request in, behind all that wait. Requests start to wait in seq order.
    #[inline]
    pub(crate) fn enter(&mut self, request: Request) -> Handle {
        let handle = self.free.take_lowest().unwrap_or_else(|| self.grow());
        let prev = self.append(handle);
        let request = self.slab.put(handle, request);
        request.prev = prev;
        request.next = NONE;
        Handle(handle)
    }

    /// Takes a request in under the handle that it had; it neither waits nor is in flight yet. Says whether that handle
    /// was free.
    pub(crate) fn insert_at(&mut self, handle: Handle, request: Request) -> bool {
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
    pub(crate) fn remove(&mut self, handle: Handle) {
        self.slab.clear(handle.0);
        self.free.put(handle.0);
    }

    /// Whether a request has this handle.
    pub(crate) fn is_live(&self, handle: Handle) -> bool {
        self.find(handle).is_some()
    }

    /// The request that has this handle, where one has.
    pub(crate) fn find(&self, handle: Handle) -> Option<&Request> {
        self.slab.get(handle.0)
    }

    pub(crate) fn get(&self, handle: Handle) -> &Request {
        self.slab.get(handle.0).expect("a live handle")
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> &mut Request {
        self.slab.get_mut(handle.0).expect("a live handle")
    }

    /// What a request in flight carries.
    pub(crate) fn flight(&self, handle: Handle) -> Option<&Flight> {
        self.flight_of(self.get(handle))
    }

    /// The same, where the request is at hand.
    pub(crate) fn flight_of(&self, request: &Request) -> Option<&Flight> {
        self.flights.get(request.flight as usize)
    }

    pub(crate) fn flight_mut(&mut self, handle: Handle) -> Option<&mut Flight> {
        let flight = self.get(handle).flight;
        self.flights.get_mut(flight as usize)
    }

    /// Appends a request to the waiting list. Requests start to wait in seq order.
    pub(crate) fn start_waiting(&mut self, handle: Handle) {
        let prev = self.append(handle.0);
        let request = self.get_mut(handle);
        request.prev = prev;
        request.next = NONE;
    }

    /// Makes a handle the last of the waiting list; returns the one before it.
    fn append(&mut self, handle: u32) -> u32 {
        let last = core::mem::replace(&mut self.last_waiting, handle);
        match last {
            NONE => self.first_waiting = handle,
            last => self.get_mut(Handle(last)).next = handle,
        }
        self.waiting += 1;
        last
    }

    /// Takes a request out of the waiting list.
    #[inline]
    pub(crate) fn stop_waiting(&mut self, handle: Handle) {
        let (prev, next) = {
            let request = self.get(handle);
            (request.prev, request.next)
        };
        match prev {
            NONE => self.first_waiting = next,
            prev => self.get_mut(Handle(prev)).next = next,
        }
        match next {
            NONE => self.last_waiting = prev,
            next => self.get_mut(Handle(next)).prev = prev,
        }
        self.waiting -= 1;
    }

    /// Puts a request in flight. What it carries is an entry that another left behind, with fields to be set and
    /// `generations` empty.
    #[inline]
    pub(crate) fn start_flight(&mut self, handle: Handle) -> (&Request, &mut Flight) {
        let index = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(Flight::default());
            u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 requests at once")
        });
        self.in_flight += 1;
        let request = self.slab.get_mut(handle.0).expect("a live handle");
        request.flight = index;
        let flight = &mut self.flights[index as usize];
        flight.generations.clear();
        (request, flight)
    }

    /// Ends a flight and forgets the request.
    pub(crate) fn land(&mut self, handle: Handle) {
        self.in_flight -= 1;
        self.free_flights.push(self.get(handle).flight);
        self.remove(handle);
    }

    /// The request that has waited longest.
    pub(crate) fn oldest_waiting(&self) -> Option<Handle> {
        (self.first_waiting != NONE).then_some(Handle(self.first_waiting))
    }

    /// The waiting requests in seq order.
    pub(crate) fn waiting_handles(&self) -> impl Iterator<Item = Handle> + '_ {
        core::iter::successors(self.oldest_waiting(), |handle| {
            let next = self.get(*handle).next;
            (next != NONE).then_some(Handle(next))
        })
    }

    /// The requests in flight, in the order in which they were granted.
    pub(crate) fn handles_in_flight(&self) -> Vec<Handle> {
        let mut handles: Vec<(u64, Handle)> = Vec::new();
        for (handle, request) in self.slab.iter() {
            if let Some(flight) = self.flights.get(request.flight as usize) {
                handles.push((flight.number, Handle(handle)));
            }
        }
        handles.sort_unstable();
        handles.into_iter().map(|(_, handle)| handle).collect()
    }
}

/// The free handles. The lowest is at hand, for most often there is only that one.
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
        if lowest.is_some() {
            self.lowest = self.others.take_lowest();
        }
        lowest
    }

    /// Takes a handle where it is free.
    fn take(&mut self, handle: u32) -> bool {
        if self.lowest == Some(handle) {
            self.take_lowest();
            return true;
        }
        self.others.take(handle)
    }
}

/// A set of handles as a tree of bits: a bit of `levels[k + 1]` says whether a word of `levels[k]` has any. Finding the
/// lowest takes one step per level; six levels are enough for 2³² handles.
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

    /// Takes a handle where it is free.
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

/// Sets a bit; says whether it was set, and whether its word had any.
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

    /// Against an ordered set, over a fixed pseudo-random walk through several levels.
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

    /// Over several chunks, with handles used again: each request lies where its handle says.
    #[test]
    fn requests_keep_their_places_over_chunks() {
        const CHUNK: usize = 1024;
        let mut requests = Requests::new();
        let enter = |requests: &mut Requests, seq: usize| {
            requests.enter(Request::new(Seq(seq as u64), Micros(0), Ticks(0)))
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
