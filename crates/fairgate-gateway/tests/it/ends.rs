//! Tests of every way in which a request can end: each has one row, and no permit is left.

use std::time::Duration;

use bytes::Bytes;
use fairgate_sim::{SimFault, UsageFault};
use fairgate_store::{AttemptOutcome, UsageSource};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::client::{collect_or_error, piece, post};
use crate::support::scripted::Scripted;
use crate::support::{House, house, house_with, sim};

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}], "stream": stream})
}

/// Starts a gateway with short timeouts for its upstream.
async fn hasty(url: &str) -> House {
    house_with(url, |config| {
        config.upstreams[0].timeouts.first_byte = Duration::from_millis(150);
        config.upstreams[0].timeouts.idle = Duration::from_millis(150);
        config.upstreams[0].breaker.failures = 1000;
    })
    .await
}

#[tokio::test]
async fn what_goes_wrong_before_the_first_byte_is_told_in_the_callers_dialect() {
    let sim = sim();
    let house = hasty(&sim.url()).await;
    let cases = [
        (
            SimFault::ResetBefore,
            StatusCode::BAD_GATEWAY,
            "upstream_reset",
            AttemptOutcome::UpstreamError,
        ),
        (
            SimFault::HangBefore,
            StatusCode::GATEWAY_TIMEOUT,
            "upstream_timeout",
            AttemptOutcome::Timeout,
        ),
        (
            SimFault::Garbage,
            StatusCode::BAD_GATEWAY,
            "upstream_incomplete",
            AttemptOutcome::UpstreamError,
        ),
        (
            SimFault::InvalidJson,
            StatusCode::BAD_GATEWAY,
            "upstream_incomplete",
            AttemptOutcome::UpstreamError,
        ),
    ];
    for (at, (fault, status, code, outcome)) in cases.into_iter().enumerate() {
        sim.fault_next(fault, 1);
        let anthropic = at % 2 == 1;
        let question = if anthropic {
            let mut body = chat(false);
            body["max_tokens"] = 50.into();
            post("/v1/messages", &body)
        } else {
            post(CHAT, &chat(false))
        };
        let answer = question.key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{fault}");
        assert_eq!(answer.json()["type"] == "error", anthropic, "{}", answer.text());
        let rows = house.rows().await;
        assert_eq!(rows.len(), at + 1, "{fault}");
        let row = &rows[at];
        assert_eq!(
            (row.status, row.outcome, row.code.as_deref()),
            (status.as_u16(), outcome, Some(code))
        );
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event() {
    let sim = sim();
    let house = hasty(&sim.url()).await;
    let cases = [
        (SimFault::ResetMid, "upstream_reset", AttemptOutcome::UpstreamError),
        (SimFault::CloseMid, "upstream_reset", AttemptOutcome::UpstreamError),
        (SimFault::HangMid, "upstream_idle_timeout", AttemptOutcome::Timeout),
        (SimFault::SseGarbage, "upstream_incomplete", AttemptOutcome::UpstreamError),
    ];
    for (at, (fault, code, outcome)) in cases.into_iter().enumerate() {
        sim.fault_next(fault, 1);
        let answer = post(CHAT, &chat(true)).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = answer.text();
        let last = text.trim_end().rsplit("\n\n").next().unwrap();
        assert!(last.contains(&format!("\"code\":\"{code}\"")), "{fault}: {last}");
        let row = house.rows().await.pop().unwrap();
        assert_eq!((row.status, row.outcome, row.code.as_deref()), (200, outcome, Some(code)));
        // Where the connection was lost, the worker is at fault and nobody's budget pays.
        let lost = outcome == AttemptOutcome::UpstreamError;
        assert_eq!((row.charged == 0, row.usage == UsageSource::None), (lost, lost), "{fault}");
        assert_eq!(house.rows().await.len(), at + 1);
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_document_that_breaks_is_an_error_until_much_of_it_is_given_out() {
    let mut upstream = Scripted::start().await;
    let house = hasty(&upstream.url()).await;
    let addr = house.gateway.addr();
    for (bytes, status) in [(100, StatusCode::GATEWAY_TIMEOUT), (100_000, StatusCode::OK)] {
        let question = post(CHAT, &chat(false)).key(&house.key);
        let asking = tokio::spawn(async move { question.begin(addr).await });
        let pieces = upstream.call().await.stream("application/json");
        pieces.send(format!("{{\"choices\":[\"{}", "x".repeat(bytes)).into()).unwrap();
        let response = asking.await.unwrap();
        assert_eq!(response.status(), status);
        // Nothing more comes. Who has half a document sees that in the end.
        assert_eq!(collect_or_error(response).await.is_err(), status == StatusCode::OK);
        let row = house.rows().await.pop().unwrap();
        assert_eq!((row.outcome, row.status), (AttemptOutcome::Timeout, status.as_u16()));
        assert_eq!(row.code.as_deref(), Some("upstream_idle_timeout"));
        drop(pieces);
    }
    house.close().await;
}

/// A document is shorter than its announced length. The client must get an error.
#[tokio::test]
async fn a_document_shorter_than_announced_is_an_error() {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let house = house(&url).await;
    let upstream = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 4096];
        let _ = stream.read(&mut asked).await.unwrap();
        let document = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        let length = document.len() + 50;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        let answer = format!("{head} {length}\r\n\r\n{document}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let answer = post(CHAT, &chat(false)).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!((answer.status, &*answer.code()), (StatusCode::BAD_GATEWAY, "upstream_reset"));
    let row = house.rows().await.pop().unwrap();
    assert_eq!((row.outcome, row.status), (AttemptOutcome::UpstreamError, 502));
    upstream.await.unwrap();
    house.close().await;
}

#[tokio::test]
async fn absurd_usage_is_counted_instead() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let faults = [UsageFault::Missing, UsageFault::Negative, UsageFault::Huge, UsageFault::Strings];
    for stream in [false, true] {
        for fault in faults {
            sim.fault_next(SimFault::Usage(fault), 1);
            let answer = post(CHAT, &chat(stream)).key(&house.key).ask(house.gateway.addr()).await;
            assert_eq!(answer.status, StatusCode::OK);
            let row = house.rows().await.pop().unwrap();
            assert_eq!(
                (row.usage, row.outcome),
                (UsageSource::Counted, AttemptOutcome::Completed),
                "{fault:?}"
            );
            assert!((1..1000).contains(&row.charged), "{fault:?}: {}", row.charged);
        }
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.upstreams[0].timeouts.total = Duration::from_millis(200);
    })
    .await;
    sim.fault_next(SimFault::Endless, 1);
    let answer = post(CHAT, &chat(true)).key(&house.key).ask(house.gateway.addr()).await;
    assert!(answer.text().contains("upstream_total_timeout"));
    let row = house.rows().await.pop().unwrap();
    assert_eq!(
        (row.outcome, row.code.as_deref()),
        (AttemptOutcome::Timeout, Some("upstream_total_timeout"))
    );
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_stream_is_charged_what_passed() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let question = post(CHAT, &chat(true)).key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.begin(addr).await });
    let pieces = upstream.call().await.stream("text/event-stream");
    let event =
        Bytes::from("data: {\"choices\":[{\"delta\":{\"content\":\"some words for you\"}}]}\n\n");
    pieces.send(event.clone()).unwrap();
    let mut body = asking.await.unwrap().into_body();
    assert_eq!(piece(&mut body).await.unwrap(), event);
    drop(body);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.outcome, row.status), (AttemptOutcome::ClientLeft, 499));
    assert_eq!(row.code.as_deref(), Some("client_left"));
    assert!(row.charged > row.input_tokens && row.usage == UsageSource::Counted, "{row:?}");
    // The upstream learns of it: its connection is closed.
    let gone = async {
        while pieces.send(event.clone()).is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::support::SOON, gone).await.unwrap();
    house.close().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_pays_for_its_input() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let addr = house.gateway.addr();
    for (at, stream) in [true, false].into_iter().enumerate() {
        let question = post(CHAT, &chat(stream)).key(&house.key);
        let asking = tokio::spawn(async move { question.begin(addr).await });
        let call = upstream.call().await;
        asking.abort();
        let row = house.rows_soon(at + 1).await.pop().unwrap();
        assert_eq!((row.outcome, row.status), (AttemptOutcome::ClientLeft, 499));
        let paid = matches!(row.usage, UsageSource::Counted | UsageSource::Occupied);
        assert!(paid && row.charged > 0 && row.worker.is_some(), "{row:?}");
        drop(call);
    }
    house.close().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_is_charged_nothing() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| config.pools[0].capacity = 1).await;
    let addr = house.gateway.addr();
    let first = post(CHAT, &chat(false)).key(&house.key);
    let in_flight = tokio::spawn(async move { first.ask(addr).await });
    let call = upstream.call().await;
    let second = post(CHAT, &chat(false)).key(&house.key);
    let waiting = tokio::spawn(async move { second.ask(addr).await });
    house.until(|live| live.waiting == 1).await;
    waiting.abort();
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.outcome, row.status, row.charged), (AttemptOutcome::ClientLeft, 499, 0));
    assert_eq!((row.usage, row.worker), (UsageSource::None, None));
    house.until(|live| live.waiting == 0 && live.in_flight == 1).await;
    call.answer(200, "application/json", "{}");
    assert_eq!(in_flight.await.unwrap().status, StatusCode::OK);
    assert!(!upstream.has_call());
    assert_eq!(house.rows().await.len(), 2);
    house.close().await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let mut stream = TcpStream::connect(house.gateway.addr()).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 100\r\n\r\n{{\"mod",
        house.key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.outcome, row.charged, row.model.as_str()), (AttemptOutcome::ClientLeft, 0, ""));
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn an_error_of_the_upstream_goes_through_as_it_is() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    for status in [400, 422, 429, 500] {
        let question = post(CHAT, &chat(false)).key(&house.key);
        let addr = house.gateway.addr();
        let asking = tokio::spawn(async move { question.ask(addr).await });
        let body = format!("{{\"error\":{{\"message\":\"no {status}\"}}}}");
        let call = upstream.call().await;
        call.answer(status, "application/json", body.clone());
        let answer = asking.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.text()), (status, body));
        let row = house.rows().await.pop().unwrap();
        assert_eq!((row.status, row.outcome), (status, AttemptOutcome::UpstreamError));
        // Its input was read; but who is told to come later has cost nothing.
        assert_eq!(row.charged == 0, status == 429, "{row:?}");
        assert_eq!(row.code.as_deref(), Some("upstream_status"));
    }
    house.close().await;
}

