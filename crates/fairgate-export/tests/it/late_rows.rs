//! Tests of rows that become visible after rows with higher numbers, on PostgreSQL. They must be
//! sent too.

use std::time::Duration;

use fairgate_store::LedgerQuery;
use fairgate_testkit::postgres_server::shared_server;

use crate::fake_clickhouse::FakeClickHouse;
use crate::ledger::{Kind, Ledger, export_with, finish, options, record};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_becomes_visible_late_is_sent() {
    let ledger = Ledger::new(Kind::Postgres).await;
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 4).await;
    let rows = store.attempts(LedgerQuery::default()).await.unwrap();
    assert_eq!(rows.len(), 4, "a read brings all rows into the database");
    // Row 2 is moved aside, as if its transaction were not committed yet.
    let hide = "CREATE TABLE hidden AS SELECT * FROM attempts WHERE row_number = 2; \
                DELETE FROM attempts WHERE row_number = 2";
    shared_server().run(&ledger.name, hide).await.unwrap();
    let reread_after = Duration::from_millis(300);
    let export = export_with(
        &store,
        &clickhouse,
        fairgate_export::ExportOptions { reread_after, ..options() },
    );
    let mut task = export.task();
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.tables().versions, [2, 6, 8]);
    let show = "INSERT INTO attempts OVERRIDING SYSTEM VALUE SELECT * FROM hidden";
    shared_server().run(&ledger.name, show).await.unwrap();
    finish(&mut task).await.unwrap();
    assert_eq!(clickhouse.tables().versions, [2, 6, 8], "it is below what was sent");
    // The position is marked at most twelve times in that time, so it may take a little longer.
    let sent_late = async {
        while clickhouse.tables().versions.len() < 4 {
            tokio::time::sleep(reread_after / 4).await;
            finish(&mut task).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), sent_late).await.expect("it is looked for again");
    assert_eq!(clickhouse.tables().versions, [2, 6, 8, 4], "it alone is sent");
    let position = store.export_progress(export.target().to_owned()).await.unwrap().0;
    assert_eq!((position.sent, position.settled), (4, 4));
}

/// A gateway that takes over does not know which rows of the last minute were sent, and sends them
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_minute_is_sent_again_by_the_next_gateway() {
    let ledger = Ledger::new(Kind::Postgres).await;
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 5).await;
    let patient =
        fairgate_export::ExportOptions { reread_after: Duration::from_secs(60), ..options() };
    finish(&mut export_with(&store, &clickhouse, patient).task()).await.unwrap();
    assert_eq!(clickhouse.tables().versions, [2, 4, 6, 8, 10]);
    finish(&mut export_with(&store, &clickhouse, options()).task()).await.unwrap();
    assert_eq!(clickhouse.tables().versions[5..], [2, 4, 6, 8, 10]);
    assert_eq!(clickhouse.counted().len(), 5);
}
