//! One measurement of `bench fleet`. A process of its own makes it and prints it as a line of JSON.

use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::FleetBenchOptions;
use super::agents::BenchAgentResults;
use super::testbed::BenchDatabase;

/// Database and number of projects of a measurement, written as `sqlite,50`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasurementCase {
    pub(super) place: BenchDatabase,
    pub(super) projects: usize,
}

impl FromStr for MeasurementCase {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (place, projects) = text.split_once(',').context("must be DATABASE,PROJECTS")?;
        let place = match place {
            "sqlite" => BenchDatabase::Sqlite,
            "postgres" => BenchDatabase::Postgres,
            other => bail!("{other:?} is no database: sqlite or postgres"),
        };
        Ok(Self { place, projects: projects.parse()? })
    }
}

/// The results that one process measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct FleetMeasurement {
    pub(super) claims_per_s: f64,
    pub(super) claim_p50_us: f64,
    pub(super) claim_p99_us: f64,
    /// Mean time, in microseconds, of a round in which an agent waited.
    pub(super) round_us: f64,
    pub(super) tasks_per_round: f64,
    pub(super) statements_most: f64,
}

impl From<BenchAgentResults> for FleetMeasurement {
    fn from(worked: BenchAgentResults) -> Self {
        let us = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        Self {
            claims_per_s: worked.claims_per_second(),
            claim_p50_us: us(worked.claim_percentile(50)),
            claim_p99_us: us(worked.claim_percentile(99)),
            round_us: us(worked.round_mean()),
            tasks_per_round: worked.tasks_per_round(),
            statements_most: u32::try_from(worked.statements_most).map_or(f64::MAX, f64::from),
        }
    }
}

impl FleetMeasurement {
    /// Returns the measurement as a line of JSON.
    pub(super) fn line(&self) -> Value {
        json!({
            "claims_per_s": self.claims_per_s,
            "claim_p50_us": self.claim_p50_us,
            "claim_p99_us": self.claim_p99_us,
            "round_us": self.round_us,
            "tasks_per_round": self.tasks_per_round,
            "statements_most": self.statements_most,
        })
    }

    fn read(line: &str) -> Result<Self> {
        let line: Value = serde_json::from_str(line)?;
        let number = |name: &str| line[name].as_f64().with_context(|| format!("{name} is missing"));
        Ok(Self {
            claims_per_s: number("claims_per_s")?,
            claim_p50_us: number("claim_p50_us")?,
            claim_p99_us: number("claim_p99_us")?,
            round_us: number("round_us")?,
            tasks_per_round: number("tasks_per_round")?,
            statements_most: number("statements_most")?,
        })
    }
}

/// Makes a build of this program measure once, and returns the result.
pub(super) fn measure(
    program: &Path,
    case: MeasurementCase,
    options: &FleetBenchOptions,
    server: Option<&str>,
) -> Result<FleetMeasurement> {
    let place = match case.place {
        BenchDatabase::Sqlite => "sqlite",
        BenchDatabase::Postgres => "postgres",
    };
    let mut command = Command::new(program);
    command.args(["fleet", "--measure", &format!("{place},{}", case.projects)]);
    for (name, number) in [("--tasks", options.tasks), ("--agents", options.agents)] {
        command.args([name, &number.to_string()]);
    }
    command.args(["--seconds", &options.seconds.to_string()]);
    if let Some(server) = server {
        command.args(["--server", server]);
    }
    let program = program.display();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "{program} did not measure: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    FleetMeasurement::read(text.trim()).with_context(|| format!("{program} printed {text:?}"))
}
