//! Formats the table of a run as text or as Markdown.

use std::fmt;

use fairgate_table::{TableCell, TextTable};

/// A bar on a measured number, mostly on the ratio of the big side's time to the base side's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RatioBar {
    /// The big side takes at most this many times as long as the base side.
    AtMost(f64),
    /// The big side takes at least this many times as long as the base side.
    AtLeast(f64),
    /// The big side takes at most this many times as long as the base side, plus a tolerance of 10
    /// % for measurement noise.
    GrowsAtMost(f64),
    /// The measured number of bytes is at most this number.
    BytesAtMost(f64),
    /// The result is only reported and has no bar.
    None,
}

/// Factor by which a ratio may exceed the number of [`RatioBar::GrowsAtMost`].
const TOLERANCE: f64 = 1.1;

impl RatioBar {
    /// Returns whether a measured number meets the bar; `None` if there is no bar.
    pub(crate) fn holds(self, number: f64) -> Option<bool> {
        match self {
            Self::AtMost(most) | Self::BytesAtMost(most) => Some(number <= most),
            Self::GrowsAtMost(most) => Some(number <= most * TOLERANCE),
            Self::AtLeast(least) => Some(number >= least),
            Self::None => None,
        }
    }
}

impl fmt::Display for RatioBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}×"),
            Self::GrowsAtMost(most) => write!(f, "≤ {most}× (+10 %)"),
            Self::AtLeast(least) => write!(f, "≥ {least}×"),
            Self::BytesAtMost(most) => write!(f, "≤ {most} B"),
            Self::None => write!(f, "–"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct BenchRow {
    pub(crate) what: String,
    pub(crate) base: String,
    pub(crate) big: String,
    pub(crate) ratio: String,
    pub(crate) bar: RatioBar,
    /// True if the bar is met; `None` if there is no bar.
    pub(crate) ok: Option<bool>,
    pub(crate) instructions: String,
}

const TITLES: [&str; 7] =
    ["what", "base case", "big case", "ratio", "bar", "ok?", "instructions per op"];

impl BenchRow {
    fn cells(&self) -> [String; 7] {
        let ok = match self.ok {
            Some(true) => "ok",
            Some(false) => "FAILS",
            None => "–",
        };
        [
            self.what.clone(),
            self.base.clone(),
            self.big.clone(),
            self.ratio.clone(),
            self.bar.to_string(),
            ok.into(),
            self.instructions.clone(),
        ]
    }
}

/// Renders the table, for Markdown or for a terminal.
pub(crate) fn render(rows: &[BenchRow], markdown: bool) -> String {
    let mut lines = vec![TITLES.map(String::from)];
    lines.extend(rows.iter().map(BenchRow::cells));
    columns(&lines, markdown)
}

/// Formats rows as an aligned table, as text or as Markdown. The first row has the headings.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]], markdown: bool) -> String {
    let [headings, rows @ ..] = rows else { return String::new() };
    let mut table = TextTable::new(headings.clone());
    for row in rows {
        let [first, others @ ..] = &row[..] else { continue };
        let others = others.iter().map(|cell| TableCell::Number(cell.clone()));
        table.row(std::iter::once(TableCell::Text(first.clone())).chain(others).collect());
    }
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = if markdown { table.write_markdown(&mut text) } else { table.write(&mut text) };
    String::from_utf8_lossy(&text).into_owned()
}

/// Formats a time in nanoseconds with a suitable unit.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.2} µs", ns / 1e3),
        ..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

/// Formats a ratio with about three digits.
pub(crate) fn times(ratio: f64) -> String {
    let places = if ratio < 10.0 { 2 } else { 0 };
    format!("{ratio:.places$}×")
}

/// Formats a number, rounded to a whole number, with spaces between thousands. Numbers from ten
/// million on are given in millions.
pub(crate) fn count(number: f64) -> String {
    if number >= 1e7 {
        return format!("{} M", count(number / 1e6));
    }
    let digits = format!("{number:.0}");
    let mut spaced = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            spaced.push(' ');
        }
        spaced.push(digit);
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_a_person_reads_them() {
        assert_eq!([1.0, 999.0, 1000.0, 1e6].map(count), ["1", "999", "1 000", "1 000 000"]);
        assert_eq!(count(123_456_789.0), "123 M");
        let shown = [12.3, 1_234.0, 12_345_678.0, 2e10].map(time);
        assert_eq!(shown, ["12 ns", "1.23 µs", "12.3 ms", "20.0 s"]);
        assert_eq!([1.234, 45.6].map(times), ["1.23×", "46×"]);
    }

    #[test]
    fn columns_are_aligned_and_a_failure_is_loud() {
        let row = BenchRow {
            what: "µ".into(),
            base: "1 ns".into(),
            big: "3 ns".into(),
            ratio: "3.00×".into(),
            bar: RatioBar::AtMost(2.0),
            ok: RatioBar::AtMost(2.0).holds(3.0),
            instructions: "–".into(),
        };
        let expected = "\
| what | base case | big case | ratio |  bar |   ok? | instructions per op |
| --- | --: | --: | --: | --: | --: | --: |
| µ    |      1 ns |     3 ns | 3.00× | ≤ 2× | FAILS |                   – |
";
        assert_eq!(render(&[row], true), expected);
    }
}
