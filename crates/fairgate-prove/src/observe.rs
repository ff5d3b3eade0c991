//! Observers of a running experiment: a silent one, one that writes lines, and one that shows a
//! progress bar.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::ProveReport;
use crate::scenario::{JoinTime, Scenario};

/// Receives the progress of an experiment.
pub trait ExperimentObserver {
    /// Called when the experiment enters another phase.
    fn phase(&mut self, scenario: &Scenario, phase: ExperimentPhase, sample: &ProgressSample);

    /// Called with the current counters, several times a second.
    fn sampled(&mut self, scenario: &Scenario, sample: &ProgressSample);

    /// Called once with the finished report.
    fn judged(&mut self, report: &ProveReport);
}

/// One phase of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentPhase {
    /// The first tenant floods the pool alone.
    Alone,
    /// The other tenants have joined.
    Overlap,
    /// A worker has died.
    WorkerDied,
    /// The worker is back.
    WorkerBack,
    /// No client sends any more; queued requests and those in flight are finished.
    Finish,
}

/// Counters of a running experiment.
#[derive(Clone, Debug, Default)]
pub struct ProgressSample {
    /// Time since the first request.
    pub elapsed: Duration,
    /// Progress of the current phase, in thousandths of its planned length.
    pub done_milli: u64,
    /// Requests in flight, over all pools.
    pub in_flight: u64,
    /// Requests that are queued, over all pools.
    pub waiting: u64,
    /// Number of answers received so far, by tenant.
    pub ended: Vec<u64>,
}

/// Observer that prints nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct SilentObserver;

impl ExperimentObserver for SilentObserver {
    fn phase(&mut self, _: &Scenario, _: ExperimentPhase, _: &ProgressSample) {}
    fn sampled(&mut self, _: &Scenario, _: &ProgressSample) {}
    fn judged(&mut self, _: &ProveReport) {}
}

/// Observer that writes one line for each phase, for output that is not a terminal.
#[derive(Debug)]
pub struct LineObserver<W>(pub W);

impl<W: Write> ExperimentObserver for LineObserver<W> {
    fn phase(&mut self, scenario: &Scenario, phase: ExperimentPhase, sample: &ProgressSample) {
        // The experiment continues even if its output is closed.
        let _ = writeln!(
            self.0,
            "{}: {:.2} s: {}",
            scenario.name,
            sample.elapsed.as_secs_f64(),
            describe_phase(scenario, phase, sample)
        );
    }

    fn sampled(&mut self, _: &Scenario, _: &ProgressSample) {}

    fn judged(&mut self, report: &ProveReport) {
        let verdict = if report.passed() { "passed" } else { "FAILED" };
        let _ = writeln!(self.0, "{}: {verdict}", report.scenario);
    }
}

fn describe_phase(scenario: &Scenario, phase: ExperimentPhase, sample: &ProgressSample) -> String {
    let who = |joins| {
        let names = scenario.tenants.iter().filter(|tenant| tenant.joins == joins);
        names.map(|tenant| tenant.name).collect::<Vec<_>>().join(" and ")
    };
    let worker = scenario.outage.map_or("no worker", |outage| outage.worker);
    let ProgressSample { in_flight, waiting, .. } = sample;
    match phase {
        ExperimentPhase::Alone => format!("{} floods", who(JoinTime::First)),
        ExperimentPhase::Overlap => {
            format!(
                "{in_flight} in flight, {waiting} waiting; enter {}",
                who(JoinTime::AtSaturation)
            )
        }
        ExperimentPhase::WorkerDied => {
            format!("{worker} dies with {in_flight} in flight, {waiting} waiting")
        }
        ExperimentPhase::WorkerBack => {
            format!("{worker} is back; {in_flight} in flight, {waiting} waiting")
        }
        ExperimentPhase::Finish => {
            format!("nobody asks any more; {in_flight} in flight, {waiting} waiting")
        }
    }
}

/// Observer that shows a moving progress bar on standard error, for terminals.
#[derive(Debug)]
pub struct ProgressBarObserver {
    bar: ProgressBar,
    phase: String,
}

impl ProgressBarObserver {
    /// Creates an observer with one progress bar, which is used for all experiments in turn.
    pub fn stderr() -> Self {
        let style = ProgressStyle::with_template("{prefix:23} {bar:16} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(1000).with_style(style);
        Self { bar, phase: String::new() }
    }
}

impl Drop for ProgressBarObserver {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl ExperimentObserver for ProgressBarObserver {
    fn phase(&mut self, scenario: &Scenario, phase: ExperimentPhase, sample: &ProgressSample) {
        self.bar.set_prefix(scenario.name);
        self.phase = describe_phase(scenario, phase, sample);
        self.sampled(scenario, sample);
    }

    fn sampled(&mut self, scenario: &Scenario, sample: &ProgressSample) {
        let ended = scenario.tenants.iter().zip(&sample.ended);
        let ended: Vec<String> = ended.map(|(tenant, n)| format!("{} {n}", tenant.name)).collect();
        let ProgressSample { in_flight, waiting, .. } = sample;
        let seconds = sample.elapsed.as_secs_f64();
        self.bar.set_position(sample.done_milli);
        self.bar.set_message(format!(
            "{seconds:.1} s  {}  {in_flight} in flight, {waiting} waiting  {}",
            ended.join(", "),
            self.phase,
        ));
    }

    fn judged(&mut self, _: &ProveReport) {
        self.bar.set_position(0);
        self.bar.set_message("");
    }
}

/// Returns the observer for standard error: a progress bar on a terminal, else lines.
pub fn for_stderr(is_terminal: bool) -> Box<dyn ExperimentObserver> {
    match is_terminal {
        true => Box::new(ProgressBarObserver::stderr()),
        false => Box::new(LineObserver(io::stderr())),
    }
}
