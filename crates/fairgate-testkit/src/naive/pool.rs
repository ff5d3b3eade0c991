//! The pool, with one method for each kind of event.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::decision::RejectionReason;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange, WorkerState};
use fairgate_core::policy::Policy;
use fairgate_core::units::Micros;

use super::branches::RuleBranch;
use super::compared_decision::ComparedDecision;
use super::request::{NaiveRequest, input_of};
use super::state::{NaiveInFlight, NaiveState, PerFlow};
use super::tree::NaiveNode;

/// A pool that decides exactly as the replay rules say, without regard to speed.
#[derive(Clone, Debug)]
pub struct NaivePool {
    /// Configuration at the creation of the pool. Events do not change it.
    config: PoolConfig,
    world: NaiveState,
    root: NaiveNode,
    /// Sequence number that the next accepted submit gets.
    next_seq: u64,
    decided: Vec<ComparedDecision>,
}

impl NaivePool {
    /// Creates a pool that has had no event.
    pub fn new(config: PoolConfig) -> Self {
        let mut world = NaiveState::new(config.capacity);
        for worker in &config.workers {
            world.change_worker(worker);
        }
        let root = NaiveNode::new(config.policy.root());
        Self { config, world, root, next_seq: 0, decided: Vec::new() }
    }

    /// Returns the queued requests, in seq order.
    pub fn waiting(&self) -> Vec<Arc<NaiveRequest>> {
        let mut waiting: Vec<_> = self.root.waiting().into_iter().map(Arc::clone).collect();
        waiting.sort_by_key(|request| request.seq);
        waiting
    }

    /// Returns the requests in flight, in the order in which they were granted.
    pub fn in_flight(&self) -> Vec<Arc<NaiveRequest>> {
        self.world.in_flight.iter().map(|it| Arc::clone(&it.request)).collect()
    }

    /// Returns the number of requests that may be in flight now.
    pub fn capacity(&self) -> u64 {
        self.world.capacity
    }

    /// Returns the pool's tick counter, which rises with each end of a granted request.
    pub fn ticks(&self) -> u64 {
        self.world.ticks
    }

    /// Returns the count of each branch of the rules so far.
    pub fn branches(&self) -> BTreeMap<RuleBranch, u64> {
        self.world.branches.counts()
    }

    /// Applies one event and returns its decisions in order: "(1) waiting requests whose deadline
    /// is at or before `at` expire, lowest seq first; (2) the event is applied; (3) while fewer
    /// requests are in flight than `capacity`, the policy picks a request and it is granted; until
    /// it picks none."
    pub fn apply(&mut self, at: Micros, event: &Event) -> Vec<ComparedDecision> {
        // Levels rise "before anything else of an event".
        self.world.let_time_pass(at.0);
        self.expire(at);
        self.look();
        self.apply_event(at, event);
        self.look();
        while self.has_free_slot() {
            if !self.grant_next(at) {
                break;
            }
            self.look();
        }
        std::mem::take(&mut self.decided)
    }

    fn has_free_slot(&self) -> bool {
        (self.world.in_flight.len() as u128) < u128::from(self.world.capacity)
    }

    /// Updates in all nodes which flows wait and which are ready: "innermost nodes first, after
    /// each expiry step (also where nothing can expire), each event, and each grant".
    fn look(&mut self) {
        self.root.look(&self.world, self.config.busy);
    }

    fn expire(&mut self, at: Micros) {
        for request in self.waiting() {
            if request.deadline.is_some_and(|deadline| deadline <= u128::from(at.0)) {
                self.root.leave(&request);
                self.note_expiry(&request);
                self.decided.push(ComparedDecision::Expire { id: request.submit.id.clone() });
            }
        }
    }

    /// Counts the timeout that makes a request expire: its own or the pool's.
    fn note_expiry(&self, request: &NaiveRequest) {
        let branches = &self.world.branches;
        match (request.submit.timeout, self.config.queue_timeout) {
            (Some(own), pools) if pools.is_none_or(|pools| own < pools) => {
                branches.note(RuleBranch::ExpiredByOwnTimeout);
            }
            (Some(own), Some(pools)) if pools < own => {
                branches.note(RuleBranch::ExpiredByPoolTimeout)
            }
            _ => {}
        }
        if request.submit.timeout == Some(Micros(0)) {
            branches.note(RuleBranch::ExpiredWithTimeoutZero);
        }
    }

