//! `cargo xtask bench router`: Fairgate beside other routers, in front of simulated workers with prefix caches, over real HTTP.
//!
//! Every router gets the same requests and new workers with empty caches. The workers count what they read and what they had
//! cached; the clients take the time to the first token.

mod classes;
mod drive;
mod picture;
mod placement;
mod stage;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::gateway::columns;
use crate::machine;
use drive::Seen;
use placement::Rule;
use stage::{Router, Stage};
use workload::{Kind, Workload};

/// What a run measures and with which programs.
#[derive(Args)]
pub(crate) struct Options {
    /// The gateway's binary.
    #[arg(long)]
    pub(crate) fairgate: PathBuf,
    /// The Python of an environment with `sglang-router`; left out where absent.
    #[arg(long)]
    pub(crate) sglang_python: Option<PathBuf>,
    /// The program of `vllm-router`; left out where absent.
    #[arg(long)]
    pub(crate) vllm_router: Option<PathBuf>,
    /// The conversations: lines of `timestamp`, `input_length`, `output_length` and `hash_ids`, packed with gzip. Without them only the agents run.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// How long each run lasts, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// How many workers, one run each.
    #[arg(long, value_delimiter = ',', default_value = "4,16")]
    workers: Vec<usize>,
    /// Where to write the picture.
    #[arg(long, default_value = "bench-router.svg")]
    svg: PathBuf,
    /// Only place the conversations in virtual time, by each rule of placement.
    #[arg(long, requires = "trace")]
    rules_only: bool,
    /// Only print: succeed where a bar fails.
    #[arg(long)]
    no_bars: bool,
    /// Print the table as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
}

/// One workload through one router to so many workers.
pub(crate) struct Run {
    pub(crate) workload: &'static str,
    pub(crate) workers: usize,
    pub(crate) router: Router,
    pub(crate) seen: Seen,
}

