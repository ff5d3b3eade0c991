//! Reads the system's clock. Code that needs the time of day calls [`now`], or takes the time as an
//! argument so that tests need no clock.
//!
//! The time of day may jump when somebody sets the clock, so durations are measured with
//! [`std::time::Instant`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::UnixMicros;

/// Returns the current time. A clock that is set before 1970 gives 1970.
pub fn now() -> UnixMicros {
    UnixMicros(i64::try_from(since_1970().as_micros()).unwrap_or(i64::MAX))
}

/// Returns the time since 1970-01-01 00:00 UTC, with the clock's whole precision.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_tell_the_same_time() {
        let (before, at, after) = (since_1970(), now(), since_1970());
        let micros = |time: Duration| i64::try_from(time.as_micros()).expect("fits");
        assert!((micros(before)..=micros(after)).contains(&at.0), "{before:?} {at:?} {after:?}");
    }
}
