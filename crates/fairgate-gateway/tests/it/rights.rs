//! Tests of the choices of a request (class, priority, worker, taints), and of the refusals without
//! the right.

mod gaming;
mod workers;

use std::time::Duration;

use fairgate_journal::parse_policy;
use fairgate_sim::SimFault;
use fairgate_store::{AttemptOutcome, DirectoryLimits, KeyRights};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::client::{Answer, Question, get, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, asked_when_suspect, beside, house_with, sim};

const CHAT: &str = "/v1/chat/completions";
const CLASSES: &str = r#"{"share":{"by":"class","classes":[
    {"name":"chat","weight":3,"limit_requests_per_worker":2,"inside":{"share":{"by":"tenant"}}},
    {"name":"batch","weight":1,"inside":{"share":{"by":"tenant"}}}]}}"#;

fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}], "max_tokens": 10})
}

fn asking(house: &House, question: Question) -> JoinHandle<Answer> {
    let addr = house.gateway.addr();
    tokio::spawn(async move { question.ask(addr).await })
}

fn finish(call: Call) {
    let usage = json!({"usage": {"prompt_tokens": 20, "completion_tokens": 10}});
    call.answer(200, "application/json", usage.to_string());
}

fn content(call: &Call) -> String {
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    assert!(body.get("nvext").is_none(), "hints stay with the gateway");
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

fn everything() -> KeyRights {
    KeyRights {
        classes: None,
        priority_max: 100,
        may_pin: true,
        taints: Some(vec!["eu".into()]),
        ..KeyRights::default()
    }
}

#[tokio::test]
async fn what_a_key_may_not_choose_is_refused_and_says_what_it_may() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy = parse_policy(CLASSES).unwrap();
    })
    .await;
    let plain = house.key("acme", DirectoryLimits::default(), &["batch"]).await;
    let rich = house.key_with("acme", DirectoryLimits::default(), everything()).await;
    let hints = |hints: Value| {
        let mut body = chat("x");
        body["nvext"] = hints;
        body
    };
    let many = (0..17).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let cases: [(&str, &str, &str, Value, u16, &str, &str); 17] = [
        (&plain, "x-fairgate-class", "chat", chat("x"), 403, "class_not_allowed", "\"batch\""),
        (
            &plain,
            "x-dynamo-meta-policy-class",
            "chat",
            chat("x"),
            403,
            "class_not_allowed",
            "\"chat\"",
        ),
        (
            &rich,
            "x-fairgate-class",
            "premium",
            chat("x"),
            403,
            "class_not_allowed",
            "\"batch\", \"chat\"",
        ),
        (&plain, "x-fairgate-priority", "1", chat("x"), 403, "priority_not_allowed", "up to 0"),
        (&rich, "x-fairgate-priority", "101", chat("x"), 403, "priority_not_allowed", "up to 100"),
        (
            &plain,
            "x-dynamo-request-priority",
            "1",
            chat("x"),
            403,
            "priority_not_allowed",
            "up to 0",
        ),
        (
            &plain,
            "x-dynamo-request-strict-priority",
            "7",
            chat("x"),
            403,
            "priority_not_allowed",
            "7",
        ),
        (
            &plain,
            "x-a",
            "",
            hints(json!({"agent_hints": {"priority": 3}})),
            403,
            "priority_not_allowed",
            "3",
        ),
        (&rich, "x-fairgate-priority", "high", chat("x"), 400, "invalid_priority", "integer"),
        (
            &rich,
            "x-fairgate-priority",
            "9223372036854775807",
            chat("x"),
            400,
            "invalid_priority",
            "2147483647",
        ),
        (&plain, "x-fairgate-worker", "sim", chat("x"), 403, "pin_not_allowed", "may_pin"),
        (&rich, "x-fairgate-worker", "gone", chat("x"), 400, "unknown_worker", "\"sim\""),
        (&plain, "x-fairgate-requires", "eu", chat("x"), 403, "taint_not_allowed", "none"),
        (&rich, "x-fairgate-requires", "eu, us", chat("x"), 403, "taint_not_allowed", "\"us\""),
        (&rich, "x-fairgate-requires", &many, chat("x"), 400, "invalid_taints", "16"),
        (
            &rich,
            "x-a",
            "",
            hints(json!({"routing_constraints": {"required_taints": ["us"]}})),
            403,
            "taint_not_allowed",
            "\"eu\"",
        ),
        (
            &rich,
            "x-a",
            "",
            hints(json!({"agent_hints": {"priority": "5"}})),
            400,
            "invalid_value",
            "nvext",
        ),
    ];
    for (key, header, value, body, status, code, says) in cases {
        let mut messages = body.clone();
        messages["max_tokens"] = json!(10);
        for (path, body) in [(CHAT, &body), ("/v1/messages", &messages)] {
            let question = post(path, body).key(key).header(header, value);
            let refused = question.ask(house.gateway.addr()).await;
            let told = (refused.status.as_u16(), refused.code());
            assert_eq!(told, (status, code.to_owned()), "{header}: {value}: {}", refused.text());
            let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(says), "{message}");
            assert_eq!(refused.header("x-should-retry"), Some("false"));
        }
    }
    let rows = house.rows().await;
    assert!(rows.iter().all(|row| (row.outcome, row.charged) == (AttemptOutcome::Refused, 0)));
    assert_eq!(sim.stats().requests, 0);
    // Nobody has the taint that this key may require. The refusal names it, and is not worth a retry.
    let nobody = post(CHAT, &chat("x")).key(&rich).header("x-fairgate-requires", "eu");
    let nobody = nobody.ask(house.gateway.addr()).await;
    assert_eq!(
        (nobody.status, nobody.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "no_worker")
    );
    assert!(nobody.text().contains("taints \\\"eu\\\""), "{}", nobody.text());
    assert_eq!(nobody.header("x-should-retry"), Some("false"));
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn what_it_may_choose_orders_its_queue_and_is_shown_and_recorded() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy = parse_policy(CLASSES).unwrap();
    })
    .await;
    let rich = house.key_with("acme", DirectoryLimits::default(), everything()).await;
    let batch = |name: &str| post(CHAT, &chat(name)).key(&rich).header("x-fairgate-class", "batch");
    let mut answers = vec![asking(&house, batch("blocker"))];
    let blocker = upstream.call().await;
    let mut hinted = chat("hinted");
    hinted["nvext"] = json!({"agent_hints": {"priority": 99, "strict_priority": 4}});
    let mut overruled = chat("overruled");
    overruled["nvext"] = json!({"agent_hints": {"priority": 100}});
    let questions = [
        batch("plain"),
        batch("low").header("x-fairgate-priority", "-2147483648"),
        post(CHAT, &hinted).key(&rich).header("x-dynamo-meta-policy-class", "batch"),
        post(CHAT, &overruled)
            .key(&rich)
            .header("x-fairgate-class", "batch")
            .header("x-fairgate-priority", "3"),
        batch("high").header("x-fairgate-priority", "5").header("x-fairgate-worker", "sim/0"),
    ];
    for (number, question) in questions.into_iter().enumerate() {
        answers.push(asking(&house, question));
        house.until(|live| live.waiting == number as u64 + 1).await;
    }
    let listed = get("/api/v1/requests?state=waiting").key("admin").ask(house.gateway.addr()).await;
    let items = listed.json()["items"].as_array().unwrap().clone();
    let priorities: Vec<_> = items.iter().map(|item| item["priority"].as_i64().unwrap()).collect();
    assert_eq!(priorities, [0, -2_147_483_648, 4, 3, 5]);
    assert!(items.iter().all(|item| item["class"] == "batch"));
    assert_eq!((&items[4]["pin"], &items[0]["pin"]), (&json!("sim/0"), &Value::Null));
    finish(blocker);
    let mut order = Vec::new();
    for _ in 0..5 {
        let call = upstream.call().await;
        order.push(content(&call));
        finish(call);
    }
    assert_eq!(order, ["high", "hinted", "overruled", "plain", "low"]);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    let journal = house.folder.0.join("journal").join("sim");
    let folder = house.folder.0.clone();
    let House { gateway, folder: kept, .. } = house;
    gateway.drain(Duration::from_secs(5)).await;
    let files = std::fs::read_dir(&journal).unwrap_or_else(|_| panic!("{}", folder.display()));
    let text: String =
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for said in
        [r#""class":"batch""#, r#""priority":-2147483648"#, r#""pin":{"worker":"sim","rank":0}"#]
    {
        assert!(text.contains(said), "{said} in {text}");
    }
    drop(kept);
}

