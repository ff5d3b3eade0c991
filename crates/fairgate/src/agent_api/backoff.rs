//! How long to wait before a call is made again, and when to say so.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(250);
/// How often it is said that something still does not work.
const REMINDER: Duration = Duration::from_secs(60);

/// Pauses that double up to a longest one, each shortened by up to a quarter at random, so that many agents which lost the
/// same server do not come back at the same moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    longest: Duration,
    next: Duration,
    /// How much pause there was since something was said.
    silent: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(longest: Duration) -> Self {
        Self { longest, next: FIRST.min(longest), silent: Duration::ZERO, failures: 0 }
    }

    /// A call failed: how long to wait, and whether to tell people. They are told at the first failure, and once a minute.
    pub(crate) fn failed(&mut self) -> (Duration, bool) {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        self.failures += 1;
        let tell = self.failures == 1 || self.silent >= REMINDER;
        self.silent = if tell { Duration::ZERO } else { self.silent };
        let pause = whole - whole.mul_f64(f64::from(random_byte()) / 1024.0);
        self.silent += pause;
        (pause, tell)
    }

    /// A call was answered: whether calls failed before it.
    pub(crate) fn answered(&mut self) -> bool {
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
        let mut backoff = Backoff::new(Duration::from_secs(5));
        assert!(!backoff.answered());
        let (first, tell) = backoff.failed();
        assert!(tell && first <= FIRST && first >= FIRST * 3 / 4, "{first:?}");
        assert!(!backoff.failed().1, "the second failure is nothing new");
        let mut silent = Duration::ZERO;
        for _ in 0..100 {
            let (pause, tell) = backoff.failed();
            assert!(pause <= Duration::from_secs(5));
            silent = if tell { Duration::ZERO } else { silent + pause };
            assert!(silent <= REMINDER + Duration::from_secs(5), "{silent:?}");
        }
        assert!(backoff.answered());
        assert!(backoff.failed().0 <= FIRST);
    }
}
