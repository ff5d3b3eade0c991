//! Tests of workers that are unhealthy: the clients' errors and their times to retry.

use std::time::Duration;

use fairgate_config::HealthConfig;
use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_sim::SimFault;
use fairgate_store::AttemptOutcome;
use http::StatusCode;
use serde_json::json;

use crate::support::client::{Answer, post};
use crate::support::scripted::Scripted;
use crate::support::{House, SOON, asked_when_suspect, beside, house_with, sim};

async fn ask(house: &House) -> Answer {
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    post("/v1/chat/completions", &chat).key(&house.key).ask(house.gateway.addr()).await
}

/// Starts a pool with the backends `sim` and `b`. After one failure, a backend is paused for long.
async fn two(a: &str, b: &str) -> House {
    house_with(a, |config| {
        config.upstreams[0].breaker.failures = 1;
        config.upstreams[0].breaker.open_for = Duration::from_secs(100);
        config.upstreams[0].health = asked_when_suspect();
        let second = beside(config, "b", b);
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await
}

#[tokio::test]
async fn a_retry_does_not_hide_what_the_first_worker_answered() {
    let (a, b) = (sim(), sim());
    let house = two(&a.url(), &b.url()).await;
    a.set_fault(SimFault::Status { code: 429, retry_after_seconds: Some(7) });
    // Known to be well, and yet the pool refuses it: the one moment in which a retry finds nobody.
    let away = WorkerChange {
        name: "b".into(),
        state: Some(WorkerState::Overloaded),
        ..WorkerChange::default()
    };
    house.gateway.data_plane().pools.all()[0].gate.change_worker(away).await.unwrap();
    let answer = ask(&house).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("7"));
    let rows = house.rows().await;
    let told: Vec<_> = rows.iter().map(|row| (row.last, row.outcome, row.status)).collect();
    assert_eq!(
        told,
        [(false, AttemptOutcome::Retried, 429), (true, AttemptOutcome::UpstreamError, 429)]
    );
    // The same where the first one failed altogether.
    a.set_fault(SimFault::ResetBefore);
    let answer = ask(&house).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::BAD_GATEWAY, "upstream_reset")
    );
    house.close().await;
    a.kill().await;
    b.kill().await;
}

#[tokio::test]
async fn nothing_is_tried_on_a_worker_that_is_unwell() {
    let (a, b) = (sim(), sim());
    let house = two(&a.url(), &b.url()).await;
    // `b` breaks while `a` is busy with nothing: both fail once, and only `b` counts as broken.
    a.set_fault(SimFault::Status { code: 429, retry_after_seconds: Some(7) });
    b.set_fault(SimFault::ResetBefore);
    b.set_healthy(false);
    assert_eq!(ask(&house).await.code(), "upstream_reset");
    until_broken(&house, "b").await;
    let before = house.rows().await.len();
    let answer = ask(&house).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, Some("7"))
    );
    assert_eq!(house.rows().await.len(), before + 1);
    assert_eq!(b.stats().requests, 1);
    house.close().await;
    a.kill().await;
    b.kill().await;
}

#[tokio::test]
async fn who_finds_no_worker_well_is_told_when_one_is_tried_again() {
    let a = sim();
    let house = house_with(&a.url(), |config| {
        config.pools[0].down_wait = Duration::ZERO;
        config.upstreams[0].breaker.failures = 1;
        config.upstreams[0].breaker.open_for = Duration::from_secs(100);
        config.upstreams[0].health = asked_when_suspect();
    })
    .await;
    a.set_fault(SimFault::ResetBefore);
    a.set_healthy(false);
    assert_eq!(ask(&house).await.code(), "upstream_reset");
    let refused = until_overloaded(&house).await;
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((80..=100).contains(&after), "{after}");
    house.close().await;
    a.kill().await;
}

#[tokio::test]
async fn who_finds_no_worker_healthy_is_told_when_its_health_is_asked_again() {
    let a = sim();
    a.set_healthy(false);
    let house = house_with(&a.url(), |config| {
        config.pools[0].down_wait = Duration::ZERO;
        config.upstreams[0].health = Some(HealthConfig {
            path: "/health".into(),
            every: Duration::from_secs(50),
            timeout: Duration::from_secs(5),
            unhealthy_after: 1,
            healthy_after: 1,
        });
    })
    .await;
    let refused = until_overloaded(&house).await;
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((30..=50).contains(&after), "{after}");
    house.close().await;
    a.stop().await;
}

#[tokio::test]
async fn health_is_asked_below_the_path_of_the_upstream() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&format!("{}/openai", upstream.url()), |config| {
        config.upstreams[0].health = Some(HealthConfig {
            path: "/health".into(),
            every: Duration::from_secs(50),
            timeout: Duration::from_secs(5),
            unhealthy_after: 1,
            healthy_after: 1,
        });
    })
    .await;
    let check = upstream.call().await;
    assert_eq!(check.request.uri().path(), "/openai/health");
    check.answer(200, "text/plain", "");
    house.close().await;
}

/// Waits until a worker counts as broken.
async fn until_broken(house: &House, worker: &str) {
    let state = || {
        let workers = house.gateway.data_plane().pools.all()[0].workers();
        workers.iter().find(|view| view.name == worker).unwrap().state
    };
    let broken = async {
        while state() != "broken" {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, broken).await.expect("the worker breaks");
}

/// Sends requests until the pool knows that its worker is overloaded.
async fn until_overloaded(house: &House) -> Answer {
    let refused = async {
        loop {
            let answer = ask(house).await;
            if answer.status.as_u16() == 529 {
                assert_eq!(answer.code(), "overloaded");
                return answer;
            }
        }
    };
    tokio::time::timeout(SOON, refused).await.unwrap()
}
