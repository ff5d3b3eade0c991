//! Tests of requests that choose their own fault and length.

use fairgate_sim::{SimFault, SimOptions};
use hyper::header::HeaderName;
use serde_json::Value;

use crate::client::{chat, get, post, quick, request, send, start};

const PATH: &str = "/v1/chat/completions";

async fn ask(sim: &fairgate_sim::Sim, content: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut asked = request("POST", PATH, chat(content).to_string());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        asked.headers_mut().insert(name, value.parse().unwrap());
    }
    let reply = send(sim.addr(), asked).await.unwrap();
    (reply.status.as_u16(), reply.json().await)
}

#[tokio::test]
async fn headers_and_markers_choose_length_and_fault() {
    let sim = start(quick());
    let tokens = |told: Value| told["usage"]["completion_tokens"].clone();
    assert_eq!(tokens(ask(&sim, "Hi", &[("x-sim-tokens", "33")]).await.1), 33);
    assert_eq!(tokens(ask(&sim, "Hi [sim:tokens=44]", &[]).await.1), 44);
    assert_eq!(tokens(ask(&sim, "Hi [sim:tokens=44]", &[("x-sim-tokens", "33")]).await.1), 33);
    assert_eq!(ask(&sim, "Hi", &[("x-sim-fault", "status=418")]).await.0, 418);
    assert_eq!(ask(&sim, "Hi [sim:fault=status=503]", &[]).await.0, 503);
    let (status, told) = ask(&sim, "Hi", &[("x-sim-fault", "explode")]).await;
    assert_eq!((status, &told["error"]["param"]), (400, &"x-sim-fault".into()));
    sim.stop().await;
}

#[tokio::test]
async fn a_requests_own_fault_goes_before_the_one_for_all() {
    let sim = start(quick());
    sim.set_fault(SimFault::Status { code: 500, retry_after_seconds: None });
    assert_eq!(ask(&sim, "Hi [sim:fault=wrong-content-type]", &[]).await.0, 200);
    assert_eq!(ask(&sim, "Hi", &[]).await.0, 500);
    sim.stop().await;
}

#[tokio::test]
async fn another_process_can_set_the_fault_for_all() {
    let sim = start(quick());
    let put = async |text: &'static str| {
        send(sim.addr(), request("PUT", "/sim/fault", text)).await.unwrap().status.as_u16()
    };
    assert_eq!(put("status=502").await, 200);
    assert_eq!(post(&sim, PATH, &chat("Hi")).await.status, 502);
    assert_eq!(put("explode").await, 400);
    assert_eq!(put("none").await, 200);
    assert_eq!(post(&sim, PATH, &chat("Hi")).await.status, 200);
    sim.stop().await;
}

#[tokio::test]
async fn nobody_steers_where_it_is_off() {
    let sim = start(SimOptions { steering: false, ..quick() });
    let (status, told) =
        ask(&sim, "[sim:fault=status=503] [sim:tokens=5]", &[("x-sim-fault", "garbage")]).await;
    assert_eq!((status, &told["usage"]["completion_tokens"]), (200, &10.into()));
    assert_eq!(get(&sim, "/sim/stats").await.status, 404);
    sim.stop().await;
}
