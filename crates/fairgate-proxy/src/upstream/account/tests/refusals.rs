//! Tests, in virtual time, with providers that refuse all requests beyond their stated limits.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use fairgate_dialect::rate_limit_headers::{LimitUnit, RateLimitHeaders};
use tokio::time::Instant;

use super::virtual_pool::{ProviderStub, RequestShape, StubDecision, VirtualPool};
use super::{account, headers};
use crate::rounding::floor_to_u64;

/// Start of the measurement, which leaves out the first refusals.
const FROM: Duration = Duration::from_secs(120);
const UNTIL: Duration = Duration::from_secs(420);
const REQUESTS_PER_MINUTE: u64 = 1200;
const TOKENS_PER_MINUTE: u64 = 1_200_000;
const SECONDS_OF_BUCKET: u64 = 10;

/// The way in which a provider counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counting {
    /// A bucket that holds ten seconds of the rate.
    Bucket,
    /// A count that starts again every ten seconds.
    TenSeconds,
    /// A count over the last minute.
    SlidingMinute,
}

/// The statements of a provider in addition to its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// None; the operator states the limit.
    Nothing,
    /// The time to wait after a refusal.
    Wait,
    /// The time to wait, and headers with its limit and the rest of the limit.
    Everything,
}

struct Provider {
    counting: Counting,
    unit: LimitUnit,
    says: Says,
    per_minute: u64,
    began: Instant,
    /// Time and amount of each request that was accepted in the last minute.
    accepted: Mutex<VecDeque<(Instant, u64)>>,
    /// Level of the bucket, and the time at which the bucket was filled to that level.
    level: Mutex<(f64, Instant)>,
}

impl Provider {
    fn new(counting: Counting, unit: LimitUnit, says: Says) -> Self {
        let per_minute = match unit {
            LimitUnit::Requests => REQUESTS_PER_MINUTE,
            _ => TOKENS_PER_MINUTE,
        };
        let full = (per_minute * SECONDS_OF_BUCKET / 60) as f64;
        let began = Instant::now();
        let (accepted, level) = (Mutex::default(), Mutex::new((full, began)));
        Self { counting, unit, says, per_minute, began, accepted, level }
    }

    /// Returns the rest of the limit now, and the time until `amount` is available.
    fn left(&self, amount: u64, now: Instant) -> (u64, Duration) {
        let per_second = self.per_minute as f64 / 60.0;
        if self.counting == Counting::Bucket {
            let mut level = self.level.lock().unwrap();
            let came = (now - level.1).as_secs_f64() * per_second;
            *level = ((level.0 + came).min(per_second * SECONDS_OF_BUCKET as f64), now);
            let lacks = (amount as f64 - level.0).max(0.0);
            return (floor_to_u64(level.0), Duration::from_secs_f64(lacks / per_second));
        }
        let (limit, window) = match self.counting {
            Counting::SlidingMinute => (self.per_minute, Duration::from_secs(60)),
            _ => (self.per_minute * SECONDS_OF_BUCKET / 60, Duration::from_secs(SECONDS_OF_BUCKET)),
        };
        let mut accepted = self.accepted.lock().unwrap();
        let start = match self.counting {
            Counting::SlidingMinute => now.checked_sub(window).unwrap_or(self.began),
            _ => {
                let index = (now - self.began).as_secs() / SECONDS_OF_BUCKET;
                self.began + Duration::from_secs(index * SECONDS_OF_BUCKET)
            }
        };
        let is_over = |at: Instant| match self.counting {
            Counting::SlidingMinute => at <= start,
            _ => at < start,
        };
        while accepted.front().is_some_and(|(at, _)| is_over(*at)) {
            accepted.pop_front();
        }
        let used: u64 = accepted.iter().map(|(_, amount)| amount).sum();
        let left = limit.saturating_sub(used);
        let mut lacks = amount.saturating_sub(left);
        let mut wait = Duration::ZERO;
        for (at, freed) in accepted.iter().take_while(|_| self.counting == Counting::SlidingMinute)
        {
            if lacks == 0 {
                break;
            }
            lacks = lacks.saturating_sub(*freed);
            wait = (*at + window).saturating_duration_since(now);
        }
        if self.counting == Counting::TenSeconds && lacks > 0 {
            wait = (start + window).saturating_duration_since(now);
        }
        (left, wait)
    }

