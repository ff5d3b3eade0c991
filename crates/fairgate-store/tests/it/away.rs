//! PostgreSQL stands still for a while: rows are acknowledged all the same, those who cannot go on without it are told soon,
//! and afterwards every row is there once, also where the process was killed in the meantime.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fairgate_store::{Store, StoreError, StoreOptions};
use fairgate_testkit::postgres_server::PostgresServer;

use crate::crash::{all_rows, say};
use crate::database::{open_next, options, run_alone};
use crate::rows::{after, attempt, budgets, day, of_key, reservation, tenant};

const URL: &str = "FAIRGATE_STORE_AWAY_URL";
const SPOOL: &str = "FAIRGATE_STORE_AWAY_SPOOL";
/// More than are held in memory.
const ROWS: u32 = 1_500;
const RESERVED: u32 = 40;
const LEASE: Duration = Duration::from_secs(1);

fn few_in_memory() -> StoreOptions {
    StoreOptions { pending_max: 100, lease: LEASE, ..options() }
}

/// Records the rows, of which the first have something reserved. Each has a moment of its own.
async fn record(store: &Store, number: u32) {
    let mut row = attempt(&format!("r{number}"), "chat", "k", 3);
    row.started_at = after(number.into());
    store.record(row).await.unwrap();
}

async fn reserve_some(store: &Store) {
    for number in 0..RESERVED {
        let held = reservation(&format!("r{number}"), "chat", "k", 50);
        store.reserve(held).await.unwrap().unwrap();
    }
}

#[test]
fn rows_come_in_when_the_server_is_back() {
    let server = PostgresServer::start_for_tests().unwrap();
    run_alone(async {
        let folder = tempfile::tempdir().unwrap();
        let url = server.socket_url(&server.create_database().await.unwrap());
        let spool = Some(folder.path().join("spool"));
        let patience = StoreOptions::default().patience;
        let refused = Store::open(&url, few_in_memory()).await.unwrap_err().to_string();
        assert!(refused.contains("store.spool"), "{refused}");
        let (store, _) =
            Store::open(&url, StoreOptions { spool, patience, ..few_in_memory() }).await.unwrap();
        for (name, mode) in [("spool", 0o700), ("spool/lock", 0o600), ("spool/rows-0", 0o600)] {
            let found = std::fs::metadata(folder.path().join(name)).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::mode(&found) & 0o777, mode, "{name}");
        }
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        reserve_some(&store).await;
        server.hang().unwrap();
        let mut slowest = Duration::ZERO;
        for number in 0..ROWS {
            let begun = Instant::now();
            record(&store, number).await;
            slowest = slowest.max(begun.elapsed());
        }
        assert!(slowest < Duration::from_millis(250), "{slowest:?}");
        assert_eq!(store.rows_waiting(), u64::from(ROWS));
        // The best of three: this machine may have much else to do.
        let (mut reserve, mut look) = (Duration::MAX, Duration::MAX);
        for number in 0..3 {
            let begun = Instant::now();
            let held = reservation(&format!("late{number}"), "chat", "k", 1);
            let refused = store.reserve(held).await;
            assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
            reserve = reserve.min(begun.elapsed());
            let begun = Instant::now();
            let refused = store.budgets(of_key("chat", "k"), after(0)).await;
            assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
            look = look.min(begun.elapsed());
        }
        println!("slowest row {slowest:?}, reserve refused in {reserve:?}, budgets in {look:?}");
        assert!(reserve < Duration::from_millis(250) && look < Duration::from_millis(250));
        server.go_on().unwrap();
        tokio::time::timeout(Duration::from_secs(60), async {
            while store.rows_waiting() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the rows come in");
        check(&store, ROWS, "all of them").await;
        store.close().await.unwrap();
        let left = std::fs::read_dir(folder.path().join("spool")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
    });
}

/// Each row is there once, and what it was charged; nothing stays reserved.
async fn check(store: &Store, rows: u32, what: &str) {
    let found = all_rows(store).await;
    let requests: BTreeSet<_> = found.iter().map(|row| row.request.as_str()).collect();
    let missing: Vec<_> =
        (0..rows).map(|n| format!("r{n}")).filter(|r| !requests.contains(r.as_str())).collect();
    assert!(missing.is_empty(), "{what}: {} are gone, such as {}", missing.len(), missing[0]);
    assert_eq!(requests.len(), found.len(), "{what}: none is there twice");
    let charged: u64 = found.iter().map(|row| row.charged).sum();
    tokio::time::timeout(Duration::from_secs(20), async {
        while day(store, "chat").await != (charged, 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the sums are those of the rows, and nothing stays reserved");
}

/// The child: reserves, waits until it may go on, and records until it is killed.
#[test]
#[ignore = "the child process of the test below"]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    run_alone(async {
        let spool = std::env::var_os(SPOOL).map(Into::into);
        let store = open_next(&url, StoreOptions { spool, ..few_in_memory() }).await;
        reserve_some(&store).await;
        say("ready");
        std::io::stdin().lock().read_line(&mut String::new()).unwrap();
        for number in 0.. {
            record(&store, number).await;
            say(&format!("recorded {number}"));
        }
    });
}

#[test]
fn killed_while_the_server_is_away() {
    let server = PostgresServer::start_for_tests().unwrap();
    run_alone(async {
        let folder = tempfile::tempdir().unwrap();
        let url = server.socket_url(&server.create_database().await.unwrap());
        let spool = folder.path().join("spool");
        let options = StoreOptions { spool: Some(spool.clone()), ..few_in_memory() };
        let (store, _) = Store::open(&url, options.clone()).await.unwrap();
        tenant(&store, "chat", budgets(Some(1_000_000_000), None)).await;
        store.close().await.unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["away::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(URL, &url)
            .env(SPOOL, &spool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(told.any(|line| line.ends_with("ready")), "the child is ready");
        // Its folder is its own.
        let refused = Store::open(&url, options.clone()).await.unwrap_err();
        assert!(matches!(&refused, StoreError::SpoolLocked { .. }), "{refused}");
        assert!(refused.to_string().contains("store.spool"), "{refused}");
        server.hang().unwrap();
        child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        let number = |line: &str| line.strip_prefix("recorded ")?.parse::<u32>().ok();
        assert!(told.any(|line| number(&line) >= Some(ROWS)), "rows are acknowledged");
        child.kill().unwrap();
        // What was said before the kill is still in the pipe after it.
        let last = told.filter_map(|line| number(&line)).max().unwrap_or(ROWS);
        child.wait().unwrap();
        server.go_on().unwrap();
        let (store, _) = Store::open(&url, options).await.unwrap();
        check(&store, last + 1, "after the kill").await;
        store.close().await.unwrap();
    });
}