#[tokio::test]
async fn a_pinned_request_goes_to_its_worker_and_is_tried_on_no_other() {
    let (a, b) = (sim(), sim());
    let house = house_with(&a.url(), |config| {
        let second = beside(config, "b", &b.url());
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await;
    let rich = house.key_with("acme", DirectoryLimits::default(), everything()).await;
    let pinned = || post(CHAT, &chat("x")).key(&rich).header("x-fairgate-worker", "b");
    for _ in 0..6 {
        assert_eq!(pinned().ask(house.gateway.addr()).await.status, StatusCode::OK);
    }
    assert_eq!((a.stats().requests, b.stats().requests), (0, 6));
    b.set_fault(SimFault::ResetBefore);
    let failed = pinned().ask(house.gateway.addr()).await;
    assert_eq!(failed.status, StatusCode::BAD_GATEWAY, "{}", failed.text());
    assert_eq!(a.stats().requests, 0, "it was tried on no other worker");
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_full_class_is_told_with_its_numbers_and_when_to_come_back() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy = parse_policy(CLASSES).unwrap();
    })
    .await;
    let question = || post(CHAT, &chat("x")).key(&house.key).header("x-fairgate-class", "chat");
    let mut answers = vec![asking(&house, question())];
    let mut call = upstream.call().await;
    for waiting in 1..=2 {
        answers.push(asking(&house, question()));
        house.until(|live| live.waiting == waiting).await;
    }
    for path in [CHAT, "/v1/messages"] {
        let more = Question { path: path.into(), ..question() };
        let refused = more.ask(house.gateway.addr()).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
        let error = &refused.json()["error"];
        assert_eq!(error["code"], "class_requests");
        assert_eq!(error["type"], "rate_limit_error");
        assert_eq!(error["limit"], json!({"class": "chat", "current": 2, "bound": 2}));
        assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    }
    for _ in 0..2 {
        finish(call);
        call = upstream.call().await;
    }
    finish(call);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn the_status_of_overload_is_the_operators_to_choose() {
    for status in [529, 503, 429] {
        let a = sim();
        let house = house_with(&a.url(), |config| {
            config.pools[0].down_wait = Duration::ZERO;
            config.pools[0].overloaded_status = status;
            config.upstreams[0].breaker.failures = 1;
            config.upstreams[0].breaker.open_for = Duration::from_secs(100);
            config.upstreams[0].health = asked_when_suspect();
        })
        .await;
        a.set_fault(SimFault::ResetBefore);
        a.set_healthy(false);
        let question = post(CHAT, &chat("x")).key(&house.key);
        let overloaded = async {
            loop {
                let answer = question.ask(house.gateway.addr()).await;
                if answer.code() == "overloaded" {
                    return answer;
                }
            }
        };
        let answer = tokio::time::timeout(crate::support::SOON, overloaded).await.unwrap();
        // Statuses that no standard defines have a reason phrase too.
        let phrase = answer.reason_phrase();
        assert_eq!(phrase.as_deref(), (status == 529).then_some("Overloaded"));
        assert_eq!(answer.status.as_u16(), status);
        assert!(answer.header("retry-after").is_some());
        house.close().await;
        a.stop().await;
    }
}
