//! A pool in steady state: each cycle is one submit, one release and the grant that follows.
//!
//! What a cycle submits and releases depends on what was granted before. So that the clock sees the pool
//! alone, a copy of it runs ahead, untimed, and its events are written down; then the pool itself is given
//! them, timed. The flow that was granted a slot is the flow that submits next: who is backlogged stays so. That each
//! flow which a scenario calls busy has requests waiting at every pick is asserted.
//!
//! The pool is measured through the layer that owns ids and attributes, as the gateway calls it; the bare engine, on
//! handles and resolved paths, can be measured beside it.

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;

use fairgate_core::decision::{Decision, Sink};
use fairgate_core::engine::{Ask, Engine, Path, Verdict, Verdicts, WorkerNames};
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_core::{Handle, Pool};
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
    /// The flows that have requests waiting at every pick: each submits again as soon as it was granted a slot. Where
    /// none is named, flows submit in the order of their grants, one in each cycle.
    pub(crate) busy: Vec<usize>,
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
    /// What is in flight, the oldest first.
    in_flight: VecDeque<(Arc<str>, Handle)>,
    /// The flows that were granted a slot and have not submitted again.
    owing: VecDeque<usize>,
    usage: Rng,
    /// How many requests wait of each flow, and how many of the busy ones have none.
    waiting: HashMap<usize, u64>,
    busy: Vec<usize>,
    idle: usize,
    /// The handles of what each event of a run submits or releases.
    handles: Vec<Handle>,
}

impl Scout {
    /// A pool after its opening, and the events of that.
    fn open(scenario: Scenario) -> (Self, Events) {
        let mut scout = Self {
            pool: Pool::new(scenario.config),
            source: scenario.source,
            resubmits: scenario.resubmits,
            clock: Micros(0),
            in_flight: VecDeque::new(),
            owing: VecDeque::new(),
            usage: Rng::new(7),
            waiting: HashMap::new(),
            busy: Vec::new(),
            idle: 0,
            handles: Vec::new(),
        };
        let mut opening: Events = scenario.opening.into_iter().map(|e| scout.take(e)).collect();
        assert!(!scout.owing.is_empty(), "a steady state has something in flight");
        if scout.resubmits && !scenario.busy.is_empty() {
            while let Some(flow) = scout.owing.pop_front() {
                let submit = scout.source.next(flow);
                opening.push(scout.take(submit));
            }
        }
        scout.busy = scenario.busy;
        scout.idle = scout.busy.iter().filter(|flow| !scout.waiting.contains_key(flow)).count();
        (scout, opening)
    }

    fn run(&mut self, cycles: u64) -> Events {
        let mut events = Vec::new();
        self.handles.clear();
        for _ in 0..cycles {
            if self.busy.is_empty() {
                self.resubmit(&mut events);
            }
            let (id, handle) = self.in_flight.pop_front().expect("a flight in every cycle");
            let tokens = Some(Tokens(self.usage.range(1..=1000)));
            self.handles.push(handle);
            events.push(self.take(Event::Release { id, tokens, quota: None }));
            if !self.busy.is_empty() {
                self.resubmit(&mut events);
            }
        }
        events
    }

    fn resubmit(&mut self, events: &mut Events) {
        let flow = self.owing.pop_front().expect("a grant in every cycle");
        if self.resubmits {
            let submit = self.source.next(flow);
            let Event::Submit(made) = &submit else { unreachable!("a source makes submits") };
            let id = made.id.clone();
            events.push(self.take(submit));
            self.handles.push(self.pool.find(&id).expect("it waits"));
        }
    }

    /// A flow has one more or one less waiting.
    fn count(&mut self, flow: usize, more: bool) {
        let waiting = self.waiting.entry(flow).or_default();
        *waiting = if more { *waiting + 1 } else { *waiting - 1 };
        let (now, is_busy) = (*waiting, self.busy.binary_search(&flow).is_ok());
        if now == 0 {
            self.waiting.remove(&flow);
        }
        match (more, now) {
            (true, 1) if is_busy => self.idle -= 1,
            (false, 0) if is_busy => self.idle += 1,
            _ => {}
        }
    }

