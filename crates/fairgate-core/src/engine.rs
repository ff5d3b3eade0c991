//! The state machine itself, on numbers: (state, now, event) → decisions.
//!
//! An [`Engine`] knows requests by their [`Handle`]s and flows by the queue that a request's path leads to. Ids and
//! attributes are the business of the layer above, [`Pool`](crate::Pool), which everybody should use who has names.
//!
//! One event is handled in three steps, in this order: [`Engine::begin`] lets time pass and what waited too long
//! expire; then one method does what the event says; then [`Engine::finish`] grants the slots that are free.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::attribute::{Attribute, Attributes};
use crate::decision::{Limit, Reason, TimeWentBack};
use crate::event::{Pin, PoolConfig, Submit, WorkerChange};
use crate::explain::Why;
use crate::names::Names;
use crate::policy::{BusyThresholds, Policy};
use crate::requests::{CachedAt, Handle, Request, Requests, Seq};
use crate::room::Victim;
use crate::tree::Tree;
use crate::units::{Micros, TaskWeight, Ticks, Tokens, Weight};
use crate::workers::{ANY_WORKER, Eligible, Place, Want, Workers};

/// A pool of slots and everything that waits for one or holds one, by number.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) limits: Limits,
    pub(crate) capacity: u64,
    pub(crate) policy: Policy,
    pub(crate) now: Micros,
    pub(crate) ticks: Ticks,
    pub(crate) next_seq: u64,
    pub(crate) grants: u64,
    pub(crate) requests: Requests,
    pub(crate) workers: Workers,
    pub(crate) tree: Tree,
}

/// What does not change in a pool's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) max_queue: Option<u64>,
    pub(crate) queue_timeout: Option<Micros>,
    pub(crate) brownout_wait: Option<Micros>,
    pub(crate) busy: BusyThresholds,
}

/// The way of a request through the policy tree, resolved. It is good for the event in which it was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(pub(crate) u32);

/// What a request asks for, without names of its own.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its cost in tokens as stated; worked out from `input` and `cached` where absent.
    pub cost: Option<Tokens>,
    /// Higher goes first within its queue.
    pub priority: i64,
    /// How much it counts in `load`'s queue depth.
    pub weight: TaskWeight,
    /// Its input tokens; the stated cost, else 1, where absent.
    pub input: Option<Tokens>,
    /// What it takes from its worker's token rate; its cost where absent.
    pub quota: Option<Tokens>,
    /// How many of its input tokens are cached, by worker.
    pub cached: &'a [(Arc<str>, Tokens)],
    /// The one worker, and maybe rank, it must run on.
    pub pin: Option<&'a Pin>,
    /// The workers it may run on; any where absent.
    pub allow: Option<&'a [Box<str>]>,
    /// The taints its worker must have.
    pub requires: &'a [Box<str>],
}

impl<'a> Ask<'a> {
    /// A request with this cost that any worker may take.
    pub fn new(cost: Tokens) -> Self {
        Self {
            cost: Some(cost),
            priority: 0,
            weight: TaskWeight::ONE,
            input: None,
            quota: None,
            cached: &[],
            pin: None,
            allow: None,
            requires: &[],
        }
    }

    /// What a submit asks for.
    pub fn of(submit: &'a Submit) -> Self {
        Self {
            cost: submit.cost,
            priority: submit.priority,
            weight: submit.weight,
            input: submit.input,
            quota: submit.quota,
            cached: &submit.cached,
            pin: submit.pin.as_ref(),
            allow: submit.allow.as_deref(),
            requires: &submit.requires,
        }
    }

    fn goes_anywhere(&self) -> bool {
        self.pin.is_none() && self.allow.is_none() && self.requires.is_empty()
    }

    fn want(&self) -> Want {
        let want = Want {
            pin: self.pin.cloned(),
            allow: self.allow.map(Vec::from),
            requires: Vec::from(self.requires),
        };
        want.sorted()
    }
}

/// A decision of an [`Engine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request has a slot.
    Grant {
        /// What it is charged until it ends.
        cost: Tokens,
        /// How long it waited.
        waited: Micros,
        /// Whether it waited longer than the pool's brownout wait, where the pool has one.
        brownout: Option<bool>,
        /// Its worker's number and its rank, where the pool has workers.
        place: Option<(u32, u32)>,
        /// The numbers that decided, where they were asked for.
        why: Option<Box<Why>>,
    },
    /// It is refused after it had been accepted, and forgotten.
    Reject {
        /// Which test it failed.
        reason: Reason,
        /// The limit that was reached, where the reason is one.
        limit: Option<Limit>,
    },
    /// It waited too long, and is forgotten.
    Expire,
}

