//! A generator of a journal's events and their times.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::decision::RejectionReason;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::policy::{BusyThresholds, Policy};
use fairgate_core::units::{Micros, OverlapCredit, Tokens, Weight};

use super::shape::{CostDistribution, FlowHomes, WorkloadShape};
use super::submits::{NameHomes, SubmitGenerator};
use super::trees;
use super::workers::{WorkerGenerator, remove_unknown_worker};
use crate::naive::ComparedDecision;
use fairgate_random::SeededRng;

/// A generator of a random journal, which returns one event at a time.
#[derive(Clone, Debug)]
pub struct TrafficGenerator {
    shape: WorkloadShape,
    rng: SeededRng,
    config: PoolConfig,
    submits: SubmitGenerator,
    workers: WorkerGenerator,
    /// The policy after the last policy event.
    policy: Policy,
    /// The capacity after the last capacity event.
    capacity: u64,
    now: u64,
    events_left: usize,
    phase: TrafficPhase,
    phase_left: usize,
    next_id: usize,
    /// Requests that are queued, as far as the observed or guessed decisions show.
    waiting: Vec<KnownRequest>,
    /// Requests in flight, as far as the observed or guessed decisions show.
    in_flight: Vec<KnownRequest>,
    /// Ids of requests that ended, as far as the observed or guessed decisions show.
    ended: Vec<Arc<str>>,
    held: Vec<(Attribute, Box<str>)>,
    capped: Vec<(Attribute, Box<str>)>,
    /// Ids of requests that were released because the generator guessed that they were in flight.
    /// Some of them may still be queued.
    doubtful: Vec<Arc<str>>,
    /// True if decisions are guessed because no scheduler's decisions are observed.
    guessing: bool,
}

#[derive(Clone, Debug)]
struct KnownRequest {
    id: Arc<str>,
    cost: u64,
    at: u64,
    timeout: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum TrafficPhase {
    /// The backlog grows, because there are more submits than ends.
    Burst,
    /// Submits and ends are in balance.
    Steady,
    /// The backlog shrinks, because most events are ends.
    Drain,
}

#[derive(Clone, Copy, Debug)]
enum TrafficChoice {
    Submit,
    End,
    Control,
    Tick,
}

impl TrafficGenerator {
    /// Starts the journal of this shape and seed.
    pub fn new(shape: &WorkloadShape, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let names = rng.count(shape.flows.clone());
        // The level of a slow rate matters only if events are far apart.
        let scales: &[u64] = if shape.rates { &[1, 30, 1000, 20_000] } else { &[1] };
        let time_scale = rng.one_of(scales);
        let ties = shape.ties || (shape.workers && rng.percent(25));
        let few = (shape.homes == FlowHomes::Few).then(|| rng.count(2..=4));
        let policy = trees::policy(&mut rng, shape, names, time_scale);
        let submits = SubmitGenerator {
            names,
            skewed: rng.percent(50),
            costs: shape.costs.unwrap_or_else(|| rng.one_of(&CostDistribution::ALL)),
            equal_cost: rng.one_of(&[1, 7, 100, 1000]),
            placed: shape.workers,
            homes: name_homes(&mut rng, shape, few, &policy),
            ties,
            quotas: shape.rates,
            timeouts: timeouts(&mut rng, shape),
            time_scale,
        };
        let workers = WorkerGenerator {
            rates: shape.rates,
            homes: (shape.homes == FlowHomes::Own).then_some(names),
            few,
            ties,
            time_scale,
            usual_cost: submits.usual_cost(),
        };
        let config = config(&mut rng, shape, policy.clone(), &workers);
        Self {
            shape: shape.clone(),
            capacity: config.capacity,
            config,
            submits,
            workers,
            policy,
            now: 0,
            events_left: shape.events,
            phase: TrafficPhase::Burst,
            phase_left: shape.events / 3,
            next_id: 0,
            waiting: Vec::new(),
            in_flight: Vec::new(),
            ended: Vec::new(),
            held: Vec::new(),
            capped: Vec::new(),
            doubtful: Vec::new(),
            guessing: false,
            rng,
        }
    }

