//! The workers on which requests run: who may take what, who is busy, and where a request goes.
//!
//! A queue is ready where its head has an *open* place. To know this without asking every worker for every
//! queue, equal heads are asked about once: a [`Want`] is what a request demands of a worker (pin,
//! allow-list, taints), a *demand* a want together with the busy thresholds of its queue. Each open demand
//! keeps a witness, one place that is open for it; only when that very place fills is another looked for. Each
//! closed demand stands in the lists of the workers that may take it; only what happens to those can open it.
//! So a blocked head costs nothing until something changes for it, and a change reaches only the queues that
//! watch a demand it opened or closed.
//!
//! A worker whose rates are empty or that is paused is *limited*: busy on every rank, until a time that is known and
//! stands among the timers. Time alone opens it again, with the first event at or after that time.
//!
//! Queues are told of a change at the next look, and where *no* demand is open they need not be told at all:
//! nothing can be granted, so nothing moves until one opens, and a demand that closed and opened in between
//! has not changed for anyone. A full house with a thousand waiting flows costs one comparison.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::event::{Pin, WorkerChange, WorkerState};
use crate::intern::Interner;
use crate::policy::BusyThresholds;
use crate::rate::{Rate, Taken, UNIT};
use crate::requests::Request;
use crate::units::{BurstSeconds, Micros, PerMinute, Tokens};

/// A rank of a worker. Workers are numbered in the order in which they came; one that returns after it was
/// gone has a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) worker: u32,
    pub(crate) rank: u32,
}

/// A worker as the pool knows it.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) name: Arc<str>,
    pub(crate) state: WorkerState,
    pub(crate) ranks: u32,
    pub(crate) slots: Option<u64>,
    pub(crate) taints: BTreeSet<Box<str>>,
    pub(crate) batch: Option<Tokens>,
    pub(crate) tier: u64,
    pub(crate) requests: Option<Rate>,
    pub(crate) tokens: Option<Rate>,
    pub(crate) burst: BurstSeconds,
    pub(crate) pause_until: Micros,
    /// How many fillings its rates have had: the epoch of the next.
    pub(crate) epochs: u64,
    /// Whether a rate or a pause makes it busy, and until when.
    limited_until: Option<Micros>,
    /// By rank, as far as a rank has ever had something; ranks that were taken away keep counting.
    loads: Vec<PlaceLoad>,
    /// The closed demands that this worker may take.
    closed: BTreeSet<u32>,
}

/// What a place has under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlaceLoad {
    pub(crate) prefill: u128,
    pub(crate) flights: u64,
    /// The open demands that this place is the witness of.
    witness_of: BTreeSet<u32>,
}

/// What a request demands of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Want {
    pub(crate) pin: Option<Pin>,
    pub(crate) allow: Option<Vec<Box<str>>>,
    pub(crate) requires: Vec<Box<str>>,
}

/// Which of a queue's requests a demand is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Head = 0,
    Oldest = 1,
    /// A request that may become the head by its age.
    Ageing = 2,
}

impl Role {
    /// Whether something of this role may be granted by itself.
    fn counts_as_head(self) -> bool {
        self != Self::Oldest
    }
}

#[derive(Clone, Debug)]
struct Demand {
    want: u32,
    busy: BusyThresholds,
    witness: Option<Place>,
    /// What the watching queues were told: whether it is open.
    told: bool,
    watchers: BTreeSet<(u32, Role)>,
    heads: u64,
}

/// All workers of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    pub(crate) list: BTreeMap<u32, Worker>,
    by_name: BTreeMap<Arc<str>, u32>,
    pub(crate) next_number: u32,
    /// Whether the pool has ever named a worker; before that, none of this applies.
    pub(crate) named: bool,
    wants: Interner<Want>,
    demands: Interner<(u32, BusyThresholds)>,
    watched: BTreeMap<u32, Demand>,
    /// Demands of which the watching queues have been told something else than is true.
    untold: BTreeSet<u32>,
    /// How many queue heads watch an open demand.
    open_heads: u64,
    /// How many requests wait with each want, by its number.
    waiting: Vec<u64>,
    /// When the limited workers are limited no more.
    timers: BTreeSet<(Micros, u32)>,
}

/// The number of the want that demands nothing, and that want.
const ANYWHERE: u32 = 0;
pub(crate) static ANY_WORKER: Want = Want { pin: None, allow: None, requires: Vec::new() };

/// The state of a demand's eligible places, for a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eligible {
    Nowhere,
    OnlyOverloaded,
    Somewhere,
}