    fn apply_event(&mut self, at: Micros, event: &Event) {
        match event {
            Event::Submit(submit) => self.submit(at, submit),
            Event::Release { id, tokens, quota } => {
                let tokens = tokens.map(|tokens| tokens.0);
                self.end(id, tokens, quota.map(|quota| quota.0).or(tokens));
            }
            Event::Cancel { id } => self.cancel(id),
            Event::Hold { by, flow } => self.world.holds.set(*by, flow, ()),
            Event::Resume { by, flow } => self.world.holds.unset(*by, flow),
            Event::Capacity { slots } => self.world.capacity = *slots,
            Event::Tick => {}
            Event::Weight { by, flow, weight } => {
                self.root.before_weight_change(*by, flow, &self.world);
                self.world.weights.set(*by, flow, weight.get());
            }
            Event::Policy(policy) => self.change_policy(policy),
            Event::Cap { by, flow, slots } => self.world.caps.set(*by, flow, *slots),
            Event::Worker(change) => self.change_worker(change),
            Event::FirstToken { id } => self.first_token(id),
        }
    }

    /// Applies a submit. The reasons for a rejection are checked in this order: duplicate, `no_worker` (no eligible
    /// place), `overloaded` (all eligible places are overloaded), class limits, full queue.
    fn submit(&mut self, at: Micros, submit: &Submit) {
        let request = Arc::new(self.request(at, submit));
        match self.refusal(&request) {
            Some(reason) => self.reject(&request, reason),
            None => self.accept(&request),
        }
    }

    /// Builds the request of a submit, with default values for absent fields.
    fn request(&self, at: Micros, submit: &Submit) -> NaiveRequest {
        let input = input_of(submit);
        let cached = self.world.most_cached(submit);
        let cost = submit.cost.map_or(input - cached, |cost| cost.0).max(1);
        let tick = self.world.ticks;
        // "Its deadline is its `at` plus the lesser of `timeout_us` and `queue_timeout_us`, where either is given."
        let timeout = match (submit.timeout, self.config.queue_timeout) {
            (Some(own), Some(pools)) => Some(own.min(pools)),
            (own, pools) => own.or(pools),
        };
        let deadline = timeout.map(|timeout| u128::from(at.0) + u128::from(timeout.0));
        NaiveRequest {
            submit: submit.clone(),
            seq: self.next_seq,
            at,
            tick,
            input,
            cached,
            cost,
            deadline,
        }
    }

    /// Returns the reason to reject a submit, apart from a full queue; `None` if there is no such
    /// reason.
    fn refusal(&self, request: &NaiveRequest) -> Option<RejectionReason> {
        let mut known = self.waiting();
        known.extend(self.in_flight());
        if known.iter().any(|other| other.submit.id == request.submit.id) {
            return Some(RejectionReason::Duplicate);
        }
        self.world.workers.as_ref()?;
        if self.world.eligible(&request.submit).next().is_none() {
            return Some(RejectionReason::NoWorker);
        }
        if self.world.is_overloaded(&request.submit) {
            return Some(RejectionReason::Overloaded);
        }
        self.root.limit_reached(request, self.world.workers_taking())
    }

    /// Accepts a request. If the queue is full, one request must leave it. The queue is full if
    /// `max_queue` requests wait, except if no request waits and a slot is free.
    fn accept(&mut self, request: &Arc<NaiveRequest>) {
        let waiting = self.waiting().len() as u128;
        let full = self.config.max_queue.is_some_and(|max| waiting >= u128::from(max));
        if !full || (waiting == 0 && self.has_free_slot()) {
            self.enter(request);
            return;
        }
        let victim = self.root.victim(Some(request));
        if victim.seq == request.seq {
            self.reject(request, RejectionReason::QueueFull);
        } else {
            self.enter(request);
            self.root.leave(&victim);
            self.reject(&victim, RejectionReason::PushedOut);
        }
    }

    fn enter(&mut self, request: &Arc<NaiveRequest>) {
        self.root.enter(request);
        self.next_seq += 1;
    }

    fn reject(&mut self, request: &NaiveRequest, reason: RejectionReason) {
        self.decided.push(ComparedDecision::Reject { id: request.submit.id.clone(), reason });
    }

    /// Cancels a request. A granted request ends as with a release without tokens; a queued request leaves its queue
    /// without a charge.
    fn cancel(&mut self, id: &str) {
        let waiting = self.waiting().into_iter().find(|request| *request.submit.id == *id);
        match waiting {
            Some(request) => self.root.leave(&request),
            None => self.end(id, None, None),
        }
    }

