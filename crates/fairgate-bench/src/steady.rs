//! A pool in steady state. Each cycle consists of one submit, one release and the grant that
//! follows.
//!
//! The events of a cycle depend on earlier grants. To time only the pool, an untimed copy of the
//! pool runs ahead and its events are recorded. Then the pool itself gets the same events and is
//! timed. The flow that was granted a slot submits next, so a backlogged flow stays backlogged. An
//! assertion checks that each flow that a scenario calls busy has requests queued at every pick.
//!
//! The pool is measured through the layer that owns ids and attributes, which is the layer that the
//! gateway calls. For comparison, the engine below that layer can be measured, which takes only
//! handles and resolved paths.

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::sync::Arc;

use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::engine::{
    EngineDecision, EngineDecisionSink, PoolEngine, QueuePath, RequestDemand, WorkerNames,
};
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_core::{Pool, RequestHandle};
use fairgate_testkit::naive::NaivePool;
pub(crate) use fairgate_testkit::workload::Events;
use fairgate_testkit::workload::SeededRng;

use crate::measure::{TimedSubject, nanoseconds};

/// A function that makes a submit. Its arguments are the index of the flow, and the number of
/// submits made before.
type MakeSubmit = Box<dyn FnMut(usize, u64) -> Submit>;

/// A pool's configuration, the events that fill it, and the submits of its flows.
pub(crate) struct PoolScenario {
    pub(crate) config: PoolConfig,
    pub(crate) opening: Vec<Event>,
    pub(crate) source: SubmitSource,
    /// True if a flow submits a request after each of its grants. If false, a cycle is only a
    /// release and the grant that follows, and the backlog must be large enough for the whole
    /// measurement.
    pub(crate) resubmits: bool,
    /// Flows that must have requests queued at every pick, in increasing order. If there are any,
    /// each flow submits again as soon as it is granted a slot. If the list is empty, one flow
    /// submits at the beginning of each cycle, in the order of the grants.
    pub(crate) busy: Vec<usize>,
}

/// Source of the submits of all flows. It numbers them consecutively.
pub(crate) struct SubmitSource {
    made: u64,
    make: MakeSubmit,
}

impl SubmitSource {
    pub(crate) fn new(make: impl FnMut(usize, u64) -> Submit + 'static) -> Self {
        Self { made: 0, make: Box::new(make) }
    }

    /// Returns the next submit of a flow, with a unique id.
    pub(crate) fn next(&mut self, flow: usize) -> Event {
        let mut submit = (self.make)(flow, self.made);
        submit.id = format!("{flow}.{}", self.made).into();
        self.made += 1;
        Event::Submit(Box::new(submit))
    }
}

/// A pool that can be timed, which is Fairgate's pool or the naive pool.
trait TimedPool {
    /// Applies an event and returns the number of decisions that it caused.
    fn take(&mut self, at: Micros, event: Event) -> u64;
}

impl TimedPool for Pool {
    fn take(&mut self, at: Micros, event: Event) -> u64 {
        let mut decided = DecisionCounter(0);
        self.apply(at, event, &mut decided).expect("time goes on");
        decided.0
    }
}

impl TimedPool for NaivePool {
    fn take(&mut self, at: Micros, event: Event) -> u64 {
        self.apply(at, &event).len() as u64
    }
}

struct DecisionCounter(u64);

impl DecisionSink for DecisionCounter {
    fn decided(&mut self, decision: Decision) {
        black_box(decision);
        self.0 += 1;
    }
}

/// A pool under measurement, and its untimed copy that runs ahead.
struct SteadyPool<M> {
    machine: M,
    scout: ScoutPool,
}

/// Opens Fairgate's pool and applies the opening events of the scenario.
pub(crate) fn open(scenario: PoolScenario) -> Box<dyn TimedSubject> {
    let (scout, _) = ScoutPool::open(scenario);
    Box::new(SteadyPool { machine: scout.pool.clone(), scout })
}

/// Opens the naive pool and applies the opening events of the scenario.
pub(crate) fn open_naive(scenario: PoolScenario) -> Box<dyn TimedSubject> {
    let mut machine = NaivePool::new(scenario.config.clone());
    let (scout, opening) = ScoutPool::open(scenario);
    for (at, event) in opening {
        machine.take(at, event);
    }
    Box::new(SteadyPool { machine, scout })
}

