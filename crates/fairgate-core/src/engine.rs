//! The state machine of a pool, (state, now, event) → decisions, with handles and indexes instead of names.
//!
//! A [`PoolEngine`] knows requests by their [`RequestHandle`]s and flows by the queue at the end of a request's path.
//! Ids and attributes belong to the layer above; callers that have names use [`Pool`](crate::Pool).
//!
//! Each event takes three calls, in this order: [`PoolEngine::begin`] sets the time and expires requests past their
//! timeout; then one method applies the event; then [`PoolEngine::finish`] grants the free slots. A *look* at the tree
//! brings the readiness of its flows up to date (see `arbiter.rs`). In detail:
//!
//! 1. Time passes: rates fill, pauses end, requests become late. Requests whose deadline has come expire, lowest seq
//!    first. Then comes a look.
//! 2. The event is applied. Then comes a look.
//! 3. While a slot is free and the root has a head, that head is charged at every level, placed on a worker and
//!    granted. After each grant comes a look.
//!
//! Readiness is updated at these looks only. This is a rule and not an optimisation: a flow that is ready for a moment
//! in the middle of a step must not count as having been ready, because that would change its lag.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attribute, Attributes};
use crate::decision::{RejectionLimit, RejectionReason, TimeWentBackError};
use crate::event::{Pin, PoolConfig, Submit, WorkerChange};
use crate::explain::GrantExplanation;
use crate::flow_names::FlowNames;
use crate::full_queue::EvictionVictim;
use crate::policy::{BusyThresholds, Policy};
use crate::requests::{CachedAt, PoolRequestState, RequestHandle, RequestTable, SubmitSeq};
use crate::tree::PolicyTree;
use crate::units::{Micros, OverlapCredit, TaskWeight, Ticks, Tokens, Weight};
use crate::workers::{ANY_WORKER, PoolWorkers, WorkerConstraints, WorkerEligibility, WorkerRank};

/// A pool of slots with its queued requests and its requests in flight. Requests are known by handle, flows by index
/// and workers by number.
#[derive(Clone, Debug)]
pub struct PoolEngine {
    pub(crate) limits: PoolLimits,
    pub(crate) capacity: u64,
    pub(crate) policy: Policy,
    pub(crate) now: Micros,
    pub(crate) ticks: Ticks,
    pub(crate) next_seq: u64,
    pub(crate) grants: u64,
    pub(crate) requests: RequestTable,
    pub(crate) workers: PoolWorkers,
    pub(crate) tree: PolicyTree,
}

/// The settings of a pool that no event changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    pub(crate) max_queue: Option<u64>,
    pub(crate) queue_timeout: Option<Micros>,
    pub(crate) brownout_wait: Option<Micros>,
    pub(crate) busy: BusyThresholds,
    pub(crate) overlap_credit: OverlapCredit,
}

/// A request's path through the policy tree, resolved to the queue at its end. The value is valid only within the event
/// in which it was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePath(pub(crate) u32);

/// The size of one request and the workers that may run it, without its id and attributes.
#[derive(Clone, Copy, Debug)]
pub struct RequestDemand<'a> {
    /// Stated cost in tokens. If absent, the cost is the number of input tokens minus the number that the eligible
    /// worker with the most cached tokens has cached, but at least 1.
    pub cost: Option<Tokens>,
    /// Priority of the request; within its queue, a request with a higher priority goes first.
    pub priority: i64,
    /// Weight of the request in the queue depth of a `load` node.
    pub weight: TaskWeight,
    /// Input tokens, including cached ones. If absent, the stated cost is used instead, and 1 if there is no stated
    /// cost either.
    pub input: Option<Tokens>,
    /// Tokens that the request takes from its worker's token rate; the request's cost if absent.
    pub quota: Option<Tokens>,
    /// Longest time the request may wait. If the pool has a queue timeout too, the shorter of the two applies.
    pub timeout: Option<Micros>,
    /// Number of the request's input tokens that each worker has cached.
    pub cached: &'a [(Arc<str>, Tokens)],
    /// The one worker, and optionally the one rank, that must run the request; any worker if absent.
    pub pin: Option<&'a Pin>,
    /// The workers that may run the request; all workers if absent.
    pub allow: Option<&'a [Box<str>]>,
    /// The taints that a worker must have to run the request; empty if none is required.
    pub requires: &'a [Box<str>],
}

