//! Tests of starting, stopping, killing and restarting a backend.

use std::time::Duration;

use fairgate_sim::{OutputLength, Sim, SimFault, SimOptions};
use tokio::net::TcpStream;

use crate::client::{chat, get, post, quick, request, send, start, until, with};

const PATH: &str = "/v1/chat/completions";

fn slow() -> SimOptions {
    SimOptions {
        decode_per_token: Duration::from_secs(1),
        output_tokens: OutputLength::exactly(100),
        ..quick()
    }
}

#[tokio::test]
async fn the_killed_reset_their_clients_and_can_be_revived_on_the_spot() {
    let mut addr = None;
    for _ in 0..5 {
        let sim = Sim::start(addr.unwrap_or(crate::client::loopback()), slow()).unwrap();
        addr = Some(sim.addr());
        let idle = TcpStream::connect(sim.addr()).await.unwrap();
        let mut reply = post(&sim, PATH, &with(chat("Hi"), "stream", true)).await;
        assert!(reply.next().await.is_some());
        sim.kill().await;
        let (_, end) = reply.read().await;
        assert!(end.is_err());
        idle.readable().await.unwrap();
        let read = idle.try_read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(read, Err(std::io::ErrorKind::ConnectionReset));
        let refused = TcpStream::connect(addr.unwrap()).await.map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(std::io::ErrorKind::ConnectionRefused));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_what_flies() {
    let sim = start(SimOptions { stop_grace: Duration::from_secs(1000), ..slow() });
    let addr = sim.addr();
    let mut reply = post(&sim, PATH, &with(chat("Hi"), "stream", true)).await;
    assert!(reply.next().await.is_some());
    let (text, ()) = tokio::join!(reply.text(), sim.stop());
    assert!(text.ends_with("data: [DONE]\n\n"));
    assert!(TcpStream::connect(addr).await.is_err());
    let revived = Sim::start(addr, quick()).unwrap();
    assert_eq!(get(&revived, "/health").await.status, 200);
    revived.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_cuts_what_takes_longer_than_its_grace() {
    let sim = start(SimOptions { stop_grace: Duration::from_secs(5), ..slow() });
    let mut reply = post(&sim, PATH, &with(chat("Hi"), "stream", true)).await;
    assert!(reply.next().await.is_some());
    let begun = tokio::time::Instant::now();
    sim.stop().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    let (_, end) = reply.read().await;
    assert!(end.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_what_hangs() {
    for fault in [SimFault::HangBefore, SimFault::HangMid, SimFault::Endless] {
        let sim = start(quick());
        sim.set_fault(fault);
        let asked = request("POST", PATH, with(chat("Hi"), "stream", true).to_string());
        let asked = send(sim.addr(), asked);
        let asked = tokio::spawn(async move { asked.await?.read().await.1 });
        until(&sim, |stats| stats.in_flight == 1).await;
        let begun = tokio::time::Instant::now();
        sim.stop().await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{fault}");
        assert!(asked.await.unwrap().is_err(), "{fault}");
    }
}

#[tokio::test]
async fn a_dropped_handle_is_a_kill() {
    let sim = start(slow());
    let mut reply = post(&sim, PATH, &with(chat("Hi"), "stream", true)).await;
    assert!(reply.next().await.is_some());
    drop(sim);
    let (_, end) = reply.read().await;
    assert!(end.is_err());
}

#[test]
fn there_must_be_a_runtime() {
    let error = Sim::start(crate::client::loopback(), quick()).unwrap_err();
    assert!(error.to_string().contains("Tokio"), "{error}");
}