impl Worker {
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

    /// A worker as a snapshot tells it, without its rates.
    pub(crate) fn from_change(change: &WorkerChange, now: Micros) -> Self {
        let mut worker = Self::new(&change.name);
        worker.change(change, now);
        worker
    }

    /// Takes over what a change names. The rates are up to date.
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

    /// A rate after a change: set anew it starts full, changed it keeps its level, and what remains sets the level.
    fn changed_rate(
        &mut self,
        rate: Option<Rate>,
        stated: Option<Option<PerMinute>>,
        remaining: Option<u64>,
        now: Micros,
    ) -> Option<Rate> {
        let mut rate = match (rate, stated) {
            (rate, None) => rate,
            (_, Some(None)) => None,
            (Some(rate), Some(Some(per_minute))) => Some(Rate { per_minute, ..rate }),
            (None, Some(Some(per_minute))) => {
                self.epochs += 1;
                Some(Rate::new(per_minute, self.burst, now, self.epochs))
            }
        }?;
        rate.confine(self.burst);
        if let Some(remaining) = remaining {
            self.epochs += 1;
            rate.epoch = self.epochs;
            rate.level = i128::from(remaining) * UNIT;
            rate.confine(self.burst);
        }
        Some(rate)
    }

    /// Brings the rates up to a time.
    fn advance(&mut self, now: Micros) {
        for rate in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            rate.advance(now, self.burst);
        }
    }

    /// Until when a rate or a pause makes it busy; the rates are up to date.
    fn limit(&self, now: Micros) -> Option<Micros> {
        let rates = [&self.requests, &self.tokens].into_iter().flatten();
        let fills = rates.filter(|rate| rate.is_short()).map(Rate::fills_at);
        let paused = (self.pause_until > now).then_some(self.pause_until);
        fills.chain(paused).max()
    }

    /// What a rank has under way: prefill tokens and flights.
    fn load(&self, rank: u32) -> (u128, u64) {
        self.loads.get(rank as usize).map_or((0, 0), |load| (load.prefill, load.flights))
    }

    fn load_mut(&mut self, rank: u32) -> &mut PlaceLoad {
        let ranks = self.loads.len().max(rank as usize + 1);
        self.loads.resize_with(ranks, PlaceLoad::default);
        &mut self.loads[rank as usize]
    }

    fn is_counted(&self) -> bool {
        matches!(self.state, WorkerState::Up | WorkerState::Overloaded)
    }

    /// The ranks that a request may run on.
    fn eligible_ranks(&self, want: &Want) -> core::ops::Range<u32> {
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
        let (prefill, flights) = self.load(rank);
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

    fn open_rank(&self, want: &Want, busy: BusyThresholds) -> Option<u32> {
        if self.state != WorkerState::Up {
            return None;
        }
        self.eligible_ranks(want).find(|rank| !self.is_busy(*rank, busy))
    }
}

impl Want {
    /// Whether any worker will do.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.pin.is_none() && self.allow.is_none() && self.requires.is_empty()
    }

    /// The same want with its lists in order and without repetition.
    pub(crate) fn sorted(mut self) -> Self {
        for names in self.allow.iter_mut().chain([&mut self.requires]) {
            names.sort_unstable();
            names.dedup();
        }
        self
    }
}

impl Workers {
    pub(crate) fn new() -> Self {
        let mut workers = Self {
            list: BTreeMap::new(),
            by_name: BTreeMap::new(),
            next_number: 0,
            named: false,
            wants: Interner::new(),
            demands: Interner::new(),
            watched: BTreeMap::new(),
            untold: BTreeSet::new(),
            open_heads: 0,
            waiting: Vec::new(),
            timers: BTreeSet::new(),
        };
        // It is held for ever, so it keeps its number.
        let anywhere = workers.wants.hold(&Want::default());
        debug_assert_eq!(anywhere, ANYWHERE, "the first want has the first number");
        workers
    }

    /// When a limited worker is next limited no more.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Time goes on: workers whose limit has ended take requests again.
    pub(crate) fn advance(&mut self, now: Micros) {
        if self.next_timer().is_none_or(|at| at > now) {
            return;
        }
        // Each once: at the last moment there is, a rate that is short stays so.
        let due = self.timers.range(..=(now, u32::MAX));
        let due: Vec<u32> = due.map(|(_, number)| *number).collect();
        for number in due {
            self.relimit(number, now);
        }
    }

