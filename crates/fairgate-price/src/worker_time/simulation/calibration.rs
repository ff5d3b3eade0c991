//! Compares what `fairgate calibrate` says with the true costs of the engine.

use std::println;
use std::vec::Vec;

use super::super::NearestTokenWeights;
use super::engine::{EnginePrices, H200};
use super::tenants::six_tenants;
use super::{WorkerSimulation, seeds};

/// Returns, for each tenant, by how many percent its requests of these seconds cost more at the present prices than the
/// engine and its host spent on them.
fn errors(simulation: &WorkerSimulation, from: usize, to: usize) -> Vec<f64> {
    let prices = simulation.workers[0].meter.price_set().prices;
    let error = |tenant: usize| {
        let spent = simulation.spent[tenant].iter().take(to).skip(from).sum::<f64>();
        let seconds = from as u64 * 1_000_000..to as u64 * 1_000_000;
        let requests = simulation.requests.iter();
        let own = requests.filter(|request| {
            request.tenant == tenant && request.has_ended && seconds.contains(&request.granted_us)
        });
        let told: u64 = own.map(|request| prices.cost(request.work)).sum();
        100.0 * (told as f64 / (1000.0 * (1.0 + H200.overhead) * spent) - 1.0)
    };
    (0..simulation.tenants.len()).map(error).collect()
}

#[test]
fn a_typical_request_costs_what_is_told_within_the_margin() {
    let (mut inside, mut all) = (0, 0);
    for (seed, slots) in seeds().flat_map(|seed| [8, 16, 32, 64].map(|slots| (seed, slots))) {
        let mut simulation = WorkerSimulation::new(seed, &[(H200, slots)], &six_tenants(slots));
        simulation.run_to(600);
        let meter = &simulation.workers[0].meter;
        for (tenant, error) in errors(&simulation, 60, 600).into_iter().enumerate() {
            let shape = simulation.tenants[tenant].shape;
            let told = meter.price_set().prices.cost(shape) as f64;
            let margin = meter.cost_margin(shape).unwrap() as f64;
            let percent = 100.0 * margin / told;
            println!(
                "seed {seed}, {slots} slots, {shape:?}: {told} µs ± {percent:.2} %, {error:.2} % off"
            );
            assert!((0.2..3.0).contains(&percent), "{percent}");
            assert!(error.abs() < percent + 1.0, "{error} ± {percent}");
            inside += u32::from(error.abs() <= percent);
            all += 1;
        }
    }
    println!("{inside} of {all} are inside the margin");
    assert!(10 * inside >= 8 * all, "{inside} of {all}");
}

#[test]
fn windows_are_shown_beside_what_was_predicted() {
    let mut simulation = WorkerSimulation::new(1, &[(H200, 16)], &six_tenants(16));
    assert_eq!(simulation.workers[0].meter.cost_margin(simulation.tenants[0].shape), None);
    simulation.run_to(120);
    let meter = &simulation.workers[0].meter;
    let windows: Vec<_> = meter.recent_windows().collect();
    assert_eq!(windows.len(), 128);
    let near = windows.iter().filter(|window| {
        let (measured, predicted) = (f64::from(window.measured_us), f64::from(window.predicted_us));
        (measured / predicted - 1.0).abs() < 0.1
    });
    let near = near.count();
    println!("{near} of {} windows are within a tenth", windows.len());
    assert!(near >= 120, "{near}");
    assert!(meter.memory_bytes() <= 256 << 10, "{}", meter.memory_bytes());
}

/// An engine twice as slow, from one second to the next, is seen in the windows at once.
#[test]
fn the_windows_show_a_changed_engine() {
    let mut simulation = WorkerSimulation::new(1, &[(H200, 16)], &six_tenants(16));
    simulation.run_to(120);
    let slow = EnginePrices { step: 2.0 * H200.step, input: 2.0 * H200.input, ..H200 };
    simulation.workers[0].engine.prices = slow;
    simulation.run_to(126);
    let last: Vec<_> = simulation.workers[0].meter.recent_windows().collect();
    let longest =
        last.iter().map(|window| f64::from(window.measured_us) / f64::from(window.predicted_us));
    assert!(longest.fold(0.0, f64::max) > 1.4);
}

#[test]
fn the_nearest_weights_depend_on_the_batch_and_are_never_right() {
    let mut outputs = Vec::new();
    for slots in [16, 64] {
        let mut simulation = WorkerSimulation::new(1, &[(H200, slots)], &six_tenants(slots));
        simulation.run_to(120);
        let prices = simulation.workers[0].meter.price_set().prices;
        let requests: Vec<_> = simulation
            .tenants
            .iter()
            .map(|tenant| (tenant.shape, prices.cost(tenant.shape)))
            .collect();
        let weights = NearestTokenWeights::of(&requests).unwrap();
        println!("{slots} slots: {weights:?}");
        assert!(weights.least_ppm < 950_000 && weights.most_ppm > 1_050_000, "{weights:?}");
        outputs.push(weights.output_milli);
    }
    assert!(outputs[0] > 3 * outputs[1] / 2, "{outputs:?}");
}
