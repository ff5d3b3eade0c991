//! Tests of the exact times of answers. The clock is paused, so it advances only while tasks wait
//! for it.

use std::time::Duration;

use fairgate_sim::{OutputLength, SimOptions, SimOutcome};
use tokio::time::{Instant, sleep};

use crate::client::{chat, post, request, send, start, until, with};

fn timed() -> SimOptions {
    SimOptions {
        prefill_base: Duration::from_millis(20),
        prefill_per_token: Duration::from_millis(3),
        decode_per_token: Duration::from_millis(5),
        output_tokens: OutputLength::exactly(10),
        ..SimOptions::default()
    }
}

const PATH: &str = "/v1/chat/completions";
/// Time of an answer: 20 ms + 2 tokens × 3 ms to the first token, then nine more tokens at 5 ms
/// each.
const HELLO: Duration = Duration::from_millis(20 + 2 * 3 + 9 * 5);

#[tokio::test(start_paused = true)]
async fn a_whole_answer_takes_prefill_and_decode() {
    let sim = start(timed());
    let begun = Instant::now();
    post(&sim, PATH, &chat("Hello")).await.text().await;
    assert_eq!(begun.elapsed(), HELLO);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_stream_come_when_they_are_due() {
    let sim = start(timed());
    let begun = Instant::now();
    let mut reply = post(&sim, PATH, &with(chat("Hello"), "stream", true)).await;
    assert_eq!(begun.elapsed(), Duration::from_millis(26));
    let mut arrivals = Vec::new();
    while let Some(piece) = reply.next().await {
        let tokens = String::from_utf8_lossy(&piece).matches("\"content\":\"").count();
        arrivals.extend(std::iter::repeat_n(begun.elapsed().as_millis(), tokens));
    }
    // The first two are the empty one that opens the stream and the first token.
    let due: Vec<u128> = [26].into_iter().chain((0..10).map(|token| 26 + 5 * token)).collect();
    assert_eq!(arrivals, due);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn choices_advance_together() {
    let sim = start(timed());
    let begun = Instant::now();
    post(&sim, PATH, &with(chat("Hello"), "n", 4)).await.text().await;
    assert_eq!(begun.elapsed(), HELLO);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cached_tokens_need_no_prefill() {
    let sim = start(SimOptions { prefix_cache_blocks: 100, ..timed() });
    let ask = with(chat(&"x".repeat(4 * 64)), "max_tokens", 1);
    let took = async || {
        let begun = Instant::now();
        post(&sim, PATH, &ask).await.text().await;
        begun.elapsed().as_millis()
    };
    assert_eq!((took().await, took().await), (20 + 64 * 3, 20 + 3), "one token is always fresh");
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_slot_waits_in_order() {
    let sim = start(SimOptions { slots: 1, ..timed() });
    let begun = Instant::now();
    let mut asked = Vec::new();
    for already in 0..4 {
        let request = request("POST", PATH, chat("Hello").to_string());
        let sent = send(sim.addr(), request);
        asked.push(tokio::spawn(async move {
            sent.await.unwrap().text().await;
            Instant::now()
        }));
        until(&sim, |stats| stats.in_flight + stats.waiting == already + 1).await;
    }
    for (turn, done) in (1..).zip(asked) {
        assert_eq!(done.await.unwrap() - begun, HELLO * turn);
    }
    let waited: Vec<_> = sim.stats().recent.iter().map(|record| record.waited).collect();
    assert_eq!(waited, [Duration::ZERO, HELLO, HELLO * 2, HELLO * 3]);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_slot_and_its_tokens_are_counted() {
    let sim = start(SimOptions { slots: 1, ..timed() });
    let whole = tokio::spawn(send(sim.addr(), request("POST", PATH, chat("Hello").to_string())));
    until(&sim, |stats| stats.in_flight == 1).await;
    let waiting = tokio::spawn(send(sim.addr(), request("POST", PATH, chat("Hello").to_string())));
    until(&sim, |stats| stats.waiting == 1).await;
    waiting.abort();
    until(&sim, |stats| stats.waiting == 0 && stats.abandoned == 1).await;
    // Three tokens: at 26, 31 and 36 ms.
    sleep(Duration::from_millis(37)).await;
    whole.abort();
    let stats = until(&sim, |stats| stats.abandoned == 2).await;
    assert_eq!((stats.in_flight, stats.input_tokens, stats.output_tokens), (0, 2, 3));
    assert_eq!(stats.recent[1].outcome, SimOutcome::Abandoned);

    let mut reply = post(&sim, PATH, &with(chat("Hello"), "stream", true)).await;
    assert!(reply.next().await.is_some());
    // Three tokens again: at 0, 5 and 10 ms after the first.
    sleep(Duration::from_millis(12)).await;
    drop(reply);
    let stats = until(&sim, |stats| stats.abandoned == 3).await;
    assert_eq!(stats.recent[2].output_tokens, 3);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn prompts_are_read_one_after_the_other_where_one_is_read_at_once() {
    let sim = start(SimOptions { prefill_at_once: Some(1), ..timed() });
    let begun = Instant::now();
    let (hello, again) = (chat("Hello"), chat("Hello"));
    let (one, two) = tokio::join!(post(&sim, PATH, &hello), post(&sim, PATH, &again));
    one.text().await;
    two.text().await;
    assert_eq!(
        begun.elapsed(),
        Duration::from_millis(20 + 2 * 3) + HELLO,
        "decoding needs no turn"
    );
    sim.stop().await;
}
