//! Time that leases are not charged for.
//!
//! A lease ends because its agent gave no sign of life. While the database was away nobody could give one, and a clock that
//! was put forward passes no time at all. Such a *lapse* is measured by the loop, between two moments at which the database
//! answered, and made good in the next round, before leases end: one that was in force when the lapse began keeps what it had
//! left then, up to the two thirds that an agent which is on time always has left. So agents that live have at least one
//! heartbeat's time to say so, leases of those that are dead still end, and several servers that make good the same lapse
//! come to the same moment.

use std::time::Duration;

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction};

use crate::fleet::Clock;
use crate::retry;

/// How far a clock may run from the steady one between two looks before that counts as a jump.
const DRIFT: Duration = Duration::from_secs(1);

/// A time in which no lease could be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lapse {
    /// When the fleet was last known to work; none where this process does not know.
    since: Option<UnixMicros>,
    /// How long it was.
    length: Duration,
}

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) now: UnixMicros,
    pub(crate) steady: Duration,
}

impl Moment {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { now: clock.now(), steady: clock.steady() }
    }
}

/// What the loop knows about when the database answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    /// When it last did; never in this process where absent.
    answered: Option<Moment>,
    /// Whether it failed since then.
    has_failed: bool,
    /// What no round has made good yet.
    open: Option<Lapse>,
}

impl Watch {
    /// The database failed, or this process stood still.
    pub(crate) fn failed(&mut self) {
        self.has_failed = true;
    }

    /// The database answered a look.
    pub(crate) fn looked(&mut self, at: Moment) {
        self.open = self.lapse(at);
        self.answered = Some(at);
        self.has_failed = false;
    }

    /// A round was made, and with it made good what had lapsed.
    pub(crate) fn made(&mut self, at: Moment) {
        *self = Self { answered: Some(at), ..Self::default() };
    }

    /// What a round that is made now has to make good.
    pub(crate) fn lapse(&self, at: Moment) -> Option<Lapse> {
        let Some(last) = self.answered else {
            return Some(Lapse { since: None, length: Duration::ZERO });
        };
        let passed = micros(at.now.0.saturating_sub(last.now.0));
        let really = at.steady.saturating_sub(last.steady);
        // While it was away the clock may have jumped as well, in either direction.
        let length = match self.has_failed {
            true => passed.max(really),
            false => passed.checked_sub(really).filter(|jump| *jump > DRIFT).unwrap_or_default(),
        };
        match self.open {
            Some(open) => Some(Lapse { length: open.length.saturating_add(length), ..open }),
            None if length.is_zero() => None,
            None => Some(Lapse { since: Some(last.now), length }),
        }
    }
}

fn micros(span: i64) -> Duration {
    Duration::from_micros(u64::try_from(span).unwrap_or(0))
}

/// Makes a lapse good.
pub(crate) fn make_good(
    tx: &mut dyn Transaction,
    lapse: Lapse,
    lease: Duration,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let Some((since, length)) = known(tx, lapse, now)? else { return Ok(()) };
    let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    let until = retry::later(now, lease * 2 / 3);
    tx.run(
        "UPDATE fleet_tasks SET lease_until = CASE WHEN lease_until + $1 < $2 THEN lease_until + $1 ELSE $2 END \
         WHERE lease_until > $3 AND lease_until < $2 AND state IN ('ASSIGNED', 'IN_PROGRESS')",
        &[length.into(), until.into(), since.into()],
    )?;
    Ok(())
}

/// When a lapse began, and how long it was. A process that has just started goes by the last sign of life of any agent, given
/// to any server: then the fleet was there.
fn known(
    tx: &mut dyn Transaction,
    lapse: Lapse,
    now: UnixMicros,
) -> Result<Option<(UnixMicros, Duration)>, StoreError> {
    if let Some(since) = lapse.since {
        return Ok(Some((since, lapse.length)));
    }
    let sql = "SELECT MAX(last_seen) FROM fleet_agents WHERE last_seen <= $1";
    let seen = tx.first(sql, &[now.into()], |row| row.moment_or_null(0))?.flatten();
    Ok(seen.map(|seen| (seen, micros(now.0.saturating_sub(seen.0)))))
}

/// Shortens leases that end later than any lease can, because the clock was put back since: otherwise an agent that is dead
/// would hold its task for as long as the clock was put back. A lease that is only longer than leases are now, because that
/// setting was changed, is left alone.
pub(crate) fn shorten(
    tx: &mut dyn Transaction,
    lease: Duration,
    now: UnixMicros,
) -> Result<bool, StoreError> {
    let shortened = tx.run(
        "UPDATE fleet_tasks SET lease_until = $1 WHERE lease_until > $2 AND EXISTS \
         (SELECT 1 FROM fleet_agents a WHERE a.id = fleet_tasks.agent AND a.last_seen > $3)",
        &[
            retry::later(now, lease).into(),
            latest(lease, now).into(),
            retry::later(now, lease / 3).into(),
        ],
    )?;
    Ok(shortened > 0)
}

/// The latest end of a lease that is not suspicious: clocks of servers differ.
pub(crate) fn latest(lease: Duration, now: UnixMicros) -> UnixMicros {
    retry::later(now, lease + lease / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now: i64, steady: u64) -> Moment {
        Moment { now: UnixMicros(now * 1_000_000), steady: Duration::from_secs(steady) }
    }

    fn lapse(since: i64, length: u64) -> Option<Lapse> {
        let since = Some(UnixMicros(since * 1_000_000));
        Some(Lapse { since, length: Duration::from_secs(length) })
    }

    fn watched() -> Watch {
        let mut watch = Watch::default();
        assert_eq!(watch.lapse(at(99, 0)), Some(Lapse { since: None, length: Duration::ZERO }));
        watch.made(at(100, 1));
        watch
    }

    #[test]
    fn time_that_passes_is_no_lapse() {
        let watch = watched();
        assert_eq!(watch.lapse(at(100, 1)), None);
        assert_eq!(watch.lapse(at(5_100, 5_001)), None);
        assert_eq!(watch.lapse(at(5_101, 5_001)), None, "clocks are not exact");
    }

    #[test]
    fn while_the_database_is_away_no_time_passes() {
        let mut watch = watched();
        watch.failed();
        assert_eq!(watch.lapse(at(170, 71)), lapse(100, 70));
        // Nor where the clock was put back meanwhile.
        assert_eq!(watch.lapse(at(50, 71)), lapse(100, 70));
        watch.made(at(170, 71));
        assert_eq!(watch.lapse(at(175, 76)), None);
    }

    #[test]
    fn a_clock_put_forward_passes_no_time() {
        let watch = watched();
        assert_eq!(watch.lapse(at(3_705, 6)), lapse(100, 3_600));
        assert_eq!(watch.lapse(at(50, 6)), None, "one put back lengthens leases by itself");
    }

    #[test]
    fn a_look_keeps_the_lapse_for_the_next_round() {
        let mut watch = watched();
        watch.looked(at(3_705, 6));
        assert_eq!(watch.lapse(at(3_710, 11)), lapse(100, 3_600));
        watch.failed();
        assert_eq!(watch.lapse(at(3_715, 16)), lapse(100, 3_610));
        watch.made(at(3_715, 16));
        assert_eq!(watch.lapse(at(3_716, 17)), None);
    }
}
