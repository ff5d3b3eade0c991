//! How often the log names one and the same trouble.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the log is silent about a cause after it was named.
const SILENCE: Duration = Duration::from_secs(10);

/// Lets each cause into the log once in ten seconds and counts the rest, so that a trouble that every request meets is one
/// line and not one line a request. A cause is a kind of trouble, of which there must only be a few.
#[derive(Debug)]
pub struct Throttle<C> {
    /// By cause: when it was named last, and how often it came since.
    named: Mutex<Vec<(C, Instant, u64)>>,
}

impl<C> Default for Throttle<C> {
    fn default() -> Self {
        Self { named: Mutex::default() }
    }
}

impl<C: PartialEq> Throttle<C> {
    /// A cause has come up. Where it is to be logged: how many like it were left out since the last time.
    pub fn admit(&self, cause: C, now: Instant) -> Option<u64> {
        // Counts, of which none depends on another.
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
        let (throttle, start) = (Throttle::default(), Instant::now());
        let said = |cause, after| throttle.admit(cause, start + after);
        assert_eq!(said("refused", Duration::ZERO), Some(0));
        assert_eq!(said("refused", SILENCE / 2), None);
        assert_eq!(said("refused", SILENCE - Duration::from_nanos(1)), None);
        assert_eq!(said("broken", SILENCE / 2), Some(0));
        assert_eq!(said("refused", SILENCE), Some(2));
        assert_eq!(said("broken", SILENCE * 2), Some(0));
    }
}
