//! Groups, tenants and keys, their changes, and the trail of these.

use fairgate_store::{
    AuditEntry, AuditQuery, Budget, BudgetPeriod, DEADLINE_MS_MAX, DirectoryChange,
    DirectoryLimits, GroupPatch, KeyHash, KeyPatch, KeyRights, PRIORITY_MAX, RightsPatch, Store,
    StoreError, TenantPatch, UnixMicros, WEIGHT_MILLI_MAX,
};

use crate::database::{Database, on_every_database};
use crate::rows::{NOW, after, budgets, key, of_key, tenant};

on_every_database!(
    starts_empty,
    everything_is_read_back,
    a_key_is_a_hash,
    patches_change_what_they_name,
    a_rotated_key_has_another_secret,
    revoking_twice_changes_nothing,
    removing,
    what_is_missing_or_there_already,
    bad_fields_change_nothing,
    the_trail_tells_everything_and_no_secret,
    versions_rise,
    changes_at_once_are_all_made,
    a_change_is_undone_once,
);

async fn change(
    store: &Store,
    change: DirectoryChange,
) -> Result<fairgate_store::DirectoryChangeResult, StoreError> {
    store.change("admin", NOW, change).await
}

async fn starts_empty(database: Database) {
    let store = database.open().await;
    let directory = store.directory().await.unwrap();
    assert!(
        directory.groups.is_empty() && directory.tenants.is_empty() && directory.keys.is_empty()
    );
    assert_eq!(directory.version, store.directory_version().await.unwrap());
    store.ping().await.unwrap();
}

async fn everything_is_read_back(database: Database) {
    let store = database.open().await;
    let limits = DirectoryLimits {
        in_flight: Some(1),
        queued_requests: Some(1),
        queued_bytes: Some(1_000_000_000_000_000),
        requests_per_minute: Some(60),
        tokens_per_minute: Some(5),
        budgets: vec![Budget::tokens(7, BudgetPeriod::Month), Budget::tokens(0, BudgetPeriod::Day)],
        hosted: fairgate_store::HostedUse::Never,
    };
    for name in ["zebra", "ä — group", "Alpha"] {
        change(
            &store,
            DirectoryChange::AddGroup { name: name.to_owned(), weight: 3, budgets: Vec::new() },
        )
        .await
        .unwrap();
    }
    let add = DirectoryChange::AddTenant {
        requires: Vec::new(),
        name: "chat".to_owned(),
        group: "zebra".to_owned(),
        weight: 1_000_000,
        limits: limits.clone(),
    };
    let made = change(&store, add).await.unwrap().tenant.unwrap();
    let rights = KeyRights {
        models: Some(vec!["gpt \"quoted\"".to_owned(), "llama".to_owned()]),
        classes: Some(vec!["batch".to_owned()]),
        priority_max: PRIORITY_MAX,
        weight_max_milli: Some(WEIGHT_MILLI_MAX),
        workers: Some(vec!["gpu-1".to_owned()]),
        may_pin: true,
        may_lease: true,
        may_use_foreign_ids: true,
        taints: Some(vec!["gpu=h100".to_owned()]),
        deadline_ms: Some(DEADLINE_MS_MAX),
        deadline_min_ms: Some(1),
    };
    let create = DirectoryChange::CreateKey {
        tenant: "chat".to_owned(),
        name: String::new(),
        weight: 2,
        limits,
        rights: rights.clone(),
        expires_at: Some(after(1)),
    };
    let changed = change(&store, create).await.unwrap();
    let open = key(&store, "chat", DirectoryLimits::default()).await;
    store.close().await.unwrap();

    let directory = database.open().await.directory().await.unwrap();
    let names: Vec<_> = directory.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["Alpha", "zebra", "ä — group"]);
    assert_eq!(directory.groups[0].weight, 3);
    assert_eq!(directory.tenants, std::slice::from_ref(&made));
    let periods: Vec<_> = made.limits.budgets.iter().map(|budget| budget.period).collect();
    assert_eq!(periods, [BudgetPeriod::Day, BudgetPeriod::Month]);
    assert_eq!((made.limits.queued_requests, made.disabled), (Some(1), false));
    assert_eq!(directory.keys.len(), 2);
    let made = changed.key.unwrap();
    assert!(directory.keys.contains(&made));
    assert_eq!(made.expires_at, Some(after(1)));
    assert_eq!(made.rights, rights);
    let open = directory.keys.iter().find(|key| key.id == open).unwrap();
    assert_eq!((open.expires_at, open.revoked_at), (None, None));
    assert_eq!(open.rights, KeyRights::default());
    assert!(directory.keys.is_sorted_by_key(|key| &key.id));
}

