//! What only SQLite can be asked.

use fairgate_store::{LedgerQuery, Limits, Store, StoreError, StoreOptions};

use crate::database::{Kind, run};
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
