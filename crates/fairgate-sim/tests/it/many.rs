//! Tests with many requests at once.

use std::time::Duration;

use fairgate_sim::{OutputLength, SimOptions};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{chat, get, quick, request, send, start, until, with};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_streams_at_once_all_end_well() {
    let sim = start(SimOptions {
        slots: 1000,
        decode_per_token: Duration::from_millis(40),
        output_tokens: OutputLength::exactly(20),
        ..quick()
    });
    let mut streams = JoinSet::new();
    for number in 0..1000 {
        let ask = with(chat(&number.to_string()), "stream", true).to_string();
        let sent = send(sim.addr(), request("POST", "/v1/chat/completions", ask));
        streams.spawn(async move { sent.await.unwrap().text().await });
    }
    while let Some(stream) = streams.join_next().await {
        assert!(stream.unwrap().ends_with("data: [DONE]\n\n"));
    }
    let stats = sim.stats();
    assert_eq!((stats.finished, stats.output_tokens, stats.in_flight), (1000, 20_000, 0));
    assert_eq!(stats.recent.len(), 256);
    sim.stop().await;
}

#[tokio::test]
async fn thousands_wait_and_leave_nothing_behind() {
    let sim = start(SimOptions { slots: 4, ..quick() });
    sim.set_fault(fairgate_sim::SimFault::HangBefore);
    let mut waiting = JoinSet::new();
    for number in 0..2000 {
        let ask = chat(&number.to_string()).to_string();
        waiting.spawn(send(sim.addr(), request("POST", "/v1/chat/completions", ask)));
    }
    until(&sim, |stats| stats.in_flight == 4 && stats.waiting == 1996).await;
    waiting.shutdown().await;
    let stats = until(&sim, |stats| stats.abandoned == 2000).await;
    assert_eq!((stats.waiting, stats.in_flight, stats.arriving), (0, 0, 0));
    sim.stop().await;
}

#[tokio::test]
async fn idle_connections_are_no_burden() {
    let sim = start(quick());
    let mut idle = Vec::new();
    for _ in 0..2000 {
        idle.push(TcpStream::connect(sim.addr()).await.unwrap());
    }
    assert_eq!(get(&sim, "/health").await.status, 200);
    sim.stop().await;
    drop(idle);
}
