//! Tests of deadlines: how long a request may wait, where its deadline comes from, and the error
//! after the deadline.

use std::time::Duration;

use fairgate_config::{Config, QuotaConfig};
use fairgate_gateway::GatewayDrainReport;
use fairgate_journal::parse_policy;
use fairgate_store::{AttemptOutcome, DirectoryLimits, KeyRights};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{advance, pause, resume};

use crate::support::client::{Answer, Question, get, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, UNSTATED_QUOTA, beside, house_with, lease_pool, open_rights, sim};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const DEADLINE: &str = "x-fairgate-deadline";
/// `chat` is served in the order of deadlines, `batch` in the order of arrival.
const CLASSES: &str = r#"{"share":{"by":"class","classes":[
    {"name":"chat","weight":3,"inside":{"share":{"by":"group","queue":"edf"}}},
    {"name":"batch","weight":1}]}}"#;

fn ask(path: &str) -> Question {
    let message = json!({"role": "user", "content": "x"});
    post(path, &json!({"model": "sim", "messages": [message], "max_tokens": 10}))
}

fn asking(house: &House, question: Question) -> JoinHandle<Answer> {
    let addr = house.gateway.addr();
    tokio::spawn(async move { question.ask(addr).await })
}

fn finish(call: Call) {
    let usage = json!({"usage": {"prompt_tokens": 20, "completion_tokens": 10}});
    call.answer(200, "application/json", usage.to_string());
}

/// Starts a gateway with one slot, so that the second request waits.
async fn narrow(url: &str, change: impl FnOnce(&mut Config)) -> House {
    house_with(url, |config| {
        config.pools[0].capacity = 1;
        change(config);
    })
    .await
}

/// Stops tokio's time until the test advances it. While a thread for blocking work is busy, tokio
/// does not advance the time by itself.
struct StoppedTime(Option<std::sync::mpsc::Sender<()>>);

impl StoppedTime {
    fn new() -> Self {
        let (until, ended) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || ended.recv());
        pause();
        Self(Some(until))
    }
}

impl Drop for StoppedTime {
    fn drop(&mut self) {
        resume();
        drop(self.0.take());
    }
}

/// Waits in real time, whatever tokio's clock does, until the pool's status meets the condition.
async fn really_until(house: &House, is: impl Fn(&fairgate_runtime::GateStatus) -> bool) {
    for _ in 0..20_000 {
        let live = house.gateway.data_plane().pools.all()[0].gate.status().await.unwrap();
        if is(&live) {
            return;
        }
        let nap = || std::thread::sleep(Duration::from_millis(1));
        tokio::task::spawn_blocking(nap).await.unwrap();
    }
    panic!("the pool does not come to look so");
}

fn assert_passed(answer: &Answer, says: &str) {
    let told = (answer.status, answer.code());
    assert_eq!(told, (StatusCode::GATEWAY_TIMEOUT, "deadline_passed".into()), "{}", answer.text());
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(says), "{message}");
}

