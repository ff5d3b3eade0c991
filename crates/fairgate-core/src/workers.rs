//! The workers of a pool: the requests that each worker may take, the test whether a worker is busy, and the choice of
//! a worker for a request.
//!
//! A queue is ready if its head has an *open* place, which is a rank that is not busy, of a worker that may take the
//! request. To know this without checking every worker for every queue, equal heads share one result. The *want* of a
//! request ([`WorkerConstraints`]) says which workers may run the request (pin, allow-list, taints). A *demand* is a
//! want together with the busy thresholds of a queue. Each open demand has a *witness*, which is one place that is open
//! for it. Another place is searched only when the witness fills up. Each closed demand is in the lists of the workers
//! that may take its requests, because only a change of one of these workers can open the demand. So a blocked head
//! costs nothing until one of its workers changes, and a change reaches only the queues that watch a demand that the
//! change opened or closed.
//!
//! A worker whose rates are empty or that is paused is *limited*, which means that each of its ranks counts as busy
//! until a known time. The first event at or after that time makes the worker available again.
//!
//! A change of a demand is reported to queues at the next look. While *no* demand is open, changes are not reported at
//! all. Nothing can be granted then, so no queue needs the changes until a demand opens. A demand that has closed and
//! opened again in between needs no report. So a look at a full pool with a thousand waiting flows costs one
//! comparison.
//!
//! A demand ends with its last watcher, except that of requests that any worker may take. Almost every request has it,
//! so it is kept, and a request that is granted at once does not make and drop it. Without watchers it is not reported
//! and counts for nothing.
//!
//! # Limits
//! Only requests with equal constraints share a demand. Requests whose allow-lists differ, even only in workers that do
//! not exist, are watched one by one. Allow-lists should therefore come from the operator and not from the client.
//!
//! A change visits every flow that waits for the worker, except for flows of a share node that form a group
//! (`share/groups.rs`).

mod worker_choice;

use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::{Pin, WorkerChange, WorkerState};
use crate::intern::Interner;
use crate::policy::BusyThresholds;
use crate::rate::{TakenQuota, UNIT, WorkerRate};
use crate::requests::PoolRequestState;
use crate::units::{BurstSeconds, Micros, PerMinute, Tokens};

/// A rank of a worker, also called a place. Workers are numbered in the order in which they were added; a worker that
/// was gone and returns gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerRank {
    pub(crate) worker: u32,
    pub(crate) rank: u32,
}

/// A worker with its settings, rates and load.
#[derive(Clone, Debug)]
pub(crate) struct WorkerRecord {
    pub(crate) name: Arc<str>,
    pub(crate) state: WorkerState,
    pub(crate) ranks: u32,
    pub(crate) slots: Option<u64>,
    pub(crate) taints: BTreeSet<Box<str>>,
    pub(crate) batch: Option<Tokens>,
    pub(crate) tier: u64,
    pub(crate) requests: Option<WorkerRate>,
    pub(crate) tokens: Option<WorkerRate>,
    pub(crate) burst: BurstSeconds,
    pub(crate) pause_until: Micros,
    /// Number of times that the level of one of the worker's rates was set, by a new rate or by a stated remaining
    /// amount. A level that is set gets this number as its epoch.
    pub(crate) epochs: u64,
    /// Time until which a rate or a pause makes the worker busy; `None` if neither does.
    limited_until: Option<Micros>,
    /// Load of each rank, up to the highest rank that ever had a request. Ranks that were removed keep their load until
    /// their requests end.
    loads: Vec<RankLoad>,
    /// The closed demands whose requests this worker may take.
    closed: BTreeSet<u32>,
}

/// The load of one rank of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankLoad {
    pub(crate) prefill: u128,
    pub(crate) flights: u64,
    /// Sequence number of the rank's last grant plus 1; 0 if the rank never had a grant.
    pub(crate) last_grant: u64,
    /// The open demands whose witness this rank is: the one place that is known to be open for the demand.
    witness_of: BTreeSet<u32>,
}

/// The want of a request: the conditions that a worker must meet to run the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkerConstraints {
    pub(crate) pin: Option<Pin>,
    pub(crate) allow: Option<Vec<Box<str>>>,
    pub(crate) requires: Vec<Box<str>>,
}

