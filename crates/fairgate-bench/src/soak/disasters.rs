//! What goes wrong, and when: a plan that depends on the length of the run and its seed alone.
//!
//! All times are parts of the run, so that a minute has the same disasters as ten, each a tenth as long. The order is on
//! purpose. The disk gets full while the database is there, and takes rows in its place; then the database goes away too, and
//! rows can be kept nowhere.
//! The second SIGKILL comes while the database is away: the rows of that time are in the spool only, and the next process
//! must bring them in.

use std::fmt;
use std::time::Duration;

use fairgate_testkit::workload::Rng;

/// One thing that goes wrong, or is put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disaster {
    WorkerKilled(usize),
    WorkerBack(usize),
    /// PostgreSQL stands still (SIGSTOP): connections stay, and nothing is answered.
    DatabaseHangs,
    DatabaseGoesOn,
    /// PostgreSQL is shut down: connections break, and new ones are refused.
    DatabaseStopped,
    DatabaseStarted,
    GatewayKilled,
    DiskFull,
    DiskFreed,
}

impl fmt::Display for Disaster {
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

/// When something happens, in thousandths of the run.
type Thousandths = u64;

/// The disasters of every run but those of the workers. Each is moved by the seed by up to [`JITTER`].
const FIXED: [(Thousandths, Disaster); 8] = [
    (120, Disaster::DatabaseHangs),
    (220, Disaster::DatabaseGoesOn),
    (300, Disaster::GatewayKilled),
    (560, Disaster::DiskFull),
    (600, Disaster::DatabaseStopped),
    (627, Disaster::DiskFreed),
    (680, Disaster::GatewayKilled),
    (700, Disaster::DatabaseStarted),
];
/// By how much all of them are moved, at most.
const JITTER: Thousandths = 20;
/// How often a worker is killed, and how long it stays away.
const WORKER_EVERY: Thousandths = 100;
const WORKER_AWAY: Duration = Duration::from_secs(10);

/// What happens when, in order of time.
pub(super) fn plan(length: Duration, workers: usize, seed: u64) -> Vec<(Duration, Disaster)> {
    let mut rng = Rng::new(seed);
    let at =
        |thousandths: Thousandths| length * u32::try_from(thousandths).unwrap_or(u32::MAX) / 1000;
    let shift = rng.range(0..=JITTER);
    let mut plan: Vec<_> = FIXED.iter().map(|&(when, what)| (at(when + shift), what)).collect();
    let away = WORKER_AWAY.min(at(WORKER_EVERY / 2));
    let first = rng.index(workers);
    for (turn, when) in (WORKER_EVERY..1000 - WORKER_EVERY / 2).step_by(100).enumerate() {
        let worker = (first + turn) % workers;
        let killed = at(when + rng.range(0..=WORKER_EVERY / 4));
        plan.push((killed, Disaster::WorkerKilled(worker)));
        plan.push((killed + away, Disaster::WorkerBack(worker)));
    }
    plan.sort_by_key(|(when, _)| *when);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(plan: &[(Duration, Disaster)], what: Disaster) -> usize {
        plan.iter().filter(|(_, disaster)| *disaster == what).count()
    }

    fn when(plan: &[(Duration, Disaster)], what: Disaster) -> Duration {
        plan.iter().find(|(_, disaster)| *disaster == what).unwrap().0
    }

    #[test]
    fn ten_minutes_have_what_they_should() {
        for seed in 0..50 {
            let plan = plan(Duration::from_secs(600), 3, seed);
            assert!(plan.is_sorted_by_key(|(when, _)| *when));
            assert!(plan.last().unwrap().0 < Duration::from_secs(600));
            assert_eq!(count(&plan, Disaster::GatewayKilled), 2);
            assert_eq!(count(&plan, Disaster::DiskFull), 1);
            let length = |from, to| when(&plan, to) - when(&plan, from);
            let minute = Duration::from_secs(60);
            assert_eq!(length(Disaster::DatabaseHangs, Disaster::DatabaseGoesOn), minute);
            assert_eq!(length(Disaster::DatabaseStopped, Disaster::DatabaseStarted), minute);
            // Rows can be kept nowhere for a while, and the database alone can keep them for a while.
            assert!(when(&plan, Disaster::DiskFull) < when(&plan, Disaster::DatabaseStopped));
            assert!(when(&plan, Disaster::DatabaseStopped) < when(&plan, Disaster::DiskFreed));
        }
    }

    #[test]
    fn one_worker_is_away_at_a_time() {
        for seconds in [20, 60, 600] {
            let mut away = 0;
            for (_, disaster) in plan(Duration::from_secs(seconds), 3, 7) {
                match disaster {
                    Disaster::WorkerKilled(_) => away += 1,
                    Disaster::WorkerBack(_) => away -= 1,
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
