//! Tests of shares, caps, bands, deadlines, pauses, rates and late requests in random closed loops in virtual time,
//! with the request sizes of public traces. Service is measured only from the decisions and from the tokens that
//! requests really used.
//!
//! `FAIRGATE_SEEDS` sets the number of seeds that each test tries, and `FAIRGATE_SEED` the first seed. A failure prints
//! its seed.

mod arrivals;
mod bands;
mod books;
mod caps;
mod deadlines;
mod late;
mod meter;
mod pairs;
mod rates;
mod resume;
mod ring;
mod sizes;
mod starvation;
mod world;

use fairgate_core::Pool;
use fairgate_core::snapshot::NodeCounters;
use fairgate_testkit::seeds::for_each_seed;

/// Tries `default` seeds, or the number of seeds in `FAIRGATE_SEEDS`.
fn seeds(name: &str, default: u64, case: impl Fn(u64) + Sync) {
    let asked = std::env::var("FAIRGATE_SEEDS").ok().and_then(|text| text.parse().ok());
    for_each_seed(name, asked.unwrap_or(default), case);
}

/// Returns for each flow of the root, a share node, the bound of got − due that holds for flows that are always ready.
/// It does not depend on scores.
fn always_ready_bounds(pool: &Pool) -> Vec<u128> {
    let root = pool.snapshot().root;
    let NodeCounters::Share { meter: node, .. } = root.state else { panic!("a share node") };
    let nodes = pool.fairness();
    let weights = nodes[0].flows.iter().map(|flow| flow.weight.expect("a share").get());
    let bounds = root.flows.iter().zip(weights).map(|(flow, weight)| {
        let own = flow.share.as_ref().expect("a share").meter.worst << 32;
        let others = node.widest * u128::from(weight);
        ((own + others + node.carried.unsigned_abs()) >> 32) + 1
    });
    bounds.collect()
}
