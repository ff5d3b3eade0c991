//! Compensation for outages: a lease does not run out because of time in which no agent could renew it.
//!
//! A lease ends because its agent sent no heartbeat. While the database is down no agent can send one, and when the
//! clock is put forward no time passes at all. The loop of rounds measures such an outage between two moments at which
//! the database answered. The next round compensates for the outage before it ends leases. A lease that was in force
//! when the outage began keeps the time that it had left at that moment, up to two thirds of the full length, because
//! an agent that is on time always has that much left. So agents that are alive have time for at least one heartbeat,
//! leases of dead agents still end, and several servers that compensate for the same outage compute the same end of a
//! lease.

use std::time::Duration;

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::HELD_STATES;

use crate::credit;
use crate::fleet_clock::FleetClock;
use crate::retry_policy;

/// Largest forward jump of the wall clock that does not count as an outage. The jump is the time that passed on the
/// wall clock between two answers of the database − the time that passed on the steady clock.
const DRIFT: Duration = Duration::from_secs(1);

/// Time in which no lease could be renewed.
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

/// Reading of the wall clock and the steady clock at one moment.
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
    /// True if the database failed, or the process stood still, since the database's last answer.
    has_failed: bool,
    /// Outage that no round has compensated for yet.
    open: Option<LeaseOutage>,
}

impl OutageDetector {
    /// Records that the database failed or that this process stood still.
    pub(crate) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// Records that the database answered a read of the fleet's version.
    pub(crate) fn looked(&mut self, at: ClockReading) {
        self.open = self.outage(at);
        self.answered = Some(at);
        self.has_failed = false;
    }

    /// Records that a round was run, which compensated for the outage so far.
    pub(crate) fn made(&mut self, at: ClockReading) {
        *self = Self { answered: Some(at), ..Self::default() };
    }

    /// Returns the outage that a round at this moment must compensate for, or `None`.
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

/// Extends the leases that were in force when the outage began by the duration of the outage, but to no later than two
/// thirds of a lease from now.
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

/// Notes the outage, which ends now, as a wait of the claims that were in force when it began, so that they are not
/// charged for it.
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

/// Returns the beginning and the duration of an outage. A process that has just started takes the last contact of any
/// agent with any server as the beginning, because the fleet worked then. Returns `None` if no agent was ever seen.
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

/// Shortens leases whose end is implausibly late because the clock was put back after they were granted. Otherwise a
/// dead agent would hold its task for an additional time, as long as the jump of the clock. Leases that are long only
/// because the length of leases was changed afterwards are left alone. Returns whether any lease was shortened.
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

/// Returns the latest plausible end of a lease. This is the length of a lease from now, plus a third of that length
/// because the clocks of servers differ.
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
