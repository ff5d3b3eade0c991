//! Tests of weights of requests in a load node: by model, by header and by lease, up to the key's
//! right.

use fairgate_config::Config;
use fairgate_journal::parse_policy;
use fairgate_store::{DirectoryLimits, KeyRights};
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::support::client::{Answer, Question, get, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, UNSTATED_QUOTA, house_with, lease_pool};

const CHAT: &str = "/v1/chat/completions";
const BY_TENANT: &str = r#"{"load":{"by":"tenant"}}"#;

/// Configures one slot, a load node over tenants, and a small and a large model. `own` is an alias
/// of the large model.
fn load_pool(config: &mut Config) {
    let pool = &mut config.pools[0];
    pool.capacity = 1;
    pool.policy = parse_policy(BY_TENANT).unwrap();
    pool.cost.weights_by_model = true;
    let model = pool.models[0].clone();
    pool.models = ["gpt-4o-mini", "claude-opus", "own"]
        .map(|name| fairgate_config::ModelConfig { name: name.into(), ..model.clone() })
        .into();
    pool.models[2].upstream_name = Some("claude-opus-4-1".into());
}

fn ask(key: &str, model: &str) -> Question {
    let messages = json!([{"role": "user", "content": key}]);
    post(CHAT, &json!({"model": model, "messages": messages, "max_tokens": 10})).key(key)
}

