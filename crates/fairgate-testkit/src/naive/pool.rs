//! The pool: how each event is handled.

use std::sync::Arc;

use fairgate_core::decision::Reason;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::policy::Policy;
use fairgate_core::units::Micros;

use super::decided::Decided;
use super::request::{Request, input_of};
use super::tree::Node;
use super::world::{InFlight, PerFlow, World};

/// A pool that decides exactly as the replay rules say, and takes all the time it needs.
#[derive(Clone, Debug)]
pub struct NaivePool {
    /// Its capacity, policy and workers are those at the start.
    config: PoolConfig,
    world: World,
    root: Node,
    /// The number of the next accepted submit.
    next_seq: u64,
    decided: Vec<Decided>,
}

impl NaivePool {
    /// A pool before its first event.
    pub fn new(config: PoolConfig) -> Self {
        let mut world = World::new(config.capacity);
        for worker in &config.workers {
            world.change_worker(worker);
        }
        let root = Node::new(config.policy.root());
        Self { config, world, root, next_seq: 0, decided: Vec::new() }
    }

    /// What waits, in seq order.
    pub fn waiting(&self) -> Vec<Arc<Request>> {
        let mut waiting: Vec<_> = self.root.waiting().into_iter().map(Arc::clone).collect();
        waiting.sort_by_key(|request| request.seq);
        waiting
    }

    /// What is in flight, in the order of the grants.
    pub fn in_flight(&self) -> Vec<Arc<Request>> {
        self.world.in_flight.iter().map(|it| Arc::clone(&it.request)).collect()
    }

    /// How many requests may be in flight now.
    pub fn capacity(&self) -> u64 {
        self.world.capacity
    }

    /// The pool's tick counter.
    pub fn ticks(&self) -> u64 {
        self.world.ticks
    }

