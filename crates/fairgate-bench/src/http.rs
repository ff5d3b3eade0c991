//! A minimal HTTP/1.1 client. Each connection carries one request, and the caller sees every byte
//! of the response as it arrives.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Path of most requests.
pub(crate) const CHAT_PATH: &str = "/v1/chat/completions";

/// A POST request to a gateway or router: address, path, headers and body.
#[derive(Clone, Debug)]
pub(crate) struct BenchRequest {
    pub(crate) addr: SocketAddr,
    pub(crate) path: Cow<'static, str>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// The bytes of a response that have arrived so far.
#[derive(Debug, Default)]
pub(crate) struct BenchResponse {
    bytes: Vec<u8>,
    /// Offset at which the body begins; `None` until the whole head has arrived.
    head: Option<usize>,
}

impl BenchResponse {
    /// Returns the HTTP status; `None` until the whole head has arrived.
    pub(crate) fn status(&self) -> Option<u16> {
        self.head?;
        std::str::from_utf8(self.bytes.get(9..12)?).ok()?.parse().ok()
    }

    /// Returns the value of the header with this name; `None` if it has not arrived.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.bytes[..self.head?]).ok()?;
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns all bytes after the head, including the sizes of the chunks in a chunked response.
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.head.unwrap_or(self.bytes.len())..]
    }

    /// Returns whether the whole response has arrived.
    pub(crate) fn is_whole(&self) -> bool {
        match self.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            Some(length) => self.body().len() == length,
            None => self.body().ends_with(b"0\r\n\r\n"),
        }
    }

    /// Appends bytes that have just arrived.
    pub(crate) fn append(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        if self.head.is_none() {
            let end = self.bytes.windows(4).position(|window| window == b"\r\n\r\n");
            self.head = end.map(|end| end + 4);
        }
    }
}

/// Sends a request and reads the response until the connection ends, the deadline passes, or
/// `on_bytes` returns a break. `on_bytes` gets the whole response so far and the bytes that have
/// just arrived.
pub(crate) async fn send(
    call: &BenchRequest,
    patience: Duration,
    mut on_bytes: impl FnMut(&BenchResponse, &[u8]) -> ControlFlow<()>,
) -> io::Result<BenchResponse> {
    let deadline = Instant::now() + patience;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the answer did not end in time");
    let mut stream = timeout_at(deadline, TcpStream::connect(call.addr)).await.map_err(late)??;
    stream.set_nodelay(true)?;
    stream.write_all(&request(call)).await?;
    let mut answer = BenchResponse::default();
    let mut piece = [0; 4096];
    loop {
        let n = timeout_at(deadline, stream.read(&mut piece)).await.map_err(late)??;
        answer.append(&piece[..n]);
        if n == 0 || on_bytes(&answer, &piece[..n]).is_break() {
            return Ok(answer);
        }
    }
}

/// Writes a request in the format of HTTP/1.1.
pub(crate) fn request(call: &BenchRequest) -> Vec<u8> {
    let header = |(name, value): &(String, String)| format!("{name}: {value}\r\n");
    let headers: String = call.headers.iter().map(header).collect();
    let (addr, path, body) = (call.addr, &call.path, &call.body);
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &[u8]) -> BenchResponse {
        let mut answer = BenchResponse::default();
        bytes.chunks(3).for_each(|piece| answer.append(piece));
        answer
    }

    #[test]
    fn an_answer_is_whole_where_its_length_or_its_last_chunk_says_so() {
        let parsed = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok");
        assert_eq!((parsed.status(), parsed.header("x-a")), (Some(200), Some("b")));
        assert_eq!((parsed.body(), parsed.is_whole()), (&b"ok"[..], true));
        assert!(!answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no").is_whole());
        assert!(answer(b"HTTP/1.1 429 No\r\n\r\n2\r\nok\r\n0\r\n\r\n").is_whole());
        assert!(!answer(b"HTTP/1.1 200 OK\r\n\r\n2\r\nok\r\n").is_whole());
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\ncont").status(), None);
    }
}
