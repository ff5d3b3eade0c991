//! When the loop makes a round: when this process changed something or an agent came, when a time has come (a lease, a
//! pause or a wait for an agent ends), or when another process changed something, for which it looks at the fleet's
//! version now and then. Otherwise it sleeps. It also keeps the [`Watch`] over when the database answered.

use std::time::Duration;

use fairgate_money::UnixMicros;

use crate::lapse::{Moment, Watch};

/// How often the version is looked at while an agent waits, and while none does.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_IDLE: Duration = Duration::from_secs(5);
/// How long the loop waits after a failure of the database.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What the loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A round.
    Round,
    /// A look at the version.
    Look,
    /// Nothing, for so long, unless there is news.
    Sleep(Duration),
}

/// What the loop knows about when to do something.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// The version that the last round left.
    version: Option<i64>,
    /// When something ends by itself.
    due: Option<UnixMicros>,
    /// Whether something has happened that a round must see.
    has_news: bool,
    /// When it last looked at the database.
    looked_at: UnixMicros,
    /// Not before this moment, after a failure.
    not_before: Option<UnixMicros>,
    pub(crate) watch: Watch,
}

impl Pace {
    /// Begins with a round.
    pub(crate) fn new(now: UnixMicros) -> Self {
        Self {
            version: None,
            due: None,
            has_news: true,
            looked_at: now,
            not_before: None,
            watch: Watch::default(),
        }
    }

    /// What to do now.
    pub(crate) fn next(&self, now: UnixMicros, is_awaited: bool) -> Step {
        // A longer wait than was meant is that of a clock that was put back.
        let pause = self.not_before.and_then(|at| until(at, now));
        if let Some(pause) = pause.filter(|pause| *pause <= AFTER_FAILURE) {
            return Step::Sleep(pause);
        }
        let until_due = self.due.map(|at| until(at, now));
        if self.has_news || until_due == Some(None) {
            return Step::Round;
        }
        let every = if is_awaited { LOOK } else { LOOK_IDLE };
        // Where the clock was put back, a round sees to leases that end too late now.
        let Ok(since) = u64::try_from(now.0.saturating_sub(self.looked_at.0)) else {
            return Step::Round;
        };
        let Some(until_look) = every.checked_sub(Duration::from_micros(since)) else {
            return Step::Look;
        };
        if until_look.is_zero() {
            return Step::Look;
        }
        Step::Sleep(until_due.flatten().map_or(until_look, |it| it.min(until_look)))
    }

    /// Something happened in this process.
    pub(crate) fn hear(&mut self) {
        self.has_news = true;
    }

    /// A round was made.
    pub(crate) fn made(&mut self, at: Moment, version: i64, due: Option<UnixMicros>, again: bool) {
        self.watch.made(at);
        let (version, looked_at) = (Some(version), at.now);
        *self = Self { version, due, has_news: again, looked_at, not_before: None, ..*self };
    }

    /// The version was looked at.
    pub(crate) fn saw(&mut self, at: Moment, version: i64) {
        self.watch.looked(at);
        self.looked_at = at.now;
        self.has_news |= self.version != Some(version);
    }

    /// The database failed.
    pub(crate) fn failed(&mut self, now: UnixMicros) {
        self.watch.failed();
        let micros = i64::try_from(AFTER_FAILURE.as_micros()).unwrap_or(i64::MAX);
        self.not_before = Some(UnixMicros(now.0.saturating_add(micros)));
        self.has_news = true;
    }
}

/// How long it is until a moment, but no longer than until the next look, whatever the clock did; none where it has come.
fn until(at: UnixMicros, now: UnixMicros) -> Option<Duration> {
    let micros = u64::try_from(at.0.saturating_sub(now.0)).ok()?;
    (micros > 0).then(|| Duration::from_micros(micros).min(LOOK_IDLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn at(seconds: i64) -> UnixMicros {
        UnixMicros(seconds * S)
    }

    fn moment(seconds: i64) -> Moment {
        Moment { now: at(seconds), steady: Duration::from_secs(seconds.unsigned_abs()) }
    }

    fn rested(due: Option<UnixMicros>) -> Pace {
        let mut pace = Pace::new(at(100));
        assert_eq!(pace.next(at(100), false), Step::Round);
        pace.made(moment(100), 7, due, false);
        pace
    }

    #[test]
    fn it_sleeps_until_something_happens() {
        let mut pace = rested(None);
        assert_eq!(pace.next(at(100), false), Step::Sleep(LOOK_IDLE));
        assert_eq!(pace.next(at(100), true), Step::Sleep(LOOK));
        pace.hear();
        assert_eq!(pace.next(at(100), false), Step::Round);
    }

    #[test]
    fn it_looks_for_what_others_did() {
        let mut pace = rested(None);
        assert_eq!(pace.next(at(101), false), Step::Sleep(LOOK_IDLE - LOOK));
        assert_eq!(pace.next(at(101), true), Step::Look);
        pace.saw(moment(101), 7);
        assert_eq!(pace.next(at(101), true), Step::Sleep(LOOK));
        pace.saw(moment(102), 8);
        assert_eq!(pace.next(at(102), true), Step::Round);
    }

    #[test]
    fn a_time_that_has_come_makes_a_round() {
        let pace = rested(Some(UnixMicros(at(100).0 + S / 2)));
        assert_eq!(pace.next(at(100), true), Step::Sleep(Duration::from_millis(500)));
        assert_eq!(pace.next(at(101), true), Step::Round);
    }

    #[test]
    fn a_round_may_ask_for_another() {
        let mut pace = rested(None);
        pace.made(moment(100), 8, None, true);
        assert_eq!(pace.next(at(100), false), Step::Round);
    }

    #[test]
    fn after_a_failure_it_waits_a_little() {
        let mut pace = rested(None);
        pace.failed(at(100));
        assert_eq!(pace.next(at(100), true), Step::Sleep(AFTER_FAILURE));
        assert_eq!(pace.next(at(101), true), Step::Round);
    }

    #[test]
    fn a_clock_that_jumps_stops_nothing() {
        let pace = rested(Some(at(200)));
        assert_eq!(pace.next(at(50), true), Step::Round);
        assert_eq!(pace.next(at(1_000_000), true), Step::Round);
        assert_eq!(pace.next(UnixMicros(i64::MIN), true), Step::Round);
        let mut pace = rested(None);
        pace.failed(at(100));
        assert_eq!(pace.next(at(0), true), Step::Round, "not an hour later");
    }
}
