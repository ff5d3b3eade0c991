//! Serves one connection: TLS, then HTTP/1.1 or HTTP/2. Limits everything that a client may hold
//! open or leave unfinished.

use std::convert::Infallible;
use std::hint::black_box;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use fairgate_config::LimitsConfig;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::GatewayServer;
use super::dispatch::{ListenerRoutes, dispatch};
use super::headless_connections::HeadlessConnection;
use super::hyper_errors::{ConnectionRequests, HyperErrorBodies, TrackedBody};
use super::write_timeout::WriteTimeout;
use crate::maybe_tls_stream::MaybeTlsStream;
use crate::phase::GatewayPhase;
use crate::refusal::{self, EndCode, RefusalCode};

/// The smallest buffer that hyper accepts, in bytes.
const BUFFER_MIN: usize = 8 << 10;
/// Maximum number of concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Maximum number of streams that a client may have opened and reset. Beyond it, the connection is
/// closed.
const PENDING_RESETS_MAX: usize = 32;
/// Bytes of a request body that a client may send ahead on one HTTP/2 stream. `CONNECTION_WINDOW` is the limit for all
/// streams of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes of an answer that are buffered for a slow HTTP/2 reader, per stream.
const SEND_BUFFER: usize = 64 << 10;
/// Interval of keep-alive pings to an HTTP/2 client.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Interval at which the gateway looks for more bytes while too few have come to identify the HTTP
/// version.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Time for which a refused client's data is still read, up to `LINGER_BYTES_MAX`. A connection that is closed with
/// unread bytes is reset, and the client would lose the response.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// The transport of a connection: TLS or plain TCP.
type Wire = MaybeTlsStream<tokio_rustls::server::TlsStream<TcpStream>>;

/// Serves a connection to its end. Errors of the connection are not logged, because requests record their own end.
pub(super) async fn serve(
    server: &GatewayServer,
    stream: TcpStream,
    headless: Option<HeadlessConnection>,
    routes: Arc<ListenerRoutes>,
) {
    let limits = server.app.config.load().limits.clone();
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok().map(|address| address.ip());
    // A client that sends nothing, or nothing valid, gets as much time as the head of a request.
    let opening = Box::pin(open(server, stream));
    let (stream, is_h2) = match timeout(limits.header_timeout, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => return server.app.metrics.count_refusal(EndCode::ConnectionBroken),
        Err(_) => return server.app.metrics.count_refusal(RefusalCode::HeaderTimeout),
    };
    let turns = Arc::new(ConnectionRequests::new(headless, peer));
    let (app, begins) = (server.app.clone(), turns.clone());
    let service = service_fn(move |request| {
        let (turns, number) = (begins.clone(), begins.begin());
        let reply = dispatch(app.clone(), routes.clone(), turns.clone(), request);
        async move { Ok::<_, Infallible>(reply.await.map(|body| TrackedBody { body, turns, number })) }
    });
    let stream = WriteTimeout::new(stream, limits.body_timeout);
    let phase = server.app.phase.watch();
    if is_h2 {
        let connection = h2_settings(&limits).serve_connection(TokioIo::new(stream), service);
        let patience = limits.header_timeout;
        Box::pin(async {
            let connection = pin!(connection);
            tokio::select! {
                _ = run(connection, phase) => {}
                () = wait_no_request(&turns, patience) => server.app.metrics.count_refusal(RefusalCode::HeaderTimeout),
            }
        })
        .await;
    } else {
        let io = TokioIo::new(HyperErrorBodies::new(stream, server.app.clone(), turns));
        // hyper allocates a write buffer now and a read buffer later. The write buffer would get
        // the memory into which the last connection read, and that memory would stay in use while
        // the request waits. This allocation holds that memory back, so that it becomes the read
        // buffer. With ten thousand waiting requests this saves 26 MB.
        let set_aside = black_box(Vec::<u8>::with_capacity(BUFFER_MIN));
        let mut connection = h1_settings(&limits).serve_connection(io, service);
        drop(set_aside);
        let Some(Err(error)) = run(Pin::new(&mut connection), phase).await else { return };
        if error.is_timeout() || error.is_parse() {
            let parts = connection.into_parts();
            let begun = !parts.read_buf.trim_ascii_start().is_empty();
            let stream = parts.io.into_inner();
            let slow = error.is_timeout() && begun && stream.is_all_written();
            Box::pin(close_refused(server, stream, slow.then_some(limits.header_timeout))).await;
        }
    }
}