    /// Returns the configuration of the journal's pool.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Returns the next event and its time; `None` at the end of the journal.
    pub fn next_event(&mut self) -> Option<(Micros, Event)> {
        self.events_left = self.events_left.checked_sub(1)?;
        self.turn_phase();
        let choice = self.choose();
        let gap = self.gap(choice);
        self.now = self.now.saturating_add(gap);
        let event = match choice {
            TrafficChoice::Submit => self.submit(),
            TrafficChoice::End => self.end(),
            TrafficChoice::Control => self.control(),
            TrafficChoice::Tick => Event::Tick,
        };
        Some((Micros(self.now), event))
    }

    /// Updates the known requests by the decisions that a scheduler made at the last event.
    pub fn observe(&mut self, decided: &[ComparedDecision]) {
        for decision in decided {
            match decision {
                ComparedDecision::Grant { id, .. } => {
                    let known = self.waiting.iter().position(|known| known.id == *id);
                    self.in_flight.extend(known.map(|index| self.waiting.remove(index)));
                }
                ComparedDecision::Reject { reason: RejectionReason::Duplicate, .. } => {}
                ComparedDecision::Reject { id, .. } | ComparedDecision::Expire { id } => {
                    self.waiting.retain(|known| known.id != *id);
                    self.ended.push(id.clone());
                }
            }
        }
    }

    /// Guesses the decisions at the last event, in place of a scheduler. Most guesses are first
    /// come, first served.
    pub fn guess(&mut self) {
        self.guessing = true;
        self.guess_departures();
        while (self.in_flight.len() as u128) < u128::from(self.capacity) && !self.waiting.is_empty()
        {
            // Does not always grant the oldest, because the requests that a policy prefers must be
            // released too.
            let any = self.rng.percent(40);
            let index = if any { self.rng.index(self.waiting.len()) } else { 0 };
            self.in_flight.push(self.waiting.remove(index));
        }
    }

    /// Guesses which requests left the queue: the expired requests, and the last ones if the queue
    /// is too long.
    fn guess_departures(&mut self) {
        let (now, pools) = (self.now, self.config.queue_timeout.map(|timeout| timeout.0));
        self.waiting.retain(|known| {
            let timeout = known.timeout.into_iter().chain(pools).min();
            timeout.is_none_or(|timeout| now - known.at < timeout)
        });
        let free = self.capacity.saturating_sub(self.in_flight.len() as u64);
        let most = self.config.max_queue.map(|most| most.saturating_add(free));
        while most.is_some_and(|most| self.waiting.len() as u64 > most) {
            self.ended.extend(self.waiting.pop().map(|known| known.id));
        }
    }

    fn turn_phase(&mut self) {
        if let Some(left) = self.phase_left.checked_sub(1) {
            self.phase_left = left;
            return;
        }
        self.phase = match self.phase {
            TrafficPhase::Burst => {
                self.rng.one_of(&[TrafficPhase::Steady, TrafficPhase::Drain, TrafficPhase::Drain])
            }
            TrafficPhase::Steady => self.rng.one_of(&[TrafficPhase::Burst, TrafficPhase::Drain]),
            TrafficPhase::Drain => self.rng.one_of(&[TrafficPhase::Burst, TrafficPhase::Steady]),
        };
        let least =
            if matches!(self.phase, TrafficPhase::Drain) { self.shape.events / 8 } else { 1 };
        self.phase_left = self.rng.count(least..=least + self.shape.events / 4);
    }

