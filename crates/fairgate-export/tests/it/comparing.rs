//! Tests of the comparison of the ledger with its copy, exact to the token and the micro-unit.

use fairgate_store::UnixMicros;
use fairgate_time::UtcDay;

use crate::fake_clickhouse::FakeClickHouse;
use crate::ledger::{DAY, Ledger, NOW, export, finish, on_every_database, record, row};

on_every_database!(a_difference_of_one_unit_is_found);

async fn a_difference_of_one_unit_is_found(ledger: Ledger) {
    let (store, clickhouse) = (ledger.open().await, FakeClickHouse::start().await);
    record(&store, 0, 4).await;
    let yesterday = UnixMicros(NOW.0 - DAY);
    store
        .record(fairgate_store::AttemptRow { started_at: yesterday, ..row("y", 9) })
        .await
        .unwrap();
    let export = export(&store, &clickhouse);
    let (first, last) = (UtcDay::of(yesterday), UtcDay::of(NOW));
    let error = export.compare(first, last).await.unwrap_err().to_string();
    assert!(error.contains("there is no table usage.fairgate_attempts"), "{error}");
    let mut task = export.task();
    finish(&mut task).await.unwrap();
    let compared = export.compare(UtcDay(first.0 - 1), last).await.unwrap();
    assert!(compared.is_equal(), "{compared:?}");
    let rows: Vec<u64> = compared.days.iter().map(|day| day.ledger.rows).collect();
    assert_eq!((rows, compared.rows_not_compared), (vec![0, 1, 4], 0));
    assert_eq!(compared.days[1].clickhouse.money, 7 + 9);
    // What waits is compared on neither side.
    record(&store, 4, 3).await;
    let compared = export.compare(first, last).await.unwrap();
    assert!(compared.is_equal(), "{compared:?}");
    assert_eq!((compared.days[1].ledger.rows, compared.rows_not_compared), (4, 3));
    finish(&mut task).await.unwrap();
    let change = |column: &str, by: i64| {
        let mut tables = clickhouse.tables();
        let row = tables.rows.values_mut().next_back().unwrap();
        let changed = row[column].as_i64().unwrap() + by;
        row.insert(column.to_owned(), changed.into());
    };
    for column in ["money_micro", "input_tokens", "cached_tokens", "output_tokens", "charged"] {
        change(column, 1);
        let compared = export.compare(first, last).await.unwrap();
        assert!(!compared.is_equal(), "{column}");
        let equal: Vec<bool> = compared.days.iter().map(|day| day.is_equal()).collect();
        assert_eq!(equal, [true, false], "{column}");
        change(column, -1);
    }
    clickhouse.tables().rows.pop_last();
    assert!(!export.compare(first, last).await.unwrap().is_equal());
}
