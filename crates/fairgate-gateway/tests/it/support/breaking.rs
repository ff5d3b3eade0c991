//! A backend that breaks connections if a prompt asks for it. It uses only sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Prompt that makes the backend reset its connection after it has read the request.
pub const RESET: &str = "please-reset";
/// Prompt that makes the backend answer with bytes that are not HTTP.
pub const GARBAGE: &str = "please-garble";

const ANSWER: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;

/// The backend. All connections stay open until a prompt or a switch breaks them.
pub struct Breaking {
    pub addr: SocketAddr,
    pub seen: Arc<Seen>,
    accepting: JoinHandle<()>,
}

/// Counters and switches of the backend.
#[derive(Default)]
pub struct Seen {
    /// Requests with a body that were read to their last byte.
    pub posts: AtomicU64,
    /// Other requests: health checks and probes.
    pub gets: AtomicU64,
    pub connections: AtomicU64,
    /// True to break every connection, also those of health checks.
    pub breaks_all: AtomicBool,
    open: AtomicU64,
    /// Number of times that the test has closed all connections.
    close: watch::Sender<u64>,
}

impl Breaking {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let watched = seen.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                watched.connections.fetch_add(1, Ordering::Relaxed);
                watched.open.fetch_add(1, Ordering::Relaxed);
                let (seen, mut closed) = (watched.clone(), watched.close.subscribe());
                connections.spawn(async move {
                    tokio::select! {
                        () = serve(stream, &seen) => {}
                        _ = closed.changed() => {}
                    }
                    seen.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { addr, seen, accepting }
    }

    /// Closes all connections, and waits until their last byte is sent.
    pub async fn close_idle(&self) {
        self.seen.close.send_modify(|times| *times += 1);
        while self.seen.open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Breaking {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, seen: &Seen) {
    let mut read = Vec::new();
    while let Some((head, body)) = next_request(&mut stream, &mut read).await {
        let is_post = head.starts_with("POST");
        let count = if is_post { &seen.posts } else { &seen.gets };
        count.fetch_add(1, Ordering::Relaxed);
        if body.contains(RESET) || seen.breaks_all.load(Ordering::Relaxed) {
            // Lingering for no time sends a reset.
            let _ = stream.set_zero_linger();
            return;
        }
        let answer = match body.contains(GARBAGE) {
            true => "what is this\r\n\r\n".to_owned(),
            false => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
                ANSWER.len()
            ),
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the head and body of the next request; `None` at the end of the connection.
async fn next_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.split("content-length:").nth(1).map_or(0, |rest| {
                rest.lines().next().unwrap_or_default().trim().parse().unwrap_or(0)
            });
            if read.len() >= end + 4 + length {
                let body = String::from_utf8_lossy(&read[end + 4..end + 4 + length]).into_owned();
                read.drain(..end + 4 + length);
                return Some((head.to_uppercase(), body));
            }
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}
