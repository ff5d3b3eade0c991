//! Answers that do not stream, chunks of several tokens, stalls, and tenants that make windows inexact.

use std::println;
use std::vec::Vec;

use fairgate_random::SeededRng;

use super::super::meter::LearningState;
use super::super::{GrantedRequest, RequestWork, WorkSource, WorkerPrices, WorkerTimeMeter};
use super::engine::{EnginePrices, H200};
use super::tenants::{SimulatedTenant, TenantConduct, two_tenants};
use super::{WorkerSimulation, seeds};

fn judge(name: &str, engine: EnginePrices, slots: u64, change: impl Fn(&mut [SimulatedTenant])) {
    for seed in seeds() {
        let mut tenants = two_tenants(slots);
        change(&mut tenants);
        let mut simulation = WorkerSimulation::new(seed, &[(engine, slots)], &tenants);
        simulation.run_to(240);
        let error = simulation.worst_error(60, 240);
        println!("seed {seed}, {name}, {slots} slots: {error:.2} %");
        assert!(error.abs() <= 5.0, "{name}: {error}");
    }
}

#[test]
fn one_tenant_need_not_stream() {
    for slots in [16, 64] {
        judge("prompt-heavy silent", H200, slots, |tenants| tenants[0].streams_every = 0);
        judge("decode-heavy silent", H200, slots, |tenants| tenants[1].streams_every = 0);
    }
    judge("one stream in four", H200, 64, |tenants| {
        tenants.iter_mut().for_each(|tenant| tenant.streams_every = 4);
    });
}

#[test]
fn chunks_may_have_several_tokens() {
    for slots in [16, 64] {
        judge("chunks of the prompt-heavy", H200, slots, |tenants| tenants[0].chunk_tokens = 4);
        judge("chunks of the decode-heavy", H200, slots, |tenants| tenants[1].chunk_tokens = 4);
        judge("chunks of all", H200, slots, |tenants| {
            tenants.iter_mut().for_each(|tenant| tenant.chunk_tokens = 4);
        });
    }
}

#[test]
fn an_engine_may_stall() {
    for slots in [16, 64] {
        judge("stalls", EnginePrices { stalls: true, ..H200 }, slots, |_| {});
    }
}

#[test]
fn nothing_is_learned_if_nothing_streams_and_the_meter_says_so() {
    let mut tenants = two_tenants(16);
    tenants.iter_mut().for_each(|tenant| tenant.streams_every = 0);
    let mut simulation = WorkerSimulation::new(1, &[(H200, 16)], &tenants);
    simulation.run_to(60);
    let meter = &simulation.workers[0].meter;
    assert_eq!((meter.price_set().number, meter.status().windows), (0, 0));
    assert_eq!(meter.status().learning, LearningState::NothingStreams);
}

#[test]
fn no_conduct_of_one_tenant_takes_from_the_others() {
    for seed in seeds() {
        for conduct in [
            TenantConduct::ReadsSlowly { gap_us: 30_000 },
            TenantConduct::LeavesAfterFirstChunk,
            TenantConduct::StopsHalfWay,
        ] {
            for slots in [16, 64] {
                let mut tenants = two_tenants(slots);
                let third = SimulatedTenant {
                    conduct,
                    ..SimulatedTenant::new(1000, 0, 200, slots as usize + 4)
                };
                tenants.push(third);
                let mut simulation = WorkerSimulation::new(seed, &[(H200, slots)], &tenants);
                simulation.run_to(240);
                let shares: Vec<f64> = (0..3)
                    .map(|tenant| 100.0 * (3.0 * simulation.share(tenant, 60, 240) - 1.0))
                    .collect();
                println!("seed {seed}, {conduct:?}, {slots} slots: {shares:.2?} %");
                let between =
                    100.0 * (simulation.share(0, 60, 240) / simulation.share(1, 60, 240) - 1.0);
                assert!(shares[0] >= -5.0 && shares[1] >= -5.0, "{shares:?}");
                assert!(between.abs() <= 5.0, "{between}");
            }
        }
    }
}

