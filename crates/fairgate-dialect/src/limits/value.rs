//! One value of a header: a count, or a time in any of its forms.

use std::time::Duration;

use super::COUNT_MAX;
use super::moment::{self, Clock};
use super::span;

/// Why a value is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad(pub(super) &'static str);

pub(super) const UNREADABLE: Bad = Bad("is not a number or a time and was ignored");
pub(super) const NEGATIVE: Bad = Bad("is negative and was ignored");
pub(super) const TOO_MANY: Bad = Bad("is above 10^15 and was ignored");
pub(super) const ZERO_LIMIT: Bad = Bad("is a limit of nothing and was ignored");
pub(super) const FAR_AWAY: Bad = Bad("is more than 32 days ahead and was ignored");
pub(super) const LONG_PAST: Bad = Bad("is more than a day ago and was ignored");

/// Longer values are nothing that is known here.
const VALUE_BYTES_MAX: usize = 128;

/// A number of requests or tokens: `4999`, `150,000`; decimals are cut off. Of a list such as `100, 100;w=60` the first.
pub(super) fn count(value: &[u8]) -> Result<u64, Bad> {
    number(first(text(value)?))
}

/// A limit, which must allow something.
pub(super) fn limit(value: &[u8]) -> Result<u64, Bad> {
    match count(value)? {
        0 => Err(ZERO_LIMIT),
        limit => Ok(limit),
    }
}

/// When a limit resets, and whether that was told as a time of day.
pub(super) fn reset(value: &[u8], clock: Clock) -> Result<(Duration, bool), Bad> {
    let text = text(value)?;
    if let Some(then) = moment::rfc3339(text).or_else(|| moment::http_date(text)) {
        return clock.until(then).map(|after| (after, true));
    }
    let text = first(text);
    let whole = text.split('.').next().and_then(|whole| whole.parse().ok());
    if let Some(then) = whole.and_then(moment::epoch).filter(|_| is_decimal(text)) {
        return clock.until(then).map(|after| (after, true));
    }
    span::span(text).map(|after| (after, false))
}

/// A number of milliseconds.
pub(super) fn millis(value: &[u8]) -> Result<Duration, Bad> {
    span::millis(first(text(value)?))
}

/// A whole number with or without separators between thousands, within the bounds.
pub(super) fn number(text: &str) -> Result<u64, Bad> {
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

fn text(value: &[u8]) -> Result<&str, Bad> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(UNREADABLE);
    }
    std::str::from_utf8(value).map(str::trim).map_err(|_| UNREADABLE)
}

/// The first of a list, without its parameters. A comma between thousands does not end it.
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
    use super::super::UnixMicros;
    use super::*;

    #[test]
    fn counts() {
        let cases: [(&str, Result<u64, Bad>); 17] = [
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
        let clock = Clock::new(UnixMicros(1_794_794_885_000_000), None);
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
