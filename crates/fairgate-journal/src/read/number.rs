//! Integers and decimals, exactly as they are written: a number's text is never made a float.

use std::str::FromStr;

use fairgate_core::proportional::CreditWeight;
use fairgate_core::units::{
    Alpha, BurstSeconds, Fraction, OutOfRange, PerMinute, TaskWeight, Tokens, Weight,
};

use crate::read::cursor::Cursor;
use crate::read::fault::{Fault, printable};

/// Reads an integer of 0 or more.
pub(crate) fn count(cursor: &mut Cursor<'_>) -> Result<u64, Fault> {
    integer(cursor, 0, u64::MAX)
}

/// Reads a number of tokens.
pub(crate) fn tokens(cursor: &mut Cursor<'_>) -> Result<Tokens, Fault> {
    count(cursor).map(Tokens)
}

/// Reads an integer of 0 to `most`.
pub(crate) fn small_count(cursor: &mut Cursor<'_>, most: u32) -> Result<u32, Fault> {
    let mark = cursor.mark();
    let value = integer(cursor, 0, most.into())?;
    u32::try_from(value).map_err(|_| Fault::new(mark, format!("must be at most {most}")))
}

/// Reads an integer of 1 or more.
pub(crate) fn positive(cursor: &mut Cursor<'_>) -> Result<u64, Fault> {
    integer(cursor, 1, u64::MAX)
}

/// Reads a rate: an integer of 1 or more.
pub(crate) fn per_minute(cursor: &mut Cursor<'_>) -> Result<PerMinute, Fault> {
    let mark = cursor.mark();
    PerMinute::new(positive(cursor)?).map_err(|out| Fault::new(mark, out.to_string()))
}

/// Reads a burst: an integer from 1 to 60.
pub(crate) fn burst_seconds(cursor: &mut Cursor<'_>) -> Result<BurstSeconds, Fault> {
    let mark = cursor.mark();
    BurstSeconds::new(integer(cursor, 1, 60)?).map_err(|out| Fault::new(mark, out.to_string()))
}

/// Reads a weight: an integer of 1 or more.
pub(crate) fn weight(cursor: &mut Cursor<'_>) -> Result<Weight, Fault> {
    let mark = cursor.mark();
    Weight::new(positive(cursor)?).map_err(|out| Fault::new(mark, out.to_string()))
}

/// Reads a counter that may be larger than any ordinary number: the decimal digits of it, as text.
pub(crate) fn wide(cursor: &mut Cursor<'_>) -> Result<u128, Fault> {
    digits(cursor, "an integer of 0 or more")
}

/// Reads such a counter that may be below 0.
pub(crate) fn signed_wide(cursor: &mut Cursor<'_>) -> Result<i128, Fault> {
    digits(cursor, "an integer")
}

/// Reads text that holds an integer, in the one way it may be written.
fn digits<T: FromStr>(cursor: &mut Cursor<'_>, expected: &str) -> Result<T, Fault> {
    let meaning = |text: &str| if is_plain(text) { text.parse().ok() } else { None };
    cursor.text_of(meaning, || format!("{expected} of at most 128 bits, as text"))
}

/// Whether text is an integer without a plus, without leading zeros, and not -0.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    match digits {
        b"0" => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Reads an integer of either sign.
pub(crate) fn signed(cursor: &mut Cursor<'_>) -> Result<i64, Fault> {
    let mark = cursor.mark();
    let text = cursor.number(|| "an integer".into())?;
    text.parse().map_err(|_| {
        let expected = match is_integer(text) {
            true => format!("an integer from {} to {}", i64::MIN, i64::MAX),
            false => "an integer".into(),
        };
        refused(mark, &expected, text)
    })
}

/// Reads the weight of a request: 0.001 to 1000000, at most three decimals.
pub(crate) fn task_weight(cursor: &mut Cursor<'_>) -> Result<TaskWeight, Fault> {
    decimal(cursor, 3, TaskWeight::from_thousandths)
}

/// Reads the credit weight of a project: 0.001 to 10^15, at most three decimals.
pub(crate) fn credit_weight(cursor: &mut Cursor<'_>) -> Result<CreditWeight, Fault> {
    decimal(cursor, 3, CreditWeight::from_thousandths)
}

/// Reads alpha: 0 to 1, at most six decimals.
pub(crate) fn alpha(cursor: &mut Cursor<'_>) -> Result<Alpha, Fault> {
    decimal(cursor, 6, Alpha::from_millionths)
}

/// Reads a part of a worker's batch: 0 to 1000000, at most three decimals.
pub(crate) fn fraction(cursor: &mut Cursor<'_>) -> Result<Fraction, Fault> {
    decimal(cursor, 3, Fraction::from_thousandths)
}

fn refused(mark: usize, expected: &str, text: &str) -> Fault {
    Fault::new(mark, format!("must be {expected}, not {}", printable(text)))
}

fn is_integer(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'))
}

fn integer(cursor: &mut Cursor<'_>, least: u64, most: u64) -> Result<u64, Fault> {
    let mark = cursor.mark();
    let expected = || match most {
        u64::MAX => format!("an integer of {least} or more"),
        _ => format!("an integer from {least} to {most}"),
    };
    let text = cursor.number(expected)?;
    match text.parse() {
        Ok(value) if least <= value && value <= most => Ok(value),
        Err(_) if text == "-0" && least == 0 => Ok(0),
        Err(_) if is_integer(text) && !text.starts_with('-') => {
            Err(refused(mark, &format!("an integer from {least} to {most}"), text))
        }
        _ => Err(refused(mark, &expected(), text)),
    }
}

