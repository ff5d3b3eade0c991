//! A reader of the gateway's stream of events, which counts the bytes that it gets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::testbed::ADMIN_TOKEN;

/// Greatest time until the first event, which has all pools.
const FIRST_EVENT_MAX: Duration = Duration::from_secs(30);

/// A connection that reads events until it is dropped.
pub(super) struct EventReader {
    bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl EventReader {
    /// Opens the stream, and waits until the first event, which has all pools, has come.
    pub(super) async fn open(addr: SocketAddr) -> Result<Self> {
        let mut stream = TcpStream::connect(addr).await?;
        let request = format!(
            "GET /api/v1/events HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = vec![0; 12];
        stream.read_exact(&mut head).await?;
        ensure!(head == b"HTTP/1.1 200", "{}", String::from_utf8_lossy(&head));
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = bytes.clone();
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read) = stream.read(&mut buffer).await
                && read > 0
            {
                counted.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
        let reader = Self { bytes, task };
        reader.wait_first_event().await?;
        Ok(reader)
    }

    /// Waits until something more than the head has come, and then nothing for a moment.
    async fn wait_first_event(&self) -> Result<()> {
        let deadline = Instant::now() + FIRST_EVENT_MAX;
        let mut before = 0;
        loop {
            sleep(Duration::from_millis(100)).await;
            let bytes = self.bytes();
            if bytes > 1000 && bytes == before {
                return Ok(());
            }
            before = bytes;
            (Instant::now() < deadline).then_some(()).context("no event in 30 s")?;
        }
    }

    /// Returns the number of bytes that have come, with those of HTTP.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}
