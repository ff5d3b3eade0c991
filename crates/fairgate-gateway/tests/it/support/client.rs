//! An HTTP client that uses no code of the gateway.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::SOON;

/// A whole response.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Reason phrase, if it is not the standard one.
    reason: Option<ReasonPhrase>,
}

impl Answer {
    /// Returns the reason phrase of a status that no standard defines.
    pub fn reason_phrase(&self) -> Option<String> {
        let phrase = self.reason.as_ref()?.as_bytes();
        Some(String::from_utf8_lossy(phrase).into_owned())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("no JSON ({error}): {}", String::from_utf8_lossy(&self.body))
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the stable code of an error, in either dialect.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// A request of the client.
#[derive(Clone, Debug)]
pub struct Question {
    pub method: Method,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

pub fn get(path: &str) -> Question {
    Question { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
}

/// Returns a request with a JSON body.
pub fn post(path: &str, body: &Value) -> Question {
    raw(path, body.to_string())
}

/// Returns a request with any body.
pub fn raw(path: &str, body: impl Into<Bytes>) -> Question {
    Question { method: Method::POST, path: path.into(), headers: Vec::new(), body: body.into() }
}

impl Question {
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    fn request(&self, addr: SocketAddr, absolute: bool) -> Request<Full<Bytes>> {
        let uri = if absolute { format!("http://{addr}{}", self.path) } else { self.path.clone() };
        let mut request = Request::builder().method(self.method.clone()).uri(uri);
        if !absolute {
            request = request.header("host", addr.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body.clone())).unwrap()
    }

    /// Sends the request on a connection of its own, and returns the response when its head has
    /// arrived.
    pub async fn begin(&self, addr: SocketAddr) -> Response<Incoming> {
        timeout(SOON, self.begin_patiently(addr)).await.expect("an answer begins")
    }

    async fn begin_patiently(&self, addr: SocketAddr) -> Response<Incoming> {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(self.request(addr, false)).await.unwrap()
    }

    /// Sends the request on a connection of its own, and reads nothing.
    pub async fn begin_stalled(&self, addr: SocketAddr) -> TcpStream {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: {addr}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream.write_all(&self.body).await.unwrap();
        stream
    }

    /// Sends the request on a connection of its own, and reads the whole response.
    pub async fn ask(&self, addr: SocketAddr) -> Answer {
        whole(self.begin(addr).await).await
    }

    /// Sends the request over HTTP/2 with this window for the response, and reads nothing of it
    /// yet. The connection stays open until it is aborted.
    pub async fn begin_h2(
        &self,
        addr: SocketAddr,
        window: u32,
    ) -> (Response<Incoming>, JoinHandle<hyper::Result<()>>) {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(window)
                .handshake(TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        (sender.send_request(self.request(addr, true)).await.unwrap(), connection)
    }

    /// Sends the request over HTTP/2 by prior knowledge, and reads the whole response.
    pub async fn ask_h2(&self, addr: SocketAddr) -> Answer {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let driver = tokio::spawn(connection);
        let response = timeout(SOON, sender.send_request(self.request(addr, true)));
        let answer = whole(response.await.expect("an answer begins").unwrap()).await;
        drop(sender);
        driver.abort();
        answer
    }
}

/// Reads a response to its end.
pub async fn whole(response: Response<Incoming>) -> Answer {
    let (head, body) = response.into_parts();
    let body = timeout(SOON, body.collect()).await.expect("the answer ends").unwrap().to_bytes();
    let reason = head.extensions.get().cloned();
    Answer { status: head.status, headers: head.headers, body, reason }
}

/// Returns the next piece of a body; `None` at its end.
pub async fn piece(body: &mut Incoming) -> Option<Bytes> {
    let frame = timeout(SOON, body.frame()).await.expect("the body goes on");
    frame.map(|frame| frame.unwrap().into_data().unwrap())
}

/// Returns the error with which a body breaks off, or the whole body.
pub async fn collect_or_error(response: Response<Incoming>) -> Result<Bytes, hyper::Error> {
    let collected = timeout(SOON, response.into_body().collect()).await.expect("the body ends");
    collected.map(|collected| collected.to_bytes())
}

/// Checks that no piece arrives for a while.
pub async fn silent(body: &mut Incoming) -> bool {
    timeout(Duration::from_millis(30), body.frame()).await.is_err()
}