impl<'a> RequestDemand<'a> {
    /// Creates a demand with this cost that any worker may take.
    pub fn new(cost: Tokens) -> Self {
        Self {
            cost: Some(cost),
            priority: 0,
            weight: TaskWeight::ONE,
            input: None,
            quota: None,
            timeout: None,
            cached: &[],
            pin: None,
            allow: None,
            requires: &[],
        }
    }

    /// Returns the demand that a submit states.
    pub fn of(submit: &'a Submit) -> Self {
        Self {
            cost: submit.cost,
            priority: submit.priority,
            weight: submit.weight,
            input: submit.input,
            quota: submit.quota,
            timeout: submit.timeout,
            cached: &submit.cached,
            pin: submit.pin.as_ref(),
            allow: submit.allow.as_deref(),
            requires: &submit.requires,
        }
    }

    fn is_unconstrained(&self) -> bool {
        self.pin.is_none() && self.allow.is_none() && self.requires.is_empty()
    }

    fn want(&self) -> WorkerConstraints {
        let want = WorkerConstraints {
            pin: self.pin.cloned(),
            allow: self.allow.map(Vec::from),
            requires: Vec::from(self.requires),
        };
        want.sorted()
    }
}

/// A decision of a [`PoolEngine`] about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineDecision {
    /// The request gets a slot.
    Grant {
        /// Tokens that the request is charged at its grant, before its real usage is known.
        cost: Tokens,
        /// Time from the submit to the grant, in microseconds.
        waited: Micros,
        /// True if the request waited longer than the pool's brownout wait; `None` if the pool has no brownout wait.
        brownout: Option<bool>,
        /// The number of the worker, by which [`WorkerNames`] finds its name, and the rank; `None` if the pool has no
        /// workers.
        place: Option<(u32, u32)>,
        /// The numbers that decided the grant; `None` unless [`EngineDecisionSink::wants_why`] returned true for the
        /// request.
        why: Option<Box<GrantExplanation>>,
    },
    /// The request is refused although it was accepted before. The engine has forgotten the request.
    Reject {
        /// The test that the request did not pass.
        reason: RejectionReason,
        /// The limit that was reached; `None` if the request was refused for another reason than a limit.
        limit: Option<RejectionLimit>,
    },
    /// The request has waited past its timeout. The engine has forgotten the request.
    Expire,
}

/// Receiver of the decisions of an engine.
pub trait EngineDecisionSink {
    /// Receives one decision about a request. After [`EngineDecision::Reject`] and [`EngineDecision::Expire`] the
    /// handle is free for another request.
    fn decided(
        &mut self,
        request: RequestHandle,
        decision: EngineDecision,
        workers: &WorkerNames<'_>,
    );

    /// Returns true if this request's grant should carry its [`GrantExplanation`].
    fn wants_why(&self, _request: RequestHandle) -> bool {
        false
    }
}

/// Looks up the names of workers by their numbers.
#[derive(Debug)]
pub struct WorkerNames<'a>(pub(crate) &'a PoolWorkers);

impl WorkerNames<'_> {
    /// Returns the name of a worker, or `None` if the worker is gone.
    pub fn get(&self, worker: u32) -> Option<alloc::sync::Arc<str>> {
        self.0.list.get(&worker).map(|worker| worker.name.clone())
    }
}

/// A submit that was refused, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitRejection {
    /// The test that the request did not pass.
    pub reason: RejectionReason,
    /// The limit that was reached; `None` if the request was refused for another reason than a limit.
    pub limit: Option<RejectionLimit>,
}

/// Returns the cached tokens sorted by worker name. If a worker is named twice, the larger number is kept.
fn cached_at(stated: &[(Arc<str>, Tokens)]) -> CachedAt {
    let mut cached = stated.to_vec();
    cached.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    cached.dedup_by(|b, a| a.0 == b.0);
    cached
}

