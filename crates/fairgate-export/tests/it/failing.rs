//! Tests with a ClickHouse that is unreachable, slow, full or refuses: rows wait in the ledger, and
//! nothing is lost.

use std::time::Duration;

use fairgate_export::{ExportError, ExportOptions, LedgerExport};
use fairgate_store::LedgerQuery;

use crate::fake_clickhouse::{FakeClickHouse, InsertMode, columns};
use crate::ledger::{
    Kind, Ledger, export, export_with, finish, on_every_database, options, record, target,
};

on_every_database!(
    what_clickhouse_does_not_take_waits,
    a_table_with_other_columns_is_named_and_left_alone,
    a_second_gateway_waits_for_the_first,
);

async fn what_clickhouse_does_not_take_waits(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 2).await;
    let export = export_with(
        &store,
        &clickhouse,
        ExportOptions { timeout: Duration::from_millis(200), ..options() },
    );
    let mut task = export.task();
    for (failures, (mode, message, summary)) in (1..).zip([
        (
            InsertMode::Refuse(
                500,
                "Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space",
            ),
            "refused an insert with status 500: Code: 243",
            "does not do what it is asked",
        ),
        (
            InsertMode::Refuse(
                500,
                "Code: 193, e.displayText() = DB::Exception: Wrong password for user x",
            ),
            "refuses the user or the password",
            "refuses the user or the password",
        ),
        (InsertMode::Hang, "does not answer: no answer within 0.2 s", "does not answer"),
    ]) {
        clickhouse.set_mode(mode);
        let error = task.step().await.unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        let status = export.status();
        assert_eq!((status.backlog_rows, status.failures), (2, failures));
        assert!(status.backlog_seconds > 0, "the rows are from 2026-11-15");
        let warning = status.warning().unwrap();
        assert!(warning.contains(summary) && !warning.contains("127.0.0.1"), "{warning}");
    }
    clickhouse.set_mode(InsertMode::Take);
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.counted().len(), 2);
    assert_eq!(export.status().warning(), None);
}

async fn a_table_with_other_columns_is_named_and_left_alone(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 2).await;
    let mut other = columns();
    other.retain(|(name, _)| name != "money_micro");
    other[3].1 = "UInt8".to_owned();
    clickhouse.set_table(other, "MergeTree");
    let export = export(&store, &clickhouse);
    let mut task = export.task();
    let error = task.step().await.unwrap_err();
    assert!(matches!(error, ExportError::OtherTable { .. }));
    let error = error.to_string();
    for part in [
        "usage.fairgate_attempts",
        "its engine is MergeTree, not ReplacingMergeTree",
        "the column attempt is UInt8, not UInt32",
        "the column money_micro UInt64 is missing",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(clickhouse.tables().inserts.is_empty());
    assert_eq!(export.status().backlog_rows, 2);
    // Once it fits, the export goes on by itself.
    clickhouse.set_table(columns(), "ReplacingMergeTree");
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.counted().len(), 2);
}

/// SQLite has only one gateway, so the same store may hold the lock twice.
async fn a_second_gateway_waits_for_the_first(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 2).await;
    let one = export(&store, &clickhouse);
    let mut first = one.task();
    finish(&mut first).await.unwrap();
    if ledger.name.is_empty() {
        return;
    }
    let second_store = ledger.open().await;
    let other = export(&second_store, &clickhouse);
    let mut second = other.task();
    record(&store, 2, 2).await;
    let rows = store.attempts(LedgerQuery::default()).await.unwrap();
    assert_eq!(rows.len(), 4, "a read brings all rows into the database");
    finish(&mut second).await.unwrap();
    assert_eq!((clickhouse.counted().len(), other.status().is_active), (2, false));
    assert_eq!(other.status().backlog_rows, 2, "each gateway knows the backlog");
    // The first gateway ends, and the second goes on where it was.
    drop(first);
    let taken_over = async {
        while clickhouse.counted().len() < 4 {
            finish(&mut second).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), taken_over).await.expect("the lock is free");
    assert_eq!(clickhouse.counted().len(), 4);
    assert!(other.status().is_active);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_named_without_its_password() {
    let ledger = Ledger::new(Kind::Sqlite).await;
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    let mut target = target(&clickhouse);
    target.credential = Some(("fairgate".to_owned(), "s3cret".to_owned()));
    clickhouse.tables().credential = Some(("fairgate", "other"));
    let export = LedgerExport::new(store.clone(), &target, options());
    let error = export.task().step().await.unwrap_err();
    assert!(matches!(error, ExportError::Credential { .. }), "{error}");
    clickhouse.tables().credential = Some(("fairgate", "s3cret"));
    finish(&mut export.task()).await.unwrap();
    drop(clickhouse);
    let mut task = export.task();
    let error = task.step().await.unwrap_err().to_string();
    assert!(error.contains("does not answer: cannot connect"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
    // The loop ends with the store, whatever ClickHouse does.
    store.close().await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), export.clone().run()).await.expect("it ends");
}
