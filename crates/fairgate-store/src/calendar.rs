//! Calendar periods of budgets, in UTC.

use fairgate_time::{UnixMicros, UtcDay};

use crate::budget::BudgetPeriod;

/// Number of microseconds in an hour.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// Formats an hour, given as hours since 1970, as `2026-11-15T08`.
pub(crate) fn hour_name(hour: i64) -> String {
    format!("{}T{:02}", UtcDay(hour.div_euclid(24)).name(), hour.rem_euclid(24))
}

impl BudgetPeriod {
    /// Both calendar periods, first the day.
    pub(crate) const ALL: [Self; 2] = [Self::Day, Self::Month];

    /// Returns the first day of the period that contains a moment.
    pub(crate) fn first_day(self, at: UnixMicros) -> UtcDay {
        match self {
            Self::Day => UtcDay::of(at),
            Self::Month => UtcDay::of(at).month_start(),
        }
    }

    /// Returns the end of the period that contains a moment.
    pub(crate) fn resets_at(self, at: UnixMicros) -> UnixMicros {
        let day = UtcDay::of(at);
        match self {
            Self::Day => UtcDay(day.0 + 1).midnight(),
            Self::Month => day.next_month().midnight(),
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_time::DAY_US;

    use super::*;

    #[test]
    fn periods_end_where_the_next_begins() {
        for day in (0..190_000).step_by(7).map(UtcDay) {
            for period in BudgetPeriod::ALL {
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
            for period in BudgetPeriod::ALL {
                let (first, end) = (period.first_day(at), period.resets_at(at));
                assert!(first.midnight() < end, "{period:?} of {at:?} is not empty");
                assert_eq!(period.first_day(first.midnight()), first, "{period:?} of {at:?}");
            }
        }
    }
}
