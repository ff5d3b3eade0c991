//! A database of schema 2, with rows, sums, budgets and a reservation in it, is brought up to date and means what it meant.

use fairgate_store::{
    Budget, BudgetOwners, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, HostedUse, KeyRights,
};
use fairgate_testkit::postgres_server::shared_server;

use crate::database::{Database, Kind, run};
use crate::ledger::of_request;
use crate::rows::{NOW, attempt, of_key, reservation};

const STEPS: [(&str, &str); 2] = [
    (
        include_str!("../../src/migrations/1.sqlite.sql"),
        include_str!("../../src/migrations/1.postgres.sql"),
    ),
    (
        include_str!("../../src/migrations/2.sqlite.sql"),
        include_str!("../../src/migrations/2.postgres.sql"),
    ),
];

/// What a Fairgate of schema 2 left when it was killed. Day 20772 is 2026-11-15, day 20758 the first of that month.
const DATA: &str = "
INSERT INTO tenant_groups VALUES ('staff', 1, 5);
INSERT INTO tenants VALUES ('chat', 'staff', 1, FALSE, NULL, NULL, NULL, NULL, NULL, 5);
INSERT INTO tenants VALUES ('batch', 'staff', 1, FALSE, NULL, NULL, NULL, NULL, NULL, 5);
INSERT INTO tenant_keys VALUES ('k', 'chat', '', '', HASH, 1, NULL, NULL, NULL, NULL, NULL, NULL, '[\"a\"]', 5, NULL, NULL);
INSERT INTO budgets VALUES ('tenant', 'chat', 'day', 1000);
INSERT INTO budgets VALUES ('key', 'k', 'month', 5000);
INSERT INTO sums VALUES ('tenant', 'chat', 'day', 20772, 70, 30), ('tenant', 'chat', 'month', 20758, 70, 30),
    ('key', 'k', 'day', 20772, 70, 30), ('key', 'k', 'month', 20758, 70, 30),
    ('tenant', 'batch', 'day', 20772, 5, 0), ('tenant', 'batch', 'month', 20758, 5, 0),
    ('tenant', 'gone', 'day', 20772, 9, 0);
INSERT INTO reservations VALUES ('flew', 'staff', 'chat', 'k', 'llama', 30, 1794731400000000 INSTANCE);
INSERT INTO attempts VALUES ('old', 1, TRUE, 1794731400000000, 'staff', 'chat', 'k', NULL, NULL, '-', FALSE, 'llama',
    'p', 'w', 60, 10, 0, 20, 70, 'reported', 1, NULL, 2, 200, 'completed', NULL, FALSE, 0);
INSERT INTO schema_version (version) VALUES (1), (2);
";

const VERSION_TABLE: &str = "CREATE TABLE schema_version (version BIGINT NOT NULL);";

#[test]
fn from_schema_2_on_sqlite() {
    run(Kind::Sqlite, |database| async move {
        let file = rusqlite::Connection::open(&database.name).unwrap();
        let schema = STEPS.map(|(sqlite, _)| sqlite).concat();
        let hash = format!("x'{}'", "07".repeat(32));
        let data = DATA.replace(" INSTANCE", "").replace("HASH", &hash);
        file.execute_batch(&[VERSION_TABLE, &schema, &data].concat()).unwrap();
        file.close().unwrap();
        check(database).await;
    });
}

#[test]
fn from_schema_2_on_postgres() {
    run(Kind::Postgres, |database| async move {
        let schema = STEPS.map(|(_, postgres)| postgres).concat();
        let hash = format!("'\\x{}'", "07".repeat(32));
        let data = DATA.replace(" INSTANCE", ", 42").replace("HASH", &hash);
        shared_server()
            .run(&database.name, &[VERSION_TABLE, &schema, &data].concat())
            .await
            .unwrap();
        check(database).await;
    });
}