/// Returns the opening events of a scenario and the events of the given number of cycles.
pub(crate) fn events(scenario: PoolScenario, cycles: u64) -> Events {
    let (mut scout, mut events) = ScoutPool::open(scenario);
    events.extend(scout.run(cycles));
    events
}

impl<M: TimedPool> TimedSubject for SteadyPool<M> {
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

/// An untimed pool that runs ahead to find the events of each cycle.
struct ScoutPool {
    pool: Pool,
    source: SubmitSource,
    resubmits: bool,
    clock: Micros,
    /// Requests in flight, the oldest first.
    in_flight: VecDeque<(Arc<str>, RequestHandle)>,
    /// Flows that were granted a slot and have not submitted again yet, in the order of the grants.
    owing: VecDeque<usize>,
    usage: SeededRng,
    /// Number of queued requests of each flow. Flows without queued requests have no entry.
    waiting: HashMap<usize, u64>,
    busy: Vec<usize>,
    /// Number of busy flows without queued requests.
    idle: usize,
    /// Handles of the requests that the recorded events submit or release, in the order of the
    /// events.
    handles: Vec<RequestHandle>,
}

impl ScoutPool {
    /// Opens a pool, applies the opening events, and returns the pool and those events.
    fn open(scenario: PoolScenario) -> (Self, Events) {
        let mut scout = Self {
            pool: Pool::new(scenario.config),
            source: scenario.source,
            resubmits: scenario.resubmits,
            clock: Micros(0),
            in_flight: VecDeque::new(),
            owing: VecDeque::new(),
            usage: SeededRng::new(7),
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

    /// Adds one to a flow's number of queued requests if `more` is true, else subtracts one.
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

    /// Applies an event, and returns it with its time. Requests whose id names no flow are
    /// placeholders, which are not released during the measurement.
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

/// Returns the index of the flow that a request's id names; `None` for a placeholder.
fn flow_of(id: &str) -> Option<usize> {
    id.split_once('.').and_then(|(flow, _)| flow.parse().ok())
}

/// Opens the engine below Fairgate's pool, which takes only handles and resolved paths, and applies
/// the opening events of the scenario.
pub(crate) fn open_bare(scenario: PoolScenario) -> Box<dyn TimedSubject> {
    let mut engine = PoolEngine::new(scenario.config.clone());
    let (scout, opening) = ScoutPool::open(scenario);
    let mut ids = HashMap::new();
    for (at, event) in opening {
        let mut granted = VerdictCounter(0);
        engine.begin(at, &mut granted).expect("time goes on");
        match event {
            Event::Submit(submit) => {
                let path = engine.path(&submit.attributes);
                let id = submit.id.clone();
                let handle = engine.submit(path, &RequestDemand::of(&submit), &mut granted);
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
    Box::new(BareEngine { engine, scout })
}

struct BareEngine {
    engine: PoolEngine,
    scout: ScoutPool,
}

/// An event in the form that the engine takes.
enum EngineCall {
    Submit(QueuePath, Box<Submit>),
    Release(RequestHandle, Option<Tokens>),
}

struct VerdictCounter(u64);

impl EngineDecisionSink for VerdictCounter {
    fn decided(
        &mut self,
        _request: RequestHandle,
        verdict: EngineDecision,
        _workers: &WorkerNames<'_>,
    ) {
        black_box(verdict);
        self.0 += 1;
    }
}

impl TimedSubject for BareEngine {
    fn time(&mut self, cycles: u64) -> f64 {
        let events = self.scout.run(cycles);
        let engine = &mut self.engine;
        // Busy flows are not removed, so their paths stay valid.
        let steps: Vec<(Micros, EngineCall)> = events
            .into_iter()
            .zip(&self.scout.handles)
            .map(|((at, event), handle)| match event {
                Event::Submit(submit) => {
                    (at, EngineCall::Submit(engine.path(&submit.attributes), submit))
                }
                Event::Release { tokens, .. } => (at, EngineCall::Release(*handle, tokens)),
                other => panic!("no cycle has {other:?}"),
            })
            .collect();
        let (granted, took) = nanoseconds(|| {
            let mut granted = VerdictCounter(0);
            for (at, step) in steps {
                engine.begin(at, &mut granted).expect("time goes on");
                match step {
                    EngineCall::Submit(path, submit) => {
                        let demand = RequestDemand::of(&submit);
                        black_box(engine.submit(path, &demand, &mut granted).is_ok());
                    }
                    EngineCall::Release(handle, tokens) => {
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
