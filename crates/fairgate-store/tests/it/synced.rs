//! Changes of the directory outlive a machine that loses its power: the commit is synced before anyone is told of it. Here the
//! databases themselves say what was in force inside the transactions.

use fairgate_store::{
    DirectoryChange, LedgerQuery, Store, StoreError, Transaction, TransactionDurability,
};
use fairgate_testkit::postgres_server::shared_server;

use crate::database::number;
use crate::database::{Kind, run};
use crate::rows::{NOW, attempt, budgets, key, reservation, tenant};

#[test]
fn sqlite_syncs_changes_and_not_rows() {
    run(Kind::Sqlite, |database| async move {
        database.open().await.close().await.unwrap();
        let file = rusqlite::Connection::open(&database.name).unwrap();
        file.execute_batch(
            "CREATE TABLE seen (what TEXT, synchronous INTEGER);
             CREATE TRIGGER see_audit AFTER INSERT ON audit BEGIN
                 INSERT INTO seen SELECT 'change', synchronous FROM pragma_synchronous; END;
             CREATE TRIGGER see_row AFTER INSERT ON attempts BEGIN
                 INSERT INTO seen SELECT 'row', synchronous FROM pragma_synchronous; END;
             CREATE TRIGGER see_reservation AFTER INSERT ON reservations BEGIN
                 INSERT INTO seen SELECT 'reservation', synchronous FROM pragma_synchronous; END;",
        )
        .unwrap();
        let store = database.open().await;
        for round in 0..3 {
            tenant(&store, &format!("t{round}"), budgets(Some(100), None)).await;
            let id = key(&store, &format!("t{round}"), budgets(None, None)).await;
            let request = format!("r{round}");
            let held = reservation(&request, &format!("t{round}"), &id, 1);
            store.reserve(held).await.unwrap().unwrap();
            store.record(attempt(&request, &format!("t{round}"), &id, 1)).await.unwrap();
            store.attempts(LedgerQuery::default()).await.unwrap();
            store.change("test", NOW, DirectoryChange::RevokeKey { id }).await.unwrap();
        }
        store.close().await.unwrap();
        let seen = |what: &str| -> Vec<i64> {
            let mut seen = file.prepare("SELECT synchronous FROM seen WHERE what = ?1").unwrap();
            seen.query_map([what], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        };
        // 2 is FULL, 1 is NORMAL. One group, three tenants, three keys made and revoked.
        assert_eq!(seen("change"), [2; 10]);
        assert_eq!(seen("row"), [1; 3]);
        assert_eq!(seen("reservation"), [1; 3]);
    });
}

#[test]
fn postgres_syncs_changes_whatever_the_database_is_set_to() {
    run(Kind::Postgres, |database| async move {
        let name = &database.name;
        database.open().await.close().await.unwrap();
        let watch = "CREATE TABLE seen (setting TEXT);
            CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
            CREATE TRIGGER see_audit AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION see()";
        shared_server().run(name, watch).await.unwrap();
        for (setting, expected) in
            [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
        {
            let set = format!("ALTER DATABASE {name} SET synchronous_commit = {setting}");
            shared_server().run("postgres", &set).await.unwrap();
            let store = database.open().await;
            let group = DirectoryChange::AddGroup {
                name: setting.to_owned(),
                weight: 1,
                budgets: Vec::new(),
            };
            store.change("test", NOW, group).await.unwrap();
            store.close().await.unwrap();
            let seen = format!("SELECT COUNT(*) FROM seen WHERE setting = '{expected}'");
            assert_eq!(
                number(&shared_server().run(name, &seen).await.unwrap()),
                Some(1),
                "{setting}"
            );
        }
    });
}

#[test]
fn postgres_syncs_transactions_that_must_survive_a_power_loss() {
    async fn setting(store: &Store, keep: TransactionDurability) -> String {
        let read = |transaction: &mut dyn Transaction| -> Result<_, StoreError> {
            let sql = "SELECT current_setting('synchronous_commit')";
            transaction.first(sql, &[], |row| row.text(0))
        };
        store.transact(keep, read).await.unwrap().unwrap()
    }
    run(Kind::Postgres, |database| async move {
        for (set, expected) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
        {
            let sql = format!("ALTER DATABASE {} SET synchronous_commit = {set}", database.name);
            shared_server().run("postgres", &sql).await.unwrap();
            let store = database.open().await;
            for _ in 0..2 {
                let found = setting(&store, TransactionDurability::ThroughPowerLoss).await;
                assert_eq!(found, expected, "{set}");
                // The setting ends with its transaction.
                assert_eq!(setting(&store, TransactionDurability::ThroughKill).await, set);
            }
            store.close().await.unwrap();
        }
    });
}
