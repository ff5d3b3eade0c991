//! Tests of classes with a strict order: their waits, the right to name a class, and their views.

use std::path::Path;

use fairgate_config::PolicyFile;
use fairgate_journal::parse_policy;
use fairgate_store::{DirectoryLimits, KeyRights};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::admin::{Fixture, TOKEN, seen_by, seen_by_admin};
use crate::support::client::{Answer, Question, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, UNSTATED_QUOTA, house_with, lease_pool, open_rights, sim};

const CHAT: &str = "/v1/chat/completions";

/// `chat` goes before `batch`, which is the default. Tenants share inside both.
const BANDS: &str = r#"{"bands":{"by":"class","classes":[{"name":"chat"},{"name":"batch"}],"default":"batch",
    "inside":{"share":{"by":"tenant"}}}}"#;

/// The same policy as a policy file. `urgent` is an explicit class, and the other two are families.
const FILE: &str = "\
default_policy_family: batch
arbiter: bands
uncached_isl_buckets: [{min_tokens: 0, bucket: any}]
policy_classes:
  - {name: urgent, cap: 4}
  - {name: chat_any, policy_family: chat, cache_bucket: any, queue_policy: edf}
  - {name: batch_any, policy_family: batch, cache_bucket: any}
";

fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}], "max_tokens": 10})
}

fn content(call: &Call) -> String {
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn finish(call: Call) {
    let usage = json!({"usage": {"prompt_tokens": 20, "completion_tokens": 10}});
    call.answer(200, "application/json", usage.to_string());
}

/// Requests that the gateway has not answered yet.
struct Asked<'a> {
    house: &'a House,
    answers: JoinSet<Answer>,
}

impl Asked<'_> {
    fn ask(&mut self, key: &str, content: &str) {
        let question = post(CHAT, &chat(content)).key(key);
        let addr = self.house.gateway.addr();
        self.answers.spawn(async move { question.ask(addr).await });
    }

    async fn all_succeed(mut self) -> usize {
        let mut count = 0;
        while let Some(answer) = self.answers.join_next().await {
            let answer = answer.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            count += 1;
        }
        count
    }
}

#[tokio::test]
async fn a_lower_band_waits_while_a_higher_one_has_work_and_goes_when_it_pauses() {
    const SLOTS: usize = 4;
    const LOWER: usize = 100;
    const HIGHER: usize = 60;
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = SLOTS as u64;
        config.pools[0].policy = parse_policy(BANDS).unwrap();
    })
    .await;
    let batch = house.key.clone();
    let chat = house.tenant("chatty", DirectoryLimits::default()).await;
    drop(chat);
    let chat = house.key("chatty", DirectoryLimits::default(), &["chat"]).await;
    let mut asked = Asked { house: &house, answers: JoinSet::new() };
    for _ in 0..SLOTS {
        asked.ask(&chat, "chat");
    }
    let mut running = Vec::new();
    for _ in 0..SLOTS {
        running.push(upstream.call().await);
    }
    for _ in 0..LOWER {
        asked.ask(&batch, "batch");
    }
    house.until(|live| live.waiting == LOWER as u64).await;
    // Whenever a slot frees up, a request of the higher band waits: no other one goes.
    for _ in 0..HIGHER {
        asked.ask(&chat, "chat");
        house.until(|live| live.waiting == LOWER as u64 + 1).await;
        finish(running.remove(0));
        let next = upstream.call().await;
        assert_eq!(content(&next), "chat");
        running.push(next);
    }
    let view = seen_by_admin(&house, "/api/v1/fairshare/live").await;
    let waiting = view["classes"].as_array().unwrap().iter().find(|it| it["name"] == "batch");
    let waiting = waiting.expect("a row");
    assert_eq!((&waiting["queued"], &waiting["in_flight"]), (&json!(LOWER), &json!(0)));
    assert_eq!((&waiting["got_tokens"], &waiting["due_tokens"]), (&json!(0), &Value::Null));
    // The higher band pauses: all of the lower one go, as many at once as there are slots.
    for call in running {
        finish(call);
    }
    for _ in 0..LOWER {
        let call = upstream.call().await;
        assert_eq!(content(&call), "batch");
        finish(call);
    }
    assert_eq!(asked.all_succeed().await, SLOTS + HIGHER + LOWER);
    house.close().await;
}

