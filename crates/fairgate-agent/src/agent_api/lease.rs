//! The lease of a task, measured on the agent's own clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairgate_time::{UnixMicros, wall_clock};
use tokio::time::Instant;

/// Precision of the gateway's `Date` header, which has no fractions of a second.
const DATE_PRECISION: Duration = Duration::from_secs(1);

/// A lease whose end is measured with the monotonic clock, so that neither a wrong clock of the gateway nor a jump of
/// the local clock changes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimLease {
    /// The time at which the lease ends, on the local monotonic clock.
    pub(crate) until: Instant,
    /// Length of the lease when the gateway gave or renewed it.
    pub(crate) length: Duration,
    /// The time at which the lease ends, on the gateway's clock.
    until_there: UnixMicros,
}

impl ClaimLease {
    /// Creates a lease that ends at `until` on the gateway's clock. `date` is the `Date` of the response, and `sent` is
    /// the instant at which the request was sent. The lease is counted from `sent`, so that it ends here no later than
    /// on the gateway.
    pub(crate) fn new(until: UnixMicros, date: Option<SystemTime>, sent: Instant) -> Self {
        let (now, imprecise) = match date {
            Some(date) => (date.duration_since(UNIX_EPOCH).unwrap_or_default(), DATE_PRECISION),
            None => (wall_clock::since_1970(), Duration::ZERO),
        };
        let longest =
            Duration::from_micros(u64::try_from(until.0).unwrap_or(0)).saturating_sub(now);
        // For a lease shorter than the date's precision, half of the lease is counted.
        let length = longest.saturating_sub(imprecise).max(longest / 2);
        Self { until: sent + length, length, until_there: until }
    }

    /// Extends the lease so that at least half its length is left, for times in which the gateway's database is
    /// unavailable and the lease can be neither ended nor renewed.
    pub(crate) fn extend_during_outage(&mut self) {
        let until = self.until.max(Instant::now() + self.length / 2);
        let later = until.saturating_duration_since(self.until);
        let micros = i64::try_from(later.as_micros()).unwrap_or(i64::MAX);
        self.until_there = UnixMicros(self.until_there.0.saturating_add(micros));
        self.until = until;
    }

    /// Returns the gateway's time, exact to about a second.
    pub(crate) fn server_now(&self) -> UnixMicros {
        let now = Instant::now();
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        let left = micros(self.until.saturating_duration_since(now));
        let over = micros(now.saturating_duration_since(self.until));
        UnixMicros(self.until_there.0.saturating_sub(left).saturating_add(over))
    }

    /// Returns the instant here at which the gateway's clock shows `moment`, exact to about a second.
    pub(crate) fn instant_of(&self, moment: UnixMicros) -> Instant {
        let span = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        let later = moment.0.saturating_sub(self.until_there.0);
        let instant = match later {
            later if later >= 0 => self.until.checked_add(span(later)),
            sooner => self.until.checked_sub(span(sooner.saturating_neg())),
        };
        // Too long ago, or too far ahead to be represented.
        instant.unwrap_or(if later < 0 { Instant::now() } else { self.until })
    }

    /// Returns the timeout of one heartbeat, which is a quarter of the lease, so that several attempts fit into a
    /// lease. It is at least 250 ms and at most 10 s.
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
        let lease = ClaimLease::new(UnixMicros(1_060_500_000), Some(date), sent);
        assert_eq!(lease.length, Duration::from_millis(59_500));
        assert_eq!(lease.until, sent + lease.length);
        assert_eq!(lease.call_timeout(), Duration::from_secs(10));
        let now = lease.server_now().0;
        assert!((1_001_000_000..1_002_000_000).contains(&now), "{now}");
        let short = ClaimLease::new(UnixMicros(1_002_000_000), Some(date), sent);
        assert_eq!(short.length, Duration::from_secs(1));
        assert_eq!(short.call_timeout(), Duration::from_millis(250));
        let mut held = lease;
        held.extend_during_outage();
        assert_eq!((held.until, held.until_there), (lease.until, lease.until_there));
        held.until = sent;
        held.until_there = UnixMicros(1_001_000_000);
        held.extend_during_outage();
        assert!(held.until >= sent + lease.length / 2);
        let now = held.server_now().0;
        assert!((1_001_000_000..1_002_000_000).contains(&now), "{now}");
        assert_eq!(
            lease.instant_of(UnixMicros(1_061_500_000)),
            lease.until + Duration::from_secs(1)
        );
        assert_eq!(
            lease.instant_of(UnixMicros(1_059_500_000)),
            lease.until - Duration::from_secs(1)
        );
        let over = ClaimLease::new(UnixMicros(-5), Some(date), sent);
        assert_eq!(over.length, Duration::ZERO);
    }
}
