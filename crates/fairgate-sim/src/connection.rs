//! One TCP connection, which can be cut at any moment by a reset or by a plain close.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use crate::body::SimBody;

/// Greatest number of concurrent requests on one HTTP/2 connection. The number is large because a proxy may send all
/// its requests on a single connection.
const STREAMS_MAX: u32 = 10_000;

/// Phase of the backend. A change of phase applies to all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimPhase {
    Running,
    /// The backend finishes the requests in flight and accepts no new ones.
    Stopping,
    /// The backend resets all connections at once.
    Killed,
}

/// A switch with which the handler of a request ends the connection on which the request came.
#[derive(Debug, Default)]
pub(crate) struct ConnectionControl {
    reset: AtomicBool,
    cut: Notify,
    last: Notify,
}

impl ConnectionControl {
    /// Ends the connection with a reset (RST). Bytes that were written and not yet sent are lost.
    pub(crate) fn reset(&self) {
        self.reset.store(true, Ordering::Release);
        self.cut.notify_one();
    }

    /// Ends the connection with a plain close (FIN) at once, even in the middle of an answer.
    pub(crate) fn close(&self) {
        self.cut.notify_one();
    }

    /// Ends the connection with a plain close after the current answer, even if the answer's headers said that the
    /// connection stays open.
    pub(crate) fn close_after(&self) {
        self.last.notify_one();
    }
}

/// Serves one connection until it ends or is cut. The client's first bytes select HTTP/1.1 or
/// HTTP/2.
pub(crate) async fn serve<S, F>(stream: TcpStream, mut phase: watch::Receiver<SimPhase>, respond: S)
where
    S: Fn(Request<Incoming>, Arc<ConnectionControl>) -> F,
    F: Future<Output = Response<SimBody>> + Send + 'static,
{
    // Each token must be sent at once, and not only when a segment is full. If this call fails,
    // answers are only slower.
    let _ = stream.set_nodelay(true);
    let fate = Arc::new(ConnectionControl::default());
    let wire = TokioIo::new(ResettableSocket { stream, fate: Arc::clone(&fate) });
    let service = service_fn(|request| {
        let response = respond(request, Arc::clone(&fate));
        async { Ok::<_, Infallible>(response.await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    let mut connection = pin!(builder.serve_connection(wire, service));
    loop {
        let now = *phase.borrow_and_update();
        match now {
            SimPhase::Running => {}
            SimPhase::Stopping => connection.as_mut().graceful_shutdown(),
            SimPhase::Killed => return fate.reset(),
        }
        tokio::select! {
            // The result is ignored, because a client that leaves is no error here.
            _ = connection.as_mut() => return,
            () = fate.cut.notified() => return,
            () = fate.last.notified() => connection.as_mut().graceful_shutdown(),
            changed = phase.changed() => if changed.is_err() { return fate.reset() },
        }
    }
}

/// Socket of a connection. When dropped, it sends a reset instead of a close if [`ConnectionControl::reset()`] was
/// called or the backend was killed.
struct ResettableSocket {
    stream: TcpStream,
    fate: Arc<ConnectionControl>,
}

impl Drop for ResettableSocket {
    fn drop(&mut self) {
        if self.fate.reset.load(Ordering::Acquire) {
            // If this fails, the connection is closed without a reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ResettableSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ResettableSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
