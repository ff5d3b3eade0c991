//! How fast rows are written, with the sums and three indices that each of them touches.

use fairgate_store::{UnixMicros, UsageGrouping, UsageQuery};

use crate::database::{Database, Kind, run};
use crate::rows::attempt;

/// How fast rows are written: `cargo test --release -p fairgate-store -- --ignored rows_per_second --nocapture
/// --test-threads=1`.
#[test]
#[ignore = "a measurement"]
fn rows_per_second() {
    for in_order in [true, false] {
        run(Kind::Sqlite, |database| measure(database, in_order));
    }
}

#[test]
#[ignore = "a measurement"]
fn rows_per_second_on_postgres() {
    run(Kind::Postgres, |database| measure(database, true));
}

async fn measure(database: Database, in_order: bool) {
    const CALLERS: u64 = 32;
    const ROWS: u64 = 6_000;
    let store = database.open().await;
    let before = (std::time::Instant::now(), cpu_seconds());
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.push(tokio::spawn(async move {
            for number in 0..ROWS {
                let place = number * CALLERS + caller;
                let id = if in_order { place } else { place.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
                let mut row =
                    attempt(&format!("req-{id:016x}"), "chat", "key-abcdefghijklmnop", 300);
                row.tenant = format!("tenant-{}", caller % 4);
                row.key = format!("key-abcdefghijklm{:03}", caller % 16);
                row.started_at.0 += i64::try_from(place).unwrap();
                store.record(row).await.unwrap();
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let rows = (CALLERS * ROWS) as f64;
    let acknowledged = before.0.elapsed().as_secs_f64();
    while store.rows_waiting() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let (seconds, cpu) = (before.0.elapsed().as_secs_f64(), cpu_seconds() - before.1);
    println!(
        "{:?}, request ids {}: {:.0} rows/s acknowledged, {:.0} rows/s in the database, {:.1} µs of CPU time a row, {CALLERS} callers",
        database.kind,
        if in_order { "in order" } else { "at random" },
        rows / acknowledged,
        rows / seconds,
        cpu / rows * 1e6,
    );
    let query = UsageQuery {
        by: UsageGrouping::Tenant,
        since: UnixMicros(0),
        until: None,
        tenant: None,
        model: None,
    };
    let asked = std::time::Instant::now();
    let sums = store.usage(query).await.unwrap();
    println!("usage by tenant over all of them: {:.0} ms", asked.elapsed().as_secs_f64() * 1e3);
    assert_eq!(sums.iter().map(|sum| sum.requests).sum::<u64>(), CALLERS * ROWS);
}

/// This process's CPU time so far, all threads together, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}