/// The reason why a queue watches the demand of one of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchRole {
    Head = 0,
    Oldest = 1,
    /// The request may become the head of the queue because of its age.
    Ageing = 2,
}

impl WatchRole {
    /// Returns true if the queue itself can make a request with this role its head. A request watched as `Oldest` is
    /// dispatched by the load node around the queue.
    fn counts_as_head(self) -> bool {
        self != Self::Oldest
    }
}

/// A watcher of a demand, to which the opening and closing of the demand are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DemandWatcher {
    /// A queue that watches for one of its requests.
    Queue(u32, WatchRole),
    /// A node that watches for the head of a queue inside it.
    Node(u32),
}

impl DemandWatcher {
    fn counts_as_head(self) -> bool {
        match self {
            Self::Queue(_, role) => role.counts_as_head(),
            Self::Node(_) => true,
        }
    }
}

/// A demand that has opened or closed, and the watchers to which it must be reported.
#[derive(Clone, Debug)]
pub(crate) struct ChangedDemand {
    pub(crate) demand: u32,
    pub(crate) is_open: bool,
    pub(crate) queues: Vec<u32>,
    pub(crate) nodes: Vec<u32>,
}

#[derive(Clone, Debug)]
struct WatchedDemand {
    want: u32,
    busy: BusyThresholds,
    witness: Option<WorkerRank>,
    /// True if the demand was open when its state was last reported to the watchers.
    reported_open: bool,
    watchers: BTreeSet<(u32, WatchRole)>,
    /// The nodes that watch this demand for queues inside them, with the number of such queues of each node.
    nodes: BTreeMap<u32, u32>,
    heads: u64,
}

/// All workers of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolWorkers {
    pub(crate) list: BTreeMap<u32, WorkerRecord>,
    by_name: BTreeMap<Arc<str>, u32>,
    pub(crate) next_number: u32,
    /// True if the pool has ever had a worker. Until then, every request counts as having an open worker.
    pub(crate) has_workers: bool,
    wants: Interner<WorkerConstraints>,
    demands: Interner<(u32, BusyThresholds)>,
    watched: BTreeMap<u32, WatchedDemand>,
    /// Demands whose state differs from the last report to their watchers.
    unreported_demands: BTreeSet<u32>,
    /// Number of queue heads that watch an open demand.
    open_heads: u64,
    /// Number of waiting requests of each want; the index is the want's number.
    waiting: Vec<u64>,
    /// Times at which limited workers may take requests again, each with the worker's number.
    timers: BTreeSet<(Micros, u32)>,
}

/// The number of [`ANY_WORKER`], the want that every worker meets.
const ANY_WORKER_NUMBER: u32 = 0;
pub(crate) static ANY_WORKER: WorkerConstraints =
    WorkerConstraints { pin: None, allow: None, requires: Vec::new() };

/// The result of the test whether any worker could run a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerEligibility {
    Nowhere,
    OnlyOverloaded,
    Somewhere,
}

