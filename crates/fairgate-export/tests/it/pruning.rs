//! Tests that old rows leave the ledger once they were sent, and a week later if they were not.

use fairgate_export::UNSENT_DAYS;
use fairgate_store::{AttemptRow, LedgerQuery, Store, UnixMicros};

use crate::fake_clickhouse::{FakeClickHouse, InsertMode};
use crate::ledger::{DAY, Ledger, NOW, export, finish, on_every_database, row};

on_every_database!(rows_that_were_not_sent_stay_a_week_longer);

async fn left(store: &Store) -> Vec<String> {
    let rows = store.attempts(LedgerQuery { limit: 100, ..LedgerQuery::default() }).await.unwrap();
    let mut left: Vec<String> = rows.into_iter().map(|row| row.request).collect();
    left.sort();
    left
}

async fn record_at(store: &Store, request: &str, days_ago: i64) {
    let started_at = UnixMicros(NOW.0 - days_ago * DAY);
    store.record(AttemptRow { started_at, ..row(request, 1) }).await.unwrap();
}

async fn rows_that_were_not_sent_stay_a_week_longer(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    let export = export(&store, &clickhouse);
    let mut task = export.task();
    record_at(&store, "sent, old", 31).await;
    record_at(&store, "sent, young", 29).await;
    finish(&mut task).await.unwrap();
    clickhouse.set_mode(InsertMode::Refuse(500, "Code: 243. DB::Exception: no space"));
    record_at(&store, "unsent, old", 31).await;
    record_at(&store, "unsent, older", 30 + UNSENT_DAYS + 1).await;
    record_at(&store, "unsent, young", 29).await;
    task.step().await.unwrap_err();
    let before = UnixMicros(NOW.0 - 30 * DAY);
    assert_eq!(export.prune(before).await.unwrap(), 2);
    assert_eq!(left(&store).await, ["sent, young", "unsent, old", "unsent, young"]);
    assert_eq!(export.status().rows_dropped, 1);
    clickhouse.set_mode(InsertMode::Take);
    finish(&mut task).await.unwrap();
    let sent: Vec<String> = clickhouse.counted().into_iter().map(|(request, _)| request).collect();
    assert_eq!(sent.len(), 4, "all but the one that was dropped: {sent:?}");
    assert_eq!(export.prune(before).await.unwrap(), 1);
    assert_eq!(left(&store).await, ["sent, young", "unsent, young"]);
    assert_eq!(export.status().rows_dropped, 1);
}
