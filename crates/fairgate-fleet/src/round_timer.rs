//! Decides when the loop runs a round. A round is due when this process changed something or an agent came, when a
//! lease, a pause or a task's wait for its agent ends, or when another process changed something. To notice changes of
//! other processes, the loop reads the fleet's version now and then. Otherwise the loop sleeps. While no agent waits, a
//! round can give no task to anybody, so changes then wait a moment and share a round. The [`RoundTimer`] also
//! keeps the [`OutageDetector`] that detects outages of the database.

use std::time::Duration;

use fairgate_time::UnixMicros;

use crate::lease_outage::{ClockReading, OutageDetector};

/// Interval at which the fleet's version is read while an agent waits.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which the fleet's version is read while no agent waits.
const LOOK_IDLE: Duration = Duration::from_secs(5);
/// Shortest time between two rounds while no agent waits. Without it, each completion would cause a round that gives
/// no task to anybody.
const UNAWAITED_PAUSE: Duration = Duration::from_millis(100);
/// Pause of the loop after a failure of the database.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The next step of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopStep {
    /// Run a round now.
    Round,
    /// Read the fleet's version.
    Look,
    /// Sleep for this long, unless a round is requested before.
    Sleep(Duration),
}

/// The state from which the loop computes its next step.
#[derive(Clone, Debug)]
pub(crate) struct RoundTimer {
    /// Version of the fleet after the last round.
    version: Option<i64>,
    /// Time at which the next round must run even if nothing changes; `None` if there is no such
    /// time.
    due: Option<UnixMicros>,
    /// True if something happened that a round must consider.
    is_round_requested: bool,
    /// True if the next round must follow at once, also if no agent waits.
    is_round_urgent: bool,
    /// Time at which the loop last read the database.
    looked_at: UnixMicros,
    /// Earliest time of the next step after a failure of the database; `None` if the last step did not fail.
    not_before: Option<UnixMicros>,
    pub(crate) watch: OutageDetector,
}

impl RoundTimer {
    /// Creates the initial state, whose first step is a round.
    pub(crate) fn new(now: UnixMicros) -> Self {
        Self {
            version: None,
            due: None,
            is_round_requested: true,
            is_round_urgent: true,
            looked_at: now,
            not_before: None,
            watch: OutageDetector::default(),
        }
    }

    /// Returns the next step of the loop. `is_awaited` is true if an agent waits; the fleet's
    /// version is then read more often.
    pub(crate) fn next(&self, now: UnixMicros, is_awaited: bool) -> LoopStep {
        // A pause longer than intended means that the clock was set back; such a pause is ignored.
        let pause = self.not_before.and_then(|at| until(at, now));
        if let Some(pause) = pause.filter(|pause| *pause <= AFTER_FAILURE) {
            return LoopStep::Sleep(pause);
        }
        let until_due = self.due.map(|at| until(at, now));
        let is_at_once = self.is_round_urgent || (self.is_round_requested && is_awaited);
        if is_at_once || until_due == Some(None) {
            return LoopStep::Round;
        }
        // If the clock was put back, a round shortens leases that now end too late.
        let Ok(since) = u64::try_from(now.0.saturating_sub(self.looked_at.0)) else {
            return LoopStep::Round;
        };
        let (every, next) = match (self.is_round_requested, is_awaited) {
            (true, _) => (UNAWAITED_PAUSE, LoopStep::Round),
            (false, true) => (LOOK, LoopStep::Look),
            (false, false) => (LOOK_IDLE, LoopStep::Look),
        };
        match every.checked_sub(Duration::from_micros(since)).filter(|rest| !rest.is_zero()) {
            Some(rest) => LoopStep::Sleep(until_due.flatten().map_or(rest, |it| it.min(rest))),
            None => next,
        }
    }

    /// Requests a round, because something happened in this process. While no agent waits, it may follow a little later.
    pub(crate) fn request_round(&mut self) {
        self.is_round_requested = true;
    }

    /// Records that a round was run at `at`, with its results.
    pub(crate) fn made(
        &mut self,
        at: ClockReading,
        version: i64,
        due: Option<UnixMicros>,
        again: bool,
    ) {
        self.watch.made(at);
        let (version, looked_at) = (Some(version), at.now);
        *self = Self {
            version,
            due,
            is_round_requested: again,
            is_round_urgent: again,
            looked_at,
            not_before: None,
            ..*self
        };
    }

    /// Records the fleet's version as read at `at`, and requests a round if the version changed.
    pub(crate) fn record_version(&mut self, at: ClockReading, version: i64) {
        self.watch.looked(at);
        self.looked_at = at.now;
        self.is_round_requested |= self.version != Some(version);
    }