impl WorkerRecord {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            state: WorkerState::Up,
            ranks: 1,
            slots: None,
            taints: BTreeSet::new(),
            batch: None,
            tier: 0,
            requests: None,
            tokens: None,
            burst: BurstSeconds::DEFAULT,
            pause_until: Micros(0),
            epochs: 0,
            limited_until: None,
            loads: Vec::new(),
            closed: BTreeSet::new(),
        }
    }

    /// Restores a worker from a snapshot, without the levels of its rates, which the caller restores.
    pub(crate) fn from_change(change: &WorkerChange, now: Micros) -> Self {
        let mut worker = Self::new(&change.name);
        worker.change(change, now);
        worker
    }

    /// Applies the fields that a change states. The levels of the rates must be up to date.
    fn change(&mut self, change: &WorkerChange, now: Micros) {
        self.burst = change.burst_seconds.unwrap_or(self.burst);
        for (stated, remaining, is_tokens) in [
            (change.requests_per_minute, change.requests_remaining, false),
            (change.tokens_per_minute, change.tokens_remaining, true),
        ] {
            let rate = if is_tokens { self.tokens } else { self.requests };
            let rate = self.changed_rate(rate, stated, remaining, now);
            *(if is_tokens { &mut self.tokens } else { &mut self.requests }) = rate;
        }
        self.pause_until = change.pause_until.unwrap_or(self.pause_until);
        self.tier = change.tier.unwrap_or(self.tier);
        self.state = change.state.unwrap_or(self.state);
        self.slots = change.slots.or(self.slots);
        self.batch = change.batch_tokens.or(self.batch);
        if let Some(taints) = &change.taints {
            self.taints = taints.iter().cloned().collect();
        }
        self.ranks = change.ranks.unwrap_or(self.ranks);
    }

    /// Returns a rate after a change; `None` if there is no such rate after it. A new rate starts with a full level, a
    /// changed rate keeps its level, and a stated remaining amount sets the level.
    fn changed_rate(
        &mut self,
        rate: Option<WorkerRate>,
        stated: Option<Option<PerMinute>>,
        remaining: Option<u64>,
        now: Micros,
    ) -> Option<WorkerRate> {
        let mut rate = match (rate, stated) {
            (rate, None) => rate,
            (_, Some(None)) => None,
            (Some(rate), Some(Some(per_minute))) => Some(WorkerRate { per_minute, ..rate }),
            (None, Some(Some(per_minute))) => {
                self.epochs += 1;
                Some(WorkerRate::new(per_minute, self.burst, now, self.epochs))
            }
        }?;
        rate.clamp_level(self.burst);
        if let Some(remaining) = remaining {
            self.epochs += 1;
            rate.epoch = self.epochs;
            rate.level = i128::from(remaining) * UNIT;
            rate.clamp_level(self.burst);
        }
        Some(rate)
    }

    /// Brings the levels of the worker's rates up to this time.
    fn advance(&mut self, now: Micros) {
        for rate in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            rate.advance(now, self.burst);
        }
    }

    /// Returns the time until which a rate or a pause makes the worker busy; `None` if neither does. The levels of the
    /// rates must be up to date.
    fn limit(&self, now: Micros) -> Option<Micros> {
        let rates = [&self.requests, &self.tokens].into_iter().flatten();
        let fills = rates.filter(|rate| rate.is_short()).map(WorkerRate::fills_at);
        let paused = (self.pause_until > now).then_some(self.pause_until);
        fills.chain(paused).max()
    }

    /// Returns the load of a rank; `None` if the rank never had a request.
    fn load(&self, rank: u32) -> Option<&RankLoad> {
        self.loads.get(rank as usize)
    }

    /// Returns one number for each rank: the sequence number of the rank's last grant plus 1, or 0 if the rank never
    /// had a grant. Sequence numbers count the grants of the pool from 0. The list ends with the last rank that ever
    /// had a grant.
    pub(crate) fn last_grants(&self) -> Vec<u64> {
        let ranks =
            self.loads.iter().rposition(|load| load.last_grant > 0).map_or(0, |last| last + 1);
        self.loads[..ranks].iter().map(|load| load.last_grant).collect()
    }

    /// Restores the last grant of each rank from a snapshot.
    pub(crate) fn set_last_grants(&mut self, last_grants: &[u64]) {
        for (rank, last_grant) in (0..).zip(last_grants) {
            self.load_mut(rank).last_grant = *last_grant;
        }
    }

    fn load_mut(&mut self, rank: u32) -> &mut RankLoad {
        let ranks = self.loads.len().max(rank as usize + 1);
        self.loads.resize_with(ranks, RankLoad::default);
        &mut self.loads[rank as usize]
    }

    fn is_counted(&self) -> bool {
        matches!(self.state, WorkerState::Up | WorkerState::Overloaded)
    }

    /// Returns the ranks of this worker on which a request with this want may run; empty if the worker does not meet
    /// the want.
    fn eligible_ranks(&self, want: &WorkerConstraints) -> core::ops::Range<u32> {
        let listed = want
            .allow
            .as_ref()
            .is_none_or(|allow| allow.binary_search_by(|name| (**name).cmp(&self.name)).is_ok());
        if !self.is_counted()
            || !listed
            || !want.requires.iter().all(|taint| self.taints.contains(taint))
        {
            return 0..0;
        }
        match &want.pin {
            Some(pin) if *pin.worker != *self.name => 0..0,
            Some(Pin { rank: Some(rank), .. }) if *rank >= self.ranks => 0..0,
            Some(Pin { rank: Some(rank), .. }) => *rank..rank + 1,
            _ => 0..self.ranks,
        }
    }

    fn is_busy(&self, rank: u32, busy: BusyThresholds) -> bool {
        if self.limited_until.is_some() {
            return true;
        }
        let (prefill, flights) =
            self.load(rank).map_or((0, 0), |load| (load.prefill, load.flights));
        let over_batch = |fraction: u32, batch: u64| {
            prefill.saturating_mul(1000) > u128::from(fraction) * u128::from(batch)
        };
        self.slots.is_some_and(|slots| flights >= slots)
            || busy.tokens.is_some_and(|tokens| prefill > u128::from(tokens.0))
            || busy
                .fraction
                .zip(self.batch)
                .is_some_and(|(fraction, batch)| over_batch(fraction.thousandths(), batch.0))
    }

    /// Returns the ranks of this worker on which a request may run and that are not busy.
    fn open_ranks(
        &self,
        want: &WorkerConstraints,
        busy: BusyThresholds,
    ) -> impl Iterator<Item = u32> + '_ {
        let eligible = match self.state {
            WorkerState::Up => self.eligible_ranks(want),
            _ => 0..0,
        };
        eligible.filter(move |rank| !self.is_busy(*rank, busy))
    }

    fn open_rank(&self, want: &WorkerConstraints, busy: BusyThresholds) -> Option<u32> {
        self.open_ranks(want, busy).next()
    }
}