    /// Draws the time from the last event to the next. The time before a tick is longer, so that more of the changes
    /// that depend only on time are due at the tick.
    fn gap(&mut self, choice: TrafficChoice) -> u64 {
        if self.rng.range(1..=5000) == 1 {
            return self.rng.one_of(&[1 << 40, 1 << 62]);
        }
        let gap = match (self.rng.range(1..=10), choice) {
            (_, TrafficChoice::Tick) => self.rng.range(0..=500),
            (1..=4, _) => 0,
            (5..=7, _) => self.rng.range(1..=50),
            (8 | 9, _) => 100,
            _ => self.rng.range(1..=1000),
        };
        let scale = self.workers.time_scale;
        let odd = if self.rng.percent(20) { self.rng.range(0..=scale - 1) } else { 0 };
        gap * scale + odd
    }

    fn choose(&mut self) -> TrafficChoice {
        let (submits, ends) = match self.phase {
            TrafficPhase::Burst => (70, 15),
            TrafficPhase::Steady => (42, 43),
            TrafficPhase::Drain => (5, 80),
        };
        self.rng.weighted(&[
            (submits, TrafficChoice::Submit),
            (ends, TrafficChoice::End),
            (self.shape.controls, TrafficChoice::Control),
            (if self.shape.rates { 12 } else { 2 }, TrafficChoice::Tick),
        ])
    }

    fn submit(&mut self) -> Event {
        let known = self.waiting.len() + self.in_flight.len();
        if known > 0 && self.rng.percent(3) {
            // Reuses the id of a request that is queued or in flight, as far as is known.
            let index = self.rng.index(known);
            let id = self.waiting.iter().chain(&self.in_flight).nth(index).map(|k| k.id.clone());
            let id = id.expect("an index below the count");
            return Event::Submit(Box::new(self.submits.submit(&mut self.rng, &id)));
        }
        let id = self.new_id();
        let submit = self.submits.submit(&mut self.rng, &id);
        let cost = submit.cost.or(submit.input).map_or(1, |tokens| tokens.0.max(1));
        let timeout = submit.timeout.map(|timeout| timeout.0);
        self.waiting.push(KnownRequest { id, cost, at: self.now, timeout });
        Event::Submit(Box::new(submit))
    }

    /// Returns a new id or, in 4 % of cases, the id of an ended request.
    fn new_id(&mut self) -> Arc<str> {
        if !self.ended.is_empty() && self.rng.percent(4) {
            let index = self.rng.index(self.ended.len());
            return self.ended.swap_remove(index);
        }
        self.next_id += 1;
        format!("r{}", self.next_id).into()
    }

    fn end(&mut self) -> Event {
        let first_tokens = if self.submits.ties { 25 } else { 15 };
        if self.shape.workers && self.rng.percent(first_tokens) {
            return Event::FirstToken { id: self.some_id() };
        }
        let draining = matches!(self.phase, TrafficPhase::Drain);
        if self.guessing && self.rng.percent(if draining { 60 } else { 30 }) {
            return self.end_again();
        }
        match self.rng.range(1..=100) {
            1..=80 => self.release_one(),
            81..=84 => {
                let tokens = Some(Tokens(self.rng.range(0..=99)));
                Event::Release { id: self.some_id(), tokens, quota: None }
            }
            85..=90 => self.cancel_of(true),
            91..=97 => self.cancel_of(false),
            _ => Event::Cancel { id: self.some_id() },
        }
    }

    /// Releases or cancels a request of `doubtful` once more. The request was already released when
    /// the generator guessed that it was in flight, but it may still be queued, because the guess
    /// may have been wrong.
    fn end_again(&mut self) -> Event {
        if self.doubtful.is_empty() {
            return self.cancel_of(false);
        }
        let index = self.rng.index(self.doubtful.len());
        if self.rng.percent(40) {
            let tokens = Some(Tokens(self.rng.range(0..=5000)));
            return Event::Release { id: self.doubtful[index].clone(), tokens, quota: None };
        }
        Event::Cancel { id: self.doubtful.swap_remove(index) }
    }

