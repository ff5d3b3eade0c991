//! Words for what hyper refuses by itself: what is no HTTP, and heads that are too large. Its own answers have no body,
//! and clients are promised a code.
//!
//! hyper has nothing to write between two answers of ours, so what it writes then is such an answer. One that cannot be
//! told apart for certain, since the end of ours is still in hyper's buffer, is left as it is.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::app::App;
use crate::refusal;

/// Which of a connection's requests are answered.
#[derive(Debug, Default)]
pub(super) struct Turns {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Turns {
    /// A request has come; its number.
    pub(super) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether any request has come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0
    }

    fn is_idle(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }
}

/// The body of an answer of ours. hyper drops it when it has taken all of it.
pub(super) struct Ours<B> {
    pub(super) body: B,
    pub(super) turns: Arc<Turns>,
    pub(super) number: u64,
}

impl<B> Drop for Ours<B> {
    fn drop(&mut self) {
        self.turns.ended.fetch_max(self.number, Ordering::Relaxed);
    }
}

impl<B: Body + Unpin> Body for Ours<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream on which hyper's own answers get a body.
pub(super) struct Voice<S> {
    stream: S,
    app: Arc<App>,
    turns: Arc<Turns>,
    /// Everything of ours is written.
    quiet: bool,
    /// What is written in the place of hyper's answer.
    instead: Bytes,
}

impl<S> Voice<S> {
    pub(super) fn new(stream: S, app: Arc<App>, turns: Arc<Turns>) -> Self {
        Self { stream, app, turns, quiet: true, instead: Bytes::new() }
    }

    /// Whether all that was said before is written: only then can something be said after it.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet && self.turns.is_idle()
    }

    /// Whether these bytes are an answer of hyper's own; then another one is put in its place.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        let quiet = self.is_quiet();
        self.quiet = false;
        let Some(status) = automatic(bytes).filter(|_| quiet) else { return false };
        let head_max = self.app.config.load().limits.header_bytes_max;
        let refusal = refusal::unreadable(status, head_max);
        self.app.metrics.turned_away(refusal.problem.code);
        self.instead = refusal.raw(&self.app.ids.next());
        true
    }
}

impl<S: AsyncWrite + Unpin> Voice<S> {
    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.instead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.instead.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

/// The status of an answer that hyper gives by itself: it has no body, and nothing of ours in its head.
fn automatic(bytes: &[u8]) -> Option<StatusCode> {
    let head = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let (version, status) = lines.next()?.split_once(' ')?;
    let status = StatusCode::from_bytes(status.get(..3)?.as_bytes()).ok()?;
    let mut empty = false;
    for line in lines {
        match line.split_once(": ")? {
            ("content-length", "0") => empty = true,
            ("connection" | "date", _) => {}
            _ => return None,
        }
    }
    (empty && version.starts_with("HTTP/1.") && status.is_client_error()).then_some(status)
}

impl<S: AsyncRead + Unpin> AsyncRead for Voice<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Voice<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.quiet && self.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.quiet {
            let mut full = pieces.iter().filter(|piece| !piece.is_empty());
            match (full.next(), full.next()) {
                (Some(only), None) if self.replaces(only) => {
                    return Poll::Ready(Ok(only.len()));
                }
                _ => self.quiet = false,
            }
        }
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // hyper flushes when it has written all that it had.
        self.quiet = self.turns.is_idle();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hypers_own_answers_are_taken_for_such() {
        let own = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
            content-length: 0\r\ndate: Sun, 15 Nov 2026 12:00:00 GMT\r\n\r\n";
        assert_eq!(automatic(own), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        let others: [&[u8]; 5] = [
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-request-id: r\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"data: HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        ];
        for other in others {
            assert_eq!(automatic(other), None);
        }
    }
}