async fn check(database: Database) {
    let (store, resolved) = database.try_open().await.unwrap();
    assert_eq!((resolved.reservations, resolved.tokens), (1, 30));
    let old = &of_request(&store, "old").await[0];
    // Budgets had counted what was charged.
    assert_eq!((old.charged, old.provider_tokens), (70, 70));
    assert_eq!((old.money.0, old.price.as_deref(), old.tier), (0, None, 0));
    let lost = &of_request(&store, "flew").await[0];
    assert_eq!((lost.charged, lost.provider_tokens, lost.tier), (30, 30, 0));
    let directory = store.directory().await.unwrap();
    let chat = directory.tenants.iter().find(|tenant| tenant.name == "chat").unwrap();
    assert_eq!(chat.limits.budgets, [Budget::tokens(1_000, BudgetPeriod::Day)]);
    assert_eq!(chat.limits.hosted, HostedUse::Allowed);
    // A key keeps what it might do, and may choose nothing that it could not before.
    let classes = Some(vec!["a".to_owned()]);
    let kept =
        KeyRights { classes, may_lease: true, may_use_foreign_ids: true, ..KeyRights::default() };
    assert_eq!(directory.keys[0].rights, kept);
    assert!(directory.hosted.is_empty() && directory.groups[0].budgets.is_empty());
    let left = store.budgets(of_key("chat", "k"), NOW).await.unwrap();
    let told: Vec<_> = left
        .iter()
        .map(|it| (it.scope, it.unit, it.tier, it.limit, it.used, it.reserved))
        .collect();
    let tokens = (BudgetUnit::Tokens, BudgetTier::Any);
    let expected = [
        (BudgetScope::Tenant, tokens.0, tokens.1, 1_000, 100, 0),
        (BudgetScope::Key, tokens.0, tokens.1, 5_000, 100, 0),
    ];
    assert_eq!(told, expected);
    // A group begins with what its tenants used.
    let patch = fairgate_store::GroupPatch {
        budgets: Some(vec![
            Budget::tokens(200, BudgetPeriod::Day),
            Budget::tokens(300, BudgetPeriod::Month),
        ]),
        ..fairgate_store::GroupPatch::default()
    };
    let patch = fairgate_store::DirectoryChange::PatchGroup { name: "staff".to_owned(), patch };
    store.change("test", NOW, patch).await.unwrap();
    let group = BudgetOwners { group: Some("staff"), ..BudgetOwners::default() };
    let left = store.budgets(group, NOW).await.unwrap();
    assert_eq!(left.iter().map(|it| (it.used, it.reserved)).collect::<Vec<_>>(), [(105, 0); 2]);
    store.reserve(reservation("new", "batch", "k2", 95)).await.unwrap().unwrap();
    store.record(attempt("new", "batch", "k2", 1)).await.unwrap();
}

/// The schema steps before rights were one text.
const STEPS_8: [(&str, &str); 8] = [
    STEPS[0],
    STEPS[1],
    (
        include_str!("../../src/migrations/3.sqlite.sql"),
        include_str!("../../src/migrations/3.postgres.sql"),
    ),
    (
        include_str!("../../src/migrations/4.sqlite.sql"),
        include_str!("../../src/migrations/4.postgres.sql"),
    ),
    (
        include_str!("../../src/migrations/5.sqlite.sql"),
        include_str!("../../src/migrations/5.postgres.sql"),
    ),
    (
        include_str!("../../src/migrations/6.sqlite.sql"),
        include_str!("../../src/migrations/6.postgres.sql"),
    ),
    (
        include_str!("../../src/migrations/7.sqlite.sql"),
        include_str!("../../src/migrations/7.postgres.sql"),
    ),
    (
        include_str!("../../src/migrations/8.sqlite.sql"),
        include_str!("../../src/migrations/8.postgres.sql"),
    ),
];

