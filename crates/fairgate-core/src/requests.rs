//! Every request that waits or flies: a slab, an index by id, and the waiting list in order of arrival.
//!
//! The slab grows by chunks, never by copying, so a million waiting requests cost their own size and no more.

use core::hash::{Hash, Hasher};

use hashbrown::HashTable;

use crate::attribute::{Attribute, Attributes};
use crate::units::{Micros, TaskWeight, Ticks, Tokens};

/// Where a request lies in the slab. A slot is used again once its request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

/// The order of accepted submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seq(pub(crate) u64);

const NO_SLOT: u32 = u32::MAX;
const CHUNK: usize = 1024;

/// A request that waits or flies.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) texts: Texts,
    pub(crate) seq: Seq,
    /// When it was submitted, on the journal's clock and on the pool's.
    pub(crate) at: Micros,
    pub(crate) tick: Ticks,
    pub(crate) cost: Tokens,
    pub(crate) input: Tokens,
    /// The most of its input that was cached on an eligible worker when it came.
    pub(crate) cached_best: Tokens,
    pub(crate) priority: i64,
    pub(crate) weight: TaskWeight,
    /// The queue it waits in, or was dispatched from.
    pub(crate) queue: u32,
    /// Its demands on a worker, interned.
    pub(crate) want: u32,
    prev: u32,
    next: u32,
    /// Its cached tokens by worker, sorted by name.
    pub(crate) cached: Option<Box<CachedAt>>,
    pub(crate) flight: Option<Box<Flight>>,
}

/// Cached input tokens by worker name, sorted.
pub(crate) type CachedAt = Vec<(Box<str>, Tokens)>;

/// What a granted request carries until it ends.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) granted_at: Micros,
    /// The order of grants.
    pub(crate) number: u64,
    /// The flows' generations on its path, innermost first; `None` where the tree that granted it is
    /// gone, so that its end is charged nowhere.
    pub(crate) generations: Option<Vec<u64>>,
    pub(crate) place: Option<crate::workers::Place>,
    /// Its prefill tokens that its place still counts.
    pub(crate) prefill: Tokens,
}

impl Request {
    /// A request as it arrives; it has no place in any list yet.
    pub(crate) fn new(
        id: &str,
        attributes: &Attributes,
        seq: Seq,
        at: Micros,
        tick: Ticks,
    ) -> Self {
        Self {
            texts: Texts::pack(id, attributes),
            seq,
            at,
            tick,
            cost: Tokens(1),
            input: Tokens(1),
            cached_best: Tokens(0),
            priority: 0,
            weight: TaskWeight::ONE,
            queue: 0,
            want: 0,
            prev: NO_SLOT,
            next: NO_SLOT,
            cached: None,
            flight: None,
        }
    }

    /// How many of its input tokens are cached on a worker.
    pub(crate) fn cached_on(&self, worker: &str) -> Tokens {
        let Some(cached) = &self.cached else { return Tokens(0) };
        match cached.binary_search_by(|(name, _)| (**name).cmp(worker)) {
            Ok(i) => cached[i].1.min(self.input),
            Err(_) => Tokens(0),
        }
    }
}

/// A request's id and attributes in one allocation: each present text behind its length.
#[derive(Clone, Debug)]
pub(crate) struct Texts(Box<[u8]>);

impl Texts {
    fn pack(id: &str, attributes: &Attributes) -> Self {
        let texts = || Attribute::ALL.into_iter().filter_map(|a| attributes.get(a));
        let packed = |text: &str| text.len() + length_bytes(text.len());
        // Exactly as many bytes as it takes: a million of these wait.
        let mut bytes = Vec::with_capacity(1 + packed(id) + texts().map(packed).sum::<usize>());
        let present = Attribute::ALL
            .into_iter()
            .filter(|a| attributes.get(*a).is_some())
            .fold(0u8, |mask, a| mask | 1 << a as u8);
        bytes.push(present);
        push_text(&mut bytes, id);
        texts().for_each(|text| push_text(&mut bytes, text));
        Self(bytes.into_boxed_slice())
    }

    /// The request's id.
    pub(crate) fn id(&self) -> &str {
        read_text(&self.0[1..]).0
    }

