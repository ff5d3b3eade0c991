//! `cargo xtask bench gateway`: Fairgate and other gateways, measured in turns within one run.
//!
//! All targets have the same upstream, which sends prebuilt answers of 1 KB, and the same load
//! generator with 32 connections. Each round measures every target once, so that other load of the
//! machine affects all targets alike. The table shows the medians over the rounds.

pub(crate) mod load;
mod queued_memory;
mod streams;
mod testbed;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::machine;
use crate::table::columns;
use load::{OhaLatency, WrkThroughput};
use testbed::{BenchTarget, BenchTargetKind, GatewayTestbed};

/// Options of `bench gateway`.
#[derive(Args)]
pub(crate) struct GatewayBenchOptions {
    /// Path of the gateway's binary, built with --release.
    #[arg(long)]
    pub(crate) fairgate: PathBuf,
    /// Path of the simulated backend's binary, built with --release.
    #[arg(long)]
    pub(crate) sim: PathBuf,
    /// Path of oha, the load generator for fixed rates.
    #[arg(long, default_value = "oha")]
    pub(crate) oha: PathBuf,
    /// Path of LiteLLM's program; without this option LiteLLM is not measured.
    #[arg(long)]
    pub(crate) litellm: Option<PathBuf>,
    /// Path of start-server.js of Portkey's gateway; without this option Portkey is not measured.
    #[arg(long)]
    pub(crate) portkey: Option<PathBuf>,
    /// Number of rounds; the table shows the medians over the rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Succeed even if a bar fails; the table still shows the failure.
    #[arg(long)]
    no_bars: bool,
    /// Print the table as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
}

/// Measures all targets, prints the tables on stdout, and fails if a bar fails.
pub(crate) fn run(options: &GatewayBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &GatewayBenchOptions) -> Result<ExitCode> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    let time = Duration::from_secs(options.seconds);
    say("starting the upstream and all targets");
    let mut testbed = GatewayTestbed::build(options).await?;
    let mut seen: Vec<TargetMeasurements> =
        testbed.targets.iter().map(|_| TargetMeasurements::default()).collect();
    for round in 1..=options.rounds {
        for (target, seen) in testbed.targets.iter().zip(&mut seen) {
            say(&format!("round {round}: the most that {} carries", target.kind.name()));
            seen.most(target, &testbed, time)?;
        }
    }
    let fairgate = measurements_of(&testbed.targets, &seen, BenchTargetKind::Fairgate)?;
    let rate = fairgate.per_second() * 0.2;
    for round in 1..=options.rounds {
        for (target, seen) in testbed.targets.iter().zip(&mut seen) {
            if target.kind.can_carry(rate, seen.per_second()) {
                say(&format!("round {round}: {} at {rate:.0} requests/s", target.kind.name()));
                seen.paced.push(load::latency_at_rate(
                    &options.oha,
                    &target.plain_request,
                    rate,
                    time,
                )?);
            }
        }
    }
    for round in 1..=options.rounds {
        for (target, seen) in testbed.targets.iter().zip(&mut seen) {
            if target.kind.streams_at_once() {
                say(&format!("round {round}: first chunks through {}", target.kind.name()));
                seen.first_chunks.push(streams::first_chunks(&target.stream, 400).await?);
            }
        }
    }
    say("1 000 streams and 10 000 who wait");
    let held = testbed.measure_queued_memory(options, &say).await?;
    let bars = bars(&testbed.targets, &seen, held)?;
    print_tables(options, &testbed.targets, &seen, rate, &bars);
    testbed.end()?;
    let failed = bars.iter().filter(|bar| !bar.holds).count();
    say(&format!("done; {failed} bars fail"));
    Ok(if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measurements of one target. Each list has one entry per round.
#[derive(Default)]
struct TargetMeasurements {
    most: Vec<WrkThroughput>,
    /// Processor time per request at the greatest throughput, in microseconds.
    cpu: Vec<f64>,
    paced: Vec<OhaLatency>,
    /// Delays of the streams' first chunks in microseconds, sorted within each round.
    first_chunks: Vec<Vec<u64>>,
}

impl TargetMeasurements {
    fn most(
        &mut self,
        target: &BenchTarget,
        testbed: &GatewayTestbed,
        time: Duration,
    ) -> Result<()> {
        let before = target.program.cpu();
        let most = load::max_throughput(&target.plain_request, testbed.folder(), time)?;
        let cpu = target.program.cpu().saturating_sub(before);
        self.cpu.push(cpu.as_secs_f64() * 1e6 / most.requests.max(1.0));
        self.most.push(most);
        Ok(())
    }

    fn per_second(&self) -> f64 {
        median(self.most.iter().map(|most| most.per_second))
    }

    fn errors(&self) -> u64 {
        self.most.iter().map(|most| most.errors).sum()
    }

    fn cpu(&self) -> f64 {
        median(self.cpu.iter().copied())
    }

    fn p50_ms(&self) -> f64 {
        median(self.paced.iter().map(|paced| paced.p50 * 1e3))
    }

    fn p99_ms(&self) -> f64 {
        median(self.paced.iter().map(|paced| paced.p99 * 1e3))
    }

    fn first_chunk_us(&self, per_mille: usize) -> f64 {
        let at = |delays: &Vec<u64>| {
            let index = (delays.len() * per_mille / 1000).min(delays.len().saturating_sub(1));
            #[expect(clippy::cast_precision_loss, reason = "microseconds")]
            delays.get(index).map_or(f64::NAN, |&delay| delay as f64)
        };
        median(self.first_chunks.iter().map(at))
    }
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measurements_of<'a>(
    targets: &[BenchTarget],
    seen: &'a [TargetMeasurements],
    kind: BenchTargetKind,
) -> Result<&'a TargetMeasurements> {
    let index = targets.iter().position(|target| target.kind == kind);
    index.and_then(|index| seen.get(index)).with_context(|| format!("no {} here", kind.name()))
}

