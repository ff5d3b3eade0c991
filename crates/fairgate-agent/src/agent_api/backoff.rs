//! Pauses between retries, and reminders about failures.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Pause after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(250);
/// Time between two reports that requests still fail.
const REMINDER: Duration = Duration::from_secs(60);

/// Pauses that double up to a maximum. Each pause is shortened by up to a quarter at random, so
/// that agents that lost the same server do not all return at the same moment.
#[derive(Debug)]
pub(crate) struct RetryBackoff {
    longest: Duration,
    next: Duration,
    /// Sum of the pauses since a failure was last reported.
    silent: Duration,
    failures: u32,
}

impl RetryBackoff {
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, next: FIRST.min(longest), silent: Duration::ZERO, failures: 0 }
    }

    /// Records a failed request. Returns the pause before the next attempt, and true if the failure
    /// should be reported. The first failure is reported, and then one failure a minute.
    pub(crate) fn record_failure(&mut self) -> (Duration, bool) {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        self.failures += 1;
        let tell = self.failures == 1 || self.silent >= REMINDER;
        self.silent = if tell { Duration::ZERO } else { self.silent };
        let pause = whole - whole.mul_f64(f64::from(random_byte()) / 1024.0);
        self.silent += pause;
        (pause, tell)
    }

    /// Records a successful request. Returns true if the request before it failed.
    pub(crate) fn record_success(&mut self) -> bool {
        let failed = self.failures > 0;
        *self = Self::new(self.longest);
        failed
    }
}

fn random_byte() -> u8 {
    let [byte, ..] = RandomState::new().hash_one(0).to_le_bytes();
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_people_are_told_once_a_minute() {
        let mut backoff = RetryBackoff::new(Duration::from_secs(5));
        assert!(!backoff.record_success());
        let (first, tell) = backoff.record_failure();
        assert!(tell && first <= FIRST && first >= FIRST * 3 / 4, "{first:?}");
        assert!(!backoff.record_failure().1, "the second failure is nothing new");
        let mut silent = Duration::ZERO;
        for _ in 0..100 {
            let (pause, tell) = backoff.record_failure();
            assert!(pause <= Duration::from_secs(5));
            silent = if tell { Duration::ZERO } else { silent + pause };
            assert!(silent <= REMINDER + Duration::from_secs(5), "{silent:?}");
        }
        assert!(backoff.record_success());
        assert!(backoff.record_failure().0 <= FIRST);
    }
}
