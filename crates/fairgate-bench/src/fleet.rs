//! `cargo xtask bench fleet`: agents that claim and complete tasks as fast as they can, on SQLite
//! and on PostgreSQL.
//!
//! The fleet is the production code with its loop of rounds. The agents are async tasks in this
//! process that call the fleet directly, so that the fleet and its database are measured without
//! HTTP. The fleet reports the time and the number of database statements of each round.

mod agents;
mod testbed;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::machine;
use crate::soak::SoakPostgres;
use crate::table::columns;
use agents::BenchAgentResults;
use testbed::{BenchDatabase, FleetTestbed};

/// Number of projects in the small fleet, with which the large fleet is compared.
const FEW_PROJECTS: usize = 50;
/// Greatest mean time of a round of the large fleet on SQLite.
const ROUND_MAX: Duration = Duration::from_millis(20);
/// Greatest number of database statements in one round, however many projects or tasks the fleet
/// has.
const STATEMENTS_MAX: u64 = 24;
/// Greatest ratio of the large fleet's mean time of a round to the small fleet's.
const GROWTH_MAX: f64 = 3.0;

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
    /// Measure on SQLite only, without PostgreSQL.
    #[arg(long)]
    no_postgres: bool,
    /// Succeed even if a bar fails; the tables still show the failure.
    #[arg(long)]
    no_bars: bool,
    /// Print the tables as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
}

/// Result of one measurement: one database and one number of projects.
struct FleetRun {
    place: BenchDatabase,
    projects: usize,
    worked: BenchAgentResults,
}

/// One requirement, the measured value in words, and whether the requirement holds.
struct FleetBar {
    what: String,
    measured: String,
    holds: bool,
}

/// Measures the fleets on each database, prints the tables on stdout, and fails if a bar fails.
pub(crate) fn run(options: &FleetBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &FleetBenchOptions) -> Result<ExitCode> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    let postgres = if options.no_postgres { None } else { Some(SoakPostgres::start()?) };
    let mut places = vec![BenchDatabase::Sqlite];
    places.extend(postgres.as_ref().map(|_| BenchDatabase::Postgres));
    let url = postgres.as_ref().map(SoakPostgres::url);
    let time = Duration::from_secs(options.seconds);
    let mut runs = Vec::new();
    for place in places {
        for projects in [FEW_PROJECTS, options.projects] {
            say(&format!("{}: {projects} projects, {} tasks", place.name(), options.tasks));
            let testbed =
                FleetTestbed::build(place, url.as_deref(), projects, options.tasks).await?;
            let fleet = testbed.fleet().await?;
            say(&format!("{}: {} agents claim and complete", place.name(), options.agents));
            let worked = agents::work(&[fleet], options.agents, Some(time)).await?;
            runs.push(FleetRun { place, projects, worked });
            testbed.end().await?;
        }
    }
    let mut bars = bars(&runs);
    if postgres.is_some() {
        say("two servers on one PostgreSQL: every task once");
        let tasks = options.tasks.min(4_000);
        let testbed =
            FleetTestbed::build(BenchDatabase::Postgres, url.as_deref(), 40, tasks).await?;
        let fleets = [testbed.fleet().await?, testbed.fleet().await?];
        let worked = agents::work(&fleets, options.agents, None).await?;
        let distinct = worked.distinct_tasks();
        bars.push(FleetBar {
            what: format!(
                "{} agents on two servers, one PostgreSQL: {tasks} tasks, each once",
                options.agents
            ),
            measured: format!("{} claims of {distinct} tasks", worked.claims()),
            holds: worked.claims() == tasks && distinct == tasks,
        });
        testbed.end().await?;
    }
    print_tables(options, &runs, &bars);
    let failed = bars.iter().filter(|bar| !bar.holds).count();
    say(&format!("done; {failed} bars fail"));
    Ok(if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn bars(runs: &[FleetRun]) -> Vec<FleetBar> {
    let mut bars = Vec::new();
    for pair in runs.chunks_exact(2) {
        let [few, many] = pair else { continue };
        let here = |what: &str| format!("{}: {what}", many.place.name());
        let round = many.worked.round_mean();
        if many.place == BenchDatabase::Sqlite {
            bars.push(FleetBar {
                what: here(&format!("a round with {} projects under 20 ms", many.projects)),
                measured: millis(round),
                holds: round < ROUND_MAX,
            });
        }
        let growth = round.as_secs_f64() / few.worked.round_mean().as_secs_f64();
        bars.push(FleetBar {
            what: here(&format!(
                "{} projects at most {GROWTH_MAX}× the round with {}",
                many.projects, few.projects
            )),
            measured: format!("{growth:.2}×"),
            holds: growth <= GROWTH_MAX,
        });
        let (a, b) = (few.worked.statements_most, many.worked.statements_most);
        bars.push(FleetBar {
            what: here(&format!(
                "at most {STATEMENTS_MAX} statements a round, however many projects"
            )),
            measured: format!("at most {a} with {}, {b} with {}", few.projects, many.projects),
            holds: a.max(b) <= STATEMENTS_MAX,
        });
    }
    bars
}

fn print_tables(options: &FleetBenchOptions, runs: &[FleetRun], bars: &[FleetBar]) {
    let titles = [
        "database, projects",
        "claims/s",
        "claim p50",
        "claim p99",
        "rounds",
        "a round",
        "tasks a round",
        "statements a round",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(runs.iter().map(|run| {
        let worked = &run.worked;
        [
            format!("{}, {}", run.place.name(), run.projects),
            format!("{:.0}", worked.claims_per_second()),
            millis(worked.claim_percentile(50)),
            millis(worked.claim_percentile(99)),
            worked.rounds.to_string(),
            millis(worked.round_mean()),
            format!("{:.1}", worked.tasks_per_round()),
            format!("≤ {}", worked.statements_most),
        ]
    }));
    let verdict = |bar: &FleetBar| if bar.holds { "holds" } else { "FAILS" }.to_owned();
    let mut judged = vec![["bar", "measured", ""].map(str::to_owned)];
    judged.extend(bars.iter().map(|bar| [bar.what.clone(), bar.measured.clone(), verdict(bar)]));
    println!("{}; {} tasks, {} agents\n", machine::describe(), options.tasks, options.agents);
    println!("{}", columns(&rows, options.markdown));
    println!("{}", columns(&judged, options.markdown));
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
