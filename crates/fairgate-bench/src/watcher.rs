//! `cargo xtask bench watcher`: measures how much a reader of the stream of events delays the
//! requests of a pool.
//!
//! A pool has 10 000 queued requests of 1 000 tenants, none of which may run. Another tenant sends requests at a fixed
//! rate that are granted at once, so that their latency shows how long the gate takes. The latency is measured in
//! pairs, with and without a reader. Other load of the machine thus affects both sides of a pair. The bar is on the
//! median of the pairs' ratios. Afterwards the benchmark counts the bytes that the reader gets while nothing changes.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fairgate_testkit::programs::{GatewayProgram, admin, free_addr, start};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::gateway::load;
use crate::http::{self, BenchRequest, CHAT_PATH};
use crate::machine;
use crate::table::columns;

/// Options of `bench watcher`.
#[derive(Args)]
pub(crate) struct WatcherBenchOptions {
    /// Path of the gateway's binary, built as it is packaged.
    #[arg(long)]
    fairgate: PathBuf,
    /// Path of the simulated backend's binary.
    #[arg(long)]
    sim: PathBuf,
    /// Path of oha, the load generator for fixed rates.
    #[arg(long, default_value = "oha")]
    oha: PathBuf,
    /// Number of pairs of measurements; the bar is on the median of their ratios.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    /// Duration of each measurement, in seconds.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Requests per second whose latency is measured.
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
}

/// Number of tenants whose requests stay queued.
const TENANTS: usize = 1_000;
/// Number of queued requests of each tenant.
const WAITING_EACH: usize = 10;
/// Greatest median ratio of the p99 with a reader to the p99 without one.
const RATIO_MAX: f64 = 1.25;
/// Greatest number of bytes per second that a reader may get while nothing changes.
const QUIET_BYTES_MAX: u64 = 20_000;
/// Time for which the bytes of the stream are counted while nothing changes.
const QUIET: Duration = Duration::from_secs(10);
/// Longest time that a queued request waits for its answer before its client gives up.
const PATIENCE: Duration = Duration::from_secs(900);

/// Measures, prints the table on stdout, and returns a failure if a bar is not met.
pub(crate) fn run(options: &WatcherBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &WatcherBenchOptions) -> Result<ExitCode> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    let folder = tempfile::tempdir()?;
    let upstream = free_addr()?;
    let mut sim = Command::new(&options.sim);
    sim.args(["--trivial", "--listen", &upstream.to_string()]);
    let _sim = start("upstream", &mut sim, folder.path(), upstream)?;
    let config = configuration(folder.path(), upstream)?;
    let gateway =
        GatewayProgram::start(&options.fairgate, folder.path(), "fairgate", &config, &[])?;
    say(&format!("{TENANTS} tenants queue {WAITING_EACH} requests each"));
    let mut waiting = queue_requests(&gateway).await?;
    wait_until_queued(options, &gateway, &mut waiting).await?;
    let mut pairs = Vec::new();
    for pair in 0..options.pairs.max(1) {
        // The side that is measured first alternates from pair to pair.
        let [first, second] = [pair % 2 == 1, pair % 2 == 0];
        let one = p99(options, &gateway, first).await?;
        let other = p99(options, &gateway, second).await?;
        let (with, without) = if first { (one, other) } else { (other, one) };
        say(&format!("pair {}: p99 {} with a reader, {} without", pair + 1, ms(with), ms(without)));
        pairs.push(WatcherPair { with, without });
    }
    let quiet = quiet_bytes_per_second(&gateway).await?;
    ensure!(waiting.try_join_next().is_none(), "a request that should wait has ended");
    waiting.shutdown().await;
    Ok(print_result(options, &mut pairs, quiet))
}

/// The p99 latencies with and without a reader, in seconds.
#[derive(Clone, Copy, Debug)]
struct WatcherPair {
    with: f64,
    without: f64,
}

impl WatcherPair {
    fn ratio(self) -> f64 {
        self.with / self.without
    }
}