async fn a_key_is_a_hash(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    let id = key(&store, "chat", DirectoryLimits::default()).await;
    let rotated = change(&store, DirectoryChange::RotateKey { id }).await.unwrap();
    let secret = rotated.secret.unwrap();
    let key = &store.directory().await.unwrap().keys[0];
    assert_eq!(key.hash, KeyHash::of(secret.expose().as_bytes()));
    assert_eq!(key.hint, secret.hint());
    assert!(!format!("{key:?}").contains(secret.expose()));
}

async fn patches_change_what_they_name(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(5), Some(6))).await;
    let id = key(&store, "chat", budgets(Some(1), None)).await;
    change(
        &store,
        DirectoryChange::AddGroup { name: "guests".to_owned(), weight: 1, budgets: Vec::new() },
    )
    .await
    .unwrap();
    let before = store.directory().await.unwrap();

    let patch = GroupPatch { weight: Some(9), ..GroupPatch::default() };
    change(&store, DirectoryChange::PatchGroup { name: "staff".to_owned(), patch }).await.unwrap();
    let patch = TenantPatch { group: Some("guests".to_owned()), ..TenantPatch::default() };
    change(&store, DirectoryChange::PatchTenant { name: "chat".to_owned(), patch }).await.unwrap();
    let patch = TenantPatch {
        disabled: Some(true),
        weight: Some(4),
        limits: Some(budgets(None, Some(8))),
        ..TenantPatch::default()
    };
    change(&store, DirectoryChange::PatchTenant { name: "chat".to_owned(), patch }).await.unwrap();
    let patch = KeyPatch {
        rights: RightsPatch { models: Some(Some(Vec::new())), ..RightsPatch::default() },
        expires_at: Some(Some(after(5))),
        ..KeyPatch::default()
    };
    change(&store, DirectoryChange::PatchKey { id: id.clone(), patch }).await.unwrap();

    let mut expected = before;
    expected.version += 4;
    expected.groups[1].weight = 9;
    let tenant = &mut expected.tenants[0];
    tenant.group = "guests".to_owned();
    (tenant.disabled, tenant.weight, tenant.limits) = (true, 4, budgets(None, Some(8)));
    expected.keys[0].rights.models = Some(Vec::new());
    expected.keys[0].expires_at = Some(after(5));
    assert_eq!(store.directory().await.unwrap(), expected);

    let patch = KeyPatch {
        name: Some("phone".to_owned()),
        weight: Some(2),
        limits: Some(DirectoryLimits::default()),
        rights: RightsPatch {
            models: Some(None),
            classes: Some(None),
            priority_max: Some(7),
            weight_max_milli: Some(Some(2500)),
            workers: Some(Some(vec!["gpu-2".to_owned()])),
            may_pin: Some(true),
            may_lease: Some(true),
            may_use_foreign_ids: Some(true),
            taints: Some(None),
            deadline_ms: Some(Some(5000)),
            deadline_min_ms: Some(Some(250)),
        },
        expires_at: Some(None),
    };
    let key = change(&store, DirectoryChange::PatchKey { id, patch }).await.unwrap().key.unwrap();
    assert_eq!(
        (key.name.as_str(), key.weight, key.limits.clone()),
        ("phone", 2, DirectoryLimits::default())
    );
    assert_eq!(key.expires_at, None);
    let all = KeyRights {
        models: None,
        classes: None,
        priority_max: 7,
        weight_max_milli: Some(2500),
        workers: Some(vec!["gpu-2".to_owned()]),
        may_pin: true,
        may_lease: true,
        may_use_foreign_ids: true,
        taints: None,
        deadline_ms: Some(5000),
        deadline_min_ms: Some(250),
    };
    assert_eq!(key.rights, all);
    let patch = KeyPatch {
        rights: RightsPatch { deadline_ms: Some(None), ..RightsPatch::default() },
        ..KeyPatch::default()
    };
    let patch = DirectoryChange::PatchKey { id: key.id, patch };
    let key = change(&store, patch).await.unwrap().key.unwrap();
    assert_eq!(key.rights, KeyRights { deadline_ms: None, ..all });
    assert_eq!(store.directory().await.unwrap().keys, [key]);
}

