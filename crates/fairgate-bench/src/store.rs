//! `cargo xtask bench store`: measures the number of rows per second that the ledger takes, with the sums and indices
//! that each row changes.
//!
//! Request ids in order are appended to the ledger's index. Random ids are spread over all pages of
//! the index. Both are measured in the same run on SQLite, and ids in order also on PostgreSQL.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use fairgate_store::{
    AttemptOutcome, AttemptRow, MicroUnits, Store, StoreOptions, UnixMicros, UsageGrouping,
    UsageQuery, UsageSource,
};
use fairgate_testkit::postgres_server::PostgresServer;

use crate::table::columns;

/// Number of tasks that record rows at the same time.
const CALLERS: u64 = 32;

/// Options of `bench store`.
#[derive(Args)]
pub(crate) struct StoreBenchOptions {
    /// Number of rows that each of the 32 callers records.
    #[arg(long, default_value_t = 6_000)]
    rows: u64,
    /// Measure on SQLite only, without PostgreSQL.
    #[arg(long)]
    no_postgres: bool,
    /// Print the table as Markdown.
    #[arg(long)]
    markdown: bool,
}

/// Speed of one run.
struct StoreBenchRun {
    acknowledged_per_s: f64,
    written_per_s: f64,
    cpu_us_per_row: f64,
    usage_query: Duration,
}

/// Measures the store on each database and prints a table on stdout. There are no bars. The ratio of the speed of
/// random ids to that of ids in order is only shown.
pub(crate) fn run(options: &StoreBenchOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let in_order = measure_sqlite(options.rows, true).await?;
        let random = measure_sqlite(options.rows, false).await?;
        let ratio = random.written_per_s / in_order.written_per_s;
        let mut table = vec![
            [
                "database",
                "request ids",
                "rows/s accepted",
                "rows/s written",
                "CPU µs a row",
                "sum by tenant",
            ]
            .map(str::to_owned),
            table_row("SQLite", "in order", &in_order),
            table_row("SQLite", "random", &random),
        ];
        if !options.no_postgres {
            let server = PostgresServer::start()?;
            let folder = tempfile::tempdir()?;
            let spool = Some(folder.path().join("spool"));
            let options_of_store = StoreOptions { spool, ..StoreOptions::default() };
            let (store, _) = Store::open(&server.url(), options_of_store).await?;
            table.push(table_row(
                "PostgreSQL",
                "in order",
                &measure(store, options.rows, true).await?,
            ));
        }
        println!("{}", columns(&table, options.markdown));
        println!("Random ids are written at {ratio:.2} times the speed of ids in order.");
        Ok(ExitCode::SUCCESS)
    })
}

fn table_row(database: &str, ids: &str, run: &StoreBenchRun) -> [String; 6] {
    [
        database.to_owned(),
        ids.to_owned(),
        format!("{:.0}", run.acknowledged_per_s),
        format!("{:.0}", run.written_per_s),
        format!("{:.1}", run.cpu_us_per_row),
        format!("{:.0} ms", run.usage_query.as_secs_f64() * 1e3),
    ]
}

async fn measure_sqlite(rows: u64, in_order: bool) -> Result<StoreBenchRun> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let spool = Some(folder.path().join("spool"));
    let (store, _) = Store::open(&url, StoreOptions { spool, ..StoreOptions::default() }).await?;
    measure(store, rows, in_order).await
}

async fn measure(store: Store, rows: u64, in_order: bool) -> Result<StoreBenchRun> {
    let (since, cpu_before) = (Instant::now(), cpu_seconds()?);
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.push(tokio::spawn(async move {
            for number in 0..rows {
                store.record(attempt(number * CALLERS + caller, caller, in_order)).await?;
            }
            anyhow::Ok(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    let acknowledged = since.elapsed().as_secs_f64();
    while store.rows_waiting() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (written, cpu) = (since.elapsed().as_secs_f64(), cpu_seconds()? - cpu_before);
    let query = UsageQuery {
        by: UsageGrouping::Tenant,
        since: UnixMicros(0),
        until: None,
        tenant: None,
        model: None,
        ..UsageQuery::default()
    };
    let asked = Instant::now();
    let sums = store.usage(query).await?.rows;
    let usage_query = asked.elapsed();
    let count = CALLERS * rows;
    ensure!(sums.iter().map(|sum| sum.requests).sum::<u64>() == count, "rows are missing");
    Ok(StoreBenchRun {
        acknowledged_per_s: count as f64 / acknowledged,
        written_per_s: count as f64 / written,
        cpu_us_per_row: cpu / count as f64 * 1e6,
        usage_query,
    })
}

fn attempt(number: u64, caller: u64, in_order: bool) -> AttemptRow {
    let id = if in_order { number } else { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
    AttemptRow {
        request: format!("req-{id:016x}"),
        attempt: 1,
        last: true,
        started_at: UnixMicros(1_794_731_400_000_000 + number.cast_signed()),
        group: "staff".to_owned(),
        tenant: format!("tenant-{}", caller % 4),
        key: format!("key-abcdefghijklm{:03}", caller % 16),
        agent: None,
        session: Some("s-1".to_owned()),
        route: "/v1/chat/completions".to_owned(),
        stream: true,
        model: "llama".to_owned(),
        pool: Some("llama".to_owned()),
        worker: Some("gpu-1".to_owned()),
        estimate: 100,
        input_tokens: 10,
        cached_tokens: 4,
        output_tokens: 290,
        charged: 300,
        usage: UsageSource::Reported,
        waited_us: 1_500,
        first_token_us: Some(20_000),
        total_us: 90_000,
        status: 200,
        outcome: AttemptOutcome::Completed,
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: 300,
        money: MicroUnits::ZERO,
        price: None,
        tier: 0,
        class: None,
        cache_written_tokens: 3,
        cache_written_1h_tokens: 1,
        estimate_uncached: 130,
        charged_uncached: 303,
        worker_us: 0,
        price_set: None,
        claim: None,
    }
}

/// Returns the CPU time that this process has used so far, in seconds, over all threads.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("the format of /proc/self/stat")?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok());
    let ticks = ticks(11).zip(ticks(12)).context("the fields of /proc/self/stat")?;
    Ok((ticks.0 + ticks.1) / 100.0)
}
