//! Tests of all faults, with streamed answers and with others.

use std::error::Error;
use std::io;
use std::time::Duration;

use fairgate_sim::{Sim, SimFault, SimOutcome, UsageFault};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{chat, events, post, quick, start, try_post, until, with};

const PATH: &str = "/v1/chat/completions";

fn whole() -> Value {
    chat("Hello")
}

fn streamed() -> Value {
    let ask = with(chat("Hello"), "stream", true);
    with(ask, "stream_options", json!({"include_usage": true}))
}

fn with_fault(fault: SimFault) -> Sim {
    let sim = start(quick());
    sim.set_fault(fault);
    sim
}

fn is_reset(error: &hyper::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionReset;
        }
        cause = error.source();
    }
    false
}

fn tokens(stream: &str) -> usize {
    stream.matches("\"content\":\"").count() - 1
}

#[tokio::test]
async fn resets_are_resets() {
    let sim = with_fault(SimFault::ResetBefore);
    for ask in [whole(), streamed()] {
        let error = try_post(&sim, PATH, &ask).await.err().unwrap();
        assert!(is_reset(&error), "{error:?}");
    }
    sim.set_fault(SimFault::ResetMid);
    let (text, end) = post(&sim, PATH, &streamed()).await.read().await;
    assert_eq!(tokens(&text), 5);
    assert!(is_reset(&end.unwrap_err()));
    let (text, end) = post(&sim, PATH, &whole()).await.read().await;
    assert!(text.starts_with('{') && end.is_err());
    assert_eq!(until(&sim, |stats| stats.broken == 4).await.in_flight, 0);
    sim.set_fault(None);
    assert_eq!(post(&sim, PATH, &whole()).await.json().await["usage"]["completion_tokens"], 10);
    sim.stop().await;
}

#[tokio::test]
async fn closes_are_no_resets_and_no_ends() {
    let sim = with_fault(SimFault::CloseMid);
    let (text, end) = post(&sim, PATH, &streamed()).await.read().await;
    assert_eq!(tokens(&text), 5);
    let end = end.unwrap_err();
    assert!(!is_reset(&end), "{end:?}");
    let (text, end) = post(&sim, PATH, &whole()).await.read().await;
    assert!(end.is_err() && serde_json::from_str::<Value>(&text).is_err());

    sim.set_fault(SimFault::CloseAtEnd);
    let (text, end) = post(&sim, PATH, &streamed()).await.read().await;
    assert!(text.ends_with("data: [DONE]\n\n") && end.is_err());
    let (text, end) = post(&sim, PATH, &whole()).await.read().await;
    assert!(end.is_err() && serde_json::from_str::<Value>(&(text + "}")).is_ok());
    assert_eq!(sim.stats().broken, 4);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_hangs_holds_its_slot_until_its_client_leaves() {
    let sim = with_fault(SimFault::HangBefore);
    for ask in [whole(), streamed()] {
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, try_post(&sim, PATH, &ask)).await.is_err());
        until(&sim, |stats| stats.in_flight == 0).await;
    }
    sim.set_fault(SimFault::HangMid);
    for (ask, expected) in [(whole(), "{"), (streamed(), "data: {")] {
        let mut reply = post(&sim, PATH, &ask).await;
        let begun = Instant::now();
        let mut text = String::new();
        let day = Duration::from_secs(86_400);
        while let Ok(Some(piece)) = tokio::time::timeout(day, reply.next()).await {
            text += &String::from_utf8_lossy(&piece);
        }
        assert_eq!(begun.elapsed(), day);
        assert!(text.starts_with(expected) && !text.contains("[DONE]"), "{text}");
        assert_eq!(sim.stats().in_flight, 1);
        drop(reply);
        until(&sim, |stats| stats.in_flight == 0).await;
    }
    assert_eq!(sim.stats().abandoned, 4);
    sim.stop().await;
}

