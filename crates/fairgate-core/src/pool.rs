//! A pool by name: the layer that owns ids, attributes and the words of the journal.
//!
//! Below it, the [`Engine`] knows only handles and resolved paths. This layer finds a request by its id, refuses a
//! duplicate, keeps whose each request is for when the policy changes, and puts names to decisions. Every shell uses
//! it: the gateway's runtime, replay and Python.
//!
//! [`Pool::apply`] is the one seam: ordered events with their time go in, decisions come out. A log that several
//! machines agree on can stand before it, for nothing that is decided depends on anything else.

use alloc::boxed::Box;
use alloc::sync::Arc;

use hashbrown::HashTable;

use crate::attribute::Attributes;
use crate::decision::{Decision, Grant, GrantedPlace, Limit, Reason, Reject, Sink, TimeWentBack};
use crate::engine::{Ask, Engine, Refusal, Verdict, Verdicts, WorkerNames};
use crate::event::{Event, PoolConfig, Submit};
use crate::names::hash_text;
use crate::policy::Policy;
use crate::requests::Handle;
use crate::slab::Slab;
use crate::units::{Micros, Ticks};

/// A pool of slots and everything that waits for one or holds one.
///
/// [`Pool::apply`] is the only way to change it. The same events in the same order give the same decisions.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) engine: Engine,
    pub(crate) book: Book,
}

/// Who has which handle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    by_id: HashTable<u32>,
    entries: Slab<Entry>,
}

/// One request's names.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: Arc<str>,
    pub(crate) attributes: Attributes,
}

impl Book {
    /// The request of that id.
    pub(crate) fn find(&self, id: &str) -> Option<Handle> {
        self.find_hashed(id, hash_id(id))
    }

    fn find_hashed(&self, id: &str, hash: u64) -> Option<Handle> {
        let found = self.by_id.find(hash, |h| *id_of(&self.entries, *h) == *id);
        found.map(|handle| Handle(*handle))
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&Entry> {
        self.entries.get(handle.0)
    }

    pub(crate) fn insert(&mut self, handle: Handle, entry: Entry) {
        let hash = hash_id(&entry.id);
        self.insert_hashed(handle, entry, hash);
    }

    fn insert_hashed(&mut self, handle: Handle, entry: Entry, hash: u64) {
        self.entries.put(handle.0, entry);
        let entries = &self.entries;
        self.by_id.insert_unique(hash, handle.0, |h| hash_id(id_of(entries, *h)));
    }

    fn remove(&mut self, handle: Handle) -> Option<Entry> {
        let entry = self.entries.take(handle.0)?;
        if let Ok(found) = self.by_id.find_entry(hash_id(&entry.id), |h| *h == handle.0) {
            found.remove();
        }
        Some(entry)
    }

    /// Removes the request of that id, where there is one and it is gone by what `ends` does.
    fn remove_where(&mut self, id: &str, ends: impl FnOnce(Handle) -> bool) {
        let Self { by_id, entries } = self;
        let is_it = |handle: &u32| *id_of(entries, *handle) == *id;
        let Ok(found) = by_id.find_entry(hash_id(id), is_it) else { return };
        let handle = *found.get();
        if ends(Handle(handle)) {
            found.remove();
            entries.clear(handle);
        }
    }
}

fn id_of(entries: &Slab<Entry>, handle: u32) -> &str {
    entries.get(handle).map_or("", |entry| &entry.id)
}

fn hash_id(id: &str) -> u64 {
    hash_text(u64::MAX, id)
}

/// Puts names to an engine's decisions.
struct Named<'a, S> {
    book: &'a mut Book,
    sink: &'a mut S,
}