/// Three keys and a project of schema 8. Key `key-a` has the rights of a key that was made without any word about them.
const DATA_8: &str = "
INSERT INTO tenant_groups (name, weight, created_at) VALUES ('staff', 1, 5);
INSERT INTO tenants (name, group_name, weight, disabled, created_at) VALUES ('chat', 'staff', 1, FALSE, 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, models, classes, created_at)
    VALUES ('key-a', 'chat', '', '', HASH1, 1, NULL, 'null', 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, models, classes, priority_max, may_pin, taints, deadline_ms,
    deadline_min_ms, created_at)
    VALUES ('key-b', 'chat', '', '', HASH2, 1, '[\"gpt \\\"4\\\"\"]', '[]', 7, TRUE, 'null', 5000, 250, 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, models, classes, created_at, revoked_at)
    VALUES ('key-c', 'chat', '', '', HASH3, 1, NULL, '[\"a\",\"ü\"]', 5, 6);
INSERT INTO fleet_projects (id, tenant, made, status, weight, concurrency, exclusive, agent_max, busy, baseline, baseline_at,
    window_bucket, window_tokens, window_oldest, window_completed, created_at)
    VALUES ('web', 'chat', 1, 'ACTIVE', 1000, 2, FALSE, '{}', FALSE, 0, 0, 0, 0, 0, 0, 5);
INSERT INTO schema_version (version) VALUES (1), (2), (3), (4), (5), (6), (7), (8);
";

fn with_hashes(format: impl Fn(String) -> String) -> String {
    (1..=3).fold(DATA_8.to_owned(), |data, number| {
        data.replace(&format!("HASH{number}"), &format(format!("0{number}").repeat(32)))
    })
}

#[test]
fn keys_and_projects_of_schema_8_keep_what_they_may_do_on_sqlite() {
    run(Kind::Sqlite, |database| async move {
        let file = rusqlite::Connection::open(&database.name).unwrap();
        let schema = STEPS_8.map(|(sqlite, _)| sqlite).concat();
        let data = with_hashes(|hash| format!("x'{hash}'"));
        file.execute_batch(&[VERSION_TABLE, &schema, &data].concat()).unwrap();
        file.close().unwrap();
        check_rights(database).await;
    });
}

#[test]
fn keys_and_projects_of_schema_8_keep_what_they_may_do_on_postgres() {
    run(Kind::Postgres, |database| async move {
        let schema = STEPS_8.map(|(_, postgres)| postgres).concat();
        let data = with_hashes(|hash| format!("'\\x{hash}'"));
        shared_server()
            .run(&database.name, &[VERSION_TABLE, &schema, &data].concat())
            .await
            .unwrap();
        check_rights(database).await;
    });
}

async fn check_rights(database: Database) {
    let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let kept = KeyRights { may_lease: true, may_use_foreign_ids: true, ..KeyRights::default() };
    let a = KeyRights { classes: None, ..kept.clone() };
    let b = KeyRights {
        models: names(&["gpt \"4\""]),
        classes: names(&[]),
        priority_max: 7,
        may_pin: true,
        taints: None,
        deadline_ms: Some(5000),
        deadline_min_ms: Some(250),
        ..kept.clone()
    };
    let c = KeyRights { classes: names(&["a", "ü"]), ..kept.clone() };
    // The second start finds the same, and migrates nothing.
    for _ in 0..2 {
        let (store, _) = database.try_open().await.unwrap();
        let directory = store.directory().await.unwrap();
        let rights: Vec<_> = directory.keys.iter().map(|key| key.rights.clone()).collect();
        assert_eq!(rights, [a.clone(), b.clone(), c.clone()]);
        let read = |transaction: &mut dyn fairgate_store::Transaction| {
            let sql = "SELECT rights FROM fleet_projects WHERE id = 'web'";
            transaction.first(sql, &[], |row| row.text(0))
        };
        let project = store.inspect(read).await.unwrap().unwrap();
        assert_eq!(KeyRights::from_stored_text(&project).unwrap(), a);
        store.close().await.unwrap();
    }
}