#[tokio::test]
async fn a_bad_credential_of_ours_is_not_the_clients_fault() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    for status in [401, 403] {
        let question = post(CHAT, &chat(false)).key(&house.key);
        let addr = house.gateway.addr();
        let asking = tokio::spawn(async move { question.ask(addr).await });
        upstream.call().await.answer(status, "application/json", "{\"error\":{}}");
        let answer = asking.await.unwrap();
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_GATEWAY, "upstream_credentials")
        );
    }
    assert_eq!(house.rows().await.len(), 2);
    house.close().await;
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_502() {
    let sim = sim();
    let url = sim.url();
    sim.kill().await;
    let house = house(&url).await;
    let answer = post(CHAT, &chat(false)).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (StatusCode::BAD_GATEWAY, "upstream_unreachable")
    );
    let row = house.rows().await.pop().unwrap();
    assert_eq!((row.outcome, row.charged, row.status), (AttemptOutcome::UpstreamError, 0, 502));
    house.close().await;
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_in_the_meantime_is_not_noticed() {
    // Each backend answers one request and then closes, with and without saying so.
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = tokio::spawn(async move {
        for _ in 0..6 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                tokio::io::AsyncReadExt::read_buf(&mut stream, &mut request).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        }
    });
    let house = house(&url).await;
    for _ in 0..6 {
        let answer = post(CHAT, &json!({"model": "sim", "messages": []}))
            .key(&house.key)
            .ask(house.gateway.addr())
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    upstream.await.unwrap();
    house.close().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_slot() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.upstreams[0].timeouts.total = Duration::from_millis(300);
    })
    .await;
    sim.fault_next(SimFault::Endless, 1);
    // Nothing is read: what comes fills all buffers on the way.
    let connection =
        post(CHAT, &chat(true)).key(&house.key).begin_stalled(house.gateway.addr()).await;
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!(
        (row.outcome, row.code.as_deref()),
        (AttemptOutcome::Timeout, Some("upstream_total_timeout"))
    );
    house.quiet().await;
    drop(connection);
    house.close().await;
    sim.kill().await;
}

