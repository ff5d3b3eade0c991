//! Reads integers and decimals exactly as they are written; a number's text is never converted to a float.

use std::str::FromStr;

use fairgate_core::proportional::CreditWeight;
use fairgate_core::units::{
    Alpha, BatchFraction, BurstSeconds, OutOfRangeError, OverlapCredit, PerMinute, TaskWeight,
    Tokens, Weight,
};

use crate::journal_text_error::{JournalTextError, printable};
use crate::read::cursor::JsonCursor;

/// Reads an integer of 0 or more.
pub(crate) fn count(cursor: &mut JsonCursor<'_>) -> Result<u64, JournalTextError> {
    integer(cursor, 0, u64::MAX)
}

/// Reads a number of tokens, 0 or more.
pub(crate) fn tokens(cursor: &mut JsonCursor<'_>) -> Result<Tokens, JournalTextError> {
    count(cursor).map(Tokens)
}

/// Reads an integer from 0 to `most`.
pub(crate) fn small_count(cursor: &mut JsonCursor<'_>, most: u32) -> Result<u32, JournalTextError> {
    let mark = cursor.mark();
    let value = integer(cursor, 0, most.into())?;
    u32::try_from(value).map_err(|_| JournalTextError::new(mark, format!("must be at most {most}")))
}

/// Reads an integer of 1 or more.
pub(crate) fn positive(cursor: &mut JsonCursor<'_>) -> Result<u64, JournalTextError> {
    integer(cursor, 1, u64::MAX)
}

/// Reads a rate per minute, which is an integer of 1 or more.
pub(crate) fn per_minute(cursor: &mut JsonCursor<'_>) -> Result<PerMinute, JournalTextError> {
    let mark = cursor.mark();
    PerMinute::new(positive(cursor)?).map_err(|out| JournalTextError::new(mark, out.to_string()))
}

/// Reads a burst in seconds, which is an integer from 1 to 60.
pub(crate) fn burst_seconds(cursor: &mut JsonCursor<'_>) -> Result<BurstSeconds, JournalTextError> {
    let mark = cursor.mark();
    BurstSeconds::new(integer(cursor, 1, 60)?)
        .map_err(|out| JournalTextError::new(mark, out.to_string()))
}

/// Reads a weight or quantum, which is an integer of 1 or more.
pub(crate) fn weight(cursor: &mut JsonCursor<'_>) -> Result<Weight, JournalTextError> {
    let mark = cursor.mark();
    Weight::new(positive(cursor)?).map_err(|out| JournalTextError::new(mark, out.to_string()))
}

/// Reads a counter of 0 or more that may exceed 64 bits. It is written as text with decimal digits.
pub(crate) fn wide(cursor: &mut JsonCursor<'_>) -> Result<u128, JournalTextError> {
    digits(cursor, "an integer of 0 or more")
}

/// Reads a counter that may exceed 64 bits and may be below 0. It is written as text with decimal digits.
pub(crate) fn signed_wide(cursor: &mut JsonCursor<'_>) -> Result<i128, JournalTextError> {
    digits(cursor, "an integer")
}

/// Reads text that holds an integer, without a plus sign, leading zeros or a negative zero.
fn digits<T: FromStr>(cursor: &mut JsonCursor<'_>, expected: &str) -> Result<T, JournalTextError> {
    let meaning = |text: &str| if is_plain(text) { text.parse().ok() } else { None };
    cursor.text_of(meaning, || format!("{expected} of at most 128 bits, as text"))
}

/// Returns true if the text is an integer without a plus sign and without leading zeros, and is not -0.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    match digits {
        b"0" => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Reads an integer of either sign.