/// Checks that a request is refused for naming a class of a strict order, with a message that says
/// why.
async fn refused_as_strict(house: &House, question: Question, may_name: &str) {
    let refused = question.ask(house.gateway.addr()).await;
    let told = (refused.status.as_u16(), refused.code());
    assert_eq!(told, (403, "class_not_allowed".to_owned()), "{}", refused.text());
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    for says in ["strict order", "list of classes", may_name] {
        assert!(message.contains(says), "{says}: {message}");
    }
    assert_eq!(refused.header("x-should-retry"), Some("false"));
}

#[tokio::test]
async fn a_key_without_a_list_gets_the_default_class_and_may_name_no_other() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy = parse_policy(BANDS).unwrap();
    })
    .await;
    for header in ["x-fairgate-class", "x-dynamo-meta-policy-class"] {
        for path in [CHAT, "/v1/messages"] {
            for named in ["chat", "unknown"] {
                let question = post(path, &chat("x")).key(&house.key).header(header, named);
                refused_as_strict(&house, question, "\"batch\"").await;
            }
        }
    }
    assert_eq!(sim.stats().requests, 0);
    let listed = house.key("acme", DirectoryLimits::default(), &["chat", "batch"]).await;
    let ask = |key: &str, named: Option<&str>| {
        let question = post(CHAT, &chat("x")).key(key);
        match named {
            Some(named) => question.header("x-fairgate-class", named),
            None => question,
        }
    };
    let before = house.rows().await.len();
    for question in [
        ask(&house.key, None),
        ask(&house.key, Some("batch")),
        ask(&listed, None),
        ask(&listed, Some("batch")),
    ] {
        assert_eq!(question.ask(house.gateway.addr()).await.status, StatusCode::OK);
    }
    let rows = house.rows_soon(before + 4).await;
    let classes: Vec<&str> = rows[before..].iter().filter_map(|row| row.class.as_deref()).collect();
    assert_eq!(classes, ["batch", "batch", "chat", "batch"]);
    let names = |me: &Value| {
        let classes = me["pools"][0]["classes"].as_array().unwrap();
        classes.iter().map(|class| class["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let me = seen_by(&house, &house.key, "/api/v1/me").await;
    assert_eq!(names(&me), ["batch"]);
    assert_eq!(names(&seen_by(&house, &listed, "/api/v1/me").await), ["batch", "chat"]);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn families_and_explicit_classes_of_a_strict_policy_file_need_a_list_too() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        let file = PolicyFile::parse(FILE, Path::new("policy.yaml")).unwrap();
        let classes = file.root.unwrap();
        config.pools[0].policy = classes.policy();
        config.pools[0].classes = Some(classes);
    })
    .await;
    let ask =
        |key: &str, named: &str| post(CHAT, &chat("x")).key(key).header("x-fairgate-class", named);
    for named in ["chat", "urgent"] {
        refused_as_strict(&house, ask(&house.key, named), "\"batch\"").await;
    }
    let before = house.rows().await.len();
    let listed = house.key("acme", DirectoryLimits::default(), &["chat"]).await;
    // The class of a cell is no name for a request: it stands for the default, as every unknown name does.
    for (key, named) in [(&house.key, "batch"), (&house.key, "chat_any"), (&listed, "chat")] {
        let answer = ask(key, named).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let rows = house.rows_soon(before + 3).await;
    let classes: Vec<&str> = rows[before..].iter().filter_map(|row| row.class.as_deref()).collect();
    assert_eq!(classes, ["batch_any", "batch_any", "chat_any"]);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn leases_of_a_strict_order_need_a_list_too() {
    let house = house_with("http://127.0.0.1:9", |config| {
        config.pools[0].policy = parse_policy(BANDS).unwrap();
        let capacity = config.pools[0].capacity;
        lease_pool(config, capacity, std::time::Duration::from_secs(15), UNSTATED_QUOTA);
    })
    .await;
    let lease = |key: &str, class: &str| {
        post("/v1/leases", &json!({"pool": "gpt", "class": class, "wait_ms": 5000})).key(key)
    };
    refused_as_strict(&house, lease(&house.key, "chat"), "\"batch\"").await;
    let rights = KeyRights { classes: Some(vec!["chat".into()]), ..open_rights() };
    let listed = house.key_with("acme", DirectoryLimits::default(), rights).await;
    for (key, class) in [(&house.key, "batch"), (&listed, "chat")] {
        let granted = lease(key, class).ask(house.gateway.addr()).await;
        assert_eq!(granted.json()["state"], "granted", "{}", granted.text());
        let id = granted.json()["id"].as_str().unwrap().to_owned();
        let released = post(&format!("/v1/leases/{id}/settle"), &json!({"tokens": 3})).key(key);
        assert_eq!(released.ask(house.gateway.addr()).await.status, StatusCode::OK);
    }
    let rows = house.rows_soon(3).await;
    let classes: Vec<_> = rows.iter().skip(1).map(|row| row.class.as_deref()).collect();
    assert_eq!(classes, [Some("batch"), Some("chat")]);
    house.close().await;
}

/// Starts a pool with groups in a strict order, and tenants that share inside them.
async fn groups_in_order() -> Fixture {
    let it = Fixture::with(|config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy = parse_policy(
            r#"{"bands":{"by":"group","classes":[{"name":"prod","cap":3},{"name":"dev"}],"default":"dev",
                "inside":{"share":{"by":"tenant"}}}}"#,
        )
        .unwrap();
    })
    .await;
    it.tenant("prod", "chat").await;
    it.tenant("dev", "batch").await;
    it
}

