//! Tests of the views for operators and tenants: ended requests, usage, last use of keys, the audit
//! trail with undo, the configuration and the policy.

use std::time::Duration;

use fairgate_config::{MetricsConfig, OverloadConfig};
use fairgate_store::{AttemptOutcome, AttemptRow, UnixMicros};
use serde_json::{Value, json};

use super::Fixture;
use super::ledger::{START, row};

/// Records ten requests of each of two tenants, one second apart. Every third request was refused.
async fn ledger() -> Fixture {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    it.tenant("a", "batch").await;
    for number in 0..20_i64 {
        let tenant = if number % 2 == 0 { "chat" } else { "batch" };
        let refused = number % 3 == 0;
        let row = AttemptRow {
            started_at: UnixMicros(START + number * 1_000_000),
            status: if refused { 429 } else { 200 },
            code: refused.then(|| "queue_full".to_owned()),
            outcome: if refused { AttemptOutcome::Refused } else { AttemptOutcome::Completed },
            waited_us: u64::try_from(number).expect("a number") * 1_000_000,
            ..row(&format!("r{number:02}"), tenant, 10)
        };
        it.app().store.record(row).await.expect("recorded");
    }
    it
}

fn requests(list: &Value) -> String {
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| item["request"].as_str().expect("an id")).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn ended_requests_are_found_by_how_they_ended() {
    let it = ledger().await;
    let list = async |query: &str| {
        requests(&it.get(&format!("/api/v1/attempts?{query}")).await.expect(200))
    };
    assert_eq!(list("tenant=batch&status=429").await, "r15 r09 r03");
    assert_eq!(list("tenant=batch&status=4xx&limit=2").await, "r15 r09");
    assert_eq!(list("code=queue_full&waited_min_ms=12000").await, "r18 r15 r12");
    assert_eq!(list("outcome=refused&until=1700000004").await, "r03 r00");
    assert_eq!(list("pool=none").await, "");
    assert_eq!(list("worker=sim&model=sim&class=chat&key=key-1&last=true&limit=1").await, "r19");
    let first = it.get("/api/v1/attempts?status=429&limit=4").await.expect(200);
    assert_eq!(requests(&first), "r18 r15 r12 r09");
    let next = first["next"].as_str().expect("a next page");
    let rest = it.get(&format!("/api/v1/attempts?status=429&cursor={next}")).await.expect(200);
    assert_eq!(requests(&rest), "r06 r03 r00");
    assert_eq!((&rest["next"], &rest["stopped"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_search_says_where_it_stopped() {
    let it = ledger().await;
    let old = AttemptRow {
        started_at: UnixMicros(START - 3 * 86_400_000_000),
        status: 502,
        ..row("old", "chat", 1)
    };
    it.app().store.record(old).await.expect("recorded");
    let page = it.get("/api/v1/attempts?status=502").await.expect(200);
    assert_eq!(requests(&page), "");
    let stopped = json!({"at": "2023-11-13T22:13:39.000000Z", "because": "day"});
    assert_eq!(page["stopped"], stopped);
    let next = page["next"].as_str().expect("there is more");
    let page = it.get(&format!("/api/v1/attempts?status=502&cursor={next}")).await.expect(200);
    assert_eq!((requests(&page).as_str(), &page["next"]), ("old", &Value::Null));
}

#[tokio::test]
async fn a_tenant_sees_its_own_rows_and_sums_only() {
    let it = ledger().await;
    let (_, chat) = it.key("chat").await;
    let own = async |path: &str| it.as_key(&chat, "GET", path, Value::Null).await;
    let rows = own("/api/v1/me/attempts?status=429").await.expect(200);
    assert_eq!(requests(&rows), "r18 r12 r06 r00");
    assert!(!rows.to_string().contains("batch"));
    assert_eq!(
        (&rows["items"][0]["charged_tokens"], &rows["items"][0]["estimate_tokens"]),
        (&json!(12), &json!(11))
    );
    let next = rows["next"].clone();
    assert_eq!(next, Value::Null);
    // A cursor made of another's row opens nothing.
    let cursor = format!("{}.1.r19", START + 19_000_000);
    let after = own(&format!("/api/v1/me/attempts?limit=1&cursor={cursor}")).await.expect(200);
    assert_eq!(requests(&after), "r18");
    let usage = own("/api/v1/me/usage?since=1700000000&by=outcome&split=pool").await.expect(200);
    assert!(!usage.to_string().contains("batch"));
    let sums = usage["rows"].as_array().expect("rows");
    let sums: Vec<_> =
        sums.iter().map(|row| (&row["name"], &row["requests"], &row["charged_tokens"])).collect();
    assert_eq!(
        sums,
        [(&json!("completed"), &json!(6), &json!(72)), (&json!("refused"), &json!(4), &json!(48))]
    );
    for query in ["tenant=batch", "class=chat", "worker=sim"] {
        let refused = own(&format!("/api/v1/me/attempts?{query}")).await;
        assert_eq!(refused.refused(400), "invalid_query", "{query}");
    }
    for query in ["by=tenant", "by=class", "split=group", "tenant=batch"] {
        let refused = own(&format!("/api/v1/me/usage?{query}")).await;
        assert_eq!(refused.refused(400), "invalid_query", "{query}");
    }
}

#[tokio::test]
async fn usage_is_split_with_shares_and_quantiles() {
    let it = ledger().await;
    let path = "/api/v1/usage?since=1700000000&by=tenant&split=outcome";
    let plain = it.get(path).await.expect(200);
    assert_eq!(plain["rows"][0]["waited_p95_us"], json!(null), "nobody asked for it");
    let usage = it.get(&format!("{path}&quantiles=true")).await.expect(200);
    assert_eq!((&usage["split"], &usage["omitted"]), (&json!("outcome"), &json!(0)));
    let row = |place: usize| {
        let row = &usage["rows"][place];
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        (text("name"), text("split"), row["requests"].clone(), row["got_share"].clone())
    };
    let expected = |name: &str, split: &str, requests: u64, share: f64| {
        (name.to_owned(), split.to_owned(), json!(requests), json!(share))
    };
    assert_eq!(row(0), expected("batch", "completed", 7, 0.35));
    assert_eq!(row(1), expected("chat", "completed", 6, 0.3));
    assert_eq!(row(2), expected("chat", "refused", 4, 0.2));
    assert_eq!(row(3), expected("batch", "refused", 3, 0.15));
    // The completed requests of batch waited 1, 5, 7, 11, 13, 17 and 19 seconds.
    let batch = &usage["rows"][0];
    assert_eq!(
        (&batch["waited_p50_us"], &batch["waited_p95_us"], &batch["waited_max_us"]),
        (&json!(11_000_000), &json!(19_000_000), &json!(19_000_000))
    );
}

#[tokio::test]
async fn keys_show_when_they_were_last_used() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    let (id, _) = it.key("chat").await;
    let last_use = async || {
        let key = it.get(&format!("/api/v1/keys/{id}")).await.expect(200);
        let list = it.get("/api/v1/keys").await.expect(200);
        assert_eq!(list["items"][0]["last_used_at"], key["last_used_at"]);
        key["last_used_at"].clone()
    };
    assert_eq!(last_use().await, Value::Null);
    let used = async |request: &str, seconds: i64| {
        let started_at = UnixMicros(START + seconds * 1_000_000);
        let row = AttemptRow { key: id.clone(), started_at, ..row(request, "chat", 1) };
        it.app().store.record(row).await.expect("recorded");
    };
    used("r1", 0).await;
    assert_eq!(last_use().await, "2023-11-14T22:13:20.000000Z");
    used("r2", 59).await;
    assert_eq!(last_use().await, "2023-11-14T22:13:20.000000Z", "once a minute");
    used("r3", 60).await;
    assert_eq!(last_use().await, "2023-11-14T22:14:20.000000Z");
    let patched = it.patch(&format!("/api/v1/keys/{id}"), json!({"name": "x"})).await.expect(200);
    assert_eq!(patched["last_used_at"], "2023-11-14T22:14:20.000000Z");
}

#[tokio::test]
async fn the_audit_trail_is_filtered() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    it.patch("/api/v1/tenants/chat", json!({"weight": 7})).await.expect(200);
    let mut named =
        super::request(Some(super::TOKEN), "PATCH", "/api/v1/tenants/chat", json!({"weight": 8}));
    named.headers_mut().insert("x-fairgate-actor", "oncall".parse().expect("a header"));
    it.send(named).await.expect(200);
    let count = async |query: &str| {
        let page = it.get(&format!("/api/v1/audit?{query}")).await.expect(200);
        page["items"].as_array().expect("items").len()
    };
    assert_eq!(count("subject=chat").await, 3);
    assert_eq!(count("subject=chat&action=tenant.patch").await, 2);
    assert_eq!(count("subject=chat&action=tenant").await, 3);
    assert_eq!(count("action=ten").await, 0);
    assert_eq!(count("subject=chat&actor=admin").await, 3, "admin and admin:oncall");
    assert_eq!(count("actor=admin:oncall").await, 1);
    assert_eq!(count("actor=admin:on").await, 0);
    assert_eq!(count("subject=chat&since=1h").await, 3);
    assert_eq!(count("subject=chat&until=1h").await, 0);
}

/// Returns the id of the newest audit entry.
async fn newest(it: &Fixture) -> i64 {
    let page = it.get("/api/v1/audit?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["undo"], true, "{page}");
    page["items"][0]["id"].as_i64().expect("an id")
}

#[tokio::test]
async fn a_change_is_undone_unless_somebody_changed_it_since() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    let limits = json!({"in_flight": 4, "tokens_per_day": 100});
    it.patch("/api/v1/tenants/chat", json!({"weight": 7, "limits": limits})).await.expect(200);
    it.patch("/api/v1/tenants/chat", json!({"limits": {"in_flight": 1}})).await.expect(200);
    let capped = newest(&it).await;
    it.patch("/api/v1/tenants/chat", json!({"weight": 9})).await.expect(200);
    let undone = it.post(&format!("/api/v1/audit/{capped}/undo"), Value::Null).await.expect(200);
    assert_eq!(undone, json!({"undone": capped, "action": "tenant.patch", "subject": "chat"}));
    let chat = it.get("/api/v1/tenants/chat").await.expect(200);
    assert_eq!((&chat["weight"], &chat["limits"]["in_flight"]), (&json!(9), &json!(4)));
    assert_eq!(chat["limits"]["tokens_per_day"], 100, "the budget is back");
    let again = it.post(&format!("/api/v1/audit/{capped}/undo"), Value::Null).await;
    assert_eq!(again.refused(409), "changed_since");

    let (id, _) = it.key("chat").await;
    let made = it.get("/api/v1/audit?limit=1").await.expect(200);
    assert_eq!(
        (&made["items"][0]["action"], &made["items"][0]["undo"]),
        (&json!("key.create"), &json!(false))
    );
    let path = format!("/api/v1/audit/{}/undo", made["items"][0]["id"]);
    assert_eq!(it.post(&path, Value::Null).await.refused(409), "not_undoable");
    let path = format!("/api/v1/keys/{id}");
    it.patch(&path, json!({"may_pin": true, "models": ["m"], "weight": 5})).await.expect(200);
    let undo = format!("/api/v1/audit/{}/undo", newest(&it).await);
    it.post(&undo, Value::Null).await.expect(200);
    let key = it.get(&path).await.expect(200);
    assert_eq!(
        (&key["may_pin"], &key["models"], &key["weight"]),
        (&json!(false), &Value::Null, &json!(100))
    );

    it.patch("/api/v1/groups/a", json!({"weight": 3, "budgets": []})).await;
    it.patch("/api/v1/groups/a", json!({"weight": 4})).await.expect(200);
    let undo = format!("/api/v1/audit/{}/undo", newest(&it).await);
    it.post(&undo, Value::Null).await.expect(200);
    for id in ["0", "999999", "x"] {
        let missing = it.post(&format!("/api/v1/audit/{id}/undo"), Value::Null).await;
        assert_eq!(missing.refused(404), "not_found");
    }
}

#[tokio::test]
async fn changes_of_pools_are_undone() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    let flow = json!({"by": "tenant", "flow": "chat"});
    it.post("/api/v1/pools/sim/hold", flow.clone()).await.expect(200);
    let held = format!("/api/v1/audit/{}/undo", newest(&it).await);
    it.post(&held, Value::Null).await.expect(200);
    // The API may show a pool as it was 200 ms ago.
    let snapshot = it.app().pools.all()[0].gate.snapshot().await.expect("a pool");
    assert_eq!(snapshot.holds, []);
    assert_eq!(it.audit().await[0].1, "pool.resume");
    assert_eq!(it.post(&held, Value::Null).await.refused(409), "changed_since");

    it.post("/api/v1/pools/sim/workers/sim/drain", Value::Null).await.expect(200);
    let drained = format!("/api/v1/audit/{}/undo", newest(&it).await);
    it.post(&drained, Value::Null).await.expect(200);
    assert_eq!(it.app().pools.all()[0].workers()[0].state, "up");
    assert_eq!(it.audit().await[0].1, "worker.undrain");
    assert_eq!(it.post(&drained, Value::Null).await.refused(409), "changed_since");
}

#[tokio::test]
async fn an_added_worker_and_thresholds_are_undone() {
    let it = Fixture::with(|config| {
        let (every, overload) = (Duration::from_secs(3600), OverloadConfig::default());
        config.upstreams[0].metrics = Some(MetricsConfig { path: "/m".into(), every, overload });
    })
    .await;
    let workers = "/api/v1/pools/sim/workers";
    let names = async || {
        let page = it.get(workers).await.expect(200);
        let items = page["items"].as_array().expect("a list").iter();
        items.map(|it| it["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let new = |slots: u64| json!({"name": "b", "url": "http://127.0.0.1:9/", "like": "sim", "slots": slots});
    it.post(workers, new(2)).await.expect(201);
    let added = format!("/api/v1/audit/{}/undo", newest(&it).await);
    it.post(&added, Value::Null).await.expect(200);
    assert_eq!(names().await, ["sim"]);
    assert_eq!(it.audit().await[0].1, "worker.remove");
    assert_eq!(it.post(&added, Value::Null).await.refused(409), "changed_since");
    it.post(workers, new(3)).await.expect(201);
    assert_eq!(it.post(&added, Value::Null).await.refused(409), "changed_since", "another one");

    let set = async |waiting: u64| {
        let overload = json!({"overload": {"waiting": waiting}});
        it.patch(&format!("{workers}/sim"), overload).await.expect(200);
        format!("/api/v1/audit/{}/undo", newest(&it).await)
    };
    let pools = &it.app().pools;
    let waiting = async || pools.overload_of("sim").await.and_then(|it| it.waiting);
    let (first, second) = (set(4).await, set(9).await);
    assert_eq!(it.post(&first, Value::Null).await.refused(409), "changed_since");
    it.post(&second, Value::Null).await.expect(200);
    assert_eq!(waiting().await, Some(4));
    it.post(&first, Value::Null).await.expect(200);
    assert_eq!(waiting().await, None, "those of the file");
}

#[tokio::test]
async fn changes_of_projects_and_pauses_of_tasks_are_undone() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    it.post("/api/v1/projects", json!({"id": "web", "tenant": "chat", "weight": 2.5}))
        .await
        .expect(201);
    let task = json!({"tasks": [{"id": "t1", "project": "web", "prompt": "x"}]});
    it.post("/api/v1/tasks", task).await.expect(201);
    let undo = async || format!("/api/v1/audit/{}/undo", newest(&it).await);
    let project =
        async |field: &str| it.get("/api/v1/projects/web").await.expect(200)[field].clone();

    it.patch("/api/v1/projects/web", json!({"weight": 7, "status": "PAUSED"})).await.expect(200);
    let weighed = undo().await;
    it.patch("/api/v1/projects/web", json!({"budget": 1000})).await.expect(200);
    it.post(&weighed, Value::Null).await.expect(200);
    assert_eq!((project("weight").await, project("status").await), (json!(2.5), json!("ACTIVE")));
    assert_eq!(project("budget").await, json!(1000), "what another change set stays");
    assert_eq!(it.post(&weighed, Value::Null).await.refused(409), "changed_since");

    let act = async |action: &str| {
        it.post("/api/v1/tasks/t1/actions", json!({"action": action})).await.expect(200);
        undo().await
    };
    let state = async || it.get("/api/v1/tasks/t1").await.expect(200)["state"].clone();
    let paused = act("pause").await;
    it.post(&paused, Value::Null).await.expect(200);
    assert_eq!(state().await, "READY");
    assert_eq!(it.audit().await[0].1, "task.resume");
    assert_eq!(it.post(&paused, Value::Null).await.refused(409), "changed_since");
    act("pause").await;
    let resumed = act("resume").await;
    it.post(&resumed, Value::Null).await.expect(200);
    assert_eq!(state().await, "PAUSED");
    assert_eq!(it.post(&resumed, Value::Null).await.refused(409), "changed_since");
}

#[tokio::test]
async fn the_configuration_is_shown_without_secrets() {
    let it = Fixture::with(|config| {
        config.admin.token = Some(fairgate_config::Secret::new("a-token-that-is-secret"));
    })
    .await;
    let answer = it.get("/api/v1/config").await;
    assert!(!answer.text.contains("a-token-that-is-secret"));
    let config = answer.expect(200);
    let settings = config["settings"].as_array().expect("settings");
    let of = |path: &str| settings.iter().find(|it| it["path"] == path).expect(path).clone();
    let expected =
        json!({"path": "admin.token", "value": null, "secret": "a secret", "needs_restart": false});
    assert_eq!(of("admin.token"), expected);
    assert_eq!(of("pools.sim.capacity")["value"], "8");
    assert_eq!(of("listen")["needs_restart"], true);
}

#[tokio::test]
async fn the_policy_is_a_tree_with_the_directory_in_it() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    it.tenant("b", "batch").await;
    it.patch("/api/v1/tenants/chat", json!({"weight": 300, "limits": {"in_flight": 2}}))
        .await
        .expect(200);
    it.post("/api/v1/pools/sim/hold", json!({"by": "group", "flow": "b"})).await.expect(200);
    let (id, _) = it.key("chat").await;
    let tree = it.get("/api/v1/pools/sim/policy").await.expect(200);
    let root = &tree["root"];
    assert_eq!((&root["kind"], &root["by"]), (&json!("share"), &json!("group")));
    let groups = root["flows"].as_array().expect("flows");
    let find = |name: &str| groups.iter().find(|flow| flow["name"] == name).expect(name);
    assert_eq!((&find("a")["held"], &find("b")["held"]), (&json!(false), &json!(true)));
    let tenants = &find("a")["inside"]["flows"];
    assert_eq!(tenants.as_array().map(Vec::len), Some(1), "batch is in group b");
    let chat = &tenants[0];
    assert_eq!(
        (&chat["name"], &chat["weight"], &chat["cap"]),
        (&json!("chat"), &json!(300), &json!(2))
    );
    let key = &chat["inside"]["flows"][0];
    assert_eq!((&key["name"], &key["inside"]["kind"]), (&json!(id), &json!("queue")));
    assert_eq!(root["others"]["weight"], 100);
    assert_eq!(it.get("/api/v1/pools/none/policy").await.refused(404), "not_found");
}
