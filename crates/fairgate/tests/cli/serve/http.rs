//! An HTTP client that records whether it has seen the end of the response.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The received part of a response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
    /// True if the end of the response was seen.
    pub(super) whole: bool,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the id that the gateway gave the request.
    pub(super) fn id(&self) -> String {
        self.header("x-fairgate-request-id").expect("every answer has an id").to_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// Sends one request on a connection of its own, and reads the response.
pub(super) fn ask(
    url: &str,
    method: &str,
    path: &str,
    secret: &str,
    body: &str,
) -> io::Result<Answer> {
    let mut stream = send(url, method, path, secret, body)?;
    let mut bytes = Vec::new();
    // What came before a connection broke counts.
    let ended = stream.read_to_end(&mut bytes);
    if bytes.is_empty() {
        ended?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(parsed(&String::from_utf8_lossy(&bytes)))
}

/// Sends a request, and reads nothing of the response yet.
pub(super) fn send(
    url: &str,
    method: &str,
    path: &str,
    secret: &str,
    body: &str,
) -> io::Result<TcpStream> {
    let address = url.strip_prefix("http://").expect("in the clear");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {secret}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}

pub(super) fn parsed(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut answer = Answer { status, head: head.to_owned(), body: body.to_owned(), whole: false };
    answer.whole = match answer.header("content-length") {
        Some(length) => length.parse() == Ok(body.len()),
        None => body.ends_with("\r\n0\r\n\r\n"),
    };
    answer
}

/// Returns the body of a chat request.
pub(super) fn chat(model: &str, prompt: &str, stream: bool) -> String {
    serde_json::json!({
        "model": model,
        "stream": stream,
        "max_tokens": 60,
        "messages": [{"role": "user", "content": prompt}],
    })
    .to_string()
}

pub(super) const CHAT: &str = "/v1/chat/completions";