/// Closes the connection of a client that was refused before its request had begun. A client whose
/// request head came too slowly gets a 408. A client that has sent nothing since its last response
/// gets no 408, because it would take it for the response to its next request.
async fn close_refused(
    server: &GatewayServer,
    mut stream: HyperErrorBodies<WriteTimeout<Wire>>,
    slow: Option<Duration>,
) {
    let parting = async {
        if let Some(patience) = slow {
            let refusal = refusal::header_timeout(patience);
            server.app.metrics.count_refusal(refusal.code);
            stream.write_all(&refusal.raw(&server.app.request_ids.next())).await?;
            stream.shutdown().await?;
        }
        let (mut scrap, mut left) = (vec![0; BUFFER_MIN], LINGER_BYTES_MAX);
        while left > 0 {
            match stream.read(&mut scrap).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        io::Result::Ok(())
    };
    // It does not matter here whether the client received the response.
    let _ = timeout(LINGER, parting).await;
}

/// Runs a connection, and shuts it down gracefully when the gateway drains. Returns its result, or `None` if it was cut
/// off.
async fn run<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    mut phase: watch::Receiver<GatewayPhase>,
) -> Option<Result<(), C::Error>> {
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Some(ended),
            changed = phase.changed() => match (changed, *phase.borrow_and_update()) {
                (Ok(()), GatewayPhase::Draining) => connection.as_mut().graceful_shutdown(),
                (Ok(()), GatewayPhase::Serving) => {}
                (Ok(()), GatewayPhase::Closing) | (Err(_), _) => return None,
            },
        }
    }
}

/// Returns after `patience` if no request has begun by then; otherwise never returns. It is needed
/// because hyper has a timeout for the heads of HTTP/1, but none for the preface of HTTP/2.
async fn wait_no_request(turns: &ConnectionRequests, patience: Duration) {
    sleep(patience).await;
    if turns.has_begun() {
        std::future::pending::<()>().await;
    }
}

/// Does the TLS handshake if configured, and detects the HTTP version. The boolean is true for HTTP/2.
async fn open(server: &GatewayServer, stream: TcpStream) -> io::Result<(Wire, bool)> {
    match server.tls.load_full() {
        Some(tls) => {
            let secured = TlsAcceptor::from(tls).accept(stream).await?;
            let is_h2 = secured.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok((MaybeTlsStream::Secure(Box::new(secured)), is_h2))
        }
        None => {
            let is_h2 = begins_as_h2(&stream).await?;
            Ok((MaybeTlsStream::Plain(stream), is_h2))
        }
    }
}

/// Returns true if a client begins with HTTP/2's preface, whose method no other protocol uses.
/// Leaves the bytes in the stream, so that HTTP/1 reads them into a fresh buffer of its own.
async fn begins_as_h2(stream: &TcpStream) -> io::Result<bool> {
    const METHOD: &[u8] = b"PRI";
    let mut first = [0; METHOD.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if seen == METHOD.len() || first[..seen] != METHOD[..seen] {
            return Ok(first == METHOD);
        }
        // The peeked bytes keep the socket readable, so waiting for readability would return at
        // once.
        sleep(LOOK_AGAIN).await;
    }
}

/// Returns the settings for HTTP/1. The limit of 100 headers is left to hyper's default, because setting it would make
/// every request allocate memory for the headers.
fn h1_settings(limits: &LimitsConfig) -> http1::Builder {
    let head_max = usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(head_max.max(BUFFER_MIN));
    http
}

fn h2_settings(limits: &LimitsConfig) -> http2::Builder<TokioExecutor> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_header_list_size(limits.header_bytes_max)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(limits.header_timeout);
    http
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        type Headless = Option<HeadlessConnection>;
        fn size<'a, F>(
            _: fn(&'a GatewayServer, TcpStream, Headless, Arc<ListenerRoutes>) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let bytes = size(serve);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
