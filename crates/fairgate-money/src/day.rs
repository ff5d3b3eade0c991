//! Days and months in UTC, computed from a count of microseconds. This is the only calendar of the workspace.
//!
//! It uses no library, because the available ones end at the year 9999. A moment in 64-bit microseconds may be up to
//! 292 000 years away, and every moment must have a day.
//!
//! A year is counted from March. February, the only month whose length varies, is then the last one, and the lengths of
//! the others follow the fixed pattern 31, 30, 31, 30, 31. The pattern of leap years repeats every 400 years.

use serde::{Deserialize, Serialize};

/// Microseconds since 1970-01-01 00:00 UTC; negative before that.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMicros(pub i64);

/// Microseconds in a day.
pub const DAY_US: i64 = 86_400_000_000;

/// Number of days in 400 years, of which 97 are leap years.
const ERA_DAYS: i64 = 400 * 365 + 97;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_SHIFT: i64 = 719_468;

/// Greatest year for which [`UtcDay::from_date`] gives a day. The least such year is minus this number. Every moment in
/// microseconds is in a year within this limit.
pub const MAX_YEAR: u64 = 999_999;

/// A day, as the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UtcDay(pub i64);

impl UtcDay {
    /// Returns the UTC day that contains a moment.
    pub fn of(at: UnixMicros) -> Self {
        Self(at.0.div_euclid(DAY_US))
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

    /// Returns the day of a date, with months from 1 to 12 and days of a month from 1. Years may be negative; 0 is the
    /// year before 1. A date that does not exist, or whose year is not from −[`MAX_YEAR`] to [`MAX_YEAR`], gives
    /// `None`.
    pub fn from_date(year: i64, month: i64, day: i64) -> Option<Self> {
        if year.unsigned_abs() > MAX_YEAR || !(1..=12).contains(&month) || !(1..=31).contains(&day)
        {
            return None;
        }
        let found = Self(Self::first_of(year, month).0 + day - 1);
        (found.date() == (year, month, day)).then_some(found)
    }

    /// Returns the day's first moment, saturated to the range of `i64` microseconds.
    pub fn midnight(self) -> UnixMicros {
        UnixMicros(self.0.saturating_mul(DAY_US))
    }

    /// Returns the first day of this day's month.
    #[must_use]
    pub fn month_start(self) -> Self {
        let (year, month, _) = self.date();
        Self::first_of(year, month)
    }

    /// Returns the first day of the next month.
    #[must_use]
    pub fn next_month(self) -> Self {
        match self.date() {
            (year, 12, _) => Self::first_of(year + 1, 1),
            (year, month, _) => Self::first_of(year, month + 1),
        }
    }

    /// Returns the year, the month (1 to 12) and the day of the month (from 1). The year must be from −[`MAX_YEAR`] to
    /// [`MAX_YEAR`].
    pub fn date(self) -> (i64, i64, i64) {
        let days = self.0 + EPOCH_SHIFT;
        let era = days.div_euclid(ERA_DAYS);
        let of_era = days.rem_euclid(ERA_DAYS);
        // Every 4th year has a leap day, except every 100th, but again every 400th. Subtracting those days leaves years
        // of 365.
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // 153 is the sum of the five month lengths 31, 30, 31, 30, 31.
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        (year, month, day)
    }

    /// Returns the first day of a month (1 to 12).
    fn first_of(year: i64, month: i64) -> Self {
        let (year, month_from_march) =
            if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let year_of_era = year.rem_euclid(400);
        let of_year = (153 * month_from_march + 2) / 5;
        let of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + of_year;
        Self(year.div_euclid(400) * ERA_DAYS + of_era - EPOCH_SHIFT)
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

    /// The same by counting: slow, and nothing in it to get wrong.
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
            assert_eq!(UtcDay::parse(&day.name()), None, "it has more than four digits");
        }
        assert_eq!(UtcDay::of(UnixMicros(i64::MIN)).midnight(), UnixMicros(i64::MIN));
    }

    #[test]
    fn only_dates_that_exist_have_a_day() {
        let day = |year, month, day| UtcDay::from_date(year, month, day).map(|day| day.0);
        assert_eq!(day(1970, 1, 1), Some(0));
        assert_eq!(day(2000, 2, 29), Some(11_016));
        assert_eq!(day(0, 3, 1), Some(-719_468));
        assert_eq!(day(-1, 12, 31).map(|last| last + 1), day(0, 1, 1));
        assert_eq!(day(9999, 12, 31).map(|last| last + 1), day(10_000, 1, 1));
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
            (1_000_000, 1, 1),
            (i64::MAX, 1, 1),
            (i64::MIN, 12, 31),
        ] {
            assert_eq!(day(year, month, of_month), None, "{year}-{month}-{of_month}");
        }
    }
}