fn sender(call: &Call) -> String {
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    let ours = |name: &http::HeaderName| name.as_str().starts_with("x-fairgate");
    assert!(!call.request.headers().keys().any(ours), "{:?}", call.request.headers());
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn finish(call: Call) {
    let usage = json!({"usage": {"prompt_tokens": 20, "completion_tokens": 10}});
    call.answer(200, "application/json", usage.to_string());
}

fn asking(house: &House, question: Question) -> JoinHandle<Answer> {
    let addr = house.gateway.addr();
    tokio::spawn(async move { question.ask(addr).await })
}

/// Submits the requests one after the other while the slot is held, and returns the senders in the
/// order of their grants.
async fn order(house: &House, upstream: &mut Scripted, questions: Vec<Question>) -> Vec<String> {
    let blocker = asking(house, ask(&house.key, "gpt-4o-mini"));
    let held = upstream.call().await;
    let mut answers = vec![blocker];
    for (number, question) in questions.into_iter().enumerate() {
        answers.push(asking(house, question));
        house.until(|live| live.waiting == number as u64 + 1).await;
    }
    finish(held);
    let mut order = Vec::new();
    for _ in 1..answers.len() {
        let call = upstream.call().await;
        order.push(sender(&call));
        finish(call);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    order
}

#[tokio::test]
async fn the_weight_of_the_model_counts_in_a_load_node() {
    for is_on in [true, false] {
        let mut upstream = Scripted::start().await;
        let house = house_with(&upstream.url(), |config| {
            load_pool(config);
            config.pools[0].cost.weights_by_model = is_on;
        })
        .await;
        let light = house.tenant("light", DirectoryLimits::default()).await;
        let heavy = house.tenant("heavy", DirectoryLimits::default()).await;
        for large in ["claude-opus", "own"] {
            let questions = vec![ask(&light, "gpt-4o-mini"), ask(&heavy, large)];
            let order = order(&house, &mut upstream, questions).await;
            let expected = if is_on { [&heavy, &light] } else { [&light, &heavy] };
            assert_eq!(order, expected.map(String::as_str), "{large}, {is_on}");
        }
        house.close().await;
    }
}

#[tokio::test]
async fn a_stated_weight_counts_up_to_the_keys_right() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), load_pool).await;
    let limits = DirectoryLimits::default;
    house.tenant("light", limits()).await;
    let heavy = house.tenant("heavy", limits()).await;
    let rights = KeyRights { weight_max_milli: Some(9_500), ..KeyRights::default() };
    let light = house.key_with("light", limits(), rights).await;
    let closed = house.key_with("light", limits(), KeyRights::default()).await;
    let stating =
        |key: &str, model: &str, weight: &str| ask(key, model).header("x-fairgate-weight", weight);
    // More than the model's weight with the right; less without it.
    let questions = vec![ask(&heavy, "claude-opus"), stating(&light, "gpt-4o-mini", "9.5")];
    assert_eq!(order(&house, &mut upstream, questions).await, [light.as_str(), &heavy]);
    let questions = vec![stating(&heavy, "claude-opus", "0.5"), ask(&closed, "gpt-4o-mini")];
    assert_eq!(order(&house, &mut upstream, questions).await, [closed.as_str(), &heavy]);
    for (key, model, weight, status, code, says) in [
        (
            &closed,
            "gpt-4o-mini",
            "1.001",
            403,
            "weight_not_allowed",
            "1.001, and this key may state weights up to 1:",
        ),
        (
            &closed,
            "claude-opus",
            "6",
            403,
            "weight_not_allowed",
            "weight of the model is 5, and it has no weight_max",
        ),
        (
            &light,
            "gpt-4o-mini",
            "9.501",
            403,
            "weight_not_allowed",
            "9.501, and this key may state weights up to 9.5:",
        ),
        (&light, "gpt-4o-mini", "0", 400, "invalid_weight", "0.001 to 1000000"),
        (&light, "gpt-4o-mini", "1000001", 400, "invalid_weight", "0.001 to 1000000"),
        (&light, "gpt-4o-mini", "1e9", 400, "invalid_weight", "three decimals"),
    ] {
        let refused = stating(key, model, weight).ask(house.gateway.addr()).await;
        let told = (refused.status.as_u16(), refused.code());
        assert_eq!(told, (status, code.to_owned()), "{weight}: {}", refused.text());
        assert!(refused.text().contains(says), "{}", refused.text());
        assert_eq!(refused.header("x-should-retry"), Some("false"));
    }
    // What waits shows its weight.
    let blocker = asking(&house, ask(&heavy, "claude-opus"));
    let held = upstream.call().await;
    let waiting = asking(&house, stating(&light, "gpt-4o-mini", "2.5"));
    house.until(|live| live.waiting == 1).await;
    let list = get("/api/v1/requests?state=waiting").key("admin").ask(house.gateway.addr()).await;
    assert_eq!(list.json()["items"][0]["weight"], json!(2.5), "{}", list.text());
    finish(held);
    finish(upstream.call().await);
    for answer in [blocker, waiting] {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn a_weight_that_would_do_nothing_is_refused() {
    let upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    let rights = KeyRights { weight_max_milli: Some(9_000), ..KeyRights::default() };
    let key = house.key_with("acme", DirectoryLimits::default(), rights).await;
    let refused = ask(&key, "sim").header("x-fairgate-weight", "1").ask(house.gateway.addr()).await;
    assert_eq!((refused.status.as_u16(), &*refused.code()), (400, "weight_without_effect"));
    house.close().await;
}

/// Starts a pool of one leased slot with this policy. By its name, it comes before the other pool.
async fn leasing(policy: &str) -> House {
    house_with("http://127.0.0.1:9", |config| {
        let pool = lease_pool(config, 1, Duration::from_secs(60), UNSTATED_QUOTA);
        pool.policy = parse_policy(policy).unwrap();
        pool.cost.weights_by_model = true;
    })
    .await
}

async fn submit(house: &House, key: &str, body: Value) -> Answer {
    post("/v1/leases", &body).key(key).ask(house.gateway.addr()).await
}

async fn cancel(house: &House, key: &str, lease: &Value) {
    let path = format!("/v1/leases/{}", lease["id"].as_str().unwrap());
    let mut question = get(&path).key(key);
    question.method = http::Method::DELETE;
    assert_eq!(question.ask(house.gateway.addr()).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_lease_states_its_weight_up_to_the_keys_right() {
    let house = leasing(r#"{"share":{"by":"tenant","inside":{"load":{"by":"agent"}}}}"#).await;
    let rights =
        KeyRights { may_lease: true, weight_max_milli: Some(9_000), ..KeyRights::default() };
    let key = house.key_with("acme", DirectoryLimits::default(), rights).await;
    let held = submit(&house, &key, json!({"agent": "x", "cost": 1, "wait_ms": 5000})).await.json();
    assert_eq!((&held["state"], &held["weight"]), (&json!("granted"), &json!(1)));
    let mut ids = Vec::new();
    for (agent, more, weight) in [
        ("light", json!({"weight": 1.0}), json!(1)),
        ("middle", json!({"model": "claude-opus"}), json!(5)),
        ("heavy", json!({"weight": 8.5}), json!(8.5)),
    ] {
        let mut body = json!({"agent": agent, "cost": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let lease = submit(&house, &key, body).await.json();
        assert_eq!((&lease["state"], &lease["weight"]), (&json!("queued"), &weight));
        ids.push(lease["id"].as_str().unwrap().to_owned());
    }
    let mut last = held["id"].as_str().unwrap().to_owned();
    for next in [&ids[2], &ids[1], &ids[0]] {
        let path = format!("/v1/leases/{last}/settle");
        let settled = post(&path, &json!({"tokens": 1})).key(&key).ask(house.gateway.addr()).await;
        assert_eq!(settled.status, StatusCode::OK, "{}", settled.text());
        let path = format!("/v1/leases/{next}?wait_ms=5000");
        let lease = get(&path).key(&key).ask(house.gateway.addr()).await.json();
        assert_eq!(lease["state"], "granted", "{lease}");
        last.clone_from(next);
    }
    // Without the right a lease may state the weight of its model, which is 1 if it names none.
    let rights = KeyRights { may_lease: true, ..KeyRights::default() };
    let closed = house.key_with("acme", DirectoryLimits::default(), rights).await;
    for (body, status) in [
        (json!({"weight": 1}), 200),
        (json!({"weight": 1.5}), 403),
        (json!({"weight": 5, "model": "claude-opus"}), 200),
        (json!({"weight": 5.001, "model": "claude-opus"}), 403),
        (json!({"weight": 0}), 400),
        (json!({"weight": "5"}), 400),
    ] {
        let answer = submit(&house, &closed, body.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{body}: {}", answer.text());
        match status {
            200 => cancel(&house, &closed, &answer.json()).await,
            403 => assert_eq!(answer.code(), "weight_not_allowed"),
            _ => {}
        }
    }
    cancel(&house, &key, &json!({"id": last})).await;
    house.close().await;
}

#[tokio::test]
async fn a_lease_says_that_its_weight_has_no_effect() {
    let house = leasing(r#"{"share":{"by":"tenant"}}"#).await;
    let rights = KeyRights { may_lease: true, ..KeyRights::default() };
    let key = house.key_with("acme", DirectoryLimits::default(), rights).await;
    let lease = submit(&house, &key, json!({"weight": 700, "wait_ms": 5000})).await.json();
    assert_eq!((&lease["state"], &lease["weight"]), (&json!("granted"), &Value::Null), "{lease}");
    assert!(lease.as_object().unwrap().contains_key("weight"), "{lease}");
    cancel(&house, &key, &lease).await;
    house.close().await;
}