/// Builds the present [`ArbiterContext`](crate::arbiter::ArbiterContext). A macro borrows only those fields of the
/// engine that the context contains.
macro_rules! context {
    ($engine:ident) => {
        $crate::arbiter::ArbiterContext {
            requests: &$engine.requests,
            now: $engine.now,
            ticks: $engine.ticks,
            capacity: $engine.capacity,
        }
    };
}
pub(crate) use context;

impl PoolEngine {
    /// Creates an empty pool at time 0.
    pub fn new(config: PoolConfig) -> Self {
        let limits = PoolLimits {
            max_queue: config.max_queue,
            queue_timeout: config.queue_timeout,
            brownout_wait: config.brownout_wait,
            busy: config.busy,
            overlap_credit: config.overlap_credit,
        };
        let bounded = config.max_queue.is_some();
        let tree = PolicyTree::new(&config.policy, config.busy, FlowNames::default(), bounded);
        let mut workers = PoolWorkers::new();
        for worker in &config.workers {
            workers.change(worker, Micros(0));
        }
        Self {
            limits,
            capacity: config.capacity,
            policy: config.policy,
            now: Micros(0),
            ticks: Ticks(0),
            next_seq: 0,
            grants: 0,
            requests: RequestTable::new(),
            workers,
            tree,
        }
    }

    /// Sets the time and expires requests past their timeout. Call this at the beginning of every event.
    pub fn begin(
        &mut self,
        at: Micros,
        out: &mut impl EngineDecisionSink,
    ) -> Result<(), TimeWentBackError> {
        if at < self.now {
            return Err(TimeWentBackError { now: self.now, at });
        }
        self.now = at;
        if self.workers.has_workers {
            self.workers.advance(at);
        }
        if self.tree.has_timers() {
            self.tree.advance(at);
        }
        if self.limits.queue_timeout.is_some() || self.requests.has_deadlines() {
            self.expire(out);
        }
        self.look();
        Ok(())
    }

    /// Grants the free slots. Call this at the end of every event.
    #[inline]
    pub fn finish(&mut self, out: &mut impl EngineDecisionSink) {
        self.look();
        if self.requests.in_flight() < self.capacity {
            self.grant_free(out);
        }
        if self.tree.has_emptied() {
            self.tree.forget(&mut self.workers);
        }
    }

