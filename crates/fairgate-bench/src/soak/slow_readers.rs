//! Clients that read slowly: over HTTP/1.1 with a small buffer and pauses, over HTTP/2 with a window of one byte.

use std::time::{Duration, Instant};

use fairgate_testkit::workload::Rng;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::clients::{PATIENCE, sight};
use super::seen::{Ended, Sight, error_code};
use crate::http::{self as plain, Answer, Ask};

/// How much the kernel keeps for a client that does not read, in bytes; it takes at least this much.
const RECEIVE_BUFFER: u32 = 4096;
/// The longest time in which such a client reads nothing: longer than `limits.body_timeout` of the soak's gateway.
const STALL: Duration = Duration::from_secs(7);

/// Reads a byte now and then, or nothing for a while; then leaves, or reads the rest.
pub(super) async fn http1(ask: &Ask, tenant: usize, rng: &mut Rng) -> Sight {
    let mut answer = Answer::default();
    let read = read_http1(ask, &mut answer, rng).await;
    let id = answer.header("x-fairgate-request-id").map(str::to_owned);
    sight(Some(read.map(|()| answer)), id, tenant)
}

async fn read_http1(ask: &Ask, answer: &mut Answer, rng: &mut Rng) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let mut stream = socket.connect(ask.addr).await?;
    stream.write_all(&plain::request(ask)).await?;
    let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
    let mut piece = [0; 65536];
    // The first byte: from here on there is something to read.
    let n = timeout(PATIENCE, stream.read(&mut piece[..1])).await.map_err(late)??;
    answer.take(&piece[..n]);
    if rng.percent(20) {
        sleep(STALL).await;
    }
    for _ in 0..rng.count(1..=100) {
        sleep(Duration::from_millis(30)).await;
        let n = timeout(PATIENCE, stream.read(&mut piece[..1])).await.map_err(late)??;
        answer.take(&piece[..n]);
    }
    if rng.percent(50) {
        return Ok(());
    }
    loop {
        let n = timeout(PATIENCE, stream.read(&mut piece)).await.map_err(late)??;
        answer.take(&piece[..n]);
        if n == 0 {
            return Ok(());
        }
    }
}

/// Reads byte by byte, each of which must be asked for; leaves in the middle, or reads to the end.
pub(super) async fn http2(ask: &Ask, tenant: usize, rng: &mut Rng) -> Sight {
    let Ok(stream) = TcpStream::connect(ask.addr).await else { return Sight::Nobody };
    let builder = http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(1).clone();
    let Ok(Ok((mut sender, connection))) =
        timeout(PATIENCE, builder.handshake(TokioIo::new(stream))).await
    else {
        return Sight::Unknown;
    };
    let connection = tokio::spawn(connection);
    let bytes_max = if rng.percent(30) { rng.count(0..=300) } else { usize::MAX };
    let pause = Duration::from_millis(rng.range(0..=3));
    let sight = read_http2(ask, &mut sender, tenant, bytes_max, pause).await;
    connection.abort();
    sight
}

async fn read_http2(
    ask: &Ask,
    sender: &mut http2::SendRequest<Full<Bytes>>,
    tenant: usize,
    bytes_max: usize,
    pause: Duration,
) -> Sight {
    let mut request = Request::post(format!("http://{}/v1/chat/completions", ask.addr));
    for (name, value) in &ask.headers {
        request = request.header(name, value);
    }
    let Ok(request) = request.body(Full::from(ask.body.clone())) else { return Sight::Unknown };
    let Ok(Ok(response)) = timeout(PATIENCE, sender.send_request(request)).await else {
        return Sight::Unknown;
    };
    let (head, mut body) = response.into_parts();
    let id = head.headers.get("x-fairgate-request-id").and_then(|id| id.to_str().ok());
    let Some(id) = id.map(str::to_owned) else { return Sight::Nameless };
    let mut read = Vec::new();
    while read.len() < bytes_max {
        match timeout(PATIENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => read.extend(frame.into_data().unwrap_or_default()),
            Ok(None) => {
                let (status, code) = (head.status.as_u16(), error_code(&read));
                return Sight::End(id, Ended { tenant, status, code, at: Instant::now() });
            }
            Ok(Some(Err(_))) | Err(_) => break,
        }
        sleep(pause).await;
    }
    Sight::Cut(id)
}
