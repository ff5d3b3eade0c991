//! Tests of share nodes whose flows are ready whenever a slot is free. Flows are compared pair by
//! pair.
//!
//! Let Eᵢ be what a flow was charged: tokens really used by what ended, and costs of what is in flight. All flows wait
//! before the first grant, so at i's last grant Eᵢ/wᵢ ≤ Eⱼ/wⱼ. Since then Eᵢ has risen by the cost of that grant and by
//! i's own errors; Eⱼ may have fallen, by refunds of what j had in flight, but not further than it is below its highest:
//!
//! ```text
//!     Eᵢ/wᵢ − Eⱼ/wⱼ  ≤  riseᵢ/wᵢ + fallⱼ/wⱼ
//! ```
//!
//! at every moment, whatever limits the pool. Neither side grows with time, so the tokens converge on the weights.

use std::sync::Mutex;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{PoolConfig, WorkerChange};
use fairgate_core::policy::BusyThresholds;
use fairgate_core::units::{PerMinute, Tokens};
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::books::{Books, Ledger};
use crate::closed_loop::sizes::{self, Estimate, Sizes};
use crate::closed_loop::world::{Source, World, policy, worker};
use crate::closed_loop::{always_ready_bounds, seeds};

/// The limit because of which requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Capacity,
    Slots,
    BusyThreshold,
    Rates,
}

/// Greatest number of requests in flight. No event grants more requests, so a flow with one more
/// waiting request never becomes empty.
const MOST_IN_FLIGHT: u64 = 32;

impl Limit {
    const ALL: [Self; 4] = [Self::Capacity, Self::Slots, Self::BusyThreshold, Self::Rates];

    /// Builds the configuration of a pool with this limit, for requests of `mean` tokens on
    /// average.
    fn config(self, policy_text: &str, mean: u64, rng: &mut SeededRng) -> PoolConfig {
        let large = PoolConfig::new(MOST_IN_FLIGHT, policy(policy_text));
        let free = |name: &str| WorkerChange { name: name.into(), ..WorkerChange::default() };
        match self {
            Self::Capacity => PoolConfig { capacity: rng.range(1..=16), ..large },
            Self::Slots => {
                let mut workers = vec![worker("w0", rng.range(1..=8))];
                for name in &["w1", "w2"][..rng.count(0..=2)] {
                    workers.push(worker(name, rng.range(1..=4)));
                }
                PoolConfig { workers, ..large }
            }
            Self::BusyThreshold => {
                let tokens = Some(Tokens(mean * rng.range(1..=4)));
                let busy = BusyThresholds { tokens, fraction: None };
                PoolConfig { workers: vec![free("w0"), free("w1")], busy, ..large }
            }
            Self::Rates => {
                let per_minute = |n| Some(Some(PerMinute::new(n).expect("over 0")));
                let mut workers = vec![free("w0"), free("w1")];
                workers[0].requests_per_minute = per_minute(rng.range(30..=600));
                workers[1].tokens_per_minute = per_minute(mean * rng.range(30..=600));
                PoolConfig { workers, ..large }
            }
        }
    }
}

/// Sources of classes with these weights, and the configuration of their pool.
struct Setting {
    limit: Limit,
    weights: Vec<u64>,
    sources: Vec<Source>,
    config: PoolConfig,
}

