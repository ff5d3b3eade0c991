//! Tests of bad input: each gets a clear error in the caller's dialect, at a bounded cost.

use std::time::Duration;

use fairgate_config::AddressRange;
use fairgate_store::AttemptOutcome;
use http::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::client::{get, post, raw};
use crate::support::{House, SOON, house, house_with, sim};

const CHAT: &str = "/v1/chat/completions";

/// Sends a text over a bare connection, and returns everything until the other side closes it.
async fn bare(house: &House, text: &str) -> String {
    let mut stream = TcpStream::connect(house.gateway.addr()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(SOON, read).await.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the status and code of an answer to an invalid request.
fn refused(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    assert!(head.contains("\r\nconnection: close"), "{head}");
    assert!(head.contains("\r\nx-fairgate-request-id: "), "{head}");
    assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{head}");
    let error: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    (head[9..12].parse().unwrap(), error["error"]["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_a_code() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let addr = house.gateway.addr();
    let refused = [
        (raw(CHAT, "{\"model\":"), 400, "invalid_json"),
        (raw(CHAT, "[]"), 400, ""),
        (raw(CHAT, "{\"messages\":[]}"), 400, "missing_model"),
        (post(CHAT, &json!({"model": "none", "messages": []})), 404, "model_not_found"),
        (raw(CHAT, "{}").header("content-encoding", "gzip"), 415, "unsupported_content_encoding"),
        (
            post(CHAT, &json!({"model": "sim", "messages": []})).header("x-fairgate-class", "gold"),
            403,
            "class_not_allowed",
        ),
        (
            post(CHAT, &json!({"model": "sim", "messages": []}))
                .header("x-fairgate-agent", &"a".repeat(129)),
            400,
            "invalid_header",
        ),
    ];
    let count = refused.len();
    for (question, status, code) in refused {
        let answer = question.key(&house.key).ask(addr).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        if !code.is_empty() {
            assert_eq!(answer.code(), code);
        }
        assert!(answer.json()["error"]["message"].is_string());
        assert!(answer.header("x-fairgate-request-id").is_some());
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
    let rows = house.rows().await;
    assert_eq!(rows.len(), count);
    assert!(rows.iter().all(|row| row.outcome == AttemptOutcome::Refused && row.charged == 0));
    assert_eq!(sim.stats().requests, 0);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_say_so() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let addr = house.gateway.addr();
    let wrong = get(CHAT).key(&house.key).ask(addr).await;
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, Some("POST"))
    );
    assert_eq!(wrong.code(), "method_not_allowed");
    let mut question = post("/v1/models", &json!({}));
    question.method = Method::DELETE;
    let wrong = question.ask(addr).await;
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, Some("GET, HEAD"))
    );
    let unknown = get("/v2/chat").ask(addr).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (StatusCode::NOT_FOUND, "not_found"));
    let unknown = get("/v2/chat").header("anthropic-version", "2023-06-01").ask(addr).await;
    assert_eq!(unknown.json()["type"], "error");
    let nobody = post(CHAT, &json!({})).ask(addr).await;
    assert_eq!(
        (nobody.status, nobody.code().as_str()),
        (StatusCode::UNAUTHORIZED, "invalid_api_key")
    );
    assert!(house.rows().await.is_empty());
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_and_without_its_length() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| config.limits.body_bytes_max = 1000).await;
    let addr = house.gateway.addr();
    let announced = raw(CHAT, vec![b' '; 1001]).key(&house.key).ask(addr).await;
    assert_eq!(
        (announced.status, announced.code().as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large")
    );
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n",
        house.key
    );
    let chunk = format!("200\r\n{}\r\n", " ".repeat(512));
    let answer = bare(&house, &format!("{head}{chunk}{chunk}")).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("body_too_large"));
    assert_eq!(house.rows_soon(2).await.len(), 2);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_body_is_sent_only_once_it_is_wanted() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let body = r#"{"model":"sim","messages":[{"role":"user","content":"x"}]}"#;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        house.key,
        body.len()
    );
    let mut stream = TcpStream::connect(house.gateway.addr()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut got = vec![0; 25];
    tokio::time::timeout(SOON, stream.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got.starts_with(b"HTTP/1.1 100 Continue\r\n\r\n"), "{}", String::from_utf8_lossy(&got));
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut line = vec![0; 15];
    tokio::time::timeout(SOON, stream.read_exact(&mut line)).await.unwrap().unwrap();
    assert_eq!(line, b"HTTP/1.1 200 OK");
    drop(stream);
    house.rows_soon(1).await;
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn who_dawdles_is_shown_the_door() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.limits.header_timeout = Duration::from_millis(200);
        config.limits.body_timeout = Duration::from_millis(200);
    })
    .await;
    // Nothing at all, half a head, and a head with half a body.
    assert_eq!(bare(&house, "").await, "");
    assert!(!bare(&house, "PRI * HT").await.contains("HTTP"));
    let half = bare(&house, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-slow").await;
    assert_eq!(refused(&half), (408, "header_timeout".into()));
    // Between two requests silence is no fault: it is closed without a word.
    let ask = format!(
        "GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        house.key
    );
    assert_eq!(bare(&house, &ask).await.matches("HTTP/1.1 ").count(), 1);
    let half = bare(&house, &format!("{ask}GET /v1")).await;
    assert!(half.starts_with("HTTP/1.1 200 "), "{half}");
    assert_eq!(refused(&half[half.rfind("HTTP/1.1").unwrap()..]), (408, "header_timeout".into()));
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 50\r\n\r\n{{",
        house.key
    );
    let answer = bare(&house, &head).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout"), "{answer}");
    assert_eq!(house.rows_soon(1).await[0].code.as_deref(), Some("body_timeout"));
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| config.limits.header_bytes_max = 8 << 10).await;
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    let answer = bare(&house, &format!("GET /v1/models HTTP/1.1\r\nhost: x\r\n{many}\r\n")).await;
    assert_eq!(refused(&answer), (431, "header_too_large".into()));
    let long = "a".repeat(64 << 10);
    let answer =
        bare(&house, &format!("GET /v1/models HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\n\r\n"))
            .await;
    assert_eq!(refused(&answer), (431, "header_too_large".into()));
    let garbage = bare(&house, "\x16\x03\x01 nonsense\r\n\r\n").await;
    assert_eq!(refused(&garbage), (400, "bad_request".into()));
    // After an answer of ours, which stays as it is.
    let ask = format!(
        "GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        house.key
    );
    let both = bare(&house, &format!("{ask}nonsense\r\n\r\n")).await;
    let (ours, garbage) = both.split_at(both.rfind("HTTP/1.1").unwrap());
    assert!(ours.starts_with("HTTP/1.1 200 ") && ours.ends_with("}"), "{ours}");
    assert_eq!(refused(garbage), (400, "bad_request".into()));
    assert_eq!(
        get("/v1/models").key(&house.key).ask(house.gateway.addr()).await.status,
        StatusCode::OK
    );
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| config.limits.connections_max = 2).await;
    let addr = house.gateway.addr();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let ask = format!(
            "GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
            house.key
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut line = vec![0; 15];
        stream.read_exact(&mut line).await.unwrap();
        held.push(stream);
    }
    let full = bare(&house, "").await;
    assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("connections_full"), "{full}");
    let body = full.split("\r\n\r\n").nth(1).unwrap();
    assert!(full.contains(&format!("content-length: {}\r\n", body.len())));
    assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    drop(held);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn one_address_holds_at_most_a_quarter_of_the_connections_without_a_request() {
    let sim = sim();
    for (proxies, served) in [(vec![], false), (vec![AddressRange::parse("127.0.0.0/8")], true)] {
        let house = house_with(&sim.url(), |config| {
            config.limits.connections_max = 16;
            config.limits.trusted_proxies = proxies.into_iter().flatten().collect();
        })
        .await;
        let addr = house.gateway.addr();
        let mut silent = Vec::new();
        for part in ["", "GET", "GET /v1/models HTTP/1.1\r\nhost: x\r\n", "\r\n"] {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(part.as_bytes()).await.unwrap();
            silent.push(stream);
        }
        if served {
            assert_eq!(get("/healthz").ask(addr).await.status, StatusCode::OK);
        } else {
            let next = bare(&house, "").await;
            assert!(
                next.starts_with("HTTP/1.1 503 ") && next.contains("connections_full"),
                "{next}"
            );
            // Another address is served.
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let mut other = socket.connect(addr).await.unwrap();
            other.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut line = vec![0; 15];
            other.read_exact(&mut line).await.unwrap();
            assert_eq!(line, b"HTTP/1.1 200 OK");
            // A connection whose head is whole no longer counts.
            let mut first = silent.pop().unwrap();
            first.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            first.read_exact(&mut line).await.unwrap();
            let again = get("/healthz").ask(addr).await;
            assert_eq!(again.status, StatusCode::OK);
        }
        drop(silent);
        house.close().await;
    }
    sim.stop().await;
}