impl WatchedDemand {
    fn has_watchers(&self) -> bool {
        !self.watchers.is_empty() || !self.nodes.is_empty()
    }
}

impl WorkerConstraints {
    /// Returns true if this want sets no conditions, so that every worker meets it.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.pin.is_none() && self.allow.is_none() && self.requires.is_empty()
    }

    /// Returns the want with its lists sorted and without duplicates, so that equal wants compare as equal.
    pub(crate) fn sorted(mut self) -> Self {
        for names in self.allow.iter_mut().chain([&mut self.requires]) {
            names.sort_unstable();
            names.dedup();
        }
        self
    }
}

impl PoolWorkers {
    pub(crate) fn new() -> Self {
        let mut workers = Self {
            list: BTreeMap::new(),
            by_name: BTreeMap::new(),
            next_number: 0,
            has_workers: false,
            wants: Interner::new(),
            demands: Interner::new(),
            watched: BTreeMap::new(),
            unreported_demands: BTreeSet::new(),
            open_heads: 0,
            waiting: Vec::new(),
            timers: BTreeSet::new(),
        };
        // This number is held forever, so no other want ever gets it.
        let anywhere = workers.wants.hold(&WorkerConstraints::default());
        debug_assert_eq!(anywhere, ANY_WORKER_NUMBER, "the first want has the first number");
        workers
    }

    /// Returns the earliest time at which a limited worker may take requests again; `None` if no worker is limited.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Advances the time, so that workers whose limit has ended take requests again.
    pub(crate) fn advance(&mut self, now: Micros) {
        if self.next_timer().is_none_or(|at| at > now) {
            return;
        }
        // Each due worker is visited only once. A rate that is still short at the largest possible time would be due
        // again and again.
        let due = self.timers.range(..=(now, u32::MAX));
        let due: Vec<u32> = due.map(|(_, number)| *number).collect();
        for number in due {
            self.update_limit(number, now);
        }
    }

    /// Computes again whether a worker is limited, and until when.
    pub(crate) fn update_limit(&mut self, number: u32, now: Micros) {
        let Some(worker) = self.list.get_mut(&number) else { return };
        worker.advance(now);
        let limit = worker.limit(now);
        let before = core::mem::replace(&mut worker.limited_until, limit);
        if before == limit {
            return;
        }
        if let Some(until) = before {
            self.timers.remove(&(until, number));
        }
        if let Some(until) = limit {
            self.timers.insert((until, number));
        }
        match (before.is_some(), limit.is_some()) {
            (false, true) => self.filled_everywhere(number),
            (true, false) => self.eased_everywhere(number),
            _ => {}
        }
    }

