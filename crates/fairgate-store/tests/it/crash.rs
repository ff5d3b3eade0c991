//! kill -9 under load: what was acknowledged is there, once, and nothing stays reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fairgate_store::{
    AttemptOutcome, AttemptRow, BudgetTier, HostedMaximum, LedgerQuery, MicroUnits, Reservation,
    Store, StoreOptions,
};

use crate::database::{Database, on_every_database, open_next, options};
use crate::money::{every_kind, group_budgets, hosted_budgets, limits, sums_equal_rows};
use crate::rows::{after, attempt, day, key, reservation, retried, tenant};

on_every_database!(killed_under_load);

/// Where the child finds its database.
const URL: &str = "FAIRGATE_STORE_CHILD_URL";
const KEY: &str = "FAIRGATE_STORE_CHILD_KEY";
const ROUND: &str = "FAIRGATE_STORE_CHILD_ROUND";
const SPOOL: &str = "FAIRGATE_STORE_CHILD_SPOOL";
const LEASE: Duration = Duration::from_millis(600);
const RESERVED: u64 = 50;
const COST: u64 = 1_234_567;

pub(crate) fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{words}").and_then(|()| out.flush()).expect("the parent listens");
}

/// The child: reserves and records until it is killed, and says what was acknowledged.
#[test]
#[ignore = "the child process of the crash tests"]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let (key, round) = (std::env::var(KEY).unwrap(), std::env::var(ROUND).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let spool = std::env::var_os(SPOOL).map(Into::into);
        let options = StoreOptions { lease: LEASE, spool, ..options() };
        let store = open_next(&url, options).await;
        let loops = (0..16).map(|worker| {
            tokio::spawn(work(store.clone(), key.clone(), format!("{round}-{worker}")))
        });
        for endless in loops.collect::<Vec<_>>() {
            endless.await.unwrap();
        }
    });
}

async fn work(store: Store, key: String, name: String) {
    for number in 0_u32.. {
        let at = after(number.into());
        let request = format!("{name}-{number}");
        let hosted = HostedMaximum { provider_tokens: RESERVED, money: MicroUnits(COST) };
        let held = Reservation {
            at,
            money: MicroUnits(7),
            hosted: (number % 4 > 0).then_some(hosted),
            ..reservation(&request, "chat", &key, RESERVED)
        };
        store.reserve(held).await.unwrap().unwrap();
        say(&format!("reserved {request}"));
        let started_at = at;
        let charged = u64::from(number % 70);
        let mut last = AttemptRow {
            started_at,
            money: MicroUnits(u64::from(number) * 31),
            tier: number % 3,
            ..attempt(&request, "chat", &key, charged)
        };
        if number % 3 == 0 {
            let first = AttemptRow { started_at, ..retried(&request, "chat", &key, 1) };
            store.record(first).await.unwrap();
            say(&format!("recorded {request} 1 1"));
            last.attempt = 2;
        }
        let told = format!("recorded {request} {} {}", last.attempt, last.charged);
        store.record(last).await.unwrap();
        say(&told);
    }
}

/// What the child said before it died.
#[derive(Default)]
struct Acknowledged {
    reserved: BTreeSet<String>,
    /// What was charged, by request and attempt.
    rows: BTreeMap<(String, u32), u64>,
}

/// Runs a child, kills it after so many lines, and gives what it said until then.
fn run_and_kill(database: &Database, key: &str, round: u32, lines: usize) -> Acknowledged {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(URL, &database.url)
        .env(SPOOL, database.spool(0))
        .env(KEY, key)
        .env(ROUND, round.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Acknowledged::default();
    let mut heard = 0;
    // What was said before the kill is still in the pipe after it, the last line perhaps cut.
    while let Some(Ok(line)) = told.next() {
        heard += 1;
        if heard == lines {
            // SIGKILL.
            child.kill().unwrap();
        }
        match *line.split(' ').collect::<Vec<_>>() {
            ["reserved", request] => drop(acknowledged.reserved.insert(request.to_owned())),
            ["recorded", request, number, charged] => {
                let (number, charged) = (number.parse().unwrap(), charged.parse().unwrap());
                let again = acknowledged.rows.insert((request.to_owned(), number), charged);
                assert_eq!(again, None);
            }
            _ => {}
        }
    }
    child.wait().unwrap();
    assert!(heard >= lines, "the child ended by itself");
    acknowledged
}

/// All rows, by way of the requests that there may be: the ledger lists a thousand at a time.
pub(crate) async fn all_rows(store: &Store) -> Vec<AttemptRow> {
    let mut rows = Vec::new();
    let mut until = None;
    loop {
        let query = LedgerQuery { until, limit: 1_000, ..LedgerQuery::default() };
        let page = store.attempts(query).await.unwrap();
        // Rows of one moment do not span pages: the child gives each request a moment of its own.
        let Some(oldest) = page.last().map(|row| row.started_at) else { return rows };
        rows.extend(page.into_iter().filter(|row| row.started_at > oldest));
        let rest = LedgerQuery {
            since: Some(oldest),
            until: Some(fairgate_store::UnixMicros(oldest.0 + 1)),
            ..LedgerQuery::default()
        };
        rows.extend(store.attempts(rest).await.unwrap());
        until = Some(oldest);
    }
}

async fn killed_under_load(database: Database) {
    let store = database.open().await;
    let plenty = every_kind(1_000_000_000_000);
    tenant(&store, "chat", limits(plenty.clone())).await;
    let key = key(&store, "chat", limits(plenty.clone())).await;
    group_budgets(&store, plenty.clone()).await;
    let hosted = plenty.into_iter().filter(|budget| budget.tier == BudgetTier::Hosted);
    hosted_budgets(&store, hosted.collect()).await;
    store.close().await.unwrap();
    let mut expected = Acknowledged::default();
    for round in 0..3 {
        let told = run_and_kill(&database, &key, round, 150 + 130 * round as usize);
        expected.reserved.extend(told.reserved);
        expected.rows.extend(told.rows);
        let (store, _) = database.open_with_lease(LEASE).await;
        // On PostgreSQL the dead process's lease must run out first.
        tokio::time::timeout(Duration::from_secs(20), async {
            while day(&store, "chat").await.1 > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("what the dead process reserved is resolved");
        check(&store, &key, &expected).await;
        store.close().await.unwrap();
    }
}

async fn check(store: &Store, key: &str, expected: &Acknowledged) {
    let mut rows = BTreeMap::new();
    for row in all_rows(store).await {
        let again = rows.insert((row.request.clone(), row.attempt), row);
        assert!(again.is_none(), "a row is there twice");
    }
    for (row, charged) in &expected.rows {
        let found = rows.get(row).unwrap_or_else(|| panic!("{row:?} was acknowledged and is gone"));
        assert_eq!(
            (found.charged, found.outcome == AttemptOutcome::Lost),
            (*charged, false),
            "{row:?}"
        );
    }
    let mut lasts: BTreeMap<&str, u32> = BTreeMap::new();
    for row in rows.values() {
        *lasts.entry(&row.request).or_default() += u32::from(row.last);
        if row.outcome == AttemptOutcome::Lost {
            assert_eq!((row.charged, row.key.as_str()), (RESERVED, key));
            let money = if row.tier > 0 { COST } else { 7 };
            assert_eq!((row.provider_tokens, row.money), (RESERVED, MicroUnits(money)));
        }
    }
    for request in &expected.reserved {
        assert_eq!(lasts.get(request.as_str()), Some(&1), "{request} has one last row");
    }
    sums_equal_rows(store, &[("chat", key)]).await;
}