#[tokio::test]
async fn garbage_is_garbage() {
    let sim = with_fault(SimFault::Garbage);
    for ask in [whole(), streamed()] {
        let mut reply = post(&sim, PATH, &ask).await;
        assert_eq!(reply.status, 200);
        let (bytes, end) = reply.read_bytes().await;
        assert!(end.is_ok() && String::from_utf8(bytes).is_err());
    }
    sim.set_fault(SimFault::InvalidJson);
    let text = post(&sim, PATH, &whole()).await.text().await;
    assert!(serde_json::from_str::<Value>(&text).is_err());
    let text = post(&sim, PATH, &streamed()).await.text().await;
    let data: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: {")).collect();
    assert!(data.len() > 10);
    assert!(data.iter().all(|data| serde_json::from_str::<Value>(&format!("{{{data}")).is_err()));

    sim.set_fault(SimFault::SseGarbage);
    let (bytes, end) = post(&sim, PATH, &streamed()).await.read_bytes().await;
    assert!(end.is_ok());
    let text = String::from_utf8_lossy(&bytes);
    assert!(String::from_utf8(bytes.clone()).is_err() && text.contains("\nno colon here\n"));
    assert!(tokens(&text) == 5 && !text.contains("[DONE]"));
    sim.stop().await;
}

#[tokio::test]
async fn usage_is_missing_or_absurd_in_every_api() {
    type Check = fn(&Value) -> bool;
    let absurd: [(UsageFault, Check); 3] = [
        (UsageFault::Negative, |number| number.as_i64() < Some(0)),
        (UsageFault::Huge, |number| number.as_u64() >= Some(1_000_000_000_000_000_000)),
        (UsageFault::Strings, Value::is_string),
    ];
    let sim = start(quick());
    let paths = [PATH, "/v1/completions", "/v1/responses", "/v1/messages"];
    let mut ask = with(chat("Hello"), "max_tokens", 5);
    ask["prompt"] = json!("Hello");
    ask["input"] = json!("Hello");
    ask["stream_options"] = json!({"include_usage": true});
    let found = async |stream: bool, path: &str| {
        let text = post(&sim, path, &with(ask.clone(), "stream", stream)).await.text().await;
        let values =
            if stream { events(&text) } else { vec![serde_json::from_str(&text).unwrap()] };
        let places = ["/usage", "/response/usage", "/message/usage"];
        let usages = values.iter().flat_map(|value| places.map(|place| value.pointer(place)));
        let usages: Vec<_> = usages.flatten().filter(|usage| !usage.is_null()).cloned().collect();
        usages
    };
    for path in paths {
        for stream in [false, true] {
            sim.set_fault(SimFault::Usage(UsageFault::Missing));
            assert!(found(stream, path).await.is_empty(), "{path}");
            for (fault, is_absurd) in absurd {
                sim.set_fault(SimFault::Usage(fault));
                let usages = found(stream, path).await;
                assert!(!usages.is_empty(), "{path}");
                for usage in usages {
                    let fields = usage.as_object().unwrap();
                    let mut numbers = fields.values().filter(|value| !value.is_object());
                    assert!(numbers.all(is_absurd), "{path} {fault:?} {usage}");
                }
            }
        }
    }
    assert!(sim.stats().recent.iter().all(|record| record.outcome == SimOutcome::Finished));
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_never_ends() {
    let sim = with_fault(SimFault::Endless);
    for ask in [whole(), streamed()] {
        let mut reply = post(&sim, PATH, &with(ask, "max_tokens", 1)).await;
        let begun = Instant::now();
        let mut bytes = 0;
        while begun.elapsed() < Duration::from_secs(2) {
            bytes += reply.next().await.unwrap().len();
        }
        assert!(bytes > 5_000, "{bytes} bytes");
        drop(reply);
        until(&sim, |stats| stats.in_flight == 0).await;
    }
    assert!(sim.stats().output_tokens > 3_000);
    sim.stop().await;
}

#[tokio::test]
async fn a_status_refuses_in_the_callers_dialect() {
    let sim = with_fault(SimFault::Status { code: 429, retry_after_seconds: Some(7) });
    let reply = post(&sim, PATH, &whole()).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.headers["retry-after"]),
        (429, &"7".parse().unwrap())
    );
    assert_eq!(reply.json().await["error"]["code"], "simulated_fault");
    sim.set_fault(SimFault::Status { code: 503, retry_after_seconds: None });
    let reply = post(&sim, "/v1/messages", &with(streamed(), "max_tokens", 5)).await;
    assert_eq!((reply.status.as_u16(), reply.headers.contains_key("retry-after")), (503, false));
    assert_eq!(reply.json().await["error"]["type"], "overloaded_error");
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_bytes_come_one_by_one() {
    let sim = with_fault(SimFault::SlowBytes { pause: Duration::from_millis(100) });
    for ask in [whole(), streamed()] {
        let begun = Instant::now();
        let text = post(&sim, PATH, &ask).await.text().await;
        let bytes = u32::try_from(text.len()).unwrap();
        assert_eq!(begun.elapsed(), Duration::from_millis(100) * bytes);
    }
    assert_eq!(sim.stats().finished, 2);
    sim.stop().await;
}

#[tokio::test]
async fn an_oversized_event_is_one_event() {
    let sim = with_fault(SimFault::OversizedEvent { bytes: 3 << 20 });
    let text = post(&sim, PATH, &streamed()).await.text().await;
    assert_eq!(text.lines().filter(|line| line.len() > 3 << 20).count(), 1);
    assert_eq!(events(&text).last().unwrap()["usage"]["completion_tokens"], 10);
    assert!(post(&sim, PATH, &whole()).await.text().await.len() > 3 << 20);
    sim.stop().await;
}

#[tokio::test]
async fn a_wrong_content_type_is_all_that_is_wrong() {
    let sim = with_fault(SimFault::WrongContentType);
    for ask in [whole(), streamed()] {
        let reply = post(&sim, PATH, &ask).await;
        assert_eq!(reply.headers["content-type"], "text/html; charset=utf-8");
        let text = reply.text().await;
        assert!(serde_json::from_str::<Value>(&text).is_ok() || events(&text).len() == 13);
    }
    sim.stop().await;
}

#[tokio::test]
async fn a_counted_fault_is_over_after_its_count() {
    let sim = start(quick());
    sim.fault_next(SimFault::Status { code: 500, retry_after_seconds: None }, 2);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(&sim, PATH, &whole()).await.status.as_u16());
    }
    assert_eq!(statuses, [500, 500, 200]);
    sim.stop().await;
}

