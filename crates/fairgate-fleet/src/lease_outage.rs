//! Extends leases after an outage, so that no lease runs out because its agent could not renew it.
//!
//! A lease ends if its agent sends no heartbeat. While the database is down no agent can send one.
//! When the clock is set forward, leases would end although no time has passed. The loop of rounds
//! measures such an outage between two answers of the database. The next round compensates for the
//! outage before it ends leases. A lease that was in force at the start of the outage keeps the
//! time that it had left then, but at most two thirds of the full length. An agent that is on time
//! always has two thirds left. So live agents have time for at least one heartbeat, and leases of
//! dead agents still end. If several servers compensate for the same outage, they compute the same
//! end of a lease.

use std::time::Duration;

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::HELD_STATES;

use crate::credit;
use crate::fleet_clock::FleetClock;
use crate::retry_policy;

/// Maximum forward jump of the wall clock that does not count as an outage. The jump is the time
/// between two answers of the database on the wall clock, minus that on the steady clock.
const DRIFT: Duration = Duration::from_secs(1);

/// A period in which no lease could be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseOutage {
    /// Time at which the fleet was last known to work; `None` if this process has just started and does not know that
    /// time.
    since: Option<UnixMicros>,
    /// Duration of the outage; not used if `since` is `None`.
    length: Duration,
}

#[cfg(test)]
impl LeaseOutage {
    /// Creates the outage between two moments.
    pub(crate) fn between(since: UnixMicros, until: UnixMicros) -> Self {
        Self { since: Some(since), length: micros(until.0 - since.0) }
    }
}

/// The wall clock and the steady clock, read at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockReading {
    pub(crate) now: UnixMicros,
    pub(crate) steady: Duration,
}

impl ClockReading {
    pub(crate) fn of(clock: &dyn FleetClock) -> Self {
        Self { now: clock.now(), steady: clock.steady() }
    }
}

/// Tracks the times at which the database answered, and computes outages from them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutageDetector {
    /// Time of the database's last answer; `None` if this process has had no answer yet.
    answered: Option<ClockReading>,
    /// True if the database failed, or the process was suspended, since the database's last answer.
    has_failed: bool,
    /// Outage for which no round has compensated yet.
    open: Option<LeaseOutage>,
}

impl OutageDetector {
    /// Records that the database failed or that this process was suspended.
    pub(crate) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Records that the database answered a read of the fleet's version.
    pub(crate) fn looked(&mut self, at: ClockReading) {
        self.open = self.outage(at);
        self.answered = Some(at);
        self.has_failed = false;
    }

    /// Records that a round ran, which has compensated for the outage so far.
    pub(crate) fn made(&mut self, at: ClockReading) {
        *self = Self { answered: Some(at), ..Self::default() };
    }

    /// Returns the outage for which a round at this moment must compensate; `None` if there was no
    /// outage.
    pub(crate) fn outage(&self, at: ClockReading) -> Option<LeaseOutage> {
        let Some(last) = self.answered else {
            return Some(LeaseOutage { since: None, length: Duration::ZERO });
        };
        let passed = micros(at.now.0.saturating_sub(last.now.0));
        let really = at.steady.saturating_sub(last.steady);
        // The clock may also have jumped during the outage, in either direction.
        let length = match self.has_failed {
            true => passed.max(really),
            false => passed.checked_sub(really).filter(|jump| *jump > DRIFT).unwrap_or_default(),
        };
        match self.open {
            Some(open) => Some(LeaseOutage { length: open.length.saturating_add(length), ..open }),
            None if length.is_zero() => None,
            None => Some(LeaseOutage { since: Some(last.now), length }),
        }
    }
}

fn micros(span: i64) -> Duration {
    Duration::from_micros(u64::try_from(span).unwrap_or(0))
}

/// Extends the leases that were in force at the start of the outage by its duration, but to at most
/// two thirds of a lease from now.
pub(crate) fn extend_leases(
    tx: &mut dyn Transaction,
    lapse: LeaseOutage,
    lease: Duration,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let Some((since, length)) = known(tx, lapse, now)? else { return Ok(()) };
    let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    let until = retry_policy::later(now, lease * 2 / 3);
    note_waits(tx, since, length, now)?;
    tx.run(
        concat!(
            "UPDATE fleet_tasks SET lease_until = CASE WHEN lease_until + $1 < $2 THEN lease_until + $1 ELSE $2 END \
             WHERE lease_until > $3 AND lease_until < $2 AND state IN ",
            fairgate_usage::held_states!()
        ),
        &[length.into(), until.into(), since.into()],
    )?;
    Ok(())
}