/// One requirement, the measured value in words, and whether the requirement is met.
struct GatewayBar {
    what: &'static str,
    measured: String,
    holds: bool,
}

fn bars(
    targets: &[BenchTarget],
    seen: &[TargetMeasurements],
    held: queued_memory::QueuedMemory,
) -> Result<Vec<GatewayBar>> {
    let fairgate = measurements_of(targets, seen, BenchTargetKind::Fairgate)?;
    let nginx = measurements_of(targets, seen, BenchTargetKind::Nginx)?;
    let rate = fairgate.per_second() / nginx.per_second();
    let cpu = fairgate.cpu() / nginx.cpu();
    let p99 = fairgate.p99_ms() / nginx.p99_ms();
    let first = fairgate.first_chunk_us(990);
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let memory = held.resident_max as f64 / 1e6;
    let errors = held.errors;
    let bar = |what, measured, holds| GatewayBar { what, measured, holds };
    Ok(vec![
        bar("requests/s, at least 0.4× nginx", format!("{rate:.2}×"), rate >= 0.4),
        bar("processor time a request, at most 4× nginx", format!("{cpu:.2}×"), cpu <= 4.0),
        bar("p99 at 20 % of our maximum, at most 2× nginx", format!("{p99:.2}×"), p99 <= 2.0),
        bar("first chunk of a stream, p99 under 1 ms", format!("{first:.0} µs"), first < 1000.0),
        bar(
            "1 000 streams and 10 000 waiting with 4 KB bodies, under 300 MB",
            format!("{memory:.0} MB"),
            memory < 300.0,
        ),
        bar("errors among these, none", format!("{errors}"), errors == 0),
    ])
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print_tables(
    options: &GatewayBenchOptions,
    targets: &[BenchTarget],
    seen: &[TargetMeasurements],
    rate: f64,
    bars: &[GatewayBar],
) {
    let mut rows = vec![[
        "through".to_owned(),
        "requests/s".into(),
        "errors".into(),
        "CPU a request".into(),
        format!("p50 at {rate:.0}/s"),
        format!("p99 at {rate:.0}/s"),
        "first chunk p50".into(),
        "first chunk p99".into(),
    ]];
    let measured = |number: f64, unit: &str, digits: usize| match number.is_nan() {
        true => "–".to_owned(),
        false => format!("{number:.digits$} {unit}").trim().to_owned(),
    };
    for (target, seen) in targets.iter().zip(seen) {
        rows.push([
            target.kind.name().into(),
            measured(seen.per_second(), "", 0),
            seen.errors().to_string(),
            measured(seen.cpu(), "µs", 0),
            measured(seen.p50_ms(), "ms", 2),
            measured(seen.p99_ms(), "ms", 2),
            measured(seen.first_chunk_us(500), "µs", 0),
            measured(seen.first_chunk_us(990), "µs", 0),
        ]);
    }
    let bars = bars.iter().map(|bar| {
        let holds = if bar.holds { "holds" } else { "FAILS" };
        [bar.what.to_owned(), bar.measured.clone(), holds.to_owned()]
    });
    let head = ["bar".to_owned(), "measured".into(), String::new()];
    let bars: Vec<_> = std::iter::once(head).chain(bars).collect();
    let machine = machine::describe();
    println!("Measured {machine}; medians of {} rounds.\n", options.rounds);
    println!("{}", columns(&rows, options.markdown));
    println!("{}", columns(&bars, options.markdown));
}
