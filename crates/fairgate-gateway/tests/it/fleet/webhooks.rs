//! Tests of webhooks of a whole gateway: events are delivered, people see the results, and a reload
//! changes the webhooks.

use fairgate_config::{FleetEventKind, Secret, WebhookConfig};
use fairgate_store::{Budget, BudgetPeriod, DirectoryChange, DirectoryLimits, TenantPatch};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Fleet, expect, refused};
use crate::support::client::{get, post};
use crate::support::scripted::{Call, Scripted};

fn webhook(name: &str, receiver: &Scripted) -> WebhookConfig {
    WebhookConfig {
        name: name.into(),
        url: Secret::new(format!("{}/hook/a-token", receiver.url())),
        secret: Secret::new("a-secret-of-the-webhook"),
        events: FleetEventKind::ALL.to_vec(),
        ca: None,
    }
}

fn event(call: &Call) -> Value {
    serde_json::from_slice(call.request.body()).unwrap()
}

/// Lets the only agent ask a question about a new task.
async fn ask(it: &Fleet, agent: &super::Agent, task: &str) {
    it.task("web", task, json!({})).await;
    let claim = agent.claims().await;
    expect(claim.say("ask", json!({"question": "Which?"})).await, 200);
}

#[tokio::test]
async fn events_are_told_and_people_see_what_became_of_them() {
    let mut receiver = Scripted::start().await;
    let it = Fleet::with(|fleet| fleet.webhooks = vec![webhook("ops", &receiver)]).await;
    it.project("web", json!({})).await;
    let agent = it.agent("ada", json!({})).await;
    ask(&it, &agent, "one").await;
    let call = receiver.call().await;
    assert_eq!(
        (call.request.method(), call.request.uri().path()),
        (&Method::POST, "/hook/a-token")
    );
    let told = event(&call);
    assert_eq!(
        (&told["type"], &told["task"], &told["agent"]),
        (&json!("question"), &json!("one"), &json!("ada"))
    );
    let list = it.get("webhooks").await["items"][0].clone();
    assert_eq!((&list["name"], &list["pending"]), (&json!("ops"), &json!(1)));
    assert_eq!(list["origin"], receiver.url(), "the path may hold a token");
    assert!(!list.to_string().contains("a-token"));
    let pending = it.get("webhooks/ops/events").await["items"][0].clone();
    assert_eq!(
        (&pending["id"], &pending["tries"], &pending["type"]),
        (&told["id"], &json!(1), &json!("question"))
    );
    call.answer(200, "text/plain", "thanks");
    let delivered = async {
        while it.get("webhooks").await["items"][0]["delivered"] != 1 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::support::SOON, delivered).await.expect("its result is written");
    let metrics = get("/metrics").key("admin").ask(it.house.gateway.admin_addr()).await.text();
    let line = "fairgate_fleet_webhook_events_total{webhook=\"ops\",outcome=\"delivered\"}";
    assert!(metrics.contains(line), "{metrics}");
    assert_eq!(refused(it.post("webhooks/none/test", json!({})).await, 404), "not_found");
    for path in ["webhooks", "webhooks/ops/events"] {
        let answer = get(&format!("/api/v1/{path}")).key(&it.house.key);
        assert_eq!(answer.ask(it.house.gateway.admin_addr()).await.status, StatusCode::FORBIDDEN);
    }
    it.close().await;
}

#[tokio::test]
async fn a_tenant_s_budget_is_told_at_80_percent_and_when_it_refuses() {
    let mut receiver = Scripted::start().await;
    let it = Fleet::with(|fleet| fleet.webhooks = vec![webhook("ops", &receiver)]).await;
    let text = "a secret prompt";
    let chat = async |max_tokens: u64| {
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"model": "sim", "max_tokens": max_tokens, "messages": messages});
        let question = post("/v1/chat/completions", &body).key(&it.house.key);
        question.ask(it.house.gateway.addr()).await
    };
    let used = expect(chat(8).await, 200)["usage"]["total_tokens"].as_u64().unwrap();
    // A budget of which this is more than 80 %, and that has too little left for another request.
    let limit = used * 6 / 5;
    let budgets = vec![Budget::tokens(limit, BudgetPeriod::Month)];
    let limits = DirectoryLimits { budgets, ..DirectoryLimits::default() };
    let patch = TenantPatch { limits: Some(limits), ..TenantPatch::default() };
    it.house.change(DirectoryChange::PatchTenant { name: "acme".into(), patch }).await;
    let mut told = async |percent: u64| {
        let call = receiver.call().await;
        let told = event(&call);
        let kind = (&told["type"], &told["tenant"], &told["unit"], &told["period"]);
        assert_eq!(kind, (&json!("budget"), &json!("acme"), &json!("tokens"), &json!("month")));
        let amounts = (&told["percent"], &told["used"], &told["limit"]);
        assert_eq!(amounts, (&json!(percent), &json!(used), &json!(limit)));
        for secret in [text, &it.house.key] {
            assert!(!told.to_string().contains(secret), "{told}");
        }
        call.answer(200, "text/plain", "");
    };
    told(80).await;
    assert_eq!(chat(8).await.code(), "budget_exhausted");
    told(100).await;
    it.close().await;
}