/// Where an engine's decisions go.
pub trait Verdicts {
    /// Takes one decision. After [`Verdict::Reject`] and [`Verdict::Expire`] the handle is free for another request.
    fn decided(&mut self, request: Handle, verdict: Verdict, workers: &WorkerNames<'_>);

    /// Whether this request's grant should carry its [`Why`].
    fn wants_why(&self, _request: Handle) -> bool {
        false
    }
}

/// The names of workers by their numbers.
#[derive(Debug)]
pub struct WorkerNames<'a>(pub(crate) &'a Workers);

impl WorkerNames<'_> {
    /// The name of a worker that has not gone.
    pub fn get(&self, worker: u32) -> Option<alloc::sync::Arc<str>> {
        self.0.list.get(&worker).map(|worker| worker.name.clone())
    }
}

/// A submit that was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which test it failed.
    pub reason: Reason,
    /// The limit that was reached, where the reason is one.
    pub limit: Option<Limit>,
}

/// Cached tokens by worker, and where one is named twice, what is more.
fn cached_at(stated: &[(Arc<str>, Tokens)]) -> CachedAt {
    let mut cached = stated.to_vec();
    cached.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    cached.dedup_by(|b, a| a.0 == b.0);
    cached
}

/// The context of the moment, borrowing only what it names.
macro_rules! context {
    ($engine:ident) => {
        $crate::arbiter::Context {
            requests: &$engine.requests,
            now: $engine.now,
            ticks: $engine.ticks,
            capacity: $engine.capacity,
        }
    };
}
pub(crate) use context;

