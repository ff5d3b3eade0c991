//! A whole fleet in virtual time, from a seed: the loop's own steps and SQL on a database in memory. Agents work, call models
//! under their task keys, ask, fail, die, come back late and repeat themselves; people interfere; servers are killed and
//! started again over what they left.
//!
//! The simulation keeps books of its own ([`shadow`]) from nothing but what it did and what it was answered. After every step
//! the database must say the same, and the rules are checked on the books, not on the code's own sums:
//!
//! - every token counts once: in its project's window, in its task and in the ledger;
//! - a task has one holder at a time, and each claim one agent; a task is completed once;
//! - concurrency, per-type maxima, `exclusive` and workspaces hold;
//! - `spent ≤ budget + Σ max(0, used − reserved)`, over the calls and reports that were settled since spent was last within the
//!   budget. A budget is thus passed by no more than what the calls in flight use beyond what was reserved for them, and by
//!   nothing at all where no call does;
//! - a call is granted only under a claim that is in force; a refusal for want of budget says the true numbers;
//! - every call of the scheduler, written to a journal's line and read again, gives the same assignments;
//! - when all is quiet, nothing is reserved, locked or held.
//!
//! Every 25th seed has 2 000 agents. These and every third keep their database in a file (in a file system in memory, where there
//! is one), so that servers can be killed and started again over it; the others have it in SQLite's memory. `FAIRGATE_SEED=n`
//! runs one seed; `FAIRGATE_SEEDS=n` says how many are run.

#![allow(clippy::unwrap_used)]

mod agents;
mod calls;
mod check;
mod converge;
mod people;
mod servers;
mod shadow;
mod wire;
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

    /// So many seconds, from the first to the last, in microseconds.
    fn seconds(&mut self, first: u64, last: u64) -> i64 {
        i64::try_from(self.within(first, last)).unwrap() * 1_000_000
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
    let seen = std::sync::Mutex::new(world::Seen::default());
    for_each_seed(|seed| {
        run(async {
            let mut world = World::new(seed).await;
            for step in 0..world.steps {
                world.step().await;
                if world.is_check_due(step) {
                    world.check().await;
                }
            }
            world.settle().await;
            world.check().await;
            world.store.close().await.unwrap();
            seen.lock().unwrap().add(&world.seen);
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
    for_each_seed(|seed| run(converge::case(seed)));
}