/// Returns a configuration whose policy allows only the tenant `bench` to have requests in flight. Writes the keys of
/// the other tenants to files in `folder`.
fn configuration(folder: &Path, upstream: SocketAddr) -> Result<String> {
    let mut config = format!(
        "upstreams:\n  - {{ name: upstream, url: \"http://{upstream}\", slots: 256 }}\n\
         pools:\n  - name: bench\n    models: [bench]\n    workers: [upstream]\n    max_queue: 20000\n\
         \x20   queue_timeout: 30m\n    policy: {{share: {{by: tenant, default_cap: 0, caps: {{bench: 256}}}}}}\n\
         groups:\n  - {{ name: waiting }}\ntenants:\n"
    );
    for tenant in 0..TENANTS {
        writeln!(config, "  - {{ name: t{tenant:04}, group: waiting }}")?;
    }
    config.push_str("keys:\n");
    for tenant in 0..TENANTS {
        let file = folder.join(format!("key-{tenant:04}"));
        fs::write(&file, secret(tenant))?;
        let file = file.display();
        writeln!(
            config,
            "  - {{ name: k{tenant:04}, tenant: t{tenant:04}, secret: {{ file: \"{file}\" }} }}"
        )?;
    }
    Ok(config)
}

fn secret(tenant: usize) -> String {
    format!("key-of-the-watcher-benchmark-for-tenant-number-{tenant:04}")
}

fn chat(addr: SocketAddr, secret: &str) -> BenchRequest {
    let body = json!({
        "model": "bench", "max_tokens": 16, "messages": [{"role": "user", "content": "word ".repeat(40)}],
    });
    let headers = [
        ("authorization", format!("Bearer {secret}")),
        ("content-type", "application/json".to_owned()),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    BenchRequest { addr, path: CHAT_PATH.into(), headers, body: body.to_string() }
}

/// Sends all requests that will stay queued. They end when the returned set is shut down.
async fn queue_requests(gateway: &GatewayProgram) -> Result<JoinSet<()>> {
    let mut waiting = JoinSet::new();
    for n in 0..TENANTS * WAITING_EACH {
        let request = chat(gateway.addr, &secret(n % TENANTS));
        waiting.spawn(async move {
            // A request that ends is an error regardless of its answer. The caller finds it in the set.
            let _ = http::send(&request, PATIENCE, |_, _| ControlFlow::Continue(())).await;
        });
        // The accept backlog is short, so connections are opened in bursts and not all at once.
        if n % 200 == 199 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(waiting)
}

async fn wait_until_queued(
    options: &WatcherBenchOptions,
    gateway: &GatewayProgram,
    waiting: &mut JoinSet<()>,
) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let live = admin(&options.fairgate, gateway.addr, &gateway.data, &["live"])?;
        let queued =
            live.get("global_queued").and_then(Value::as_u64).context("live has no queue")?;
        if queued >= (TENANTS * WAITING_EACH) as u64 {
            return Ok(());
        }
        if waiting.try_join_next().is_some() {
            bail!("a request ended before all waited; {queued} wait");
        }
        ensure!(Instant::now() < deadline, "only {queued} requests wait after two minutes");
        sleep(Duration::from_millis(300)).await;
    }
}

/// Measures the p99 latency of requests that are granted at once, in seconds. `with` is true for a measurement with a
/// reader of the events.
async fn p99(options: &WatcherBenchOptions, gateway: &GatewayProgram, with: bool) -> Result<f64> {
    let reader = if with { Some(EventReader::start(gateway).await?) } else { None };
    let (oha, request) = (options.oha.clone(), chat(gateway.addr, &gateway.key));
    let (rate, time) = (options.rate, Duration::from_secs(options.seconds));
    let measured =
        tokio::task::spawn_blocking(move || load::latency_at_rate(&oha, &request, rate, time));
    let latency = measured.await??;
    if let Some(reader) = reader {
        reader.stop()?;
    }
    Ok(latency.p99)
}

