//! Reads and writes times as text, in RFC 3339 and in the short forms that people type.

use fairgate_money::{DAY_US, UtcDay};
use fairgate_store::UnixMicros;
use serde::{Deserialize, Deserializer};

const SECOND: i64 = 1_000_000;
/// 0000-01-01, the first day whose year has four digits.
const FIRST_DAY: UtcDay = UtcDay(-719_528);
/// 10000-01-01, the day after the last one whose year has four digits.
const END_DAY: UtcDay = UtcDay(2_932_897);

/// Formats a time as `2026-11-15T08:00:00.000000Z`. A time outside the years 0000 to 9999 becomes the nearest time
/// within these years.
pub fn to_rfc3339(at: UnixMicros) -> String {
    let at = UnixMicros(at.0.clamp(FIRST_DAY.midnight().0, END_DAY.midnight().0 - 1));
    let (day, time) = (UtcDay::of(at).name(), at.0.rem_euclid(DAY_US));
    let (seconds, micros) = (time / SECOND, time % SECOND);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{day}T{hours:02}:{minutes:02}:{seconds:02}.{micros:06}Z")
}

/// Parses RFC 3339, with any offset and any number of fractional digits. A leap second becomes the second after it.
pub fn parse_rfc3339(text: &str) -> Option<UnixMicros> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = bytes.get(range)?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        is_number.then(|| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
    };
    let separated = [(10, b"Tt"), (13, b"::"), (16, b"::")];
    if separated.iter().any(|(at, any)| !bytes.get(*at).is_some_and(|byte| any.contains(byte))) {
        return None;
    }
    let day = UtcDay::parse(text.get(..10)?)?;
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (micros, zone) = fraction(&text[19..])?;
    let time = (hour * 3600 + minute * 60 + second) * SECOND + micros;
    Some(UnixMicros(day.midnight().0 + time - offset(zone)?))
}

/// Parses the fraction of a second. Returns the fraction in microseconds, with the rest of the text. Digits beyond
/// microseconds are dropped.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if end == 0 {
        return None;
    }
    let (digits, zone) = rest.split_at(end);
    let micros = digits.bytes().chain(std::iter::repeat(b'0')).take(6);
    Some((micros.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')), zone))
}

/// Parses an offset such as `Z`, `+02:00` or `-05:30`. Returns the offset in microseconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let two = |text: &str| {
        let is_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_two.then(|| text.parse::<i64>().ok())?
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60) * SECOND)
}

/// Parses a time as people type it: RFC 3339, seconds since 1970, or an age such as `90s`, `15m`, `24h`, `7d` or `2w`.
pub fn parse_typed_time(text: &str, now: UnixMicros) -> Option<UnixMicros> {
    let is_number = |text: &str| {
        (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if is_number(text) {
        return text.parse::<i64>().ok()?.checked_mul(SECOND).map(UnixMicros);
    }
    let unit = match text.as_bytes().last()? {
        b's' => SECOND,
        b'm' => 60 * SECOND,
        b'h' => 3600 * SECOND,
        b'd' => DAY_US,
        b'w' => 7 * DAY_US,
        _ => return parse_rfc3339(text),
    };
    let count = text.get(..text.len() - 1).filter(|count| is_number(count) && count.len() <= 6)?;
    let ago = count.parse::<i64>().ok()?.checked_mul(unit)?;
    Some(UnixMicros(now.0.saturating_sub(ago)))
}

/// A time in a query string, as people type it. [`TypedTime::at`] converts an age such as `24h` to a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypedTime(String);

impl TypedTime {
    /// Returns the time; an age is subtracted from `now`.
    pub(super) fn at(&self, now: UnixMicros) -> UnixMicros {
        parse_typed_time(&self.0, now).unwrap_or(now)
    }
}

impl<'de> Deserialize<'de> for TypedTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || {
            serde::de::Error::custom(
                "must be a moment such as 2026-11-15T08:00:00Z, seconds since 1970, or an age such as 24h",
            )
        };
        parse_typed_time(&text, UnixMicros(0)).ok_or_else(wrong)?;
        Ok(Self(text))
    }
}

/// Deserializes a field that is an RFC 3339 time or null.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UnixMicros>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let moment = parse_rfc3339(&text);
    let wrong = || serde::de::Error::custom("must be a moment such as \"2026-11-15T08:00:00Z\"");
    moment.map(Some).ok_or_else(wrong)
}

/// Deserializes a field of a patch. Null becomes `Some(None)`; with `serde(default)`, an absent field becomes `None`.
pub(super) fn given<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<UnixMicros>>, D::Error> {
    optional(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_is_shown_as_it_is_read() {
        assert_eq!(UtcDay::from_date(0, 1, 1), Some(FIRST_DAY));
        assert_eq!(UtcDay::from_date(10_000, 1, 1), Some(END_DAY));
        for day in (FIRST_DAY.0..END_DAY.0).step_by(13) {
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
        assert_eq!(at("1998-12-31T23:59:60Z"), at("1999-01-01T00:00:00Z"));
        assert_eq!(at("0000-01-01T00:00:00Z"), Some(FIRST_DAY.midnight().0));
        assert_eq!(at("9999-12-31T23:59:59.999999Z"), Some(END_DAY.midnight().0 - 1));
        // The offset may lead out of the years that are printed.
        assert_eq!(at("0000-01-01T00:00:00+00:01"), Some(FIRST_DAY.midnight().0 - 60 * SECOND));
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
    fn people_type_ages_and_seconds() {
        let now = UnixMicros(1_000_000 * SECOND);
        let ago = |text| parse_typed_time(text, now).map(|at| (now.0 - at.0) / SECOND);
        assert_eq!(ago("90s"), Some(90));
        assert_eq!(ago("15m"), Some(900));
        assert_eq!(ago("24h"), Some(86_400));
        assert_eq!(ago("2w"), Some(14 * 86_400));
        assert_eq!(ago("999999"), Some(1));
        assert_eq!(ago("1970-01-01T00:00:00Z"), Some(1_000_000));
        for text in
            ["h", "", "-1h", "1.5h", "1y", "12345678901", "1000000h", " 1h", "yesterday", "é"]
        {
            assert_eq!(parse_typed_time(text, now), None, "{text}");
        }
    }
}
