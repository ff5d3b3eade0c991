//! Tests that each row counts once, in order, whichever step is interrupted.

use fairgate_export::ExportStep;

use crate::fake_clickhouse::{FakeClickHouse, InsertMode};
use crate::ledger::{Ledger, export, export_with, finish, on_every_database, options, record, row};

on_every_database!(
    rows_arrive_in_order_and_in_batches,
    what_was_sent_is_not_sent_again_after_a_restart,
    a_batch_of_unknown_fate_is_sent_again_and_counts_once,
    an_empty_table_gets_the_whole_ledger,
    another_target_is_filled_from_the_beginning,
    texts_and_times_are_as_in_the_ledger,
);

async fn rows_arrive_in_order_and_in_batches(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 7).await;
    let export = export(&store, &clickhouse);
    let mut task = export.task();
    assert_eq!(task.step().await.unwrap(), ExportStep::More);
    assert_eq!(clickhouse.tables().inserts, [3]);
    assert_eq!(export.status().backlog_rows, 4);
    assert!(export.status().is_active);
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.tables().inserts, [3, 3, 1]);
    assert_eq!(clickhouse.tables().versions, [2, 4, 6, 8, 10, 12, 14]);
    let status = export.status();
    assert_eq!((status.backlog_rows, status.backlog_seconds, status.rows_sent), (0, 0, 7));
    assert_eq!(status.problem, None);
    // Nothing is sent while there are no new rows, and later rows are sent.
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.tables().inserts.len(), 3);
    record(&store, 7, 1).await;
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.sum("money_micro"), (0..8).map(|number| 7 + number).sum::<u64>());
}

async fn what_was_sent_is_not_sent_again_after_a_restart(ledger: Ledger) {
    let clickhouse = FakeClickHouse::start().await;
    let store = ledger.open().await;
    record(&store, 0, 4).await;
    finish(&mut export(&store, &clickhouse).task()).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = ledger.open().await;
    record(&store, 4, 1).await;
    finish(&mut export(&store, &clickhouse).task()).await.unwrap();
    assert_eq!(clickhouse.tables().versions, [2, 4, 6, 8, 10]);
}

async fn a_batch_of_unknown_fate_is_sent_again_and_counts_once(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 5).await;
    let export_one = export(&store, &clickhouse);
    let mut task = export_one.task();
    // As if the gateway or ClickHouse had been killed after the insert and before its answer.
    clickhouse.set_mode(InsertMode::TakeAndHangUp);
    task.step().await.unwrap_err();
    drop(task);
    clickhouse.set_mode(InsertMode::Take);
    finish(&mut export(&store, &clickhouse).task()).await.unwrap();
    assert_eq!(clickhouse.tables().versions, [2, 4, 6, 2, 4, 6, 8, 10]);
    assert_eq!(clickhouse.counted().len(), 5);
    assert_eq!(clickhouse.sum("input_tokens"), (0..5).map(|number| 1_000 + number).sum::<u64>());
}

async fn an_empty_table_gets_the_whole_ledger(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 4).await;
    let export = export(&store, &clickhouse);
    let mut task = export.task();
    finish(&mut task).await.unwrap();
    // Somebody drops the table. The next insert finds that out, and the step after it begins again.
    clickhouse.drop_table();
    record(&store, 4, 1).await;
    let error = finish(&mut task).await.unwrap_err().to_string();
    assert!(error.contains("refused an insert with status 404"), "{error}");
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.counted().len(), 5);
}

async fn another_target_is_filled_from_the_beginning(ledger: Ledger) {
    let (store, one) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 4).await;
    finish(&mut export(&store, &one).task()).await.unwrap();
    let other = FakeClickHouse::start().await;
    finish(&mut export(&store, &other).task()).await.unwrap();
    assert_eq!((one.counted().len(), other.counted().len()), (4, 4));
}

async fn texts_and_times_are_as_in_the_ledger(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    let sent = row("r", 1);
    store.record(sent.clone()).await.unwrap();
    clickhouse.tables().is_new = true;
    // A row that is larger than a batch goes alone.
    let small = fairgate_export::ExportOptions { batch_bytes: 1, ..options() };
    store.record(row("s", 2)).await.unwrap();
    finish(&mut export_with(&store, &clickhouse, small).task()).await.unwrap();
    let tables = clickhouse.tables();
    assert_eq!(tables.inserts, [1, 1]);
    assert!(tables.paths.last().unwrap().contains("?database=usage&"), "{:?}", tables.paths);
    assert!(tables.paths.last().unwrap().contains("&async_insert=0&"), "{:?}", tables.paths);
    let row = tables.rows.values().next().unwrap();
    assert_eq!(row["session"], *sent.session.as_ref().unwrap());
    assert_eq!((&row["day"], &row["started_at"]), (&"2026-11-15".into(), &"1794731400".into()));
    assert_eq!(row["started_at_us"], sent.started_at.0);
    assert_eq!((&row["worker"], &row["first_token_us"]), (&"".into(), &serde_json::Value::Null));
    assert_eq!((&row["usage_source"], &row["outcome"]), (&"reported".into(), &"completed".into()));
}
