//! Steady load on one engine.

use std::println;
use std::vec::Vec;

use super::engine::H200;
use super::tenants::{six_tenants, two_tenants};
use super::{WorkerSimulation, seeds};

/// Start ratios that are four times too high or too low.
const OFF: [f64; 7] = [1.0, 4.0, 0.25, 4.0, 0.25, 4.0, 0.25];
const OFF_OTHERWISE: [f64; 7] = [1.0, 0.25, 4.0, 0.25, 4.0, 0.25, 4.0];

fn judge_two(seed: u64, slots: u64, weights: [u64; 2], ratios: [f64; 7]) {
    let mut tenants = two_tenants(slots);
    tenants[0].weight = weights[0];
    tenants[1].weight = weights[1];
    let mut simulation =
        WorkerSimulation::with_start_ratios(seed, &[(H200, slots)], &tenants, ratios);
    simulation.run_to(300);
    let (all, window) = (simulation.worst_error(60, 300), simulation.worst_window(40, 300, 20));
    println!(
        "seed {seed}, {slots} slots, {weights:?}, {ratios:?}: {all:.2} %, 20 s windows {window:.2} %"
    );
    assert!(all.abs() <= 2.0, "{all}");
    assert!(window.abs() <= 5.0, "{window}");
}

#[test]
fn a_prompt_heavy_and_a_decode_heavy_tenant_get_their_shares() {
    for seed in seeds() {
        for slots in [8, 16, 32, 64] {
            judge_two(seed, slots, [100, 100], [1.0; 7]);
            judge_two(seed, slots, [100, 300], [1.0; 7]);
        }
    }
}

#[test]
fn start_ratios_four_times_off_do_not_matter() {
    for seed in seeds() {
        for slots in [8, 16, 32, 64] {
            for ratios in [OFF, OFF_OTHERWISE] {
                judge_two(seed, slots, [100, 100], ratios);
                judge_two(seed, slots, [100, 300], ratios);
            }
        }
    }
}

#[test]
fn six_shapes_get_their_shares_and_their_typical_prices_are_right() {
    for (seed, slots) in seeds().flat_map(|seed| [(seed, 16), (seed, 64)]) {
        let mut simulation = WorkerSimulation::new(seed, &[(H200, slots)], &six_tenants(slots));
        simulation.run_to(60);
        simulation.ended.fill(0);
        simulation.run_to(300);
        let error = simulation.worst_error(60, 300);
        println!("seed {seed}, {slots} slots: {error:.2} %");
        assert!(error.abs() <= 5.0, "{error}");
        let meter = &simulation.workers[0].meter;
        let prices = meter.price_set().prices;
        // A gateway measures the time of the host too.
        let truth = |tenant: usize| {
            let spent: f64 = simulation.spent[tenant].iter().take(300).skip(60).sum();
            1000.0 * (1.0 + H200.overhead) * spent / simulation.ended[tenant] as f64
        };
        assert_eq!(meter.typical_requests().count(), 6);
        for (source, typical) in meter.typical_requests() {
            let shape = simulation.tenants[source.0 as usize].shape;
            let error = 100.0 * (prices.cost(shape) as f64 / truth(source.0 as usize) - 1.0);
            println!("  {shape:?}: {} µs, {error:.2} %, typical {typical:?}", prices.cost(shape));
            assert!(error.abs() <= 5.0, "{error}");
            assert!(typical.output.abs_diff(shape.output) * 20 <= shape.output, "{typical:?}");
        }
    }
}

#[test]
fn prices_are_steady_in_steady_load() {
    for (seed, interval_s) in seeds().flat_map(|seed| [(seed, 1), (seed, 5), (seed, 30)]) {
        let mut simulation = WorkerSimulation::new(seed, &[(H200, 16)], &two_tenants(16));
        simulation.workers[0].meter.set_price_interval(interval_s * 1_000_000);
        simulation.run_to(60);
        let mut outputs: Vec<f64> = Vec::new();
        for second in 61..=240 {
            simulation.run_to(second);
            outputs.push(simulation.workers[0].meter.price_set().prices.output as f64);
        }
        let mean = outputs.iter().sum::<f64>() / outputs.len() as f64;
        let variance = outputs.iter().map(|output| (output / mean - 1.0).powi(2)).sum::<f64>();
        let deviation = 100.0 * (variance / outputs.len() as f64).sqrt();
        println!("seed {seed}, every {interval_s} s: {mean:.0} ps ± {deviation:.2} %");
        assert!(deviation < 1.0, "{deviation}");
    }
}