    fn release_one(&mut self) -> Event {
        let Some(known) = self.take(true) else {
            return Event::Release { id: self.some_id(), tokens: None, quota: None };
        };
        if self.guessing {
            self.doubtful.push(known.id.clone());
        }
        let tokens = self.submits.used(&mut self.rng, known.cost);
        let quota = self.submits.quota(&mut self.rng, known.cost);
        Event::Release { id: known.id, tokens, quota }
    }

    fn cancel_of(&mut self, in_flight: bool) -> Event {
        let known = self.take(in_flight);
        Event::Cancel { id: known.map_or_else(|| self.some_id(), |known| known.id) }
    }

    /// Removes and returns a random request from those in flight or, if `in_flight` is false, from
    /// those queued. Counts it as ended.
    fn take(&mut self, in_flight: bool) -> Option<KnownRequest> {
        let from = if in_flight { &mut self.in_flight } else { &mut self.waiting };
        if from.is_empty() {
            return None;
        }
        let known = from.remove(self.rng.index(from.len()));
        self.ended.push(known.id.clone());
        Some(known)
    }

    /// Returns the id of a request that is in flight, queued or ended, or an unknown id.
    fn some_id(&mut self) -> Arc<str> {
        let in_flight = self.in_flight.iter().map(|known| &known.id);
        let waiting = self.waiting.iter().map(|known| &known.id);
        let ids: Vec<&Arc<str>> = match self.rng.range(1..=10) {
            1..=6 => in_flight.collect(),
            7 | 8 => waiting.collect(),
            _ => self.ended.iter().collect(),
        };
        if ids.is_empty() { "nobody".into() } else { ids[self.rng.index(ids.len())].clone() }
    }

    fn control(&mut self) -> Event {
        let for_workers = if self.shape.rates { 55 } else { 30 };
        if self.shape.workers && self.rng.percent(for_workers) {
            return Event::Worker(self.workers.change(&mut self.rng, self.now));
        }
        if !self.shape.workers && self.rng.percent(1) {
            return Event::Worker(remove_unknown_worker());
        }
        if self.shape.policy_changes && self.rng.percent(5) {
            let policy = self.new_policy();
            self.policy = policy.clone();
            return Event::Policy(policy);
        }
        // In a drain, most events free the flows that a burst has held or capped.
        let opening = matches!(self.phase, TrafficPhase::Drain) && self.rng.percent(75);
        match self.rng.range(1..=20) {
            1..=4 if !opening => self.hold(),
            1..=9 => self.resume(),
            10..=12 => self.weight(),
            13..=17 => self.cap(opening),
            18 | 19 => {
                self.capacity = capacity(&mut self.rng, &self.shape);
                Event::Capacity { slots: self.capacity }
            }
            _ => Event::Tick,
        }
    }

    fn new_policy(&mut self) -> Policy {
        let (names, time_scale) = (self.submits.names, self.workers.time_scale);
        trees::policy(&mut self.rng, &self.shape, names, time_scale)
    }

    /// Draws a flow, mostly of an attribute by which the policy shares.
    fn flow(&mut self) -> (Attribute, Box<str>) {
        let known = trees::attributes_of(&self.policy);
        let from = if self.rng.percent(90) { &known[..] } else { &Attribute::ALL[..] };
        let by = self.rng.one_of(from);
        (by, self.submits.flow(&mut self.rng, by))
    }

    fn hold(&mut self) -> Event {
        let (by, flow) = self.flow();
        self.held.push((by, flow.clone()));
        Event::Hold { by, flow }
    }

    fn resume(&mut self) -> Event {
        let known = !self.held.is_empty() && self.rng.percent(85);
        let (by, flow) = if known {
            let index = self.rng.index(self.held.len());
            self.held.swap_remove(index)
        } else {
            self.flow()
        };
        Event::Resume { by, flow }
    }

    fn weight(&mut self) -> Event {
        let (by, flow) = self.flow();
        let most = self.rng.weighted(&[(3, 3), (6, 700), (3, 4096), (1, u64::MAX)]);
        let weight = Weight::new(self.rng.range(1..=most)).expect("not 0");
        Event::Weight { by, flow, weight }
    }