#[tokio::test]
async fn a_weight_for_a_band_is_refused_and_says_why() {
    let it = groups_in_order().await;
    let refused = |answer: crate::admin::Answer| {
        let body = answer.expect(422);
        assert_eq!(body["error"]["field"], "weight", "{body}");
        let message = body["error"]["message"].as_str().unwrap().to_owned();
        for says in ["a class of bands has no weight", "cap"] {
            assert!(message.contains(says), "{message}");
        }
    };
    refused(it.patch("/api/v1/groups/prod", json!({"weight": 500})).await);
    it.delete("/api/v1/tenants/chat").await.expect(204);
    it.delete("/api/v1/groups/prod").await.expect(204);
    refused(it.post("/api/v1/groups", json!({"name": "prod", "weight": 500})).await);
    it.post("/api/v1/groups", json!({"name": "prod"})).await.expect(201);
    // What is no class of bands, and tenants that share inside a band, have their weights.
    it.post("/api/v1/groups", json!({"name": "other", "weight": 500})).await.expect(201);
    let tenant = it.patch("/api/v1/tenants/batch", json!({"weight": 7})).await.expect(200);
    assert_eq!(tenant["weight"], 7);
    let snapshot = it.app().pools.all()[0].gate.snapshot().await.unwrap();
    let weights: Vec<_> =
        snapshot.weights.iter().map(|(_, flow, weight)| (&**flow, weight.get())).collect();
    assert_eq!(weights, [("batch", 7)]);
}

