//! Tests of refusals and their messages.

use fairgate_sim::{ApiKey, Sim, SimOptions, SimOutcome};
use serde_json::{Value, json};

use crate::client::{chat, get, loopback, post, quick, request, send, start, until, with};

#[tokio::test]
async fn each_api_hears_its_own_error() {
    let sim = start(quick());
    let ask = with(chat("Hello"), "model", "other");
    let reply = post(&sim, "/v1/chat/completions", &ask).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json().await["error"]["code"], "model_not_found");
    let reply = post(&sim, "/v1/messages", &with(ask, "max_tokens", 5)).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json().await["error"]["type"], "not_found_error");
    let reply = post(&sim, "/v1/messages", &chat("Hello")).await;
    assert_eq!((reply.status.as_u16(), reply.headers.contains_key("request-id")), (400, true));
    let outcomes: Vec<_> = sim.stats().recent.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [404, 404, 400].map(SimOutcome::Refused));
    sim.stop().await;
}

#[tokio::test]
async fn wrong_paths_methods_and_bodies_are_told_apart() {
    let sim = start(SimOptions { body_bytes_max: 100, ..quick() });
    let ask = async |method: &str, path: &str, body: &str| {
        let reply = send(sim.addr(), request(method, path, body.to_owned())).await.unwrap();
        (reply.status.as_u16(), reply.headers.get("allow").is_some())
    };
    assert_eq!(ask("POST", "/v1/nothing", "").await, (404, false));
    assert_eq!(ask("GET", "/v1/chat/completions", "").await, (405, true));
    assert_eq!(ask("POST", "/v1/models", "").await, (405, true));
    assert_eq!(ask("POST", "/v1/chat/completions", "{").await, (400, false));
    assert_eq!(ask("POST", "/v1/chat/completions", &" ".repeat(101)).await, (413, false));
    sim.stop().await;
}

#[tokio::test]
async fn a_key_is_asked_for_in_both_ways() {
    let options = SimOptions { api_key: Some(ApiKey::new("open sesame")), ..quick() };
    let sim = start(options);
    let ask = async |path: &str, header: &str, value: &str| {
        let mut request = request("POST", path, with(chat("Hi"), "max_tokens", 1).to_string());
        request.headers_mut().insert(
            hyper::header::HeaderName::from_bytes(header.as_bytes()).unwrap(),
            value.parse().unwrap(),
        );
        let reply = send(sim.addr(), request).await.unwrap();
        (reply.status.as_u16(), reply.json().await)
    };
    for path in ["/v1/chat/completions", "/v1/messages"] {
        assert_eq!(ask(path, "authorization", "Bearer open sesame").await.0, 200);
        assert_eq!(ask(path, "x-api-key", "open sesame").await.0, 200);
        let (status, told) = ask(path, "authorization", "Bearer guess").await;
        assert_eq!(status, 401);
        assert!(!told.to_string().contains("sesame") && !told.to_string().contains("guess"));
    }
    assert_eq!(get(&sim, "/v1/models").await.status, 401);
    assert_eq!(get(&sim, "/health").await.status, 200);
    sim.stop().await;
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let sim = start(SimOptions { slots: 1, waiting_max: 1, ..quick() });
    sim.fault_next(fairgate_sim::SimFault::HangBefore, 2);
    let addr = sim.addr();
    let ask = || send(addr, request("POST", "/v1/chat/completions", chat("Hi").to_string()));
    let hanging = [tokio::spawn(ask()), tokio::spawn(ask())];
    until(&sim, |stats| stats.in_flight == 1 && stats.waiting == 1).await;
    let reply = ask().await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), &reply.headers["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert_eq!(reply.json().await["error"]["code"], "overloaded");
    sim.kill().await;
    for asked in hanging {
        assert!(asked.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn an_unhealthy_backend_says_so() {
    let sim = start(quick());
    sim.set_healthy(false);
    assert_eq!(get(&sim, "/health").await.status, 503);
    assert_eq!(post(&sim, "/v1/chat/completions", &chat("Hi")).await.status, 200);
    sim.set_healthy(true);
    assert_eq!(get(&sim, "/health").await.status, 200);
    sim.stop().await;
}

#[tokio::test]
async fn what_cannot_work_does_not_start() {
    let without = |change: fn(&mut SimOptions)| {
        let mut options = quick();
        change(&mut options);
        Sim::start(loopback(), options).unwrap_err().to_string()
    };
    assert!(without(|options| options.slots = 0).contains("`slots`"));
    assert!(without(|options| options.models.clear()).contains("`models`"));
    let sim = start(quick());
    let taken = Sim::start(sim.addr(), quick()).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    sim.stop().await;
}

#[tokio::test]
async fn the_books_hold_names_of_headers_and_nothing_else() {
    let sim = start(quick());
    let mut asked = request("POST", "/v1/chat/completions", chat("a secret prompt").to_string());
    asked.headers_mut().insert("authorization", "Bearer sesame".parse().unwrap());
    send(sim.addr(), asked).await.unwrap().text().await;
    let stats = sim.stats();
    assert!(stats.recent[0].header_names.contains(&"authorization".to_owned()));
    let shown = format!("{stats:?}");
    assert!(!shown.contains("sesame") && !shown.contains("secret"), "{shown}");
    let told: Value = get(&sim, "/sim/stats").await.json().await;
    assert_eq!(told["recent"][0]["outcome"], json!("finished"));
    assert_eq!(told["finished"], 1);
    sim.stop().await;
}