/// Reads a decimal as a whole number of its smallest unit, one with `places` decimals.
fn decimal<T>(
    cursor: &mut Cursor<'_>,
    places: u8,
    unit: impl FnOnce(u64) -> Result<T, OutOfRange>,
) -> Result<T, Fault> {
    let mark = cursor.mark();
    let text = cursor.number(|| "a number".into())?;
    let out_of_range = |out: OutOfRange| refused(mark, out.allowed, text);
    match scaled(text, places) {
        Scaled::Units(units) => unit(units).map_err(out_of_range),
        // No unit reaches that far, and none is negative: the unit's own words for what it allows.
        Scaled::Negative | Scaled::Huge => match unit(u64::MAX) {
            Err(out) => Err(out_of_range(out)),
            Ok(_) => Err(refused(mark, "smaller", text)),
        },
        Scaled::TooFine => Err(Fault::new(
            mark,
            format!("must have at most {places} decimals, not {}", printable(text)),
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Scaled {
    /// The number, times ten to the number of places.
    Units(u64),
    /// It has more decimals than that, trailing zeros not counted.
    TooFine,
    /// That has more than nineteen digits.
    Huge,
    /// It is below 0.
    Negative,
}

/// As many digits as fit a `u64` whatever they are.
const MOST_DIGITS: i64 = 19;

/// Scales a number of JSON's grammar by ten to the `places`, exactly, in time linear in its text however large its
/// exponent is.
fn scaled(text: &str, places: u8) -> Scaled {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, saturating_exponent(exponent)),
        None => (text, 0),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    // The units are digits × 10^power, with neither leading nor trailing zeros among the digits.
    let digits = || whole.bytes().chain(decimals.bytes());
    let all = whole.len() + decimals.len();
    let leading = digits().take_while(|&d| d == b'0').count();
    if leading == all {
        return Scaled::Units(0);
    }
    if negative {
        return Scaled::Negative;
    }
    let trailing = digits().rev().take_while(|&d| d == b'0').count();
    let power = exponent + length(trailing) - length(decimals.len()) + i64::from(places);
    if power + length(all - leading - trailing) > MOST_DIGITS {
        return Scaled::Huge;
    }
    if power < 0 {
        return Scaled::TooFine;
    }
    let mut units = 0;
    for digit in digits().take(all - trailing).skip(leading) {
        units = units * 10 + u64::from(digit - b'0');
    }
    for _ in 0..power {
        units *= 10;
    }
    Scaled::Units(units)
}

/// An exponent's value, held within ±10^15: further than any line has digits.
fn saturating_exponent(text: &str) -> i64 {
    const FURTHEST: i64 = 1_000_000_000_000_000;
    let digits = text.trim_start_matches(['+', '-']);
    let mut value = 0i64;
    for digit in digits.bytes() {
        value = (value * 10 + i64::from(digit - b'0')).min(FURTHEST);
    }
    if text.starts_with('-') { -value } else { value }
}

fn length(digits: usize) -> i64 {
    i64::try_from(digits).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_scaled_exactly() {
        let cases = [
            ("0", Scaled::Units(0)),
            ("-0.00", Scaled::Units(0)),
            ("0e999999999999999999", Scaled::Units(0)),
            ("0.25", Scaled::Units(250)),
            ("25e-2", Scaled::Units(250)),
            ("2500000e-7", Scaled::Units(250)),
            ("0.000025E+4", Scaled::Units(250)),
            ("9999999999999999.999", Scaled::Units(9_999_999_999_999_999_999)),
            ("10000000000000000", Scaled::Huge),
            ("1e16", Scaled::Huge),
            ("1e15", Scaled::Units(1_000_000_000_000_000_000)),
            ("1e9999999999999999999999", Scaled::Huge),
            ("1e-9999999999999999999999", Scaled::TooFine),
            ("0.0001", Scaled::TooFine),
            ("123456789.0001", Scaled::TooFine),
            ("-0.001", Scaled::Negative),
            ("-1e-99", Scaled::Negative),
        ];
        for (text, expected) in cases {
            assert_eq!(scaled(text, 3), expected, "{text}");
        }
        assert_eq!(scaled("1234567890123.456789", 6), Scaled::Units(1_234_567_890_123_456_789));
    }

    #[test]
    fn integers_are_read_up_to_their_bounds() {
        assert_eq!(count(&mut Cursor::new("18446744073709551615")).unwrap(), u64::MAX);
        assert_eq!(count(&mut Cursor::new("-0")).unwrap(), 0);
        assert_eq!(signed(&mut Cursor::new("-9223372036854775808")).unwrap(), i64::MIN);
        assert_eq!(signed(&mut Cursor::new("9223372036854775807")).unwrap(), i64::MAX);
        assert_eq!(signed(&mut Cursor::new("-0")).unwrap(), 0);
        assert_eq!(small_count(&mut Cursor::new("4294967295"), u32::MAX).unwrap(), u32::MAX);
    }
}
