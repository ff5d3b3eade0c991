//! Tests of tenants that try to gain at others' cost, and of backends that behave like real ones.

use std::time::Duration;

use fairgate_sim::SimFault;
use fairgate_store::{AttemptOutcome, DirectoryLimits, UsageSource};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::client::{Answer, get, piece, post};
use crate::support::scripted::Scripted;
use crate::support::{House, SOON, asked_when_suspect, beside, house, house_with, sim};

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({"model": "sim", "stream": stream, "messages": [{"role": "user", "content": "rivers"}]})
}

async fn ask(house: &House, key: &str) -> Answer {
    post(CHAT, &chat(false)).key(key).ask(house.gateway.addr()).await
}

/// A server that answers 500 to requests that it cannot read is healthy. Whatever one tenant sends,
/// all others are served, even while another worker fails on the retries of these requests.
#[tokio::test]
async fn requests_that_fail_by_their_own_fault_take_no_worker_away() {
    let (a, b) = (sim(), sim());
    let house = house_with(&a.url(), |config| {
        let second = beside(config, "b", &b.url());
        config.upstreams.push(second);
        config.pools[0].workers.push("b".into());
    })
    .await;
    let victim = house.tenant("victim", DirectoryLimits::default()).await;
    assert_eq!(ask(&house, &victim).await.status, StatusCode::OK);
    for _ in 0..12 {
        for sim in [&a, &b] {
            sim.set_fault(SimFault::Status { code: 500, retry_after_seconds: None });
        }
        assert_eq!(ask(&house, &house.key).await.status, StatusCode::INTERNAL_SERVER_ERROR);
        a.set_fault(None);
        b.set_fault(None);
        assert_eq!(ask(&house, &victim).await.status, StatusCode::OK);
    }
    let ready = get("/readyz").ask(house.gateway.addr()).await;
    assert_eq!(ready.status, StatusCode::OK);
    house.close().await;
    a.stop().await;
    b.stop().await;
}

/// A worker that fails for every tenant is probed, and the answer to the probe decides.
#[tokio::test]
async fn a_worker_that_fails_for_everybody_is_asked_whether_it_is_well() {
    for healthy in [true, false] {
        let a = sim();
        let house = house_with(&a.url(), |config| {
            config.pools[0].down_wait = Duration::ZERO;
            config.upstreams[0].breaker.open_for = Duration::from_secs(100);
            config.upstreams[0].health = asked_when_suspect();
        })
        .await;
        let other = house.tenant("other", DirectoryLimits::default()).await;
        a.set_fault(SimFault::Status { code: 500, retry_after_seconds: None });
        a.set_healthy(healthy);
        for _ in 0..4 {
            for key in [&house.key, &other] {
                let answer = ask(&house, key).await;
                assert!(answer.status.is_server_error(), "{}", answer.text());
            }
        }
        a.set_fault(None);
        let state = || house.gateway.data_plane().pools.all()[0].workers()[0].state;
        match healthy {
            true => {
                assert_eq!(ask(&house, &other).await.status, StatusCode::OK);
                assert_eq!(state(), "up");
            }
            false => {
                let broken = async {
                    while state() != "broken" {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                };
                tokio::time::timeout(SOON, broken).await.expect("the worker breaks");
            }
        }
        house.close().await;
        a.stop().await;
    }
}

/// A request that fails after half a second is charged for half a second in its slot.
#[tokio::test]
async fn failed_work_pays_for_its_time_in_the_slot() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].cost.output_default = 10_000;
    })
    .await;
    let question = post(CHAT, &chat(false)).key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    call.answer(400, "application/json", "{\"error\":{\"message\":\"no\"}}");
    assert_eq!(asking.await.unwrap().status, StatusCode::BAD_REQUEST);
    let row = house.rows().await.pop().unwrap();
    assert_eq!((row.outcome, row.usage), (AttemptOutcome::UpstreamError, UsageSource::Occupied));
    // 1000 tokens a second before anything is known.
    assert!((500..5000).contains(&row.charged), "{row:?}");
    house.close().await;
}

/// A worker that drops its connections is at fault, so no budget pays for the attempt.
#[tokio::test]
async fn what_a_worker_loses_is_charged_to_nobodys_budget() {
    let sim = sim();
    let house = house(&sim.url()).await;
    sim.fault_next(SimFault::ResetMid, 1);
    let answer = post(CHAT, &chat(true)).key(&house.key).ask(house.gateway.addr()).await;
    assert!(answer.text().contains("upstream_reset"), "{}", answer.text());
    let row = house.rows().await.pop().unwrap();
    assert_eq!((row.charged, row.usage), (0, UsageSource::None));
    house.close().await;
    sim.stop().await;
}

fn event(value: &Value) -> bytes::Bytes {
    format!("data: {value}\n\n").into()
}