    /// Adds, changes or removes a worker. Returns true if this was the first worker that the pool ever had.
    pub(crate) fn change(&mut self, change: &WorkerChange, now: Micros) -> bool {
        let number = self.by_name.get(&*change.name).copied();
        if change.state == Some(WorkerState::Gone) {
            if let Some(number) = number {
                self.forget(number);
            }
            return false;
        }
        let first = !self.has_workers;
        self.has_workers = true;
        let number = number.unwrap_or_else(|| {
            let worker = WorkerRecord::new(&change.name);
            let number = self.next_number;
            self.next_number += 1;
            self.add(number, worker);
            number
        });
        if let Some(worker) = self.list.get_mut(&number) {
            worker.advance(now);
            worker.change(change, now);
        }
        self.update_limit(number, now);
        self.review(number);
        first
    }

    /// Adds a worker under a number that is not in use.
    pub(crate) fn add(&mut self, number: u32, worker: WorkerRecord) {
        self.by_name.insert(worker.name.clone(), number);
        self.list.insert(number, worker);
    }

    fn forget(&mut self, number: u32) {
        let Some(worker) = self.list.remove(&number) else { return };
        self.by_name.remove(&worker.name);
        if let Some(until) = worker.limited_until {
            self.timers.remove(&(until, number));
        }
        let orphans: BTreeSet<u32> =
            worker.loads.iter().flat_map(|load| load.witness_of.iter().copied()).collect();
        orphans.into_iter().for_each(|demand| self.find_witness(demand));
    }

    /// Searches a witness for every closed demand and for every demand whose witness is a rank of this worker.
    fn review(&mut self, number: u32) {
        let demands: Vec<u32> = self.watched.keys().copied().collect();
        for demand in demands {
            let witness = self.watched[&demand].witness;
            if witness.is_none_or(|place| place.worker == number) {
                self.find_witness(demand);
            }
        }
    }

    /// Returns the number of workers that are up or overloaded.
    pub(crate) fn counted(&self) -> u64 {
        self.list.values().filter(|w| w.is_counted()).count() as u64
    }

    /// Returns whether any worker meets this want, busy or not, and whether all such workers are overloaded.
    pub(crate) fn eligible(&self, want: &WorkerConstraints) -> WorkerEligibility {
        let mut found = WorkerEligibility::Nowhere;
        for worker in self.list.values().filter(|w| !w.eligible_ranks(want).is_empty()) {
            match worker.state {
                WorkerState::Up => return WorkerEligibility::Somewhere,
                _ => found = WorkerEligibility::OnlyOverloaded,
            }
        }
        found
    }

    /// Adds a request to a rank. `number` is the sequence number of its grant. Returns the prefill tokens that the rank
    /// now counts for the request, and the amount taken from the worker's token rate.
    pub(crate) fn add_request(
        &mut self,
        place: WorkerRank,
        request: &PoolRequestState,
        number: u64,
        now: Micros,
    ) -> (Tokens, Option<TakenQuota>) {
        let Some(worker) = self.list.get_mut(&place.worker) else { return (Tokens(0), None) };
        let prefill = Tokens(request.input.0 - request.cached_on(&worker.name).0);
        let load = worker.load_mut(place.rank);
        load.prefill += u128::from(prefill.0);
        load.flights += 1;
        load.last_grant = number + 1;
        self.filled(place);
        (prefill, self.take_from_rates(place.worker, request.quota, now))
    }

    /// Takes one request from a worker's request rate and `quota` tokens from its token rate. Returns the amount that
    /// was taken from the token rate.
    fn take_from_rates(&mut self, number: u32, quota: Tokens, now: Micros) -> Option<TakenQuota> {
        let worker = self.list.get_mut(&number)?;
        if worker.requests.is_none() && worker.tokens.is_none() {
            return None;
        }
        worker.advance(now);
        let burst = worker.burst;
        if let Some(rate) = &mut worker.requests {
            rate.take(UNIT, burst);
        }
        let taken = worker.tokens.as_mut().map(|rate| TakenQuota {
            epoch: rate.epoch,
            units: rate.take(i128::from(quota.0) * UNIT, burst),
        });
        self.update_limit(number, now);
        taken
    }

