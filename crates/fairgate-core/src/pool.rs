//! The pool: one limited resource, the requests that want it, and the policy between them.

use core::fmt;

use crate::decision::{Decision, Grant, GrantedPlace, Limit, Reason, Reject, Sink};
use crate::event::{Event, PoolConfig, Submit, WorkerChange};
use crate::policy::{BusyThresholds, Policy};
use crate::requests::{Flight, Request, Requests, Seq, Slot};
use crate::room::Victim;
use crate::tree::{Directives, Tree};
use crate::units::{Micros, Ticks, Tokens};
use crate::workers::{Eligible, Want, Workers};

/// A pool of slots and everything that waits for one or holds one.
///
/// [`Pool::apply`] is the only way to change it. The same events in the same order give the same decisions.
#[derive(Clone, Debug)]
pub struct Pool {
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

/// An event came with a time before that of the event before it. The pool has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWentBack {
    /// The pool's time.
    pub now: Micros,
    /// The event's time.
    pub at: Micros,
}

impl fmt::Display for TimeWentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time goes back from {} µs to {} µs", self.now.0, self.at.0)
    }
}

impl core::error::Error for TimeWentBack {}

/// The context of the moment, borrowing only what it names.
macro_rules! context {
    ($pool:ident) => {
        $crate::arbiter::Context {
            requests: &$pool.requests,
            ticks: $pool.ticks,
            capacity: $pool.capacity,
        }
    };
}
pub(crate) use context;

