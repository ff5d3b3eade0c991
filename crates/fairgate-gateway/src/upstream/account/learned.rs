//! A rate of requests that nobody states, learned from what a provider accepts.
//!
//! It starts at 60 a minute and doubles every 5 s in which the provider refuses nothing. On the first refusal it falls to
//! 0.9 × what was accepted in the last 10 s, and grows by 2 % every 10 s from then on. It grows only while at least half of it
//! is used: a rate that nobody tries says nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::numbers::{precise, whole};

/// What is tried first, in requests per minute.
pub(super) const FIRST_PER_MINUTE: f64 = 60.0;
/// More than any provider accepts.
const MOST_PER_MINUTE: f64 = 1e9;
const DOUBLES_EVERY: Duration = Duration::from_secs(5);
const GROWS_EVERY: Duration = Duration::from_secs(10);
const GROWS_BY: f64 = 1.02;
const FALLS_TO: f64 = 0.9;
/// The seconds over which accepted requests are counted.
const SECONDS: usize = 10;
const WINDOW: f64 = SECONDS as f64;

/// A rate that is being learned.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    per_minute: f64,
    /// Whether the provider has refused anything yet.
    met_limit: bool,
    /// When the rate last changed.
    since: Instant,
    /// When counting began: second 0.
    began: Instant,
    /// Accepted requests by second, the latest last: (second, how many).
    accepted: [(u64, u32); SECONDS],
}

impl Learned {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            per_minute: FIRST_PER_MINUTE,
            met_limit: false,
            since: now,
            began: now,
            accepted: [(0, 0); SECONDS],
        }
    }

    /// Goes on from a rate that was learned before.
    pub(super) fn resume(per_minute: u64, now: Instant) -> Self {
        let per_minute = precise(per_minute).clamp(1.0, MOST_PER_MINUTE);
        Self { per_minute, met_limit: true, ..Self::new(now) }
    }

    /// Requests per minute, at least 1.
    pub(super) fn per_minute(&self) -> u64 {
        whole(self.per_minute).max(1)
    }

    /// Whether it is worth to be remembered: it has met a limit.
    pub(super) fn is_known(&self) -> bool {
        self.met_limit
    }

    /// A request was accepted.
    pub(super) fn accepted(&mut self, now: Instant) {
        let second = self.second(now);
        let place = usize::try_from(second).unwrap_or(0) % SECONDS;
        let slot = &mut self.accepted[place];
        *slot = if slot.0 == second { (second, slot.1.saturating_add(1)) } else { (second, 1) };
    }

    /// A request was refused because of a rate.
    pub(super) fn refused(&mut self, now: Instant) {
        let accepted = self.accepted_within(SECONDS as u64, now);
        // Where it has not been counted for so long yet, in the time that it has.
        let counted = now.saturating_duration_since(self.began).as_secs_f64().clamp(1.0, WINDOW);
        let seen = f64::from(accepted) * 60.0 / counted * FALLS_TO;
        // Where nothing was accepted, what was tried is too much by an unknown factor.
        let next = if accepted == 0 { self.per_minute / 2.0 } else { seen };
        self.per_minute = next.min(self.per_minute).max(1.0);
        self.met_limit = true;
        self.since = now;
    }

    /// Time goes on: says whether the rate has grown.
    pub(super) fn grow(&mut self, now: Instant) -> bool {
        let (every, by) =
            if self.met_limit { (GROWS_EVERY, GROWS_BY) } else { (DOUBLES_EVERY, 2.0) };
        if now.saturating_duration_since(self.since) < every {
            return false;
        }
        self.since = now;
        let seconds = every.as_secs();
        let used = f64::from(self.accepted_within(seconds, now)) * 60.0 / precise(seconds);
        let before = self.per_minute();
        if used * 2.0 >= self.per_minute {
            self.per_minute = (self.per_minute * by).min(MOST_PER_MINUTE);
        }
        self.per_minute() != before
    }

    /// How many were accepted in so many seconds up to now, the current one included.
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

    /// Second by second: as many as the rate and the provider's bucket allow. Gives (accepted, refused).
    fn run(learned: &mut Learned, from: u64, to: u64, bucket: &mut f64, limit: f64) -> (f64, u32) {
        let start = learned.began;
        let (mut accepted, mut refused) = (0.0, 0);
        let mut level: f64 = 0.0;
        for tick in from * 100..to * 100 {
            let now = start + Duration::from_millis(tick * 10);
            *bucket = (*bucket + limit / 6000.0).min(limit);
            let rate = precise(learned.per_minute());
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
            let mut learned = Learned::new(Instant::now());
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
        let mut learned = Learned::new(start);
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
        let mut learned = Learned::new(start);
        for second in 1..3600 {
            assert!(!learned.grow(start + Duration::from_secs(second)));
        }
        assert_eq!(learned.per_minute(), 60);
    }

    #[test]
    fn a_refusal_never_raises_it() {
        let start = Instant::now();
        let mut learned = Learned::resume(100, start);
        (0..100).for_each(|_| learned.accepted(start));
        learned.refused(start);
        assert_eq!(learned.per_minute(), 100);
        learned.refused(start + Duration::from_secs(60));
        assert_eq!(learned.per_minute(), 50);
    }
}