/// If a client leaves at the `finish_reason`, the usage that comes after it is still read.
#[tokio::test]
async fn leaving_at_the_finish_reason_saves_nothing() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let said = event(&json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": null}]}));
    let finish = event(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 5000});
    let usage = event(&json!({"choices": [], "usage": usage}));
    for (at, tells) in [true, false].into_iter().enumerate() {
        let question = post(CHAT, &chat(true)).key(&house.key);
        let addr = house.gateway.addr();
        let asking = tokio::spawn(async move { question.begin(addr).await });
        let pieces = upstream.call().await.stream("text/event-stream");
        pieces.send(said.clone()).unwrap();
        pieces.send(finish.clone()).unwrap();
        let mut body = asking.await.unwrap().into_body();
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("\"stop\"") {
            seen.extend(piece(&mut body).await.unwrap());
        }
        drop(body);
        if tells {
            pieces.send(usage.clone()).unwrap();
            pieces.send("data: [DONE]\n\n".into()).unwrap();
        }
        let row = house.rows_soon(at + 1).await.pop().unwrap();
        match tells {
            true => {
                assert_eq!((row.output_tokens, row.usage), (5000, UsageSource::Reported));
                assert_eq!(row.outcome, AttemptOutcome::Completed);
            }
            // It does not say: what was expected is charged, which has been learned from the one before.
            false => {
                assert_eq!(
                    (row.outcome, row.usage),
                    (AttemptOutcome::ClientLeft, UsageSource::Assumed)
                );
                assert!(row.charged >= row.estimate && row.output_tokens > 100, "{row:?}");
            }
        }
        drop(pieces);
    }
    house.close().await;
}

/// A client opens no window for its answer. The upstream's answer is still read to its end, and its
/// slot is freed.
#[tokio::test]
async fn a_slow_reader_keeps_no_slot() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let question = post(CHAT, &chat(true)).key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.begin_h2(addr, 1).await });
    let pieces = upstream.call().await.stream("text/event-stream");
    let text = "word ".repeat(1000);
    let said = event(&json!({"choices": [{"delta": {"content": text}, "finish_reason": null}]}));
    for _ in 0..40 {
        pieces.send(said.clone()).unwrap();
    }
    pieces.send("data: [DONE]\n\n".into()).unwrap();
    drop(pieces);
    let (response, connection) = asking.await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // Nothing of it was read, and yet it has ended.
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!(row.outcome, AttemptOutcome::Completed);
    house.quiet().await;
    drop(response);
    connection.abort();
    house.close().await;
}

/// Reads the head and body of one request; false if the other side has closed the connection.
async fn read_request(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return false,
            Ok(count) => read.extend_from_slice(&part[..count]),
        }
        if String::from_utf8_lossy(&read).contains("rivers") {
            return true;
        }
    }
}

/// llama.cpp closes a connection after an answer although it announced to keep it. The next request
/// uses a new connection, and no client gets an error.
#[tokio::test]
async fn a_connection_that_its_server_promised_to_keep_and_closed_is_nobodys_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let house = house_with(&url, |config| config.upstreams[0].breaker.failures = 1).await;
    let upstream = tokio::spawn(async move {
        let document = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        let length = document.len();
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(read_request(&mut stream).await);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: keep-alive\r\n\
                 content-length: {length}\r\n\r\n{document}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    for _ in 0..4 {
        let answer = ask(&house, &house.key).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let rows = house.rows().await;
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.outcome == AttemptOutcome::Completed && row.attempt == 1));
    upstream.abort();
    house.close().await;
}

/// A server states how long it keeps a connection. The gateway does not use the connection after
/// that.
#[tokio::test]
async fn a_connection_is_used_no_longer_than_its_server_keeps_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let house = house(&url).await;
    let upstream = tokio::spawn(async move {
        let document = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        let length = document.len();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(read_request(&mut stream).await);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nkeep-alive: timeout=5, max=0\r\n\
                 content-length: {length}\r\n\r\n{document}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            assert!(!read_request(&mut stream).await, "nothing more comes over it");
        }
    });
    for _ in 0..2 {
        assert_eq!(ask(&house, &house.key).await.status, StatusCode::OK);
    }
    tokio::time::timeout(SOON, upstream).await.unwrap().unwrap();
    house.close().await;
}

/// While the only worker is unreachable for a moment, new requests wait for it.
#[tokio::test]
async fn a_worker_that_restarts_is_waited_for() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.upstreams[0].breaker.failures = 1;
        config.upstreams[0].breaker.open_for = Duration::from_millis(300);
        config.upstreams[0].health = asked_when_suspect();
    })
    .await;
    sim.set_fault(SimFault::ResetBefore);
    sim.set_healthy(false);
    assert_eq!(ask(&house, &house.key).await.status, StatusCode::BAD_GATEWAY);
    let broken = async {
        while house.gateway.data_plane().pools.all()[0].workers()[0].state != "broken" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, broken).await.unwrap();
    sim.set_fault(None);
    sim.set_healthy(true);
    let answers = futures_util::future::join_all((0..8).map(|_| ask(&house, &house.key))).await;
    for answer in answers {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    house.close().await;
    sim.stop().await;
}
