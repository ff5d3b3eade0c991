//! The course of a journal: which event comes next, and when.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::decision::Reason;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::policy::{BusyThresholds, Policy};
use fairgate_core::units::{Micros, Tokens, Weight};

use super::rng::Rng;
use super::shape::{Costs, Shape};
use super::submits::Submits;
use super::trees;
use super::workers::Workers;
use crate::naive::Decided;

/// A journal in the making: events come out one at a time.
#[derive(Clone, Debug)]
pub struct Traffic {
    shape: Shape,
    rng: Rng,
    config: PoolConfig,
    submits: Submits,
    workers: Workers,
    /// The policy in place.
    policy: Policy,
    /// The capacity in place.
    capacity: u64,
    now: u64,
    events_left: usize,
    phase: Phase,
    phase_left: usize,
    next_id: usize,
    /// Requests that wait, as far as is known.
    waiting: Vec<Known>,
    /// Requests in flight, as far as is known.
    in_flight: Vec<Known>,
    /// Ids that ended, as far as is known.
    ended: Vec<Arc<str>>,
    held: Vec<(Attribute, Box<str>)>,
    capped: Vec<(Attribute, Box<str>)>,
    /// Ids that were released on the guess that they were in flight: some may wait still.
    doubtful: Vec<Arc<str>>,
    /// Whether nobody says what is decided.
    guessing: bool,
}

#[derive(Clone, Debug)]
struct Known {
    id: Arc<str>,
    cost: u64,
    at: u64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The backlog grows.
    Burst,
    /// As much comes as goes.
    Steady,
    /// The backlog shrinks.
    Drain,
}

#[derive(Clone, Copy, Debug)]
enum Choice {
    Submit,
    End,
    Control,
    Tick,
}

impl Traffic {
    /// The start of the journal with this shape and seed.
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let names = rng.count(shape.flows.clone());
        let submits = Submits {
            names,
            skewed: rng.percent(50),
            costs: shape.costs.unwrap_or_else(|| rng.one_of(&Costs::ALL)),
            equal_cost: rng.one_of(&[1, 7, 100, 1000]),
            placed: shape.workers,
            homes: shape.homes,
            quotas: shape.rates,
        };
        // Levels of a slow rate stay low only where events are far apart.
        let scales: &[u64] = if shape.rates { &[1, 30, 1000, 20_000] } else { &[1] };
        let workers = Workers {
            rates: shape.rates,
            homes: shape.homes.then_some(names),
            time_scale: rng.one_of(scales),
            usual_cost: submits.usual_cost(),
        };
        let policy = trees::policy(&mut rng, shape, names, workers.time_scale);
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
            phase: Phase::Burst,
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

    /// The pool that the journal is for.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The next event and its time, until the journal is long enough.
    pub fn next_event(&mut self) -> Option<(Micros, Event)> {
        self.events_left = self.events_left.checked_sub(1)?;
        self.turn_phase();
        let choice = self.choose();
        let gap = self.gap(choice);
        self.now = self.now.saturating_add(gap);
        let event = match choice {
            Choice::Submit => self.submit(),
            Choice::End => self.end(),
            Choice::Control => self.control(),
            Choice::Tick => Event::Tick,
        };
        Some((Micros(self.now), event))
    }

    /// Takes the decisions that a scheduler gave for the last event.
    pub fn observe(&mut self, decided: &[Decided]) {
        for decision in decided {
            match decision {
                Decided::Grant { id, .. } => {
                    let known = self.waiting.iter().position(|known| known.id == *id);
                    self.in_flight.extend(known.map(|index| self.waiting.remove(index)));
                }
                Decided::Reject { reason: Reason::Duplicate, .. } => {}
                Decided::Reject { id, .. } | Decided::Expire { id } => {
                    self.waiting.retain(|known| known.id != *id);
                    self.ended.push(id.clone());
                }
            }
        }
    }

    /// Where nobody decides: supposes that first come is first served.
    pub fn guess(&mut self) {
        self.guessing = true;
        self.guess_who_left();
        while (self.in_flight.len() as u128) < u128::from(self.capacity) && !self.waiting.is_empty()
        {
            // Not always the oldest, or what a policy prefers would never be released.
            let any = self.rng.percent(40);
            let index = if any { self.rng.index(self.waiting.len()) } else { 0 };
            self.in_flight.push(self.waiting.remove(index));
        }
    }

