//! Times as text: RFC 3339, and the three forms of HTTP's `Date`.

use std::time::UNIX_EPOCH;

use jiff::SignedDuration;
use jiff::civil::DateTime;

use crate::UnixMicros;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// First moment whose year has four digits, 0000-01-01.
const YEAR_0000_US: i64 = -62_167_219_200_000_000;
/// First moment whose year has five digits, 10000-01-01.
const YEAR_10000_US: i64 = 253_402_300_800_000_000;

/// Formats a time as `2026-11-15T08:00:00.000000Z`. A time outside the years 0000 to 9999 becomes the nearest time
/// within these years.
pub fn to_rfc3339(at: UnixMicros) -> String {
    let since_epoch = SignedDuration::from_micros(at.0.clamp(YEAR_0000_US, YEAR_10000_US - 1));
    format!("{:.6}Z", EPOCH.saturating_add(since_epoch))
}

/// Parses RFC 3339, with any offset and any number of fractional digits. Digits beyond microseconds are dropped, and a leap
/// second becomes the second before it.
///
/// The form is checked here, because jiff also accepts texts that RFC 3339 does not allow: a time
/// without seconds, a space for the `T`, an offset such as `+0200`. The offset is applied here,
/// because jiff's `Timestamp` ends a day before its calendar, and people write
/// `9999-12-31T23:59:59Z` for "never".
pub fn parse_rfc3339(text: &str) -> Option<UnixMicros> {
    let separators = [(4, &b"-"[..]), (7, b"-"), (10, b"Tt"), (13, b":"), (16, b":")];
    let bytes = text.as_bytes();
    if !separators.iter().all(|(at, any)| bytes.get(*at).is_some_and(|byte| any.contains(byte))) {
        return None;
    }
    let (seconds, rest) = text.split_at_checked(19)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
            rest.split_at_checked(end)?
        }
        None => ("0", rest),
    };
    let micros = fraction.get(..fraction.len().min(6))?;
    let civil: DateTime = format!("{seconds}.{micros}").parse().ok()?;
    let utc = civil.duration_since(EPOCH).checked_sub(offset(zone)?)?;
    i64::try_from(utc.as_micros()).ok().map(UnixMicros)
}

/// Parses an offset such as `Z`, `+02:00` or `-05:30`.
fn offset(zone: &str) -> Option<SignedDuration> {
    let two = |tens: &u8, ones: &u8| {
        let digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        digits.then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
    };
    match zone.as_bytes() {
        [b'Z' | b'z'] => Some(SignedDuration::ZERO),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (two(h1, h2)?, two(m1, m2)?);
            let east = SignedDuration::from_mins(hours * 60 + minutes);
            let fits = hours <= 23 && minutes <= 59;
            fits.then_some(if *sign == b'-' { -east } else { east })
        }
        _ => None,
    }
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, and the two older forms that HTTP still allows. A time before 1970 gives `None`.
pub fn parse_http_date(text: &str) -> Option<UnixMicros> {
    let since = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok().map(UnixMicros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DAY_US, UtcDay};

    const SECOND: i64 = 1_000_000;

    #[test]
    fn every_day_is_shown_as_it_is_read() {
        let [first, last] =
            [YEAR_0000_US, YEAR_10000_US - 1].map(|at| UtcDay::of(UnixMicros(at)).0);
        for day in (first..=last).step_by(13) {
            let at = UnixMicros(day * DAY_US + 86_399 * SECOND + 123_456);
            let text = to_rfc3339(at);
            assert_eq!(parse_rfc3339(&text), Some(at), "{text}");
        }
        assert_eq!(to_rfc3339(UnixMicros(0)), "1970-01-01T00:00:00.000000Z");
        assert_eq!(to_rfc3339(UnixMicros(-1)), "1969-12-31T23:59:59.999999Z");
        assert_eq!(to_rfc3339(UnixMicros(951_782_400 * SECOND)), "2000-02-29T00:00:00.000000Z");
        assert_eq!(to_rfc3339(UnixMicros(i64::MAX)), "9999-12-31T23:59:59.999999Z");
        assert_eq!(to_rfc3339(UnixMicros(i64::MIN)), "0000-01-01T00:00:00.000000Z");
    }

    #[test]
    fn other_spellings_are_read() {
        let at = |text| parse_rfc3339(text).map(|at| at.0);
        assert_eq!(at("1970-01-01t00:00:01z"), Some(SECOND));
        assert_eq!(at("1970-01-01T02:00:00+02:00"), Some(0));
        assert_eq!(at("1969-12-31T18:30:00.5-05:30"), Some(500_000));
        assert_eq!(at("1970-01-01T00:00:00.1234567891Z"), Some(123_456));
        assert_eq!(at("1998-12-31T23:59:60Z"), at("1998-12-31T23:59:59Z"));
        assert_eq!(at("0000-01-01T00:00:00Z"), Some(YEAR_0000_US));
        assert_eq!(at("9999-12-31T23:59:59.999999Z"), Some(YEAR_10000_US - 1));
        // The offset may lead out of the years that are printed.
        assert_eq!(at("0000-01-01T00:00:00+00:01"), Some(YEAR_0000_US - 60 * SECOND));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2026",
            "2026-11-15",
            "2026-11-15T08:00Z",
            "2026-11-15T08:00:00",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+0200",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00ZZ",
            "２０２６-01-01T00:00:00Z",
            "2026-01-01T00:00:00é",
            "2026-01-0é00:00:00Z",
            "1900-02-29T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "-001-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn http_dates() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse_http_date(text), Some(UnixMicros(784_111_777 * SECOND)), "{text}");
        }
        for text in ["", "Sun", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 CET"] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }
}
