//! How long an agent holds its task without a sign of life, on the agent's own clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairgate_money::UnixMicros;
use tokio::time::Instant;

/// The server's `Date` is cut to the second.
const DATE_PRECISION: Duration = Duration::from_secs(1);

/// A lease, measured with the monotonic clock: neither a server's clock that is wrong nor one here that jumps moves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// When it ends.
    pub(crate) until: Instant,
    /// How long it was when it was given.
    pub(crate) length: Duration,
    /// When it ends on the server's clock.
    until_there: UnixMicros,
}

impl Lease {
    /// A lease until a moment of the server's clock, from an answer with this `Date` to a request sent at this instant.
    /// Counted from the sending, so that it is over here no later than there.
    pub(crate) fn new(until: UnixMicros, date: Option<SystemTime>, sent: Instant) -> Self {
        let (now, imprecise) = match date {
            Some(date) => (date, DATE_PRECISION),
            None => (SystemTime::now(), Duration::ZERO),
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let longest =
            Duration::from_micros(u64::try_from(until.0).unwrap_or(0)).saturating_sub(now);
        // Of a lease shorter than the date's precision, half is better than nothing.
        let length = longest.saturating_sub(imprecise).max(longest / 2);
        Self { until: sent + length, length, until_there: until }
    }

    /// The server's clock now, within about a second.
    pub(crate) fn server_now(&self) -> UnixMicros {
        let now = Instant::now();
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let left = micros(self.until.saturating_duration_since(now));
        let over = micros(now.saturating_duration_since(self.until));
        UnixMicros(self.until_there.0.saturating_sub(left).saturating_add(over))
    }

    /// How long one sign of life may take: several must fit into a lease.
    pub(crate) fn call_timeout(&self) -> Duration {
        (self.length / 4).clamp(Duration::from_millis(250), Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_clock_that_is_wrong_does_not_matter() {
        let sent = Instant::now();
        // The server lives in 1970.
        let date = UNIX_EPOCH + Duration::from_secs(1000);
        let lease = Lease::new(UnixMicros(1_060_500_000), Some(date), sent);
        assert_eq!(lease.length, Duration::from_millis(59_500));
        assert_eq!(lease.until, sent + lease.length);
        assert_eq!(lease.call_timeout(), Duration::from_secs(10));
        let now = lease.server_now().0;
        assert!((1_001_000_000..1_002_000_000).contains(&now), "{now}");
        let short = Lease::new(UnixMicros(1_002_000_000), Some(date), sent);
        assert_eq!(short.length, Duration::from_secs(1));
        assert_eq!(short.call_timeout(), Duration::from_millis(250));
        let over = Lease::new(UnixMicros(-5), Some(date), sent);
        assert_eq!(over.length, Duration::ZERO);
    }
}