    /// Records that the database failed, and delays the next step by [`AFTER_FAILURE`].
    pub(crate) fn failed(&mut self, now: UnixMicros) {
        self.watch.failed();
        let micros = i64::try_from(AFTER_FAILURE.as_micros()).unwrap_or(i64::MAX);
        self.not_before = Some(UnixMicros(now.0.saturating_add(micros)));
        self.is_round_requested = true;
        self.is_round_urgent = true;
    }
}

/// Returns the time from `now` until `at`, but at most [`LOOK_IDLE`] in case the clock jumps;
/// `None` if `at` has passed.
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

    fn moment(seconds: i64) -> ClockReading {
        ClockReading { now: at(seconds), steady: Duration::from_secs(seconds.unsigned_abs()) }
    }

    fn rested(due: Option<UnixMicros>) -> RoundTimer {
        let mut pace = RoundTimer::new(at(100));
        assert_eq!(pace.next(at(100), false), LoopStep::Round);
        pace.made(moment(100), 7, due, false);
        pace
    }

    #[test]
    fn it_sleeps_until_something_happens() {
        let mut pace = rested(None);
        assert_eq!(pace.next(at(100), false), LoopStep::Sleep(LOOK_IDLE));
        assert_eq!(pace.next(at(100), true), LoopStep::Sleep(LOOK));
        pace.request_round();
        assert_eq!(pace.next(at(100), true), LoopStep::Round);
        assert_eq!(pace.next(at(101), false), LoopStep::Round);
    }

    #[test]
    fn while_no_agent_waits_changes_share_a_round() {
        let mut pace = rested(None);
        let after = |ms: i64| UnixMicros(at(100).0 + ms * 1_000);
        pace.request_round();
        assert_eq!(pace.next(after(30), false), LoopStep::Sleep(Duration::from_millis(70)));
        pace.request_round();
        assert_eq!(pace.next(after(60), false), LoopStep::Sleep(Duration::from_millis(40)));
        assert_eq!(pace.next(after(60), true), LoopStep::Round, "an agent came");
        assert_eq!(pace.next(after(100), false), LoopStep::Round);
        let mut pace = rested(Some(after(10)));
        pace.request_round();
        assert_eq!(pace.next(after(5), false), LoopStep::Sleep(Duration::from_millis(5)));
        assert_eq!(pace.next(after(10), false), LoopStep::Round, "a lease ends");
        assert_eq!(pace.next(UnixMicros(0), false), LoopStep::Round, "the clock was put back");
    }

    #[test]
    fn it_looks_for_what_others_did() {
        let mut pace = rested(None);
        assert_eq!(pace.next(at(101), false), LoopStep::Sleep(LOOK_IDLE - LOOK));
        assert_eq!(pace.next(at(101), true), LoopStep::Look);
        pace.record_version(moment(101), 7);
        assert_eq!(pace.next(at(101), true), LoopStep::Sleep(LOOK));
        pace.record_version(moment(102), 8);
        assert_eq!(pace.next(at(102), true), LoopStep::Round);
    }

    #[test]
    fn a_time_that_has_come_makes_a_round() {
        let pace = rested(Some(UnixMicros(at(100).0 + S / 2)));
        assert_eq!(pace.next(at(100), true), LoopStep::Sleep(Duration::from_millis(500)));
        assert_eq!(pace.next(at(101), true), LoopStep::Round);
    }

    #[test]
    fn a_round_may_ask_for_another() {
        let mut pace = rested(None);
        pace.made(moment(100), 8, None, true);
        assert_eq!(pace.next(at(100), false), LoopStep::Round);
    }

    #[test]
    fn after_a_failure_it_waits_a_little() {
        let mut pace = rested(None);
        pace.failed(at(100));
        assert_eq!(pace.next(at(100), true), LoopStep::Sleep(AFTER_FAILURE));
        assert_eq!(pace.next(at(101), true), LoopStep::Round);
    }

    #[test]
    fn a_clock_that_jumps_stops_nothing() {
        let pace = rested(Some(at(200)));
        assert_eq!(pace.next(at(50), true), LoopStep::Round);
        assert_eq!(pace.next(at(1_000_000), true), LoopStep::Round);
        assert_eq!(pace.next(UnixMicros(i64::MIN), true), LoopStep::Round);
        let mut pace = rested(None);
        pace.failed(at(100));
        assert_eq!(pace.next(at(0), true), LoopStep::Round, "not an hour later");
    }
}
