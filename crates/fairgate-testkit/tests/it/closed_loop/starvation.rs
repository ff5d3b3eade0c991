//! Tests that no flow with waiting requests that could run waits for ever.

use std::fmt::Write as _;
use std::sync::Mutex;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::PoolConfig;
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::books::Ledger;
use crate::closed_loop::seeds;
use crate::closed_loop::sizes::{self, Estimate, Sizes};
use crate::closed_loop::world::{Source, World, policy, worker};

/// Draws a workload and a kind of estimate.
fn any(rng: &mut SeededRng) -> (&'static Sizes, Estimate) {
    let workloads = sizes::all();
    (&workloads[rng.index(workloads.len())], rng.one_of(&Estimate::ALL))
}

/// a and b need a worker with one slot. c has another worker with eight, and moves virtual time far ahead of them. Each
/// time the slot is free both are lifted to virtual time, or nearly, so they take turns; neither waits for ever.
#[test]
fn two_flows_on_a_worker_with_one_slot_take_turns_while_a_third_runs_elsewhere() {
    let worst = Mutex::new(0);
    seeds("two on one slot", 12, |seed| {
        let mut rng = SeededRng::new(seed);
        let mut config = PoolConfig::new(16, policy(r#"{"share":{"by":"tenant"}}"#));
        config.workers = vec![worker("w0", 1), worker("w1", 8)];
        let (mut sources, mut told) = (Vec::new(), format!("seed {seed}"));
        for (name, on) in [("a", "w0"), ("b", "w0"), ("c", "w1")] {
            let (sizes, estimate) = any(&mut rng);
            let source = Source::new(Attribute::Tenant, name, sizes);
            sources.push(source.estimating(estimate).on(&[on]));
            write!(told, ", {name} {} {estimate:?}", sizes.name).expect("written to memory");
        }
        let mut world = World::new(config, sources, seed).shuffled();
        let mut ledger = Ledger::new(&[1; 3]);
        let (mut longest, mut in_a_row, mut last) = (0, 0, 0);
        while ledger.flows[0].grants + ledger.flows[1].grants < 2000 {
            let step = world.step();
            ledger.follow(&step, &world, |_| {});
            let granted = step.granted.iter().map(|number| &world.requests[*number]);
            for request in granted.filter(|request| request.source != 2) {
                in_a_row = if request.source == last { in_a_row + request.cost } else { 0 };
                last = request.source;
                longest = longest.max(in_a_row);
            }
        }
        // While one waits the other is granted about what both may be apart: one request each, and errors.
        let of = |source: usize| world.requests.iter().filter(move |r| r.source == source);
        let largest = |source: usize| of(source).map(|r| r.cost.max(r.used)).max().unwrap_or(0);
        let both = largest(0) + largest(1);
        let percent = longest * 100 / both;
        assert!(percent <= 500, "{told}: {longest} tokens in a row, {both} are one of each");
        let mut worst = worst.lock().expect("nobody failed");
        *worst = percent.max(*worst);
    });
    let percent = worst.into_inner().expect("nobody failed");
    announce(&format!("two on one slot: {percent} % of one of each in a row, at most"));
}

/// A flow that always has requests waiting, beside names that come fresh with every request. So many of those wait at
/// any time: the steady one gets at least its part of all that are there, waiting or in flight.
#[test]
fn a_steady_flow_gets_its_part_beside_names_that_are_fresh_with_every_request() {
    let all = Mutex::new(Vec::new());
    seeds("fresh names", 12, |seed| {
        let mut rng = SeededRng::new(seed);
        let (sizes, estimate) = any(&mut rng);
        let capacity = rng.range(1..=8);
        let fresh = rng.count(1..=9);
        let config = PoolConfig::new(capacity, policy(r#"{"share":{"by":"tenant"}}"#));
        let steady = Source { waiting: 10, ..Source::new(Attribute::Tenant, "steady", sizes) };
        let others = Source { waiting: fresh, ..Source::new(Attribute::Tenant, "f", sizes) };
        let others = Source { fresh: true, ..others };
        let sources = vec![steady.estimating(estimate), others.estimating(estimate)];
        let mut world = World::new(config, sources, seed).shuffled();
        let mut ledger = Ledger::new(&[1; 2]);
        while ledger.flows[0].grants < 2000 {
            let step = world.step();
            ledger.follow(&step, &world, |_| {});
        }
        let got = ledger.flows[0].charged() * 1000 / ledger.total();
        let waiting = 1000 / (fresh as i128 + 1);
        let there = 1000 / (fresh as i128 + i128::from(capacity) + 1);
        let told = format!("{fresh} fresh, {capacity} slots, {}, {estimate:?}", sizes.name);
        assert!(got >= there, "seed {seed}: {told}: {got} ‰, part {there} to {waiting} ‰");
        all.lock().expect("nobody failed").push(format!("{told}: {got} ‰ ({there} to {waiting})"));
    });
    for told in all.into_inner().expect("nobody failed") {
        announce(&told);
    }
}
