//! Computes the rates of an account during a pause and after it.
//!
//! The level of a bucket in the core rises with the rate, even while its worker is paused. At the
//! end of a pause of p seconds, p × rate ÷ 60 requests would be sent at once. A provider that does
//! not accept such a burst refuses most of them, because a pause does not save up quota. In a
//! sliding minute, only as much becomes free as was sent a minute ago, and the bucket of a provider
//! is empty.
//!
//! During a pause the rates are therefore set to 1 per minute and the levels to 1. A bucket with
//! such a rate holds at most one request, or one token, so its level is still 1 at the end of the
//! pause. One token is enough for one request, because a grant needs one token and may owe the
//! rest. After the pause the rate is raised in ten steps of a second, from a tenth to the full
//! rate, so few requests are in flight if the provider refuses again. While the rate is raised, a
//! bucket holds at most what the rate adds in one second.
//!
//! In addition to its length, a pause costs as much as 4.5 s without requests, because the rate
//! then rises from one tenth to nine tenths in steps of a second. The full rate is below the stated
//! one by the margin of `refusal_margin.rs`, which makes pauses rare.
//!
//! A learned rate falls at each refusal by its own rule (`learned_rate.rs`), so it is not raised in steps, and has no
//! margin.

use std::time::Duration;

use super::refusal_margin::RefusalMargin;

/// Number of steps in which the rate is raised.
const STEPS: u64 = 10;
/// Duration of one step.
const STEP: Duration = Duration::from_secs(1);
/// Seconds of the rate that a bucket may hold if a provider does not accept bursts.
pub(super) const LEAST_BURST_SECONDS: u64 = 1;

/// End of the last pause of an account, and the margin below its stated rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PauseRecovery {
    /// End of the last pause, as a time on the quota's clock; `None` before the first pause.
    paused_until: Option<Duration>,
    margin: RefusalMargin,
}

impl PauseRecovery {
    /// Records that the provider refused a request because of a limit. Must be called before the pause is recorded.
    pub(super) fn record_refusal(&mut self, now: Duration) {
        if self.steps(now) == STEPS {
            self.margin.grow(now);
        }
    }

    /// Records a pause that lasts until `until`. Extends the pause in force, but never shortens it.
    pub(super) fn record_pause(&mut self, until: Duration) {
        self.paused_until = self.paused_until.max(Some(until));
    }

    /// Returns true during a pause, and while the rate is raised after it.
    pub(super) fn is_recovering(&self, now: Duration) -> bool {
        self.steps(now) < STEPS
    }

    /// Returns true if the remaining quota that the provider states must not raise the levels:
    /// during a pause, while the rate is raised, and while there is a margin. With a margin the
    /// gateway leaves a part of the quota unused. If that part were added to the levels each
    /// second, the rate would exceed the stated one again.
    pub(super) fn distrusts_remaining(&self, now: Duration) -> bool {
        self.is_recovering(now) || self.margin.thousandths(now) > 0
    }

    /// Converts a stated rate to the rate that applies now, at least 1 per minute.
    pub(super) fn of_stated(&self, per_minute: u64, now: Duration) -> u64 {
        let part = u128::from(self.steps(now) * (1000 - self.margin.thousandths(now)));
        let rate = u128::from(per_minute) * part / u128::from(STEPS * 1000);
        u64::try_from(rate).unwrap_or(u64::MAX).max(1)
    }

    /// Converts a learned rate to the rate that applies now, at least 1 per minute.
    pub(super) fn of_learned(&self, per_minute: u64, now: Duration) -> u64 {
        if self.steps(now) == 0 { 1 } else { per_minute.max(1) }
    }

    /// Returns the number of seconds of the rate that a bucket may hold. This is the configured
    /// number, but at most one second during a pause, while the rate is raised, and after repeated
    /// refusals.
    pub(super) fn burst_seconds(&self, configured: u64, now: Duration) -> u64 {
        let forbids_bursts = self.is_recovering(now) || self.margin.has_recurred(now);
        if forbids_bursts { configured.min(LEAST_BURST_SECONDS) } else { configured }
    }

    /// Returns the number of tenths of the full rate that apply now: 0 during a pause, 10 at the
    /// full rate.
    fn steps(&self, now: Duration) -> u64 {
        match self.paused_until {
            None => STEPS,
            Some(until) if now < until => 0,
            Some(until) => ((now - until).as_secs() / STEP.as_secs() + 1).min(STEPS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn after_a_pause_the_rate_is_raised_in_ten_steps() {
        let mut recovery = PauseRecovery::default();
        assert_eq!(
            (recovery.of_stated(600, seconds(0)), recovery.is_recovering(seconds(0))),
            (600, false)
        );
        recovery.record_pause(seconds(10));
        assert_eq!(
            (recovery.of_stated(600, seconds(9)), recovery.of_learned(600, seconds(9))),
            (1, 1)
        );
        let rates: Vec<u64> = (10..21).map(|at| recovery.of_stated(600, seconds(at))).collect();
        assert_eq!(rates, [60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 600]);
        assert_eq!(recovery.of_learned(600, seconds(10)), 600);
        assert!(recovery.is_recovering(seconds(18)) && !recovery.is_recovering(seconds(19)));
        assert_eq!(
            (recovery.burst_seconds(10, seconds(18)), recovery.burst_seconds(10, seconds(19))),
            (1, 10)
        );
        assert_eq!(recovery.of_stated(3, seconds(10)), 1);
        assert_eq!(recovery.of_stated(u64::MAX, seconds(19)), u64::MAX);
    }

    #[test]
    fn a_later_end_of_the_pause_counts_and_an_earlier_one_does_not() {
        let mut recovery = PauseRecovery::default();
        recovery.record_pause(seconds(10));
        recovery.record_pause(seconds(5));
        assert_eq!(recovery.of_stated(600, seconds(9)), 1);
        recovery.record_pause(seconds(12));
        assert_eq!(recovery.of_stated(600, seconds(11)), 1);
    }

    #[test]
    fn only_refusals_at_the_full_rate_make_the_margin_grow() {
        let mut recovery = PauseRecovery::default();
        recovery.record_refusal(seconds(0));
        recovery.record_pause(seconds(1));
        // Others that were under way, and those of the steps, say nothing about the full rate.
        for at in [0, 1, 5, 9] {
            recovery.record_refusal(seconds(at));
        }
        assert_eq!(recovery.of_stated(1000, seconds(10)), 980);
        assert_eq!(recovery.burst_seconds(10, seconds(10)), 10);
        assert!(recovery.distrusts_remaining(seconds(10)));
        recovery.record_refusal(seconds(10));
        recovery.record_pause(seconds(11));
        assert_eq!(recovery.of_stated(1000, seconds(20)), 970);
        assert_eq!(recovery.burst_seconds(10, seconds(20)), 1, "refusals recur");
    }
}
