//! Formatting of numbers, times and lists for people.

use fairgate_time::{UnixMicros, UtcDay};

/// Formats a number of tokens: `1 234 567 tokens`.
pub(crate) fn tokens(count: u64) -> String {
    format!("{} {}", grouped(count), if count == 1 { "token" } else { "tokens" })
}

/// Formats a number with spaces between groups of three digits: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 agent`, `3 agents`.
pub(crate) fn many(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats the time between two times, rounded up: `80 s`, `5 min`, `3 h`, `2 days`.
pub(crate) fn span(from: UnixMicros, to: UnixMicros) -> String {
    let micros = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    let seconds = micros.div_ceil(1_000_000);
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        7_200..=172_799 => format!("{} h", seconds.div_ceil(3_600)),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

/// Formats a time, to the second, in UTC: `2026-11-16 09:30:00 UTC`.
pub(crate) fn moment(at: UnixMicros) -> String {
    let day = UtcDay::of(at);
    let seconds = at.0.saturating_sub(day.midnight().0) / 1_000_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{} {hours:02}:{minutes:02}:{:02} UTC", day.name(), seconds % 60)
}

/// Formats names for a sentence: `a`, `a and b`, `a, b and c`. At most `most` names are shown:
/// `a, b and 7 more`.
pub(crate) fn listed(names: &[String], most: usize) -> String {
    let (shown, rest) = names.split_at(names.len().min(most));
    let mut shown = shown.to_vec();
    if !rest.is_empty() {
        shown.push(format!("{} more", rest.len()));
    }
    match shown.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_well() {
        assert_eq!(tokens(1), "1 token");
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        let after = |seconds: i64| span(UnixMicros(0), UnixMicros(seconds * 1_000_000));
        let spans = [-5, 0, 80, 300, 7_200, 86_400 * 3].map(after);
        assert_eq!(spans, ["0 s", "0 s", "80 s", "5 min", "2 h", "3 days"]);
        assert_eq!(moment(UnixMicros(1_794_821_400_000_000)), "2026-11-16 09:30:00 UTC");
        let names = ["a", "b", "c"].map(str::to_owned);
        let texts = [0, 1, 2, 3].map(|count| listed(&names[..count], 2));
        assert_eq!(texts, ["", "a", "a and b", "a, b and 1 more"]);
    }
}
