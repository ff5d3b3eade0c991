//! One connection: TLS, then HTTP/1.1 or HTTP/2, bounded in what a client may hold open or leave undone.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairgate_config::LimitsConfig;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Server;
use super::dispatch::{Door, dispatch};
use super::patient::Patient;
use crate::phase::Stage;
use crate::stream::Stream;

/// The least buffer that hyper works with.
const BUFFER_MIN: usize = 8 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Streams that a client opened and reset at once, beyond which its connection is closed.
const PENDING_RESETS_MAX: usize = 32;
/// How much of a body a client may send ahead on one HTTP/2 stream, and on all of a connection's.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How much of an answer is kept for a client that reads slowly.
const SEND_BUFFER: usize = 64 << 10;
/// How often a silent HTTP/2 client is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Serves a connection to its end.
pub(super) async fn serve(server: &Server, stream: TcpStream, door: Arc<Door>) {
    let limits = server.app.config.load().limits.clone();
    let _ = stream.set_nodelay(true);
    let stream = match server.tls.load_full() {
        None => Stream::Plain(stream),
        Some(tls) => {
            match timeout(limits.header_timeout, TlsAcceptor::from(tls).accept(stream)).await {
                Ok(Ok(secured)) => Stream::Secure(Box::new(secured)),
                Ok(Err(_)) | Err(_) => return server.app.metrics.turned_away("tls_handshake"),
            }
        }
    };
    let begun = Arc::new(AtomicBool::new(false));
    let service = {
        let (app, begun) = (server.app.clone(), begun.clone());
        service_fn(move |request| {
            begun.store(true, Ordering::Relaxed);
            let reply = dispatch(app.clone(), door.clone(), request);
            async move { Ok::<_, Infallible>(reply.await) }
        })
    };
    let http = settings(&limits);
    let io = TokioIo::new(Patient::new(stream, limits.body_timeout));
    let mut connection = pin!(http.serve_connection(io, service));
    let mut phase = server.app.phase.watch();
    let mut opening = pin!(sleep(limits.header_timeout));
    let mut opened = false;
    loop {
        tokio::select! {
            biased;
            // What went wrong on a connection is between its client and HTTP; requests have told their own story.
            _ = connection.as_mut() => return,
            changed = phase.changed() => match (changed, *phase.borrow_and_update()) {
                (Ok(()), Stage::Draining) => connection.as_mut().graceful_shutdown(),
                (Ok(()), Stage::Serving) => {}
                (Ok(()), Stage::Closing) | (Err(_), _) => return,
            },
            // Until the first request is there, hyper's own clock may not run yet.
            () = opening.as_mut(), if !opened => {
                opened = true;
                if !begun.load(Ordering::Relaxed) {
                    return server.app.metrics.turned_away("header_timeout");
                }
            }
        }
    }
}

fn settings(limits: &LimitsConfig) -> auto::Builder<TokioExecutor> {
    let head_max = limits.header_bytes_max;
    let mut http = auto::Builder::new(TokioExecutor::new());
    // A request has at most 100 headers, which is hyper's own limit: stating one makes every request allocate for it.
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(usize::try_from(head_max).unwrap_or(usize::MAX).max(BUFFER_MIN));
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_header_list_size(head_max)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(limits.header_timeout);
    http
}
