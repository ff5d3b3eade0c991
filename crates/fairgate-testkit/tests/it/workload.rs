//! Tests of the random journals. A seed always gives the same journal, the journals reach all kinds of events and
//! decisions, and the oracle accepts them.

use std::collections::BTreeMap;

use fairgate_core::event::{Event, PoolConfig};
use fairgate_testkit::naive::{ComparedDecision, NaivePool};
use fairgate_testkit::workload::{Events, WorkloadShape, generate, generate_answered};

/// Counts of the events and decisions in some journals.
#[derive(Default)]
struct Seen {
    events: BTreeMap<&'static str, usize>,
    decisions: BTreeMap<&'static str, usize>,
    endings: usize,
    endings_that_hit: usize,
    deepest: usize,
    journals: usize,
    drained: usize,
}

impl Seen {
    fn run(&mut self, config: &PoolConfig, events: &Events) {
        let mut pool = NaivePool::new(config.clone());
        let (mut deep, mut drained) = (0, false);
        for (at, event) in events {
            let in_flight = pool.in_flight().len();
            let ticks = pool.ticks();
            let decided = pool.apply(*at, event);
            self.count(event, &decided);
            if matches!(event, Event::Release { .. }) {
                self.endings += 1;
                self.endings_that_hit += usize::from(pool.ticks() > ticks);
            }
            assert_capacity_holds(&pool, in_flight);
            deep = deep.max(pool.waiting().len());
            drained |= deep > 5 && pool.waiting().is_empty();
        }
        self.deepest = self.deepest.max(deep);
        self.journals += 1;
        self.drained += usize::from(drained);
    }

    fn count(&mut self, event: &Event, decided: &[ComparedDecision]) {
        *self.events.entry(kind(event)).or_default() += 1;
        for decision in decided {
            let code = match decision {
                ComparedDecision::Grant { brownout: Some(true), .. } => "brownout",
                ComparedDecision::Grant { place: Some(_), .. } => "placed",
                ComparedDecision::Grant { .. } => "grant",
                ComparedDecision::Reject { reason, .. } => reason.code(),
                ComparedDecision::Expire { .. } => "expire",
            };
            *self.decisions.entry(code).or_default() += 1;
        }
    }
}

/// Checks that no grant exceeds the capacity. More requests may be in flight only after the
/// capacity fell.
fn assert_capacity_holds(pool: &NaivePool, in_flight_before: usize) {
    let in_flight = pool.in_flight().len();
    let capacity = usize::try_from(pool.capacity()).expect("a small capacity");
    assert!(in_flight <= capacity.max(in_flight_before));
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::Submit(_) => "submit",
        Event::Release { .. } => "release",
        Event::Cancel { .. } => "cancel",
        Event::Hold { .. } => "hold",
        Event::Resume { .. } => "resume",
        Event::Capacity { .. } => "capacity",
        Event::Tick => "tick",
        Event::Weight { .. } => "weight",
        Event::Policy(_) => "policy",
        Event::Cap { .. } => "cap",
        Event::Worker(_) => "worker",
        Event::FirstToken { .. } => "first_token",
    }
}

#[test]
fn the_same_seed_gives_the_same_journal() {
    for (_, shape) in WorkloadShape::quick() {
        assert_eq!(generate(&shape, 7), generate(&shape, 7));
        assert_eq!(generate_answered(&shape, 7), generate_answered(&shape, 7));
        assert_ne!(generate(&shape, 7), generate(&shape, 8));
    }
}

#[test]
fn time_never_goes_back() {
    for (_, shape) in WorkloadShape::quick() {
        let (_, events) = generate(&shape, 3);
        assert_eq!(events.len(), shape.events);
        assert!(events.is_sorted_by_key(|(at, _)| *at));
    }
}

#[test]
fn quick_shapes_reach_every_event_and_decision() {
    let mut all = Seen::default();
    for (name, shape) in WorkloadShape::quick() {
        for (answered, make) in [(false, generate as fn(&_, _) -> _), (true, generate_answered)] {
            let mut seen = Seen::default();
            for seed in 0..40 {
                let (config, events) = make(&shape, seed);
                seen.run(&config, &events);
                all.run(&config, &events);
            }
            let (hit, of) = (seen.endings_that_hit, seen.endings);
            assert!(seen.deepest >= 40, "{name}: at most {} wait", seen.deepest);
            // Who only guesses what is in flight misses often.
            let (least_hit, least_drained) =
                if answered { (of / 3, seen.journals / 3) } else { (of / 20, seen.journals / 20) };
            assert!(hit >= least_hit, "{name}: {hit} of {of} releases hit");
            // What is jammed or paused is so to the end.
            let jams = ["jammed", "rates", "paused", "wild"].contains(&name);
            let drains = seen.drained >= least_drained || jams;
            assert!(drains, "{name}: {} drained", seen.drained);
        }
    }
    assert_eq!(all.events.len(), 12, "{:?}", all.events);
    assert_eq!(all.decisions.len(), 12, "{:?}", all.decisions);
}

#[test]
fn a_crowd_waits() {
    let mut seen = Seen::default();
    for seed in 0..6 {
        let shape = WorkloadShape { events: 1500, ..WorkloadShape::crowded() };
        let (config, events) = generate_answered(&shape, seed);
        seen.run(&config, &events);
    }
    assert!(seen.deepest >= 250, "at most {} wait", seen.deepest);
}
