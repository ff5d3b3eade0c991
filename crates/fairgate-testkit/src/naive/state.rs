//! State that every node of the tree may read: the time, the settings that events gave to flows,
//! the tick counter, the capacity, the requests in flight, and the workers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Submit, WorkerChange, WorkerState};
use fairgate_core::policy::BusyThresholds;
use fairgate_core::units::OverlapCredit;

use super::branches::{BranchCounts, RuleBranch};
use super::request::{NaiveRequest, cached_on, input_of};
use super::worker::{NaivePoolWorker, NaiveTaken};

/// Values that events set for flows, found by the attribute by which a node shares and by the
/// flow's name.
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
pub(super) struct NaiveState {
    /// Time of the current event, in microseconds.
    pub(super) now: u64,
    pub(super) capacity: u64,
    /// Tick counter of the pool, which rises with each end of a granted request.
    pub(super) ticks: u64,
    pub(super) holds: PerFlow<()>,
    /// Weights set by events since the last change of policy.
    pub(super) weights: PerFlow<u64>,
    /// Caps set by events since the last change of policy; `None` if an event removed the cap.
    pub(super) caps: PerFlow<Option<u64>>,
    pub(super) in_flight: Vec<NaiveInFlight>,
    /// Workers in the order in which they were added; `None` if neither the configuration nor an
    /// event has named a worker yet.
    pub(super) workers: Option<Vec<NaivePoolWorker>>,
    /// Number of workers added so far, which is also the number that the next worker gets.
    pub(super) workers_added: u64,
    /// Places of all grants so far, in the order of the grants.
    pub(super) granted_places: Vec<NaivePlace>,
    /// Number of times that each branch was taken; no decision depends on these counts.
    pub(super) branches: BranchCounts,
}

/// A granted request that has not ended.
#[derive(Clone, Debug)]
pub(super) struct NaiveInFlight {
    pub(super) request: Arc<NaiveRequest>,
    /// Flows on the request's path in the current tree, from the root.
    pub(super) flows: Vec<(Attribute, Box<str>)>,
    pub(super) place: Option<NaivePlace>,
    /// Prefill tokens of the request: its input tokens minus those cached at its worker; 0 after
    /// the first token of the answer.
    pub(super) prefill: u64,
    /// Units that the request's grant subtracted from its worker's token rate; `None` if no token rate was set.
    pub(super) taken: Option<NaiveTaken>,
}

/// A rank of a worker. Has the number of the worker instead of its name, because a worker that is
/// removed and added again under the same name is a new worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NaivePlace {
    pub(super) worker: u64,
    pub(super) rank: u32,
}

/// Sort key of a place: prefill minus credit for cached tokens (in thousandths), cached tokens,
/// requests in flight, last grant, worker, rank.
type PlaceRank = (i128, Reverse<u64>, u64, Option<usize>, u64, u32);