impl Pool {
    /// An empty pool at time 0.
    pub fn new(config: PoolConfig) -> Self {
        let limits = Limits {
            max_queue: config.max_queue,
            queue_timeout: config.queue_timeout,
            brownout_wait: config.brownout_wait,
            busy: config.busy,
        };
        let bounded = config.max_queue.is_some();
        let tree = Tree::new(&config.policy, config.busy, Directives::default(), bounded);
        let mut workers = Workers::new();
        for worker in &config.workers {
            workers.change(worker);
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

    /// Applies one event at a time that is not before the last, and tells the sink what it leads to: first
    /// what expires, then what the event itself decides, then who is granted a slot.
    pub fn apply(
        &mut self,
        at: Micros,
        event: Event,
        sink: &mut impl Sink,
    ) -> Result<(), TimeWentBack> {
        if at < self.now {
            return Err(TimeWentBack { now: self.now, at });
        }
        self.now = at;
        self.expire(sink);
        self.happen(event, sink);
        self.look();
        self.grant_free_slots(sink);
        Ok(())
    }

    /// How many requests wait.
    pub fn waiting(&self) -> u64 {
        self.requests.waiting()
    }

    /// How many requests fly.
    pub fn flying(&self) -> u64 {
        self.requests.flying()
    }

    /// How many requests may fly at once.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The time of the last event.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// How many granted requests have ended.
    pub fn ticks(&self) -> Ticks {
        self.ticks
    }

    /// When the oldest waiting request expires, where the pool has a queue timeout: a shell that applies a
    /// tick then loses nothing in between.
    pub fn next_expiry(&self) -> Option<Micros> {
        let oldest = self.requests.get(self.requests.oldest_waiting()?);
        Some(Micros(oldest.at.0.saturating_add(self.limits.queue_timeout?.0)))
    }

    fn look(&mut self) {
        self.tree.look(&mut self.workers, context!(self));
    }

    fn expire(&mut self, sink: &mut impl Sink) {
        let Some(timeout) = self.limits.queue_timeout else { return };
        let mut expired = false;
        while let Some(slot) = self.requests.oldest_waiting() {
            if self.now.0 - self.requests.get(slot).at.0 < timeout.0 {
                break;
            }
            let request = self.withdraw(slot);
            sink.decided(Decision::Expire { id: request.texts.id().into() });
            expired = true;
        }
        if expired {
            self.look();
        }
    }

    fn happen(&mut self, event: Event, sink: &mut impl Sink) {
        match event {
            Event::Submit(submit) => self.submit(&submit, sink),
            Event::Release { id, tokens } => self.end_flight(&id, tokens),
            Event::Cancel { id } => match self.requests.find(&id) {
                Some(slot) if self.requests.get(slot).flight.is_none() => {
                    self.withdraw(slot);
                }
                _ => self.end_flight(&id, None),
            },
            Event::Hold { by, flow } => self.tree.set_held(by, &flow, true),
            Event::Resume { by, flow } => self.tree.set_held(by, &flow, false),
            Event::Capacity { slots } => {
                self.capacity = slots;
                self.tree.capacity_changed();
            }
            Event::Tick => {}
            Event::Weight { by, flow, weight } => self.tree.reweigh(by, &flow, weight),
            Event::Policy(policy) => self.replace_policy(policy),
            Event::Cap { by, flow, slots } => self.tree.recap(by, &flow, slots),
            Event::Worker(change) => self.change_worker(&change, sink),
            Event::FirstToken { id } => self.first_token(&id),
        }
    }

    fn submit(&mut self, submit: &Submit, sink: &mut impl Sink) {
        if self.requests.find(&submit.id).is_some() {
            return reject(sink, &submit.id, Reason::Duplicate, None);
        }
        let want = Want::of(submit);
        if self.workers.named {
            match self.workers.eligible(&want) {
                Eligible::Nowhere => return reject(sink, &submit.id, Reason::NoWorker, None),
                Eligible::OnlyOverloaded => {
                    return reject(sink, &submit.id, Reason::Overloaded, None);
                }
                Eligible::Somewhere => {}
            }
            let reached = self.tree.class_limit(&submit.attributes, &self.workers);
            if let Some((reason, limit)) = reached {
                return reject(sink, &submit.id, reason, Some(limit));
            }
        }
        let request = self.request(submit, &want);
        match self.victim(submit, &request) {
            None => self.accept(request, submit, &want),
            Some(Victim::Newcomer) => {
                reject(sink, &submit.id, Reason::QueueFull, self.queue_limit());
            }
            Some(Victim::Waiting(slot)) => {
                self.accept(request, submit, &want);
                let pushed = self.withdraw(slot);
                reject(sink, pushed.texts.id(), Reason::PushedOut, self.queue_limit());
            }
        }
    }

    fn queue_limit(&self) -> Option<Limit> {
        let limit = u128::from(self.limits.max_queue?);
        Some(Limit { class: None, current: u128::from(self.waiting()), limit })
    }

    /// Who must go where the queue is full; nobody where it is not, or where the newcomer need not wait.
    fn victim(&self, submit: &Submit, newcomer: &Request) -> Option<Victim> {
        let full = self.waiting() >= self.limits.max_queue?;
        let passes = self.waiting() == 0 && self.flying() < self.capacity;
        (full && !passes).then(|| self.tree.victim(&submit.attributes, newcomer))
    }

    fn request(&self, submit: &Submit, want: &Want) -> Request {
        let seq = Seq(self.next_seq);
        let mut request = Request::new(&submit.id, &submit.attributes, seq, self.now, self.ticks);
        request.priority = submit.priority;
        request.weight = submit.weight;
        request.input = submit.input.or(submit.cost).unwrap_or(Tokens(1));
        if !submit.cached.is_empty() {
            let mut cached = submit.cached.clone();
            // By worker, and where one is named twice, what is more.
            cached.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            cached.dedup_by(|b, a| a.0 == b.0);
            request.cached = Some(Box::new(cached));
        }
        request.cached_best = self.workers.most_cached(want, &request);
        let uncached = Tokens(request.input.0 - request.cached_best.0);
        request.cost = submit.cost.unwrap_or(uncached).max(Tokens(1));
        request
    }

    fn accept(&mut self, mut request: Request, submit: &Submit, want: &Want) {
        self.next_seq += 1;
        request.want = self.workers.intern(want);
        self.workers.starts_to_wait(request.want);
        let slot = self.requests.insert(request);
        self.requests.start_waiting(slot);
        let queue = self.tree.enter(slot, &submit.attributes, context!(self));
        self.requests.get_mut(slot).queue = queue;
    }

    /// Takes a waiting request out, uncharged.
    fn withdraw(&mut self, slot: Slot) -> Request {
        self.tree.leave(slot, context!(self));
        self.requests.stop_waiting(slot);
        let request = self.requests.remove(slot);
        self.workers.stops_waiting(request.want);
        self.workers.release_want(request.want);
        request
    }

    fn end_flight(&mut self, id: &str, tokens: Option<Tokens>) {
        let Some(slot) = self.requests.find(id) else { return };
        if self.requests.get(slot).flight.is_none() {
            return;
        }
        let request = self.requests.land(slot);
        self.tree.land(&request, tokens);
        self.workers.release_want(request.want);
        if let Some((place, prefill)) = request.flight.and_then(|f| f.place.zip(Some(f.prefill))) {
            self.workers.leave(place, prefill);
        }
        self.ticks.0 += 1;
        self.tree.tick(self.ticks);
    }

    fn first_token(&mut self, id: &str) {
        let Some(slot) = self.requests.find(id) else { return };
        let Some(flight) = &mut self.requests.get_mut(slot).flight else { return };
        let prefill = core::mem::take(&mut flight.prefill);
        if let Some(place) = flight.place {
            self.workers.finish_prefill(place, prefill);
        }
    }

    fn change_worker(&mut self, change: &WorkerChange, sink: &mut impl Sink) {
        if self.workers.change(change) {
            self.tree.mark_all_queues();
        }
        if !self.workers.named {
            return;
        }
        let hopeless = self.workers.hopeless();
        if hopeless.is_empty() {
            return;
        }
        let lost: Vec<Slot> = self
            .requests
            .waiting_slots()
            .filter(|slot| hopeless.contains(&self.requests.get(*slot).want))
            .collect();
        for slot in lost {
            let request = self.withdraw(slot);
            reject(sink, request.texts.id(), Reason::NoWorker, None);
        }
    }

    /// A new tree: holds stay, what waits enters it in order, what flies only counts.
    fn replace_policy(&mut self, policy: Policy) {
        let held = core::mem::take(&mut self.tree.directives.held);
        let directives = Directives { held, ..Directives::default() };
        self.workers.forget_watchers();
        let bounded = self.limits.max_queue.is_some();
        self.tree = Tree::new(&policy, self.limits.busy, directives, bounded);
        self.policy = policy;
        for slot in self.requests.flying_slots() {
            let attributes = self.requests.get(slot).texts.attributes();
            let queue = self.tree.enter_flying(&attributes);
            let request = self.requests.get_mut(slot);
            request.queue = queue;
            if let Some(flight) = &mut request.flight {
                flight.generations = None;
            }
        }
        let waiting: Vec<Slot> = self.requests.waiting_slots().collect();
        for slot in waiting {
            let attributes = self.requests.get(slot).texts.attributes();
            let queue = self.tree.enter(slot, &attributes, context!(self));
            self.requests.get_mut(slot).queue = queue;
        }
    }

    fn grant_free_slots(&mut self, sink: &mut impl Sink) {
        while self.flying() < self.capacity && !self.workers.all_blocked() {
            let Some(head) = self.tree.head() else { return };
            self.grant(head.slot, sink);
            self.look();
        }
    }

    fn grant(&mut self, slot: Slot, sink: &mut impl Sink) {
        let why =
            sink.wants_why(self.requests.get(slot).texts.id()).then(|| Box::new(self.why(slot)));
        let generations = self.tree.dispatch(slot, context!(self));
        let place = self.place(slot);
        let prefill = match place {
            Some(place) => self.workers.board(place, self.requests.get(slot)),
            None => Tokens(0),
        };
        self.requests.stop_waiting(slot);
        self.workers.stops_waiting(self.requests.get(slot).want);
        let flight = Flight {
            granted_at: self.now,
            number: self.grants,
            generations: Some(generations),
            place,
            prefill,
        };
        self.grants += 1;
        self.requests.start_flying(slot, flight);
        let request = self.requests.get(slot);
        let waited = Micros(self.now.0 - request.at.0);
        sink.decided(Decision::Grant(Grant {
            id: request.texts.id().into(),
            cost: request.cost,
            waited,
            brownout: self.limits.brownout_wait.map(|limit| waited > limit),
            place: place.map(|place| GrantedPlace {
                worker: self.workers.list[&place.worker].name.clone(),
                rank: place.rank,
            }),
            why,
        }));
    }

    fn place(&self, slot: Slot) -> Option<crate::workers::Place> {
        if !self.workers.named {
            return None;
        }
        let request = self.requests.get(slot);
        let busy = self.tree.queues[request.queue as usize].busy;
        self.workers.choose(request, busy)
    }
}

fn reject(sink: &mut impl Sink, id: &str, reason: Reason, limit: Option<Limit>) {
    sink.decided(Decision::Reject(Reject { id: id.into(), reason, limit }));
}
