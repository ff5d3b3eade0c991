//! Parsing and formatting of durations, sizes and decimals.

use std::ops::RangeInclusive;
use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 4] =
    [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 60 * 60 * 1000)];

const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Parses a duration such as `750ms`, `30s`, `5m` or `1h`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    with_unit(text, &DURATION_UNITS).map(Duration::from_millis)
}

/// Description of a valid deadline, for error messages.
pub const DEADLINE_FORMS: &str =
    "must be seconds from 0.001 to 86400, such as 2.5, or milliseconds, such as 750ms";

/// Parses a deadline as requests and the command line state it: seconds, as `2.5` or `2.5s`, or whole milliseconds, as
/// `750ms`. The range is 1 ms to one day, with microsecond precision. Returns `None` for anything else.
pub fn parse_deadline(text: &str) -> Option<Duration> {
    const RANGE: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_secs(24 * 60 * 60);
    let time = match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(digits(millis)?),
        None => {
            let seconds = text.strip_suffix('s').unwrap_or(text);
            let (whole, decimals) = seconds.split_once('.').unwrap_or((seconds, "0"));
            // Decimals below a microsecond must be digits too, but are dropped.
            digits(decimals)?;
            let micros = digits(&format!("{decimals:0<6}")[..6])?;
            Duration::from_secs(digits(whole)?).checked_add(Duration::from_micros(micros))?
        }
    };
    RANGE.contains(&time).then_some(time)
}

/// Parses a size such as `64MiB`, `1GB` or `512B`, and returns it in bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    with_unit(text, &SIZE_UNITS)
}

/// Parses a decimal such as `1`, `0.1` or `2.125`, and returns it in thousandths.
pub fn parse_thousandths(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || decimals.len() > 3 {
        return None;
    }
    let padded = format!("{decimals:0<3}");
    digits(whole)?.checked_mul(1000)?.checked_add(digits(&padded)?)
}

/// Parses an unsigned integer without a sign.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    digits(number)?.checked_mul(*factor)
}

/// Formats a duration in the largest unit in which it is whole.
pub(crate) fn format_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    in_largest_unit(millis, DURATION_UNITS.iter().rev(), "ms")
}

/// Formats a number of bytes in the largest unit in which it is whole.
pub(crate) fn format_size(bytes: u64) -> String {
    const DECIMAL: usize = 4;
    let decimal = SIZE_UNITS[..DECIMAL].iter().rev();
    let binary = SIZE_UNITS[DECIMAL..].iter().rev();
    match bytes % 1024 {
        0 => in_largest_unit(bytes, binary.chain(decimal), "B"),
        _ => in_largest_unit(bytes, decimal, "B"),
    }
}

/// Formats thousandths as a decimal without trailing zeros.
pub fn format_thousandths(thousandths: u64) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn in_largest_unit<'a>(
    amount: u64,
    mut units: impl Iterator<Item = &'a (&'a str, u64)>,
    smallest: &str,
) -> String {
    match units.find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", amount / factor),
        None => format!("{amount}{smallest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write() {
        for (text, millis) in [("750ms", 750), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000)]
        {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(text), Some(duration));
            assert_eq!(format_duration(duration), text);
        }
        assert_eq!(parse_duration("2 m"), Some(Duration::from_secs(120)));
        assert_eq!(format_duration(Duration::from_millis(90_500)), "90500ms");
        assert_eq!(format_duration(Duration::ZERO), "0ms");
        let wrong = ["", "30", "s", "-1s", "1.5s", "1m30s", "30 sec", "99999999999999999999h"];
        for text in wrong {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(parse_duration(&format!("{}h", u64::MAX)), None);
    }

    #[test]
    fn sizes_read_and_write() {
        for (text, bytes) in [
            ("512B", 512),
            ("64KiB", 65536),
            ("64MiB", 64 << 20),
            ("1GB", 1_000_000_000),
            ("1GiB", 1 << 30),
            ("15KB", 15_000),
        ] {
            assert_eq!(parse_size(text), Some(bytes));
            assert_eq!(format_size(bytes), text);
        }
        for text in ["", "64", "64M", "64mib", "-1B", "1.5GiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn thousandths_read_and_write() {
        for (text, thousandths) in [("1", 1000), ("0.1", 100), ("2.125", 2125), ("0", 0)] {
            assert_eq!(parse_thousandths(text), Some(thousandths));
            assert_eq!(format_thousandths(thousandths), text);
        }
        assert_eq!(parse_thousandths("2.50"), Some(2500));
        for text in ["", ".", "1.", ".5", "0.1234", "-1", "1e3", "1.-1", "99999999999999999999"] {
            assert_eq!(parse_thousandths(text), None, "{text}");
        }
    }
}
