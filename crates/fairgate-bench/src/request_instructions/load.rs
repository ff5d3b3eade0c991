//! Sends requests over a fixed number of connections that stay open.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::http::BenchRequest;

/// Number of connections, each with one request at a time.
pub(super) const CONNECTIONS: usize = 8;

/// Sends at least `requests` requests, divided evenly over the connections, and returns the number of requests sent.
/// Fails if a request is not answered with 200.
pub(super) async fn send(request: &BenchRequest, requests: usize) -> Result<usize> {
    let each = requests.div_ceil(CONNECTIONS);
    let connections: Vec<_> =
        (0..CONNECTIONS).map(|_| tokio::spawn(send_in_turn(request.clone(), each))).collect();
    for connection in connections {
        connection.await??;
    }
    Ok(each * CONNECTIONS)
}

async fn send_in_turn(request: BenchRequest, count: usize) -> Result<()> {
    let stream = TcpStream::connect(request.addr).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let body = Bytes::from(request.body.clone());
    for _ in 0..count {
        let mut next =
            Request::post("/v1/chat/completions").header("host", request.addr.to_string());
        for (name, value) in &request.headers {
            next = next.header(name, value);
        }
        sender.ready().await?;
        let answer = sender.send_request(next.body(Full::new(body.clone()))?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await.context("the answer broke off")?.to_bytes();
        ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}
