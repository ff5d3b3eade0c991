//! Simulates a whole fleet in virtual time, from a seed. It runs the loop's own steps and SQL on a
//! database in memory. Agents work, call models with their task keys, ask questions, fail, die,
//! come back late and repeat messages. Operators interfere. Servers are killed and restarted over
//! the same database.
//!
//! The simulation computes an expected state of its own ([`expected_state`]) from its calls and the
//! answers to them. After every step the database must agree with the expected state. The following
//! rules are checked on the expected state, and not on sums of the code under test:
//!
//! - every token counts once: in its project's window, in its task and in the ledger;
//! - a task has one holder at a time, and each claim one agent; a task is completed once;
//! - concurrency, per-type maxima, `exclusive` and workspaces are respected, and so are the labels that tenants, projects
//!   and tasks require and the machines to which workspaces are bound;
//! - the time of claims is charged as the fleet's options say, whoever shares agents: projects or tenants;
//! - `spent ≤ budget + Σ max(0, used − reserved)`, over the calls and reports that were settled since spent was last
//!   within the budget. So a budget is exceeded only by tokens that calls in flight use beyond their reservations. If
//!   no call does this, no budget is exceeded;
//! - a call is granted only under a claim that is in force; a refusal for lack of budget reports the true numbers;
//! - every call of the scheduler, written as a line of the journal and read again, gives the same assignments;
//! - at the end, when everything has settled, nothing is reserved, locked or held.
//!
//! Every 25th seed has 2 000 agents. These seeds and every third seed keep their database in a
//! file, so that servers can be killed and restarted over it. The file is in a file system in
//! memory, if there is one. The other seeds use SQLite in memory. `FAIRGATE_SEED=n` runs one seed;
//! `FAIRGATE_SEEDS=n` sets the number of seeds.

#![allow(clippy::unwrap_used)]

mod agents;
mod expected_state;
mod invariants;
mod messages;
mod model_calls;
mod operators;
mod servers;
mod share_convergence;
mod simulated_fleet;

use std::sync::atomic::{AtomicU64, Ordering};

use fairgate_random::SeededRng;
use simulated_fleet::FleetSimulation;

/// Number of seeds that are run if `FAIRGATE_SEEDS` is not set.
const SEEDS: u64 = 300;

/// Random choices for a simulation, from a seed.
#[derive(Clone, Debug)]
struct FleetSimRng(SeededRng);

impl FleetSimRng {
    fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// Returns a number from 0 to `end` − 1.
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end.max(1))
    }

    /// Returns a number from `first` to `last`, both included.
    fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Returns a duration of `first` to `last` seconds, in microseconds.
    fn seconds(&mut self, first: u64, last: u64) -> i64 {
        i64::try_from(self.within(first, last)).unwrap() * 1_000_000
    }

    /// Returns true with a probability of 1 in `times`.
    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn place<T>(&mut self, list: &[T]) -> usize {
        usize::try_from(self.below(list.len() as u64)).unwrap()
    }
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a case for many seeds on all cores. If it fails, prints the seed.
fn for_each_seed(case: impl Fn(u64) + Sync) {
    let (first, count) = match number_from("FAIRGATE_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number_from("FAIRGATE_SEEDS").unwrap_or(SEEDS)),
    };
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let told = PrintSeedOnPanic(seed);
                    case(seed);
                    std::mem::forget(told);
                }
            });
        }
    });
}

/// Prints the seed when a case panics.
struct PrintSeedOnPanic(u64);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        println!("the simulation failed; run it again with FAIRGATE_SEED={}", self.0);
    }
}

fn run<F: Future<Output = ()>>(case: F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case);
}

#[test]
fn nothing_is_lost_doubled_or_broken() {
    let seen = std::sync::Mutex::new(simulated_fleet::FleetSimCounts::default());
    for_each_seed(|seed| {
        run(async {
            let mut world = FleetSimulation::new(seed).await;
            for step in 0..world.steps {
                world.step().await;
                if world.is_check_due(step) {
                    world.check().await;
                }
            }
            world.settle().await;
            world.check().await;
            world.store.close().await.unwrap();
            seen.lock().unwrap().add(&world.counts);
        });
    });
    let seen = seen.into_inner().unwrap();
    println!("{seen:?}");
    if number_from("FAIRGATE_SEED").is_none() {
        seen.assert_all_happened();
    }
}

#[test]
fn shares_converge() {
    for_each_seed(|seed| run(share_convergence::case(seed)));
}
