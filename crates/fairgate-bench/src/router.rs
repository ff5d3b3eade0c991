//! `cargo xtask bench router`: Fairgate and other routers in front of simulated workers with prefix
//! caches, over real HTTP.
//!
//! Every router gets the same requests and new workers with empty caches. The workers count input
//! and cached tokens, and the clients measure the time to the first token. Each placement rule also
//! places the same requests in virtual time (`rules`), which here means in a simulation with its
//! own clock and without HTTP. Differences between a run over HTTP and the same rule in virtual
//! time are the effect of HTTP, clocks and other programs of the machine.

mod classes;
mod clients;
mod picture;
mod placement;
mod prompt;
mod rules;
mod testbed;
mod virtual_time;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::machine;
use crate::table::columns;
use clients::RouterMeasurements;
use testbed::{RouterKind, RouterTestbed};
use workload::RouterWorkload;

/// Options of `bench router`.
#[derive(Args)]
pub(crate) struct RouterBenchOptions {
    /// Path of the gateway's binary.
    #[arg(long)]
    pub(crate) fairgate: PathBuf,
    /// Python of an environment with `sglang-router`; without this option sglang-router is not
    /// measured.
    #[arg(long)]
    pub(crate) sglang_python: Option<PathBuf>,
    /// Path of `vllm-router`; without this option vllm-router is not measured.
    #[arg(long)]
    pub(crate) vllm_router: Option<PathBuf>,
    /// Trace of conversations: a gzip file whose lines have `timestamp`, `input_length`,
    /// `output_length` and `hash_ids`. Without this option only the agents' workload is measured.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Duration of each run, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Numbers of workers; every router is measured with each of them.
    #[arg(long, value_delimiter = ',', default_value = "4,16")]
    workers: Vec<usize>,
    /// File to which the picture of the results is written, as SVG.
    #[arg(long, default_value = "bench-router.svg")]
    svg: PathBuf,
    /// Only place the requests in virtual time, by each placement rule, without HTTP.
    #[arg(long)]
    rules_only: bool,
    /// Succeed even if a bar fails; the table still shows the failure.
    #[arg(long)]
    no_bars: bool,
    /// Print the table as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
}

/// Result of one workload that was sent through one router to a number of workers.
pub(crate) struct RouterRun {
    pub(crate) workload: &'static str,
    pub(crate) workers: usize,
    pub(crate) router: RouterKind,
    pub(crate) seen: RouterMeasurements,
}

/// Measures all routers, prints the tables on stdout, and fails if a bar fails.
pub(crate) fn run(options: &RouterBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &RouterBenchOptions) -> Result<ExitCode> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    let time = Duration::from_secs(options.seconds);
    let mut workloads = Vec::new();
    if let Some(trace) = &options.trace {
        workloads.push(RouterWorkload::conversations(trace, time)?);
    }
    workloads.push(RouterWorkload::agents(time));
    say("the rules of placement, in virtual time");
    let cells = rules::place_all(&workloads, &options.workers);
    if options.rules_only {
        rules::print(&cells, options.markdown);
        let bars = rules::bars(&cells);
        print_bars(&bars, options.markdown);
        return Ok(exit_code(options, &bars, &say));
    }
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
            for router in testbed::routers(options) {
                say(&format!("{}: {workers} workers, {}", workload.name, router.name()));
                let testbed = RouterTestbed::build(options, workload, workers, router, "").await?;
                let seen = clients::run(&testbed, workload, workers).await;
                runs.push(RouterRun { workload: workload.name, workers, router, seen });
                testbed.end().await?;
            }
        }
    }
    let workers = options.workers.first().copied().unwrap_or(4);
    say(&format!("two classes, {workers} workers"));
    let agents = RouterWorkload::agents(time);
    let testbed =
        RouterTestbed::build(options, &agents, workers, RouterKind::Fairgate, &classes::policy())
            .await?;
    let charged = classes::run(&testbed, workers, time).await?;
    testbed.end().await?;
    let mut bars = bars(&runs)?;
    bars.extend(rules::bars(&cells));
    bars.extend(runs.iter().filter_map(|run| rules::bar_over_http(&cells, run)));
    bars.push(class_bar(charged));
    print_runs(options, &runs);
    rules::print(&cells, options.markdown);
    print_bars(&bars, options.markdown);
    std::fs::write(&options.svg, picture::svg(&runs))
        .with_context(|| options.svg.display().to_string())?;
    say(&format!("picture: {}", options.svg.display()));
    Ok(exit_code(options, &bars, &say))
}

fn exit_code(options: &RouterBenchOptions, bars: &[RouterBar], say: &impl Fn(&str)) -> ExitCode {
    let failed = bars.iter().filter(|bar| !bar.holds).count();
    say(&format!("done; {failed} bars fail"));
    if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// One requirement, the measured value in words, and whether the requirement is met.
pub(crate) struct RouterBar {
    pub(crate) what: String,
    pub(crate) measured: String,
    pub(crate) holds: bool,
}

/// Compares Fairgate's run with that of round robin and with that of the best other router, for
/// each workload and number of workers.
fn bars(runs: &[RouterRun]) -> Result<Vec<RouterBar>> {
    let mut bars = Vec::new();
    for ours in runs.iter().filter(|run| run.router == RouterKind::Fairgate) {
        let beside =
            |run: &&RouterRun| run.workload == ours.workload && run.workers == ours.workers;
        let others = || runs.iter().filter(beside).filter(|run| run.router != RouterKind::Fairgate);
        let round_robin = others().find(|run| run.router == RouterKind::RoundRobin);
        let round_robin = round_robin.context("round robin has run")?;
        let peers = others().filter(|run| run.router != RouterKind::RoundRobin);
        let best = peers.max_by(|a, b| a.seen.saved().total_cmp(&b.seen.saved()));
        let here = format!("{}, {} workers", ours.workload, ours.workers);
        let mut bar = |what: &str, measured: String, holds: bool| {
            bars.push(RouterBar { what: format!("{here}: {what}"), measured, holds });
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
            let measured = format!("{own:.2} against {other:.2}");
            bar(&format!("imbalance no worse than {name}"), measured, own <= other);
        }
        let errors = ours.seen.errors;
        bar("no errors", errors.to_string(), errors == 0);
    }
    Ok(bars)
}

/// Checks that the tokens of the two classes are in the ratio of their weights. A deviation of 5 %
/// is allowed, because some requests are in flight at the beginning and the end of the measurement.
fn class_bar([more, less]: [u64; 2]) -> RouterBar {
    let [(first, high), (second, low)] = classes::CLASSES;
    let wanted = high as f64 / low as f64;
    let got = more as f64 / less.max(1) as f64;
    RouterBar {
        what: format!("{first} to {second} as {high} to {low}, within 5 %, both backlogged"),
        measured: format!("{got:.2}"),
        holds: (got / wanted - 1.0).abs() <= 0.05,
    }
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print_runs(options: &RouterBenchOptions, runs: &[RouterRun]) {
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
    println!("Measured {}; {} s each, in turn.\n", machine::describe(), options.seconds);
    println!("{}", columns(&rows, options.markdown));
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print_bars(bars: &[RouterBar], markdown: bool) {
    let measured = bars.iter().map(|bar| {
        let holds = if bar.holds { "holds" } else { "FAILS" };
        [bar.what.clone(), bar.measured.clone(), holds.to_owned()]
    });
    let head = ["bar".to_owned(), "measured".into(), String::new()];
    let measured: Vec<_> = std::iter::once(head).chain(measured).collect();
    println!("{}", columns(&measured, markdown));
}
