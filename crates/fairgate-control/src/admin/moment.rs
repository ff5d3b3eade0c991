//! Reads times in the short forms that people type, and in fields and queries of the admin API.

use fairgate_time::{DAY_US, UnixMicros, parse_rfc3339};
use serde::{Deserialize, Deserializer};

const SECOND: i64 = 1_000_000;

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