async fn a_rotated_key_has_another_secret(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    let id = key(&store, "chat", budgets(Some(3), None)).await;
    let before = store.directory().await.unwrap().keys.remove(0);
    let rotated = change(&store, DirectoryChange::RotateKey { id: id.clone() }).await.unwrap();
    let after = rotated.key.unwrap();
    assert_ne!(after.hash, before.hash);
    let expected = fairgate_store::Key { hash: after.hash, hint: after.hint.clone(), ..before };
    assert_eq!(store.directory().await.unwrap().keys, [expected]);

    change(&store, DirectoryChange::RevokeKey { id: id.clone() }).await.unwrap();
    let refused = change(&store, DirectoryChange::RotateKey { id }).await;
    assert!(matches!(refused, Err(StoreError::Invalid { field: "id", .. })));
}

async fn revoking_twice_changes_nothing(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    let id = key(&store, "chat", DirectoryLimits::default()).await;
    let revoke = || DirectoryChange::RevokeKey { id: id.clone() };
    let once = store.change("admin", after(1), revoke()).await.unwrap();
    let twice = store.change("admin", after(2), revoke()).await.unwrap();
    assert_eq!(once, twice);
    assert_eq!(once.key.unwrap().revoked_at, Some(after(1)));
    let trail = store.audit(AuditQuery::default()).await.unwrap();
    assert_eq!(trail.iter().filter(|entry| entry.action == "key.revoke").count(), 1);
}

async fn removing(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(5), None)).await;
    let id = key(&store, "chat", budgets(Some(5), None)).await;
    let group = || DirectoryChange::RemoveGroup { name: "staff".to_owned() };
    assert!(matches!(change(&store, group()).await, Err(StoreError::InUse { what: "group", .. })));
    change(&store, DirectoryChange::RemoveTenant { name: "chat".to_owned() }).await.unwrap();
    change(&store, group()).await.unwrap();
    let directory = store.directory().await.unwrap();
    assert!(
        directory.groups.is_empty() && directory.tenants.is_empty() && directory.keys.is_empty()
    );
    // No budget is left behind for those who take the names later.
    assert!(store.budgets(of_key("chat", &id), NOW).await.unwrap().is_empty());
    tenant(&store, "chat", DirectoryLimits::default()).await;
    assert_eq!(store.directory().await.unwrap().tenants[0].limits, DirectoryLimits::default());
}

async fn what_is_missing_or_there_already(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    let name = |name: &str| name.to_owned();
    let limits = DirectoryLimits::default;
    let missing = [
        DirectoryChange::PatchGroup { name: name("x"), patch: GroupPatch::default() },
        DirectoryChange::RemoveGroup { name: name("x") },
        DirectoryChange::AddTenant {
            requires: Vec::new(),
            name: name("new"),
            group: name("x"),
            weight: 1,
            limits: limits(),
        },
        DirectoryChange::PatchTenant { name: name("x"), patch: TenantPatch::default() },
        DirectoryChange::PatchTenant {
            name: name("chat"),
            patch: TenantPatch { group: Some(name("x")), ..TenantPatch::default() },
        },
        DirectoryChange::RemoveTenant { name: name("x") },
        DirectoryChange::CreateKey {
            tenant: name("x"),
            name: name("k"),
            weight: 1,
            limits: limits(),
            rights: KeyRights::default(),
            expires_at: None,
        },
        DirectoryChange::PatchKey { id: name("x"), patch: KeyPatch::default() },
        DirectoryChange::RotateKey { id: name("x") },
        DirectoryChange::RevokeKey { id: name("x") },
    ];
    let before = store.directory().await.unwrap();
    for asked in missing {
        let refused = change(&store, asked.clone()).await;
        assert!(
            matches!(&refused, Err(StoreError::NotFound { name, .. }) if name == "x"),
            "{asked:?}: {refused:?}"
        );
    }
    let there = [
        DirectoryChange::AddGroup { name: name("staff"), weight: 1, budgets: Vec::new() },
        DirectoryChange::AddTenant {
            requires: Vec::new(),
            name: name("chat"),
            group: name("staff"),
            weight: 1,
            limits: limits(),
        },
    ];
    for asked in there {
        assert!(matches!(change(&store, asked).await, Err(StoreError::Exists { .. })));
    }
    assert_eq!(store.directory().await.unwrap(), before);
}