    /// Grants slots while a slot is free and a request may have it.
    #[inline(never)]
    fn grant_free(&mut self, out: &mut impl EngineDecisionSink) {
        while self.requests.in_flight() < self.capacity && !self.workers.all_blocked() {
            let Some(head) = self.tree.head(context!(self)) else { break };
            self.grant(head.request, out);
            self.look();
        }
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> u64 {
        self.requests.waiting()
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u64 {
        self.requests.in_flight()
    }

    /// Returns the greatest number of requests that may be in flight at once.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the next time at which something changes without an event. That is the time when a request expires, a
    /// request becomes late in a queue with a longest wait, a worker's rate allows a request again, or a worker's pause
    /// ends; `None` if no such time is known. A caller that applies a tick at that time misses nothing in between.
    pub fn next_change(&self) -> Option<Micros> {
        // A time past the range of `Micros` is never reached.
        let expiry = self.next_expiry().and_then(|at| u64::try_from(at).ok()).map(Micros);
        let waits = self.requests.waiting() > 0;
        let worker = self.workers.next_timer().filter(|_| waits);
        [expiry, self.tree.next_timer(), worker].into_iter().flatten().min()
    }

    #[inline]
    fn look(&mut self) {
        if self.tree.is_marked(&self.workers) {
            self.tree.look(&mut self.workers, context!(self));
        }
    }

    fn expire(&mut self, out: &mut impl EngineDecisionSink) {
        if self.next_expiry().is_none_or(|at| at > u128::from(self.now.0)) {
            return;
        }
        for handle in self.requests.expired(self.now, self.limits.queue_timeout) {
            self.withdraw(handle);
            out.decided(handle, EngineDecision::Expire, &WorkerNames(&self.workers));
        }
    }

    /// Returns the earliest time at which a waiting request expires, in microseconds; `None` if no waiting request
    /// expires.
    #[inline]
    fn next_expiry(&self) -> Option<u128> {
        let oldest = self.requests.oldest_waiting().zip(self.limits.queue_timeout);
        let of_oldest = oldest.map(|(oldest, timeout)| {
            u128::from(self.requests.get(oldest).at.0) + u128::from(timeout.0)
        });
        let noted = self.requests.earliest_deadline();
        of_oldest.into_iter().chain(noted).min()
    }

    /// Resolves the path of a request with these attributes. The result is valid within this event only.
    pub fn path(&mut self, attributes: &Attributes) -> QueuePath {
        QueuePath(self.tree.queue_for(attributes))
    }

    /// Submits a request, which is then either accepted and waits, or refused. Keep the returned handle: no other
    /// method finds the request later.
    pub fn submit(
        &mut self,
        path: QueuePath,
        demand: &RequestDemand<'_>,
        out: &mut impl EngineDecisionSink,
    ) -> Result<RequestHandle, SubmitRejection> {
        let stated = (!demand.is_unconstrained()).then(|| demand.want());
        let want = stated.as_ref().unwrap_or(&ANY_WORKER);
        let mut request = self.request(path, demand, want);
        let tested = self.check_admission(path, &request, want);
        if tested.is_err() {
            // If the path was created for this request only, it can be forgotten again.
            self.tree.emptied.push(self.tree.queues[path.0 as usize].flow);
        }
        let victim = tested?;
        request.want = self.workers.intern(want);
        let handle = self.accept(request);
        if let Some(victim) = victim {
            self.withdraw(victim);
            let decision = EngineDecision::Reject {
                reason: RejectionReason::PushedOut,
                limit: self.queue_limit(),
            };
            out.decided(victim, decision, &WorkerNames(&self.workers));
        }
        Ok(handle)
    }

    /// Checks whether a request may enter the queue. If the queue is full, returns the waiting request that must leave
    /// to make room.
    #[inline]
    fn check_admission(
        &self,
        path: QueuePath,
        newcomer: &PoolRequestState,
        want: &WorkerConstraints,
    ) -> Result<Option<RequestHandle>, SubmitRejection> {
        if self.workers.has_workers {
            let refused = |reason| Err(SubmitRejection { reason, limit: None });
            match self.workers.eligible(want) {
                WorkerEligibility::Nowhere => return refused(RejectionReason::NoWorker),
                WorkerEligibility::OnlyOverloaded => return refused(RejectionReason::Overloaded),
                WorkerEligibility::Somewhere => {}
            }
            if let Some((reason, limit)) = self.tree.class_limit(path.0, &self.workers) {
                return Err(SubmitRejection { reason, limit: Some(limit) });
            }
        }
        match self.victim(path, newcomer) {
            None => Ok(None),
            Some(EvictionVictim::Waiting(handle)) => Ok(Some(handle)),
            Some(EvictionVictim::Newcomer) => Err(SubmitRejection {
                reason: RejectionReason::QueueFull,
                limit: self.queue_limit(),
            }),
        }
    }

    fn queue_limit(&self) -> Option<RejectionLimit> {
        let limit = u128::from(self.limits.max_queue?);
        Some(RejectionLimit { class: None, current: u128::from(self.waiting()), limit })
    }

    /// Returns the request that must leave because the queue is full, which can be the newcomer itself. Returns `None`
    /// if the queue is not full, or if no request waits and a slot is free.
    #[inline]
    fn victim(&self, path: QueuePath, newcomer: &PoolRequestState) -> Option<EvictionVictim> {
        let full = self.waiting() >= self.limits.max_queue?;
        let passes = self.waiting() == 0 && self.in_flight() < self.capacity;
        (full && !passes).then(|| self.tree.victim(path.0, newcomer, &self.requests))
    }

    #[inline]
    fn request(
        &self,
        path: QueuePath,
        demand: &RequestDemand<'_>,
        want: &WorkerConstraints,
    ) -> PoolRequestState {
        let mut request = PoolRequestState::new(SubmitSeq(self.next_seq), self.now, self.ticks);
        request.queue = path.0;
        request.priority = demand.priority;
        request.weight = demand.weight;
        request.input = demand.input.or(demand.cost).unwrap_or(Tokens(1));
        if !demand.cached.is_empty() {
            self.note_cached(&mut request, demand.cached, want);
        }
        let uncached = Tokens(request.input.0 - request.cached_best.0);
        request.cost = demand.cost.unwrap_or(uncached).max(Tokens(1));
        request.quota = demand.quota.unwrap_or(request.cost);
        request.timeout = match (demand.timeout, self.limits.queue_timeout) {
            (Some(own), Some(pool)) => Some(own.min(pool)),
            (own, pool) => own.or(pool),
        };
        request
    }

    #[inline(never)]
    fn note_cached(
        &self,
        request: &mut PoolRequestState,
        cached: &[(Arc<str>, Tokens)],
        want: &WorkerConstraints,
    ) {
        request.cached = Some(Box::new(cached_at(cached)));
        request.cached_best = self.workers.most_cached(want, request);
    }

    #[inline]
    fn accept(&mut self, request: PoolRequestState) -> RequestHandle {
        self.next_seq += 1;
        self.workers.starts_to_wait(request.want);
        let timeout = request.timeout;
        let handle = self.tree.accept(request, &mut self.requests, self.now);
        if timeout != self.limits.queue_timeout {
            self.requests.note_deadline(handle);
        }
        handle
    }

    /// Removes a waiting request without charging its flows.
    fn withdraw(&mut self, handle: RequestHandle) {
        self.tree.leave(handle, &mut self.requests, self.now);
        self.requests.stop_waiting(handle);
        let want = self.requests.get(handle).want;
        self.requests.remove(handle);
        self.workers.stops_waiting(want);
        self.workers.release_want(want);
    }

    /// Ends a granted request. `tokens` is the real usage, and `quota` is the number of tokens that the request took
    /// from its worker's token rate; each is `None` if unknown. Does nothing to a request that still waits. Returns
    /// true if the request was in flight and has now ended.
    pub fn release(
        &mut self,
        handle: RequestHandle,
        tokens: Option<Tokens>,
        quota: Option<Tokens>,
    ) -> bool {
        let Some(request) = self.requests.find(handle) else { return false };
        let Some(flight) = self.requests.flight_of(request) else { return false };
        let used = tokens.map_or(request.cost, |tokens| tokens.max(Tokens(1)));
        self.tree.end_request(request, flight, used, self.now);
        self.workers.release_want(request.want);
        if let Some(place) = flight.place {
            self.workers.remove_request(place, flight.prefill);
            if let Some((taken, quota)) = flight.taken.zip(quota.or(tokens)) {
                self.workers.correct_token_rate(place.worker, taken, quota, self.now);
            }
        }
        self.requests.end_flight(handle);
        self.ticks.0 += 1;
        self.tree.tick(self.ticks);
        true
    }

    /// Cancels a request. A waiting request leaves without being charged, and a granted request ends without a known
    /// usage. Returns true if a request had this handle.
    pub fn cancel(&mut self, handle: RequestHandle) -> bool {
        if !self.requests.is_live(handle) {
            return false;
        }
        if self.requests.get(handle).is_in_flight() {
            return self.release(handle, None, None);
        }
        self.withdraw(handle);
        true
    }

    /// Reports that a request in flight has produced its first token, so that its prefill tokens no longer count at its
    /// worker.
    pub fn first_token(&mut self, handle: RequestHandle) {
        if !self.requests.is_live(handle) {
            return;
        }
        let Some(flight) = self.requests.flight_mut(handle) else { return };
        let prefill = core::mem::take(&mut flight.prefill);
        if let Some(place) = flight.place {
            self.workers.finish_prefill(place, prefill);
        }
    }

    /// Holds a flow, which then dispatches nothing, or lets a held flow continue. Applies to every flow with this name.
    pub fn set_held(&mut self, by: Attribute, flow: &str, held: bool) {
        self.tree.set_held(by, flow, held);
    }

    /// Changes the weight of a flow, or the quantum of a drr class. Applies to every flow with this name.
    pub fn set_weight(&mut self, by: Attribute, flow: &str, weight: Weight) {
        self.tree.set_weight(by, flow, weight);
    }

    /// Changes the cap of a flow; `None` removes the cap. Applies to every flow with this name.
    pub fn set_cap(&mut self, by: Attribute, flow: &str, slots: Option<u64>) {
        self.tree.set_cap(by, flow, slots, &self.requests, self.now);
    }

    /// Changes the number of slots of the pool, which limits the requests in flight.
    pub fn set_capacity(&mut self, slots: u64) {
        self.capacity = slots;
        self.tree.capacity_changed();
    }

    /// Applies a worker's arrival, change or departure. Rejects the waiting requests that no worker may take any more.
    /// The departure of an unknown worker changes nothing.
    pub fn change_worker(&mut self, change: &WorkerChange, out: &mut impl EngineDecisionSink) {
        if self.workers.change(change, self.now) {
            self.tree.mark_all_queues();
        }
        if !self.workers.has_workers {
            return;
        }
        let hopeless = self.workers.unservable_wants();
        if hopeless.is_empty() {
            return;
        }
        let lost: Vec<RequestHandle> = self
            .requests
            .waiting_handles()
            .filter(|handle| hopeless.contains(&self.requests.get(*handle).want))
            .collect();
        for handle in lost {
            self.withdraw(handle);
            let decision =
                EngineDecision::Reject { reason: RejectionReason::NoWorker, limit: None };
            out.decided(handle, decision, &WorkerNames(&self.workers));
        }
    }

    /// Replaces the policy tree. Held flows stay held, waiting requests enter the new tree in order of arrival, and
    /// requests in flight count in the new tree without being charged there. `attributes` must return the attributes of
    /// the request with a given handle.
    pub fn replace_policy<'a>(
        &mut self,
        policy: Policy,
        attributes: impl Fn(RequestHandle) -> &'a Attributes,
    ) {
        let mut names = FlowNames::default();
        for ((by, text), name) in self.tree.names.with_directives() {
            if name.directive.held {
                let number = names.intern(by, &text);
                names.list[number as usize].directive.held = true;
            }
        }
        self.workers.forget_watchers();
        let bounded = self.limits.max_queue.is_some();
        self.tree = PolicyTree::new(&policy, self.limits.busy, names, bounded);
        self.policy = policy;
        // Waiting requests enter first, because flows start to wait in the order in which they are marked.
        let waiting: Vec<RequestHandle> = self.requests.waiting_handles().collect();
        for handle in waiting {
            let queue = self.tree.queue_for(attributes(handle));
            self.requests.get_mut(handle).queue = queue;
            self.tree.enter(handle, queue, &mut self.requests, self.now);
        }
        for handle in self.requests.handles_in_flight() {
            let queue = self.tree.queue_for(attributes(handle));
            self.requests.get_mut(handle).queue = queue;
            self.tree.enter_in_flight(queue, self.now);
            if let Some(flight) = self.requests.flight_mut(handle) {
                flight.charged = false;
            }
        }
    }

    fn grant(&mut self, handle: RequestHandle, out: &mut impl EngineDecisionSink) {
        let why = out.wants_why(handle).then(|| Box::new(self.why(handle)));
        // The place is chosen before the tree is charged. The worker counts the request before any look at the next
        // head.
        let place = if self.workers.has_workers { self.place(handle) } else { None };
        let (request, flight) = self.tree.dispatch(handle, &mut self.requests, self.now);
        self.workers.stops_waiting(request.want);
        flight.granted_at = self.now;
        flight.number = self.grants;
        flight.place = place;
        match place {
            Some(place) => {
                (flight.prefill, flight.taken) =
                    self.workers.add_request(place, request, self.grants, self.now);
            }
            None => (flight.prefill, flight.taken) = (Tokens(0), None),
        }
        let waited = Micros(self.now.0 - request.at.0);
        let cost = request.cost;
        self.grants += 1;
        let decision = EngineDecision::Grant {
            cost,
            waited,
            brownout: self.limits.brownout_wait.map(|limit| waited > limit),
            place: place.map(|place| (place.worker, place.rank)),
            why,
        };
        out.decided(handle, decision, &WorkerNames(&self.workers));
    }

    fn place(&self, handle: RequestHandle) -> Option<WorkerRank> {
        let request = self.requests.get(handle);
        let busy = self.tree.queues[request.queue as usize].busy;
        self.workers.choose(request, busy, self.limits.overlap_credit)
    }
}
