//! Tests of several workers: the choice of the worker, and failures of one worker.

use std::time::Duration;

use fairgate_config::HealthConfig;
use fairgate_sim::SimFault;
use fairgate_store::AttemptOutcome;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Answer, get, post};
use crate::support::scripted::Scripted;
use crate::support::{House, SOON, asked_when_suspect, beside, house_with, sim};

const CHAT: &str = "/v1/chat/completions";

fn chat() -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]})
}

async fn ask(house: &House) -> Answer {
    post(CHAT, &chat()).key(&house.key).ask(house.gateway.addr()).await
}

/// Starts a pool with the backends `sim` and `b`.
async fn two(a: &str, b: &str, breaker_failures: u32) -> House {
    two_checked(a, b, breaker_failures, None).await
}

async fn two_checked(
    a: &str,
    b: &str,
    breaker_failures: u32,
    health: Option<HealthConfig>,
) -> House {
    house_with(a, |config| {
        config.upstreams[0].breaker.failures = breaker_failures;
        config.upstreams[0].breaker.open_for = Duration::from_millis(300);
        config.upstreams[0].health = health;
        let second = beside(config, "b", b);
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await
}

fn state(house: &House, worker: &str) -> &'static str {
    let workers = house.gateway.data_plane().pools.all()[0].workers();
    workers.iter().find(|view| view.name == worker).unwrap().state
}

async fn until_state(house: &House, worker: &str, wanted: &str) {
    let reached = async {
        while state(house, worker) != wanted {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, reached).await.expect("the worker comes to stand so");
}

#[tokio::test]
async fn what_fails_before_the_first_byte_is_tried_on_another_worker() {
    let (a, b) = (sim(), sim());
    let house = two(&a.url(), &b.url(), 1000).await;
    let faults = [
        (SimFault::ResetBefore, "upstream_reset", 502),
        (SimFault::Status { code: 503, retry_after_seconds: None }, "upstream_status", 503),
        (SimFault::Status { code: 429, retry_after_seconds: Some(3) }, "upstream_status", 429),
        (SimFault::Status { code: 401, retry_after_seconds: None }, "upstream_credentials", 502),
    ];
    for (fault, code, status) in faults {
        // Whichever is asked first, it fails; the other one does not.
        a.fault_next(fault, 1);
        let before = house.rows().await.len();
        let answer = ask(&house).await;
        assert_eq!(answer.status, StatusCode::OK, "{fault}: {}", answer.text());
        a.set_fault(None);
        let rows = house.rows().await.split_off(before);
        assert_eq!(rows.len(), 2, "{fault}");
        let (first, last) = (&rows[0], &rows[1]);
        assert_eq!(first.request, last.request);
        assert_eq!((first.attempt, first.last, first.outcome), (1, false, AttemptOutcome::Retried));
        assert_eq!((first.status, first.code.as_deref()), (status, Some(code)));
        // The input was read where it failed by itself; a worker that is full, unreachable or set up wrong costs nobody.
        assert_eq!(first.charged > 0, status == 503, "{fault}");
        assert_eq!((last.attempt, last.last, last.outcome), (2, true, AttemptOutcome::Completed));
        assert_eq!((first.worker.as_deref(), last.worker.as_deref()), (Some("sim"), Some("b")));
    }
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn where_all_fail_the_last_failure_is_told_and_nothing_is_tried_for_ever() {
    let (a, b) = (sim(), sim());
    let house = two(&a.url(), &b.url(), 1000).await;
    a.set_fault(SimFault::ResetBefore);
    b.set_fault(SimFault::Status { code: 503, retry_after_seconds: Some(9) });
    let answer = ask(&house).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), Some("9"));
    let rows = house.rows().await;
    assert_eq!(rows.iter().map(|row| row.last).collect::<Vec<_>>(), [false, true]);
    assert_eq!((a.stats().requests, b.stats().requests), (1, 1));
    house.close().await;
    a.kill().await;
    b.kill().await;
}

#[tokio::test]
async fn nothing_is_tried_again_once_a_byte_has_come_or_work_may_be_under_way() {
    let (a, b) = (sim(), sim());
    let house = house_with(&a.url(), |config| {
        config.upstreams[0].timeouts.first_byte = Duration::from_millis(100);
        let second = beside(config, "b", &b.url());
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await;
    a.fault_next(SimFault::HangBefore, 1);
    let answer = ask(&house).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout")
    );
    // Equal workers take turns, so the next one goes to `b`.
    b.fault_next(SimFault::ResetMid, 1);
    let mut stream = chat();
    stream["stream"] = true.into();
    let answer = post(CHAT, &stream).key(&house.key).ask(house.gateway.addr()).await;
    assert!(answer.text().contains("upstream_reset"), "{}", answer.text());
    assert_eq!((a.stats().requests, b.stats().requests), (1, 1));
    assert_eq!(house.rows().await.len(), 2);
    house.close().await;
    a.kill().await;
    b.stop().await;
}

#[tokio::test]
async fn a_worker_on_which_requests_fail_is_left_alone_and_then_tried() {
    let (a, b) = (sim(), sim());
    let house = two_checked(&a.url(), &b.url(), 2, asked_when_suspect()).await;
    a.set_fault(SimFault::ResetBefore);
    a.set_healthy(false);
    // Each is tried on `sim` first, fails there, and goes through on `b`.
    for _ in 0..2 {
        assert_eq!(ask(&house).await.status, StatusCode::OK);
    }
    assert_eq!(a.stats().requests, 2);
    until_state(&house, "sim", "broken").await;
    // Operators see since when, and that nothing is wrong with the other one.
    let listed = get("/api/v1/pools/sim/workers").key("admin").ask(house.gateway.addr()).await;
    let workers = listed.json();
    let of = |name: &str| {
        let items = workers["items"].as_array().unwrap().iter();
        items.clone().find(|worker| worker["name"] == name).unwrap().clone()
    };
    let since = of("sim")["down_since"].as_str().expect("it is broken").to_owned();
    if let Some(retry_at) = of("sim")["retry_at"].as_str() {
        assert!(*retry_at > *since, "tried again at {retry_at}, broken since {since}");
    }
    assert_eq!((&of("b")["down_since"], &of("b")["retry_at"]), (&Value::Null, &Value::Null));
    // The core has heard of it once a request goes to `b` at once.
    let elsewhere = async {
        loop {
            let before = house.rows().await.len();
            assert_eq!(ask(&house).await.status, StatusCode::OK);
            if house.rows().await.len() == before + 1 {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, elsewhere).await.unwrap();
    // Well again: after a while one request tries it, and it is back.
    a.set_fault(None);
    a.set_healthy(true);
    let back = async {
        while state(&house, "sim") != "up" {
            assert_eq!(ask(&house).await.status, StatusCode::OK);
        }
    };
    tokio::time::timeout(SOON, back).await.unwrap();
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn where_the_only_worker_is_down_for_too_long_requests_are_refused_until_it_is_back() {
    let a = sim();
    let house = house_with(&a.url(), |config| {
        config.pools[0].down_wait = Duration::ZERO;
        config.upstreams[0].breaker.failures = 1;
        config.upstreams[0].breaker.open_for = Duration::from_millis(200);
        config.upstreams[0].health = asked_when_suspect();
    })
    .await;
    a.set_fault(SimFault::ResetBefore);
    a.set_healthy(false);
    assert_eq!(ask(&house).await.status, StatusCode::BAD_GATEWAY);
    // Now and then one tries and fails; all others are refused at once.
    let refused = async {
        loop {
            let answer = ask(&house).await;
            if answer.status.as_u16() == 529 {
                return answer;
            }
        }
    };
    let refused = tokio::time::timeout(SOON, refused).await.unwrap();
    assert_eq!(refused.code(), "overloaded");
    assert!(refused.header("retry-after").is_some());
    a.set_fault(None);
    a.set_healthy(true);
    let back = async {
        while ask(&house).await.status != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, back).await.unwrap();
    until_state(&house, "sim", "up").await;
    house.close().await;
    a.stop().await;
}

#[tokio::test]
async fn an_unhealthy_worker_takes_nothing_until_it_is_well() {
    let (a, b) = (sim(), sim());
    let house = house_with(&a.url(), |config| {
        config.upstreams[0].health = Some(HealthConfig {
            path: "/health".into(),
            every: Duration::from_millis(20),
            timeout: Duration::from_secs(5),
            unhealthy_after: 2,
            healthy_after: 1,
        });
        let second = beside(config, "b", &b.url());
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await;
    a.set_healthy(false);
    until_state(&house, "sim", "unhealthy").await;
    let elsewhere = async {
        loop {
            let before = b.stats().requests;
            assert_eq!(ask(&house).await.status, StatusCode::OK);
            if b.stats().requests > before {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, elsewhere).await.unwrap();
    a.set_healthy(true);
    until_state(&house, "sim", "up").await;
    let back = async {
        let before = a.stats().requests;
        while a.stats().requests == before {
            assert_eq!(ask(&house).await.status, StatusCode::OK);
        }
    };
    tokio::time::timeout(SOON, back).await.unwrap();
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn requests_go_where_the_fewest_tokens_are_in_flight() {
    let (mut a, mut b) = (Scripted::start().await, Scripted::start().await);
    let house = two(&a.url(), &b.url(), 5).await;
    let addr = house.gateway.addr();
    let asking = |words: usize| {
        let body = json!({"model": "sim", "messages": [{"role": "user", "content": "word ".repeat(words)}]});
        let question = post(CHAT, &body).key(&house.key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let large = asking(2000);
    let on_a = a.call().await;
    // Two small ones are less than the large one: both go to `b`.
    let small = [asking(10), asking(10)];
    let on_b = [b.call().await, b.call().await];
    assert!(!a.has_call());
    let workers = house.gateway.data_plane().pools.all()[0].workers();
    let in_flight: Vec<_> = workers.iter().map(|worker| worker.in_flight).collect();
    assert_eq!(in_flight, [1, 2]);
    for call in on_b.into_iter().chain([on_a]) {
        call.answer(200, "application/json", "{}");
    }
    for asked in small.into_iter().chain([large]) {
        assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn a_dialect_goes_only_to_workers_that_speak_it() {
    let (a, b) = (sim(), sim());
    let house = house_with(&a.url(), |config| {
        let mut second = beside(config, "b", &b.url());
        second.dialects.openai = false;
        config.upstreams[0].dialects.anthropic = false;
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await;
    let message =
        json!({"model": "sim", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]});
    for _ in 0..3 {
        assert_eq!(ask(&house).await.status, StatusCode::OK);
        let answer = post("/v1/messages", &message).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    assert_eq!((a.stats().requests, b.stats().requests), (3, 3));
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_model_that_nobody_serves_in_this_dialect_names_the_route_to_use() {
    let a = sim();
    let house = house_with(&a.url(), |config| config.upstreams[0].dialects.anthropic = false).await;
    let message = json!({"model": "sim", "max_tokens": 5, "messages": []});
    let answer = post("/v1/messages", &message).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::BAD_REQUEST, "dialect_not_served")
    );
    assert!(answer.text().contains("/v1/chat/completions"));
    house.close().await;
    a.stop().await;
}