async fn bad_fields_change_nothing(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    let id = key(&store, "chat", DirectoryLimits::default()).await;
    let before = store.directory().await.unwrap();
    let long = "x".repeat(129);
    let patch = |patch| DirectoryChange::PatchKey { id: id.clone(), patch };
    let rights = |rights| patch(KeyPatch { rights, ..KeyPatch::default() });
    let limited = |limits| DirectoryChange::PatchTenant {
        name: "chat".to_owned(),
        patch: TenantPatch { limits: Some(limits), ..TenantPatch::default() },
    };
    let day = Budget::tokens(1, BudgetPeriod::Day);
    let names = |count: usize| Some(Some(vec!["m".to_owned(); count]));
    let bad = [
        ("name", DirectoryChange::AddGroup { name: String::new(), weight: 1, budgets: Vec::new() }),
        ("name", DirectoryChange::AddGroup { name: long.clone(), weight: 1, budgets: Vec::new() }),
        (
            "name",
            DirectoryChange::AddGroup {
                name: "a\u{0}b".to_owned(),
                weight: 1,
                budgets: Vec::new(),
            },
        ),
        (
            "weight",
            DirectoryChange::AddGroup { name: "g".to_owned(), weight: 0, budgets: Vec::new() },
        ),
        (
            "weight",
            DirectoryChange::AddGroup {
                name: "g".to_owned(),
                weight: 1_000_001,
                budgets: Vec::new(),
            },
        ),
        ("name", patch(KeyPatch { name: Some(long.clone()), ..KeyPatch::default() })),
        ("weight", patch(KeyPatch { weight: Some(0), ..KeyPatch::default() })),
        ("models", rights(RightsPatch { models: names(257), ..RightsPatch::default() })),
        (
            "models",
            rights(RightsPatch {
                models: Some(Some(vec!["x".repeat(257)])),
                ..RightsPatch::default()
            }),
        ),
        (
            "classes",
            rights(RightsPatch {
                classes: Some(Some(vec![String::new()])),
                ..RightsPatch::default()
            }),
        ),
        (
            "taints",
            rights(RightsPatch {
                taints: Some(Some(vec!["x".repeat(129)])),
                ..RightsPatch::default()
            }),
        ),
        ("priority_max", rights(RightsPatch { priority_max: Some(-1), ..RightsPatch::default() })),
        (
            "priority_max",
            rights(RightsPatch { priority_max: Some(PRIORITY_MAX + 1), ..RightsPatch::default() }),
        ),
        (
            "deadline_ms",
            rights(RightsPatch { deadline_ms: Some(Some(0)), ..RightsPatch::default() }),
        ),
        (
            "deadline_min_ms",
            rights(RightsPatch {
                deadline_min_ms: Some(Some(DEADLINE_MS_MAX + 1)),
                ..RightsPatch::default()
            }),
        ),
        ("expires_at", patch(KeyPatch { expires_at: Some(Some(NOW)), ..KeyPatch::default() })),
        (
            "expires_at",
            patch(KeyPatch { expires_at: Some(Some(UnixMicros(i64::MAX))), ..KeyPatch::default() }),
        ),
        (
            "budgets",
            limited(DirectoryLimits { budgets: vec![day, day], ..DirectoryLimits::default() }),
        ),
        ("budgets", limited(budgets(Some(u64::MAX), None))),
        (
            "in_flight",
            limited(DirectoryLimits { in_flight: Some(0), ..DirectoryLimits::default() }),
        ),
        (
            "queued_bytes",
            limited(DirectoryLimits { queued_bytes: Some(u64::MAX), ..DirectoryLimits::default() }),
        ),
    ];
    for (wanted, asked) in bad {
        let refused = change(&store, asked.clone()).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if *field == wanted),
            "{asked:?}: {refused:?}"
        );
    }
    let ok = DirectoryChange::AddGroup { name: "g".to_owned(), weight: 1, budgets: Vec::new() };
    let refused = store.change(&long, NOW, ok).await;
    assert!(matches!(refused, Err(StoreError::Invalid { field: "actor", .. })));
    assert_eq!(store.directory().await.unwrap(), before);
    change(&store, rights(RightsPatch { models: names(256), ..RightsPatch::default() }))
        .await
        .unwrap();
}