impl<S: Sink> Verdicts for Named<'_, S> {
    fn decided(&mut self, request: Handle, verdict: Verdict, workers: &WorkerNames<'_>) {
        match verdict {
            Verdict::Grant { cost, waited, brownout, place, why } => {
                let Some(id) = self.book.get(request).map(|entry| entry.id.clone()) else { return };
                let place = place.and_then(|(worker, rank)| {
                    Some(GrantedPlace { worker: workers.get(worker)?, rank })
                });
                let grant = Grant { request, id, cost, waited, brownout, place, why };
                self.sink.decided(Decision::Grant(grant));
            }
            Verdict::Reject { reason, limit } => {
                let Some(Entry { id, .. }) = self.book.remove(request) else { return };
                let reject = Reject { request: Some(request), id, reason, limit };
                self.sink.decided(Decision::Reject(reject));
            }
            Verdict::Expire => {
                let Some(Entry { id, .. }) = self.book.remove(request) else { return };
                self.sink.decided(Decision::Expire { request, id });
            }
        }
    }

    fn wants_why(&self, request: Handle) -> bool {
        self.book.get(request).is_some_and(|entry| self.sink.wants_why(&entry.id))
    }
}

impl Pool {
    /// An empty pool at time 0.
    pub fn new(config: PoolConfig) -> Self {
        Self { engine: Engine::new(config), book: Book::default() }
    }

    /// Applies one event at a time that is not before the last, and tells the sink what it leads to: first
    /// what expires, then what the event itself decides, then who is granted a slot.
    pub fn apply(
        &mut self,
        at: Micros,
        event: Event,
        sink: &mut impl Sink,
    ) -> Result<(), TimeWentBack> {
        let Self { engine, book } = self;
        engine.begin(at, &mut Named { book, sink })?;
        match event {
            Event::Submit(submit) => Self::submit(engine, book, submit, sink),
            Event::Release { id, tokens, quota } => {
                book.remove_where(&id, |handle| engine.release(handle, tokens, quota));
            }
            Event::Cancel { id } => book.remove_where(&id, |handle| engine.cancel(handle)),
            Event::Hold { by, flow } => engine.set_held(by, &flow, true),
            Event::Resume { by, flow } => engine.set_held(by, &flow, false),
            Event::Capacity { slots } => engine.set_capacity(slots),
            Event::Tick => {}
            Event::Weight { by, flow, weight } => engine.set_weight(by, &flow, weight),
            Event::Policy(policy) => {
                let none = Attributes::none();
                engine.replace_policy(policy, |handle| {
                    book.get(handle).map_or(&none, |entry| &entry.attributes)
                });
            }
            Event::Cap { by, flow, slots } => engine.set_cap(by, &flow, slots),
            Event::Worker(change) => engine.change_worker(&change, &mut Named { book, sink }),
            Event::FirstToken { id } => {
                if let Some(handle) = book.find(&id) {
                    engine.first_token(handle);
                }
            }
        }
        engine.finish(&mut Named { book, sink });
        Ok(())
    }

    fn submit(engine: &mut Engine, book: &mut Book, submit: Box<Submit>, sink: &mut impl Sink) {
        let hash = hash_id(&submit.id);
        if book.find_hashed(&submit.id, hash).is_some() {
            return reject(sink, submit.id, Reason::Duplicate, None);
        }
        let path = engine.path(&submit.attributes);
        let tested = engine.submit(path, &Ask::of(&submit), &mut Named { book, sink });
        let Submit { id, attributes, .. } = *submit;
        match tested {
            Ok(handle) => {
                sink.accepted(handle, &id);
                book.insert_hashed(handle, Entry { id, attributes }, hash);
            }
            Err(Refusal { reason, limit }) => reject(sink, id, reason, limit),
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> u64 {
        self.engine.waiting()
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> u64 {
        self.engine.in_flight()
    }

    /// How many requests may be in flight at once.
    pub fn capacity(&self) -> u64 {
        self.engine.capacity
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.engine.policy
    }

    /// The time of the last event.
    pub fn now(&self) -> Micros {
        self.engine.now
    }

    /// How many granted requests have ended.
    pub fn ticks(&self) -> Ticks {
        self.engine.ticks
    }

    /// When the pool next changes by time alone: a request expires, one in a queue with a longest wait becomes late, a
    /// worker's rate has filled or its pause is over. A shell that applies a tick then loses nothing in between, and
    /// needs no other timer.
    pub fn next_change(&self) -> Option<Micros> {
        self.engine.next_change()
    }
}

fn reject(sink: &mut impl Sink, id: Arc<str>, reason: Reason, limit: Option<Limit>) {
    sink.decided(Decision::Reject(Reject { request: None, id, reason, limit }));
}
