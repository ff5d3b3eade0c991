//! What only SQLite can be asked.

use fairgate_store::{
    By, LedgerQuery, Limits, Store, StoreError, StoreOptions, UnixMicros, UsageQuery,
};

use crate::database::{Database, Kind, run};
use crate::rows::{attempt, budgets, day, reservation, tenant};

#[test]
fn one_process_per_file() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        let refused = database.try_open().await;
        assert!(matches!(&refused, Err(StoreError::Locked { file }) if file.ends_with("store.db")));
        // Under another name it is the same file.
        let link = format!("{}.link", database.name);
        std::os::unix::fs::symlink(&database.name, &link).unwrap();
        let refused = Store::open(&format!("sqlite:{link}"), StoreOptions::default()).await;
        assert!(matches!(refused, Err(StoreError::Locked { .. })));
        store.close().await.unwrap();
        database.open().await;
    });
}

#[test]
fn only_its_owner_can_read_the_file() {
    run(Kind::Sqlite, |database| async move {
        let _store = database.open().await;
        for file in [database.name.clone(), format!("{}-wal", database.name)] {
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    });
}

#[test]
fn a_newer_database_is_left_alone() {
    run(Kind::Sqlite, |database| async move {
        database.open().await.close().await.unwrap();
        let file = rusqlite::Connection::open(&database.name).unwrap();
        file.execute("INSERT INTO schema_version (version) VALUES (99)", []).unwrap();
        let refused = database.try_open().await;
        assert!(matches!(refused, Err(StoreError::TooNew { found: 99, .. })));
    });
}

#[test]
fn what_is_no_database_is_refused() {
    run(Kind::Sqlite, |database| async move {
        std::fs::write(&database.name, "once upon a time there was a file ".repeat(100)).unwrap();
        let Err(StoreError::Database(problem)) = database.try_open().await else {
            panic!("it was opened")
        };
        assert!(problem.contains("store.db") && problem.contains("not a database"), "{problem}");
        let nowhere = "sqlite:/no/such/folder/store.db";
        let Err(StoreError::Database(problem)) =
            Store::open(nowhere, StoreOptions::default()).await
        else {
            panic!("it was opened")
        };
        assert!(problem.contains("/no/such/folder"), "{problem}");
    });
}

#[test]
fn in_memory() {
    run(Kind::Sqlite, |_| async move {
        let open = || Store::open("sqlite::memory:", StoreOptions::default());
        let (store, _) = open().await.unwrap();
        let (other, _) = open().await.unwrap();
        tenant(&store, "chat", budgets(Some(10), None)).await;
        store.reserve(reservation("r", "chat", "k", 10)).await.unwrap().unwrap();
        store.record(attempt("r", "chat", "k", 4)).await.unwrap();
        assert_eq!(day(&store, "chat").await, (4, 0));
        assert_eq!(store.attempts(LedgerQuery::default()).await.unwrap().len(), 1);
        assert!(other.directory().await.unwrap().tenants.is_empty());
        store.close().await.unwrap();
        assert!(matches!(store.ping().await, Err(StoreError::Closed)));
    });
}

/// Rows that cannot be written are told, and the store goes on when there is room again.
#[test]
fn what_cannot_be_written_is_told() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        store.record(attempt("before", "chat", "k", 1)).await.unwrap();
        store.reserve(reservation("held", "chat", "k", 5)).await.unwrap().unwrap();
        // Someone else holds the write lock for longer than the store waits.
        let other = rusqlite::Connection::open(&database.name).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = store.record(attempt("held", "chat", "k", 1)).await;
        assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(day(&store, "chat").await, (1, 5));
        store.record(attempt("held", "chat", "k", 1)).await.unwrap();
        assert_eq!(day(&store, "chat").await, (2, 0));
    });
}

/// Questions about a part of a large ledger must not read all of it.
#[test]
fn questions_use_an_index() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", Limits::default()).await;
        store.close().await.unwrap();
        let file = rusqlite::Connection::open(&database.name).unwrap();
        let plan = |sql: &str| -> String {
            let mut plan = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let rows = plan.query_map([], |row| row.get::<_, String>(3)).unwrap();
            rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        let questions = [
            "SELECT * FROM attempts WHERE request = 'r' ORDER BY started_at DESC",
            "SELECT * FROM attempts WHERE tenant = 't' ORDER BY started_at DESC LIMIT 5",
            "SELECT tenant, SUM(charged) FROM attempts WHERE started_at >= 5 GROUP BY 1",
            "SELECT * FROM attempts ORDER BY started_at DESC LIMIT 5",
        ];
        for question in questions {
            let plan = plan(question);
            assert!(plan.contains("USING INDEX attempts_"), "{question}: {plan}");
        }
    });
}

/// How fast rows are written: `cargo test --release -p fairgate-store -- --ignored rows_per_second --nocapture`.
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
    let (seconds, cpu) = (before.0.elapsed().as_secs_f64(), cpu_seconds() - before.1);
    println!(
        "{:?}, request ids {}: {:.0} rows/s, {:.1} µs of CPU time a row, {CALLERS} callers",
        database.kind,
        if in_order { "in order" } else { "at random" },
        rows / seconds,
        cpu / rows * 1e6,
    );
    let query =
        UsageQuery { by: By::Tenant, since: UnixMicros(0), until: None, tenant: None, model: None };
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
