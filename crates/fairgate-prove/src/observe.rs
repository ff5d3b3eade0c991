//! Who watches while an experiment runs.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::Report;
use crate::scenario::{Joins, Scenario};

/// Is told how an experiment goes on.
pub trait Observer {
    /// It has got to another part of it.
    fn phase(&mut self, scenario: &Scenario, phase: Phase, sample: &Sample);

    /// How it stands, some times a second.
    fn sampled(&mut self, scenario: &Scenario, sample: &Sample);

    /// It was judged.
    fn judged(&mut self, report: &Report);
}

/// A part of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first tenant floods.
    Alone,
    /// The others are there too.
    Overlap,
    /// A worker has died.
    WorkerDied,
    /// It is back.
    WorkerBack,
    /// Nobody asks any more; what waits and what is in flight is finished.
    Finish,
}

/// How an experiment stands.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Since the first request.
    pub elapsed: Duration,
    /// How much of it is done, in thousandths.
    pub done_milli: u64,
    /// How many requests are in flight.
    pub in_flight: u64,
    /// How many wait.
    pub waiting: u64,
    /// Answers so far, by tenant.
    pub ended: Vec<u64>,
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observer for Nobody {
    fn phase(&mut self, _: &Scenario, _: Phase, _: &Sample) {}
    fn sampled(&mut self, _: &Scenario, _: &Sample) {}
    fn judged(&mut self, _: &Report) {}
}

/// A line for each phase, for where there is no terminal.
#[derive(Debug)]
pub struct Lines<W>(pub W);

impl<W: Write> Observer for Lines<W> {
    fn phase(&mut self, scenario: &Scenario, phase: Phase, sample: &Sample) {
        // Where nobody listens any more, the experiment still goes on.
        let _ = writeln!(
            self.0,
            "{}: {:.2} s: {}",
            scenario.name,
            sample.elapsed.as_secs_f64(),
            told(scenario, phase, sample)
        );
    }

    fn sampled(&mut self, _: &Scenario, _: &Sample) {}

    fn judged(&mut self, report: &Report) {
        let verdict = if report.passed() { "passed" } else { "FAILED" };
        let _ = writeln!(self.0, "{}: {verdict}", report.scenario);
    }
}

fn told(scenario: &Scenario, phase: Phase, sample: &Sample) -> String {
    let who = |joins| {
        let names = scenario.tenants.iter().filter(|tenant| tenant.joins == joins);
        names.map(|tenant| tenant.name).collect::<Vec<_>>().join(" and ")
    };
    let worker = scenario.outage.map_or("no worker", |outage| outage.worker);
    let Sample { in_flight, waiting, .. } = sample;
    match phase {
        Phase::Alone => format!("{} floods", who(Joins::First)),
        Phase::Overlap => {
            format!("{in_flight} in flight, {waiting} waiting; enter {}", who(Joins::AtSaturation))
        }
        Phase::WorkerDied => format!("{worker} dies with {in_flight} in flight, {waiting} waiting"),
        Phase::WorkerBack => format!("{worker} is back; {in_flight} in flight, {waiting} waiting"),
        Phase::Finish => format!("nobody asks any more; {in_flight} in flight, {waiting} waiting"),
    }
}

/// A bar on standard error that moves, for terminals.
#[derive(Debug)]
pub struct LiveBar {
    bar: ProgressBar,
    phase: String,
}

impl LiveBar {
    /// A bar for one experiment after the other.
    pub fn stderr() -> Self {
        let style = ProgressStyle::with_template("{prefix:23} {bar:16} {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(1000).with_style(style);
        Self { bar, phase: String::new() }
    }
}

impl Drop for LiveBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for LiveBar {
    fn phase(&mut self, scenario: &Scenario, phase: Phase, sample: &Sample) {
        self.bar.set_prefix(scenario.name);
        self.phase = told(scenario, phase, sample);
        self.sampled(scenario, sample);
    }

    fn sampled(&mut self, scenario: &Scenario, sample: &Sample) {
        let ended = scenario.tenants.iter().zip(&sample.ended);
        let ended: Vec<String> = ended.map(|(tenant, n)| format!("{} {n}", tenant.name)).collect();
        let Sample { in_flight, waiting, .. } = sample;
        let seconds = sample.elapsed.as_secs_f64();
        self.bar.set_position(sample.done_milli);
        self.bar.set_message(format!(
            "{seconds:.1} s  {}  {in_flight} in flight, {waiting} waiting  {}",
            ended.join(", "),
            self.phase,
        ));
    }

    fn judged(&mut self, _: &Report) {
        self.bar.set_position(0);
        self.bar.set_message("");
    }
}

/// The observer for standard error: a bar that moves where it is a terminal, lines where it is not.
pub fn for_stderr(is_terminal: bool) -> Box<dyn Observer> {
    match is_terminal {
        true => Box::new(LiveBar::stderr()),
        false => Box::new(Lines(io::stderr())),
    }
}