/// On HTTP/2, a client may stop reading one answer while its connection continues.
#[tokio::test]
async fn a_client_that_opens_no_window_loses_its_slot() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.limits.body_timeout = Duration::from_millis(300);
    })
    .await;
    sim.fault_next(SimFault::Endless, 1);
    let question = post(CHAT, &chat(true)).key(&house.key);
    let (response, connection) = question.begin_h2(house.gateway.addr(), 1).await;
    assert_eq!(response.status(), StatusCode::OK);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!(
        (row.outcome, row.code.as_deref()),
        (AttemptOutcome::ClientLeft, Some("client_left"))
    );
    house.quiet().await;
    drop(response);
    connection.abort();
    house.close().await;
    sim.kill().await;
}

/// An answer with both a length and chunks has two different ends. Nothing of it reaches the
/// client, and its connection is not used again.
#[tokio::test]
async fn an_answer_that_ends_in_two_places_is_malformed() {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let house = house(&url).await;
    let upstream = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).await.unwrap();
            let document = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\
                 transfer-encoding: chunked\r\n\r\n{:x}\r\n{document}\r\n0\r\n\r\n",
                document.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            // It is closed, and not used again.
            while stream.read(&mut asked).await.is_ok_and(|read| read > 0) {
                assert!(!asked.starts_with(b"POST"));
            }
        }
    });
    for _ in 0..2 {
        let answer = post(CHAT, &chat(false)).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::BAD_GATEWAY, "upstream_garbage")
        );
        let row = house.rows().await.pop().unwrap();
        assert_eq!((row.outcome, row.status), (AttemptOutcome::UpstreamError, 502));
    }
    upstream.await.unwrap();
    house.close().await;
}
