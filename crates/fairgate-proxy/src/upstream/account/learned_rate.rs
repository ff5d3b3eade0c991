//! Learns the request rate of a provider that states none, from the requests that it accepts.
//!
//! The rate starts at 60 requests per minute and doubles every 5 s until the provider's first
//! refusal. On every refusal the rate falls to 0.9 × the rate that was accepted in the last 10 s.
//! After the first refusal it grows by 2 % every 10 s. The rate grows only while at least half of
//! it is used, because only a used rate shows what the provider accepts.
//!
//! A learned rate allows a burst of only one second. A refused larger burst would look like a rate
//! that is too high, and the rate would fall far below what the provider accepts.

use std::time::Duration;

use tokio::time::Instant;

use crate::rounding::{floor_to_u64, to_f64};

/// Rate with which learning starts, in requests per minute.
pub(super) const FIRST_PER_MINUTE: f64 = 60.0;
/// Upper bound of the rate, in requests per minute; more than any provider accepts.
const MOST_PER_MINUTE: f64 = 1e9;
const DOUBLES_EVERY: Duration = Duration::from_secs(5);
const GROWS_EVERY: Duration = Duration::from_secs(10);
const GROWS_BY: f64 = 1.02;
const FALLS_TO: f64 = 0.9;
/// Number of seconds over which accepted requests are counted.
const SECONDS: usize = 10;
const WINDOW: f64 = SECONDS as f64;

/// A request rate that is being learned.
#[derive(Clone, Debug)]
pub(super) struct LearnedRate {
    per_minute: f64,
    /// True once the provider has refused a request because of a rate limit. Also true for a rate
    /// from before a restart.
    met_limit: bool,
    /// Time of the last refusal, or of the last check whether the rate may grow.
    since: Instant,
    /// Time at which counting started; the start of second 0 in `accepted`.
    began: Instant,
    /// Numbers of accepted requests in the last seconds, as a ring of (second, count).
    accepted: [(u64, u32); SECONDS],
}

