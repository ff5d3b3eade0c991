//! Adds bodies to the error responses that hyper sends by itself, for input that is not HTTP and
//! for heads that are too large. hyper sends them without a body, but the gateway promises clients
//! a code in every error.
//!
//! When all responses of the gateway are written, the next bytes that hyper writes are a response
//! of its own. If the end of the gateway's last response is still in hyper's buffer, this is not
//! certain. The bytes are then left unchanged.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::headless_connections::HeadlessConnection;
use crate::forward::ConnectionLeases;
use crate::forward::DataPlane;
use crate::refusal;

/// Counts the requests of a connection that have begun and ended.
#[derive(Default)]
pub(super) struct ConnectionRequests {
    begun: AtomicU64,
    ended: AtomicU64,
    /// Guard that counts the connection as one without a whole head; dropped when the first request begins.
    headless: Mutex<Option<HeadlessConnection>>,
    /// The client program whose queued leases end when the connection closes.
    pub(super) leases: ConnectionLeases,
    /// Address of the connection's other end; `None` if the connection closed before the address
    /// was read.
    pub(super) peer: Option<IpAddr>,
}

impl ConnectionRequests {
    pub(super) fn new(headless: Option<HeadlessConnection>, peer: Option<IpAddr>) -> Self {
        Self { headless: Mutex::new(headless), peer, ..Self::default() }
    }

    /// Counts a request as begun, and returns its number on this connection, from 1.
    pub(super) fn begin(&self) -> u64 {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        if number == 1 {
            self.headless.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        number
    }

    /// Returns true if any request has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0
    }

    fn is_idle(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
    }
}

/// Body of a response of the gateway. hyper drops the body after it has taken all of it. The drop
/// counts the request as ended.
pub(super) struct TrackedBody<B> {
    pub(super) body: B,
    pub(super) turns: Arc<ConnectionRequests>,
    pub(super) number: u64,
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        self.turns.ended.fetch_max(self.number, Ordering::Relaxed);
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
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

/// A stream that replaces hyper's own error responses by responses with a body.
pub(super) struct HyperErrorBodies<S> {
    stream: S,
    app: Arc<DataPlane>,
    turns: Arc<ConnectionRequests>,
    /// True if all bytes of the gateway's responses have been written to the stream.
    all_written: bool,
    /// The bytes that are written in place of hyper's response.
    replacement: Bytes,
}

impl<S> HyperErrorBodies<S> {
    pub(super) fn new(stream: S, app: Arc<DataPlane>, turns: Arc<ConnectionRequests>) -> Self {
        Self { stream, app, turns, all_written: true, replacement: Bytes::new() }
    }

    /// Returns true if all earlier responses are written, so that another one may follow.
    pub(super) fn is_all_written(&self) -> bool {
        self.all_written && self.turns.is_idle()
    }

    /// Returns true if these bytes are a response of hyper's own. Then sets `replacement` to the
    /// response that is written instead.
    fn replace_own_response(&mut self, bytes: &[u8]) -> bool {
        let quiet = self.is_all_written();
        self.all_written = false;
        let Some(status) = status_of_own_response(bytes).filter(|_| quiet) else { return false };
        let head_max = self.app.config.load().limits.header_bytes_max;
        let refusal = refusal::malformed_request(status, head_max);
        self.app.metrics.count_refusal(refusal.code);
        self.replacement = refusal.raw(&self.app.request_ids.next());
        true
    }
}

impl<S: AsyncWrite + Unpin> HyperErrorBodies<S> {
    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.replacement.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.replacement))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.replacement.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the status of a response that hyper sends by itself; `None` for any other bytes. Such a
/// response has no body and none of the gateway's headers.
fn status_of_own_response(bytes: &[u8]) -> Option<StatusCode> {
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

impl<S: AsyncRead + Unpin> AsyncRead for HyperErrorBodies<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HyperErrorBodies<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.all_written && self.replace_own_response(bytes) {
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
        if self.all_written {
            let mut full = pieces.iter().filter(|piece| !piece.is_empty());
            match (full.next(), full.next()) {
                (Some(only), None) if self.replace_own_response(only) => {
                    return Poll::Ready(Ok(only.len()));
                }
                _ => self.all_written = false,
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
        // hyper flushes after it has written all its bytes.
        self.all_written = self.turns.is_idle();
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
        assert_eq!(status_of_own_response(own), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        let others: [&[u8]; 5] = [
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-request-id: r\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"data: HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        ];
        for other in others {
            assert_eq!(status_of_own_response(other), None);
        }
    }
}