#[tokio::test]
async fn a_full_queue_refuses_and_says_when_to_come_back() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].capacity = 1;
        config.pools[0].max_queue = 1;
        config.pools[0].queue_timeout = Duration::from_millis(300);
    })
    .await;
    let addr = house.gateway.addr();
    sim.fault_next(fairgate_sim::SimFault::HangBefore, 1);
    let message = json!({"role": "user", "content": "x"});
    let chat = post(CHAT, &json!({"model": "sim", "messages": [message]})).key(&house.key);
    let first = tokio::spawn({
        let chat = chat.clone();
        async move { chat.ask(addr).await }
    });
    house.until(|live| live.in_flight == 1).await;
    let second = tokio::spawn({
        let chat = chat.clone();
        async move { chat.ask(addr).await }
    });
    house.until(|live| live.waiting == 1).await;
    let full = chat.ask(addr).await;
    assert_eq!((full.status, full.code().as_str()), (StatusCode::TOO_MANY_REQUESTS, "queue_full"));
    assert!(full.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(full.header("x-should-retry"), None);
    let late = second.await.unwrap();
    assert_eq!(
        (late.status, late.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "queue_timeout")
    );
    assert!(late.header("retry-after").is_some());
    first.abort();
    let rows = house.rows_soon(3).await;
    let mut codes: Vec<_> = rows.iter().filter_map(|row| row.code.as_deref()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["client_left", "queue_full", "queue_timeout"]);
    let late = rows.iter().find(|row| row.code.as_deref() == Some("queue_timeout")).unwrap();
    assert!(late.waited_us >= 300_000, "{}", late.waited_us);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_head_is_bounded_to_the_byte() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let addr = house.gateway.addr();
    let body = json!({"model": "sim", "max_tokens": 5, "messages": [{"role": "user", "content": "rivers"}]});
    for (bytes, status) in [(60 << 10, 200), (66 << 10, 431), (100 << 10, 431)] {
        for path in [CHAT, "/v1/messages"] {
            let question = post(path, &body).key(&house.key).header("x-long", &"x".repeat(bytes));
            let answer = question.ask(addr).await;
            assert_eq!(answer.status, status, "{bytes} bytes to {path}");
            if status == 431 {
                assert_eq!(answer.code(), "header_too_large");
                assert_eq!(answer.json()["type"] == "error", path != CHAT, "{}", answer.text());
            }
        }
    }
    let unknown = post("/v1/modelsX", &body).key(&house.key).ask(addr).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    house.close().await;
    sim.stop().await;
}
