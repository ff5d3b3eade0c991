//! A pool in steady state: each cycle is one submit, one release and the grant that follows.
//!
//! What a cycle submits and releases depends on what was granted before. So that the clock sees the pool
//! alone, a copy of it runs ahead, untimed, and its events are written down; then the pool itself is given
//! them, timed. The flow that was granted a slot is the flow that submits next: who is backlogged stays so.

use std::collections::VecDeque;
use std::hint::black_box;

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_testkit::naive::NaivePool;
pub(crate) use fairgate_testkit::workload::Events;
use fairgate_testkit::workload::Rng;

use crate::measure::{Subject, nanoseconds};

/// Makes the submit of a flow; the second number counts the submits made so far.
type Make = Box<dyn FnMut(usize, u64) -> Submit>;

/// How a pool starts, what fills it, and what its flows submit.
pub(crate) struct Scenario {
    pub(crate) config: PoolConfig,
    pub(crate) opening: Vec<Event>,
    pub(crate) source: Source,
    /// Whether a flow submits again after it was granted a slot. Where not, a cycle is a release and the grant
    /// that follows, and the backlog must last.
    pub(crate) resubmits: bool,
}

/// The submits of all flows, numbered through.
pub(crate) struct Source {
    made: u64,
    make: Make,
}

impl Source {
    pub(crate) fn new(make: impl FnMut(usize, u64) -> Submit + 'static) -> Self {
        Self { made: 0, make: Box::new(make) }
    }

    /// The next submit of a flow.
    pub(crate) fn next(&mut self, flow: usize) -> Event {
        let mut submit = (self.make)(flow, self.made);
        submit.id = format!("{flow}.{}", self.made).into();
        self.made += 1;
        Event::Submit(Box::new(submit))
    }
}

/// A pool of either kind, as it is timed.
trait Machine {
    /// Takes an event and says how many decisions it led to.
    fn take(&mut self, at: Micros, event: Event) -> u64;
}

impl Machine for Pool {
    fn take(&mut self, at: Micros, event: Event) -> u64 {
        let mut decided = Counted(0);
        self.apply(at, event, &mut decided).expect("time goes on");
        decided.0
    }
}

impl Machine for NaivePool {
    fn take(&mut self, at: Micros, event: Event) -> u64 {
        self.apply(at, &event).len() as u64
    }
}

struct Counted(u64);

impl Sink for Counted {
    fn decided(&mut self, decision: Decision) {
        black_box(decision);
        self.0 += 1;
    }
}

/// A pool at work, and the copy of it that runs ahead.
struct Steady<M> {
    machine: M,
    scout: Scout,
}

/// Our pool after the opening.
pub(crate) fn open(scenario: Scenario) -> Box<dyn Subject> {
    let (scout, _) = Scout::open(scenario);
    Box::new(Steady { machine: scout.pool.clone(), scout })
}

/// The naive pool after the opening.
pub(crate) fn open_naive(scenario: Scenario) -> Box<dyn Subject> {
    let mut machine = NaivePool::new(scenario.config.clone());
    let (scout, opening) = Scout::open(scenario);
    for (at, event) in opening {
        machine.take(at, event);
    }
    Box::new(Steady { machine, scout })
}

/// The events of a scenario: its opening and this many cycles.
pub(crate) fn events(scenario: Scenario, cycles: u64) -> Events {
    let (mut scout, mut events) = Scout::open(scenario);
    events.extend(scout.run(cycles));
    events
}

impl<M: Machine> Subject for Steady<M> {
    fn time(&mut self, cycles: u64) -> f64 {
        let events = self.scout.run(cycles);
        let machine = &mut self.machine;
        let (decided, took) = nanoseconds(|| -> u64 {
            events.into_iter().map(|(at, event)| machine.take(at, event)).sum()
        });
        assert_eq!(decided, cycles, "every cycle grants one request");
        took / cycles as f64
    }
}

/// A pool that finds out what a cycle's events are.
struct Scout {
    pool: Pool,
    source: Source,
    resubmits: bool,
    clock: Micros,
    /// What flies, the oldest first.
    flying: VecDeque<Box<str>>,
    /// The flows that were granted a slot and have not submitted again.
    owing: VecDeque<usize>,
    usage: Rng,
}

impl Scout {
    /// A pool after its opening, and the events of that.
    fn open(scenario: Scenario) -> (Self, Events) {
        let mut scout = Self {
            pool: Pool::new(scenario.config),
            source: scenario.source,
            resubmits: scenario.resubmits,
            clock: Micros(0),
            flying: VecDeque::new(),
            owing: VecDeque::new(),
            usage: Rng::new(7),
        };
        let opening = scenario.opening.into_iter().map(|event| scout.take(event)).collect();
        assert!(!scout.owing.is_empty(), "a steady state has something in flight");
        (scout, opening)
    }

    fn run(&mut self, cycles: u64) -> Events {
        let mut events = Vec::new();
        for _ in 0..cycles {
            let flow = self.owing.pop_front().expect("a grant in every cycle");
            if self.resubmits {
                let submit = self.source.next(flow);
                events.push(self.take(submit));
            }
            let id = self.flying.pop_front().expect("a flight in every cycle");
            let tokens = Some(Tokens(self.usage.range(1..=1000)));
            events.push(self.take(Event::Release { id, tokens }));
        }
        events
    }

    /// Takes an event, and gives it back with its time. Requests whose id names no flow are scenery and stay
    /// where they are.
    fn take(&mut self, event: Event) -> (Micros, Event) {
        self.clock.0 += 1;
        let mut decisions = Vec::new();
        self.pool.apply(self.clock, event.clone(), &mut decisions).expect("time goes on");
        for decision in decisions {
            let Decision::Grant(grant) = decision else { panic!("only grants: {decision:?}") };
            let flow = grant.id.split_once('.').and_then(|(flow, _)| flow.parse().ok());
            if let Some(flow) = flow {
                self.owing.push_back(flow);
                self.flying.push_back(grant.id);
            }
        }
        (self.clock, event)
    }
}