impl LearnedRate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            per_minute: FIRST_PER_MINUTE,
            met_limit: false,
            since: now,
            began: now,
            accepted: [(0, 0); SECONDS],
        }
    }

    /// Continues from a rate that was learned before.
    pub(super) fn resume(per_minute: u64, now: Instant) -> Self {
        let per_minute = to_f64(per_minute).clamp(1.0, MOST_PER_MINUTE);
        Self { per_minute, met_limit: true, ..Self::new(now) }
    }

    /// Returns the rate in requests per minute, at least 1.
    pub(super) fn per_minute(&self) -> u64 {
        floor_to_u64(self.per_minute).max(1)
    }

    /// Returns true if the rate is worth keeping across restarts, because it has met the provider's limit.
    pub(super) fn is_known(&self) -> bool {
        self.met_limit
    }

    /// Records an accepted request.
    pub(super) fn accepted(&mut self, now: Instant) {
        let second = self.second(now);
        let place = usize::try_from(second).unwrap_or(0) % SECONDS;
        let slot = &mut self.accepted[place];
        *slot = if slot.0 == second { (second, slot.1.saturating_add(1)) } else { (second, 1) };
    }

    /// Records a request that was refused because of a rate limit, and lowers the rate.
    pub(super) fn refused(&mut self, now: Instant) {
        let accepted = self.accepted_within(SECONDS as u64, now);
        // If counting began less than 10 s ago, the time since then is used.
        let counted = now.saturating_duration_since(self.began).as_secs_f64().clamp(1.0, WINDOW);
        let seen = f64::from(accepted) * 60.0 / counted * FALLS_TO;
        // If nothing was accepted, the rate is too high by an unknown factor.
        let next = if accepted == 0 { self.per_minute / 2.0 } else { seen };
        self.per_minute = next.min(self.per_minute).max(1.0);
        self.met_limit = true;
        self.since = now;
    }

    /// Raises the rate if enough time has passed and at least half of the rate was used. Returns true if the rate has
    /// grown.
    pub(super) fn grow(&mut self, now: Instant) -> bool {
        let (every, by) =
            if self.met_limit { (GROWS_EVERY, GROWS_BY) } else { (DOUBLES_EVERY, 2.0) };
        if now.saturating_duration_since(self.since) < every {
            return false;
        }
        self.since = now;
        let seconds = every.as_secs();
        let used = f64::from(self.accepted_within(seconds, now)) * 60.0 / to_f64(seconds);
        let before = self.per_minute();
        if used * 2.0 >= self.per_minute {
            self.per_minute = (self.per_minute * by).min(MOST_PER_MINUTE);
        }
        self.per_minute() != before
    }

    /// Returns the number of requests that were accepted in the last `seconds`, including the current second.
    fn accepted_within(&self, seconds: u64, now: Instant) -> u32 {
        let second = self.second(now);
        let recent = |(at, _): &&(u64, u32)| *at <= second && *at + seconds > second;
        self.accepted.iter().filter(recent).fold(0, |sum: u32, (_, n)| sum.saturating_add(*n))
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates second by second: sends as many requests as the rate and the provider's bucket
    /// allow. Returns (accepted, refused).
    fn run(
        learned: &mut LearnedRate,
        from: u64,
        to: u64,
        bucket: &mut f64,
        limit: f64,
    ) -> (f64, u32) {
        let start = learned.began;
        let (mut accepted, mut refused) = (0.0, 0);
        let mut level: f64 = 0.0;
        for tick in from * 100..to * 100 {
            let now = start + Duration::from_millis(tick * 10);
            *bucket = (*bucket + limit / 6000.0).min(limit);
            let rate = to_f64(learned.per_minute());
            level = (level + rate / 6000.0).min((rate / 6.0).max(1.0));
            while level >= 1.0 {
                level -= 1.0;
                if *bucket >= 1.0 {
                    *bucket -= 1.0;
                    accepted += 1.0;
                    learned.accepted(now);
                } else {
                    refused += 1;
                    learned.refused(now);
                    level = 0.0;
                }
            }
            learned.grow(now);
        }
        (accepted, refused)
    }

    #[test]
    fn it_finds_a_rate_that_nobody_states_and_stays_near_it() {
        for limit in [90.0, 600.0, 1200.0, 30_000.0] {
            let mut learned = LearnedRate::new(Instant::now());
            let mut bucket = limit;
            run(&mut learned, 0, 120, &mut bucket, limit);
            let (accepted, refused) = run(&mut learned, 120, 420, &mut bucket, limit);
            let used = accepted / (limit * 5.0);
            let part = f64::from(refused) / (accepted + f64::from(refused));
            assert!(used > 0.85, "{limit} a minute: {used}");
            assert!(part < 0.03, "{limit} a minute: {refused} refused, {part}");
        }
    }

    #[test]
    fn it_doubles_until_it_meets_the_limit() {
        let start = Instant::now();
        let mut learned = LearnedRate::new(start);
        for second in 0..25 {
            let now = start + Duration::from_secs(second);
            for _ in 0..learned.per_minute() / 60 {
                learned.accepted(now);
            }
            learned.grow(now + Duration::from_millis(999));
        }
        assert_eq!(learned.per_minute(), 960);
        assert!(!learned.is_known());
    }

    #[test]
    fn a_rate_that_nobody_uses_does_not_grow() {
        let start = Instant::now();
        let mut learned = LearnedRate::new(start);
        for second in 1..3600 {
            assert!(!learned.grow(start + Duration::from_secs(second)));
        }
        assert_eq!(learned.per_minute(), 60);
    }

    #[test]
    fn a_refusal_never_raises_it() {
        let start = Instant::now();
        let mut learned = LearnedRate::resume(100, start);
        (0..100).for_each(|_| learned.accepted(start));
        learned.refused(start);
        assert_eq!(learned.per_minute(), 100);
        learned.refused(start + Duration::from_secs(60));
        assert_eq!(learned.per_minute(), 50);
    }
}
