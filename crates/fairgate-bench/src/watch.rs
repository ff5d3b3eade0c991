//! `cargo xtask bench watch`: what it costs that somebody watches a gateway.
//!
//! One pool has 10 000 waiting requests of 1 000 tenants, and grants at a steady pace: the benchmark settles a request,
//! takes the time until the pool has granted the next one, and queues another request of the same tenant. It does so
//! without and with a reader of `GET /api/v1/events`, in turns, so that other load of the machine affects both. The
//! reader also counts the bytes that it gets while hardly anything changes.

mod load;
mod reader;
mod testbed;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tokio::time::sleep;

use crate::machine;
use crate::table::columns;
use load::GrantLoad;
use reader::EventReader;
use testbed::WatchTestbed;

/// Greatest ratio of the 99th percentile with a reader to that without one, in the median of all pairs.
const P99_RATIO_MAX: f64 = 1.25;
/// The most bytes per second that a reader gets while hardly anything changes.
const QUIET_BYTES_MAX: f64 = 20_000.0;
/// Grants per second while hardly anything changes.
const QUIET_RATE: u32 = 5;
/// Time after which the looks for a reader that has left have ended.
const LEFT: Duration = Duration::from_millis(1500);

/// Options of `bench watch`.
#[derive(Args)]
pub(crate) struct WatchBenchOptions {
    /// Number of pairs of measurements, each without and with a reader.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Grants per second.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Number of tenants.
    #[arg(long, default_value_t = 1000)]
    tenants: usize,
    /// Number of waiting requests.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
}

/// The 99th percentiles of a pair of measurements, in microseconds.
#[derive(Clone, Copy, Debug)]
struct WatchPair {
    alone_us: f64,
    watched_us: f64,
    /// Bytes per second that the reader got.
    bytes: f64,
}

/// Measures all pairs, prints the tables on stdout, and fails if a bar fails.
pub(crate) fn run(options: &WatchBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &WatchBenchOptions) -> Result<ExitCode> {
    eprintln!("{} tenants, {} waiting", options.tenants, options.waiting);
    let testbed = WatchTestbed::start(options.tenants).await?;
    let mut load = GrantLoad::begin(testbed.gate(), options.tenants, options.waiting).await?;
    let time = Duration::from_secs(options.seconds);
    let quiet = quiet_bytes(&testbed, &mut load).await?;
    let mut pairs = Vec::new();
    for pair in 0..options.pairs.max(1) {
        let mut measured = WatchPair { alone_us: 0.0, watched_us: 0.0, bytes: 0.0 };
        // The order changes with each pair, so that neither is always the first.
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                measured.alone_us = p99(load.run(options.rate, time).await?);
            } else {
                let reader = EventReader::open(testbed.addr()).await?;
                let before = reader.bytes();
                measured.watched_us = p99(load.run(options.rate, time).await?);
                measured.bytes = per_second(reader.bytes() - before, time);
                drop(reader);
                sleep(LEFT).await;
            }
        }
        eprintln!("pair {}: {measured:?}", pair + 1);
        pairs.push(measured);
    }
    load.end().await?;
    testbed.end().await?;
    Ok(print(options, &pairs, quiet))
}

/// Returns the bytes per second that a reader gets while hardly anything changes.
async fn quiet_bytes(testbed: &WatchTestbed, load: &mut GrantLoad) -> Result<f64> {
    let reader = EventReader::open(testbed.addr()).await?;
    load.run(QUIET_RATE, Duration::from_secs(3)).await?;
    let (before, time) = (reader.bytes(), Duration::from_secs(10));
    load.run(QUIET_RATE, time).await?;
    let bytes = per_second(reader.bytes() - before, time);
    drop(reader);
    sleep(LEFT).await;
    Ok(bytes)
}

#[expect(clippy::cast_precision_loss, reason = "an average")]
fn per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64()
}

/// Returns the 99th percentile of times in microseconds.
#[expect(clippy::cast_precision_loss, reason = "microseconds")]
fn p99(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let place = (times.len() * 99 / 100).min(times.len().saturating_sub(1));
    times.get(place).map_or(f64::NAN, |time| time.as_micros() as f64)
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(options: &WatchBenchOptions, pairs: &[WatchPair], quiet: f64) -> ExitCode {
    let alone = median(pairs.iter().map(|pair| pair.alone_us));
    let watched = median(pairs.iter().map(|pair| pair.watched_us));
    let ratio = median(pairs.iter().map(|pair| pair.watched_us / pair.alone_us));
    let bytes = median(pairs.iter().map(|pair| pair.bytes));
    println!(
        "Measured {}; {} tenants, {} waiting, {} grants a second; medians of {} pairs of {} s.\n",
        machine::describe(),
        options.tenants,
        options.waiting,
        options.rate,
        pairs.len(),
        options.seconds
    );
    let rows = [
        ["".to_owned(), "alone".to_owned(), "one reader".to_owned()],
        ["p99 of a grant".to_owned(), format!("{alone:.0} µs"), format!("{watched:.0} µs")],
        [
            "bytes a second to the reader".to_owned(),
            "–".to_owned(),
            format!("{:.0} KB", bytes / 1e3),
        ],
    ];
    println!("{}", columns(&rows, options.markdown));
    let bars = [
        (
            "p99 of a grant with a reader, at most 1.25×",
            format!("{ratio:.2}×"),
            ratio <= P99_RATIO_MAX,
        ),
        (
            "bytes a second at 5 grants a second, under 20 KB",
            format!("{:.1} KB", quiet / 1e3),
            quiet < QUIET_BYTES_MAX,
        ),
    ];
    let head = ["bar".to_owned(), "measured".to_owned(), String::new()];
    let holds = |holds: bool| if holds { "holds" } else { "FAILS" }.to_owned();
    let lines =
        bars.iter().map(|(what, value, good)| [(*what).to_owned(), value.clone(), holds(*good)]);
    let lines: Vec<_> = std::iter::once(head).chain(lines).collect();
    println!("{}", columns(&lines, options.markdown));
    match bars.iter().all(|(_, _, good)| *good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_times() {
        let times = |count: u64| (1..=count).rev().map(Duration::from_micros).collect();
        assert!((p99(times(100)) - 100.0).abs() < 1e-9);
        assert!((p99(times(1000)) - 991.0).abs() < 1e-9);
        assert!(p99(Vec::new()).is_nan());
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < 1e-9);
    }

    /// A small run from end to end: requests wait, are granted in turn, and a reader sees it.
    #[test]
    fn a_small_run_measures_both() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let testbed = WatchTestbed::start(5).await.unwrap();
            let mut load = GrantLoad::begin(testbed.gate(), 5, 100).await.unwrap();
            let reader = EventReader::open(testbed.addr()).await.unwrap();
            let times = load.run(500, Duration::from_millis(200)).await.unwrap();
            assert!(times.len() > 20, "{}", times.len());
            assert!(reader.bytes() > 1000, "{}", reader.bytes());
            drop(reader);
            load.end().await.unwrap();
            testbed.end().await.unwrap();
        });
    }
}
