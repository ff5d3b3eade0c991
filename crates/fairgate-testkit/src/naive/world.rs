//! What every node of the tree may look at: the time, holds, weights and caps of events, the tick counter,
//! the capacity, what is in flight, and the workers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Submit, WorkerChange, WorkerState};
use fairgate_core::policy::BusyThresholds;

use super::request::{Request, cached_on, input_of};
use super::worker::{Taken, Worker};

/// What events said about flows, by the attribute and the flow's name.
#[derive(Clone, Debug)]
pub(super) struct PerFlow<T>(BTreeMap<Attribute, BTreeMap<Box<str>, T>>);

impl<T> PerFlow<T> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn get(&self, by: Attribute, flow: &str) -> Option<&T> {
        self.0.get(&by)?.get(flow)
    }

    pub(super) fn set(&mut self, by: Attribute, flow: &str, value: T) {
        self.0.entry(by).or_default().insert(flow.into(), value);
    }

    pub(super) fn unset(&mut self, by: Attribute, flow: &str) {
        self.0.entry(by).or_default().remove(flow);
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    /// The `at` of the event in hand, in microseconds.
    pub(super) now: u64,
    pub(super) capacity: u64,
    /// The pool's tick counter.
    pub(super) ticks: u64,
    pub(super) holds: PerFlow<()>,
    /// Weights set by events since the policy came into place.
    pub(super) weights: PerFlow<u64>,
    /// Caps set by events since the policy came into place; `None` is no cap.
    pub(super) caps: PerFlow<Option<u64>>,
    pub(super) in_flight: Vec<InFlight>,
    /// The workers in the order in which they were added; `None` where none was ever named.
    pub(super) workers: Option<Vec<Worker>>,
    /// How many workers were ever added: the number of the next one.
    pub(super) workers_added: u64,
}

/// A granted request that has not ended.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) request: Arc<Request>,
    /// The flows on its path in the tree that is in place, from the root.
    pub(super) flows: Vec<(Attribute, Box<str>)>,
    pub(super) place: Option<Place>,
    /// input − cached there until the first token has come, then 0.
    pub(super) prefill: u64,
    /// What its grant took off its worker's token rate, where that was set.
    pub(super) taken: Option<Taken>,
}

/// A rank of a worker. The worker's number, not its name: a name that comes back is a new worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) worker: u64,
    pub(super) rank: u32,
}

