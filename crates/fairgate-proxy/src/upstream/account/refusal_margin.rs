//! The margin that the gateway keeps below a stated rate, if the provider refuses requests at that
//! rate.
//!
//! A provider that counts in windows refuses requests that are sent at exactly its stated rate. In
//! a window of length W it accepts L = rate × W requests. Requests that are sent at even intervals
//! at the rate r arrive with some jitter, so there are r × W of them in a window, and up to one
//! more. All are accepted if r × W + 1 ≤ L, which is r ≤ rate × (1 − 1 ÷ L). With L = 100 (600
//! requests per minute in windows of 10 s) one percent is enough. The same formula applies to
//! tokens, with L counted in requests of mean size. The gateway does not know L, so the margin
//! starts at 2 % with the first refusal and grows by 1 % with each further one, until refusals
//! stop.
//!
//! Only refusals at the full rate count. A refusal during a pause, or while the rate is raised after a pause
//! (`pause_recovery.rs`), says nothing about the full rate.
//!
//! The margin shrinks by 0.1 % per minute. So after at most 100 minutes without a refusal the full
//! rate applies again. This is needed for a provider that has changed its limit or had refused for
//! another reason. A provider that counts in windows refuses about one request in ten minutes.
//!
//! The margin is at most 10 %. If a provider still refuses at 10 %, the stated rate is wrong, and
//! pauses keep the gateway below the real one. A tenant that causes refusals on purpose costs the
//! other tenants at most this part of the rate.

use std::time::Duration;

/// Margin after the first refusal, in thousandths of the rate.
const FIRST: u64 = 20;
/// Growth of the margin with each further refusal, in thousandths of the rate.
const STEP: u64 = 10;
/// Greatest margin, in thousandths of the rate.
const MAX: u64 = 100;
/// Time in which the margin shrinks by one thousandth of the rate.
const SHRINKS_EVERY: Duration = Duration::from_secs(60);

/// Part of a stated rate that is left unused, because the provider has refused requests at that rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RefusalMargin {
    /// Margin after the last refusal, in thousandths of the rate.
    thousandths: u64,
    /// Time of the last recorded refusal, on the quota's clock.
    since: Duration,
}

impl RefusalMargin {
    /// Records a refusal at the full rate. Further refusals during the pause that follows must not be recorded.
    pub(super) fn grow(&mut self, now: Duration) {
        let thousandths = (self.thousandths(now) + STEP).clamp(FIRST, MAX);
        *self = Self { thousandths, since: now };
    }

    /// Returns the margin in thousandths of the rate, 0 to 100.
    pub(super) fn thousandths(&self, now: Duration) -> u64 {
        let minutes = now.saturating_sub(self.since).as_secs() / SHRINKS_EVERY.as_secs();
        self.thousandths.saturating_sub(minutes)
    }

    /// Returns true after repeated refusals at the full rate: the margin is then above that of a
    /// single refusal.
    pub(super) fn has_recurred(&self, now: Duration) -> bool {
        self.thousandths(now) > FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    #[test]
    fn it_grows_with_each_refusal_up_to_a_tenth_and_shrinks_slowly() {
        let mut margin = RefusalMargin::default();
        assert_eq!(margin.thousandths(minutes(1000)), 0);
        margin.grow(minutes(1));
        assert_eq!((margin.thousandths(minutes(1)), margin.has_recurred(minutes(1))), (20, false));
        margin.grow(minutes(2));
        // 20 less one minute's thousandth, and 10 more.
        assert_eq!((margin.thousandths(minutes(2)), margin.has_recurred(minutes(2))), (29, true));
        assert_eq!(margin.thousandths(minutes(12)), 19);
        assert_eq!(margin.thousandths(minutes(60)), 0);
        margin.grow(minutes(60));
        assert_eq!(margin.thousandths(minutes(60)), 20);
        (0..100).for_each(|_| margin.grow(minutes(60)));
        assert_eq!(margin.thousandths(minutes(60)), 100);
        assert_eq!(margin.thousandths(minutes(160)), 0);
    }
}