#[tokio::test]
async fn a_test_event_says_what_the_receiver_answered() {
    let mut receiver = Scripted::start().await;
    let only_blocked =
        WebhookConfig { events: vec![FleetEventKind::Blocked], ..webhook("ops", &receiver) };
    let it = Fleet::with(|fleet| fleet.webhooks = vec![only_blocked]).await;
    for (status, delivered) in [(200, true), (503, false)] {
        let answer = async {
            let call = receiver.call().await;
            assert_eq!(event(&call)["type"], "test");
            call.answer(status, "text/plain", "");
        };
        let (said, ()) = tokio::join!(it.post("webhooks/ops/test", json!({})), answer);
        let said = expect(said, 200);
        assert_eq!(said["delivered"], delivered, "{said}");
        let error =
            if delivered { json!(null) } else { json!("it answered 503 Service Unavailable") };
        assert_eq!(said["error"], error);
    }
    let audit = it.get("audit?limit=1").await;
    assert_eq!(audit["items"][0]["action"], "webhook.test");
    it.close().await;
}

#[tokio::test]
async fn a_reload_changes_webhooks() {
    let (mut before, mut after) = (Scripted::start().await, Scripted::start().await);
    let it = Fleet::with(|fleet| fleet.webhooks = vec![webhook("ops", &before)]).await;
    it.project("web", json!({})).await;
    let agent = it.agent("ada", json!({})).await;
    let mut config = (**it.house.gateway.data_plane().config.load()).clone();
    config.fleet.webhooks = vec![webhook("ops", &after)];
    let plan = it.house.gateway.reload(config).await.unwrap();
    assert!(plan.plan.changes.iter().any(|change| change.to_string().contains("fleet.webhooks")));
    ask(&it, &agent, "one").await;
    let call = after.call().await;
    assert_eq!(event(&call)["task"], "one");
    call.answer(204, "text/plain", "");
    assert!(!before.has_call());
    it.close().await;
}

#[tokio::test]
async fn labels_and_machines_go_through_the_api() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    let set = expect(it.patch("tenants/acme", json!({"requires": ["eu", "eu"]})).await, 200);
    assert_eq!(set["requires"], json!(["eu"]));
    let wrong = it.patch("tenants/acme", json!({"requires": ["not good"]})).await;
    assert_eq!(refused(wrong, 422), "invalid");
    let made =
        it.post("workspaces", json!({"id": "w", "project": "web", "path": "/w", "machine": "m1"}));
    assert_eq!(expect(made.await, 201)["machine"], "m1");
    let far = it.agent("far", json!({"labels": ["eu"]})).await;
    let near = it.agent("near", json!({"labels": ["eu", "gpu", "machine:m1"]})).await;
    let tasks = json!({"tasks": [{"id": "one", "project": "web", "prompt": "x", "requires": ["gpu"]}, {"id": "two", "project": "web", "prompt": "x", "requires": ["tpu"]}]});
    let added = expect(it.post("tasks", tasks).await, 201);
    assert_eq!(added["unmatched_tasks"], json!(["two"]));
    far.gets_nothing().await;
    let claim = near.claims().await;
    assert_eq!((claim.task.as_str(), &claim.body["workspace"]), ("one", &json!("w")));
    assert_eq!(it.get("tasks/two/why").await["code"], "no_matching_agent");
    assert_eq!(it.get("tasks/one").await["requires"], json!(["gpu"]));
    it.close().await;
}
