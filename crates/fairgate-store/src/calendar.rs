//! Days and months in UTC, from nothing but a count of microseconds.
//!
//! A year is taken to begin in March: then February, the one month whose length varies, is the last, and the lengths of the
//! others follow the fixed pattern 31, 30, 31, 30, 31. The pattern of leap years repeats every 400 years.

use crate::directory::{Period, UnixMicros};

/// Microseconds in a day.
pub(crate) const DAY_US: i64 = 86_400_000_000;
/// Microseconds in an hour.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// Days in 400 years: 97 of them are leap years.
const ERA_DAYS: i64 = 400 * 365 + 97;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_SHIFT: i64 = 719_468;

/// A day, as the number of days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Day(pub(crate) i64);

impl Day {
    /// The day that a moment lies in.
    pub(crate) fn of(at: UnixMicros) -> Self {
        Self(at.0.div_euclid(DAY_US))
    }

    /// Its midnight; the last moment that can be told, where that is too far away.
    pub(crate) fn midnight(self) -> UnixMicros {
        UnixMicros(self.0.saturating_mul(DAY_US))
    }

    /// Year, month (1 to 12) and day of the month (from 1).
    fn civil(self) -> (i64, i64, i64) {
        let days = self.0 + EPOCH_SHIFT;
        let era = days.div_euclid(ERA_DAYS);
        let of_era = days.rem_euclid(ERA_DAYS);
        // Every 4 years have a leap day, but not every 100, though every 400: taking those days out leaves years of 365.
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // 153 days are the five months 31, 30, 31, 30, 31.
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        (year, month, day)
    }

    /// The first day of a month.
    fn first_of(year: i64, month: i64) -> Self {
        let (year, month_from_march) =
            if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let year_of_era = year.rem_euclid(400);
        let of_year = (153 * month_from_march + 2) / 5;
        let of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + of_year;
        Self(year.div_euclid(400) * ERA_DAYS + of_era - EPOCH_SHIFT)
    }

    /// As `2026-11-15`.
    pub(crate) fn name(self) -> String {
        let (year, month, day) = self.civil();
        format!("{year:04}-{month:02}-{day:02}")
    }
}

/// An hour, given as the number of hours since 1970, as `2026-11-15T08`.
pub(crate) fn hour_name(hour: i64) -> String {
    format!("{}T{:02}", Day(hour.div_euclid(24)).name(), hour.rem_euclid(24))
}

impl Period {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Day, Self::Month];

    /// The first day of the period that a moment lies in.
    pub(crate) fn first_day(self, at: UnixMicros) -> Day {
        let day = Day::of(at);
        match self {
            Self::Day => day,
            Self::Month => {
                let (year, month, _) = day.civil();
                Day::first_of(year, month)
            }
        }
    }

    /// When the period that a moment lies in is over.
    pub(crate) fn resets_at(self, at: UnixMicros) -> UnixMicros {
        let day = Day::of(at);
        let next = match self {
            Self::Day => Day(day.0 + 1),
            Self::Month => {
                let (year, month, _) = day.civil();
                if month == 12 {
                    Day::first_of(year + 1, 1)
                } else {
                    Day::first_of(year, month + 1)
                }
            }
        };
        next.midnight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by counting: slow, and nothing in it to get wrong.
    fn every_day() -> impl Iterator<Item = (Day, (i64, i64, i64))> {
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
        (0..).map(Day).zip(dates)
    }

    #[test]
    fn dates_are_those_that_counting_gives() {
        for (day, date) in every_day() {
            assert_eq!(day.civil(), date);
            let first = Day(day.0 - date.2 + 1);
            assert_eq!(Day::first_of(date.0, date.1), first);
            assert_eq!(Period::Month.first_day(day.midnight()), first);
        }
    }

    #[test]
    fn periods_end_where_the_next_begins() {
        for (day, _) in every_day().step_by(7) {
            for period in Period::ALL {
                let at = UnixMicros(day.midnight().0 + DAY_US - 1);
                let end = period.resets_at(at);
                assert!(end > at);
                assert_eq!(period.first_day(end).midnight(), end);
                assert_eq!(period.first_day(UnixMicros(end.0 - 1)), period.first_day(at));
            }
        }
    }

    #[test]
    fn names() {
        assert_eq!(Day::of(UnixMicros(0)).name(), "1970-01-01");
        assert_eq!(Day::of(UnixMicros(-1)).name(), "1969-12-31");
        assert_eq!(Day::of(UnixMicros(1_794_729_600_000_000)).name(), "2026-11-15");
        assert_eq!(hour_name(1_794_729_600 / 3600), "2026-11-15T08");
        assert_eq!(hour_name(-1), "1969-12-31T23");
    }

    #[test]
    fn the_ends_of_time_are_dates_too() {
        for at in [UnixMicros(i64::MIN), UnixMicros(i64::MAX)] {
            for period in Period::ALL {
                let _ = (period.first_day(at), period.resets_at(at), Day::of(at).name());
            }
        }
    }
}
