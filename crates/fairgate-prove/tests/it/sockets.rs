//! Every scenario, over real sockets.

use fairgate_prove::observe::{Lines, Observer};
use fairgate_prove::render::{Style, text};
use fairgate_prove::scenario::{Pace, Scenario, scenarios};
use fairgate_prove::{RunOptions, run};

fn prove(scenario: &Scenario, observer: &mut dyn Observer) {
    let report = run(scenario, &RunOptions::default(), observer).unwrap();
    let shown = text(&report, Style { width: 120, colour: false });
    assert!(report.passed(), "{shown}");
    eprintln!("{shown}");
}

/// One after the other: each of them wants the machine for itself.
#[test]
fn every_scenario_passes() {
    let only = std::env::var("FAIRGATE_SCENARIO").ok();
    let wanted = |scenario: &Scenario| only.as_ref().is_none_or(|only| only == scenario.name);
    for scenario in scenarios(Pace::Quick).into_iter().filter(wanted) {
        prove(&scenario, &mut Lines(std::io::stderr()));
    }
}
