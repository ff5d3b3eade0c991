//! One connection: TLS, then HTTP/1.1 or HTTP/2, bounded in what a client may hold open or leave undone.

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

use super::Server;
use super::dispatch::{Door, dispatch};
use super::patient::Patient;
use super::voice::{Ours, Turns, Voice};
use crate::phase::Stage;
use crate::refusal;
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
/// How often to look for more where too little has come to tell the version.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How long, and how much of, what a client still sends is read after it was refused. A connection that is closed over
/// unread bytes is reset, and the client loses the answer.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// What a connection runs over.
type Wire = Stream<tokio_rustls::server::TlsStream<TcpStream>>;

/// Serves a connection to its end. What goes wrong on it is between its client and HTTP; requests have told their own
/// story.
pub(super) async fn serve(server: &Server, stream: TcpStream, door: Arc<Door>) {
    let limits = server.app.config.load().limits.clone();
    let _ = stream.set_nodelay(true);
    // Who says nothing, or nothing that makes sense, is not waited for longer than for a request's head.
    let opening = Box::pin(open(server, stream));
    let (stream, is_h2) = match timeout(limits.header_timeout, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => return server.app.metrics.turned_away("connection_broken"),
        Err(_) => return server.app.metrics.turned_away("header_timeout"),
    };
    let turns = Arc::new(Turns::default());
    let (app, begins) = (server.app.clone(), turns.clone());
    let service = service_fn(move |request| {
        let (turns, number) = (begins.clone(), begins.begin());
        let reply = dispatch(app.clone(), door.clone(), request);
        async move { Ok::<_, Infallible>(reply.await.map(|body| Ours { body, turns, number })) }
    });
    let stream = Patient::new(stream, limits.body_timeout);
    let phase = server.app.phase.watch();
    if is_h2 {
        let connection = h2_settings(&limits).serve_connection(TokioIo::new(stream), service);
        let patience = limits.header_timeout;
        Box::pin(async {
            let connection = pin!(connection);
            tokio::select! {
                _ = run(connection, phase) => {}
                () = silence(&turns, patience) => server.app.metrics.turned_away("header_timeout"),
            }
        })
        .await;
    } else {
        let io = TokioIo::new(Voice::new(stream, server.app.clone(), turns));
        // hyper makes a buffer for what it will write, now, and one for what it will read, later. Memory that the last
        // connection read into would become the former and stay resident while the request waits, for nothing; set aside,
        // it becomes the latter. With ten thousand who wait that is 26 MB.
        let set_aside = black_box(Vec::<u8>::with_capacity(BUFFER_MIN));
        let mut connection = h1_settings(&limits).serve_connection(io, service);
        drop(set_aside);
        let Some(Err(error)) = run(Pin::new(&mut connection), phase).await else { return };
        if error.is_timeout() || error.is_parse() {
            let parts = connection.into_parts();
            let begun = !parts.read_buf.trim_ascii_start().is_empty();
            let stream = parts.io.into_inner();
            let slow = error.is_timeout() && begun && stream.is_quiet();
            Box::pin(part(server, stream, slow.then_some(limits.header_timeout))).await;
        }
    }
}

/// Parts with a client that was refused before its request had begun. Whose head came too slowly is told so; whoever had
/// said nothing since its last answer is not, as it would take that for the answer to what it says next.
async fn part(server: &Server, mut stream: Voice<Patient<Wire>>, slow: Option<Duration>) {
    let parting = async {
        if let Some(patience) = slow {
            let refusal = refusal::header_timeout(patience);
            server.app.metrics.turned_away(refusal.problem.code);
            stream.write_all(&refusal.raw(&server.app.ids.next())).await?;
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
    // Whether it has heard is its own affair.
    let _ = timeout(LINGER, parting).await;
}

/// Runs a connection, and closes it in good order when the gateway drains. Says how it ended, where it was not cut.
async fn run<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    mut phase: watch::Receiver<Stage>,
) -> Option<Result<(), C::Error>> {
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return Some(ended),
            changed = phase.changed() => match (changed, *phase.borrow_and_update()) {
                (Ok(()), Stage::Draining) => connection.as_mut().graceful_shutdown(),
                (Ok(()), Stage::Serving) => {}
                (Ok(()), Stage::Closing) | (Err(_), _) => return None,
            },
        }
    }
}

/// Ends where no request begins in time. hyper watches over heads of HTTP/1, but not over HTTP/2's preface.
async fn silence(turns: &Turns, patience: Duration) {
    sleep(patience).await;
    if turns.has_begun() {
        std::future::pending::<()>().await;
    }
}

/// Whatever comes before HTTP, and which version of it comes.
async fn open(server: &Server, stream: TcpStream) -> io::Result<(Wire, bool)> {
    match server.tls.load_full() {
        Some(tls) => {
            let secured = TlsAcceptor::from(tls).accept(stream).await?;
            let is_h2 = secured.get_ref().1.alpn_protocol() == Some(b"h2");
            Ok((Stream::Secure(Box::new(secured)), is_h2))
        }
        None => {
            let is_h2 = begins_as_h2(&stream).await?;
            Ok((Stream::Plain(stream), is_h2))
        }
    }
}

/// Whether a client begins with HTTP/2's preface, whose method is no other's. Nothing is taken from the stream, so that
/// HTTP/1 finds its first bytes in a fresh buffer of its own.
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
        // What is there stays readable: only time tells whether more comes.
        sleep(LOOK_AGAIN).await;
    }
}

/// A request has at most 100 headers, which is hyper's own limit: stating one makes every request allocate for it.
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
        fn size<'a, F>(_: fn(&'a Server, TcpStream, Arc<Door>) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = size(serve);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
