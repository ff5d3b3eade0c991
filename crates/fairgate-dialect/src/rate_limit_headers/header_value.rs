//! Parses one value of a header: a count, or a time in any format.

use std::time::Duration;

use super::COUNT_MAX;
use super::time_span;
use super::timestamp::{self, ProviderClock};

/// The reason why a value is ignored, as the end of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeaderValueError(pub(super) &'static str);

pub(super) const UNREADABLE: HeaderValueError =
    HeaderValueError("is not a number or a time and was ignored");
pub(super) const NEGATIVE: HeaderValueError = HeaderValueError("is negative and was ignored");
pub(super) const TOO_MANY: HeaderValueError = HeaderValueError("is above 10^15 and was ignored");
pub(super) const ZERO_LIMIT: HeaderValueError =
    HeaderValueError("is a limit of nothing and was ignored");
pub(super) const FAR_AWAY: HeaderValueError =
    HeaderValueError("is more than 32 days ahead and was ignored");
pub(super) const LONG_PAST: HeaderValueError =
    HeaderValueError("is more than a day ago and was ignored");

/// Length in bytes of the longest header value that is read. No known value is longer.
const VALUE_BYTES_MAX: usize = 128;

/// Parses a number of requests or tokens, such as `4999` or `150,000`. Decimals are cut off. Of a list such as `100,
/// 100;w=60`, the first number counts.
pub(super) fn count(value: &[u8]) -> Result<u64, HeaderValueError> {
    number(first(text(value)?))
}

/// Parses the number that a limit allows, which must be above 0.
pub(super) fn limit(value: &[u8]) -> Result<u64, HeaderValueError> {
    match count(value)? {
        0 => Err(ZERO_LIMIT),
        limit => Ok(limit),
    }
}

/// Parses a reset. Returns the time until the reset, and true if the value is a point in time instead of a time span.
pub(super) fn reset(
    value: &[u8],
    clock: ProviderClock,
) -> Result<(Duration, bool), HeaderValueError> {
    let text = text(value)?;
    if let Some(then) = timestamp::rfc3339(text).or_else(|| timestamp::http_date(text)) {
        return clock.until(then).map(|after| (after, true));
    }
    let text = first(text);
    let whole = text.split('.').next().and_then(|whole| whole.parse().ok());
    if let Some(then) = whole.and_then(timestamp::epoch).filter(|_| is_decimal(text)) {
        return clock.until(then).map(|after| (after, true));
    }
    time_span::span(text).map(|after| (after, false))
}

/// Parses a number of milliseconds.
pub(super) fn millis(value: &[u8]) -> Result<Duration, HeaderValueError> {
    time_span::millis(first(text(value)?))
}

/// Parses a whole number with or without thousands separators, at most [`COUNT_MAX`].
pub(super) fn number(text: &str) -> Result<u64, HeaderValueError> {
    if text.starts_with('-') && text.len() > 1 {
        return Err(NEGATIVE);
    }
    if text.is_empty() || !is_decimal(&text.replace(',', "")) {
        return Err(UNREADABLE);
    }
    let whole = text.split('.').next().unwrap_or(text).replace(',', "");
    match whole.parse::<u64>() {
        Ok(number) if number <= COUNT_MAX => Ok(number),
        _ if whole.is_empty() => Err(UNREADABLE),
        _ => Err(TOO_MANY),
    }
}

fn is_decimal(text: &str) -> bool {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(decimals)
}

fn text(value: &[u8]) -> Result<&str, HeaderValueError> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(UNREADABLE);
    }
    std::str::from_utf8(value).map(str::trim).map_err(|_| UNREADABLE)
}

/// Returns the first item of a list, without the item's parameters. A comma between thousands does not end the item.
fn first(text: &str) -> &str {
    let text = text.split(';').next().unwrap_or(text);
    let is_thousands = |part: &str| part.len() == 3 && part.bytes().all(|b| b.is_ascii_digit());
    if text.split(',').skip(1).all(is_thousands) {
        return text.trim();
    }
    text.split(',').next().unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::super::EpochMicros;
    use super::*;

    #[test]
    fn counts() {
        let cases: [(&str, Result<u64, HeaderValueError>); 17] = [
            ("4999", Ok(4999)),
            ("0", Ok(0)),
            (" 12 ", Ok(12)),
            ("150,000", Ok(150_000)),
            ("100, 100;w=60", Ok(100)),
            ("60;w=60", Ok(60)),
            ("4999.7", Ok(4999)),
            ("1000000000000000", Ok(COUNT_MAX)),
            ("1000000000000001", Err(TOO_MANY)),
            ("99999999999999999999999", Err(TOO_MANY)),
            ("-1", Err(NEGATIVE)),
            ("-", Err(UNREADABLE)),
            ("", Err(UNREADABLE)),
            ("NaN", Err(UNREADABLE)),
            ("1e5", Err(UNREADABLE)),
            ("inf", Err(UNREADABLE)),
            ("+5", Err(UNREADABLE)),
        ];
        for (text, expected) in cases {
            assert_eq!(count(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(limit(b"0"), Err(ZERO_LIMIT));
        assert_eq!(count(b"\xff\xfe"), Err(UNREADABLE));
        assert_eq!(count(&[b'1'; 200]), Err(UNREADABLE));
    }

    #[test]
    fn resets_in_every_form() {
        // 2026-11-16T02:08:05Z.
        let clock = ProviderClock::new(EpochMicros(1_794_794_885_000_000), None);
        let cases = [
            ("1s", 1_000, false),
            ("6m0s", 360_000, false),
            ("17", 17_000, false),
            ("0.5", 500, false),
            ("33011.382867", 33_011_382, false),
            ("1794794915", 30_000, true),
            ("1794794915.5", 30_000, true),
            ("1794794886500", 1_500, true),
            ("2026-11-16T02:09:05Z", 60_000, true),
            ("Mon, 16 Nov 2026 02:08:35 GMT", 30_000, true),
            ("Mon, 16 Nov 2026 02:08:00 GMT", 0, true),
        ];
        for (text, millis, absolute) in cases {
            let (after, was_absolute) = reset(text.as_bytes(), clock).unwrap();
            assert_eq!((after.as_millis(), was_absolute), (millis, absolute), "{text}");
        }
        let bad = [
            ("2027-11-16T02:08:05Z", FAR_AWAY),
            ("1826330885", FAR_AWAY),
            ("31536000", FAR_AWAY),
            ("2020-01-01T00:00:00Z", LONG_PAST),
            ("-5", NEGATIVE),
            ("tomorrow", UNREADABLE),
            ("", UNREADABLE),
        ];
        for (text, why) in bad {
            assert_eq!(reset(text.as_bytes(), clock), Err(why), "{text}");
        }
    }
}
