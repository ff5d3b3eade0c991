//! Date and machine of a run, for the heading of a report.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, thread};

/// Returns date, processor, cores and compiler, in one line.
pub(crate) fn describe() -> String {
    let date = date();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let plural = if cores == 1 { "" } else { "s" };
    format!("{date}, {}, {cores} core{plural}, {}", processor(), compiler())
}

fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("an unknown processor".into(), |(_, name)| name.trim().into())
}

fn compiler() -> String {
    let told = Command::new("rustc").arg("--version").output();
    let told = told.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version = told.as_deref().and_then(|text| text.split(" (").next());
    version.map_or("an unknown rustc".into(), |version| version.trim().into())
}

/// Returns today's date in UTC.
fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(now.as_secs() / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Converts a number of days since 1970-01-01 to year, month and day in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(59), (1970, 3, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_453), (2025, 12, 31));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }
}