/// Measures, prints the tables on stdout, and fails where a bar does.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<ExitCode> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    let time = Duration::from_secs(options.seconds);
    let mut workloads = Vec::new();
    if let Some(trace) = &options.trace {
        workloads.push(Workload::conversations(trace, time)?);
    }
    if options.rules_only {
        print_rules(options, &workloads);
        return Ok(ExitCode::SUCCESS);
    }
    workloads.push(Workload::agents(time));
    let mut runs = Vec::new();
    for workload in &workloads {
        if let Some(repeated) = workload.repeated {
            say(&format!(
                "{}: {:.1} % of all input tokens repeat a prefix",
                workload.name,
                repeated * 100.0
            ));
        }
        for &workers in &options.workers {
            for router in stage::routers(options) {
                say(&format!("{}: {workers} workers, {}", workload.name, router.name()));
                let stage = Stage::build(options, workload, workers, router, "").await?;
                let seen = drive::run(&stage, workload, workers).await;
                runs.push(Run { workload: workload.name, workers, router, seen });
                stage.end().await?;
            }
        }
    }
    let workers = options.workers.first().copied().unwrap_or(4);
    say(&format!("two classes, {workers} workers"));
    let agents = Workload::agents(time);
    let stage =
        Stage::build(options, &agents, workers, Router::Fairgate, &classes::policy()).await?;
    let charged = classes::run(&stage, workers, time).await?;
    stage.end().await?;
    let mut bars = bars(&runs)?;
    bars.push(class_bar(charged));
    print_tables(options, &runs, &bars);
    print_rules(options, &workloads);
    std::fs::write(&options.svg, picture::svg(&runs))
        .with_context(|| options.svg.display().to_string())?;
    let failed = bars.iter().filter(|bar| !bar.holds).count();
    say(&format!("done; {failed} bars fail; picture: {}", options.svg.display()));
    Ok(if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One requirement, what was measured, and whether it holds.
struct Bar {
    what: String,
    told: String,
    holds: bool,
}

/// For each workload and number of workers: ours beside round robin and beside the peer that saves most.
fn bars(runs: &[Run]) -> Result<Vec<Bar>> {
    let mut bars = Vec::new();
    for ours in runs.iter().filter(|run| run.router == Router::Fairgate) {
        let beside = |run: &&Run| run.workload == ours.workload && run.workers == ours.workers;
        let others = || runs.iter().filter(beside).filter(|run| run.router != Router::Fairgate);
        let round_robin = others().find(|run| run.router == Router::RoundRobin);
        let round_robin = round_robin.context("round robin has run")?;
        let peers = others().filter(|run| run.router != Router::RoundRobin);
        let best = peers.max_by(|a, b| a.seen.saved().total_cmp(&b.seen.saved()));
        let here = format!("{}, {} workers", ours.workload, ours.workers);
        let mut bar = |what: &str, told: String, holds: bool| {
            bars.push(Bar { what: format!("{here}: {what}"), told, holds });
        };
        let (saved, plain) = (ours.seen.saved(), round_robin.seen.saved());
        bar(
            "saves at least 1.5× round robin",
            format!("{:.2}×", saved / plain),
            saved >= 1.5 * plain,
        );
        if let Some(best) = best {
            let name = best.router.name();
            let more = saved / best.seen.saved();
            bar(&format!("saves at least as much as {name}"), format!("{more:.2}×"), more >= 1.0);
            let (own, other) = (ours.seen.imbalance(), best.seen.imbalance());
            let told = format!("{own:.2} against {other:.2}");
            bar(&format!("imbalance no worse than {name}"), told, own <= other);
        }
        let errors = ours.seen.errors;
        bar("no errors", errors.to_string(), errors == 0);
    }
    Ok(bars)
}

/// What the classes got is in the ratio of their weights, give or take the requests that are in flight at both ends.
fn class_bar([more, less]: [u64; 2]) -> Bar {
    let [(first, high), (second, low)] = classes::CLASSES;
    let wanted = high as f64 / low as f64;
    let got = more as f64 / less.max(1) as f64;
    Bar {
        what: format!("{first} to {second} as {high} to {low}, within 5 %, both backlogged"),
        told: format!("{got:.2}"),
        holds: (got / wanted - 1.0).abs() <= 0.05,
    }
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print_tables(options: &Options, runs: &[Run], bars: &[Bar]) {
    let titles = [
        "workload",
        "workers",
        "router",
        "requests",
        "errors",
        "prefill saved",
        "first token p50",
        "first token p99",
        "imbalance",
    ];
    let rows = runs.iter().map(|run| {
        let seen = &run.seen;
        [
            run.workload.to_owned(),
            run.workers.to_string(),
            run.router.name().to_owned(),
            seen.requests().to_string(),
            seen.errors.to_string(),
            format!("{:.1} %", seen.saved() * 100.0),
            format!("{:.0} ms", seen.first_token_ms(0.5)),
            format!("{:.0} ms", seen.first_token_ms(0.99)),
            format!("{:.2}", seen.imbalance()),
        ]
    });
    let rows: Vec<_> = std::iter::once(titles.map(str::to_owned)).chain(rows).collect();
    let told = bars.iter().map(|bar| {
        let holds = if bar.holds { "holds" } else { "FAILS" };
        [bar.what.clone(), bar.told.clone(), holds.to_owned()]
    });
    let head = ["bar".to_owned(), "measured".into(), String::new()];
    let told: Vec<_> = std::iter::once(head).chain(told).collect();
    println!("Measured {}; {} s each, in turn.\n", machine::describe(), options.seconds);
    println!("{}", columns(&rows, options.markdown));
    println!("{}", columns(&told, options.markdown));
}

/// The rules of placement by themselves, where the requests do not depend on the answers.
#[expect(clippy::print_stdout, reason = "the result")]
fn print_rules(options: &Options, workloads: &[Workload]) {
    let titles =
        ["workers", "rule", "prefill saved", "first token p50", "first token p99", "imbalance"];
    for workload in workloads {
        let Kind::Conversations(requests) = &workload.kind else { continue };
        let mut rows = vec![titles.map(str::to_owned)];
        for &workers in &options.workers {
            for rule in Rule::ALL {
                let placed = placement::place(requests, &stage::size(workload, workers), rule);
                rows.push([
                    workers.to_string(),
                    rule.name().to_owned(),
                    format!("{:.1} %", placed.saved * 100.0),
                    format!("{:.0} ms", placed.first_token_ms(50)),
                    format!("{:.0} ms", placed.first_token_ms(99)),
                    format!("{:.2}", placed.imbalance),
                ]);
            }
        }
        println!("The same {}, placed in virtual time by one rule each:\n", workload.name);
        println!("{}", columns(&rows, options.markdown));
    }
}
