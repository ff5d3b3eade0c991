//! The pool as callers see it, with requests and flows known by name. This layer owns the ids and attributes of
//! requests and takes its terms from the journal.
//!
//! The [`PoolEngine`] below this layer knows only handles and resolved paths. This layer finds a request by its id,
//! refuses a duplicate, keeps the attributes of each request for a change of the policy, and adds names to decisions.
//! Every caller uses this layer: the gateway's runtime, replay and Python.
//!
//! [`Pool::apply`] is the single entry. Ordered events with their times go in, and decisions come out. An ordered,
//! replicated log can feed the pool, because decisions depend on nothing but the events.

use alloc::boxed::Box;
use alloc::sync::Arc;

use hashbrown::HashTable;

use crate::attribute::Attributes;
use crate::decision::{
    Decision, DecisionSink, Grant, GrantedPlace, RejectedRequest, RejectionLimit, RejectionReason,
    TimeWentBackError,
};
use crate::engine::{
    EngineDecision, EngineDecisionSink, PoolEngine, RequestDemand, SubmitRejection, WorkerNames,
};
use crate::event::{Event, PoolConfig, Submit};
use crate::flow_names::hash_text;
use crate::policy::Policy;
use crate::requests::RequestHandle;
use crate::slab::Slab;
use crate::units::{Micros, Ticks};

/// A pool of slots with its queued requests and its requests in flight.
///
/// [`Pool::apply`] is the only method that changes the pool. Equal events in equal order give equal decisions.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) engine: PoolEngine,
    pub(crate) request_ids: PoolRequestIds,
}

/// The ids, handles and attributes of a pool's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolRequestIds {
    by_id: HashTable<u32>,
    entries: Slab<RequestEntry>,
}

/// The id and attributes of one request.
#[derive(Clone, Debug)]
pub(crate) struct RequestEntry {
    pub(crate) id: Arc<str>,
    pub(crate) attributes: Attributes,
}

impl PoolRequestIds {
    /// Returns the handle of the request with this id; `None` if no such request waits or is in flight.
    pub(crate) fn find(&self, id: &str) -> Option<RequestHandle> {
        self.find_hashed(id, hash_id(id))
    }

    fn find_hashed(&self, id: &str, hash: u64) -> Option<RequestHandle> {
        let found = self.by_id.find(hash, |h| *id_of(&self.entries, *h) == *id);
        found.map(|handle| RequestHandle(*handle))
    }

    pub(crate) fn get(&self, handle: RequestHandle) -> Option<&RequestEntry> {
        self.entries.get(handle.0)
    }

    pub(crate) fn insert(&mut self, handle: RequestHandle, entry: RequestEntry) {
        let hash = hash_id(&entry.id);
        self.insert_hashed(handle, entry, hash);
    }

    fn insert_hashed(&mut self, handle: RequestHandle, entry: RequestEntry, hash: u64) {
        self.entries.put(handle.0, entry);
        let entries = &self.entries;
        self.by_id.insert_unique(hash, handle.0, |h| hash_id(id_of(entries, *h)));
    }

    fn remove(&mut self, handle: RequestHandle) -> Option<RequestEntry> {
        let entry = self.entries.take(handle.0)?;
        if let Ok(found) = self.by_id.find_entry(hash_id(&entry.id), |h| *h == handle.0) {
            found.remove();
        }
        Some(entry)
    }

    /// Removes the request with this id if the request exists and `ends` returns true for its handle.
    fn remove_where(&mut self, id: &str, ends: impl FnOnce(RequestHandle) -> bool) {
        let Self { by_id, entries } = self;
        let is_it = |handle: &u32| *id_of(entries, *handle) == *id;
        let Ok(found) = by_id.find_entry(hash_id(id), is_it) else { return };
        let handle = *found.get();
        if ends(RequestHandle(handle)) {
            found.remove();
            entries.clear(handle);
        }
    }
}

fn id_of(entries: &Slab<RequestEntry>, handle: u32) -> &str {
    entries.get(handle).map_or("", |entry| &entry.id)
}

fn hash_id(id: &str) -> u64 {
    hash_text(u64::MAX, id)
}

/// Adds names to an engine's decisions and passes them to a sink.
struct NamedDecisions<'a, S> {
    request_ids: &'a mut PoolRequestIds,
    sink: &'a mut S,
}

impl<S: DecisionSink> EngineDecisionSink for NamedDecisions<'_, S> {
    // Inlined, because each caller passes a decision of a known kind, and only a grant needs work here.
    #[inline(always)]
    fn decided(
        &mut self,
        request: RequestHandle,
        decision: EngineDecision,
        workers: &WorkerNames<'_>,
    ) {
        match decision {
            EngineDecision::Grant { cost, waited, brownout, place, why } => {
                let Some(id) = self.request_ids.get(request).map(|entry| entry.id.clone()) else {
                    return;
                };
                let place = place.and_then(|(worker, rank)| {
                    Some(GrantedPlace { worker: workers.get(worker)?, rank })
                });
                let grant = Grant { request, id, cost, waited, brownout, place, why };
                self.sink.decided(Decision::Grant(grant));
            }
            EngineDecision::Reject { reason, limit } => self.reject(request, reason, limit),
            EngineDecision::Expire => self.expire(request),
        }
    }

    fn wants_why(&self, request: RequestHandle) -> bool {
        self.request_ids.get(request).is_some_and(|entry| self.sink.wants_why(&entry.id))
    }
}