impl NaiveState {
    /// Creates the state before the first event, without workers.
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
            granted_places: Vec::new(),
            branches: BranchCounts::default(),
        }
    }

    /// Advances the time to `at`, which raises the levels of the workers' rates.
    pub(super) fn let_time_pass(&mut self, at: u64) {
        for worker in self.workers.iter_mut().flatten() {
            worker.let_time_pass(at - self.now);
        }
        self.now = at;
    }

    pub(super) fn is_held(&self, by: Attribute, flow: &str) -> bool {
        self.holds.get(by, flow).is_some()
    }

    /// Returns the weight that an event set for this flow; `None` if no event did.
    pub(super) fn weight_event(&self, by: Attribute, flow: &str) -> Option<u64> {
        self.weights.get(by, flow).copied()
    }

    /// Returns the cap that an event set for this flow; `None` if no event did, and `Some(None)` if
    /// an event removed the cap.
    pub(super) fn cap_event(&self, by: Attribute, flow: &str) -> Option<Option<u64>> {
        self.caps.get(by, flow).copied()
    }

    /// Returns the number of requests that an event's cap counts: "every request in flight in the
    /// pool that is in a flow of that name in any node that shares by that attribute". Each request
    /// counts once, even if it is in several such flows.
    pub(super) fn in_flight_of(&self, by: Attribute, flow: &str) -> u64 {
        let is_in = |r: &NaiveInFlight| r.flows.iter().any(|(a, name)| *a == by && **name == *flow);
        self.in_flight.iter().filter(|r| is_in(r)).map(|_| 1).sum()
    }

    /// Adds a worker, or changes the fields of a worker that the event states.
    pub(super) fn change_worker(&mut self, change: &WorkerChange) {
        let known = self.workers.iter().flatten().any(|w| w.name == change.name);
        if change.state == Some(WorkerState::Gone) {
            // An unknown name is ignored. It does not even make this a pool with workers.
            if let Some(workers) = self.workers.as_mut() {
                workers.retain(|w| w.name != change.name);
            }
            return;
        }
        let workers = self.workers.get_or_insert_default();
        if !known {
            workers.push(NaivePoolWorker::new(self.workers_added, &change.name));
            self.workers_added += 1;
        }
        for worker in workers.iter_mut().filter(|w| w.name == change.name) {
            worker.change(change);
        }
    }

    pub(super) fn knows_worker(&self, name: &str) -> bool {
        self.workers.iter().flatten().any(|worker| *worker.name == *name)
    }

    /// Returns the number of workers whose state is up or overloaded.
    pub(super) fn workers_taking(&self) -> u64 {
        self.workers.iter().flatten().filter(|w| w.is_up_or_overloaded()).map(|_| 1).sum()
    }

    /// Returns the worker of a place; `None` if the worker has been removed.
    pub(super) fn worker_at(&mut self, place: NaivePlace) -> Option<&mut NaivePoolWorker> {
        self.workers.iter_mut().flatten().find(|worker| worker.number == place.worker)
    }

    /// Iterates over the places that are eligible for a request, with their workers.
    pub(super) fn eligible(
        &self,
        submit: &Submit,
    ) -> impl Iterator<Item = (&NaivePoolWorker, NaivePlace)> {
        let workers = self.workers.iter().flatten();
        let places = workers.flat_map(|worker| worker.places().map(move |place| (worker, place)));
        places.filter(move |(worker, place)| worker.is_eligible(place.rank, submit))
    }

    /// Returns the largest number of the request's input tokens that any eligible worker has
    /// cached.
    pub(super) fn most_cached(&self, submit: &Submit) -> u64 {
        let cached = |worker: &NaivePoolWorker| cached_on(submit, input_of(submit), &worker.name);
        self.eligible(submit).map(|(worker, _)| cached(worker)).max().unwrap_or(0)
    }

    /// Returns whether every eligible place of a request is on an overloaded worker.
    pub(super) fn is_overloaded(&self, submit: &Submit) -> bool {
        self.eligible(submit).all(|(worker, _)| worker.state == WorkerState::Overloaded)
    }

    /// Returns whether a request has an open place, or the pool has no workers.
    pub(super) fn is_open(&self, request: &NaiveRequest, busy: BusyThresholds) -> bool {
        self.workers.is_none() || self.open(request, busy).next().is_some()
    }

    /// Iterates over the open places for a request: "Open: eligible, up, not busy."
    fn open(
        &self,
        request: &NaiveRequest,
        busy: BusyThresholds,
    ) -> impl Iterator<Item = (&NaivePoolWorker, NaivePlace)> {
        self.eligible(&request.submit).filter(move |(worker, place)| {
            worker.state == WorkerState::Up && !self.is_busy(worker, *place, busy)
        })
    }

    /// Returns whether a place is busy. It is busy if its requests in flight have reached the worker's `slots` (per
    /// rank), if a rate or a pause makes the worker busy, or if its prefill tokens exceed `busy_tokens` or
    /// `busy_fraction` × the worker's `batch_tokens`.
    fn is_busy(&self, worker: &NaivePoolWorker, place: NaivePlace, busy: BusyThresholds) -> bool {
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

    /// Returns the sum of the prefill tokens of the requests in flight at a place.
    fn prefill(&self, place: NaivePlace) -> u128 {
        self.in_flight_at(place).map(|it| u128::from(it.prefill)).sum()
    }

    /// Returns the number of requests in flight at a place.
    fn flights(&self, place: NaivePlace) -> u64 {
        self.in_flight_at(place).map(|_| 1).sum()
    }

    fn in_flight_at(&self, place: NaivePlace) -> impl Iterator<Item = &NaiveInFlight> {
        self.in_flight.iter().filter(move |it| it.place == Some(place))
    }

    /// Chooses a place for a granted request, among the open places of the lowest tier that has one. The place with the
    /// least 1000 × prefill − credit × cached tokens wins. Ties go to the place with the most cached tokens, then the
    /// fewest requests in flight, then the oldest last grant (no grant counts as the oldest), then the worker that was
    /// added first, then the lower rank.
    pub(super) fn choose_place(
        &self,
        request: &NaiveRequest,
        busy: BusyThresholds,
        credit: OverlapCredit,
    ) -> Option<(&NaivePoolWorker, NaivePlace)> {
        let tier = self.open(request, busy).map(|(worker, _)| worker.tier).min()?;
        let mut open: Vec<_> =
            self.open(request, busy).filter(|(worker, _)| worker.tier == tier).collect();
        let stated = i128::from(credit.thousandths());
        let credit = self.credit(&open, credit);
        open.sort_by_cached_key(|place| self.rank_of(place, request, credit));
        self.note_placement(&open, request, credit, stated);
        open.into_iter().next()
    }

    /// Returns the sort key of a place for a request. The place with the least key is chosen.
    fn rank_of(
        &self,
        (worker, place): &(&NaivePoolWorker, NaivePlace),
        request: &NaiveRequest,
        credit: i128,
    ) -> PlaceRank {
        let cached = request.cached_on(&worker.name);
        let prefill = i128::try_from(self.prefill(*place)).expect("a sum of tokens");
        let last_grant = self.granted_places.iter().rposition(|granted| granted == place);
        (
            1000 * prefill - credit * i128::from(cached),
            Reverse(cached),
            self.flights(*place),
            last_grant,
            worker.number,
            place.rank,
        )
    }

    /// Counts the criterion by which the best place is preferred to the second best. `open` must be
    /// sorted, the best place first.
    fn note_placement(
        &self,
        open: &[(&NaivePoolWorker, NaivePlace)],
        request: &NaiveRequest,
        credit: i128,
        stated: i128,
    ) {
        let [first, second, ..] = open else { return };
        let with = |credit| open.iter().min_by_key(|place| self.rank_of(place, request, credit));
        let elsewhere = |credit| with(credit).is_some_and(|(_, place)| *place != first.1);
        if elsewhere(0) {
            self.branches.note(RuleBranch::PlacedByCredit);
        }
        if credit < stated && elsewhere(stated) {
            self.branches.note(RuleBranch::PlacedByLimitedCredit);
        }
        let (a, b) = (self.rank_of(first, request, credit), self.rank_of(second, request, credit));
        self.branches.note(match () {
            () if a.0 != b.0 => RuleBranch::PlacedByBurden,
            () if a.1 != b.1 => RuleBranch::PlacedByMostCached,
            () if a.2 != b.2 => RuleBranch::PlacedByFlights,
            () if a.3 != b.3 => RuleBranch::PlacedByLastGrant,
            () if a.4 != b.4 => RuleBranch::PlacedByWorkerOrder,
            () => RuleBranch::PlacedByRank,
        });
    }

    /// Returns the credit for a cached token, in thousandths. Let n be the number of the tier's places that are open
    /// for the request, and i the number of those without prefill tokens. If i is above 0, the credit is at most
    /// floor(500 × (n + i) / i).
    fn credit(&self, open: &[(&NaivePoolWorker, NaivePlace)], credit: OverlapCredit) -> i128 {
        let n = open.iter().map(|_| 1).sum::<i128>();
        let i = open.iter().filter(|(_, place)| self.prefill(*place) == 0).map(|_| 1).sum::<i128>();
        let credit = i128::from(credit.thousandths());
        if i > 0 { credit.min(500 * (n + i) / i) } else { credit }
    }
}
