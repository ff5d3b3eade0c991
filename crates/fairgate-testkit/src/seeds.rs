//! How randomised tests run: from a seed that is always shown, on every core, as many cases as are asked for.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// How many cases a run has in all: `FAIRGATE_CASES`, else 20 000. Each test takes its part of them.
pub fn cases() -> u64 {
    number_from("FAIRGATE_CASES").unwrap_or(20_000)
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Says something past the test harness, which keeps what a passing test prints.
pub fn announce(what: &str) {
    writeln!(std::io::stderr(), "{what}").expect("standard error is open");
}

/// Tries that many seeds, from `FAIRGATE_SEED` (else 1) on, on as many threads as there are cores. A case fails by
/// panicking; its message should name the seed. After a failure no further seed is begun.
pub fn for_each_seed(name: &str, count: u64, case: impl Fn(u64) + Sync) {
    let first = number_from("FAIRGATE_SEED").unwrap_or(1);
    announce(&format!("{name}: {count} journals from seed {first}"));
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed.wrapping_sub(first) >= count || failed.load(Ordering::Relaxed) {
                        return;
                    }
                    let _flag = RaisedByPanic(&failed);
                    case(seed);
                }
            });
        }
    });
}

/// A flag that a panic raises.
struct RaisedByPanic<'a>(&'a AtomicBool);

impl Drop for RaisedByPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