async fn the_trail_tells_everything_and_no_secret(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    let id = key(&store, "chat", DirectoryLimits::default()).await;
    let secret = change(&store, DirectoryChange::RotateKey { id: id.clone() })
        .await
        .unwrap()
        .secret
        .unwrap();
    let patch = TenantPatch { weight: Some(2), ..TenantPatch::default() };
    change(&store, DirectoryChange::PatchTenant { name: "chat".to_owned(), patch }).await.unwrap();
    let _ = change(&store, DirectoryChange::RemoveGroup { name: "staff".to_owned() }).await;
    change(&store, DirectoryChange::RemoveTenant { name: "chat".to_owned() }).await.unwrap();

    let trail = store.audit(AuditQuery::default()).await.unwrap();
    let told: Vec<_> = trail.iter().map(|entry| entry.action.as_str()).collect();
    let expected =
        ["tenant.remove", "tenant.patch", "key.rotate", "key.create", "tenant.add", "group.add"];
    assert_eq!(told, expected);
    let patched = &trail[1];
    assert_eq!(
        (patched.actor.as_str(), patched.at, patched.subject.as_str()),
        ("admin", NOW, "chat")
    );
    assert_eq!(patched.before.as_ref().unwrap()["weight"], 1);
    assert_eq!(patched.after.as_ref().unwrap()["weight"], 2);
    assert_eq!(trail[0].before.as_ref().unwrap()["keys"][0], id.as_str());
    assert_eq!(trail[0].after, None);
    assert_eq!(trail[5].before, None);
    let text = serde_json::to_string(&trail).unwrap();
    let hash: String = KeyHash::of(secret.expose().as_bytes())
        .0
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(!text.contains(secret.expose()) && !text.contains(&hash) && !text.contains("\"hash\""));

    let page = store.audit(AuditQuery { limit: 2, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(page, trail[..2]);
    let next = store
        .audit(AuditQuery { before: Some(page[1].id), limit: 1, ..AuditQuery::default() })
        .await
        .unwrap();
    assert_eq!(next, trail[2..3]);
    let of = async |query: AuditQuery| store.audit(query).await.unwrap();
    let any = AuditQuery::default();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(of(AuditQuery { id: Some(trail[1].id), ..any.clone() }).await, trail[1..2]);
    let tenants: Vec<_> =
        trail.iter().filter(|it| it.action.starts_with("tenant.")).cloned().collect();
    assert!(!tenants.is_empty());
    assert_eq!(of(AuditQuery { action: text("tenant"), ..any.clone() }).await, tenants);
    let first = &tenants[0];
    let query = AuditQuery {
        action: text(&first.action),
        subject: text(&first.subject),
        actor: text(&first.actor),
        since: Some(first.at),
        ..any.clone()
    };
    assert!(of(query.clone()).await.contains(first));
    assert_eq!(of(AuditQuery { until: Some(trail[5].at), ..query }).await, []);
    assert_eq!(of(AuditQuery { action: text("ten"), ..any }).await, []);
}

async fn versions_rise(database: Database) {
    let store = database.open().await;
    let mut last = store.directory_version().await.unwrap();
    for group in ["a", "b", "c"] {
        let add =
            DirectoryChange::AddGroup { name: group.to_owned(), weight: 1, budgets: Vec::new() };
        let version = change(&store, add).await.unwrap().version;
        assert_eq!(version, last + 1);
        last = version;
    }
    let same = GroupPatch { weight: Some(1), ..GroupPatch::default() };
    let asked = DirectoryChange::PatchGroup { name: "a".to_owned(), patch: same };
    assert_eq!(change(&store, asked).await.unwrap().version, last);
    assert_eq!(store.directory_version().await.unwrap(), last);
    assert_eq!(store.audit(AuditQuery::default()).await.unwrap().len(), 3);
}

async fn changes_at_once_are_all_made(database: Database) {
    let store = database.open().await;
    let mut changes = Vec::new();
    for number in 0..40 {
        let store = store.clone();
        changes.push(tokio::spawn(async move {
            // Every name is asked for twice; one of them is told that it is there.
            let add = DirectoryChange::AddGroup {
                name: format!("g{}", number / 2),
                weight: 1,
                budgets: Vec::new(),
            };
            store.change("admin", NOW, add).await
        }));
    }
    let mut made = 0;
    for change in changes {
        match change.await.unwrap() {
            Ok(_) => made += 1,
            Err(problem) => assert!(matches!(problem, StoreError::Exists { .. }), "{problem}"),
        }
    }
    assert_eq!(made, 20);
    let directory = store.directory().await.unwrap();
    assert_eq!((directory.groups.len(), directory.version), (20, 20));
}

async fn a_change_is_undone_once(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(10), None)).await;
    let weigh = async |weight: u64| {
        let patch = TenantPatch { weight: Some(weight), ..TenantPatch::default() };
        let asked = DirectoryChange::PatchTenant { name: "chat".to_owned(), patch };
        change(&store, asked).await.unwrap();
        let newest = AuditQuery { limit: 1, ..AuditQuery::default() };
        Box::new(store.audit(newest).await.unwrap().remove(0))
    };
    let weight_now = async || store.directory().await.unwrap().tenants[0].weight;
    weigh(7).await;
    let entry = weigh(9).await;
    // Many ask at the same time. The comparison is part of the change, so one of them finds it as it was left.
    let undo = |entry: &AuditEntry| {
        let (store, entry) = (store.clone(), Box::new(entry.clone()));
        tokio::spawn(
            async move { store.change("admin", NOW, DirectoryChange::Undo { entry }).await },
        )
    };
    let all: Vec<_> = (0..20).map(|_| undo(&entry)).collect();
    let mut undone = 0;
    for asked in all {
        match asked.await.unwrap() {
            Ok(changed) => {
                assert_eq!(changed.tenant.unwrap().weight, 7);
                undone += 1;
            }
            Err(StoreError::ChangedSince { subject, entry: id }) => {
                assert_eq!((subject.as_str(), id), ("chat", entry.id));
            }
            Err(problem) => panic!("{problem}"),
        }
    }
    assert_eq!((undone, weight_now().await), (1, 7));
    let newest = store.audit(AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
    assert_eq!((newest[0].action.as_str(), newest[0].id), ("tenant.patch", entry.id + 1));
    // Somebody has changed the same since: nothing is changed, and nothing is written into the trail.
    let capped = weigh(12).await;
    weigh(13).await;
    let entries = store.audit(AuditQuery::default()).await.unwrap().len();
    let refused = undo(&capped).await.unwrap();
    assert!(matches!(refused, Err(StoreError::ChangedSince { .. })), "{refused:?}");
    assert_eq!(weight_now().await, 13);
    assert_eq!(store.audit(AuditQuery::default()).await.unwrap().len(), entries);
    let other = Box::new(AuditEntry { action: "key.create".to_owned(), ..*capped });
    let refused = undo(&other).await.unwrap();
    assert!(matches!(refused, Err(StoreError::NotUndoable { .. })), "{refused:?}");
}