    /// Handles one event: "(1) requests that have waited `queue_timeout_us` or longer at `at` expire,
    /// oldest first; (2) the event is applied; (3) while fewer requests are in flight than `capacity`, the
    /// policy picks a request and it is granted; until it picks none." What it decided, in that order.
    pub fn apply(&mut self, at: Micros, event: &Event) -> Vec<Decided> {
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

    /// Lets the tree see which flows wait and are ready: "innermost nodes first, after each expiry step
    /// (also where nothing can expire), each event, and each grant".
    fn look(&mut self) {
        self.root.look(&self.world, self.config.busy);
    }

    fn expire(&mut self, at: Micros) {
        let Some(timeout) = self.config.queue_timeout else { return };
        for request in self.waiting() {
            if at.0 - request.at.0 >= timeout.0 {
                self.root.leave(&request);
                self.decided.push(Decided::Expire { id: request.submit.id.clone() });
            }
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

    /// "A submit is tested in this order: duplicate, `no_worker` (no eligible place), `overloaded` (all
    /// eligible places are), class limits, full queue."
    fn submit(&mut self, at: Micros, submit: &Submit) {
        let request = Arc::new(self.request(at, submit));
        match self.refusal(&request) {
            Some(reason) => self.reject(&request, reason),
            None => self.accept(&request),
        }
    }

    /// The request that a submit asks for, with what it leaves out.
    fn request(&self, at: Micros, submit: &Submit) -> Request {
        let input = input_of(submit);
        let cached = self.world.most_cached(submit);
        let cost = submit.cost.map_or(input - cached, |cost| cost.0).max(1);
        let tick = self.world.ticks;
        Request { submit: submit.clone(), seq: self.next_seq, at, tick, input, cached, cost }
    }

    /// Why a submit is refused before anybody must make room.
    fn refusal(&self, request: &Request) -> Option<Reason> {
        let mut known = self.waiting();
        known.extend(self.in_flight());
        if known.iter().any(|other| other.submit.id == request.submit.id) {
            return Some(Reason::Duplicate);
        }
        self.world.workers.as_ref()?;
        if self.world.eligible(&request.submit).next().is_none() {
            return Some(Reason::NoWorker);
        }
        if self.world.is_overloaded(&request.submit) {
            return Some(Reason::Overloaded);
        }
        self.root.limit_reached(request, self.world.workers_taking())
    }

    /// "Full queue: where `max_queue` requests already wait, and not (none waits and a slot is free),
    /// somebody must go."
    fn accept(&mut self, request: &Arc<Request>) {
        let waiting = self.waiting().len() as u128;
        let full = self.config.max_queue.is_some_and(|max| waiting >= u128::from(max));
        if !full || (waiting == 0 && self.has_free_slot()) {
            self.enter(request);
            return;
        }
        let victim = self.root.victim(Some(request));
        if victim.seq == request.seq {
            self.reject(request, Reason::QueueFull);
        } else {
            self.enter(request);
            self.root.leave(&victim);
            self.reject(&victim, Reason::PushedOut);
        }
    }

    fn enter(&mut self, request: &Arc<Request>) {
        self.root.enter(request);
        self.next_seq += 1;
    }

    fn reject(&mut self, request: &Request, reason: Reason) {
        self.decided.push(Decided::Reject { id: request.submit.id.clone(), reason });
    }

    /// "cancel ends a granted request as a release without tokens would, and takes a waiting one out of
    /// its queue, uncharged."
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

    /// "policy puts a new tree in place: its counters start at 0, earlier weight and cap events are
    /// forgotten, holds stay. Waiting requests enter it in seq order; those in flight count as such in
    /// their new flows."
    fn change_policy(&mut self, policy: &Policy) {
        let waiting = self.waiting();
        self.root = Node::new(policy.root());
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

    /// "After a worker event, before any pick, each waiting request that is left without an eligible
    /// place is rejected `no_worker`, in seq order."
    fn change_worker(&mut self, change: &WorkerChange) {
        self.world.change_worker(change);
        if self.world.workers.is_none() {
            return;
        }
        for request in self.waiting() {
            if self.world.eligible(&request.submit).next().is_none() {
                self.root.leave(&request);
                self.reject(&request, Reason::NoWorker);
            }
        }
    }

    /// "first_token takes the request's prefill off, once."
    fn first_token(&mut self, id: &str) {
        for it in &mut self.world.in_flight {
            if *it.request.submit.id == *id {
                it.prefill = 0;
            }
        }
    }

    /// Grants what the policy picks; whether it picked anything.
    fn grant_next(&mut self, at: Micros) -> bool {
        let Some(pick) = self.root.pick(&self.world, self.config.busy) else { return false };
        let request = pick.request;
        let place = self.place(&request);
        self.root.dispatch(&request, &pick.steps, &self.world, self.config.busy);
        let waited = at.0 - request.at.0;
        let brownout = self.config.brownout_wait.map(|limit| waited > limit.0);
        self.decided.push(Decided::Grant { id: request.submit.id.clone(), brownout, place });
        true
    }

    /// Puts a granted request on a worker, where the pool has any: "the place counts it before anything
    /// else looks at the next head".
    fn place(&mut self, request: &Arc<Request>) -> Option<(String, u32)> {
        let busy = self.root.busy_of(request, self.config.busy);
        let chosen = self.world.choose_place(request, busy);
        let chosen = chosen.map(|(worker, place)| (worker.name.to_string(), place));
        let place = chosen.as_ref().map(|(_, place)| *place);
        let worker = place.and_then(|place| self.world.worker_at(place));
        let taken = worker.and_then(|worker| worker.take(request.quota()));
        let prefill = |(name, _): &(String, _)| request.input - request.cached_on(name);
        self.world.in_flight.push(InFlight {
            request: Arc::clone(request),
            flows: self.root.path(request),
            place,
            prefill: chosen.as_ref().map_or(0, prefill),
            taken,
        });
        chosen.map(|(name, place)| (name, place.rank))
    }
}
