//! Charges of projects for the time of agents, beyond the tokens that their tasks use.
//!
//! The fleet shares agents by *credit*. By default, the credit of a claim is the larger of its
//! tokens and the price of its time. Budgets count tokens alone. So tokens and the *extra* (credit
//! − tokens) are kept apart. The extra is below 0 only if the fleet is configured to count time
//! alone.

use fairgate_time::UnixMicros;

use crate::database::UsageColumns;
use crate::rolling_window::UsageWindow;

/// Columns `window_extra` and `window_extra_oldest` of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditSums {
    /// Extra of the buckets that count in full, in tokens.
    pub extra: i64,
    /// Extra of the oldest bucket, which counts less and less, in tokens.
    pub oldest: i64,
}

impl CreditSums {
    /// Names of the columns, in the order in which [`CreditSums::read`] takes them.
    pub const COLUMNS: &str = "window_extra, window_extra_oldest";

    /// Reads the sums from a database row, starting at column `first`.
    pub fn read<R: UsageColumns + ?Sized>(row: &R, first: usize) -> Result<Self, R::Error> {
        Ok(Self { extra: row.int(first)?, oldest: row.int(first + 1)? })
    }

    /// Returns the extra in the window before a moment, in tokens. `bucket` is the bucket that the sums belong to.
    pub fn extra(self, window: UsageWindow, bucket: i64, at: UnixMicros) -> i64 {
        let left = window.fading_part(self.oldest.unsigned_abs(), bucket, at);
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        let left = if self.oldest < 0 { -left } else { left };
        self.extra.saturating_add(left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_bucket_fades_with_its_sign() {
        let window = UsageWindow::new(Duration::from_secs(24));
        let at = |us| UnixMicros(us);
        let sums = CreditSums { extra: 100, oldest: 60 };
        assert_eq!(sums.extra(window, 0, at(0)), 160);
        assert_eq!(sums.extra(window, 0, at(500_000)), 130);
        assert_eq!(sums.extra(window, 0, at(1_000_000)), 100);
        let below = CreditSums { extra: -100, oldest: -60 };
        assert_eq!(below.extra(window, 0, at(500_000)), -130);
        let most = CreditSums { extra: i64::MAX, oldest: i64::MIN };
        assert_eq!(most.extra(window, 0, at(0)), 0);
    }
}
