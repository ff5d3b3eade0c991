//! What only SQLite can be asked.

use std::future::Future as _;
use std::path::PathBuf;

use fairgate_store::{DirectoryLimits, LedgerQuery, Store, StoreError, StoreOptions};

use crate::database::{Database, Kind, run};
use crate::rows::{attempt, budgets, day, reservation, retried, tenant};

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
        let names = ["", "-wal", "-rows-0"];
        for file in names.map(|name| format!("{}{name}", database.name)) {
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

/// While somebody else holds the database for longer than the store waits, rows are safe beside it, and whoever asks is told.
#[test]
fn rows_are_kept_while_the_database_takes_none() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        store.record(attempt("before", "chat", "k", 1)).await.unwrap();
        store.reserve(reservation("held", "chat", "k", 5)).await.unwrap().unwrap();
        let other = rusqlite::Connection::open(&database.name).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        store.record(attempt("held", "chat", "k", 1)).await.unwrap();
        let refused = store.reserve(reservation("late", "chat", "k", 5)).await;
        assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
        let refused = store.attempts(LedgerQuery::default()).await;
        assert!(matches!(refused, Err(StoreError::Database(_))), "{refused:?}");
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(day(&store, "chat").await, (2, 0));
        // Nobody asks: the store tries again by itself.
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        store.record(attempt("later", "chat", "k", 1)).await.unwrap();
        let rows = beside(&database);
        assert!(!rows.is_empty());
        store.close().await.unwrap();
        assert_eq!(beside(&database), rows, "what is closed without room keeps its rows");
        other.execute_batch("ROLLBACK").unwrap();
        let store = database.open().await;
        assert_eq!(day(&store, "chat").await, (3, 0));
        assert_eq!(store.attempts(LedgerQuery::default()).await.unwrap().len(), 3);
        store.close().await.unwrap();
        assert_eq!(files_beside(&database), Vec::<PathBuf>::new());
    });
}

/// The row came into the database, and the process was killed before the row's line was gone.
#[test]
fn a_row_in_both_places_is_charged_once() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        let other = rusqlite::Connection::open(&database.name).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        store.record(attempt("once", "chat", "k", 3)).await.unwrap();
        let rows = beside(&database);
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(day(&store, "chat").await, (3, 0));
        store.close().await.unwrap();
        std::fs::write(part_of(&database, 1), &rows).unwrap();
        let store = database.open().await;
        assert_eq!(day(&store, "chat").await, (3, 0));
        assert_eq!(store.attempts(LedgerQuery::default()).await.unwrap().len(), 1);
    });
}

/// A first attempt's line is brought in twice, by two starts, and the second attempt was lost in between.
#[test]
fn a_line_that_is_brought_in_again_leaves_the_lost_row_alone() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        store.reserve(reservation("r", "chat", "k", 50)).await.unwrap().unwrap();
        let other = rusqlite::Connection::open(&database.name).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        store.record(retried("r", "chat", "k", 1)).await.unwrap();
        let rows = beside(&database);
        other.execute_batch("ROLLBACK").unwrap();
        store.close().await.unwrap();
        for _ in 0..2 {
            std::fs::write(part_of(&database, 0), &rows).unwrap();
            let store = database.open().await;
            assert_eq!(day(&store, "chat").await, (51, 0));
            let rows = store.attempts(LedgerQuery::default()).await.unwrap();
            let mut rows: Vec<_> = rows.iter().map(|row| (row.attempt, row.last)).collect();
            rows.sort_unstable();
            assert_eq!(rows, [(1, false), (2, true)]);
            store.close().await.unwrap();
        }
    });
}

/// Somebody asks for tokens and leaves, and its last row overtakes what it asked for.
#[test]
fn whoever_leaves_holds_nothing() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
        let other = rusqlite::Connection::open(&database.name).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        // The writer is held up by somebody else's question.
        let asker = store.clone();
        let held_up = tokio::spawn(async move {
            asker.reserve(reservation("first", "chat", "k", 1)).await.unwrap().unwrap();
        });
        {
            let mut reserve = std::pin::pin!(store.reserve(reservation("gone", "chat", "k", 50)));
            let waker = std::task::Waker::noop();
            let mut context = std::task::Context::from_waker(waker);
            assert!(reserve.as_mut().poll(&mut context).is_pending());
        }
        store.record(attempt("gone", "chat", "k", 3)).await.unwrap();
        other.execute_batch("ROLLBACK").unwrap();
        held_up.await.unwrap();
        assert_eq!(day(&store, "chat").await, (3, 1));
        store.record(attempt("first", "chat", "k", 1)).await.unwrap();
        store.close().await.unwrap();
        let (store, resolved) = database.try_open().await.unwrap();
        assert_eq!((resolved.reservations, day(&store, "chat").await), (0, (4, 0)));
    });
}

/// All places are taken by rows that the database does not take; the store closes all the same, and frees the file.
#[test]
fn a_store_that_cannot_write_can_be_closed() {
    run(Kind::Sqlite, |database| async move {
        let options = StoreOptions { pending_max: 2, ..StoreOptions::default() };
        let (store, _) = Store::open(&database.url, options).await.unwrap();
        let other = rusqlite::Connection::open(&database.name).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        store.record(attempt("a", "chat", "k", 1)).await.unwrap();
        store.record(attempt("b", "chat", "k", 1)).await.unwrap();
        store.close().await.unwrap();
        let late = store.record(attempt("c", "chat", "k", 1)).await;
        assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
        other.execute_batch("ROLLBACK").unwrap();
        let store = database.open().await;
        assert_eq!(store.attempts(LedgerQuery::default()).await.unwrap().len(), 2);
    });
}

fn part_of(database: &Database, part: u8) -> String {
    format!("{}-rows-{part}", database.name)
}

/// The files of lines beside the database, in order.
fn files_beside(database: &Database) -> Vec<PathBuf> {
    let files = std::fs::read_dir(database.folder.path()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.display().to_string().contains("-rows-")).collect();
    files.sort();
    files
}

/// The lines beside the database.
fn beside(database: &Database) -> Vec<u8> {
    files_beside(database).iter().flat_map(|file| std::fs::read(file).unwrap()).collect()
}

/// Questions about a part of a large ledger must not read all of it.
#[test]
fn questions_use_an_index() {
    run(Kind::Sqlite, |database| async move {
        let store = database.open().await;
        tenant(&store, "chat", DirectoryLimits::default()).await;
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