    /// Draws a flow, often of a node below the root, where flows of the same name may exist under
    /// several parents.
    fn flow_to_cap(&mut self) -> (Attribute, Box<str>) {
        let known = trees::attributes_of(&self.policy);
        match &known[1..] {
            [] => self.flow(),
            inner if self.rng.percent(50) => {
                let by = self.rng.one_of(inner);
                (by, self.submits.flow(&mut self.rng, by))
            }
            _ => self.flow(),
        }
    }

    fn cap(&mut self, opening: bool) -> Event {
        if let Some((by, flow)) = self.capped.pop_if(|_| opening) {
            return Event::Cap { by, flow, slots: None };
        }
        let (by, flow) = self.flow_to_cap();
        self.capped.push((by, flow.clone()));
        let slots = self.rng.percent(60).then(|| self.rng.one_of(&[0, 1, 1, 2, 2, 3, 4]));
        Event::Cap { by, flow, slots }
    }
}

/// Draws the assignment of names to workers; `None` if the shape's requests may run on any worker.
fn name_homes(
    rng: &mut SeededRng,
    shape: &WorkloadShape,
    few: Option<usize>,
    policy: &Policy,
) -> Option<NameHomes> {
    match (shape.homes, few) {
        (FlowHomes::Own, _) => Some(NameHomes::Own),
        (FlowHomes::Few, Some(workers)) => {
            let by = rng.one_of(&trees::attributes_of(policy));
            Some(NameHomes::Few { workers, by, strict: rng.percent(50) })
        }
        _ => None,
    }
}

/// Draws the percentage of a journal's requests that have a timeout.
fn timeouts(rng: &mut SeededRng, shape: &WorkloadShape) -> u64 {
    match (shape.timeouts, shape.limits) {
        (true, _) => rng.one_of(&[30, 60, 100]),
        (false, true) => rng.one_of(&[0, 0, 20, 50]),
        (false, false) => 0,
    }
}

/// Draws a capacity. It is rarely 0, because nothing is granted without capacity.
fn capacity(rng: &mut SeededRng, shape: &WorkloadShape) -> u64 {
    let drawn = rng.range(shape.capacity.clone());
    if rng.percent(70) { drawn.max(1) } else { drawn }
}

/// Builds the configuration of a pool of this shape, with the pool's limits.
fn config(
    rng: &mut SeededRng,
    shape: &WorkloadShape,
    policy: Policy,
    workers: &WorkerGenerator,
) -> PoolConfig {
    let mut config = PoolConfig::new(capacity(rng, shape), policy);
    let micros = |span: u64| Micros(span * workers.time_scale);
    if shape.limits {
        let most = rng.weighted(&[(1, 0), (1, 1), (2, 3), (4, 12), (4, 20), (4, 40)]);
        config.max_queue = rng.percent(50).then_some(most);
        let timeout = rng.weighted(&[(1, 0), (1, 200), (2, 1000), (4, 3000), (4, 10_000)]);
        config.queue_timeout = rng.percent(35).then_some(micros(timeout));
    }
    let brownout = rng.one_of(&[0, 100, 500, 3000]);
    config.brownout_wait = rng.percent(40).then_some(micros(brownout));
    if shape.workers {
        config.workers = workers.first(rng);
    }
    config.busy = if shape.workers { trees::busy(rng) } else { BusyThresholds::default() };
    // With whole credits, a place with more cached tokens often has the same rank as a place with
    // less prefill.
    let credits: &[u64] = match workers.ties {
        true => &[0, 1000, 2000, 4000, 1_000_000, 1_000_000],
        false => &[0, 1, 500, 999, 1000, 1001, 1500, 2500, 7000, 1_000_000],
    };
    if workers.ties || rng.percent(50) {
        let thousandths = rng.one_of(credits);
        config.overlap_credit = OverlapCredit::from_thousandths(thousandths).expect("in range");
    }
    config
}
