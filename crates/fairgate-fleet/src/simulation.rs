//! A whole fleet in virtual time, from a seed: the loop's own steps and SQL on a database in memory, agents that work, ask,
//! fail, die, come back late and repeat themselves, people who interfere, servers that are restarted. After every step all
//! that must hold is looked up in the database.
//!
//! `FAIRGATE_SEED=n` runs one seed; `FAIRGATE_SEEDS=n` says how many are run.

#![allow(clippy::unwrap_used)]

mod agents;
mod check;
mod converge;
mod people;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// How many seeds are tried where nobody says.
const SEEDS: u64 = 300;

/// A generator of numbers, the same from the same seed everywhere.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 to below this.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From the first to the last, both included.
    fn within(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// Once in so many times.
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

/// Runs a case for many seeds on every core; names the seed of one that fails.
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
                    let told = TellSeed(seed);
                    case(seed);
                    std::mem::forget(told);
                }
            });
        }
    });
}

/// Says which seed it was when a case panics.
struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        println!("the simulation failed; run it again with FAIRGATE_SEED={}", self.0);
    }
}

fn run<F: Future<Output = ()>>(case: F) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case);
}

#[test]
fn nothing_is_lost_doubled_or_broken() {
    for_each_seed(|seed| {
        run(async {
            let mut world = World::new(seed).await;
            for _ in 0..world.steps {
                world.step().await;
                world.check().await;
            }
            world.settle().await;
            world.check().await;
            world.store.close().await.unwrap();
        });
    });
}

#[test]
fn shares_converge() {
    for_each_seed(|seed| run(converge::case(seed)));
}
