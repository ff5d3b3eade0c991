//! Tests that guessed rows (with the outcome `lost`) that were replaced do not count, as in the
//! ledger.

use std::time::Duration;

use fairgate_store::{AttemptOutcome, AttemptRow, Budget, BudgetPeriod, DirectoryChange};
use fairgate_store::{DirectoryLimits, Store, UnixMicros};
use fairgate_time::UtcDay;

use crate::fake_clickhouse::FakeClickHouse;
use crate::ledger::{DAY, Kind, Ledger, NOW, export, finish, reservation, row};

/// Adds a tenant with a budget, so that reservations are stored.
async fn add_tenant(store: &Store) {
    let group =
        DirectoryChange::AddGroup { name: "staff".to_owned(), weight: 1, budgets: Vec::new() };
    store.change("test", NOW, group).await.unwrap();
    let budgets = vec![Budget::tokens(1_000_000, BudgetPeriod::Day)];
    let limits = DirectoryLimits { budgets, ..DirectoryLimits::default() };
    let (name, group) = ("chat".to_owned(), "staff".to_owned());
    let add = DirectoryChange::AddTenant { name, group, weight: 1, limits, requires: Vec::new() };
    store.change("test", NOW, add).await.unwrap();
}

/// Waits until another store has found the reservation of a store that counts as dead.
async fn wait_for_lost(store: &Store, request: &str) -> AttemptRow {
    let found = async {
        loop {
            let query = fairgate_store::LedgerQuery {
                request: Some(request.to_owned()),
                ..fairgate_store::LedgerQuery::default()
            };
            if let Some(row) = store.attempts(query).await.unwrap().pop() {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("it is taken for lost")
}

/// The guess has the day of the reservation, and the real row the day of the arrival, one day
/// earlier. The table would keep both rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_guess_of_another_day_counts_nothing() {
    let ledger = Ledger::new(Kind::Postgres).await;
    // Its lease is never renewed in time, so it is taken for dead at once.
    let paused = ledger.open_with_lease(Duration::from_micros(1)).await;
    add_tenant(&paused).await;
    let clickhouse = FakeClickHouse::start().await;
    let export = export(&paused, &clickhouse);
    let mut task = export.task();
    finish(&mut task).await.unwrap();
    let midnight = UtcDay(UtcDay::of(NOW).0 + 1).midnight();
    paused.reserve(reservation("r", midnight)).await.unwrap().unwrap();
    let other = ledger.open_with_lease(Duration::from_millis(50)).await;
    let lost = wait_for_lost(&other, "r").await;
    assert_eq!((lost.outcome, lost.money.0), (AttemptOutcome::Lost, 900));
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.sum("money_micro"), 900);
    // The process was only slow: it writes what really was.
    let real = AttemptRow { started_at: UnixMicros(midnight.0 - 1), ..row("r", 1) };
    paused.record(real.clone()).await.unwrap();
    finish(&mut task).await.unwrap();
    assert_eq!(paused.removed_attempts(10).await.unwrap(), [], "what was told is forgotten");
    assert_eq!(clickhouse.sum("money_micro"), real.money.0);
    assert_eq!(clickhouse.sum("provider_tokens"), real.provider_tokens);
    assert_eq!(clickhouse.counted(), [("r".to_owned(), 1)]);
    assert_eq!(clickhouse.tables().rows.len(), 2, "the guess is there, and counts nothing");
    let days = (UtcDay::of(NOW), UtcDay::of(UnixMicros(NOW.0 + DAY)));
    let compared = export.check(days.0, days.1).await.unwrap();
    assert!(compared.is_equal(), "{compared:?}");
}

/// A guess that was replaced before it was sent leaves no row that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guess_that_was_never_sent_counts_nothing_either() {
    let ledger = Ledger::new(Kind::Postgres).await;
    let paused = ledger.open_with_lease(Duration::from_micros(1)).await;
    add_tenant(&paused).await;
    let clickhouse = FakeClickHouse::start().await;
    let export = export(&paused, &clickhouse);
    let mut task = export.task();
    finish(&mut task).await.unwrap();
    paused.reserve(reservation("r", NOW)).await.unwrap().unwrap();
    let other = ledger.open_with_lease(Duration::from_millis(50)).await;
    wait_for_lost(&other, "r").await;
    let real = row("r", 1);
    paused.record(real.clone()).await.unwrap();
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.sum("money_micro"), real.money.0);
    assert_eq!(clickhouse.counted(), [("r".to_owned(), 1)]);
}

/// Removals are only recorded for an export that exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_export_nothing_is_noted() {
    let ledger = Ledger::new(Kind::Postgres).await;
    let paused = ledger.open_with_lease(Duration::from_micros(1)).await;
    add_tenant(&paused).await;
    paused.reserve(reservation("r", NOW)).await.unwrap().unwrap();
    let other = ledger.open_with_lease(Duration::from_millis(50)).await;
    wait_for_lost(&other, "r").await;
    paused.record(row("r", 1)).await.unwrap();
    // A store brings its own rows into the database before it reads.
    let rows = wait_for_lost(&paused, "r").await;
    assert_eq!(rows.outcome, AttemptOutcome::Completed);
    assert_eq!(paused.removed_attempts(10).await.unwrap(), []);
}

/// On SQLite, a process resolves the reservations that the process before it left. Rows that it
/// finds in its files replace the guesses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_guess_is_replaced_by_a_row_of_the_same_attempt() {
    let ledger = Ledger::new(Kind::Sqlite).await;
    let store = ledger.open().await;
    add_tenant(&store).await;
    let clickhouse = FakeClickHouse::start().await;
    finish(&mut export(&store, &clickhouse).task()).await.unwrap();
    store.reserve(reservation("r", UnixMicros(NOW.0 + DAY))).await.unwrap().unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = ledger.open().await;
    let export = export(&store, &clickhouse);
    let mut task = export.task();
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.sum("money_micro"), 900);
    store.record(row("r", 1)).await.unwrap();
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.sum("money_micro"), row("r", 1).money.0);
    assert_eq!(clickhouse.counted(), [("r".to_owned(), 1)]);
}