#[tokio::test]
async fn a_slow_refusal_keeps_its_slot() {
    let after = Duration::from_millis(60);
    let sim = with_fault(SimFault::SlowStatus { code: 400, after });
    for ask in [whole(), streamed()] {
        let since = Instant::now();
        let answer = post(&sim, PATH, &ask);
        let busy = until(&sim, |stats| stats.in_flight == 1);
        let (answer, _) = tokio::join!(answer, busy);
        assert_eq!(answer.status, 400);
        assert!(since.elapsed() >= after);
    }
    assert_eq!(sim.stats().in_flight, 0);
    sim.stop().await;
}

#[tokio::test]
async fn hidden_tokens_are_used_and_not_seen() {
    let sim = with_fault(SimFault::HiddenTokens { tokens: 500 });
    let (text, end) = post(&sim, PATH, &streamed()).await.read().await;
    end.unwrap();
    assert_eq!(tokens(&text), 10);
    assert!(text.contains("\"completion_tokens\":510"), "{text}");
    let usage = &post(&sim, PATH, &whole()).await.json().await["usage"];
    assert_eq!(usage["completion_tokens"], 510);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 500);
    sim.stop().await;
}

#[tokio::test]
async fn a_connection_that_was_to_be_kept_is_closed_after_the_answer() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let sim = with_fault(SimFault::CloseAfter);
    for ask in [whole(), streamed()] {
        let body = ask.to_string();
        let mut stream = tokio::net::TcpStream::connect(sim.addr()).await.unwrap();
        let head =
            format!("POST {PATH} HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        let mut answer = String::new();
        // It ends: nobody asked for that.
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("connection: close"));
        assert!(answer.ends_with("}") || answer.ends_with("\r\n0\r\n\r\n"), "{answer}");
    }
    assert_eq!(sim.stats().broken, 0);
    sim.stop().await;
}