pub(crate) fn signed(cursor: &mut JsonCursor<'_>) -> Result<i64, JournalTextError> {
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

/// Reads the weight of a request, which is 0.001 to 1000000 with at most three decimals.
pub(crate) fn task_weight(cursor: &mut JsonCursor<'_>) -> Result<TaskWeight, JournalTextError> {
    decimal(cursor, 3, TaskWeight::from_thousandths)
}

/// Reads the credit weight of a project, which is 0.001 to 10^15 with at most three decimals.
pub(crate) fn credit_weight(cursor: &mut JsonCursor<'_>) -> Result<CreditWeight, JournalTextError> {
    decimal(cursor, 3, CreditWeight::from_thousandths)
}

/// Reads an alpha, which is 0 to 1 with at most six decimals.
pub(crate) fn alpha(cursor: &mut JsonCursor<'_>) -> Result<Alpha, JournalTextError> {
    decimal(cursor, 6, Alpha::from_millionths)
}

/// Reads a multiple of a worker's batch, which is 0 to 1000000 with at most three decimals.
pub(crate) fn fraction(cursor: &mut JsonCursor<'_>) -> Result<BatchFraction, JournalTextError> {
    decimal(cursor, 3, BatchFraction::from_thousandths)
}

/// Reads an overlap credit, which is 0 to 1000 with at most three decimals.
pub(crate) fn overlap_credit(
    cursor: &mut JsonCursor<'_>,
) -> Result<OverlapCredit, JournalTextError> {
    decimal(cursor, 3, OverlapCredit::from_thousandths)
}

fn refused(mark: usize, expected: &str, text: &str) -> JournalTextError {
    JournalTextError::new(mark, format!("must be {expected}, not {}", printable(text)))
}

fn is_integer(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'))
}

fn integer(cursor: &mut JsonCursor<'_>, least: u64, most: u64) -> Result<u64, JournalTextError> {
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

/// Reads a decimal with at most `places` decimals, as an integer in units of the last decimal.
fn decimal<T>(
    cursor: &mut JsonCursor<'_>,
    places: u8,
    unit: impl FnOnce(u64) -> Result<T, OutOfRangeError>,
) -> Result<T, JournalTextError> {
    let mark = cursor.mark();
    let text = cursor.number(|| "a number".into())?;
    let out_of_range = |out: OutOfRangeError| refused(mark, out.allowed, text);
    match scaled(text, places) {
        ScaledNumber::Units(units) => unit(units).map_err(out_of_range),
        // No unit reaches that far, and none is negative: the unit's own error names the allowed range.
        ScaledNumber::Negative | ScaledNumber::Huge => match unit(u64::MAX) {
            Err(out) => Err(out_of_range(out)),
            Ok(_) => Err(refused(mark, "smaller", text)),
        },
        ScaledNumber::TooFine => Err(JournalTextError::new(
            mark,
            format!("must have at most {places} decimals, not {}", printable(text)),
        )),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ScaledNumber {
    /// The number multiplied by ten to the power of the allowed decimals.
    Units(u64),
    /// The number has more decimals than allowed, not counting trailing zeros.
    TooFine,
    /// The number has more than nineteen digits after it is scaled.
    Huge,
    /// The number is below 0.
    Negative,
}

/// Greatest number of decimal digits that always fit in a `u64`.
const MOST_DIGITS: i64 = 19;

/// Multiplies a number in JSON's grammar by ten to the power of `places`, exactly. The time is linear in the length of
/// the text, however large the exponent is.
fn scaled(text: &str, places: u8) -> ScaledNumber {
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
        return ScaledNumber::Units(0);
    }
    if negative {
        return ScaledNumber::Negative;
    }
    let trailing = digits().rev().take_while(|&d| d == b'0').count();
    let power = exponent + length(trailing) - length(decimals.len()) + i64::from(places);
    if power + length(all - leading - trailing) > MOST_DIGITS {
        return ScaledNumber::Huge;
    }
    if power < 0 {
        return ScaledNumber::TooFine;
    }
    let mut units = 0;
    for digit in digits().take(all - trailing).skip(leading) {
        units = units * 10 + u64::from(digit - b'0');
    }
    for _ in 0..power {
        units *= 10;
    }
    ScaledNumber::Units(units)
}

/// Returns the value of an exponent, clamped to ±10^15, which exceeds the number of digits of any line.
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
            ("0", ScaledNumber::Units(0)),
            ("-0.00", ScaledNumber::Units(0)),
            ("0e999999999999999999", ScaledNumber::Units(0)),
            ("0.25", ScaledNumber::Units(250)),
            ("25e-2", ScaledNumber::Units(250)),
            ("2500000e-7", ScaledNumber::Units(250)),
            ("0.000025E+4", ScaledNumber::Units(250)),
            ("9999999999999999.999", ScaledNumber::Units(9_999_999_999_999_999_999)),
            ("10000000000000000", ScaledNumber::Huge),
            ("1e16", ScaledNumber::Huge),
            ("1e15", ScaledNumber::Units(1_000_000_000_000_000_000)),
            ("1e9999999999999999999999", ScaledNumber::Huge),
            ("1e-9999999999999999999999", ScaledNumber::TooFine),
            ("0.0001", ScaledNumber::TooFine),
            ("123456789.0001", ScaledNumber::TooFine),
            ("-0.001", ScaledNumber::Negative),
            ("-1e-99", ScaledNumber::Negative),
        ];
        for (text, expected) in cases {
            assert_eq!(scaled(text, 3), expected, "{text}");
        }
        assert_eq!(
            scaled("1234567890123.456789", 6),
            ScaledNumber::Units(1_234_567_890_123_456_789)
        );
    }

    #[test]
    fn integers_are_read_up_to_their_bounds() {
        assert_eq!(count(&mut JsonCursor::new("18446744073709551615")).unwrap(), u64::MAX);
        assert_eq!(count(&mut JsonCursor::new("-0")).unwrap(), 0);
        assert_eq!(signed(&mut JsonCursor::new("-9223372036854775808")).unwrap(), i64::MIN);
        assert_eq!(signed(&mut JsonCursor::new("9223372036854775807")).unwrap(), i64::MAX);
        assert_eq!(signed(&mut JsonCursor::new("-0")).unwrap(), 0);
        assert_eq!(small_count(&mut JsonCursor::new("4294967295"), u32::MAX).unwrap(), u32::MAX);
    }
}
