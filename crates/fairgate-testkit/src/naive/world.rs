//! What every node of the tree may look at: holds, weights and caps of events, the tick counter, the
//! capacity, what flies, and the workers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Submit, WorkerChange, WorkerState};
use fairgate_core::policy::BusyThresholds;

use super::request::{Request, cached_on, input_of};

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
    pub(super) capacity: u64,
    /// The pool's tick counter.
    pub(super) ticks: u64,
    pub(super) holds: PerFlow<()>,
    /// Weights set by events since the policy came into place.
    pub(super) weights: PerFlow<u64>,
    /// Caps set by events since the policy came into place; `None` is no cap.
    pub(super) caps: PerFlow<Option<u64>>,
    pub(super) flying: Vec<Flying>,
    /// The workers in the order in which they were added; `None` where none was ever named.
    pub(super) workers: Option<Vec<Worker>>,
    /// How many workers were ever added: the number of the next one.
    pub(super) workers_added: u64,
}

/// A granted request that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    pub(super) request: Arc<Request>,
    pub(super) place: Option<Place>,
    /// input − cached there until the first token has come, then 0.
    pub(super) prefill: u64,
}

/// A rank of a worker. The worker's number, not its name: a name that comes back is a new worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) worker: u64,
    pub(super) rank: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// Its number in the order of being added.
    number: u64,
    pub(super) name: Box<str>,
    state: WorkerState,
    ranks: u32,
    slots: Option<u64>,
    taints: Vec<Box<str>>,
    batch_tokens: Option<u64>,
}

impl World {
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

    /// The eligible places of a request, with their workers.
    pub(super) fn eligible(&self, submit: &Submit) -> Vec<(&Worker, Place)> {
        let workers = self.workers.iter().flatten();
        let places = workers.flat_map(|worker| worker.places().map(move |place| (worker, place)));
        places.filter(|(worker, place)| worker.is_eligible(place.rank, submit)).collect()
    }

    /// The most of the request's input that is cached on an eligible worker.
    pub(super) fn most_cached(&self, submit: &Submit) -> u64 {
        let cached = |worker: &Worker| cached_on(submit, input_of(submit), &worker.name);
        self.eligible(submit).into_iter().map(|(worker, _)| cached(worker)).max().unwrap_or(0)
    }

    /// Whether every eligible place of a request is on an overloaded worker.
    pub(super) fn is_overloaded(&self, submit: &Submit) -> bool {
        self.eligible(submit).iter().all(|(worker, _)| worker.state == WorkerState::Overloaded)
    }

    /// Whether a request has an open place, or needs none.
    pub(super) fn is_open(&self, request: &Request, busy: BusyThresholds) -> bool {
        self.workers.is_none() || !self.open(request, busy).is_empty()
    }

    /// "Open: eligible, up, not busy."
    fn open(&self, request: &Request, busy: BusyThresholds) -> Vec<(&Worker, Place)> {
        let mut places = self.eligible(&request.submit);
        places.retain(|(worker, place)| {
            worker.state == WorkerState::Up && !self.is_busy(worker, *place, busy)
        });
        places
    }

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
        slots_taken || over_tokens || over_fraction
    }

    /// The prefill tokens that a place counts.
    fn prefill(&self, place: Place) -> u128 {
        self.flying_at(place).map(|flying| u128::from(flying.prefill)).sum()
    }

    /// The flights that a place counts.
    fn flights(&self, place: Place) -> u64 {
        self.flying_at(place).map(|_| 1).sum()
    }

    fn flying_at(&self, place: Place) -> impl Iterator<Item = &Flying> {
        self.flying.iter().filter(move |flying| flying.place == Some(place))
    }

    /// The open place that a granted request goes to.
    pub(super) fn choose_place(
        &self,
        request: &Request,
        busy: BusyThresholds,
    ) -> Option<(&Worker, Place)> {
        // Least prefill + (input − cached there); ties: most cached, the worker added earliest, the
        // lower rank.
        self.open(request, busy).into_iter().min_by_key(|(worker, place)| {
            let cached = request.cached_on(&worker.name);
            let load = self.prefill(*place) + u128::from(request.input - cached);
            (load, Reverse(cached), worker.number, place.rank)
        })
    }
}

impl Worker {
    fn new(number: u64, name: &str) -> Self {
        Self {
            number,
            name: name.into(),
            state: WorkerState::Up,
            ranks: 1,
            slots: None,
            taints: Vec::new(),
            batch_tokens: None,
        }
    }

    fn change(&mut self, change: &WorkerChange) {
        self.state = change.state.unwrap_or(self.state);
        self.ranks = change.ranks.unwrap_or(self.ranks);
        self.slots = change.slots.or(self.slots);
        self.taints = change.taints.clone().unwrap_or_else(|| self.taints.clone());
        self.batch_tokens = change.batch_tokens.map(|tokens| tokens.0).or(self.batch_tokens);
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.ranks).map(|rank| Place { worker: self.number, rank })
    }

    fn is_up_or_overloaded(&self) -> bool {
        matches!(self.state, WorkerState::Up | WorkerState::Overloaded)
    }

    /// "Eligible for a request: the worker is up or overloaded; the pin, where given, names it (and the
    /// rank, where the pin names one); `allow`, where given, lists it; it has every taint in `requires`."
    fn is_eligible(&self, rank: u32, submit: &Submit) -> bool {
        let pinned = submit.pin.as_ref().is_none_or(|pin| {
            pin.worker == self.name && pin.rank.is_none_or(|pinned| pinned == rank)
        });
        let allowed = submit.allow.as_ref().is_none_or(|allow| allow.contains(&self.name));
        let tainted = submit.requires.iter().all(|taint| self.taints.contains(taint));
        self.is_up_or_overloaded() && pinned && allowed && tainted
    }
}