    /// Looks again at whether a worker is limited.
    pub(crate) fn relimit(&mut self, number: u32, now: Micros) {
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

    /// Adds, changes or forgets a worker. Says whether that first made this a pool with workers.
    pub(crate) fn change(&mut self, change: &WorkerChange, now: Micros) -> bool {
        let number = self.by_name.get(&*change.name).copied();
        if change.state == Some(WorkerState::Gone) {
            if let Some(number) = number {
                self.forget(number);
            }
            return false;
        }
        let first = !self.named;
        self.named = true;
        let number = number.unwrap_or_else(|| {
            let worker = Worker::new(&change.name);
            let number = self.next_number;
            self.next_number += 1;
            self.add(number, worker);
            number
        });
        if let Some(worker) = self.list.get_mut(&number) {
            worker.advance(now);
            worker.change(change, now);
        }
        self.relimit(number, now);
        self.review(number);
        first
    }

    /// Adds a worker under its number, as a snapshot tells it.
    pub(crate) fn add(&mut self, number: u32, worker: Worker) {
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
        orphans.into_iter().for_each(|demand| self.seek_witness(demand));
    }

    /// Looks again at every demand for which this worker may have changed.
    fn review(&mut self, number: u32) {
        let demands: Vec<u32> = self.watched.keys().copied().collect();
        for demand in demands {
            let witness = self.watched[&demand].witness;
            if witness.is_none_or(|place| place.worker == number) {
                self.seek_witness(demand);
            }
        }
    }

    /// How many workers are up or overloaded.
    pub(crate) fn counted(&self) -> u64 {
        self.list.values().filter(|w| w.is_counted()).count() as u64
    }

    /// Whether a request with this want may run anywhere.
    pub(crate) fn eligible(&self, want: &Want) -> Eligible {
        let mut found = Eligible::Nowhere;
        for worker in self.list.values().filter(|w| !w.eligible_ranks(want).is_empty()) {
            match worker.state {
                WorkerState::Up => return Eligible::Somewhere,
                _ => found = Eligible::OnlyOverloaded,
            }
        }
        found
    }

    /// The most of its input that is cached on a worker that may take it.
    pub(crate) fn most_cached(&self, want: &Want, request: &Request) -> Tokens {
        if request.cached.is_none() {
            return Tokens(0);
        }
        let eligible = self.list.values().filter(|w| !w.eligible_ranks(want).is_empty());
        let mut cached = request.cached_in_turn();
        eligible.map(|w| cached.on(&w.name)).max().unwrap_or_default()
    }

    /// The open place for a request: lowest tier, there least prefill with its own, then most cached, first worker,
    /// lowest rank.
    pub(crate) fn choose(&self, request: &Request, busy: BusyThresholds) -> Option<Place> {
        let want = self.wants.get(request.want);
        let mut cached = request.cached_in_turn();
        let mut best = None;
        for (number, worker) in &self.list {
            if worker.state != WorkerState::Up {
                continue;
            }
            let ranks = worker.eligible_ranks(want).filter(|rank| !worker.is_busy(*rank, busy));
            let cached = cached.on(&worker.name);
            for rank in ranks {
                let (prefill, _) = worker.load(rank);
                let after = prefill + u128::from(request.input.0 - cached.0);
                let key = (worker.tier, after, core::cmp::Reverse(cached));
                if best.as_ref().is_none_or(|(least, _): &(_, Place)| key < *least) {
                    best = Some((key, Place { worker: *number, rank }));
                }
            }
        }
        best.map(|(_, place)| place)
    }

    /// A request is placed: returns the prefill tokens that the place now counts for it, and what it took from the
    /// worker's token rate.
    pub(crate) fn board(
        &mut self,
        place: Place,
        request: &Request,
        now: Micros,
    ) -> (Tokens, Option<Taken>) {
        let Some(worker) = self.list.get_mut(&place.worker) else { return (Tokens(0), None) };
        let prefill = Tokens(request.input.0 - request.cached_on(&worker.name).0);
        let load = worker.load_mut(place.rank);
        load.prefill += u128::from(prefill.0);
        load.flights += 1;
        self.filled(place);
        (prefill, self.draw(place.worker, request.quota, now))
    }

    /// A grant takes one request and its quota of tokens from its worker's rates.
    fn draw(&mut self, number: u32, quota: Tokens, now: Micros) -> Option<Taken> {
        let worker = self.list.get_mut(&number)?;
        if worker.requests.is_none() && worker.tokens.is_none() {
            return None;
        }
        worker.advance(now);
        let burst = worker.burst;
        if let Some(rate) = &mut worker.requests {
            rate.take(UNIT, burst);
        }
        let taken = worker.tokens.as_mut().map(|rate| Taken {
            epoch: rate.epoch,
            units: rate.take(i128::from(quota.0) * UNIT, burst),
        });
        self.relimit(number, now);
        taken
    }

    /// What a request really took from its worker's token rate becomes known.
    pub(crate) fn correct(&mut self, number: u32, taken: Taken, quota: Tokens, now: Micros) {
        let Some(worker) = self.list.get_mut(&number) else { return };
        let burst = worker.burst;
        let Some(rate) = worker.tokens.as_mut().filter(|rate| rate.epoch == taken.epoch) else {
            return;
        };
        rate.advance(now, burst);
        rate.take(i128::from(quota.0) * UNIT - taken.units, burst);
        self.relimit(number, now);
    }

    /// A flight from a snapshot is on its place again.
    pub(crate) fn board_again(&mut self, place: Place, prefill: Tokens) {
        let Some(worker) = self.list.get_mut(&place.worker) else { return };
        let load = worker.load_mut(place.rank);
        load.prefill += u128::from(prefill.0);
        load.flights += 1;
    }

    /// A request's prefill, or what is left of it, is over.
    pub(crate) fn finish_prefill(&mut self, place: Place, prefill: Tokens) {
        if let Some(load) = self.load_mut(place) {
            load.prefill -= u128::from(prefill.0);
            self.eased(place);
        }
    }

    /// A request leaves its place.
    pub(crate) fn leave(&mut self, place: Place, prefill: Tokens) {
        if let Some(load) = self.load_mut(place) {
            load.prefill -= u128::from(prefill.0);
            load.flights -= 1;
            self.eased(place);
        }
    }

    fn load_mut(&mut self, place: Place) -> Option<&mut PlaceLoad> {
        Some(self.list.get_mut(&place.worker)?.load_mut(place.rank))
    }

    /// A place has more to do: demands that relied on it may need another.
    fn filled(&mut self, place: Place) {
        let worker = &self.list[&place.worker];
        let load = &worker.loads[place.rank as usize];
        let lost: Vec<u32> = load
            .witness_of
            .iter()
            .copied()
            .filter(|demand| worker.is_busy(place.rank, self.watched[demand].busy))
            .collect();
        lost.into_iter().for_each(|demand| self.seek_witness(demand));
    }

    /// A worker is limited from now on: demands that relied on any of its ranks need another.
    fn filled_everywhere(&mut self, number: u32) {
        let Some(worker) = self.list.get(&number) else { return };
        let lost: Vec<u32> =
            worker.loads.iter().flat_map(|load| load.witness_of.iter().copied()).collect();
        lost.into_iter().for_each(|demand| self.seek_witness(demand));
    }

    /// A worker is limited no more: closed demands that it may take can open.
    fn eased_everywhere(&mut self, number: u32) {
        let Some(worker) = self.list.get(&number) else { return };
        let opened: Vec<(u32, Place)> = worker
            .closed
            .iter()
            .filter_map(|demand| {
                let Demand { want, busy, .. } = self.watched[demand];
                let rank = worker.open_rank(self.wants.get(want), busy)?;
                Some((*demand, Place { worker: number, rank }))
            })
            .collect();
        for (demand, place) in opened {
            self.set_witness(demand, Some(place));
        }
    }

    /// A place has less to do: closed demands that its worker may take can open.
    fn eased(&mut self, place: Place) {
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

    fn seek_witness(&mut self, demand: u32) {
        let Demand { want, busy, .. } = self.watched[&demand];
        let want = self.wants.get(want);
        let witness = self.list.iter().find_map(|(number, worker)| {
            let rank = worker.open_rank(want, busy)?;
            Some(Place { worker: *number, rank })
        });
        self.set_witness(demand, witness);
    }

    fn set_witness(&mut self, index: u32, witness: Option<Place>) {
        let demand = self.watched.get_mut(&index).expect("a watched demand");
        let before = core::mem::replace(&mut demand.witness, witness);
        match (before.is_some(), witness.is_some()) {
            (false, true) => self.open_heads += demand.heads,
            (true, false) => self.open_heads -= demand.heads,
            _ => {}
        }
        if demand.told == witness.is_some() {
            self.untold.remove(&index);
        } else {
            self.untold.insert(index);
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

    /// The number of a want; equal wants share it.
    pub(crate) fn intern(&mut self, want: &Want) -> u32 {
        if want.is_anywhere() {
            return ANYWHERE;
        }
        self.wants.hold(want)
    }

    /// A request with this want has ended.
    pub(crate) fn release_want(&mut self, want: u32) {
        if want != ANYWHERE {
            self.wants.drop(want);
        }
    }

    pub(crate) fn want(&self, want: u32) -> &Want {
        self.wants.get(want)
    }

    /// A request with this want starts to wait.
    pub(crate) fn starts_to_wait(&mut self, want: u32) {
        if self.waiting.len() <= want as usize {
            self.waiting.resize(want as usize + 1, 0);
        }
        self.waiting[want as usize] += 1;
    }

    /// A request with this want no longer waits.
    pub(crate) fn stops_waiting(&mut self, want: u32) {
        self.waiting[want as usize] -= 1;
    }

    /// The wants of waiting requests that no worker may take any more.
    pub(crate) fn hopeless(&self) -> BTreeSet<u32> {
        let nowhere = |want: &u32| self.eligible(self.wants.get(*want)) == Eligible::Nowhere;
        let waiting = (0..).zip(&self.waiting).filter(|(_, count)| **count > 0);
        waiting.map(|(want, _)| want).filter(nowhere).collect()
    }

    /// A queue watches whether a want is open under its thresholds; returns the demand.
    pub(crate) fn watch(&mut self, queue: u32, role: Role, want: u32, busy: BusyThresholds) -> u32 {
        let index = self.demands.hold(&(want, busy));
        if !self.watched.contains_key(&index) {
            self.wants.hold_again(want);
            let demand = Demand {
                want,
                busy,
                witness: None,
                told: false,
                watchers: BTreeSet::new(),
                heads: 0,
            };
            self.watched.insert(index, demand);
            self.seek_witness(index);
            self.untold.remove(&index);
            let demand = self.watched.get_mut(&index).expect("just inserted");
            demand.told = demand.witness.is_some();
        }
        let demand = self.watched.get_mut(&index).expect("watched");
        demand.watchers.insert((queue, role));
        if role.counts_as_head() {
            demand.heads += 1;
            self.open_heads += u64::from(demand.witness.is_some());
        }
        index
    }

    /// A queue no longer watches a demand.
    pub(crate) fn unwatch(&mut self, queue: u32, role: Role, index: u32) {
        let demand = self.watched.get_mut(&index).expect("a watched demand");
        demand.watchers.remove(&(queue, role));
        if role.counts_as_head() {
            demand.heads -= 1;
            self.open_heads -= u64::from(demand.witness.is_some());
        }
        if demand.watchers.is_empty() {
            let want = demand.want;
            self.set_witness(index, None);
            self.unlist_closed(index);
            self.untold.remove(&index);
            self.watched.remove(&index);
            self.wants.drop(want);
        }
        self.demands.drop(index);
    }

    /// Whether a demand's watchers were told that it is open.
    pub(crate) fn told_open(&self, demand: u32) -> bool {
        self.watched[&demand].told
    }

    /// The want that a demand stands for.
    pub(crate) fn want_of(&self, demand: u32) -> u32 {
        self.watched[&demand].want
    }

    /// Whether no queue's head has an open place, whatever was told.
    pub(crate) fn all_blocked(&self) -> bool {
        self.named && self.open_heads == 0
    }

    /// Whether queues have something to be told.
    pub(crate) fn has_news(&self) -> bool {
        !self.untold.is_empty()
    }

    /// The queues whose head or oldest request has opened or closed since they were last told; tells them.
    pub(crate) fn tell(&mut self) -> Vec<u32> {
        if self.untold.is_empty() || self.all_blocked() {
            return Vec::new();
        }
        let mut queues = Vec::new();
        for index in core::mem::take(&mut self.untold) {
            let demand = self.watched.get_mut(&index).expect("a watched demand");
            demand.told = demand.witness.is_some();
            queues.extend(demand.watchers.iter().map(|(queue, _)| *queue));
        }
        queues
    }

    /// Forgets who watches what; the queues are gone.
    pub(crate) fn forget_watchers(&mut self) {
        for (index, demand) in core::mem::take(&mut self.watched) {
            for _ in &demand.watchers {
                self.demands.drop(index);
            }
            self.wants.drop(demand.want);
        }
        self.untold.clear();
        self.open_heads = 0;
        for worker in self.list.values_mut() {
            worker.closed.clear();
            worker.loads.iter_mut().for_each(|load| load.witness_of.clear());
        }
    }
}
