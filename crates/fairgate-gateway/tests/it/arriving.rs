//! Tests of request bodies: a client without permission is refused before it has sent its body, and
//! one tenant's bytes do not keep out another's.

use std::time::Duration;

use fairgate_store::DirectoryLimits;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::post;
use crate::support::{Folder, House, SOON, config, house_in, sim, tenant};

const CHAT: &str = "/v1/chat/completions";

/// Announces a body of `announced` bytes and sends `sent` bytes of it.
async fn half_sent(house: &House, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(house.gateway.addr()).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {announced}\r\n\r\n",
        house.key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; sent]).await.unwrap();
    stream
}

#[tokio::test]
async fn a_limit_that_is_reached_is_told_before_the_body_comes() {
    let sim = sim();
    let folder = Folder::new();
    let configuration = config(&folder, &sim.url());
    let limits = DirectoryLimits { requests_per_minute: Some(1), ..DirectoryLimits::default() };
    let house = house_in(folder, configuration, limits).await;
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    let first = post(CHAT, &body).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(first.status, 200);
    let mut stream = half_sent(&house, 300_000, 0).await;
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..read.unwrap()]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn one_tenants_bodies_do_not_keep_out_anothers() {
    let sim = sim();
    let folder = Folder::new();
    let mut configuration = config(&folder, &sim.url());
    configuration.limits.held_bytes_max = 100_000;
    configuration.limits.body_timeout = Duration::from_secs(60);
    let house = house_in(folder, configuration, DirectoryLimits::default()).await;
    let other = tenant(&house.store, "other", DirectoryLimits::default()).await;
    house.gateway.data_plane().directory_sync.refresh().await.unwrap();
    let mut half = Vec::new();
    for _ in 0..8 {
        half.push(half_sent(&house, 90_000, 20_000).await);
    }
    // Some of these are refused by now, whichever came last.
    let content = "rivers ".repeat(1000);
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": content}]});
    for _ in 0..20 {
        let answer = post(CHAT, &body).key(&other).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    drop(half);
    house.close().await;
    sim.stop().await;
}
