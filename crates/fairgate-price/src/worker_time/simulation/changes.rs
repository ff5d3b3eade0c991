//! Engines, slots and loads that change.

use std::println;
use std::vec::Vec;

use super::super::RequestWork;
use super::engine::{EnginePrices, H200};
use super::tenants::{SimulatedTenant, two_tenants};
use super::{WorkerSimulation, seeds};

#[test]
fn an_engine_whose_price_doubles_is_learned_anew() {
    for seed in seeds() {
        for (name, step, input) in [("step", 2.0, 1.0), ("input", 1.0, 2.0), ("both", 2.0, 2.0)] {
            let mut simulation = WorkerSimulation::new(seed, &[(H200, 16)], &two_tenants(16));
            simulation.run_to(100);
            let prices = &mut simulation.workers[0].engine.prices;
            prices.step *= step;
            prices.input *= input;
            simulation.run_to(240);
            let (first, window) =
                (simulation.worst_error(100, 110), simulation.worst_window(140, 240, 20));
            let changes = simulation.workers[0].meter.status().changes;
            println!(
                "seed {seed}, {name}: first 10 s {first:.2} %, from second 40 on {window:.2} %, {changes} changes"
            );
            assert!(window.abs() <= 5.0, "{window}");
        }
    }
}

#[test]
fn an_engine_that_does_not_change_is_not_learned_anew() {
    let mut simulation = WorkerSimulation::new(3, &[(H200, 16)], &two_tenants(16));
    simulation.run_to(40);
    let before = simulation.workers[0].meter.status().changes;
    simulation.run_to(600);
    assert_eq!(simulation.workers[0].meter.status().changes, before);
}

#[test]
fn new_slots_are_priced_at_once() {
    for seed in seeds() {
        let mut simulation = WorkerSimulation::new(seed, &[(H200, 16)], &two_tenants(64));
        simulation.run_to(100);
        simulation.set_slots(0, 64);
        simulation.run_to(200);
        simulation.set_slots(0, 16);
        simulation.run_to(300);
        let (up, down) =
            (simulation.worst_window(120, 200, 20), simulation.worst_window(220, 300, 20));
        println!("seed {seed}: 16 to 64 slots {up:.2} %, 64 to 16 {down:.2} %");
        assert!(up.abs() <= 5.0 && down.abs() <= 5.0, "{up} {down}");
    }
}

#[test]
fn light_load_teaches_what_full_load_needs() {
    for seed in seeds() {
        let mut tenants = two_tenants(64);
        tenants[0].clients = 1;
        tenants[1].clients = 2;
        let mut simulation = WorkerSimulation::new(seed, &[(H200, 64)], &tenants);
        simulation.run_to(120);
        simulation.set_clients(0, 68);
        simulation.set_clients(1, 68);
        simulation.run_to(200);
        let (ten, later) =
            (simulation.worst_error(130, 150), simulation.worst_window(130, 200, 20));
        println!("seed {seed}: seconds 10 to 30 {ten:.2} %, 20 s windows {later:.2} %");
        assert!(ten.abs() <= 6.0 && later.abs() <= 6.0, "{ten} {later}");
    }
}

#[test]
fn first_prices_come_before_any_request_has_ended() {
    let slow = EnginePrices {
        step: 10.0 * H200.step,
        output: 10.0 * H200.output,
        context: 10.0 * H200.context,
        prompt: 10.0 * H200.prompt,
        input: 30.0 * H200.input,
        position: 10.0 * H200.position,
        ..H200
    };
    let tenants = [(2000, 2000), (100, 3000)]
        .map(|(input, output)| SimulatedTenant::new(input, 0, output, 20));
    let mut simulation = WorkerSimulation::new(1, &[(slow, 16)], &tenants);
    let shapes: Vec<RequestWork> = tenants.iter().map(|tenant| tenant.shape).collect();
    let price = |simulation: &WorkerSimulation, shape: usize| {
        let prices = simulation.workers[0].meter.price_set().prices;
        prices.cost(shapes[shape]) as f64 / 1000.0 / slow.time_of(&shapes[shape..=shape])
    };
    assert!(price(&simulation, 0) < 0.2 && price(&simulation, 1) < 0.2);
    simulation.run_to(25);
    assert_eq!(simulation.ended, [0, 0]);
    for shape in [0, 1] {
        let price = price(&simulation, shape);
        println!("price ÷ truth {price:.2}");
        assert!((0.75..1.33).contains(&price), "{price}");
    }
}
