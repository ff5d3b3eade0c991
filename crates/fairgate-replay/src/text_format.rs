//! Formats numbers and names for people.

use std::fmt;

use fairgate_core::units::Micros;
pub use fairgate_journal::explain_text::{counted, one_line, safe_name};

/// A time span, printed with its unit: `850 µs`, `12.5 ms`, `3.25 s`, `2 min 5 s`, `3 h 20 min`. Exact below a second,
/// and to the millisecond below a minute.
#[derive(Clone, Copy, Debug)]
pub struct TimeSpan(pub Micros);

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.0;
        let seconds = micros / 1_000_000;
        let text = match micros {
            0..1_000 => format!("{micros} µs"),
            1_000..1_000_000 => format!("{} ms", DecimalThousandths(micros)),
            1_000_000..60_000_000 => format!("{} s", DecimalThousandths(micros / 1_000)),
            60_000_000..3_600_000_000 => format!("{} min {} s", seconds / 60, seconds % 60),
            _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        };
        f.pad(&text)
    }
}

/// A number of thousandths, printed as a decimal without trailing zeros.
#[derive(Clone, Copy, Debug)]
pub struct DecimalThousandths(pub u64);

impl fmt::Display for DecimalThousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        let decimal = format!("{whole}.{rest:03}");
        f.pad(decimal.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        let span = |micros| TimeSpan(Micros(micros)).to_string();
        assert_eq!(span(0), "0 µs");
        assert_eq!(span(999), "999 µs");
        assert_eq!(span(1_000), "1 ms");
        assert_eq!(span(12_050), "12.05 ms");
        assert_eq!(span(999_999), "999.999 ms");
        assert_eq!(span(3_250_000), "3.25 s");
        assert_eq!(span(59_999_999), "59.999 s");
        assert_eq!(span(125_000_000), "2 min 5 s");
        assert_eq!(span(12_000_000_000), "3 h 20 min");
        assert_eq!(span(100_000_000), "1 min 40 s");
        assert_eq!(span(30_000_000), "30 s");
        assert_eq!(format!("{:>8}", TimeSpan(Micros(5))), "    5 µs");
    }
}
