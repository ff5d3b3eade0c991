//! Compares the limits with a model that advances time in steps of one millisecond.

use std::time::{Duration, Instant};

use fairgate_store::DirectoryLimits as Allowed;
use fairgate_testkit::seeds::for_each_seed;
use fairgate_testkit::workload::SeededRng;

use super::{CallerLimits, QueuedCountGuard, caller};

/// The model of one owner. Levels are in sixty-thousandths, so that each millisecond adds `rate`.
struct Naive {
    allowed: Allowed,
    requests: i128,
    tokens: i128,
    queue: Vec<u64>,
}

const WHOLE: i128 = 60_000;

impl Naive {
    fn new(allowed: Allowed) -> Self {
        let full = |rate: Option<u64>| i128::from(rate.unwrap_or(0)) * WHOLE;
        let (requests, tokens) =
            (full(allowed.requests_per_minute), full(allowed.tokens_per_minute));
        Self { allowed, requests, tokens, queue: Vec::new() }
    }

    fn tick(&mut self) {
        let rise = |level: &mut i128, rate: Option<u64>| {
            let rate = i128::from(rate.unwrap_or(0));
            *level = (*level + rate).min(rate * WHOLE);
        };
        rise(&mut self.requests, self.allowed.requests_per_minute);
        rise(&mut self.tokens, self.allowed.tokens_per_minute);
    }

    fn refusal(&self, bytes: u64) -> Option<&'static str> {
        let allowed = &self.allowed;
        let waiting: u64 = self.queue.iter().sum();
        if allowed.requests_per_minute.is_some() && self.requests < WHOLE {
            Some("rate_limited_requests")
        } else if allowed.tokens_per_minute.is_some() && self.tokens <= 0 {
            Some("rate_limited_tokens")
        } else if allowed.queued_requests.is_some_and(|limit| self.queue.len() as u64 + 1 > limit) {
            Some("queue_requests_exceeded")
        } else if allowed.queued_bytes.is_some_and(|limit| waiting + bytes > limit) {
            Some("queue_bytes_exceeded")
        } else {
            None
        }
    }

    fn enter(&mut self, bytes: u64, estimate: u64) {
        self.requests -= WHOLE;
        self.tokens -= i128::from(estimate) * WHOLE;
        self.queue.push(bytes);
    }

    fn settle(&mut self, estimate: u64, charged: u64) {
        let full = i128::from(self.allowed.tokens_per_minute.unwrap_or(0)) * WHOLE;
        let refund = (i128::from(estimate) - i128::from(charged)) * WHOLE;
        self.tokens = (self.tokens + refund).min(full);
    }
}

fn allowed(rng: &mut SeededRng) -> Allowed {
    let mut some = |most: u64| rng.percent(67).then(|| rng.range(0..=most));
    Allowed {
        queued_requests: some(6),
        queued_bytes: some(400),
        requests_per_minute: some(2_000),
        tokens_per_minute: some(100_000),
        ..Allowed::default()
    }
}

#[test]
fn limits_are_those_of_a_naive_model() {
    for_each_seed("limits", 400, run);
}

fn run(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let (tenant, key) = (allowed(&mut rng), allowed(&mut rng));
    let mut naive = [Naive::new(tenant.clone()), Naive::new(key.clone())];
    let caller = caller(tenant, key);
    let (limits, mut now) = (CallerLimits::new(), Instant::now());
    let mut waiting: Vec<QueuedCountGuard> = Vec::new();
    // Nobody settles who never entered.
    let mut entered = false;
    for step in 0..300 {
        match rng.range(0..=3) {
            0 => {
                let millis = rng.range(0..=400);
                now += Duration::from_millis(millis);
                naive.iter_mut().for_each(|owner| (0..millis).for_each(|_| owner.tick()));
            }
            1 if !waiting.is_empty() => {
                let which = rng.index(waiting.len());
                drop(waiting.swap_remove(which));
                naive.iter_mut().for_each(|owner| _ = owner.queue.swap_remove(which));
            }
            2 if entered => {
                let (estimate, charged) = (rng.range(0..=5_000), rng.range(0..=5_000));
                limits.settle(&caller, estimate, charged, now);
                naive.iter_mut().for_each(|owner| owner.settle(estimate, charged));
            }
            _ => {
                let (bytes, estimate) = (rng.range(0..=150), rng.range(0..=5_000));
                let expected = naive.iter().find_map(|owner| owner.refusal(bytes));
                match limits.count_in(&caller, bytes, estimate, now) {
                    Ok(queued) => {
                        assert_eq!(expected, None, "seed {seed}, step {step}");
                        entered = true;
                        waiting.push(queued);
                        naive.iter_mut().for_each(|owner| owner.enter(bytes, estimate));
                    }
                    Err(limited) => {
                        assert_eq!(
                            Some(limited.code.as_str()),
                            expected,
                            "seed {seed}, step {step}"
                        );
                    }
                }
            }
        }
    }
}
