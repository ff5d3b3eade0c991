//! `cargo xtask bench fleet`: agents that claim and complete tasks as fast as they can, on SQLite
//! and on PostgreSQL.
//!
//! The fleet is the production code with its loop of rounds. The agents are async tasks in one
//! process that call the fleet directly, so that the measurement is of the fleet and its database
//! without HTTP. The fleet reports the time and the number of database statements of each round.
//!
//! Each measurement is a process of its own (`--measure`), so the measurements of another build can
//! be made between those of this one (`--before`). All of them are repeated in turns, and medians
//! are compared. Commits of PostgreSQL wait for the disk. The same run measures the cost of such
//! commits ([`synced_commits`]).

mod agents;
mod bars;
mod measurement;
mod synced_commits;
mod testbed;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use fairgate_testkit::postgres_server::PostgresServer;

use crate::machine;
use crate::table::columns;
use bars::FleetBar;
use measurement::{FleetMeasurement, MeasurementCase};
use testbed::{BenchDatabase, FleetTestbed};

/// Number of projects in the small fleet, with which the large fleet is compared.
const FEW_PROJECTS: usize = 50;

/// Options of `bench fleet`.
#[derive(Args)]
pub(crate) struct FleetBenchOptions {
    /// Number of projects in the large fleet; the small fleet has 50.
    #[arg(long, default_value_t = 500)]
    projects: usize,
    /// Number of tasks that are ready when the agents start.
    #[arg(long, default_value_t = 20_000)]
    tasks: usize,
    /// Number of agents that claim tasks at the same time.
    #[arg(long, default_value_t = 200)]
    agents: usize,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of times that each measurement is made; medians are compared.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Program `fairgate-bench` of another build, which is measured in turns with this one.
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Measure on SQLite only, without PostgreSQL.
    #[arg(long)]
    no_postgres: bool,
    /// Measure on PostgreSQL only, without SQLite.
    #[arg(long, conflicts_with = "no_postgres")]
    no_sqlite: bool,
    /// Succeed even if a bar fails; the tables still show the failure.
    #[arg(long)]
    no_bars: bool,
    /// Print the tables as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
    /// Make one measurement and print it as a line of JSON.
    #[arg(long, hide = true)]
    measure: Option<MeasurementCase>,
    /// URL of the server for a measurement on PostgreSQL.
    #[arg(long, hide = true)]
    server: Option<String>,
}

/// Measurements of one build on one database with one number of projects.
struct FleetRun {
    /// True if another build was measured.
    is_before: bool,
    place: BenchDatabase,
    projects: usize,
    measured: Vec<FleetMeasurement>,
}

impl FleetRun {
    /// Returns the median of a number over all repetitions; 0 if there are no repetitions.
    fn median(&self, number: impl Fn(&FleetMeasurement) -> f64) -> f64 {
        median(self.measured.iter().map(number).collect())
    }

    fn round_us(&self) -> f64 {
        self.median(|it| it.round_us)
    }

    fn claims_per_s(&self) -> f64 {
        self.median(|it| it.claims_per_s)
    }
}

/// Returns the median; for an even number of values the larger of the two middle values, and 0 for
/// no values.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Measures the fleets on each database, prints the tables on stdout, and fails if a bar fails.
pub(crate) fn run(options: &FleetBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(case) = options.measure {
        let measured = runtime.block_on(measure_one(options, case))?;
        println!("{}", measured.line());
        return Ok(ExitCode::SUCCESS);
    }
    runtime.block_on(measure(options))
}

async fn measure_one(
    options: &FleetBenchOptions,
    case: MeasurementCase,
) -> Result<FleetMeasurement> {
    let server = options.server.as_deref();
    let testbed = FleetTestbed::build(case.place, server, case.projects, options.tasks).await?;
    let fleet = testbed.fleet().await?;
    let time = Duration::from_secs(options.seconds);
    let worked = agents::work(&[fleet], options.agents, Some(time)).await?;
    testbed.end().await?;
    Ok(worked.into())
}

