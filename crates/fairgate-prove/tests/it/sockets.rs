//! Every scenario, over real sockets.

use fairgate_prove::observe::Lines;
use fairgate_prove::render::{Style, text};
use fairgate_prove::scenario::{Pace, Scenario, scenarios};
use fairgate_prove::{RunOptions, run};

fn prove(scenario: &Scenario) {
    let mut lines = Lines(Vec::new());
    let report = run(scenario, &RunOptions::default(), &mut lines).unwrap();
    let told = String::from_utf8(lines.0).unwrap();
    let shown = text(&report, Style { width: 120, colour: false });
    assert!(report.passed(), "{told}{shown}");
    let mut phases = vec!["floods", "enter", "nobody asks any more", "passed"];
    if scenario.outage.is_some() {
        phases.splice(2..2, ["dies", "is back"]);
    }
    let mut rest = told.as_str();
    for phase in phases {
        let at = rest.find(phase).unwrap_or_else(|| panic!("{phase:?} comes in its turn: {told}"));
        rest = &rest[at + phase.len()..];
    }
    eprintln!("{told}{shown}");
}

/// One after the other: each of them wants the machine for itself. `FAIRGATE_SCENARIO` names the only one to run.
#[test]
fn every_scenario_passes() {
    let only = std::env::var("FAIRGATE_SCENARIO").ok();
    let wanted = |scenario: &Scenario| only.as_ref().is_none_or(|only| only == scenario.name);
    let wanted: Vec<Scenario> = scenarios(Pace::Quick).into_iter().filter(wanted).collect();
    assert!(!wanted.is_empty(), "there is no scenario {only:?}");
    wanted.iter().for_each(prove);
}
