//! Tests of groups, tenants and keys: every change applies at once and is audited.

use std::collections::BTreeMap;
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_store::UnixMicros;
use fairgate_time::wall_clock;
use http::HeaderMap;
use serde_json::{Value, json};

use super::{Fixture, TOKEN, request};

#[tokio::test]
async fn groups_come_change_and_go() {
    let it = Fixture::new().await;
    let made = it.post("/api/v1/groups", json!({"name": "research", "weight": 500})).await;
    assert_eq!(made.headers["location"], "/api/v1/groups/research");
    let made = made.expect(201);
    assert_eq!((&made["name"], &made["weight"]), (&json!("research"), &json!(500)));
    assert_eq!(it.post("/api/v1/groups", json!({"name": "research"})).await.refused(409), "exists");
    assert_eq!(it.get("/api/v1/groups/research").await.expect(200), made);
    let changed = it.patch("/api/v1/groups/research", json!({"weight": 50})).await.expect(200);
    assert_eq!(changed["weight"], 50);
    assert_eq!(it.get("/api/v1/groups").await.expect(200)["items"], json!([changed]));
    it.post("/api/v1/tenants", json!({"name": "chat", "group": "research"})).await.expect(201);
    assert_eq!(it.delete("/api/v1/groups/research").await.refused(409), "in_use");
    it.delete("/api/v1/tenants/chat").await.expect(204);
    it.delete("/api/v1/groups/research").await.expect(204);
    assert_eq!(it.get("/api/v1/groups/research").await.refused(404), "not_found");
    assert_eq!(it.delete("/api/v1/groups/research").await.refused(404), "not_found");
    assert_eq!(it.patch("/api/v1/groups/research", json!({})).await.refused(404), "not_found");
}

#[tokio::test]
async fn tenants_come_change_and_go() {
    let it = Fixture::new().await;
    it.post("/api/v1/groups", json!({"name": "a"})).await.expect(201);
    it.post("/api/v1/groups", json!({"name": "b"})).await.expect(201);
    let new = json!({"name": "chat", "group": "a", "weight": 7, "limits": {"in_flight": 3, "tokens_per_day": 1000}});
    let made = it.post("/api/v1/tenants", new).await;
    assert_eq!(made.headers["location"], "/api/v1/tenants/chat");
    let made = made.expect(201);
    assert_eq!(made["limits"]["in_flight"], 3);
    assert_eq!(made["limits"]["tokens_per_day"], 1000);
    assert_eq!(made["limits"]["tokens_per_month"], json!(null));
    let patch = json!({"group": "b", "disabled": true, "limits": {"tokens_per_month": 9}});
    let changed = it.patch("/api/v1/tenants/chat", patch).await.expect(200);
    assert_eq!((&changed["group"], &changed["weight"]), (&json!("b"), &json!(7)));
    assert_eq!(changed["disabled"], true);
    assert_eq!(changed["limits"]["in_flight"], json!(null), "limits are replaced as a whole");
    assert_eq!(it.get("/api/v1/tenants?group=b").await.expect(200)["items"], json!([changed]));
    assert_eq!(it.get("/api/v1/tenants?group=a").await.expect(200)["items"], json!([]));
    let nowhere = json!({"name": "x", "group": "nowhere"});
    assert_eq!(it.post("/api/v1/tenants", nowhere).await.refused(404), "not_found");
    it.delete("/api/v1/tenants/chat").await.expect(204);
    assert_eq!(it.get("/api/v1/tenants/chat").await.refused(404), "not_found");
}

