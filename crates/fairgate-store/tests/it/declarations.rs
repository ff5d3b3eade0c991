//! Declarations of a configuration file, applied to a database of either kind.

use std::sync::Arc;

use fairgate_store::{
    AuditQuery, Budget, BudgetPeriod, BudgetTier, BudgetUnit, DeclarationError, Declarations,
    DeclaredKind, DeclaredObject, DirectoryChange, DirectoryLimits, Group, GroupPatch, Key,
    KeyHash, KeyPatch, KeyRights, Store, StoreError, Tenant, TenantPatch, UnixMicros,
};

use crate::database::{Database, on_every_database};

const NOW: UnixMicros = UnixMicros(5_000_000);

fn object<T>(line: u64, object: T) -> DeclaredObject<T> {
    DeclaredObject { line, object }
}

fn group() -> Group {
    let budget =
        |period, amount| Budget { period, unit: BudgetUnit::Tokens, tier: BudgetTier::Any, amount };
    let budgets = vec![budget(BudgetPeriod::Month, 70), budget(BudgetPeriod::Day, 7)];
    Group { name: "people".into(), weight: 100, budgets, created_at: UnixMicros(0) }
}

fn tenant(name: &str) -> Tenant {
    Tenant {
        name: name.into(),
        group: "people".into(),
        weight: 300,
        disabled: false,
        limits: DirectoryLimits { in_flight: Some(4), ..DirectoryLimits::default() },
        requires: vec!["docker".into()],
        created_at: UnixMicros(0),
    }
}

fn key(tenant: &str, secret: &str) -> Key {
    Key {
        id: String::new(),
        tenant: tenant.into(),
        name: "web".into(),
        hint: String::new(),
        hash: KeyHash::of(secret.as_bytes()),
        weight: 100,
        limits: DirectoryLimits::default(),
        rights: KeyRights { models: Some(vec!["gpt-*".into()]), ..KeyRights::default() },
        created_at: UnixMicros(0),
        expires_at: None,
        revoked_at: None,
    }
}

fn file() -> Declarations {
    Declarations {
        file: "fairgate.yaml".into(),
        gateway: "one:8080".into(),
        is_stated: true,
        groups: vec![object(2, group())],
        tenants: vec![object(4, tenant("chat")), object(5, tenant("batch"))],
        keys: vec![object(7, key("chat", "a")), object(8, key("batch", "b"))],
    }
}

async fn actions(store: &Store) -> Vec<String> {
    let query = AuditQuery { limit: 100, ..AuditQuery::default() };
    let mut entries = store.audit(query).await.unwrap();
    entries.reverse();
    entries.into_iter().map(|entry| format!("{} {}", entry.actor, entry.action)).collect()
}

async fn they_are_applied_once_and_audited(database: Database) {
    let store = database.open().await;
    let declared = Arc::new(file());
    let preview = store.preview_declarations(declared.clone(), NOW).await.unwrap();
    assert_eq!(store.directory().await.unwrap().groups, []);
    let plan = store.apply_declarations(declared.clone(), NOW, false).await.unwrap();
    assert_eq!(plan, preview);
    let directory = store.directory().await.unwrap();
    assert_eq!((directory.version, directory.tenants.len(), directory.keys.len()), (1, 2, 2));
    let budgets: Vec<u64> = directory.groups[0].budgets.iter().map(|it| it.amount).collect();
    assert_eq!(budgets, [7, 70]);
    assert_eq!(directory.tenants[1].requires, ["docker"]);
    assert_eq!(directory.keys[0].created_at, NOW);
    let record = directory.declaration(DeclaredKind::Tenant, "chat").unwrap();
    assert_eq!((&*record.file, record.line), ("fairgate.yaml", 4));
    assert_eq!(directory.declared_source.as_ref().map(|it| &*it.gateway), Some("one:8080"));
    let expected =
        ["config group.add", "config tenant.add", "config tenant.add", "config key.create"];
    assert_eq!(actions(&store).await[..4], expected);
    let again = store.apply_declarations(declared, NOW, false).await.unwrap();
    assert_eq!(again.steps, []);
    assert_eq!(store.directory().await.unwrap(), directory, "nothing is written again");
    store.close().await.unwrap();
}

