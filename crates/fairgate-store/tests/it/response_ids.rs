//! The owners of response ids, on both databases.

use fairgate_store::{DirectoryChange, DirectoryLimits, Store, StoredResponseId, UnixMicros};

use crate::database::{Database, Kind, run};
use crate::rows::{NOW, tenant};

#[test]
fn ids_have_one_owner_and_each_tenant_its_own_bound_on_sqlite() {
    run(Kind::Sqlite, check);
}

#[test]
fn ids_have_one_owner_and_each_tenant_its_own_bound_on_postgres() {
    run(Kind::Postgres, check);
}

fn after(seconds: i64) -> UnixMicros {
    UnixMicros(NOW.0 + seconds * 1_000_000)
}

fn stored(id: &str, tenant: &str, tokens: u64, expires: i64) -> StoredResponseId {
    StoredResponseId {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        tokens,
        expires_at: after(expires),
    }
}

async fn owners(store: &Store, ids: &[&str], now: UnixMicros) -> Vec<String> {
    let ids = ids.iter().map(|&id| id.to_owned()).collect();
    let mut found: Vec<String> = store
        .response_ids(ids, now)
        .await
        .unwrap()
        .into_iter()
        .map(|found| format!("{} {} {}", found.id, found.tenant, found.tokens))
        .collect();
    found.sort();
    found
}

async fn check(database: Database) {
    let store = database.open().await;
    for name in ["a", "b"] {
        tenant(&store, name, DirectoryLimits::default()).await;
    }
    let put = async |ids: Vec<StoredResponseId>, now: i64| {
        store.put_response_ids(ids, 2, after(now)).await.unwrap();
    };
    put(vec![stored("r1", "a", 7, 100), stored("r \"2\" ü", "b", 1, 100)], 0).await;
    // Nobody takes an id from another; its own tenant renews it; an unknown tenant gets none.
    put(
        vec![stored("r1", "b", 9, 100), stored("r1", "a", 8, 100), stored("r9", "none", 1, 100)],
        1,
    )
    .await;
    let all = ["r1", "r \"2\" ü", "r9", "unknown"];
    assert_eq!(owners(&store, &all, after(2)).await, ["r \"2\" ü b 1", "r1 a 8"]);
    // A tenant with many ids pushes out its own oldest, and nobody else's.
    for number in 3..9 {
        put(vec![stored(&format!("r{number}"), "a", 0, 100)], number).await;
    }
    let names = ["r1", "r3", "r4", "r5", "r6", "r7", "r8", "r \"2\" ü"];
    assert_eq!(owners(&store, &names, after(9)).await, ["r \"2\" ü b 1", "r7 a 0", "r8 a 0"]);
    // What has expired is unknown, and may be given to another tenant.
    assert!(owners(&store, &names, after(100)).await.is_empty());
    put(vec![stored("r8", "b", 5, 300)], 100).await;
    assert_eq!(owners(&store, &["r7", "r8"], after(101)).await, ["r8 b 5"]);
    store.close().await.unwrap();
    let store = database.open().await;
    assert_eq!(owners(&store, &["r8"], after(101)).await, ["r8 b 5"], "a restart knows it");
    // The ids of a tenant go with it, so that a later one of that name does not get them.
    let remove = DirectoryChange::RemoveTenant { name: "b".to_owned() };
    store.change("test", NOW, remove).await.unwrap();
    assert!(owners(&store, &["r8"], after(101)).await.is_empty());
}
