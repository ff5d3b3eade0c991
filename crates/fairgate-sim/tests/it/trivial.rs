//! Tests of the upstream for benchmarks.

use std::time::Duration;

use fairgate_sim::{SimMode, SimOptions, TrivialOptions};
use fairgate_time::wall_clock;
use serde_json::json;

use crate::client::{chat, events, post, start, with};

const PATH: &str = "/v1/chat/completions";

fn trivial() -> SimOptions {
    let options = TrivialOptions { stream_chunks: 4, chunk_interval: Duration::from_millis(2) };
    SimOptions { mode: SimMode::Trivial(options), ..SimOptions::default() }
}

fn now_us() -> u128 {
    wall_clock::since_1970().as_micros()
}

#[tokio::test]
async fn every_whole_answer_is_the_same_kilobyte() {
    let sim = start(trivial());
    for _ in 0..2 {
        let reply = post(&sim, PATH, &json!({"whatever": 1})).await;
        assert_eq!(reply.headers["content-type"], "application/json");
        let text = reply.text().await;
        assert_eq!(text.len(), 1024);
        assert!(text.contains("\"total_tokens\":160"));
    }
    assert_eq!(sim.stats().finished, 2);
    sim.stop().await;
}

#[tokio::test]
async fn chunks_of_a_stream_tell_when_they_were_sent() {
    let sim = start(trivial());
    let before = now_us();
    let ask = with(chat("Hi"), "stream", true);
    let ask = with(ask, "stream_options", json!({"include_usage": true}));
    let events = events(&post(&sim, PATH, &ask).await.text().await);
    let after = now_us();
    let sent: Vec<_> = events.iter().filter_map(|event| event["sent_unix_us"].as_u64()).collect();
    assert_eq!((events.len(), sent.len()), (5, 4));
    assert_eq!(events[4]["usage"]["completion_tokens"], 4);
    assert!(sent.is_sorted_by(|earlier, later| earlier + 1900 < *later), "{sent:?}");
    assert!(u128::from(sent[0]) >= before && u128::from(sent[3]) <= after);
    sim.stop().await;
}