    /// Corrects a worker's token rate by the difference between the tokens that a request really took and the tokens
    /// taken at its grant.
    pub(crate) fn correct_token_rate(
        &mut self,
        number: u32,
        taken: TakenQuota,
        quota: Tokens,
        now: Micros,
    ) {
        let Some(worker) = self.list.get_mut(&number) else { return };
        let burst = worker.burst;
        let Some(rate) = worker.tokens.as_mut().filter(|rate| rate.epoch == taken.epoch) else {
            return;
        };
        rate.advance(now, burst);
        rate.take(i128::from(quota.0) * UNIT - taken.units, burst);
        self.update_limit(number, now);
    }

    /// Adds a request in flight to its rank again when a snapshot is restored.
    pub(crate) fn restore_request(&mut self, place: WorkerRank, prefill: Tokens) {
        let Some(worker) = self.list.get_mut(&place.worker) else { return };
        let load = worker.load_mut(place.rank);
        load.prefill += u128::from(prefill.0);
        load.flights += 1;
    }

    /// Removes the remaining prefill tokens of a request from its rank, because the prefill is done.
    pub(crate) fn finish_prefill(&mut self, place: WorkerRank, prefill: Tokens) {
        if let Some(load) = self.load_mut(place) {
            load.prefill -= u128::from(prefill.0);
            self.eased(place);
        }
    }

    /// Removes an ended request, and its remaining prefill tokens, from its rank.
    pub(crate) fn remove_request(&mut self, place: WorkerRank, prefill: Tokens) {
        if let Some(load) = self.load_mut(place) {
            load.prefill -= u128::from(prefill.0);
            load.flights -= 1;
            self.eased(place);
        }
    }

    fn load_mut(&mut self, place: WorkerRank) -> Option<&mut RankLoad> {
        Some(self.list.get_mut(&place.worker)?.load_mut(place.rank))
    }

    /// Updates demands after a rank got more load. If the rank is now busy for a demand whose witness it is, the demand
    /// needs another witness.
    fn filled(&mut self, place: WorkerRank) {
        let worker = &self.list[&place.worker];
        let load = &worker.loads[place.rank as usize];
        let lost: Vec<u32> = load
            .witness_of
            .iter()
            .copied()
            .filter(|demand| worker.is_busy(place.rank, self.watched[demand].busy))
            .collect();
        lost.into_iter().for_each(|demand| self.find_witness(demand));
    }

    /// Updates demands after a worker became limited. Demands whose witness was any of the worker's ranks need another
    /// witness.
    fn filled_everywhere(&mut self, number: u32) {
        let Some(worker) = self.list.get(&number) else { return };
        let lost: Vec<u32> =
            worker.loads.iter().flat_map(|load| load.witness_of.iter().copied()).collect();
        lost.into_iter().for_each(|demand| self.find_witness(demand));
    }

    /// Opens closed demands after a worker is no longer limited, if one of its ranks may take their requests now.
    fn eased_everywhere(&mut self, number: u32) {
        let Some(worker) = self.list.get(&number) else { return };
        let opened: Vec<(u32, WorkerRank)> = worker
            .closed
            .iter()
            .filter_map(|demand| {
                let WatchedDemand { want, busy, .. } = self.watched[demand];
                let rank = worker.open_rank(self.wants.get(want), busy)?;
                Some((*demand, WorkerRank { worker: number, rank }))
            })
            .collect();
        for (demand, place) in opened {
            self.set_witness(demand, Some(place));
        }
    }

    /// Opens closed demands after a rank got less load, if the rank may take their requests now.
    fn eased(&mut self, place: WorkerRank) {
        let worker = &self.list[&place.worker];
        if worker.state != WorkerState::Up || worker.closed.is_empty() {
            return;
        }
        let opened: Vec<u32> = worker
            .closed
            .iter()
            .copied()
            .filter(|demand| {
                let demand = &self.watched[demand];
                worker.eligible_ranks(self.wants.get(demand.want)).contains(&place.rank)
                    && !worker.is_busy(place.rank, demand.busy)
            })
            .collect();
        opened.into_iter().for_each(|demand| self.set_witness(demand, Some(place)));
    }

