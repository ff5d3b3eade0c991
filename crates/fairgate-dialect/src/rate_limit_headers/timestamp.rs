//! Parses points in time as providers write them: RFC 3339, HTTP dates and seconds or milliseconds since 1970.

use std::time::Duration;

use fairgate_time::{DAY_US, parse_http_date, parse_rfc3339};

use super::EpochMicros;
use super::header_value::{HeaderValueError, LONG_PAST};
use super::time_span::bounded;

/// Smallest difference in microseconds between the local clock and the provider's `date` at which the provider's clock
/// is used. Below this difference, the local clock is more precise than a header in whole seconds.
const AGREED_US: i64 = 2_000_000;
/// Greatest plausible difference in microseconds between the local clock and the provider's `date`. A `date` that
/// differs by more is ignored as a mistake.
const PLAUSIBLE_US: i64 = DAY_US;

/// The current time, in microseconds since 1970, from which the provider's absolute times are turned into spans.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProviderClock(i64);

impl ProviderClock {
    /// Creates a clock with the local time `now`. If the provider's `date` differs from it by at least [`AGREED_US`]
    /// and at most [`PLAUSIBLE_US`], the clock has that date instead.
    pub(super) fn new(now: EpochMicros, date: Option<&[u8]>) -> Self {
        let date = date.and_then(|date| std::str::from_utf8(date).ok()).and_then(http_date);
        match date {
            Some(EpochMicros(date)) => {
                let apart = date.abs_diff(now.0);
                let trusted = AGREED_US.unsigned_abs()..=PLAUSIBLE_US.unsigned_abs();
                Self(if trusted.contains(&apart) { date } else { now.0 })
            }
            None => Self(now.0),
        }
    }

    /// Returns the time from now until `then`; zero if `then` was up to a day ago.
    pub(super) fn until(self, then: EpochMicros) -> Result<Duration, HeaderValueError> {
        match then.0.saturating_sub(self.0) {
            ahead @ 0.. => bounded(u128::from(ahead.unsigned_abs())),
            behind if behind >= -DAY_US => Ok(Duration::ZERO),
            _ => Err(LONG_PAST),
        }
    }
}

/// Parses `2026-11-16T02:08:05Z`, with decimals or an offset such as `+02:00`. A space in place of the `T` is accepted
/// too, because some providers write it.
pub(super) fn rfc3339(text: &str) -> Option<EpochMicros> {
    let parsed = match text.split_once(' ') {
        Some((date, time)) => parse_rfc3339(&format!("{date}T{time}")),
        None => parse_rfc3339(text),
    };
    parsed.filter(|at| at.0 >= 0).map(|at| EpochMicros(at.0))
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, and the two older forms that HTTP still allows.
pub(super) fn http_date(text: &str) -> Option<EpochMicros> {
    parse_http_date(text).map(|at| EpochMicros(at.0))
}

/// Parses seconds or milliseconds since 1970, distinguished by their size; `None` for a number that is neither.
pub(super) fn epoch(number: u64) -> Option<EpochMicros> {
    let micros = match number {
        // Seconds from the year 2001 to the year 5138.
        1_000_000_000..100_000_000_000 => number.checked_mul(1_000_000)?,
        1_000_000_000_000..100_000_000_000_000 => number.checked_mul(1_000)?,
        _ => return None,
    };
    i64::try_from(micros).ok().map(EpochMicros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time 2026-11-16T02:08:05Z, in microseconds since 1970.
    const NOW: i64 = 1_794_794_885_000_000;

    #[test]
    fn rfc_3339() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-16T02:08:05Z", NOW),
            ("2026-11-16t02:08:05z", NOW),
            ("2026-11-16 02:08:05Z", NOW),
            ("2026-11-16T04:08:05+02:00", NOW),
            ("2026-11-15T20:38:05-05:30", NOW),
            ("2026-11-16T02:08:05.5Z", NOW + 500_000),
            ("2026-11-16T02:08:05.123456789Z", NOW + 123_456),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
            ("2000-03-01T00:00:00Z", 951_868_800_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
        ];
        for (text, micros) in cases {
            assert_eq!(rfc3339(text), Some(EpochMicros(micros)), "{text}");
        }
        for text in [
            "",
            "2026-11-16",
            "2026-11-16T02:08:05",
            "2026-13-16T02:08:05Z",
            "2026-11-31T02:08:05Z",
            "2026-11-32T02:08:05Z",
            "2026-11-16T24:08:05Z",
            "2026-11-16T02:08:05.Z",
            "2026-11-16T02:08:05+2",
            "é26-11-16T02:08:05Z",
            "2026-11-16T02:08:05+99:00",
            "-026-11-16T02:08:05Z",
            "1969-12-31T00:00:00Z",
            "2026-00-16T02:08:05Z",
            "2026-11-00T02:08:05Z",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn http_dates() {
        let cases = [
            ("Mon, 16 Nov 2026 02:08:05 GMT", NOW),
            ("Monday, 16-Nov-26 02:08:05 GMT", NOW),
            ("Mon Nov 16 02:08:05 2026", NOW),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777_000_000),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777_000_000),
            ("Sun Nov  6 08:49:37 1994", 784_111_777_000_000),
        ];
        for (text, micros) in cases {
            assert_eq!(http_date(text), Some(EpochMicros(micros)), "{text}");
        }
        for text in [
            "",
            "Mon",
            "Mon, 16 Nov 2026 02:08:05",
            "Mon, 16 Nov 2026 02:08:05 CET",
            "Mon, 16 Foo 2026 02:08:05 GMT",
        ] {
            assert_eq!(http_date(text), None, "{text}");
        }
    }

    #[test]
    fn counts_since_1970() {
        assert_eq!(epoch(1_794_794_885), Some(EpochMicros(NOW)));
        assert_eq!(epoch(1_794_794_885_000), Some(EpochMicros(NOW)));
        for number in [0, 17, 999_999_999, 100_000_000_000, u64::MAX] {
            assert_eq!(epoch(number), None, "{number}");
        }
    }

    #[test]
    fn the_providers_clock_counts_where_it_differs() {
        let until = |date: Option<&str>| {
            let clock = ProviderClock::new(EpochMicros(NOW), date.map(str::as_bytes));
            clock.until(EpochMicros(NOW + 60_000_000)).unwrap().as_secs()
        };
        assert_eq!(until(None), 60);
        assert_eq!(until(Some("Mon, 16 Nov 2026 02:08:04 GMT")), 60, "the clocks agree");
        assert_eq!(until(Some("Mon, 16 Nov 2026 02:08:35 GMT")), 30);
        assert_eq!(until(Some("Mon, 16 Nov 2020 02:08:35 GMT")), 60, "not a clock");
        assert_eq!(until(Some("yesterday")), 60);
    }

    #[test]
    fn a_moment_that_has_passed_is_now_and_one_long_past_is_absurd() {
        let clock = ProviderClock::new(EpochMicros(NOW), None);
        assert_eq!(clock.until(EpochMicros(NOW - 1)), Ok(Duration::ZERO));
        assert_eq!(clock.until(EpochMicros(0)), Err(LONG_PAST));
        assert_eq!(clock.until(EpochMicros(i64::MIN)), Err(LONG_PAST));
        assert!(clock.until(EpochMicros(i64::MAX)).is_err());
    }
}
