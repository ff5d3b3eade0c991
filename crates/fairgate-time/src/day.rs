//! Days and months in UTC, computed from a count of microseconds.
//!
//! The calendar is jiff's, which ends at the year 9999. A moment in 64-bit microseconds may be up
//! to 292 000 years from 1970. Every moment must have a day, so moments beyond the calendar count
//! as its first or last day.

use jiff::ToSpan;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 00:00 UTC; negative before that.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMicros(pub i64);

/// Microseconds in a day.
pub const DAY_US: i64 = 86_400_000_000;

const EPOCH: Date = Date::constant(1970, 1, 1);
/// First day of the calendar, −9999-01-01.
const FIRST_DAY: i64 = -4_371_587;
/// Last day of the calendar, 9999-12-31.
const LAST_DAY: i64 = 2_932_896;

/// A day, as the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtcDay(pub i64);

impl UtcDay {
    /// Returns the UTC day that contains a moment. A moment beyond the years −9999 to 9999 is in the first or last day of
    /// these years.
    pub fn of(at: UnixMicros) -> Self {
        Self(at.0.div_euclid(DAY_US).clamp(FIRST_DAY, LAST_DAY))
    }

    /// Parses a date such as `2026-11-15`. Years go from 0000 to 9999; a date that does not exist gives `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |range: std::ops::Range<usize>| -> Option<i64> {
            let digits = bytes.get(range)?;
            let is_number = digits.iter().all(u8::is_ascii_digit);
            is_number
                .then(|| digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
        };
        if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
            return None;
        }
        Self::from_date(number(0..4)?, number(5..7)?, number(8..10)?)
    }

    /// Returns the day of a date, with months from 1 to 12 and days of a month from 1. A date that does not exist, or whose
    /// year is not from −9999 to 9999, gives `None`.
    pub fn from_date(year: i64, month: i64, day: i64) -> Option<Self> {
        let date = Date::new(year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?);
        date.ok().map(Self::from_civil)
    }

    /// Returns the day's first moment, saturated to the range of `i64` microseconds.
    pub fn midnight(self) -> UnixMicros {
        UnixMicros(self.0.saturating_mul(DAY_US))
    }

    /// Returns the first day of this day's month.
    #[must_use]
    pub fn month_start(self) -> Self {
        Self::from_civil(self.civil().first_of_month())
    }

    /// Returns the first day of the next month.
    #[must_use]
    pub fn next_month(self) -> Self {
        Self(Self::from_civil(self.civil().last_of_month()).0 + 1)
    }

    /// Returns the year, the month (1 to 12) and the day of the month (from 1).
    pub fn date(self) -> (i64, i64, i64) {
        let date = self.civil();
        (date.year().into(), date.month().into(), date.day().into())
    }

    fn civil(self) -> Date {
        EPOCH.saturating_add(self.0.clamp(FIRST_DAY, LAST_DAY).days())
    }

    fn from_civil(date: Date) -> Self {
        Self(date.duration_since(EPOCH).as_hours() / 24)
    }

    /// Formats the day as `2026-11-15`.
    pub fn name(self) -> String {
        let (year, month, day) = self.date();
        format!("{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the same days by counting, which is slow and simple.
    fn every_day() -> impl Iterator<Item = (UtcDay, (i64, i64, i64))> {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = move |year: i64, month: i64| match month {
            2 => 28 + i64::from(leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let dates = (1970..2500).flat_map(move |year| {
            (1..=12)
                .flat_map(move |month| (1..=days(year, month)).map(move |day| (year, month, day)))
        });
        (0..).map(UtcDay).zip(dates)
    }

    #[test]
    fn dates_are_those_that_counting_gives() {
        let mut first = UtcDay(0);
        for (day, date) in every_day() {
            if date.2 == 1 {
                assert_eq!(first.next_month(), if day.0 == 0 { UtcDay(31) } else { day });
                first = day;
            }
            assert_eq!(day.date(), date);
            assert_eq!(day.month_start(), first);
            assert_eq!(UtcDay::parse(&day.name()), Some(day));
        }
    }

    #[test]
    fn names() {
        assert_eq!(UtcDay::of(UnixMicros(0)).name(), "1970-01-01");
        assert_eq!(UtcDay::of(UnixMicros(-1)).name(), "1969-12-31");
        assert_eq!(UtcDay::of(UnixMicros(1_794_729_600_000_000)).name(), "2026-11-15");
        let wrong = ["", "2026-11", "2026-11-1", "2026-13-01", "2026-00-10", "2026-02-29"];
        for text in wrong.into_iter().chain(["2026/11/15", "2026-11-00", "+026-11-15", "20261115"])
        {
            assert_eq!(UtcDay::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_ends_of_time_are_dates_too() {
        for at in [UnixMicros(i64::MIN), UnixMicros(i64::MAX)] {
            let day = UtcDay::of(at);
            let (year, month, of_month) = day.date();
            assert_eq!(UtcDay::from_date(year, month, of_month), Some(day));
            assert!(day.month_start() <= day && day < day.next_month());
        }
        assert_eq!(UtcDay::of(UnixMicros(i64::MAX)).date(), (9999, 12, 31));
        assert_eq!(UtcDay::of(UnixMicros(i64::MIN)).date(), (-9999, 1, 1));
        assert_eq!(UtcDay(i64::MIN).midnight(), UnixMicros(i64::MIN));
    }

    #[test]
    fn only_dates_that_exist_have_a_day() {
        let day = |year, month, day| UtcDay::from_date(year, month, day).map(|day| day.0);
        assert_eq!(day(1970, 1, 1), Some(0));
        assert_eq!(day(2000, 2, 29), Some(11_016));
        assert_eq!(day(0, 3, 1), Some(-719_468));
        assert_eq!(day(-1, 12, 31).map(|last| last + 1), day(0, 1, 1));
        assert_eq!(day(9999, 12, 31), Some(LAST_DAY));
        assert_eq!(day(-9999, 1, 1), Some(FIRST_DAY));
        for (year, month, of_month) in [
            (1900, 2, 29),
            (2100, 2, 29),
            (2026, 2, 30),
            (2026, 4, 31),
            (2026, 0, 1),
            (2026, 13, 1),
            (2026, 1, 0),
            (2026, 1, 32),
            (2026, 1, -1),
            (10_000, 1, 1),
            (i64::MAX, 1, 1),
            (i64::MIN, 12, 31),
        ] {
            assert_eq!(day(year, month, of_month), None, "{year}-{month}-{of_month}");
        }
    }
}