#[tokio::test]
async fn a_key_opens_the_gateway_until_it_may_not() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    let new = json!({"tenant": "chat", "name": "laptop", "models": ["sim"], "classes": ["batch"], "expires_at": "2100-01-01T02:00:00+02:00"});
    let made = it.post("/api/v1/keys", new).await;
    assert_eq!(made.headers["cache-control"], "no-store");
    let location = made.headers["location"].to_str().expect("text").to_owned();
    let made = made.expect(201);
    let (id, secret) =
        (made["key"]["id"].as_str().expect("id"), made["secret"].as_str().expect("secret"));
    assert_eq!(location, format!("/api/v1/keys/{id}"));
    assert_eq!(made["key"]["expires_at"], "2100-01-01T00:00:00.000000Z");
    let knows =
        |secret: &str| it.app().identity.caller(&bearing(secret), now()).map(|c| c.key.to_string());
    assert_eq!(knows(secret).expect("known at once"), id);
    assert!(!it.get(&location).await.text.contains(secret));

    let patch = json!({"name": "", "models": null, "expires_at": null, "weight": 3});
    let changed = it.patch(&location, patch).await.expect(200);
    assert_eq!((&changed["models"], &changed["expires_at"]), (&json!(null), &json!(null)));
    assert_eq!(changed["classes"], json!(["batch"]), "what is absent stays");

    let none = json!({
        "priority_max": 0, "weight_max": null, "workers": null, "may_pin": false, "taints": [], "deadline_ms": null, "deadline_min_ms": null
    });
    let all = json!({
        "classes": null, "priority_max": 9, "weight_max": 2.5, "workers": ["gpu-1"], "may_pin": true, "taints": null, "deadline_ms": 5000,
        "deadline_min_ms": 250
    });
    let rights = |key: &Value| {
        let fields = [
            "classes",
            "priority_max",
            "weight_max",
            "workers",
            "may_pin",
            "taints",
            "deadline_ms",
            "deadline_min_ms",
        ];
        fields.map(|field| (field, key[field].clone())).into_iter().collect::<BTreeMap<_, _>>()
    };
    for (field, value) in none.as_object().expect("an object") {
        assert_eq!(&changed[field], value, "a new key may choose nothing but its class");
    }
    let changed = it.patch(&location, all.clone()).await.expect(200);
    assert_eq!(rights(&changed), rights(&all));
    let me = it.app().identity.caller(&bearing(secret), now()).expect("known").rights.clone();
    assert_eq!((me.classes, me.priority_max, me.may_pin, me.taints), (None, 9, true, None));
    assert_eq!((me.deadline_ms, me.deadline_min_ms), (Some(5000), Some(250)));
    let changed = it.patch(&location, json!({"deadline_ms": null})).await.expect(200);
    assert_eq!((&changed["deadline_ms"], &changed["deadline_min_ms"]), (&json!(null), &json!(250)));
    let open = it.post("/api/v1/keys", json!({"tenant": "chat"})).await.expect(201);
    assert_eq!(open["key"]["classes"], json!([]), "a new key is closed");
    it.post(
        &format!("/api/v1/keys/{}/revoke", open["key"]["id"].as_str().expect("id")),
        json!(null),
    )
    .await
    .expect(200);

    let rotated = it.post(&format!("{location}/rotate"), json!(null)).await.expect(200);
    let second = rotated["secret"].as_str().expect("secret");
    assert_eq!(knows(secret).expect_err("the old one is gone").code.as_str(), "invalid_api_key");
    assert_eq!(knows(second).expect("the new one works"), id);

    let revoked = it.post(&format!("{location}/revoke"), json!(null)).await.expect(200);
    assert!(revoked["revoked_at"].is_string());
    assert_eq!(knows(second).expect_err("revoked").code.as_str(), "key_revoked");
    it.post(&format!("{location}/revoke"), json!(null)).await.expect(200);
    assert_eq!(
        it.post(&format!("{location}/rotate"), json!(null)).await.refused(409),
        "key_revoked"
    );
    let keys = it.get("/api/v1/keys?tenant=chat").await.expect(200);
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(it.get("/api/v1/keys/key-none").await.refused(404), "not_found");
    let passed = json!({"tenant": "chat", "expires_at": "2001-01-01T00:00:00Z"});
    assert_eq!(it.post("/api/v1/keys", passed).await.refused(409), "expiry_conflict");
    assert_eq!(
        it.post("/api/v1/keys", json!({"tenant": "nobody"})).await.refused(404),
        "not_found"
    );
}

#[tokio::test]
async fn every_change_is_audited_with_who_made_it() {
    let it = Fixture::new().await;
    it.post("/api/v1/groups", json!({"name": "a"})).await.expect(201);
    it.patch("/api/v1/groups/a", json!({"weight": 5})).await.expect(200);
    it.post("/api/v1/tenants", json!({"name": "t", "group": "a"})).await.expect(201);
    it.patch("/api/v1/tenants/t", json!({"weight": 5})).await.expect(200);
    let (id, secret) = it.key("t").await;
    it.patch(&format!("/api/v1/keys/{id}"), json!({"name": "x"})).await.expect(200);
    let rotated = it.post(&format!("/api/v1/keys/{id}/rotate"), json!(null)).await.expect(200);
    it.post(&format!("/api/v1/keys/{id}/revoke"), json!(null)).await.expect(200);
    it.delete("/api/v1/tenants/t").await.expect(204);
    let mut named = request(Some(TOKEN), "DELETE", "/api/v1/groups/a", json!(null));
    named.headers_mut().insert("x-fairgate-actor", "ann@example.org".parse().expect("a header"));
    it.send(named).await.expect(204);

    let trail = it.audit().await;
    let actions: Vec<&str> = trail.iter().rev().map(|(_, action, _)| action.as_str()).collect();
    let expected = [
        "group.add",
        "group.patch",
        "tenant.add",
        "tenant.patch",
        "key.create",
        "key.patch",
        "key.rotate",
        "key.revoke",
        "tenant.remove",
        "group.remove",
    ];
    assert_eq!(actions, expected);
    let newest = ("admin:ann@example.org".to_owned(), "group.remove".to_owned(), "a".to_owned());
    assert_eq!(trail[0], newest);
    assert!(trail[1..].iter().all(|(actor, ..)| actor == "admin"));

    let text = it.get("/api/v1/audit?limit=1000").await.text;
    for secret in [secret.as_str(), rotated["secret"].as_str().expect("secret")] {
        assert!(!text.contains(secret));
    }
    assert!(!text.contains("hash"));
    let second = it.get("/api/v1/audit?limit=9").await.expect(200);
    let rest = it.get(&format!("/api/v1/audit?before={}", second["next"])).await.expect(200);
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(rest["items"][0]["action"], "group.add");
    let made = rest["items"][0]["after"]["created_at"].as_str().expect("a moment as text");
    assert!(made.ends_with('Z'), "{made}");
}

