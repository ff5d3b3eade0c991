//! Runs every scenario over real sockets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fairgate_prove::observe::LineObserver;
use fairgate_prove::render::{TextStyle, text};
use fairgate_prove::scenario::{ExperimentLength, Scenario, scenarios};
use fairgate_prove::{RunOptions, run};

/// Number of times that two runs are compared again if they differ too much. Other load on the
/// machine may slow one of them down, but an attack that works fails every comparison.
const COMPARISONS: usize = 3;

/// Number of scenarios that run at the same time.
const RUNS_AT_ONCE: usize = 2;

/// Runs a scenario once. The error has the report of a run that failed.
fn prove(scenario: &Scenario) -> Result<(), FailedRun> {
    let mut lines = LineObserver(Vec::new());
    let report = run(scenario, &RunOptions::default(), &mut lines).unwrap();
    let told = String::from_utf8(lines.0).unwrap();
    let shown = text(&report, TextStyle { width: 120, colour: false });
    if report.passed() {
        is_told(scenario, &told);
        eprintln!("{told}{shown}");
        return Ok(());
    }
    let mut failed = report.bars.iter().filter(|bar| !bar.passed);
    let is_harm = failed.all(|bar| bar.name.starts_with("no harm"));
    Err(FailedRun { is_harm, report: format!("{told}{shown}") })
}

struct FailedRun {
    /// True if only bars that compare two runs failed.
    is_harm: bool,
    report: String,
}

/// Runs a scenario alone, and panics if it fails.
fn prove_alone(scenario: &Scenario) {
    let attempts = if scenario.harm.is_some() { COMPARISONS } else { 1 };
    for attempt in 1..=attempts {
        let Err(failed) = prove(scenario) else { return };
        assert!(failed.is_harm && attempt < attempts, "{}", failed.report);
        eprintln!("{}once more", failed.report);
    }
}

fn is_told(scenario: &Scenario, told: &str) {
    let mut phases = vec!["floods", "enter", "nobody asks any more", "passed"];
    if scenario.fleet.is_some() {
        phases = vec!["passed"];
    }
    if scenario.outage.is_some() {
        phases.splice(2..2, ["dies", "is back"]);
    }
    let mut rest = told;
    for phase in phases {
        let at = rest.find(phase).unwrap_or_else(|| panic!("{phase:?} comes in its turn: {told}"));
        rest = &rest[at + phase.len()..];
    }
}

/// Scenarios run two at a time, because each keeps less than one core busy. A scenario that fails
/// then is run again alone. `FAIRGATE_SCENARIO` names the only scenario to run.
#[test]
fn every_scenario_passes() {
    let only = std::env::var("FAIRGATE_SCENARIO").ok();
    let wanted = |scenario: &Scenario| only.as_ref().is_none_or(|only| only == scenario.name);
    let wanted: Vec<Scenario> =
        scenarios(ExperimentLength::Quick).into_iter().filter(wanted).collect();
    assert!(!wanted.is_empty(), "there is no scenario {only:?}");
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(|| {
                while let Some(scenario) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(run) = prove(scenario) {
                        eprintln!("{}\nagain, alone", run.report);
                        failed.lock().unwrap().push(scenario);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap().into_iter().for_each(prove_alone);
}