    /// Ends a granted request; an id that is not in flight is ignored. "The tick counter rises by one on
    /// each release and on each cancel of a granted request, after the request has left and before the
    /// next pick."
    fn end(&mut self, id: &str, tokens: Option<u64>, quota: Option<u64>) {
        let index = self.world.in_flight.iter().position(|it| *it.request.submit.id == *id);
        let Some(index) = index else { return };
        let ended = self.world.in_flight.remove(index);
        if let Some(worker) = ended.place.and_then(|place| self.world.worker_at(place)) {
            worker.settle(ended.taken, quota);
        }
        self.root.end(&ended.request, tokens);
        self.world.ticks += 1;
        self.root.tune(self.world.ticks);
    }

    /// Replaces the policy tree. The counters of the new tree start at 0, weights and caps of earlier events are
    /// forgotten, and holds stay. Waiting requests enter the new tree in seq order; requests in flight count as in
    /// flight in their new flows.
    fn change_policy(&mut self, policy: &Policy) {
        let waiting = self.waiting();
        self.root = NaiveNode::new(policy.root());
        self.world.weights = PerFlow::new();
        self.world.caps = PerFlow::new();
        for it in &mut self.world.in_flight {
            self.root.adopt(&it.request);
            it.flows = self.root.path(&it.request);
        }
        for request in waiting {
            self.root.enter(&request);
        }
    }

    /// Changes a worker. Then, before any pick, each waiting request that has no eligible place any more is rejected
    /// with `no_worker`, in seq order.
    fn change_worker(&mut self, change: &WorkerChange) {
        // "Gone for an unknown name is ignored: it names no worker and nobody is rejected."
        let known = self.world.knows_worker(&change.name);
        if change.state == Some(WorkerState::Gone) && !known {
            if !self.waiting().is_empty() {
                self.world.branches.note(RuleBranch::UnknownWorkerGone);
            }
            return;
        }
        self.world.change_worker(change);
        if self.world.workers.is_none() {
            return;
        }
        for request in self.waiting() {
            if self.world.eligible(&request.submit).next().is_none() {
                self.root.leave(&request);
                self.reject(&request, RejectionReason::NoWorker);
            }
        }
    }

    /// Sets the prefill tokens of a request to 0, so that they no longer count at its place.
    fn first_token(&mut self, id: &str) {
        for it in &mut self.world.in_flight {
            if *it.request.submit.id == *id {
                it.prefill = 0;
            }
        }
    }

    /// Grants the request that the policy picks next. Returns false if the policy picks no request.
    fn grant_next(&mut self, at: Micros) -> bool {
        let Some(pick) = self.root.pick(&self.world, self.config.busy) else { return false };
        let request = pick.request;
        if request.submit.timeout == Some(Micros(0)) {
            self.world.branches.note(RuleBranch::GrantedWithTimeoutZero);
        }
        let place = self.place(&request);
        self.root.dispatch(&request, &pick.steps, &self.world, self.config.busy);
        let waited = at.0 - request.at.0;
        let brownout = self.config.brownout_wait.map(|limit| waited > limit.0);
        self.decided.push(ComparedDecision::Grant {
            id: request.submit.id.clone(),
            brownout,
            place,
        });
        true
    }

    /// Assigns a granted request to a worker, if the pool has any: "the place counts it before
    /// anything else looks at the next head".
    fn place(&mut self, request: &Arc<NaiveRequest>) -> Option<(String, u32)> {
        let busy = self.root.busy_of(request, self.config.busy);
        let chosen = self.world.choose_place(request, busy, self.config.overlap_credit);
        let chosen = chosen.map(|(worker, place)| (worker.name.to_string(), place));
        let place = chosen.as_ref().map(|(_, place)| *place);
        let worker = place.and_then(|place| self.world.worker_at(place));
        let taken = worker.and_then(|worker| worker.take(request.quota()));
        self.world.granted_places.extend(place);
        let prefill = |(name, _): &(String, _)| request.input - request.cached_on(name);
        self.world.in_flight.push(NaiveInFlight {
            request: Arc::clone(request),
            flows: self.root.path(request),
            place,
            prefill: chosen.as_ref().map_or(0, prefill),
            taken,
        });
        chosen.map(|(name, place)| (name, place.rank))
    }
}