impl Engine {
    /// An empty pool at time 0.
    pub fn new(config: PoolConfig) -> Self {
        let limits = Limits {
            max_queue: config.max_queue,
            queue_timeout: config.queue_timeout,
            brownout_wait: config.brownout_wait,
            busy: config.busy,
        };
        let bounded = config.max_queue.is_some();
        let tree = Tree::new(&config.policy, config.busy, Names::default(), bounded);
        let mut workers = Workers::new();
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
            requests: Requests::new(),
            workers,
            tree,
        }
    }

    /// Lets time pass and what has waited too long expire. Every event begins with this.
    pub fn begin(&mut self, at: Micros, out: &mut impl Verdicts) -> Result<(), TimeWentBack> {
        if at < self.now {
            return Err(TimeWentBack { now: self.now, at });
        }
        self.now = at;
        if self.workers.named {
            self.workers.advance(at);
        }
        if self.tree.has_timers() {
            self.tree.advance(at);
        }
        if self.limits.queue_timeout.is_some() {
            self.expire(out);
        }
        self.look();
        Ok(())
    }

    /// Grants the slots that are free. Every event ends with this.
    pub fn finish(&mut self, out: &mut impl Verdicts) {
        self.look();
        while self.requests.in_flight() < self.capacity && !self.workers.all_blocked() {
            let Some(head) = self.tree.head(context!(self)) else { break };
            self.grant(head.request, out);
            self.look();
        }
        if self.tree.has_emptied() {
            self.tree.forget(&mut self.workers);
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> u64 {
        self.requests.waiting()
    }

    /// How many requests are in flight.
    pub fn in_flight(&self) -> u64 {
        self.requests.in_flight()
    }

    /// How many requests may be in flight at once.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// When something changes by time alone: a request expires, one in a queue with a longest wait becomes late, a
    /// worker's rate has filled or its pause is over. A shell that applies a tick then loses nothing in between.
    pub fn next_change(&self) -> Option<Micros> {
        let expiry = self.requests.oldest_waiting().zip(self.limits.queue_timeout);
        let expiry = expiry.map(|(oldest, timeout)| {
            Micros(self.requests.get(oldest).at.0.saturating_add(timeout.0))
        });
        let waits = self.requests.waiting() > 0;
        let worker = self.workers.next_timer().filter(|_| waits);
        [expiry, self.tree.next_timer(), worker].into_iter().flatten().min()
    }

    fn look(&mut self) {
        if self.tree.is_marked(&self.workers) {
            self.tree.look(&mut self.workers, context!(self));
        }
    }

    fn expire(&mut self, out: &mut impl Verdicts) {
        let Some(timeout) = self.limits.queue_timeout else { return };
        while let Some(handle) = self.requests.oldest_waiting() {
            if self.now.0 - self.requests.get(handle).at.0 < timeout.0 {
                return;
            }
            self.withdraw(handle);
            out.decided(handle, Verdict::Expire, &WorkerNames(&self.workers));
        }
    }

    /// Resolves the way of requests with these attributes, for this event.
    pub fn path(&mut self, attributes: &Attributes) -> Path {
        Path(self.tree.queue_for(attributes))
    }

    /// A request asks for a slot: it is accepted and waits, or is refused. Its handle is told to nobody else, so keep it.
    pub fn submit(
        &mut self,
        path: Path,
        ask: &Ask<'_>,
        out: &mut impl Verdicts,
    ) -> Result<Handle, Refusal> {
        let stated = (!ask.goes_anywhere()).then(|| ask.want());
        let want = stated.as_ref().unwrap_or(&ANY_WORKER);
        let mut request = self.request(path, ask, want);
        let tested = self.test(path, &request, want);
        if tested.is_err() {
            // The way to it may have been made for this request only.
            self.tree.emptied.push(self.tree.queues[path.0 as usize].flow);
        }
        let victim = tested?;
        request.want = self.workers.intern(want);
        let handle = self.accept(request);
        if let Some(victim) = victim {
            self.withdraw(victim);
            let verdict = Verdict::Reject { reason: Reason::PushedOut, limit: self.queue_limit() };
            out.decided(victim, verdict, &WorkerNames(&self.workers));
        }
        Ok(handle)
    }

    /// Whether a request may enter, and who must leave for it.
    #[inline]
    fn test(&self, path: Path, newcomer: &Request, want: &Want) -> Result<Option<Handle>, Refusal> {
        if self.workers.named {
            let refused = |reason| Err(Refusal { reason, limit: None });
            match self.workers.eligible(want) {
                Eligible::Nowhere => return refused(Reason::NoWorker),
                Eligible::OnlyOverloaded => return refused(Reason::Overloaded),
                Eligible::Somewhere => {}
            }
            if let Some((reason, limit)) = self.tree.class_limit(path.0, &self.workers) {
                return Err(Refusal { reason, limit: Some(limit) });
            }
        }
        match self.victim(path, newcomer) {
            None => Ok(None),
            Some(Victim::Waiting(handle)) => Ok(Some(handle)),
            Some(Victim::Newcomer) => {
                Err(Refusal { reason: Reason::QueueFull, limit: self.queue_limit() })
            }
        }
    }

    fn queue_limit(&self) -> Option<Limit> {
        let limit = u128::from(self.limits.max_queue?);
        Some(Limit { class: None, current: u128::from(self.waiting()), limit })
    }

    /// Who must go where the queue is full; nobody where it is not, or where the newcomer need not wait.
    #[inline]
    fn victim(&self, path: Path, newcomer: &Request) -> Option<Victim> {
        let full = self.waiting() >= self.limits.max_queue?;
        let passes = self.waiting() == 0 && self.in_flight() < self.capacity;
        (full && !passes).then(|| self.tree.victim(path.0, newcomer, &self.requests))
    }

    #[inline]
    fn request(&self, path: Path, ask: &Ask<'_>, want: &Want) -> Request {
        let mut request = Request::new(Seq(self.next_seq), self.now, self.ticks);
        request.queue = path.0;
        request.priority = ask.priority;
        request.weight = ask.weight;
        request.input = ask.input.or(ask.cost).unwrap_or(Tokens(1));
        if !ask.cached.is_empty() {
            request.cached = Some(Box::new(cached_at(ask.cached)));
            request.cached_best = self.workers.most_cached(want, &request);
        }
        let uncached = Tokens(request.input.0 - request.cached_best.0);
        request.cost = ask.cost.unwrap_or(uncached).max(Tokens(1));
        request.quota = ask.quota.unwrap_or(request.cost);
        request
    }

    #[inline]
    fn accept(&mut self, request: Request) -> Handle {
        self.next_seq += 1;
        self.workers.starts_to_wait(request.want);
        let queue = request.queue;
        let handle = self.requests.enter(request);
        self.tree.enter(handle, queue, &mut self.requests, self.now);
        handle
    }

    /// Takes a waiting request out, uncharged.
    fn withdraw(&mut self, handle: Handle) {
        self.tree.leave(handle, &mut self.requests, self.now);
        self.requests.stop_waiting(handle);
        let want = self.requests.get(handle).want;
        self.requests.remove(handle);
        self.workers.stops_waiting(want);
        self.workers.release_want(want);
    }

    /// A granted request has ended; `tokens` is what it really used and `quota` what it took from its worker's token
    /// rate, where they are known. A waiting one is left alone. Says whether the request is gone.
    pub fn release(
        &mut self,
        handle: Handle,
        tokens: Option<Tokens>,
        quota: Option<Tokens>,
    ) -> bool {
        let Some(request) = self.requests.find(handle) else { return false };
        let Some(flight) = self.requests.flight_of(request) else { return false };
        let used = tokens.map_or(request.cost, |tokens| tokens.max(Tokens(1)));
        self.tree.land(request, flight, used, self.now);
        self.workers.release_want(request.want);
        if let Some(place) = flight.place {
            self.workers.leave(place, flight.prefill);
            if let Some((taken, quota)) = flight.taken.zip(quota.or(tokens)) {
                self.workers.correct(place.worker, taken, quota, self.now);
            }
        }
        self.requests.land(handle);
        self.ticks.0 += 1;
        self.tree.tick(self.ticks);
        true
    }

    /// A waiting request leaves, uncharged, or a granted one ends without tokens. Says whether the request is gone.
    pub fn cancel(&mut self, handle: Handle) -> bool {
        if !self.requests.is_live(handle) {
            return false;
        }
        if self.requests.get(handle).is_in_flight() {
            return self.release(handle, None, None);
        }
        self.withdraw(handle);
        true
    }

    /// A request in flight has given its first token.
    pub fn first_token(&mut self, handle: Handle) {
        if !self.requests.is_live(handle) {
            return;
        }
        let Some(flight) = self.requests.flight_mut(handle) else { return };
        let prefill = core::mem::take(&mut flight.prefill);
        if let Some(place) = flight.place {
            self.workers.finish_prefill(place, prefill);
        }
    }

    /// A flow stops dispatching, or goes on.
    pub fn set_held(&mut self, by: Attribute, flow: &str, held: bool) {
        self.tree.set_held(by, flow, held);
    }

    /// A flow's weight, or its class's quantum, changes.
    pub fn set_weight(&mut self, by: Attribute, flow: &str, weight: Weight) {
        self.tree.reweigh(by, flow, weight);
    }

    /// A flow's cap changes; without slots it has none.
    pub fn set_cap(&mut self, by: Attribute, flow: &str, slots: Option<u64>) {
        self.tree.recap(by, flow, slots, &self.requests, self.now);
    }

    /// The pool has another number of slots.
    pub fn set_capacity(&mut self, slots: u64) {
        self.capacity = slots;
        self.tree.capacity_changed();
    }

    /// A worker comes, changes or goes; waiting requests that no worker may take any more are rejected.
    pub fn change_worker(&mut self, change: &WorkerChange, out: &mut impl Verdicts) {
        if self.workers.change(change, self.now) {
            self.tree.mark_all_queues();
        }
        if !self.workers.named {
            return;
        }
        let hopeless = self.workers.hopeless();
        if hopeless.is_empty() {
            return;
        }
        let lost: Vec<Handle> = self
            .requests
            .waiting_handles()
            .filter(|handle| hopeless.contains(&self.requests.get(*handle).want))
            .collect();
        for handle in lost {
            self.withdraw(handle);
            let verdict = Verdict::Reject { reason: Reason::NoWorker, limit: None };
            out.decided(handle, verdict, &WorkerNames(&self.workers));
        }
    }

    /// A new tree takes the place of the old: holds stay, what waits enters it in order, what is in flight only counts.
    /// `attributes` says whose a request is.
    pub fn replace_policy<'a>(
        &mut self,
        policy: Policy,
        attributes: impl Fn(Handle) -> &'a Attributes,
    ) {
        let mut names = Names::default();
        for ((by, text), name) in self.tree.names.said() {
            if name.said.held {
                let number = names.intern(by, &text);
                names.list[number as usize].said.held = true;
            }
        }
        self.workers.forget_watchers();
        let bounded = self.limits.max_queue.is_some();
        self.tree = Tree::new(&policy, self.limits.busy, names, bounded);
        self.policy = policy;
        // What waits first: flows start to wait in the order in which they are marked.
        let waiting: Vec<Handle> = self.requests.waiting_handles().collect();
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

    fn grant(&mut self, handle: Handle, out: &mut impl Verdicts) {
        let why = out.wants_why(handle).then(|| Box::new(self.why(handle)));
        // Chosen before the tree is charged, but counted before anything looks at the next head.
        let place = if self.workers.named { self.place(handle) } else { None };
        self.tree.take_out(handle, &mut self.requests);
        self.requests.stop_waiting(handle);
        let (request, flight) = self.requests.start_flight(handle);
        self.tree.dispatch(handle, request, flight, self.now);
        self.workers.stops_waiting(request.want);
        let (prefill, taken) = match place {
            Some(place) => self.workers.board(place, request, self.now),
            None => (Tokens(0), None),
        };
        let waited = Micros(self.now.0 - request.at.0);
        let cost = request.cost;
        flight.granted_at = self.now;
        flight.number = self.grants;
        flight.place = place;
        flight.prefill = prefill;
        flight.taken = taken;
        self.grants += 1;
        let verdict = Verdict::Grant {
            cost,
            waited,
            brownout: self.limits.brownout_wait.map(|limit| waited > limit),
            place: place.map(|place| (place.worker, place.rank)),
            why,
        };
        out.decided(handle, verdict, &WorkerNames(&self.workers));
    }

    fn place(&self, handle: Handle) -> Option<Place> {
        let request = self.requests.get(handle);
        let busy = self.tree.queues[request.queue as usize].busy;
        self.workers.choose(request, busy)
    }
}