#[tokio::test]
async fn a_tenant_in_a_strict_order_has_a_cap_of_the_directory() {
    let it = Fixture::with(|config| {
        config.pools[0].capacity = 8;
        config.pools[0].policy = parse_policy(
            r#"{"bands":{"by":"tenant","classes":[{"name":"vip","cap":5},{"name":"rest"}],"default":"rest"}}"#,
        )
        .unwrap();
    })
    .await;
    it.tenant("all", "vip").await;
    assert_eq!(it.patch("/api/v1/tenants/vip", json!({"weight": 7})).await.refused(422), "invalid");
    it.patch("/api/v1/tenants/vip", json!({"limits": {"in_flight": 2}})).await.expect(200);
    let asked: Vec<_> = (0..4).map(|n| it.submit(&format!("v{n}"), "all", "vip", 10)).collect();
    it.until(2, 2).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    let vip = &view["tenants"][0];
    assert_eq!((&vip["tenant_id"], &vip["slot_cap"]), (&json!("vip"), &json!(2)), "{vip}");
    it.patch("/api/v1/tenants/vip", json!({"limits": {}})).await.expect(200);
    it.until(4, 0).await;
    let snapshot = it.app().pools.all()[0].gate.snapshot().await.unwrap();
    assert_eq!(snapshot.caps[0].slots, Some(5), "the policy's cap holds again");
    asked.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn views_tell_the_order_and_promise_nothing() {
    let it = groups_in_order().await;
    let (_, secret) = it.key("batch").await;
    let _in_flight = it.submit("c1", "prod", "chat", 100).await.unwrap();
    let waiting = [it.submit("c2", "prod", "chat", 100), it.submit("b1", "dev", "batch", 100)];
    it.until(1, 2).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(view["algorithm"], "bands by group in strict order, share by tenant");
    let row = |list: &str, field: &str, name: &str| {
        let rows = view[list].as_array().unwrap();
        rows.iter().find(|row| row[field] == name).unwrap().clone()
    };
    let (prod, dev) = (row("groups", "name", "prod"), row("groups", "name", "dev"));
    assert_eq!(
        (&prod["strict"], &prod["goes_before"]),
        (&json!("strict: goes before dev"), &json!(["dev"]))
    );
    assert_eq!((&dev["strict"], &dev["goes_before"]), (&json!("strict: goes last"), &json!([])));
    assert_eq!((&prod["got_tokens"], &prod["slot_cap"]), (&json!(100), &json!(3)));
    for field in ["due_tokens", "difference_tokens", "bound_tokens", "within_bound", "weight_share"]
    {
        assert_eq!((&prod[field], &dev[field]), (&Value::Null, &Value::Null), "{field}");
    }
    assert_eq!(prod["lag_bound_tokens"], Value::Null);
    // The share node inside a band keeps its promise.
    let chat = row("tenants", "tenant_id", "chat");
    assert_eq!((&chat["got_tokens"], &chat["due_tokens"]), (&json!(100), &json!(100)));
    assert_eq!((&chat["within_bound"], &chat["strict"]), (&json!(true), &Value::Null));

    let told = it.get("/api/v1/requests/b1").await.expect(200);
    let story = told["story"].as_array().unwrap();
    let says = |text: &str| story.iter().any(|line| line.as_str().unwrap().contains(text));
    assert!(says("group dev is strict: waits while prod could go"), "{told}");
    let level = &told["waiting"]["levels"][0];
    assert_eq!(
        (&level["strict"], &level["due_tokens"]),
        (&json!("strict: goes last"), &Value::Null)
    );
    let first = it.get("/api/v1/requests/c2").await.expect(200)["story"].to_string();
    assert!(first.contains("group prod is strict: goes before dev"), "{first}");
    // A tenant is told the order, and not who else is in it.
    let own =
        it.as_key(&secret, "GET", "/api/v1/requests/b1", Value::Null).await.expect(200).to_string();
    assert!(own.contains("waits while one other could go") && !own.contains("prod"), "{own}");

    let metrics = it.as_key(TOKEN, "GET", "/metrics", Value::Null).await.text;
    assert!(
        metrics.contains("fairgate_tenant_due_tokens{pool=\"sim\",tenant=\"chat\"}"),
        "{metrics}"
    );
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn metrics_have_no_due_of_a_class_in_a_strict_order() {
    let it = Fixture::with(|config| {
        config.pools[0].policy = parse_policy(
            r#"{"bands":{"by":"class","classes":[{"name":"default"}],"inside":{"share":{"by":"tenant"}}}}"#,
        )
        .unwrap();
    })
    .await;
    let _in_flight = it.submit("c1", "prod", "chat", 100).await.unwrap();
    let metrics = it.get("/metrics").await.text;
    assert!(
        metrics.contains(r#"fairgate_class_got_tokens{pool="sim",class="default"} 100"#),
        "{metrics}"
    );
    assert!(!metrics.contains("fairgate_class_due_tokens{"), "{metrics}");
}