    fn find_witness(&mut self, demand: u32) {
        let WatchedDemand { want, busy, .. } = self.watched[&demand];
        let want = self.wants.get(want);
        let witness = self.list.iter().find_map(|(number, worker)| {
            let rank = worker.open_rank(want, busy)?;
            Some(WorkerRank { worker: *number, rank })
        });
        self.set_witness(demand, witness);
    }

    fn set_witness(&mut self, index: u32, witness: Option<WorkerRank>) {
        let demand = self.watched.get_mut(&index).expect("a watched demand");
        let before = core::mem::replace(&mut demand.witness, witness);
        match (before.is_some(), witness.is_some()) {
            (false, true) => self.open_heads += demand.heads,
            (true, false) => self.open_heads -= demand.heads,
            _ => {}
        }
        if demand.reported_open == witness.is_some() || !demand.has_watchers() {
            self.unreported_demands.remove(&index);
        } else {
            self.unreported_demands.insert(index);
        }
        if let Some(load) = before.and_then(|place| self.load_mut(place)) {
            load.witness_of.remove(&index);
        }
        match witness {
            Some(place) => {
                if let Some(load) = self.load_mut(place) {
                    load.witness_of.insert(index);
                }
                self.unlist_closed(index);
            }
            None => self.list_closed(index),
        }
    }

    fn list_closed(&mut self, index: u32) {
        let want = self.wants.get(self.watched[&index].want);
        for worker in self.list.values_mut() {
            if worker.eligible_ranks(want).is_empty() {
                worker.closed.remove(&index);
            } else {
                worker.closed.insert(index);
            }
        }
    }

    fn unlist_closed(&mut self, index: u32) {
        for worker in self.list.values_mut() {
            worker.closed.remove(&index);
        }
    }

    /// Returns the number of a want, and counts one more user of the number. Equal wants share one number.
    pub(crate) fn intern(&mut self, want: &WorkerConstraints) -> u32 {
        if want.is_anywhere() {
            return ANY_WORKER_NUMBER;
        }
        self.wants.hold(want)
    }

    /// Gives up a request's use of the number of its want, when the request has ended.
    pub(crate) fn release_want(&mut self, want: u32) {
        if want != ANY_WORKER_NUMBER {
            self.wants.release(want);
        }
    }

    pub(crate) fn want(&self, want: u32) -> &WorkerConstraints {
        self.wants.get(want)
    }

    /// Counts a request with this want that starts to wait.
    pub(crate) fn starts_to_wait(&mut self, want: u32) {
        match self.waiting.get_mut(want as usize) {
            Some(count) => *count += 1,
            None => self.first_waits(want),
        }
    }

    /// Counts the first waiting request of a want whose number is past the end of the list of counts, and extends the
    /// list.
    #[cold]
    fn first_waits(&mut self, want: u32) {
        self.waiting.resize(want as usize + 1, 0);
        self.waiting[want as usize] = 1;
    }

    /// Counts a request with this want that no longer waits.
    pub(crate) fn stops_waiting(&mut self, want: u32) {
        self.waiting[want as usize] -= 1;
    }

    /// Returns the wants of waiting requests that no worker may take any more.
    pub(crate) fn unservable_wants(&self) -> BTreeSet<u32> {
        let nowhere =
            |want: &u32| self.eligible(self.wants.get(*want)) == WorkerEligibility::Nowhere;
        let waiting = (0..).zip(&self.waiting).filter(|(_, count)| **count > 0);
        waiting.map(|(want, _)| want).filter(nowhere).collect()
    }

    /// Makes a queue watch the demand of this want and these busy thresholds, or makes a node watch that demand for a
    /// queue inside the node. Returns the number of the demand.
    pub(crate) fn watch(&mut self, watcher: DemandWatcher, want: u32, busy: BusyThresholds) -> u32 {
        let index = self.demands.hold(&(want, busy));
        if !self.watched.contains_key(&index) {
            self.wants.hold_again(want);
            let demand = WatchedDemand {
                want,
                busy,
                witness: None,
                reported_open: false,
                watchers: BTreeSet::new(),
                nodes: BTreeMap::new(),
                heads: 0,
            };
            self.watched.insert(index, demand);
            self.find_witness(index);
            if want == ANY_WORKER_NUMBER {
                // Held without a watcher, so that it is kept.
                self.demands.hold_again(index);
            }
        }
        let demand = self.watched.get_mut(&index).expect("watched");
        if !demand.has_watchers() {
            demand.reported_open = demand.witness.is_some();
        }
        match watcher {
            DemandWatcher::Queue(queue, role) => drop(demand.watchers.insert((queue, role))),
            DemandWatcher::Node(node) => *demand.nodes.entry(node).or_default() += 1,
        }
        if watcher.counts_as_head() {
            demand.heads += 1;
            self.open_heads += u64::from(demand.witness.is_some());
        }
        index
    }

