//! Limits the rate of log messages with the same cause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a cause is not logged again after it was logged.
const SILENCE: Duration = Duration::from_secs(10);

/// Admits each cause to the log once in ten seconds, and counts the other occurrences. So a problem
/// that affects every request does not write one line per request. The number of different causes
/// must be small.
#[derive(Debug)]
pub struct LogThrottle<C> {
    /// Each known cause, with the time at which it was last logged and the number of its occurrences since then.
    named: Mutex<Vec<(C, Instant, u64)>>,
}

impl<C> Default for LogThrottle<C> {
    fn default() -> Self {
        Self { named: Mutex::default() }
    }
}

impl<C: PartialEq> LogThrottle<C> {
    /// Reports an occurrence of a cause. Returns `None` if this occurrence must not be logged. Otherwise returns the
    /// number of occurrences that were left out of the log since the last logged one.
    pub fn admit(&self, cause: C, now: Instant) -> Option<u64> {
        // A poisoned lock is safe to use: the counts do not depend on each other.
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        match named.iter_mut().find(|(named, ..)| *named == cause) {
            Some((_, at, left_out)) if now < *at + SILENCE => {
                *left_out += 1;
                None
            }
            Some((_, at, left_out)) => {
                *at = now;
                Some(std::mem::take(left_out))
            }
            None => {
                named.push((cause, now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_named_once_in_a_while_and_the_rest_is_counted() {
        let (throttle, start) = (LogThrottle::default(), Instant::now());
        let said = |cause, after| throttle.admit(cause, start + after);
        assert_eq!(said("refused", Duration::ZERO), Some(0));
        assert_eq!(said("refused", SILENCE / 2), None);
        assert_eq!(said("refused", SILENCE - Duration::from_nanos(1)), None);
        assert_eq!(said("broken", SILENCE / 2), Some(0));
        assert_eq!(said("refused", SILENCE), Some(2));
        assert_eq!(said("broken", SILENCE * 2), Some(0));
    }
}
