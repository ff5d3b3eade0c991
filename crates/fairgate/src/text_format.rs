//! Formats numbers and names for people.

use std::fmt;

use fairgate_core::fairness::DueService;
use fairgate_core::units::Micros;

/// A time span, printed with its unit: `850 µs`, `12.5 ms`, `3.25 s`, `2 min 5 s`, `3 h 20 min`. Exact below a second,
/// and to the millisecond below a minute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSpan(pub(crate) Micros);

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
pub(crate) struct DecimalThousandths(pub(crate) u64);

impl fmt::Display for DecimalThousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        let decimal = format!("{whole}.{rest:03}");
        f.pad(decimal.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Formats a count with its noun, in the plural unless it is 1.
pub(crate) fn counted(count: impl Into<u128>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

/// Describes the service that a flow got and was due, such as `got 2400 tokens and was due 2000: 400 more, within its
/// bound of 3000 tokens`. Describes only the service got if the flow's node promises no shares.
pub(crate) fn format_got_and_due(got: i128, due: Option<DueService>) -> String {
    let tokens = match got {
        1 => "1 token".to_owned(),
        _ => format!("{got} tokens"),
    };
    let Some(due) = due else { return format!("got {tokens}") };
    let difference = got.saturating_sub(due.tokens);
    let off = match difference {
        0 => "no difference".to_owned(),
        1.. => format!("{difference} more"),
        _ => format!("{} fewer", difference.unsigned_abs()),
    };
    let side = if difference.unsigned_abs() <= due.bound { "within" } else { "outside" };
    let bound = counted(due.bound, "token");
    format!("got {tokens} and was due {}: {off}, {side} its bound of {bound}", due.tokens)
}

/// Largest number of characters of a name that are shown.
const LONGEST_NAME: usize = 60;

/// Returns a name from a journal so that it is safe to show on a terminal. Control characters are escaped, and a long
/// name is cut.
pub(crate) fn safe_name(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", one_line(&name[..end])),
        None => one_line(name),
    }
}

/// Returns foreign text as one line that is safe to show on a terminal, with control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for each in text.chars() {
        match each.is_control() {
            true => line.extend(each.escape_default()),
            false => line.push(each),
        }
    }
    line
}

/// Escapes a text of several lines like [`one_line`], line by line.
pub(crate) fn lines(text: &str) -> String {
    text.split('\n').map(one_line).collect::<Vec<_>>().join("\n")
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

    #[test]
    fn what_a_flow_got_is_told_against_its_bound() {
        let due = |tokens, bound| Some(DueService { tokens, bound });
        let told = [
            (format_got_and_due(5, None), "got 5 tokens"),
            (
                format_got_and_due(2400, due(2000, 400)),
                "got 2400 tokens and was due 2000: 400 more, within its bound of 400 tokens",
            ),
            (
                format_got_and_due(1, due(402, 400)),
                "got 1 token and was due 402: 401 fewer, outside its bound of 400 tokens",
            ),
            (
                format_got_and_due(-3, due(-3, 1)),
                "got -3 tokens and was due -3: no difference, within its bound of 1 token",
            ),
        ];
        for (text, expected) in told {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn names_are_safe_to_show() {
        assert_eq!(safe_name("chat"), "chat");
        assert_eq!(safe_name("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(safe_name(&"é".repeat(100)), format!("{}…", "é".repeat(60)));
        assert_eq!(safe_name(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(one_line(&"é\u{9b}".repeat(100)), "é\\u{9b}".repeat(100));
        assert_eq!(lines("a\x07\nb\r\n"), "a\\u{7}\nb\\r\n");
        assert_eq!(counted(1u64, "token"), "1 token");
        assert_eq!(counted(0u64, "token"), "0 tokens");
    }
}