fn journal(house: &House) -> String {
    let files = std::fs::read_dir(house.folder.0.join("journal").join("sim")).unwrap();
    files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[tokio::test]
async fn a_deadline_is_refused_at_its_moment_in_both_dialects() {
    let mut upstream = Scripted::start().await;
    let house = narrow(&upstream.url(), |_| {}).await;
    let first = asking(&house, ask(CHAT).key(&house.key));
    let blocker = upstream.call().await;
    let time = StoppedTime::new();
    for (path, value, millis) in [(CHAT, "750ms", 750), (MESSAGES, "2.5", 2500), (CHAT, "1ms", 1)] {
        let late = asking(&house, ask(path).key(&house.key).header(DEADLINE, value));
        really_until(&house, |live| live.waiting == 1).await;
        if millis > 1 {
            advance(Duration::from_millis(millis - 1)).await;
            really_until(&house, |live| live.waiting == 1).await;
        }
        // Tokio's timers are exact to the millisecond, and fire one after.
        advance(Duration::from_millis(3)).await;
        let answer = late.await.unwrap();
        assert_passed(&answer, &format!("{millis} ms"));
        let kind = if path == CHAT { "server_error" } else { "timeout_error" };
        assert_eq!(answer.json()["error"]["type"], kind);
    }
    drop(time);
    finish(blocker);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let rows = house.rows_soon(4).await;
    let late = rows.iter().filter(|row| row.code.as_deref() == Some("deadline_passed"));
    assert!(late.clone().all(|row| (row.status, row.outcome) == (504, AttemptOutcome::Refused)));
    assert_eq!(late.count(), 3);
    house.close().await;
}

#[tokio::test]
async fn a_deadline_is_the_requests_else_the_keys_else_the_classs() {
    let mut upstream = Scripted::start().await;
    let house = narrow(&upstream.url(), |config| {
        let pool = &mut config.pools[0];
        pool.policy = parse_policy(CLASSES).unwrap();
        pool.class_deadlines.insert("batch".into(), Duration::from_secs(10));
        pool.queue_timeout = Duration::from_secs(15);
    })
    .await;
    let rights = KeyRights { deadline_ms: Some(7_000), ..open_rights() };
    let keyed = house.key_with("acme", DirectoryLimits::default(), rights).await;
    let first = asking(&house, ask(CHAT).key(&house.key));
    let blocker = upstream.call().await;
    let batch = |key: &str| ask(CHAT).key(key).header("x-fairgate-class", "batch");
    let cases = [
        (batch(&keyed).header(DEADLINE, "5"), 5_000_000, "that it states"),
        (batch(&keyed), 7_000_000, "of its key"),
        (batch(&house.key), 10_000_000, "of its class"),
    ];
    let time = StoppedTime::new();
    let mut late = Vec::new();
    for (number, (question, micros, says)) in cases.into_iter().enumerate() {
        late.push((asking(&house, question), micros, says));
        really_until(&house, |live| live.waiting == number as u64 + 1).await;
    }
    let unlimited = asking(&house, ask(CHAT).key(&house.key));
    really_until(&house, |live| live.waiting == 4).await;
    advance(Duration::from_secs(16)).await;
    let timed_out = unlimited.await.unwrap();
    let told = (timed_out.status, timed_out.code());
    assert_eq!(told, (StatusCode::SERVICE_UNAVAILABLE, "queue_timeout".into()));
    assert_eq!(timed_out.header("x-should-retry"), None);
    let mut allowed = vec![15_000_000];
    for (answer, micros, says) in late {
        assert_passed(&answer.await.unwrap(), says);
        allowed.push(micros);
    }
    drop(time);
    finish(blocker);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    house.quiet().await;
    // The journal's thread has written every line once the gateway has drained.
    assert_eq!(house.gateway.drain(Duration::from_secs(5)).await, GatewayDrainReport::default());
    let text = journal(&house);
    assert!(!text.contains("queue_timeout_us"), "{text}");
    assert!(text.starts_with('{') && text.lines().next().unwrap().contains(r#""machine":3"#));
    for micros in allowed {
        assert!(text.contains(&format!(r#""timeout_us":{micros}"#)), "{micros} in {text}");
    }
}

#[tokio::test]
async fn a_reload_changes_how_long_requests_may_wait() {
    let mut upstream = Scripted::start().await;
    let house = narrow(&upstream.url(), |config| {
        config.pools[0].policy = parse_policy(CLASSES).unwrap();
        config.pools[0].queue_timeout = Duration::from_secs(10);
    })
    .await;
    let first = asking(&house, ask(CHAT).key(&house.key));
    let blocker = upstream.call().await;
    let batch = || ask(CHAT).key(&house.key).header("x-fairgate-class", "batch");
    let time = StoppedTime::new();
    let before = asking(&house, batch());
    really_until(&house, |live| live.waiting == 1).await;
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.pools[0].queue_timeout = Duration::from_secs(2);
    let plan = house.gateway.reload(next.clone()).await.unwrap();
    assert_eq!(plan.plan.changes[0].to_string(), "pools.sim.queue_timeout: 10s → 2s");
    let after = asking(&house, batch());
    really_until(&house, |live| live.waiting == 2).await;
    advance(Duration::from_millis(2010)).await;
    assert_eq!(after.await.unwrap().code(), "queue_timeout");
    next.pools[0].class_deadlines.insert("batch".into(), Duration::from_secs(1));
    house.gateway.reload(next).await.unwrap();
    let by_class = asking(&house, batch());
    really_until(&house, |live| live.waiting == 2).await;
    advance(Duration::from_millis(1010)).await;
    assert_passed(&by_class.await.unwrap(), "of its class");
    really_until(&house, |live| live.waiting == 1).await;
    advance(Duration::from_secs(8)).await;
    assert_eq!(before.await.unwrap().code(), "queue_timeout", "it keeps what it came with");
    drop(time);
    finish(blocker);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    house.close().await;
}

#[tokio::test]
async fn a_deadline_counts_through_retries_and_cuts_nothing_in_flight() {
    let (mut a, mut b) = (Scripted::start().await, Scripted::start().await);
    let house = house_with(&a.url(), |config| {
        let second = beside(config, "b", &b.url());
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await;
    let mut calls = Vec::new();
    let time = StoppedTime::new();
    let mut slow = Vec::new();
    for _ in 0..2 {
        slow.push(asking(&house, ask(CHAT).key(&house.key).header(DEADLINE, "1")));
        calls.push(tokio::select! { call = a.call() => call, call = b.call() => call });
    }
    advance(Duration::from_secs(5)).await;
    // One worker fails, and the other goes on: the failed request has no time left for another attempt.
    calls.remove(0).answer(503, "application/json", "{}");
    assert_passed(&slow.remove(0).await.unwrap(), "1000 ms");
    finish(calls.remove(0));
    assert_eq!(slow.remove(0).await.unwrap().status, StatusCode::OK, "it was in flight");
    drop(time);
    let rows = house.rows_soon(3).await;
    let codes: Vec<_> = rows.iter().map(|row| row.code.as_deref().unwrap_or("ok")).collect();
    assert_eq!(codes, ["upstream_status", "deadline_passed", "ok"]);
    assert_eq!((rows[1].attempt, rows[1].status), (2, 504));
    assert!(!a.has_call() && !b.has_call());
    house.close().await;
}

#[tokio::test]
async fn a_deadline_counts_through_a_providers_pause() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.upstreams[0].quota = QuotaConfig {
            account: Some("main".into()),
            requests_per_minute: Some(6000),
            ..UNSTATED_QUOTA
        };
    })
    .await;
    let question = ask(CHAT).key(&house.key).header(DEADLINE, "300ms");
    let waits = asking(&house, question);
    let message = "Rate limit reached for requests. Please try again in 30s.";
    let told = json!({"error": {"message": message, "code": "rate_limit_exceeded"}});
    upstream.call().await.answer(429, "application/json", told.to_string());
    assert_passed(&waits.await.unwrap(), "300 ms");
    let rows = house.rows_soon(2).await;
    let codes: Vec<_> = rows.iter().map(|row| row.code.as_deref().unwrap()).collect();
    assert_eq!(codes, ["provider_limited", "deadline_passed"]);
    house.close().await;
}

#[tokio::test]
async fn a_short_deadline_needs_a_right_where_the_earliest_goes_first() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        let pool = &mut config.pools[0];
        pool.policy = parse_policy(CLASSES).unwrap();
        pool.queue_timeout = Duration::from_secs(30);
    })
    .await;
    let may =
        |deadline_ms, deadline_min_ms| KeyRights { deadline_ms, deadline_min_ms, ..open_rights() };
    let with = async |rights| house.key_with("acme", DirectoryLimits::default(), rights).await;
    let (plain, least) = (with(open_rights()).await, with(may(None, Some(500))).await);
    let keyed = with(may(Some(2000), None)).await;
    let try_all = async |cases: &[(&str, &str, &str, Option<&str>)]| {
        for (key, class, deadline, least) in cases {
            for path in [CHAT, MESSAGES] {
                let question = ask(path).key(key).header("x-fairgate-class", class);
                let question = question.header(DEADLINE, deadline);
                let answer = question.ask(house.gateway.addr()).await;
                let Some(least) = least else {
                    assert_eq!(
                        answer.status,
                        StatusCode::OK,
                        "{class} {deadline}: {}",
                        answer.text()
                    );
                    continue;
                };
                let told = (answer.status, answer.code());
                assert_eq!(told, (StatusCode::FORBIDDEN, "deadline_not_allowed".into()));
                assert_eq!(answer.header("x-should-retry"), Some("false"));
                let text = answer.text();
                let stated = fairgate_config::parse_deadline(deadline).unwrap().as_millis();
                assert!(text.contains(&format!("from {least} on")), "{text}");
                assert!(text.contains(&format!("states {stated} ms")), "{text}");
            }
        }
    };
    // Without a deadline of the class: the pool's queue_timeout, or what the key says.
    try_all(&[
        (&plain, "chat", "29.999", Some("30000 ms")),
        (&plain, "chat", "30", None),
        (&plain, "batch", "5", None),
        (&least, "chat", "499ms", Some("500 ms")),
        (&least, "chat", "500ms", None),
        (&keyed, "chat", "1.999", Some("2000 ms")),
        (&keyed, "chat", "2", None),
    ])
    .await;
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.pools[0].class_deadlines.insert("chat".into(), Duration::from_secs(5));
    house.gateway.reload(next).await.unwrap();
    try_all(&[
        (&plain, "chat", "4.999", Some("5000 ms")),
        (&plain, "chat", "5", None),
        (&least, "chat", "0.499", Some("500 ms")),
        (&least, "chat", "0.5", None),
        (&keyed, "chat", "2", None),
    ])
    .await;
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn whoever_asks_for_1_ms_gains_nothing_on_one_that_asks_for_nothing() {
    let mut upstream = Scripted::start().await;
    let house = narrow(&upstream.url(), |config| {
        config.pools[0].policy = parse_policy(r#"{"share":{"by":"group","queue":"edf"}}"#).unwrap();
    })
    .await;
    let first = asking(&house, ask(CHAT).key(&house.key));
    let blocker = upstream.call().await;
    let honest = asking(&house, ask(CHAT).key(&house.key).header("x-mark", "honest"));
    house.until(|live| live.waiting == 1).await;
    let greedy = ask(CHAT).key(&house.key).header(DEADLINE, "1ms");
    let refused = greedy.ask(house.gateway.addr()).await;
    assert_eq!(refused.code(), "deadline_not_allowed");
    let long = ask(CHAT).key(&house.key).header(DEADLINE, "100");
    let long = asking(&house, long.header("x-mark", "long"));
    house.until(|live| live.waiting == 2).await;
    finish(blocker);
    for expected in ["honest", "long"] {
        let call = upstream.call().await;
        assert_eq!(call.request.headers()["x-mark"], expected);
        assert!(!call.request.headers().contains_key(DEADLINE), "it stays with the gateway");
        finish(call);
    }
    for answer in [first, honest, long] {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn a_bad_deadline_is_told_with_its_header_and_its_forms() {
    let sim = sim();
    let house = house_with(&sim.url(), |_| {}).await;
    for bad in ["", "soon", "0", "-1", "1m", "86401", "0.5ms", "2,5"] {
        for path in [CHAT, MESSAGES] {
            let question = ask(path).key(&house.key).header(DEADLINE, bad);
            let refused = question.ask(house.gateway.addr()).await;
            let told = (refused.status, refused.code());
            assert_eq!(told, (StatusCode::BAD_REQUEST, "invalid_deadline".into()), "{bad}");
            for says in [DEADLINE, "2.5", "750ms"] {
                assert!(refused.text().contains(says), "{}", refused.text());
            }
        }
    }
    assert_eq!(sim.stats().requests, 0);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_lease_has_a_deadline_too() {
    let house = house_with("http://127.0.0.1:9", |config| {
        let pool = lease_pool(config, 1, Duration::from_secs(15), UNSTATED_QUOTA);
        pool.policy = parse_policy(CLASSES).unwrap();
    })
    .await;
    let submit = async |body: Value| {
        post("/v1/leases", &body).key(&house.key).ask(house.gateway.addr()).await
    };
    let batch = json!({"class": "batch", "wait_ms": 5000});
    let granted = submit(batch.clone()).await;
    assert_eq!(granted.json()["state"], "granted", "{}", granted.text());
    let with = |class: &str, deadline_ms: Value| json!({"class": class, "wait_ms": 5000, "deadline_ms": deadline_ms});
    assert_passed(&submit(with("batch", json!(50))).await, "50 ms");
    let refused = submit(with("chat", json!(50))).await;
    assert_eq!(refused.code(), "deadline_not_allowed", "{}", refused.text());
    for bad in [json!(0), json!(86_400_001), json!("1s"), json!(1.5)] {
        let refused = submit(with("batch", bad)).await;
        assert_eq!(refused.code(), "invalid_lease", "{}", refused.text());
        assert!(refused.text().contains("deadline_ms") || refused.text().contains("line 1"));
    }
    let id = granted.json()["id"].as_str().unwrap().to_owned();
    let settled = post(&format!("/v1/leases/{id}/settle"), &json!({"tokens": 1})).key(&house.key);
    assert_eq!(settled.ask(house.gateway.addr()).await.status, StatusCode::OK);
    let rows = house.rows_soon(3).await;
    assert!(rows.iter().any(|row| row.code.as_deref() == Some("deadline_passed")));
    house.close().await;
}

#[tokio::test]
async fn an_expected_wait_is_what_waits_by_the_grants_of_the_last_minute() {
    let mut upstream = Scripted::start().await;
    let policy = r#"{"share":{"by":"class","classes":[
        {"name":"batch","weight":1,"limit_requests_per_worker":2,"inside":{"share":{"by":"tenant"}}}]}}"#;
    let house =
        narrow(&upstream.url(), |config| config.pools[0].policy = parse_policy(policy).unwrap())
            .await;
    let time = StoppedTime::new();
    let mut answers = vec![asking(&house, ask(CHAT).key(&house.key))];
    let mut call = upstream.call().await;
    for waiting in 1..=2 {
        answers.push(asking(&house, ask(CHAT).key(&house.key)));
        really_until(&house, |live| live.waiting == waiting).await;
    }
    advance(Duration::from_secs(10)).await;
    let addr = house.gateway.addr();
    let see = async |path: &str| get(path).key("admin").ask(addr).await.json();
    // One grant in ten seconds, and two wait.
    let list = see("/api/v1/requests").await;
    let waits: Vec<_> = list["items"].as_array().unwrap().iter().collect();
    let of = |state: &str| waits.iter().filter(|item| item["state"] == state).collect::<Vec<_>>();
    assert!(of("waiting").iter().all(|item| item["expected_wait_ms"] == 20_000), "{list}");
    assert_eq!(of("in_flight")[0]["expected_wait_ms"], Value::Null);
    let live = see("/api/v1/fairshare/live").await;
    for row in [&live["tenants"][0], &live["classes"][0]] {
        assert_eq!(
            (&row["queued"], &row["expected_wait_ms"]),
            (&json!(2), &json!(20_000)),
            "{row}"
        );
    }
    // The last of them has one grant ahead, of all that the pool grants.
    let last = of("waiting").last().unwrap()["id"].as_str().unwrap().to_owned();
    let detail = see(&format!("/api/v1/requests/{last}")).await;
    assert_eq!(detail["waiting"]["grants_ahead"], 1);
    let wait = detail["waiting"]["expected_wait_ms"].as_u64().unwrap();
    assert!((20_000..60_000).contains(&wait), "{detail}");
    for path in [CHAT, MESSAGES] {
        let full = ask(path).key(&house.key).ask(addr).await;
        assert_eq!(full.code(), "class_requests");
        assert_eq!(full.json()["error"]["expected_wait_ms"], 30_000, "{}", full.text());
        assert_eq!(full.header("retry-after"), Some("30"));
    }
    drop(time);
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
