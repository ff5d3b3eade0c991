//! A small HTTP client, and the requests that the tests send with it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use fairgate_sim::{OutputLength, Sim, SimOptions, SimStats};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Returns options with which every answer has ten tokens and comes at once.
pub(crate) fn quick() -> SimOptions {
    SimOptions { output_tokens: OutputLength::exactly(10), steering: true, ..SimOptions::instant() }
}

pub(crate) fn start(options: SimOptions) -> Sim {
    Sim::start(loopback(), options).unwrap()
}

pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}]})
}

pub(crate) fn with(mut body: Value, name: &str, value: impl Into<Value>) -> Value {
    body[name] = value.into();
    body
}

pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
}

impl Reply {
    /// Reads the rest of the body. Returns the text, and an error if the body did not end properly.
    pub(crate) async fn read(mut self) -> (String, Result<(), hyper::Error>) {
        let (bytes, end) = self.read_bytes().await;
        (String::from_utf8_lossy(&bytes).into_owned(), end)
    }

    pub(crate) async fn read_bytes(&mut self) -> (Vec<u8>, Result<(), hyper::Error>) {
        let mut all = Vec::new();
        while let Some(frame) = self.body.frame().await {
            match frame {
                Ok(frame) => all.extend(frame.into_data().unwrap_or_default()),
                Err(error) => return (all, Err(error)),
            }
        }
        (all, Ok(()))
    }

    pub(crate) async fn text(self) -> String {
        let (text, end) = self.read().await;
        end.unwrap();
        text
    }

    pub(crate) async fn json(self) -> Value {
        serde_json::from_str(&self.text().await).unwrap()
    }

    /// Returns the next piece of the body; `None` if the body has ended or broken.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.body.frame().await?.ok()?.into_data().ok()
    }
}

pub(crate) async fn send(addr: SocketAddr, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let (parts, body) = response.into_parts();
    Ok(Reply { status: parts.status, headers: parts.headers, body })
}

pub(crate) fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(path).header("host", "sim");
    builder.body(Full::new(body.into())).unwrap()
}

pub(crate) async fn post(sim: &Sim, path: &str, body: &Value) -> Reply {
    try_post(sim, path, body).await.unwrap()
}

pub(crate) async fn try_post(sim: &Sim, path: &str, body: &Value) -> hyper::Result<Reply> {
    send(sim.addr(), request("POST", path, body.to_string())).await
}

pub(crate) async fn get(sim: &Sim, path: &str) -> Reply {
    send(sim.addr(), request("GET", path, "")).await.unwrap()
}

/// Returns the JSON of every `data:` line, in order, without `[DONE]`.
pub(crate) fn events(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Waits until the counters are as expected, and returns them. Panics after 20 s.
pub(crate) async fn until(sim: &Sim, expected: impl Fn(&SimStats) -> bool) -> SimStats {
    // Real seconds: with paused time a virtual limit would be over at once.
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let stats = sim.stats();
        if expected(&stats) {
            return stats;
        }
        assert!(std::time::Instant::now() < limit, "still {stats:?}");
        tokio::task::yield_now().await;
    }
}