    /// Takes an event, and gives it back with its time. Requests whose id names no flow are scenery and stay
    /// where they are.
    fn take(&mut self, event: Event) -> (Micros, Event) {
        self.clock.0 += 1;
        let mut decisions = Vec::new();
        self.pool.apply(self.clock, event.clone(), &mut decisions).expect("time goes on");
        if let Event::Submit(submit) = &event
            && let Some(flow) = flow_of(&submit.id)
        {
            self.count(flow, true);
        }
        for decision in decisions {
            let Decision::Grant(grant) = decision else { panic!("only grants: {decision:?}") };
            if let Some(flow) = flow_of(&grant.id) {
                assert_eq!(self.idle, 0, "a busy flow has nothing waiting at a pick");
                self.count(flow, false);
                self.owing.push_back(flow);
                self.in_flight.push_back((grant.id, grant.request));
            }
        }
        (self.clock, event)
    }
}

/// The flow of a request that is not scenery.
fn flow_of(id: &str) -> Option<usize> {
    id.split_once('.').and_then(|(flow, _)| flow.parse().ok())
}

/// The bare engine after the opening: handles and resolved paths only.
pub(crate) fn open_bare(scenario: Scenario) -> Box<dyn Subject> {
    let mut engine = Engine::new(scenario.config.clone());
    let (scout, opening) = Scout::open(scenario);
    let mut ids = HashMap::new();
    for (at, event) in opening {
        let mut granted = Granted(0);
        engine.begin(at, &mut granted).expect("time goes on");
        match event {
            Event::Submit(submit) => {
                let path = engine.path(&submit.attributes);
                let id = submit.id.clone();
                let handle = engine.submit(path, &Ask::of(&submit), &mut granted);
                ids.insert(id, handle.expect("it is accepted"));
            }
            Event::Release { id, tokens, quota } => {
                engine.release(ids[&id], tokens, quota);
            }
            Event::Hold { by, flow } => engine.set_held(by, &flow, true),
            Event::Capacity { slots } => engine.set_capacity(slots),
            other => panic!("no bare scenario opens with {other:?}"),
        }
        engine.finish(&mut granted);
    }
    Box::new(Bare { engine, scout })
}

struct Bare {
    engine: Engine,
    scout: Scout,
}

/// What an engine is given in place of an event.
enum Step {
    Submit(Path, Box<Submit>),
    Release(Handle, Option<Tokens>),
}

struct Granted(u64);

impl Verdicts for Granted {
    fn decided(&mut self, _request: Handle, verdict: Verdict, _workers: &WorkerNames<'_>) {
        black_box(verdict);
        self.0 += 1;
    }
}

impl Subject for Bare {
    fn time(&mut self, cycles: u64) -> f64 {
        let events = self.scout.run(cycles);
        let engine = &mut self.engine;
        // Busy flows stay, so their paths stay good.
        let steps: Vec<(Micros, Step)> = events
            .into_iter()
            .zip(&self.scout.handles)
            .map(|((at, event), handle)| match event {
                Event::Submit(submit) => {
                    (at, Step::Submit(engine.path(&submit.attributes), submit))
                }
                Event::Release { tokens, .. } => (at, Step::Release(*handle, tokens)),
                other => panic!("no cycle has {other:?}"),
            })
            .collect();
        let (granted, took) = nanoseconds(|| {
            let mut granted = Granted(0);
            for (at, step) in steps {
                engine.begin(at, &mut granted).expect("time goes on");
                match step {
                    Step::Submit(path, submit) => {
                        let ask = Ask::of(&submit);
                        black_box(engine.submit(path, &ask, &mut granted).is_ok());
                    }
                    Step::Release(handle, tokens) => {
                        black_box(engine.release(handle, tokens, None));
                    }
                }
                engine.finish(&mut granted);
            }
            granted.0
        });
        assert_eq!(granted, cycles, "every cycle grants one request");
        took / cycles as f64
    }
}