impl World {
    /// Before anything has happened, and before any worker is named.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            now: 0,
            capacity,
            ticks: 0,
            holds: PerFlow::new(),
            weights: PerFlow::new(),
            caps: PerFlow::new(),
            in_flight: Vec::new(),
            workers: None,
            workers_added: 0,
        }
    }

    /// Time goes on to `at`.
    pub(super) fn let_time_pass(&mut self, at: u64) {
        for worker in self.workers.iter_mut().flatten() {
            worker.let_time_pass(at - self.now);
        }
        self.now = at;
    }

    pub(super) fn is_held(&self, by: Attribute, flow: &str) -> bool {
        self.holds.get(by, flow).is_some()
    }

    /// The weight that an event gave this flow.
    pub(super) fn weight_event(&self, by: Attribute, flow: &str) -> Option<u64> {
        self.weights.get(by, flow).copied()
    }

    /// The cap, or the absence of one, that an event gave this flow.
    pub(super) fn cap_event(&self, by: Attribute, flow: &str) -> Option<Option<u64>> {
        self.caps.get(by, flow).copied()
    }

    /// What an event's cap counts: "every request in flight in the pool that is in a flow of that name in
    /// any node that shares by that attribute". Each counts once.
    pub(super) fn in_flight_of(&self, by: Attribute, flow: &str) -> u64 {
        let is_in = |r: &InFlight| r.flows.iter().any(|(a, name)| *a == by && **name == *flow);
        self.in_flight.iter().filter(|r| is_in(r)).map(|_| 1).sum()
    }

    /// "worker: adds it or changes what is named."
    pub(super) fn change_worker(&mut self, change: &WorkerChange) {
        let known = self.workers.iter().flatten().any(|w| w.name == change.name);
        if change.state == Some(WorkerState::Gone) {
            // Gone for an unknown name is ignored: it does not even make this a pool with workers.
            if let Some(workers) = self.workers.as_mut() {
                workers.retain(|w| w.name != change.name);
            }
            return;
        }
        let workers = self.workers.get_or_insert_default();
        if !known {
            workers.push(Worker::new(self.workers_added, &change.name));
            self.workers_added += 1;
        }
        for worker in workers.iter_mut().filter(|w| w.name == change.name) {
            worker.change(change);
        }
    }

    /// The number of workers that are up or overloaded.
    pub(super) fn workers_taking(&self) -> u64 {
        self.workers.iter().flatten().filter(|w| w.is_up_or_overloaded()).map(|_| 1).sum()
    }

    /// The worker of a place; none where it is gone.
    pub(super) fn worker_at(&mut self, place: Place) -> Option<&mut Worker> {
        self.workers.iter_mut().flatten().find(|worker| worker.number == place.worker)
    }

    /// The eligible places of a request, with their workers.
    pub(super) fn eligible(&self, submit: &Submit) -> impl Iterator<Item = (&Worker, Place)> {
        let workers = self.workers.iter().flatten();
        let places = workers.flat_map(|worker| worker.places().map(move |place| (worker, place)));
        places.filter(move |(worker, place)| worker.is_eligible(place.rank, submit))
    }

    /// The most of the request's input that is cached on an eligible worker.
    pub(super) fn most_cached(&self, submit: &Submit) -> u64 {
        let cached = |worker: &Worker| cached_on(submit, input_of(submit), &worker.name);
        self.eligible(submit).map(|(worker, _)| cached(worker)).max().unwrap_or(0)
    }

    /// Whether every eligible place of a request is on an overloaded worker.
    pub(super) fn is_overloaded(&self, submit: &Submit) -> bool {
        self.eligible(submit).all(|(worker, _)| worker.state == WorkerState::Overloaded)
    }

    /// Whether a request has an open place, or needs none.
    pub(super) fn is_open(&self, request: &Request, busy: BusyThresholds) -> bool {
        self.workers.is_none() || self.open(request, busy).next().is_some()
    }

    /// "Open: eligible, up, not busy."
    fn open(
        &self,
        request: &Request,
        busy: BusyThresholds,
    ) -> impl Iterator<Item = (&Worker, Place)> {
        self.eligible(&request.submit).filter(move |(worker, place)| {
            worker.state == WorkerState::Up && !self.is_busy(worker, *place, busy)
        })
    }

    /// "Busy: flights have reached the worker's `slots` (per rank), or a rate says so, or prefill is over
    /// busy_tokens, or over busy_fraction × the worker's batch_tokens."
    fn is_busy(&self, worker: &Worker, place: Place, busy: BusyThresholds) -> bool {
        let prefill = self.prefill(place);
        let slots_taken = worker.slots.is_some_and(|slots| self.flights(place) >= slots);
        let over_tokens = busy.tokens.is_some_and(|tokens| prefill > u128::from(tokens.0));
        let over_fraction = match (busy.fraction, worker.batch_tokens) {
            (Some(fraction), Some(batch)) => {
                prefill * 1000 > u128::from(fraction.thousandths()) * u128::from(batch)
            }
            _ => false,
        };
        slots_taken || worker.is_emptied_or_paused(self.now) || over_tokens || over_fraction
    }

    /// The prefill tokens that a place counts.
    fn prefill(&self, place: Place) -> u128 {
        self.in_flight_at(place).map(|it| u128::from(it.prefill)).sum()
    }

    /// The flights that a place counts.
    fn flights(&self, place: Place) -> u64 {
        self.in_flight_at(place).map(|_| 1).sum()
    }

    fn in_flight_at(&self, place: Place) -> impl Iterator<Item = &InFlight> {
        self.in_flight.iter().filter(move |it| it.place == Some(place))
    }

    /// The open place that a granted request goes to: one "of the lowest tier among the open ones, there
    /// to the one with the least prefill + (input − cached there); ties: most cached, then the worker added
    /// earliest, then the lower rank".
    pub(super) fn choose_place(
        &self,
        request: &Request,
        busy: BusyThresholds,
    ) -> Option<(&Worker, Place)> {
        self.open(request, busy).min_by_key(|(worker, place)| {
            let cached = request.cached_on(&worker.name);
            let load = self.prefill(*place) + u128::from(request.input - cached);
            (worker.tier, load, Reverse(cached), worker.number, place.rank)
        })
    }
}