#[tokio::test]
async fn lists_come_in_pages() {
    let it = Fixture::new().await;
    for name in ["a", "b", "c"] {
        it.post("/api/v1/groups", json!({"name": name})).await.expect(201);
    }
    let first = it.get("/api/v1/groups?limit=2").await.expect(200);
    assert_eq!((&first["next"], first["items"].as_array().map(Vec::len)), (&json!("b"), Some(2)));
    let second = it.get("/api/v1/groups?limit=2&after=b").await.expect(200);
    assert_eq!((&second["next"], &second["items"][0]["name"]), (&json!(null), &json!("c")));
}

#[tokio::test]
async fn weights_and_caps_reach_the_pool_once() {
    let it = Fixture::new().await;
    it.post("/api/v1/groups", json!({"name": "a", "weight": 500})).await.expect(201);
    it.post("/api/v1/tenants", json!({"name": "t", "group": "a", "limits": {"in_flight": 2}}))
        .await
        .expect(201);
    let made = it
        .post("/api/v1/keys", json!({"tenant": "t", "weight": 9, "limits": {"in_flight": 1}}))
        .await;
    let id = made.expect(201)["key"]["id"].as_str().expect("id").to_owned();
    let gate = it.app().pools.all()[0].gate.clone();
    let snapshot = gate.snapshot().await.expect("a pool");
    let weights: Vec<_> = snapshot.weights.iter().map(|(by, n, w)| (*by, &**n, w.get())).collect();
    assert_eq!(
        weights,
        [(Attribute::Group, "a", 500), (Attribute::Key, &*id, 9)],
        "100 is what all have"
    );
    let caps: Vec<_> = snapshot.caps.iter().map(|cap| (cap.by, &*cap.flow, cap.slots)).collect();
    assert_eq!(caps, [(Attribute::Tenant, "t", Some(2)), (Attribute::Key, &*id, Some(1))]);

    // What is known is not said again: an event would move the pool's time.
    it.app().directory_sync.refresh().await.expect("a store");
    assert_eq!(gate.snapshot().await.expect("a pool").now, snapshot.now);

    it.patch("/api/v1/tenants/t", json!({"limits": {}})).await.expect(200);
    it.patch("/api/v1/groups/a", json!({"weight": 100})).await.expect(200);
    let snapshot = gate.snapshot().await.expect("a pool");
    let cap = snapshot.caps.iter().find(|cap| &*cap.flow == "t");
    assert_eq!(cap.map(|cap| cap.slots), Some(None));
    assert_eq!(
        snapshot.weights.iter().find(|(_, n, _)| &**n == "a").map(|(.., w)| w.get()),
        Some(100)
    );

    // A new policy forgets; the next look tells it all again.
    it.patch("/api/v1/groups/a", json!({"weight": 300})).await.expect(200);
    let mut config = (*it.app().config.load_full()).clone();
    config.pools[0].policy =
        fairgate_journal::parse_policy(r#"{"share":{"by":"group"}}"#).expect("a policy");
    it.gateway.reload(config).await.expect("a good configuration");
    let snapshot = gate.snapshot().await.expect("a pool");
    let weights: Vec<_> = snapshot.weights.iter().map(|(by, n, w)| (*by, &**n, w.get())).collect();
    assert_eq!(weights, [(Attribute::Group, "a", 300)], "only what the policy shares by");
}

/// Time is virtual: the two seconds between two looks pass as soon as all tasks are idle.
#[tokio::test(start_paused = true)]
async fn a_change_by_another_gateway_is_followed() {
    let it = Fixture::new().await;
    let change = fairgate_store::DirectoryChange::AddGroup {
        name: "elsewhere".into(),
        weight: 5,
        budgets: Vec::new(),
    };
    it.app().store.change("another", now(), change).await.expect("a store");
    while it.app().identity.directory().groups.is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    it.get("/api/v1/groups/elsewhere").await.expect(200);
}

fn bearing(secret: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", secret.parse().expect("a header"));
    headers
}

fn now() -> UnixMicros {
    let micros = wall_clock::since_1970().as_micros();
    UnixMicros(i64::try_from(micros).expect("before the year 292277"))
}