    /// The request's attributes, unpacked.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::none();
        let mut rest = read_text(&self.0[1..]).1;
        for attribute in Attribute::ALL {
            if self.0[0] & 1 << attribute as u8 != 0 {
                let (text, after) = read_text(rest);
                attributes.set(attribute, text.into());
                rest = after;
            }
        }
        attributes
    }
}

/// How many bytes a length takes.
fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros();
    bits.max(1).div_ceil(7) as usize
}

/// Lengths are written in groups of seven bits, lowest first.
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    loop {
        let low = length.to_le_bytes()[0] & 0x7f;
        length >>= 7;
        if length == 0 {
            bytes.push(low);
            break;
        }
        bytes.push(low | 0x80);
    }
    bytes.extend_from_slice(text.as_bytes());
}

fn read_text(bytes: &[u8]) -> (&str, &[u8]) {
    let mut length = 0usize;
    let mut used = 0;
    for byte in bytes {
        length |= usize::from(byte & 0x7f) << (7 * used);
        used += 1;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (text, rest) = bytes[used..].split_at(length);
    (core::str::from_utf8(text).unwrap_or_default(), rest)
}

/// The requests of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    chunks: Vec<Vec<Option<Request>>>,
    free: Vec<u32>,
    by_id: HashTable<u32>,
    first_waiting: u32,
    last_waiting: u32,
    waiting: u64,
    flying: u64,
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            by_id: HashTable::new(),
            first_waiting: NO_SLOT,
            last_waiting: NO_SLOT,
            waiting: 0,
            flying: 0,
        }
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// How many requests fly.
    pub(crate) fn flying(&self) -> u64 {
        self.flying
    }

    /// Takes a request in; it neither waits nor flies before it is told so.
    pub(crate) fn insert(&mut self, request: Request) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let hash = hash_id(request.texts.id());
        let (chunk, index) = locate(slot);
        self.chunks[chunk][index] = Some(request);
        let chunks = &self.chunks;
        self.by_id.insert_unique(hash, slot, |s| hash_id(id_of(chunks, *s)));
        Slot(slot)
    }

    fn grow(&mut self) -> u32 {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("a chunk was just made");
        chunk.push(None);
        u32::try_from(before + chunk.len() - 1).expect("fewer than 2^32 requests at once")
    }

    /// Forgets a request that neither waits nor flies any more.
    pub(crate) fn remove(&mut self, slot: Slot) -> Request {
        let (chunk, index) = locate(slot.0);
        let request = self.chunks[chunk][index].take().expect("a live slot");
        let hash = hash_id(request.texts.id());
        if let Ok(entry) = self.by_id.find_entry(hash, |s| *s == slot.0) {
            entry.remove();
        }
        self.free.push(slot.0);
        request
    }

    /// The request of that id, waiting or flying.
    pub(crate) fn find(&self, id: &str) -> Option<Slot> {
        self.by_id.find(hash_id(id), |s| id_of(&self.chunks, *s) == id).map(|s| Slot(*s))
    }

    pub(crate) fn get(&self, slot: Slot) -> &Request {
        let (chunk, index) = locate(slot.0);
        self.chunks[chunk][index].as_ref().expect("a live slot")
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Request {
        let (chunk, index) = locate(slot.0);
        self.chunks[chunk][index].as_mut().expect("a live slot")
    }

    /// Appends a request to the waiting list. Requests start to wait in seq order.
    pub(crate) fn start_waiting(&mut self, slot: Slot) {
        let last = self.last_waiting;
        let request = self.get_mut(slot);
        request.prev = last;
        request.next = NO_SLOT;
        match last {
            NO_SLOT => self.first_waiting = slot.0,
            last => self.get_mut(Slot(last)).next = slot.0,
        }
        self.last_waiting = slot.0;
        self.waiting += 1;
    }

    /// Takes a request out of the waiting list.
    pub(crate) fn stop_waiting(&mut self, slot: Slot) {
        let (prev, next) = {
            let request = self.get(slot);
            (request.prev, request.next)
        };
        match prev {
            NO_SLOT => self.first_waiting = next,
            prev => self.get_mut(Slot(prev)).next = next,
        }
        match next {
            NO_SLOT => self.last_waiting = prev,
            next => self.get_mut(Slot(next)).prev = prev,
        }
        self.waiting -= 1;
    }

    /// Starts a flight.
    pub(crate) fn start_flying(&mut self, slot: Slot, flight: Flight) {
        self.get_mut(slot).flight = Some(Box::new(flight));
        self.flying += 1;
    }

    /// Ends a flight and forgets the request.
    pub(crate) fn land(&mut self, slot: Slot) -> Request {
        self.flying -= 1;
        self.remove(slot)
    }

    /// The request that has waited longest.
    pub(crate) fn oldest_waiting(&self) -> Option<Slot> {
        (self.first_waiting != NO_SLOT).then_some(Slot(self.first_waiting))
    }

    /// The waiting requests in seq order.
    pub(crate) fn waiting_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        core::iter::successors(self.oldest_waiting(), |slot| {
            let next = self.get(*slot).next;
            (next != NO_SLOT).then_some(Slot(next))
        })
    }

    /// The flying requests, in the order in which they were granted.
    pub(crate) fn flying_slots(&self) -> Vec<Slot> {
        let mut slots: Vec<(u64, Slot)> = Vec::new();
        for (c, chunk) in self.chunks.iter().enumerate() {
            for (i, request) in chunk.iter().enumerate() {
                if let Some(flight) = request.as_ref().and_then(|r| r.flight.as_ref()) {
                    let slot = u32::try_from(c * CHUNK + i).expect("slots fit");
                    slots.push((flight.number, Slot(slot)));
                }
            }
        }
        slots.sort_unstable();
        slots.into_iter().map(|(_, slot)| slot).collect()
    }
}