/// Records the outage, which ends now, as a wait of the claims that were in force at its start. So
/// they are not charged for it.
fn note_waits(
    tx: &mut dyn Transaction,
    since: UnixMicros,
    length: i64,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let sql = format!(
        "UPDATE fleet_tasks SET {} WHERE lease_until > $3 AND state IN {HELD_STATES}",
        credit::note_wait("CAST($2 AS BIGINT)", "CAST($1 AS BIGINT)")
    );
    let from = UnixMicros(now.0.saturating_sub(length)).max(since);
    tx.run(&sql, &[now.into(), from.into(), since.into()])?;
    Ok(())
}

/// Returns the start and the duration of an outage. For a process that has just started, the outage
/// starts at the last contact of any agent with any server, because the fleet worked then. Returns
/// `None` if there was no such contact.
fn known(
    tx: &mut dyn Transaction,
    lapse: LeaseOutage,
    now: UnixMicros,
) -> Result<Option<(UnixMicros, Duration)>, StoreError> {
    if let Some(since) = lapse.since {
        return Ok(Some((since, lapse.length)));
    }
    let sql = "SELECT MAX(last_seen) FROM fleet_agents WHERE last_seen <= $1";
    let seen = tx.first(sql, &[now.into()], |row| row.moment_or_null(0))?.flatten();
    Ok(seen.map(|seen| (seen, micros(now.0.saturating_sub(seen.0)))))
}

/// Shortens leases whose end is implausibly late because the clock was set back after they were
/// granted. Otherwise a dead agent would hold its task longer, by the jump of the clock. A lease
/// that is long only because the configured length was reduced later is not shortened. Returns true
/// if any lease was shortened.
pub(crate) fn shorten(
    tx: &mut dyn Transaction,
    lease: Duration,
    now: UnixMicros,
) -> Result<bool, StoreError> {
    let shortened = tx.run(
        "UPDATE fleet_tasks SET lease_until = $1 WHERE lease_until > $2 AND EXISTS \
         (SELECT 1 FROM fleet_agents a WHERE a.id = fleet_tasks.agent AND a.last_seen > $3)",
        &[
            retry_policy::later(now, lease).into(),
            latest(lease, now).into(),
            retry_policy::later(now, lease / 3).into(),
        ],
    )?;
    Ok(shortened > 0)
}

/// Returns the latest plausible end of a lease: the length of a lease from now, plus a third of
/// that length, because the clocks of servers differ.
pub(crate) fn latest(lease: Duration, now: UnixMicros) -> UnixMicros {
    retry_policy::later(now, lease + lease / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: i64, steady: u64) -> ClockReading {
        ClockReading { now: UnixMicros(now * 1_000_000), steady: Duration::from_secs(steady) }
    }

    fn lapse(since: i64, length: u64) -> Option<LeaseOutage> {
        let since = Some(UnixMicros(since * 1_000_000));
        Some(LeaseOutage { since, length: Duration::from_secs(length) })
    }

    fn watched() -> OutageDetector {
        let mut watch = OutageDetector::default();
        assert_eq!(
            watch.outage(at(99, 0)),
            Some(LeaseOutage { since: None, length: Duration::ZERO })
        );
        watch.made(at(100, 1));
        watch
    }

    #[test]
    fn time_that_passes_is_no_lapse() {
        let watch = watched();
        assert_eq!(watch.outage(at(100, 1)), None);
        assert_eq!(watch.outage(at(5_100, 5_001)), None);
        assert_eq!(watch.outage(at(5_101, 5_001)), None, "clocks are not exact");
    }

    #[test]
    fn while_the_database_is_away_no_time_passes() {
        let mut watch = watched();
        watch.failed();
        assert_eq!(watch.outage(at(170, 71)), lapse(100, 70));
        // The same holds if the wall clock was put back during the outage.
        assert_eq!(watch.outage(at(50, 71)), lapse(100, 70));
        watch.made(at(170, 71));
        assert_eq!(watch.outage(at(175, 76)), None);
    }

    #[test]
    fn a_clock_put_forward_passes_no_time() {
        let watch = watched();
        assert_eq!(watch.outage(at(3_705, 6)), lapse(100, 3_600));
        assert_eq!(watch.outage(at(50, 6)), None, "one put back lengthens leases by itself");
    }

    #[test]
    fn a_look_keeps_the_lapse_for_the_next_round() {
        let mut watch = watched();
        watch.looked(at(3_705, 6));
        assert_eq!(watch.outage(at(3_710, 11)), lapse(100, 3_600));
        watch.failed();
        assert_eq!(watch.outage(at(3_715, 16)), lapse(100, 3_610));
        watch.made(at(3_715, 16));
        assert_eq!(watch.outage(at(3_716, 17)), None);
    }
}