async fn only_the_file_changes_what_it_declares(database: Database) {
    let store = database.open().await;
    store.apply_declarations(Arc::new(file()), NOW, false).await.unwrap();
    let id = store.directory().await.unwrap().keys[0].id.clone();
    let (people, chat) = (|| "people".to_owned(), || "chat".to_owned());
    let changes = [
        DirectoryChange::PatchGroup { name: people(), patch: GroupPatch::default() },
        DirectoryChange::RemoveGroup { name: people() },
        DirectoryChange::PatchTenant { name: chat(), patch: TenantPatch::default() },
        DirectoryChange::RemoveTenant { name: chat() },
        DirectoryChange::PatchKey { id: id.clone(), patch: KeyPatch::default() },
        DirectoryChange::RotateKey { id: id.clone() },
        DirectoryChange::RevokeKey { id },
    ];
    for change in changes {
        let refused = store.change("admin", NOW, change.clone()).await;
        assert!(matches!(refused, Err(StoreError::Declared { .. })), "{change:?}: {refused:?}");
    }
    // A tenant of the API may be in a declared group, and a key of the API in a declared tenant.
    let by_hand = DirectoryChange::CreateKey {
        tenant: chat(),
        name: "by hand".into(),
        weight: 100,
        limits: DirectoryLimits::default(),
        rights: KeyRights::default(),
        expires_at: None,
    };
    let made = store.change("admin", NOW, by_hand).await.unwrap().key.unwrap();
    let again = store.apply_declarations(Arc::new(file()), NOW, false).await.unwrap();
    assert_eq!(again.steps, []);
    store.change("admin", NOW, DirectoryChange::RevokeKey { id: made.id }).await.unwrap();
    store.close().await.unwrap();
}

async fn what_is_withdrawn_is_disabled_and_may_be_removed(database: Database) {
    let store = database.open().await;
    store.apply_declarations(Arc::new(file()), NOW, false).await.unwrap();
    let mut declared = file();
    declared.tenants.pop();
    declared.keys.pop();
    store.apply_declarations(Arc::new(declared.clone()), NOW, false).await.unwrap();
    let directory = store.directory().await.unwrap();
    assert!(directory.tenants[0].disabled && !directory.tenants[1].disabled);
    let revoked = directory.keys.iter().find(|key| key.tenant == "batch").unwrap();
    assert_eq!(revoked.revoked_at, Some(NOW));
    let restored = store.apply_declarations(Arc::new(file()), NOW, false).await.unwrap();
    assert_eq!(restored.steps.len(), 2);
    assert!(store.directory().await.unwrap().keys.iter().all(|key| key.revoked_at.is_none()));
    // More than half: refused, and nothing changes.
    let none = Declarations { tenants: vec![], keys: vec![], ..file() };
    let refused = store.apply_declarations(Arc::new(none.clone()), NOW, false).await;
    let expected = DeclarationError::DisablesMost { disabled: 4, usable: 4 };
    assert_eq!(refused.unwrap_err().to_string(), expected.to_string());
    assert!(store.directory().await.unwrap().tenants.iter().all(|tenant| !tenant.disabled));
    store.apply_declarations(Arc::new(none), NOW, true).await.unwrap();
    // It belongs to the API again, which may remove it; then nothing is left of it.
    for name in ["batch", "chat"] {
        let remove = DirectoryChange::RemoveTenant { name: name.into() };
        store.change("admin", NOW, remove).await.unwrap();
    }
    let left = store.directory().await.unwrap();
    assert_eq!((left.tenants.len(), left.keys.len(), left.declared.len()), (0, 0, 1));
    store.apply_declarations(Arc::new(file()), NOW, false).await.unwrap();
    assert_eq!(store.directory().await.unwrap().keys.len(), 2);
    store.close().await.unwrap();
}

async fn a_conflict_changes_nothing(database: Database) {
    let store = database.open().await;
    store.apply_declarations(Arc::new(file()), NOW, false).await.unwrap();
    let before = store.directory().await.unwrap();
    let mut declared = file();
    declared.tenants[0].object.weight = 1;
    declared.keys[1] = object(8, key("batch", "a"));
    let conflict = store.apply_declarations(Arc::new(declared), NOW, false).await.unwrap_err();
    let DeclarationError::Conflict(conflict) = conflict else { panic!("{conflict}") };
    assert_eq!((conflict.line, &*conflict.field), (8, "keys[1].secret"));
    assert_eq!(store.directory().await.unwrap(), before);
    store.close().await.unwrap();
}

on_every_database!(
    they_are_applied_once_and_audited,
    only_the_file_changes_what_it_declares,
    what_is_withdrawn_is_disabled_and_may_be_removed,
    a_conflict_changes_nothing,
);