fn locate(slot: u32) -> (usize, usize) {
    (slot as usize / CHUNK, slot as usize % CHUNK)
}

fn id_of(chunks: &[Vec<Option<Request>>], slot: u32) -> &str {
    let (chunk, index) = locate(slot);
    chunks[chunk][index].as_ref().map_or("", |r| r.texts.id())
}

/// The index is only ever asked by id, so its order can decide nothing. SipHash 2-4 with fixed keys: the same on
/// every machine, and hostile ids that collide are dear to find.
fn hash_id(id: &str) -> u64 {
    #[allow(
        deprecated,
        reason = "deprecated in favour of a random state, which the core must not have"
    )]
    let mut hasher = core::hash::SipHasher::new_with_keys(0x6661_6972, 0x6761_7465);
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_packed_and_take_no_more_than_they_need() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let long = "ä".repeat(length);
            let attributes = Attributes::none()
                .with(Attribute::Class, &long)
                .with(Attribute::Session, "")
                .with(Attribute::Key, "k");
            let texts = Texts::pack(&long, &attributes);
            assert_eq!(texts.id(), long);
            assert_eq!(texts.attributes(), attributes);
            let bytes = |text: &str| text.len() + length_bytes(text.len());
            assert_eq!(texts.0.len(), 1 + 2 * bytes(&long) + bytes("") + bytes("k"));
        }
    }

    /// Over several chunks, with slots used again: each id is found where its request lies.
    #[test]
    fn requests_keep_their_places_over_chunks() {
        let mut requests = Requests::new();
        let enter = |requests: &mut Requests, id: usize| {
            let (none, seq) = (Attributes::none(), Seq(id as u64));
            let slot =
                requests.insert(Request::new(&id.to_string(), &none, seq, Micros(0), Ticks(0)));
            requests.start_waiting(slot);
        };
        (0..3 * CHUNK).for_each(|id| enter(&mut requests, id));
        for id in (0..3 * CHUNK).step_by(3) {
            let slot = requests.find(&id.to_string()).expect("it waits");
            requests.stop_waiting(slot);
            assert_eq!(requests.remove(slot).texts.id(), id.to_string());
        }
        (3 * CHUNK..4 * CHUNK).for_each(|id| enter(&mut requests, id));
        for id in 0..4 * CHUNK {
            let found = requests.find(&id.to_string()).map(|slot| requests.get(slot).seq.0);
            let there = id >= 3 * CHUNK || id % 3 != 0;
            assert_eq!(found, there.then_some(id as u64), "{id}");
        }
        let waiting: Vec<u64> = requests.waiting_slots().map(|s| requests.get(s).seq.0).collect();
        assert!(waiting.is_sorted() && waiting.len() as u64 == requests.waiting());
    }
}
