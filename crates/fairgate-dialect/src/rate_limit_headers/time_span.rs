//! Parses time spans as providers write them: `6m0s`, `1m30.5s`, `120ms`, `2h3m`, `17`, `0.5`.

use std::time::Duration;

use super::SPAN_MAX;
use super::header_value::{FAR_AWAY, HeaderValueError, NEGATIVE, UNREADABLE};

/// Parses a time span that is a sequence of numbers with units, or one number of seconds. Fractions
/// of a microsecond are rounded up.
pub(super) fn span(text: &str) -> Result<Duration, HeaderValueError> {
    let text = text.trim();
    if text.starts_with('-') {
        return Err(NEGATIVE);
    }
    let mut rest = text;
    let mut micros = 0_u128;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits).ok_or(UNREADABLE)?;
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters).ok_or(UNREADABLE)?;
        // A number without a unit means seconds, but only if it is the whole text.
        let unit = if unit.is_empty() && rest.len() == text.len() { "s" } else { unit };
        micros = micros.saturating_add(part(number, unit)?);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    bounded(micros)
}

/// Parses a whole or decimal number of milliseconds.
pub(super) fn millis(text: &str) -> Result<Duration, HeaderValueError> {
    if text.starts_with('-') {
        return Err(NEGATIVE);
    }
    bounded(part(text, "ms")?)
}

/// Converts microseconds into a duration. Fails above [`SPAN_MAX`].
pub(super) fn bounded(micros: u128) -> Result<Duration, HeaderValueError> {
    if micros > SPAN_MAX.as_micros() {
        return Err(FAR_AWAY);
    }
    u64::try_from(micros).map(Duration::from_micros).map_err(|_| FAR_AWAY)
}

/// Converts one number with its unit into microseconds.
fn part(number: &str, unit: &str) -> Result<u128, HeaderValueError> {
    let nanos: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hour" | "hours" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        _ => return Err(UNREADABLE),
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && decimals.is_empty() {
        return Err(UNREADABLE);
    }
    // A whole number of more than 18 digits is too large. Decimals after the ninth do not matter.
    let whole = if whole.is_empty() { 0 } else { digits(whole, 18).ok_or(FAR_AWAY)? };
    let kept = decimals.get(..9.min(decimals.len())).ok_or(UNREADABLE)?;
    let billionths = match kept {
        "" => 0,
        kept => digits(&format!("{kept:0<9}"), 9).ok_or(UNREADABLE)?,
    };
    if !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UNREADABLE);
    }
    let (whole, billionths) = (u128::from(whole), u128::from(billionths));
    let total = whole * nanos + (billionths * nanos).div_ceil(1_000_000_000);
    Ok(total.div_ceil(1_000))
}

fn digits(text: &str, most: usize) -> Option<u64> {
    if text.len() > most || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_as_providers_write_them() {
        let cases = [
            ("1s", 1_000_000),
            ("6m0s", 360_000_000),
            ("120ms", 120_000),
            ("12ms", 12_000),
            ("6ms", 6_000),
            ("1m30.5s", 90_500_000),
            ("2h3m", 7_380_000_000),
            ("23h47m36.648s", 85_656_648_000),
            ("9m38.016s", 578_016_000),
            ("7.66s", 7_660_000),
            ("17", 17_000_000),
            ("0.5", 500_000),
            (".5", 500_000),
            ("0", 0),
            ("  3 ", 3_000_000),
            ("500us", 500),
            ("1ns", 1),
            ("36.429760048s", 36_429_761),
            ("1d2h", 93_600_000_000),
            ("2764800", 2_764_800_000_000),
        ];
        for (text, micros) in cases {
            assert_eq!(span(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(millis("1500"), Ok(Duration::from_millis(1500)));
        assert_eq!(millis("0.5"), Ok(Duration::from_micros(500)));
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in
            ["", " ", "s", "1x", "1m30", "soon", "NaN", "inf", "1e3", "1.2.3s", "1 s x", "٣s", "."]
        {
            assert_eq!(span(text), Err(UNREADABLE), "{text}");
        }
        for text in ["-1", "-3s", "-0.5"] {
            assert_eq!(span(text), Err(NEGATIVE), "{text}");
        }
        for text in ["365d", "8760h", "2764801", "99999999999999999999s", "999999999999999999h"] {
            assert_eq!(span(text), Err(FAR_AWAY), "{text}");
        }
        assert_eq!(millis("-1"), Err(NEGATIVE));
        assert_eq!(millis("31536000000"), Err(FAR_AWAY));
    }
}
