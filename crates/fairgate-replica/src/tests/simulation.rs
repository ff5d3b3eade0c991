//! Simulates clusters in virtual time. Production code runs on a log in memory. Faults that a log,
//! a process or a clock may have are drawn from a seed.
//!
//! The members, their protocol and the machine are those of the crate. The log, the network, the
//! backends and the clients are simulated ([`world`]). The backends count the requests that really
//! run on them, and the machine's counts are checked against these. In addition to the members, a
//! reference machine gets every record when the log accepts it. All members are compared with it at
//! every position ([`checks`]).
//!
//! `FAIRGATE_CLUSTER_SEED=N` runs one seed and prints what happens.

mod backends;
mod checks;
mod clients;
mod faults;
mod memory_log;
mod mutations;
mod nodes;
mod recorded;
mod world;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::faults::FaultKind;
pub(crate) use self::mutations::Mutation;
use self::world::{LEAST_FAULTS, SimulatedCluster, SimulationReport};

/// Number of seeds in each run of the tests, unless `FAIRGATE_CLUSTER_SEEDS` sets another.
const SEEDS: u64 = 1000;

/// Panics for requests with a certain id, as if the rules had a bug.
pub(crate) fn stop_if_asked(id: &str) {
    if id.starts_with("stops-") {
        // Unlike a panic, this prints nothing.
        std::panic::resume_unwind(Box::new("a line that stops the machine"));
    }
}

#[expect(clippy::disallowed_methods, reason = "a test is told by its environment what to run")]
fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Prints directly to standard error, because the test harness hides the usual output of a test
/// that passes.
fn announce(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs one seed without a mutation. A failed check panics, and the seed is printed.
fn run_seed(seed: u64) -> SimulationReport {
    SimulatedCluster::new(seed, None).run()
}

#[test]
fn clusters_keep_their_promises_under_faults() {
    if let Some(seed) = number_from("FAIRGATE_CLUSTER_SEED") {
        let mut cluster = SimulatedCluster::new(seed, None);
        cluster.is_loud = true;
        let report = cluster.run();
        announce(&format!("seed {seed}: {report:?}"));
        return;
    }
    let seeds = number_from("FAIRGATE_CLUSTER_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(1);
    let (reports, failed) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    match std::panic::catch_unwind(|| run_seed(seed)) {
                        Ok(report) => reports.lock().unwrap().push(report),
                        Err(_) => {
                            announce(&format!("failed: FAIRGATE_CLUSTER_SEED={seed}"));
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "seeds failed; FAIRGATE_CLUSTER_SEED=N repeats one");
    let reports = reports.into_inner().unwrap();
    let mut faults: BTreeMap<FaultKind, u64> = BTreeMap::new();
    for report in &reports {
        assert!(report.requests >= 500 && report.served > 0, "{} requests", report.requests);
        assert!(report.faults.values().sum::<u64>() >= LEAST_FAULTS, "{:?}", report.faults);
        for (kind, count) in &report.faults {
            *faults.entry(*kind).or_default() += count;
        }
    }
    let sum = |of: fn(&SimulationReport) -> u64| reports.iter().map(of).sum::<u64>();
    announce(&format!(
        "{seeds} seeds: {} requests, {} served, {} records, {} generations; {} requests ran without \
         a slot for a while, {} of them were counted again; {faults:?}",
        sum(|report| report.requests),
        sum(|report| report.served),
        sum(|report| report.records),
        sum(|report| report.generations),
        sum(|report| report.excused),
        sum(|report| report.counted_again),
    ));
    if seeds >= SEEDS {
        for kind in FaultKind::ALL {
            let count = faults.get(&kind).copied().unwrap_or(0);
            assert!(count >= 20, "{kind:?} happened {count} times in {seeds} seeds");
        }
    }
}
