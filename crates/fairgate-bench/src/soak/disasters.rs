//! The plan of the disasters, which depends only on the length of the run and its seed.
//!
//! Times of disasters are fractions of the run. A run of one minute therefore has the same
//! disasters as a run of ten minutes, each a tenth as long. The order is deliberate. First the disk
//! becomes full while the database is available, so rows are written to the database only. Then the
//! database becomes unavailable too, and no rows can be kept. The gateway gets its second SIGKILL
//! while the database is unavailable. The rows of that time are only in the spool, and the next
//! gateway process must write them to the database.

use std::fmt;
use std::time::Duration;

use fairgate_testkit::workload::SeededRng;

/// A disaster, or its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SoakDisaster {
    WorkerKilled(usize),
    WorkerBack(usize),
    /// PostgreSQL is stopped by SIGSTOP. Its connections stay open, and queries get no answer.
    DatabaseHangs,
    DatabaseGoesOn,
    /// PostgreSQL is shut down. Its connections break, and new connections are refused.
    DatabaseStopped,
    DatabaseStarted,
    GatewayKilled,
    DiskFull,
    DiskFreed,
}

impl fmt::Display for SoakDisaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerKilled(worker) => write!(f, "worker {worker} is killed"),
            Self::WorkerBack(worker) => write!(f, "worker {worker} is started again"),
            Self::DatabaseHangs => f.write_str("PostgreSQL hangs (SIGSTOP)"),
            Self::DatabaseGoesOn => f.write_str("PostgreSQL goes on (SIGCONT)"),
            Self::DatabaseStopped => f.write_str("PostgreSQL is shut down"),
            Self::DatabaseStarted => f.write_str("PostgreSQL is started again"),
            Self::GatewayKilled => f.write_str("the gateway is killed (SIGKILL)"),
            Self::DiskFull => f.write_str("the gateway's disk is full"),
            Self::DiskFreed => f.write_str("the gateway's disk has room again"),
        }
    }
}

/// Time of an event, in thousandths of the run.
type RunThousandths = u64;

/// Disasters of every run, except those of the workers. The seed shifts all of them by the same
/// time, at most [`JITTER`].
const FIXED: [(RunThousandths, SoakDisaster); 8] = [
    (120, SoakDisaster::DatabaseHangs),
    (220, SoakDisaster::DatabaseGoesOn),
    (300, SoakDisaster::GatewayKilled),
    (560, SoakDisaster::DiskFull),
    (600, SoakDisaster::DatabaseStopped),
    (627, SoakDisaster::DiskFreed),
    (680, SoakDisaster::GatewayKilled),
    (700, SoakDisaster::DatabaseStarted),
];
/// Greatest time by which the seed shifts the disasters in [`FIXED`].
const JITTER: RunThousandths = 20;
/// Interval at which one of the workers is killed.
const WORKER_EVERY: RunThousandths = 100;
/// Longest time from the kill of a worker to its restart.
const WORKER_AWAY: Duration = Duration::from_secs(10);

/// Returns the disasters of a run of the given length, in order of time.
pub(super) fn plan(length: Duration, workers: usize, seed: u64) -> Vec<(Duration, SoakDisaster)> {
    let mut rng = SeededRng::new(seed);
    let at = |thousandths: RunThousandths| {
        length * u32::try_from(thousandths).unwrap_or(u32::MAX) / 1000
    };
    let shift = rng.range(0..=JITTER);
    let mut plan: Vec<_> = FIXED.iter().map(|&(when, what)| (at(when + shift), what)).collect();
    let away = WORKER_AWAY.min(at(WORKER_EVERY / 2));
    let first = rng.index(workers);
    for (turn, when) in (WORKER_EVERY..1000 - WORKER_EVERY / 2).step_by(100).enumerate() {
        let worker = (first + turn) % workers;
        let killed = at(when + rng.range(0..=WORKER_EVERY / 4));
        plan.push((killed, SoakDisaster::WorkerKilled(worker)));
        plan.push((killed + away, SoakDisaster::WorkerBack(worker)));
    }
    plan.sort_by_key(|(when, _)| *when);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(plan: &[(Duration, SoakDisaster)], what: SoakDisaster) -> usize {
        plan.iter().filter(|(_, disaster)| *disaster == what).count()
    }

    fn when(plan: &[(Duration, SoakDisaster)], what: SoakDisaster) -> Duration {
        plan.iter().find(|(_, disaster)| *disaster == what).unwrap().0
    }

    #[test]
    fn ten_minutes_have_what_they_should() {
        for seed in 0..50 {
            let plan = plan(Duration::from_secs(600), 3, seed);
            assert!(plan.is_sorted_by_key(|(when, _)| *when));
            assert!(plan.last().unwrap().0 < Duration::from_secs(600));
            assert_eq!(count(&plan, SoakDisaster::GatewayKilled), 2);
            assert_eq!(count(&plan, SoakDisaster::DiskFull), 1);
            let length = |from, to| when(&plan, to) - when(&plan, from);
            let minute = Duration::from_secs(60);
            assert_eq!(length(SoakDisaster::DatabaseHangs, SoakDisaster::DatabaseGoesOn), minute);
            assert_eq!(
                length(SoakDisaster::DatabaseStopped, SoakDisaster::DatabaseStarted),
                minute
            );
            // Rows can be kept nowhere for a while, and the database alone can keep them for a while.
            assert!(
                when(&plan, SoakDisaster::DiskFull) < when(&plan, SoakDisaster::DatabaseStopped)
            );
            assert!(
                when(&plan, SoakDisaster::DatabaseStopped) < when(&plan, SoakDisaster::DiskFreed)
            );
        }
    }

    #[test]
    fn one_worker_is_away_at_a_time() {
        for seconds in [20, 60, 600] {
            let mut away = 0;
            for (_, disaster) in plan(Duration::from_secs(seconds), 3, 7) {
                match disaster {
                    SoakDisaster::WorkerKilled(_) => away += 1,
                    SoakDisaster::WorkerBack(_) => away -= 1,
                    _ => {}
                }
                assert!((0..=1).contains(&away));
            }
            assert_eq!(away, 0);
        }
    }

    #[test]
    fn a_seed_gives_one_plan() {
        let of = |seed| plan(Duration::from_secs(60), 3, seed);
        assert_eq!(of(4), of(4));
        assert_ne!(of(4), of(5));
    }
}
