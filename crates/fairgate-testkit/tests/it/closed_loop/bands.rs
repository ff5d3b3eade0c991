//! Tests of strict classes that always have requests waiting. A capped class holds as many slots as its cap, and leaves
//! exactly the other slots to the classes below.

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::books::Ledger;
use crate::closed_loop::seeds;
use crate::closed_loop::sizes::{self, Estimate};
use crate::closed_loop::world::{Source, World, policy, worker};

/// Returns the number of slots that each class holds if all classes have requests waiting. It is the class's cap, or
/// less if the classes above leave fewer slots.
fn slots_of_classes(slots: u64, caps: &[Option<u64>]) -> Vec<u64> {
    let mut left = slots;
    let take = |cap: &Option<u64>| {
        let taken = cap.unwrap_or(left).min(left);
        left -= taken;
        taken
    };
    caps.iter().map(take).collect()
}

/// Draws a cap for each class except the last, so that no slot stays free.
fn random_caps(rng: &mut SeededRng, classes: usize, slots: u64) -> Vec<Option<u64>> {
    let mut caps: Vec<_> = (1..classes).map(|_| Some(rng.range(0..=slots / 2))).collect();
    caps.push(None);
    caps
}

fn bands(caps: &[Option<u64>], inside: &str) -> String {
    let class = |(i, cap): (usize, &Option<u64>)| {
        let cap = cap.map_or_else(String::new, |cap| format!(r#","cap":{cap}"#));
        format!(r#"{{"name":"c{i}"{cap}}}"#)
    };
    let classes: Vec<_> = caps.iter().enumerate().map(class).collect();
    format!(r#"{{"bands":{{"by":"class","classes":[{}],{inside}}}}}"#, classes.join(","))
}

/// Checks the number of slots of every class after each step.
fn holds(world: &mut World, ledger: &mut Ledger, caps: &[Option<u64>], slots: u64, seed: u64) {
    let expected = slots_of_classes(slots, caps);
    for step in 0..1500 {
        let next = world.step();
        ledger.follow(&next, world, |_| {});
        let held: Vec<_> = ledger.flows.iter().map(|flow| flow.in_flight).collect();
        assert_eq!(held, expected, "seed {seed}, step {step}: slots of classes with {caps:?}");
    }
}

fn play(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let slots = rng.range(1..=12);
    let classes = rng.count(2..=5);
    let mut caps = random_caps(&mut rng, classes, slots);
    let inside = [
        r#""queue":"fcfs""#,
        r#""queue":"edf""#,
        r#""queue":{"order":"wspt","max_wait_us":900000}"#,
        r#""inside":{"share":{"by":"tenant"}}"#,
    ];
    let mut config = PoolConfig::new(slots, policy(&bands(&caps, rng.one_of(&inside))));
    if rng.percent(50) {
        // The worker's slots are the limit, not the pool's.
        config.workers = vec![worker("w", slots)];
        config.capacity = 2 * slots;
    }
    let source = |i| {
        let workloads = sizes::all();
        let sizes = &workloads[rng.index(workloads.len())];
        let source = Source::new(Attribute::Class, &format!("c{i}"), sizes);
        // One event may grant as many of a class as there are slots.
        let waiting = usize::try_from(slots).expect("few");
        Source { waiting, ..source.estimating(rng.one_of(&Estimate::ALL)) }
    };
    let sources: Vec<_> = (0..classes).map(source).collect();
    let mut world = World::new(config, sources, seed).shuffled();
    let mut ledger = Ledger::new(&vec![1; classes]);
    // All sources have something waiting before the first slot is there.
    while ledger.flows.iter().map(|flow| flow.in_flight).sum::<u64>() < slots {
        let step = world.step();
        ledger.follow(&step, &world, |_| {});
    }
    holds(&mut world, &mut ledger, &caps, slots, seed);
    // Caps of events hold too, once what is in flight before them has ended.
    for (class, cap) in random_caps(&mut rng, classes, slots).into_iter().enumerate() {
        caps[class] = cap;
        let (by, flow) = (Attribute::Class, format!("c{class}").into());
        let step = world.happen(Event::Cap { by, flow, slots: cap });
        ledger.follow(&step, &world, |_| {});
    }
    let before = world.requests.len();
    while world.in_flight().iter().any(|number| *number < before) {
        let step = world.step();
        ledger.follow(&step, &world, |_| {});
    }
    holds(&mut world, &mut ledger, &caps, slots, seed);
}

#[test]
fn a_capped_band_leaves_the_lower_ones_exactly_the_rest() {
    seeds("capped bands", 24, play);
}
