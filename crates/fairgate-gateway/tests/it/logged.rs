//! Tests of the log when an upstream fails.

use std::time::Duration;

use fairgate_sim::SimFault;
use http::StatusCode;
use serde_json::json;

use crate::support::client::{Answer, post};
use crate::support::log::Log;
use crate::support::{House, SOON, asked_when_suspect, house_with, sim};

const FAILED: &str = "a request failed on an upstream";

async fn ask(house: &House) -> Answer {
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "a-secret-river"}]});
    post("/v1/chat/completions", &chat).key(&house.key).ask(house.gateway.addr()).await
}

#[tokio::test]
async fn a_failing_upstream_is_named_once_for_each_cause() {
    let log = Log::here();
    let sim = sim();
    let house = house_with(&sim.url(), |config| config.upstreams[0].breaker.failures = 1000).await;
    let causes = [
        (SimFault::Status { code: 401, retry_after_seconds: None }, "gateway's own credentials"),
        (SimFault::Status { code: 503, retry_after_seconds: None }, "answered with status 503"),
        (SimFault::ResetBefore, "broke the connection off"),
    ];
    for (fault, _) in causes {
        sim.set_fault(fault);
        for _ in 0..3 {
            ask(&house).await;
        }
    }
    let said = log.lines(FAILED);
    assert_eq!(said.len(), causes.len(), "{said:#?}");
    for (line, (_, cause)) in said.iter().zip(causes) {
        assert!(line.starts_with("WARN") && line.contains(cause), "{line}");
        assert!(line.contains("worker=sim") && line.contains("left_out=0"), "{line}");
    }
    house.close().await;
    sim.kill().await;
    // Nothing that is a client's own is in any line.
    assert!(log.lines("a-secret-river").is_empty());
    assert!(log.lines("Bearer").is_empty());
}

#[tokio::test]
async fn a_worker_that_goes_down_and_comes_back_is_announced() {
    let log = Log::here();
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.upstreams[0].breaker.failures = 1;
        config.upstreams[0].breaker.open_for = Duration::from_millis(50);
        config.upstreams[0].health = asked_when_suspect();
    })
    .await;
    assert_eq!(ask(&house).await.status, StatusCode::OK);
    let same = house.gateway.data_plane().config.load().as_ref().clone();
    house.gateway.reload(same).await.unwrap();
    assert_eq!(ask(&house).await.status, StatusCode::OK);
    assert!(log.lines("a worker is").is_empty(), "nothing has changed");
    sim.set_fault(SimFault::ResetBefore);
    sim.set_healthy(false);
    // It is tried several times over, and is down all the while.
    let tried = async {
        while sim.stats().requests < 5 {
            ask(&house).await;
        }
    };
    tokio::time::timeout(SOON, tried).await.unwrap();
    sim.set_fault(None);
    sim.set_healthy(true);
    let back = async {
        while log.lines("a worker is back").is_empty() {
            ask(&house).await;
        }
    };
    tokio::time::timeout(SOON, back).await.unwrap();
    let said = log.lines("a worker is");
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(said[0].starts_with("WARN") && said[0].contains("a worker is down"), "{}", said[0]);
    for part in ["pool=sim", "worker=sim", "it answers nobody", "broke the connection off"] {
        assert!(said[0].contains(part), "{}", said[0]);
    }
    assert!(said[1].starts_with("INFO") && said[1].contains("pool=sim"), "{}", said[1]);
    assert!(log.lines(&house.key).is_empty());
    house.close().await;
    sim.stop().await;
}