/// Sends arbitrary events: unknown ids, two ends, absurd tokens, a clock that stops or jumps.
fn send_arbitrary_events(seed: u64) -> WorkerTimeMeter {
    let mut rng = SeededRng::new(seed);
    let mut meter = WorkerTimeMeter::new(rng.below(70) as u32);
    let (mut now_us, mut ids) = (0_u64, Vec::new());
    let absurd = |rng: &mut SeededRng| match rng.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.next_u64(),
        _ => rng.below(5000),
    };
    for _ in 0..20_000 {
        now_us = match rng.below(50) {
            0 => now_us.saturating_add(rng.below(20_000_000)),
            1 => rng.below(now_us.max(1)),
            2..20 => now_us,
            _ => now_us.saturating_add(rng.below(9000)),
        };
        let [input, cached, output, choices] = core::array::from_fn(|_| absurd(&mut rng));
        let work = RequestWork { input, cached, output, choices: choices % 4 };
        let expected = if rng.percent(1) { RequestWork { choices, ..work } } else { work };
        match rng.below(40) {
            0..3 => {
                let source = WorkSource(rng.below(400));
                ids.extend(meter.granted(
                    now_us,
                    GrantedRequest { source, expected, streams: rng.percent(80) },
                ));
            }
            3..5 if !ids.is_empty() => {
                let place = rng.index(ids.len());
                let id = if rng.percent(90) { ids.swap_remove(place) } else { ids[place] };
                meter.ended(now_us, id, rng.percent(80).then_some(work));
            }
            5 if rng.percent(2) => meter.set_slots(now_us, rng.below(u64::from(u32::MAX)) as u32),
            6 if rng.percent(5) => meter.ended_untracked(now_us),
            _ if !ids.is_empty() => meter.chunk(now_us, ids[rng.index(ids.len())]),
            _ => {}
        }
    }
    meter
}

fn all_of(prices: WorkerPrices) -> [u64; 6] {
    let WorkerPrices { request, input, input_input, cached, output, context_output } = prices;
    [request, input, input_input, cached, output, context_output]
}

#[test]
fn arbitrary_events_leave_prices_within_their_bounds() {
    for seed in 0..20 * seeds().count() as u64 {
        let meter = send_arbitrary_events(seed);
        let (prices, most) = (meter.price_set().prices, meter.greatest_prices);
        let bounds = all_of(most);
        for (price, most) in all_of(prices).into_iter().zip(bounds) {
            assert!(price <= most, "seed {seed}: {prices:?} beyond {most:?}");
        }
        // The bounds are finite, because a fit finds steps of at most 100 s and bounds all prices by multiples of a
        // step.
        assert!(bounds.iter().all(|most| *most <= 32_000_000_000_000_000), "seed {seed}: {most:?}");
        assert!(meter.memory_bytes() <= 256 * 1024, "{}", meter.memory_bytes());
    }
}

#[test]
fn a_meter_stays_within_its_memory() {
    let mut meter = WorkerTimeMeter::new(4096);
    let expected = RequestWork { input: 1000, cached: 0, output: 100, choices: 1 };
    let ids: Vec<_> = (0..4096)
        .map(|i| {
            meter.granted(i, GrantedRequest { source: WorkSource(i), expected, streams: true })
        })
        .collect();
    assert_eq!(ids.iter().flatten().count(), 1024);
    for round in 0..4000_u64 {
        for id in ids.iter().flatten() {
            meter.chunk(10_000 + 10_000 * round, *id);
        }
    }
    assert!(meter.memory_bytes() <= 256 * 1024, "{}", meter.memory_bytes());
    ids.iter().for_each(|id| match id {
        Some(id) => meter.ended(60_000_000, *id, None),
        None => meter.ended_untracked(60_000_000),
    });
    assert_eq!(meter.status().windows, 0, "nothing is learned from what was not seen whole");
}
