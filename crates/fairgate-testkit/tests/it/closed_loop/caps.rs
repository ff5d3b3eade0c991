//! Tests of a flow with a cap of one request beside seven flows without a cap, on eight slots. By weight the flow is
//! due one slot, which is also its cap.

use std::sync::Mutex;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::PoolConfig;
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::books::Ledger;
use crate::closed_loop::seeds;
use crate::closed_loop::sizes::{self, Estimate, Sizes};
use crate::closed_loop::world::{Source, World, policy, worker};

const SLOTS: u64 = 8;

/// Returns three numbers about the capped flow in thousandths: its tokens relative to an eighth of all tokens, its slot
/// time relative to one slot, and the cap use that the meter reports.
fn capped(sizes: &'static Sizes, estimate: Estimate, queue: &str, seed: u64) -> (i128, u64, u64) {
    let text = format!(r#"{{"share":{{"by":"tenant","caps":{{"t0":1}},"queue":"{queue}"}}}}"#);
    let mut config = PoolConfig::new(SLOTS, policy(&text));
    if seed.is_multiple_of(2) {
        config.workers = vec![worker("w", SLOTS)];
        config.capacity = 2 * SLOTS;
    }
    let source = |i| Source::new(Attribute::Tenant, &format!("t{i}"), sizes).estimating(estimate);
    let mut world = World::new(config, (0..8).map(source).collect(), seed).shuffled();
    let mut ledger = Ledger::new(&[1; 8]);
    let (mut busy, mut last) = (0, 0);
    while ledger.flows[0].grants < 4000 {
        let step = world.step();
        busy += (step.at - last) * ledger.flows[0].in_flight;
        last = step.at;
        ledger.follow(&step, &world, |_| {});
    }
    let of_an_eighth = ledger.flows[0].charged() * 8 * 1000 / ledger.total();
    let fairness = world.pool.fairness();
    let cap_use = fairness[0].flows[0].cap_use.expect("it has a cap").thousandths();
    (of_an_eighth, busy * 1000 / last, cap_use)
}

#[test]
fn a_flow_at_its_cap_gets_at_least_seven_tenths_of_it() {
    let all = Mutex::new(Vec::new());
    seeds("a flow at its cap", 10, |seed| {
        let mut rng = SeededRng::new(seed);
        let workloads = sizes::all();
        let sizes = &workloads[rng.index(workloads.len())];
        let (estimate, queue) = (rng.one_of(&Estimate::ALL), rng.one_of(&["fcfs", "wspt"]));
        let (tokens, time, cap_use) = capped(sizes, estimate, queue, seed);
        let told = format!("{}, {estimate:?}, {queue}: {tokens} {time} {cap_use}", sizes.name);
        all.lock().expect("nobody failed").push(told.clone());
        assert!(tokens >= 700 && time >= 700, "seed {seed}, {told}: ‰ of what it is due");
        // Something waits all the time, so cap use is the time in which the one slot is taken.
        assert!(time.abs_diff(cap_use) <= 1, "seed {seed}, {told}: ‰ of the time");
    });
    let mut all = all.into_inner().expect("nobody failed");
    all.sort();
    for told in all {
        announce(&format!("{told} ‰ of tokens, of time, cap use"));
    }
}