/// Returns the number of bytes per second that a reader gets while nothing changes. The first view
/// does not count.
async fn quiet_bytes_per_second(gateway: &GatewayProgram) -> Result<u64> {
    let reader = EventReader::start(gateway).await?;
    // Events of the last requests may still arrive.
    sleep(Duration::from_secs(3)).await;
    let before = reader.bytes.load(Ordering::Relaxed);
    sleep(QUIET).await;
    let bytes = reader.bytes.load(Ordering::Relaxed) - before;
    reader.stop()?;
    Ok(bytes / QUIET.as_secs())
}

/// A reader of the stream of events. It counts the bytes that it gets.
struct EventReader {
    bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl EventReader {
    /// Opens the stream and waits until the first view has begun to arrive.
    async fn start(gateway: &GatewayProgram) -> Result<Self> {
        let token = fs::read_to_string(gateway.data.join("admin-token"))?;
        let mut stream = TcpStream::connect(gateway.addr).await?;
        let request = format!(
            "GET /api/v1/events?kinds=live HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            gateway.addr,
            token.trim()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut piece = vec![0; 64 * 1024];
        let head = stream.read(&mut piece).await?;
        let is_good = piece[..head].starts_with(b"HTTP/1.1 200");
        ensure!(is_good, "the events are refused: {}", String::from_utf8_lossy(&piece[..head]));
        let bytes = Arc::new(AtomicU64::new(0));
        let count = bytes.clone();
        let task = tokio::spawn(async move {
            while let Ok(read @ 1..) = stream.read(&mut piece).await {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        while bytes.load(Ordering::Relaxed) == 0 {
            ensure!(Instant::now() < deadline, "no event came within ten seconds");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { bytes, task })
    }

    /// Closes the stream. Fails if the gateway has already closed it.
    fn stop(self) -> Result<()> {
        ensure!(!self.task.is_finished(), "the gateway closed the stream of events");
        self.task.abort();
        Ok(())
    }
}

fn print_result(
    options: &WatcherBenchOptions,
    pairs: &mut [WatcherPair],
    quiet_bytes: u64,
) -> ExitCode {
    pairs.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let median = pairs[pairs.len() / 2];
    println!(
        "Measured {}; {} waiting requests of {TENANTS} tenants, {:.0} requests a second beside them, {} pairs of {} s.\n",
        machine::describe(),
        TENANTS * WAITING_EACH,
        options.rate,
        pairs.len(),
        options.seconds,
    );
    let holds = |is_held: bool| if is_held { "ok" } else { "FAILS" }.to_owned();
    let (ratio_holds, bytes_hold) = (median.ratio() <= RATIO_MAX, quiet_bytes < QUIET_BYTES_MAX);
    let rows = [
        ["what", "measured", "bar", "ok?"].map(str::to_owned),
        [
            "p99 with a reader ÷ without, median pair".to_owned(),
            format!("{:.2}× ({} ÷ {})", median.ratio(), ms(median.with), ms(median.without)),
            format!("≤ {RATIO_MAX}×"),
            holds(ratio_holds),
        ],
        [
            "least and greatest ratio of the pairs".to_owned(),
            format!("{:.2}×, {:.2}×", pairs[0].ratio(), pairs[pairs.len() - 1].ratio()),
            String::new(),
            String::new(),
        ],
        [
            "bytes to a reader while nothing changes".to_owned(),
            format!("{quiet_bytes} B/s"),
            format!("< {QUIET_BYTES_MAX} B/s"),
            holds(bytes_hold),
        ],
    ];
    println!("{}", columns(&rows, options.markdown));
    if ratio_holds && bytes_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Formats seconds as milliseconds.
fn ms(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_has_all_tenants_with_their_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = configuration(folder.path(), "127.0.0.1:1".parse().expect("an address"));
        let config = config.expect("written");
        assert_eq!(config.matches("group: waiting").count(), TENANTS);
        assert_eq!(config.matches("secret: {").count(), TENANTS);
        let key = fs::read_to_string(folder.path().join("key-0999")).expect("a key");
        assert_eq!(key, secret(999));
    }
}
