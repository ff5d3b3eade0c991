//! One TCP connection: it can be cut at any moment, by a reset or by a plain close.

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

use crate::body::Body;

/// How many requests one HTTP/2 connection may carry at once: a proxy may well send all of its load over one.
const STREAMS_MAX: u32 = 10_000;

/// What all connections obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Finish what flies, take nothing new.
    Stopping,
    /// Reset everything at once.
    Killed,
}

/// How one connection shall end, told from within a request.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    reset: AtomicBool,
    cut: Notify,
    last: Notify,
}

impl Fate {
    /// Ends the connection with a reset (RST). What was written and not yet sent is lost.
    pub(crate) fn reset(&self) {
        self.reset.store(true, Ordering::Release);
        self.cut.notify_one();
    }

    /// Ends the connection with a plain close (FIN), whatever is still owed.
    pub(crate) fn close(&self) {
        self.cut.notify_one();
    }

    /// Ends the connection with a plain close when the answer that is under way is out, whatever its head announced.
    pub(crate) fn close_after(&self) {
        self.last.notify_one();
    }
}

/// Serves one connection, HTTP/1.1 or HTTP/2 as the client begins it, until it ends or is cut.
pub(crate) async fn serve<S, F>(stream: TcpStream, mut phase: watch::Receiver<Phase>, respond: S)
where
    S: Fn(Request<Incoming>, Arc<Fate>) -> F,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    // A token must leave when it is made, not when a segment is full. Where that cannot be set, it is only slower.
    let _ = stream.set_nodelay(true);
    let fate = Arc::new(Fate::default());
    let wire = TokioIo::new(Wire { stream, fate: Arc::clone(&fate) });
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
            Phase::Running => {}
            Phase::Stopping => connection.as_mut().graceful_shutdown(),
            Phase::Killed => return fate.reset(),
        }
        tokio::select! {
            // How it ended is the client's business: a client that leaves is no error here.
            _ = connection.as_mut() => return,
            () = fate.cut.notified() => return,
            () = fate.last.notified() => connection.as_mut().graceful_shutdown(),
            changed = phase.changed() => if changed.is_err() { return fate.reset() },
        }
    }
}

/// The socket, which resets instead of closing where its fate says so.
struct Wire {
    stream: TcpStream,
    fate: Arc<Fate>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.fate.reset.load(Ordering::Acquire) {
            // Without it the connection closes instead: still cut, only more politely.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
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