    fn headers(&self, left: u64) -> RateLimitHeaders {
        if self.says != Says::Everything {
            return RateLimitHeaders::default();
        }
        let unit = if self.unit == LimitUnit::Requests { "requests" } else { "tokens" };
        let [limit, remaining] =
            ["limit", "remaining"].map(|word| format!("x-ratelimit-{word}-{unit}"));
        let (stated, left) = (self.per_minute.to_string(), left.to_string());
        headers(&[(&*limit, &*stated), (&*remaining, &*left)])
    }
}

impl ProviderStub for Provider {
    fn decide(&self, tokens: u64) -> StubDecision {
        let now = Instant::now();
        let amount = if self.unit == LimitUnit::Requests { 1 } else { tokens };
        let (left, wait) = self.left(amount, now);
        let accepts = left >= amount;
        if accepts {
            self.accepted.lock().unwrap().push_back((now, amount));
            self.level.lock().unwrap().0 -= amount as f64;
        }
        let left = if accepts { left - amount } else { left };
        let asked = (self.says != Says::Nothing && !accepts).then_some(wait);
        StubDecision { accepts, headers: self.headers(left), counted: Some(self.unit), asked }
    }
}

/// Returns a number that looks random, computed from a request's own number.
fn scattered(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40
}

/// Requests of different sizes that take different times.
const SHAPE: RequestShape = RequestShape {
    tokens: |seed| 600 + scattered(seed) % 801,
    to_provider: |seed| Duration::from_micros(2000 + scattered(seed.rotate_left(17)) % 20_000),
    answer: Duration::from_millis(150),
};

/// Returns the fraction of the limit that is used, and the fraction of attempts that are refused,
/// after two minutes.
async fn measure(counting: Counting, unit: LimitUnit, says: Says, clients: u64) -> (f64, f64) {
    let stated = |of: LimitUnit, limit| (says != Says::Everything && of == unit).then_some(limit);
    let account = account(
        stated(LimitUnit::Requests, REQUESTS_PER_MINUTE),
        stated(LimitUnit::Tokens, TOKENS_PER_MINUTE),
    );
    let provider = Provider::new(counting, unit, says);
    let per_minute = provider.per_minute as f64;
    let pool = VirtualPool::new(provider, account, SHAPE);
    let counts = pool.measure(clients, FROM, UNTIL).await;
    let used = if unit == LimitUnit::Requests { counts.accepted } else { counts.tokens } as f64;
    let (accepted, refused) = (counts.accepted as f64, counts.refused as f64);
    let allowed = per_minute * (UNTIL - FROM).as_secs_f64() / 60.0;
    (used / allowed, refused / (accepted + refused))
}

#[tokio::test(start_paused = true)]
async fn after_two_minutes_a_limit_is_used_and_one_request_in_a_hundred_is_refused_at_most() {
    for counting in [Counting::Bucket, Counting::TenSeconds, Counting::SlidingMinute] {
        for unit in [LimitUnit::Requests, LimitUnit::Tokens] {
            for says in [Says::Nothing, Says::Wait, Says::Everything] {
                for clients in [12, 48] {
                    let (used, refused) = measure(counting, unit, says, clients).await;
                    let told = format!(
                        "{counting:?}, {unit:?}, says {says:?}, {clients} clients: {:.1} % used, {:.2} % refused",
                        used * 100.0,
                        refused * 100.0
                    );
                    eprintln!("{told}");
                    assert!(used >= 0.95 && refused <= 0.01, "{told}");
                }
            }
        }
    }
}
