//! How fast a queue empties.

use std::time::{Duration, Instant};

/// Over how long the pace is measured.
const WINDOW: Duration = Duration::from_secs(30);
/// What is said while nothing is known, and the shortest that is said.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest that is said.
const LONGEST: Duration = Duration::from_secs(60);

/// Counts who leaves, and tells how long some more leaving takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    since: Instant,
    left: u64,
    /// The time for one to leave in the window before, where any did.
    before: Option<Duration>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, left: 0, before: None }
    }

    pub(super) fn leave(&mut self) {
        self.left = self.left.saturating_add(1);
    }

    /// How long until that many have left, if they go on leaving as fast as lately: 1 s to 60 s.
    pub(super) fn until(&mut self, leaving: u64, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.since);
        let each = each(elapsed, self.left).or(self.before);
        if elapsed >= WINDOW {
            *self = Self { since: now, left: 0, before: each };
        }
        // Where none has left for a while, that while is all that is known.
        let each = each.unwrap_or(elapsed).as_nanos();
        let nanos = each.saturating_mul(u128::from(leaving));
        u64::try_from(nanos).map_or(LONGEST, Duration::from_nanos).clamp(SHORTEST, LONGEST)
    }
}

fn each(elapsed: Duration, left: u64) -> Option<Duration> {
    let nanos = elapsed.as_nanos().checked_div(u128::from(left))?;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}
