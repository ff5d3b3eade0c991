//! The calendar periods (UTC) that budgets are counted by.

use fairgate_money::{Day, UnixMicros};

use crate::budget::Period;

/// Microseconds in an hour.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// An hour, given as the number of hours since 1970, as `2026-11-15T08`.
pub(crate) fn hour_name(hour: i64) -> String {
    format!("{}T{:02}", Day(hour.div_euclid(24)).name(), hour.rem_euclid(24))
}

impl Period {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Day, Self::Month];

    /// The first day of the period that a moment lies in.
    pub(crate) fn first_day(self, at: UnixMicros) -> Day {
        match self {
            Self::Day => Day::of(at),
            Self::Month => Day::of(at).month_start(),
        }
    }

    /// When the period that a moment lies in is over.
    pub(crate) fn resets_at(self, at: UnixMicros) -> UnixMicros {
        let day = Day::of(at);
        match self {
            Self::Day => Day(day.0 + 1).midnight(),
            Self::Month => day.next_month().midnight(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_money::DAY_US;

    use super::*;

    #[test]
    fn periods_end_where_the_next_begins() {
        for day in (0..190_000).step_by(7).map(Day) {
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
    fn hours_have_names() {
        assert_eq!(hour_name(1_794_729_600 / 3600), "2026-11-15T08");
        assert_eq!(hour_name(-1), "1969-12-31T23");
    }

    #[test]
    fn the_ends_of_time_are_in_periods_too() {
        for at in [UnixMicros(i64::MIN), UnixMicros(i64::MAX)] {
            for period in Period::ALL {
                let _ = (period.first_day(at), period.resets_at(at));
            }
        }
    }
}