    /// Supposes that the last comers are refused by a full queue, and forgets what has expired.
    fn guess_who_left(&mut self) {
        let (now, timeout) = (self.now, self.config.queue_timeout);
        self.waiting.retain(|known| timeout.is_none_or(|timeout| now - known.at < timeout.0));
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
            Phase::Burst => self.rng.one_of(&[Phase::Steady, Phase::Drain, Phase::Drain]),
            Phase::Steady => self.rng.one_of(&[Phase::Burst, Phase::Drain]),
            Phase::Drain => self.rng.one_of(&[Phase::Burst, Phase::Steady]),
        };
        let least = if matches!(self.phase, Phase::Drain) { self.shape.events / 8 } else { 1 };
        self.phase_left = self.rng.count(least..=least + self.shape.events / 4);
    }

    /// The time since the last event; longer before a tick, which is for what only time can change.
    fn gap(&mut self, choice: Choice) -> u64 {
        if self.rng.range(1..=5000) == 1 {
            return self.rng.one_of(&[1 << 40, 1 << 62]);
        }
        let gap = match (self.rng.range(1..=10), choice) {
            (_, Choice::Tick) => self.rng.range(0..=500),
            (1..=4, _) => 0,
            (5..=7, _) => self.rng.range(1..=50),
            (8 | 9, _) => 100,
            _ => self.rng.range(1..=1000),
        };
        let scale = self.workers.time_scale;
        let odd = if self.rng.percent(20) { self.rng.range(0..=scale - 1) } else { 0 };
        gap * scale + odd
    }

    fn choose(&mut self) -> Choice {
        let (submits, ends) = match self.phase {
            Phase::Burst => (70, 15),
            Phase::Steady => (42, 43),
            Phase::Drain => (5, 80),
        };
        self.rng.weighted(&[
            (submits, Choice::Submit),
            (ends, Choice::End),
            (self.shape.controls, Choice::Control),
            (if self.shape.rates { 12 } else { 2 }, Choice::Tick),
        ])
    }

    fn submit(&mut self) -> Event {
        let known = self.waiting.len() + self.in_flight.len();
        if known > 0 && self.rng.percent(3) {
            // The id of somebody who is there, as far as is known.
            let index = self.rng.index(known);
            let id = self.waiting.iter().chain(&self.in_flight).nth(index).map(|k| k.id.clone());
            let id = id.expect("an index below the count");
            return Event::Submit(Box::new(self.submits.submit(&mut self.rng, &id)));
        }
        let id = self.new_id();
        let submit = self.submits.submit(&mut self.rng, &id);
        let cost = submit.cost.or(submit.input).map_or(1, |tokens| tokens.0.max(1));
        self.waiting.push(Known { id, cost, at: self.now });
        Event::Submit(Box::new(submit))
    }

    /// An id that is not in use, now and then one that was.
    fn new_id(&mut self) -> Arc<str> {
        if !self.ended.is_empty() && self.rng.percent(4) {
            let index = self.rng.index(self.ended.len());
            return self.ended.swap_remove(index);
        }
        self.next_id += 1;
        format!("r{}", self.next_id).into()
    }

    fn end(&mut self) -> Event {
        if self.shape.workers && self.rng.percent(15) {
            return Event::FirstToken { id: self.some_id() };
        }
        let draining = matches!(self.phase, Phase::Drain);
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

    /// Ends what was supposed to have ended: the guess that it was in flight may have been wrong.
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

    /// Takes a request out of those in flight or waiting.
    fn take(&mut self, in_flight: bool) -> Option<Known> {
        let from = if in_flight { &mut self.in_flight } else { &mut self.waiting };
        if from.is_empty() {
            return None;
        }
        let known = from.remove(self.rng.index(from.len()));
        self.ended.push(known.id.clone());
        Some(known)
    }

    /// Any id: in flight, waiting, ended or never seen.
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
        if self.shape.policy_changes && self.rng.percent(5) {
            let policy = self.new_policy();
            self.policy = policy.clone();
            return Event::Policy(policy);
        }
        // A drain opens what a burst has shut.
        let opening = matches!(self.phase, Phase::Drain) && self.rng.percent(75);
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

    /// A flow that the policy knows, mostly.
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

    /// Often a flow of a node below the root: there may be copies of it.
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

/// A capacity, rarely the lowest: where that is 0, nothing would ever be granted.
fn capacity(rng: &mut Rng, shape: &Shape) -> u64 {
    let drawn = rng.range(shape.capacity.clone());
    if rng.percent(70) { drawn.max(1) } else { drawn }
}

/// A pool of this shape with its limits.
fn config(rng: &mut Rng, shape: &Shape, policy: Policy, workers: &Workers) -> PoolConfig {
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
    config
}
