//! Runner of randomised tests. It prints the first seed, uses all cores, and runs the requested
//! number of cases.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Returns the number of cases of the whole test suite: the variable `FAIRGATE_CASES`, else 20 000.
/// Each test runs a fraction of that number.
pub fn cases() -> u64 {
    number_from("FAIRGATE_CASES").unwrap_or(20_000)
}

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Prints directly to standard error, because the test harness hides what a passing test prints
/// with `println!`.
pub fn announce(what: &str) {
    writeln!(std::io::stderr(), "{what}").expect("standard error is open");
}

/// Runs `case` for `count` consecutive seeds, beginning with the variable `FAIRGATE_SEED` (else 1),
/// on as many threads as there are cores. A case fails by a panic, whose message should name the
/// seed. After a failure no further seed is started.
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

/// Sets the flag if this value is dropped during a panic.
struct RaisedByPanic<'a>(&'a AtomicBool);

impl Drop for RaisedByPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
