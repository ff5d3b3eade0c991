//! A worker's rates: in any minute no more is granted than the rate, the burst and one request.
//!
//! A grant needs a level of one request or token at least, and takes its quota. Within a minute the level holds its top
//! at most at the beginning, a minute's rate comes in, and refunds are added. So what is granted before the last grant,
//! less the refunds, is at most rate + burst, and the last grant takes one quota more. Quotas here are at most a minute's
//! rate, so that a grant takes all of its quota: the level never falls further than that.

use std::sync::Mutex;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, PoolConfig, WorkerChange};
use fairgate_core::units::{BurstSeconds, Micros, PerMinute};
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::seeds;
use crate::closed_loop::sizes;
use crate::closed_loop::world::{Source, World, policy};

const MINUTE: u64 = 60_000_000;

/// The amount that a worker may take in any minute, in requests or tokens times 60 000 000.
struct Allowed {
    per_minute: u64,
    burst_seconds: u64,
}

impl Allowed {
    fn units(&self, largest: u64) -> u128 {
        let unit = u128::from(MINUTE);
        let rate = u128::from(self.per_minute);
        let burst = (rate * u128::from(self.burst_seconds) * 1_000_000).max(unit);
        rate * unit + burst + u128::from(largest) * unit
    }
}

/// Amounts taken and refunded, in the order of time.
type Timeline = Vec<(u64, i128)>;

/// Returns the greatest amount taken minus refunds within any minute.
fn most_in_a_minute(timeline: &Timeline) -> i128 {
    let mut most = 0;
    for (from, (start, _)) in timeline.iter().enumerate() {
        let within = timeline[from..].iter().take_while(|(at, _)| *at <= start + MINUTE);
        let mut sum = 0;
        for (_, taken) in within {
            sum += taken;
            most = most.max(sum);
        }
    }
    most
}

#[test]
fn in_any_minute_grants_less_refunds_are_at_most_rate_burst_and_one_request() {
    let worst = Mutex::new((0, 0));
    seeds("rates", 16, |seed| {
        let (requests, tokens) = one_worker(seed);
        let mut worst = worst.lock().expect("nobody failed");
        *worst = (worst.0.max(requests), worst.1.max(tokens));
    });
    let (requests, tokens) = worst.into_inner().expect("nobody failed");
    announce(&format!("rates: at most {requests} ‰ of what requests may be, {tokens} ‰ of tokens"));
    assert!(requests > 600 && tokens > 600, "rates did not bind: {requests} and {tokens} ‰");
}

/// Returns the used part of the allowed requests and of the allowed tokens in the busiest minute,
/// in thousandths.
fn one_worker(seed: u64) -> (u128, u128) {
    let mut rng = SeededRng::new(seed);
    let workloads = sizes::all();
    let sizes = &workloads[rng.index(workloads.len())];
    let burst_seconds = rng.range(1..=60);
    let requests = Allowed { per_minute: rng.range(5..=300), burst_seconds };
    // Every second worker is limited by its tokens rather than its requests.
    let mean = sizes.mean() * if seed.is_multiple_of(2) { 100 } else { 3000 };
    let tokens = Allowed { per_minute: mean + rng.range(0..=mean), burst_seconds };
    let per_minute = |allowed: &Allowed| PerMinute::new(allowed.per_minute).ok();
    let worker = WorkerChange {
        name: "w".into(),
        requests_per_minute: Some(per_minute(&requests)),
        tokens_per_minute: Some(per_minute(&tokens)),
        burst_seconds: BurstSeconds::new(burst_seconds).ok(),
        ..WorkerChange::default()
    };
    let mut config = PoolConfig::new(64, policy(r#"{"share":{"by":"tenant"}}"#));
    config.workers = vec![worker.clone()];
    let most_quota = (4 * sizes.mean()).min(tokens.per_minute);
    let source = |i: usize| {
        let quotas = (i > 0).then_some(most_quota);
        let estimate = rng.one_of(&sizes::Estimate::ALL);
        let source = Source::new(Attribute::Tenant, &format!("t{i}"), sizes).estimating(estimate);
        Source { waiting: 5, quotas, ..source }
    };
    let sources = (0..3).map(source).collect();
    let mut world = World::new(config, sources, seed).shuffled();
    for _ in 0..3 {
        let at = world.rng.range(0..=8 * MINUTE);
        let until = Some(Micros(at + world.rng.range(0..=MINUTE)));
        let pause = WorkerChange { name: "w".into(), pause_until: until, ..Default::default() };
        world.plan(at, Event::Worker(pause));
    }
    let (mut counts, mut taken) = (Timeline::new(), Timeline::new());
    let mut largest = 0;
    while world.now < 10 * MINUTE {
        let step = world.step();
        if let Some(number) = step.ended {
            let (granted, ended) = world.requests[number].quota;
            if ended < granted {
                taken.push((step.at, -i128::from(granted - ended)));
            }
        }
        for number in step.granted {
            let (quota, _) = world.requests[number].quota;
            largest = largest.max(quota);
            counts.push((step.at, 1));
            taken.push((step.at, quota.into()));
        }
    }
    let used = |timeline: &Timeline, allowed: &Allowed, largest: u64, what: &str| {
        let most = u128::try_from(most_in_a_minute(timeline)).expect("grants come first");
        let units = allowed.units(largest);
        let told = format!("seed {seed}: {most} {what} in a minute, {}", allowed.per_minute);
        assert!(most * u128::from(MINUTE) <= units, "{told} a minute, burst {burst_seconds} s");
        most * u128::from(MINUTE) * 1000 / units
    };
    (used(&counts, &requests, 1, "requests"), used(&taken, &tokens, largest, "tokens"))
}
