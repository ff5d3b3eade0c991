//! Tests of a flow that was not ready for an hour. It does not catch up on the service that it
//! missed.

use std::collections::BTreeSet;
use std::sync::Mutex;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, PoolConfig, WorkerChange};
use fairgate_core::units::Micros;
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::seeds;
use crate::closed_loop::sizes::{self, Estimate, Sizes};
use crate::closed_loop::world::{Source, World, policy, service_us, worker};

const HOUR: u64 = 3_600_000_000;
const SLOTS: u64 = 8;

/// The reason why the flow was not ready.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// An operator held it.
    Held,
    /// The worker that it needs was paused.
    Paused,
}

/// Returns the mean time that requests run, in microseconds.
fn mean_service_us(sizes: &Sizes) -> u64 {
    let mut rng = SeededRng::new(1);
    (0..1000).map(|_| service_us(sizes.draw(&mut rng))).sum::<u64>() / 1000
}

/// Returns three numbers of tokens over ten service times after the hour: those of the kept flow's grants, those of all
/// grants, and those of the largest request that was in flight.
fn after_an_hour(
    kept: Kept,
    weights: &[u64],
    sizes: &'static Sizes,
    estimate: Estimate,
    seed: u64,
) -> (u64, u64, u64) {
    let listed: Vec<_> =
        weights.iter().enumerate().map(|(i, w)| format!(r#""t{i}":{w}"#)).collect();
    let text = format!(r#"{{"share":{{"by":"tenant","weights":{{{}}}}}}}"#, listed.join(","));
    let mut config = PoolConfig::new(SLOTS, policy(&text));
    let source = |i| Source::new(Attribute::Tenant, &format!("t{i}"), sizes).estimating(estimate);
    let mut sources: Vec<Source> = (0..weights.len()).map(source).collect();
    for source in &mut sources {
        source.waiting = 10;
    }
    if let Kept::Paused = kept {
        config.workers = vec![worker("w0", SLOTS / 2), worker("w1", SLOTS / 2)];
        sources[0] = sources[0].clone().on(&["w0"]);
    }
    let mut world = World::new(config, sources, seed).shuffled();
    let service = mean_service_us(sizes);
    while world.now < 20 * service {
        world.step();
    }
    let until = world.now + HOUR;
    match kept {
        Kept::Held => {
            let hold = Event::Hold { by: Attribute::Tenant, flow: "t0".into() };
            let resume = Event::Resume { by: Attribute::Tenant, flow: "t0".into() };
            world.happen(hold);
            world.plan(until, resume);
        }
        Kept::Paused => {
            let pause = WorkerChange {
                name: "w0".into(),
                pause_until: Some(Micros(until)),
                ..WorkerChange::default()
            };
            world.happen(Event::Worker(pause));
        }
    }
    let mut in_flight = BTreeSet::new();
    let (mut own, mut all, mut largest) = (0, 0, 0);
    while world.now <= until + 10 * service {
        let step = world.step();
        if let Some(number) = step.ended {
            in_flight.remove(&number);
        }
        in_flight.extend(&step.granted);
        if step.at < until {
            let sources = step.granted.iter().map(|number| world.requests[*number].source);
            assert_eq!(sources.filter(|source| *source == 0).count(), 0, "granted while kept");
            continue;
        }
        let used = |number: &usize| world.requests[*number].used;
        largest = largest.max(in_flight.iter().map(used).max().unwrap_or(0));
        let is_own = |number: &&usize| world.requests[**number].source == 0;
        own += step.granted.iter().filter(is_own).map(used).sum::<u64>();
        all += step.granted.iter().map(used).sum::<u64>();
    }
    (own, all, largest)
}

#[test]
fn over_ten_service_times_it_takes_no_more_than_its_share_and_one_request_per_slot() {
    let all = Mutex::new(Vec::new());
    seeds("kept for an hour", 12, |seed| {
        let mut rng = SeededRng::new(seed);
        let weights: Vec<u64> = (0..rng.count(2..=5)).map(|_| rng.range(1..=4)).collect();
        let workloads = sizes::all();
        let sizes = &workloads[rng.index(workloads.len())];
        let estimate = rng.one_of(&Estimate::ALL);
        let kept = if seed % 2 == 0 { Kept::Held } else { Kept::Paused };
        let (own, served, largest) = after_an_hour(kept, &weights, sizes, estimate, seed);
        let share = served * weights[0] / weights.iter().sum::<u64>();
        let told = format!("seed {seed}: {kept:?}, {}, {estimate:?}, {weights:?}", sizes.name);
        assert!(own <= share + SLOTS * largest, "{told}: {own} of {served}, a share is {share}");
        let over =
            (i128::from(own) - i128::from(share)) * 1000 / i128::from(SLOTS * largest.max(1));
        all.lock().expect("nobody failed").push((over, told));
    });
    let worst = all.into_inner().expect("nobody failed").into_iter().max();
    announce(&format!(
        "kept for an hour, most over its share in ‰ of one request per slot: {worst:?}"
    ));
}