impl<S: DecisionSink> NamedDecisions<'_, S> {
    #[inline(never)]
    fn reject(
        &mut self,
        request: RequestHandle,
        reason: RejectionReason,
        limit: Option<RejectionLimit>,
    ) {
        let Some(RequestEntry { id, .. }) = self.request_ids.remove(request) else { return };
        let reject = RejectedRequest { request: Some(request), id, reason, limit };
        self.sink.decided(Decision::Reject(reject));
    }

    #[inline(never)]
    fn expire(&mut self, request: RequestHandle) {
        let Some(RequestEntry { id, .. }) = self.request_ids.remove(request) else { return };
        self.sink.decided(Decision::Expire { request, id });
    }
}

impl Pool {
    /// Creates an empty pool at time 0.
    pub fn new(config: PoolConfig) -> Self {
        Self { engine: PoolEngine::new(config), request_ids: PoolRequestIds::default() }
    }

    /// Applies one event and passes the resulting decisions to the sink. First come the requests that expire, then the
    /// decisions about the event itself, then the grants. `at` must not be before the last event's time.
    pub fn apply(
        &mut self,
        at: Micros,
        event: Event,
        sink: &mut impl DecisionSink,
    ) -> Result<(), TimeWentBackError> {
        let Self { engine, request_ids } = self;
        engine.begin(at, &mut NamedDecisions { request_ids, sink })?;
        // Every request causes a submit and a release, so these two are destructured here. The other events are passed
        // by reference, because dropping a partly moved event costs more than handling these two.
        match event {
            Event::Submit(submit) => Self::submit(engine, request_ids, submit, sink),
            Event::Release { id, tokens, quota } => {
                request_ids.remove_where(&id, |handle| engine.release(handle, tokens, quota));
            }
            other => Self::apply_other_event(engine, request_ids, &other, sink),
        }
        engine.finish(&mut NamedDecisions { request_ids, sink });
        Ok(())
    }

    /// Applies an event that is not a submit, a release or a tick. Those three are ignored here.
    #[inline(never)]
    fn apply_other_event(
        engine: &mut PoolEngine,
        request_ids: &mut PoolRequestIds,
        event: &Event,
        sink: &mut impl DecisionSink,
    ) {
        match event {
            Event::Submit(_) | Event::Release { .. } | Event::Tick => {}
            Event::Cancel { id } => request_ids.remove_where(id, |handle| engine.cancel(handle)),
            Event::Hold { by, flow } => engine.set_held(*by, flow, true),
            Event::Resume { by, flow } => engine.set_held(*by, flow, false),
            Event::Capacity { slots } => engine.set_capacity(*slots),
            Event::Weight { by, flow, weight } => engine.set_weight(*by, flow, *weight),
            Event::Policy(policy) => {
                let none = Attributes::none();
                engine.replace_policy(policy.clone(), |handle| {
                    request_ids.get(handle).map_or(&none, |entry| &entry.attributes)
                });
            }
            Event::Cap { by, flow, slots } => engine.set_cap(*by, flow, *slots),
            Event::Worker(change) => {
                engine.change_worker(change, &mut NamedDecisions { request_ids, sink })
            }
            Event::FirstToken { id } => {
                if let Some(handle) = request_ids.find(id) {
                    engine.first_token(handle);
                }
            }
        }
    }

    fn submit(
        engine: &mut PoolEngine,
        request_ids: &mut PoolRequestIds,
        submit: Box<Submit>,
        sink: &mut impl DecisionSink,
    ) {
        let hash = hash_id(&submit.id);
        if request_ids.find_hashed(&submit.id, hash).is_some() {
            return reject(sink, submit.id, RejectionReason::Duplicate, None);
        }
        let path = engine.path(&submit.attributes);
        let tested = engine.submit(
            path,
            &RequestDemand::of(&submit),
            &mut NamedDecisions { request_ids, sink },
        );
        let Submit { id, attributes, .. } = *submit;
        match tested {
            Ok(handle) => {
                sink.accepted(handle, &id);
                request_ids.insert_hashed(handle, RequestEntry { id, attributes }, hash);
            }
            Err(SubmitRejection { reason, limit }) => reject(sink, id, reason, limit),
        }
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> u64 {
        self.engine.waiting()
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.engine.in_flight()
    }

    /// Returns the greatest number of requests that may be in flight at once.
    pub fn capacity(&self) -> u64 {
        self.engine.capacity
    }

    /// Returns the policy that the pool uses now.
    pub fn policy(&self) -> &Policy {
        &self.engine.policy
    }

    /// Returns the time of the last event.
    pub fn now(&self) -> Micros {
        self.engine.now
    }

    /// Returns the number of granted requests that have ended.
    pub fn ticks(&self) -> Ticks {
        self.engine.ticks
    }

    /// Returns the next time at which the pool changes without an event. That is the time when a request expires, a
    /// request becomes late in a queue with a longest wait, a worker's rate allows a request again, or a worker's pause
    /// ends; `None` if no such time is known. A caller that applies a tick at that time misses nothing in between, and
    /// needs no other timer.
    pub fn next_change(&self) -> Option<Micros> {
        self.engine.next_change()
    }
}

fn reject(
    sink: &mut impl DecisionSink,
    id: Arc<str>,
    reason: RejectionReason,
    limit: Option<RejectionLimit>,
) {
    sink.decided(Decision::Reject(RejectedRequest { request: None, id, reason, limit }));
}