impl Setting {
    fn random(rng: &mut SeededRng, workloads: &[&'static Sizes], estimates: &[Estimate]) -> Self {
        let n = rng.count(2..=5);
        let weights: Vec<u64> = (0..n).map(|_| rng.range(1..=5)).collect();
        let limit = rng.one_of(&Limit::ALL);
        let (mut classes, mut sources) = (Vec::new(), Vec::new());
        for (i, weight) in weights.iter().enumerate() {
            let queue = rng.one_of(&["fcfs", "wspt"]);
            classes.push(format!(r#"{{"name":"c{i}","weight":{weight},"queue":"{queue}"}}"#));
            let estimate = rng.one_of(estimates);
            let sizes = rng.one_of(workloads);
            let mut source = Source::new(Attribute::Class, &format!("c{i}"), sizes);
            source.estimate = estimate;
            source.waiting = 40;
            sources.push(source);
        }
        let text = format!(r#"{{"share":{{"by":"class","classes":[{}]}}}}"#, classes.join(","));
        let config = limit.config(&text, sources[0].sizes.mean(), rng);
        Self { limit, weights, sources, config }
    }

    fn told(&self) -> String {
        let each = self.sources.iter().zip(&self.weights);
        let each = each.map(|(s, w)| format!("{w}: {} {:?}", s.sizes.name, s.estimate));
        format!("{:?}, {}", self.limit, each.collect::<Vec<_>>().join(", "))
    }
}

/// The greatest values so far relative to their bounds, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Nearest {
    pair: i128,
    meter: u128,
    ratio: i128,
}

impl Nearest {
    fn join(&mut self, other: Self) {
        self.pair = self.pair.max(other.pair);
        self.meter = self.meter.max(other.meter);
        self.ratio = self.ratio.max(other.ratio);
    }
}

/// Checks that no flow is ahead of another by more than the bound. Returns the greatest distance relative to the worst
/// case of its pair, in thousandths.
fn check_pairs(flows: &[Books]) -> i128 {
    let mut nearest = 0;
    for (i, a) in flows.iter().enumerate() {
        for (j, b) in flows.iter().enumerate().filter(|(j, _)| *j != i) {
            let ahead = a.charged() * b.weight - b.charged() * a.weight;
            let most = a.rise() * b.weight + b.fall() * a.weight;
            assert!(ahead <= most, "{i} is ahead of {j} by {ahead}, more than {most}");
            let worst = a.worst * b.weight + b.worst * a.weight;
            nearest = nearest.max(ahead * 1000 / worst.max(1));
        }
    }
    nearest
}

/// Checks the meter of each flow: `got` must be the charged tokens, and its difference from `due` must be within the
/// bound of flows that are always ready. Returns the greatest difference relative to its bound, in thousandths.
fn check_meter(world: &World, ledger: &Ledger) -> u128 {
    let mut nearest = 0;
    let nodes = world.pool.fairness();
    let bounds = always_ready_bounds(&world.pool);
    for ((flow, books), bound) in nodes[0].flows.iter().zip(&ledger.flows).zip(bounds) {
        assert_eq!(flow.got, books.charged(), "{}", flow.name);
        let due = flow.due.expect("a share");
        let difference = flow.got.abs_diff(due.tokens);
        let told = format!("{} got {}, due {due:?}, {bound}", flow.name, flow.got);
        assert!(flow.is_within_bound() && difference <= bound, "{told}");
        nearest = nearest.max(difference * 1000 / bound);
    }
    nearest
}

/// Runs until every flow has had this many grants.
fn play(setting: Setting, grants: u64, seed: u64) -> Nearest {
    let mut world = World::new(setting.config, setting.sources, seed).shuffled();
    let mut ledger = Ledger::new(&setting.weights);
    let mut nearest = Nearest::default();
    for steps in 0u64.. {
        let step = world.step();
        ledger.follow(&step, &world, |flows| nearest.pair = nearest.pair.max(check_pairs(flows)));
        if steps % 16 == 0 {
            nearest.meter = nearest.meter.max(check_meter(&world, &ledger));
        }
        if ledger.flows.iter().all(|flow| flow.grants >= grants) {
            break;
        }
    }
    for a in &ledger.flows {
        for b in &ledger.flows {
            let off = a.charged() * b.weight * 1000 / (b.charged() * a.weight) - 1000;
            nearest.ratio = nearest.ratio.max(off.abs());
        }
    }
    nearest
}

fn run(
    name: &str,
    default: u64,
    grants: u64,
    workloads: &[&'static Sizes],
    estimates: &[Estimate],
) -> Nearest {
    let all = Mutex::new(Nearest::default());
    seeds(name, default, |seed| {
        let setting = Setting::random(&mut SeededRng::new(seed), workloads, estimates);
        let told = setting.told();
        let _told = OnPanic(format!("seed {seed}: {told}"));
        let nearest = play(setting, grants, seed);
        all.lock().expect("nobody failed").join(nearest);
    });
    let nearest = all.into_inner().expect("nobody failed");
    announce(&format!("{name}, nearest in thousandths: {nearest:?}"));
    nearest
}

/// Prints a text if the test fails.
struct OnPanic(String);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            announce(&self.0);
        }
    }
}

#[test]
fn no_flow_is_ahead_of_another_by_more_than_one_cost_and_the_errors_in_flight() {
    let workloads: Vec<&Sizes> = sizes::all().iter().collect();
    run("pairs of flows", 24, 300, &workloads, &Estimate::ALL);
}

/// Returns the traces, and the built-in sizes that resemble them.
fn like_traces() -> Vec<&'static Sizes> {
    sizes::all().iter().filter(|sizes| sizes.name != "two kinds").collect()
}

#[test]
fn after_two_thousand_grants_each_tokens_are_within_one_percent_of_the_weights() {
    let estimates = [Estimate::Exact, Estimate::Mean];
    let nearest = run("ratios", 12, 2000, &like_traces(), &estimates);
    assert!(nearest.ratio <= 10, "{nearest:?}");
}

/// If requests are charged four times their usage until they end, the charges in flight are four times as high.
#[test]
fn with_estimates_of_four_times_they_are_after_eight_thousand() {
    let nearest = run("ratios at four times", 4, 8000, &like_traces(), &[Estimate::FourTimes]);
    assert!(nearest.ratio <= 10, "{nearest:?}");
}