async fn measure(options: &FleetBenchOptions) -> Result<ExitCode> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    let postgres = if options.no_postgres { None } else { Some(PostgresServer::start_synced()?) };
    let url = postgres.as_ref().map(PostgresServer::url);
    let mut places = Vec::new();
    places.extend((!options.no_sqlite).then_some(BenchDatabase::Sqlite));
    places.extend(postgres.as_ref().map(|_| BenchDatabase::Postgres));
    let mut runs = runs(options, &places);
    let this = std::env::current_exe().context("this program has no path")?;
    let mut commits = Vec::new();
    for number in 1..=options.repeat.max(1) {
        for run in &mut runs {
            let (name, projects) = (run.place.name(), run.projects);
            let build = if run.is_before { ", the other build" } else { "" };
            say(&format!("{number} of {}: {name}, {projects} projects{build}", options.repeat));
            let other = options.before.as_ref().filter(|_| run.is_before);
            let case = MeasurementCase { place: run.place, projects };
            let program = other.unwrap_or(&this);
            run.measured.push(measurement::measure(program, case, options, url.as_deref())?);
        }
        if let Some(url) = &url {
            say("one-row transactions of 8 connections");
            let time = Duration::from_secs(options.seconds);
            commits.push(synced_commits::commits_per_second(url, time).await?);
        }
    }
    let commits = (!commits.is_empty()).then(|| median(commits));
    let mut bars = bars::bars(&runs, commits);
    if let Some(url) = &url {
        say("two servers on one PostgreSQL: every task once");
        bars.push(two_servers(options, url).await?);
    }
    print_tables(options, &runs, commits, &bars);
    let failed = bars.iter().filter(|bar| !bar.holds).count();
    say(&format!("done; {failed} bars fail"));
    Ok(if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the runs to measure, in the order in which they take turns.
fn runs(options: &FleetBenchOptions, places: &[BenchDatabase]) -> Vec<FleetRun> {
    let mut runs = Vec::new();
    for place in places {
        for projects in [FEW_PROJECTS, options.projects] {
            for is_before in [false, true] {
                if !is_before || options.before.is_some() {
                    let measured = Vec::new();
                    runs.push(FleetRun { is_before, place: *place, projects, measured });
                }
            }
        }
    }
    runs
}

/// Runs the agents of two servers until all tasks of one database are done, and checks that each is
/// done once.
async fn two_servers(options: &FleetBenchOptions, server: &str) -> Result<FleetBar> {
    let tasks = options.tasks.min(4_000);
    let testbed = FleetTestbed::build(BenchDatabase::Postgres, Some(server), 40, tasks).await?;
    let fleets = [testbed.fleet().await?, testbed.fleet().await?];
    let worked = agents::work(&fleets, options.agents, None).await?;
    let distinct = worked.distinct_tasks();
    testbed.end().await?;
    Ok(FleetBar {
        what: format!(
            "{} agents on two servers, one PostgreSQL: {tasks} tasks, each once",
            options.agents
        ),
        measured: format!("{} claims of {distinct} tasks", worked.claims()),
        holds: worked.claims() == tasks && distinct == tasks,
    })
}

fn print_tables(
    options: &FleetBenchOptions,
    runs: &[FleetRun],
    commits: Option<f64>,
    bars: &[FleetBar],
) {
    let titles = [
        "database, projects",
        "claims/s",
        "claim p50",
        "claim p99",
        "a round",
        "tasks a round",
        "statements a round",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(runs.iter().map(|run| {
        let build = if run.is_before { ", the other build" } else { "" };
        [
            format!("{}, {}{build}", run.place.name(), run.projects),
            format!("{:.0}", run.claims_per_s()),
            millis(run.median(|it| it.claim_p50_us)),
            millis(run.median(|it| it.claim_p99_us)),
            millis(run.round_us()),
            format!("{:.1}", run.median(|it| it.tasks_per_round)),
            format!("≤ {:.0}", run.median(|it| it.statements_most)),
        ]
    }));
    let verdict = |bar: &FleetBar| if bar.holds { "holds" } else { "FAILS" }.to_owned();
    let mut judged = vec![["bar", "measured", ""].map(str::to_owned)];
    judged.extend(bars.iter().map(|bar| [bar.what.clone(), bar.measured.clone(), verdict(bar)]));
    println!(
        "{}; {} tasks, {} agents, medians of {}\n",
        machine::describe(),
        options.tasks,
        options.agents,
        options.repeat
    );
    println!("{}", columns(&rows, options.markdown));
    if let Some(commits) = commits {
        println!(
            "8 connections commit {commits:.0} one-row transactions per second on this PostgreSQL.\n"
        );
    }
    println!("{}", columns(&judged, options.markdown));
}

fn millis(us: f64) -> String {
    format!("{:.2} ms", us / 1e3)
}
