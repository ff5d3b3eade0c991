//! When the loop makes a round: when this process changed something or an agent came, when a time has come (a lease, a
//! pause or a wait for an agent ends), or when another process changed something, for which it looks at the fleet's
//! version now and then. Otherwise it sleeps.

use std::time::Duration;

use fairgate_money::UnixMicros;

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
}

impl Pace {
    /// Begins with a round.
    pub(crate) fn new(now: UnixMicros) -> Self {
        Self { version: None, due: None, has_news: true, looked_at: now, not_before: None }
    }

    /// What to do now.
    pub(crate) fn next(&self, now: UnixMicros, is_awaited: bool) -> Step {
        if let Some(wait) = self.not_before.and_then(|at| until(at, now)) {
            return Step::Sleep(wait);
        }
        let until_due = self.due.map(|at| until(at, now));
        if self.has_news || until_due == Some(None) {
            return Step::Round;
        }
        let every = if is_awaited { LOOK } else { LOOK_IDLE };
        // A clock that was set back is as good as one that has gone on: it looks.
        let since = now.0.checked_sub(self.looked_at.0).and_then(|it| u64::try_from(it).ok());
        let Some(until_look) =
            since.and_then(|since| every.checked_sub(Duration::from_micros(since)))
        else {
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
    pub(crate) fn made(
        &mut self,
        now: UnixMicros,
        version: i64,
        due: Option<UnixMicros>,
        again: bool,
    ) {
        *self =
            Self { version: Some(version), due, has_news: again, looked_at: now, not_before: None };
    }

    /// The version was looked at.
    pub(crate) fn saw(&mut self, now: UnixMicros, version: i64) {
        self.looked_at = now;
        self.has_news |= self.version != Some(version);
    }

    /// The database failed.
    pub(crate) fn failed(&mut self, now: UnixMicros) {
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

    fn rested(due: Option<UnixMicros>) -> Pace {
        let mut pace = Pace::new(at(100));
        assert_eq!(pace.next(at(100), false), Step::Round);
        pace.made(at(100), 7, due, false);
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
        pace.saw(at(101), 7);
        assert_eq!(pace.next(at(101), true), Step::Sleep(LOOK));
        pace.saw(at(102), 8);
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
        pace.made(at(100), 8, None, true);
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
        assert_eq!(pace.next(at(50), true), Step::Look);
        assert_eq!(pace.next(at(1_000_000), true), Step::Round);
        assert_eq!(pace.next(UnixMicros(i64::MIN), true), Step::Look);
        let mut pace = rested(None);
        pace.failed(at(100));
        assert_eq!(pace.next(at(0), true), Step::Sleep(LOOK_IDLE), "never longer");
    }
}