    /// Makes a queue stop watching a demand, or makes a node stop watching a demand for one of the queues inside the
    /// node.
    pub(crate) fn unwatch(&mut self, watcher: DemandWatcher, index: u32) {
        let demand = self.watched.get_mut(&index).expect("a watched demand");
        match watcher {
            DemandWatcher::Queue(queue, role) => drop(demand.watchers.remove(&(queue, role))),
            DemandWatcher::Node(node) => {
                if let Entry::Occupied(mut queues) = demand.nodes.entry(node) {
                    *queues.get_mut() -= 1;
                    if *queues.get() == 0 {
                        queues.remove();
                    }
                }
            }
        }
        if watcher.counts_as_head() {
            demand.heads -= 1;
            self.open_heads -= u64::from(demand.witness.is_some());
        }
        if !demand.has_watchers() {
            let want = demand.want;
            self.unreported_demands.remove(&index);
            if want != ANY_WORKER_NUMBER {
                self.set_witness(index, None);
                self.unlist_closed(index);
                self.watched.remove(&index);
                self.wants.release(want);
            }
        }
        self.demands.release(index);
    }

    /// Returns true if a demand was open when its state was last reported to the watchers.
    pub(crate) fn is_reported_open(&self, demand: u32) -> bool {
        self.watched[&demand].reported_open
    }

    /// Returns the number of the want that belongs to a demand.
    pub(crate) fn want_of(&self, demand: u32) -> u32 {
        self.watched[&demand].want
    }

    /// Returns true if no queue's head has an open worker now, even if a demand was last reported as open.
    pub(crate) fn all_blocked(&self) -> bool {
        self.has_workers && self.open_heads == 0
    }

    /// Returns true if a demand has opened or closed and the watchers do not know it yet.
    pub(crate) fn has_unreported_demands(&self) -> bool {
        !self.unreported_demands.is_empty()
    }

    /// Returns the demands that have opened or closed since the last report, and marks them as reported.
    pub(crate) fn take_changed_demands(&mut self) -> Vec<ChangedDemand> {
        if self.unreported_demands.is_empty() || self.all_blocked() {
            return Vec::new();
        }
        let mut changed = Vec::new();
        for index in core::mem::take(&mut self.unreported_demands) {
            let demand = self.watched.get_mut(&index).expect("a watched demand");
            demand.reported_open = demand.witness.is_some();
            changed.push(ChangedDemand {
                demand: index,
                is_open: demand.reported_open,
                queues: demand.watchers.iter().map(|(queue, _)| *queue).collect(),
                nodes: demand.nodes.keys().copied().collect(),
            });
        }
        changed
    }

    /// Returns true if more than one demand is watched, so that some queues may be ready while others are not.
    pub(crate) fn has_several_demands(&self) -> bool {
        self.watched.values().filter(|demand| demand.has_watchers()).nth(1).is_some()
    }

    /// Forgets all watchers of demands, because the queues of the old policy tree are gone.
    pub(crate) fn forget_watchers(&mut self) {
        for (index, demand) in core::mem::take(&mut self.watched) {
            let in_nodes = demand.nodes.values().map(|queues| *queues as usize).sum::<usize>();
            let is_kept = usize::from(demand.want == ANY_WORKER_NUMBER);
            for _ in 0..demand.watchers.len() + in_nodes + is_kept {
                self.demands.release(index);
            }
            self.wants.release(demand.want);
        }
        self.unreported_demands.clear();
        self.open_heads = 0;
        for worker in self.list.values_mut() {
            worker.closed.clear();
            worker.loads.iter_mut().for_each(|load| load.witness_of.clear());
        }
    }
}
