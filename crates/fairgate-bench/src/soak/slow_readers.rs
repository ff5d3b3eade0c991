//! Clients that read slowly, either over HTTP/1.1 with a small receive buffer and pauses, or over
//! HTTP/2 with a window of one byte.

use std::time::{Duration, Instant};

use fairgate_testkit::workload::SeededRng;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::client_results::{EndedAnswer, SoakRequestResult, error_code};
use super::clients::{ANSWER_TIMEOUT, classify_result};
use crate::http::{self as plain, BenchRequest, BenchResponse};

/// Size of a slow HTTP/1.1 client's receive buffer, in bytes. The kernel may use a larger buffer.
const RECEIVE_BUFFER: u32 = 4096;
/// Time for which some HTTP/1.1 clients stop reading. It is longer than `limits.body_timeout` of
/// the soak's gateway.
const STALL: Duration = Duration::from_secs(7);

/// Sends a request and reads single bytes of the answer with pauses. Some clients first stop
/// reading for [`STALL`]. At the end the client either leaves or reads the rest.
pub(super) async fn http1(
    call: &BenchRequest,
    tenant: usize,
    rng: &mut SeededRng,
) -> SoakRequestResult {
    let mut answer = BenchResponse::default();
    let read = read_http1(call, &mut answer, rng).await;
    let id = answer.header("x-fairgate-request-id").map(str::to_owned);
    classify_result(Some(read.map(|()| answer)), id, tenant)
}

async fn read_http1(
    call: &BenchRequest,
    answer: &mut BenchResponse,
    rng: &mut SeededRng,
) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let mut stream = socket.connect(call.addr).await?;
    stream.write_all(&plain::request(call)).await?;
    let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
    let mut piece = [0; 65536];
    // The first byte shows that the answer has begun.
    let n = timeout(ANSWER_TIMEOUT, stream.read(&mut piece[..1])).await.map_err(late)??;
    answer.append(&piece[..n]);
    if rng.percent(20) {
        sleep(STALL).await;
    }
    for _ in 0..rng.count(1..=100) {
        sleep(Duration::from_millis(30)).await;
        let n = timeout(ANSWER_TIMEOUT, stream.read(&mut piece[..1])).await.map_err(late)??;
        answer.append(&piece[..n]);
    }
    if rng.percent(50) {
        return Ok(());
    }
    loop {
        let n = timeout(ANSWER_TIMEOUT, stream.read(&mut piece)).await.map_err(late)??;
        answer.append(&piece[..n]);
        if n == 0 {
            return Ok(());
        }
    }
}

/// Sends a request and reads the answer byte by byte with a window of one byte. The client either
/// leaves in the middle or reads to the end.
pub(super) async fn http2(
    call: &BenchRequest,
    tenant: usize,
    rng: &mut SeededRng,
) -> SoakRequestResult {
    let Ok(stream) = TcpStream::connect(call.addr).await else {
        return SoakRequestResult::ConnectionRefused;
    };
    let builder = http2::Builder::new(TokioExecutor::new()).initial_stream_window_size(1).clone();
    let Ok(Ok((mut sender, connection))) =
        timeout(ANSWER_TIMEOUT, builder.handshake(TokioIo::new(stream))).await
    else {
        return SoakRequestResult::CutBeforeId;
    };
    let connection = tokio::spawn(connection);
    let bytes_max = if rng.percent(30) { rng.count(0..=300) } else { usize::MAX };
    let pause = Duration::from_millis(rng.range(0..=3));
    let result = read_http2(call, &mut sender, tenant, bytes_max, pause).await;
    connection.abort();
    result
}

async fn read_http2(
    call: &BenchRequest,
    sender: &mut http2::SendRequest<Full<Bytes>>,
    tenant: usize,
    bytes_max: usize,
    pause: Duration,
) -> SoakRequestResult {
    let mut request = Request::post(format!("http://{}/v1/chat/completions", call.addr));
    for (name, value) in &call.headers {
        request = request.header(name, value);
    }
    let Ok(request) = request.body(Full::from(call.body.clone())) else {
        return SoakRequestResult::CutBeforeId;
    };
    let Ok(Ok(response)) = timeout(ANSWER_TIMEOUT, sender.send_request(request)).await else {
        return SoakRequestResult::CutBeforeId;
    };
    let (head, mut body) = response.into_parts();
    let id = head.headers.get("x-fairgate-request-id").and_then(|id| id.to_str().ok());
    let Some(id) = id.map(str::to_owned) else { return SoakRequestResult::WithoutId };
    let mut read = Vec::new();
    while read.len() < bytes_max {
        match timeout(ANSWER_TIMEOUT, body.frame()).await {
            Ok(Some(Ok(frame))) => read.extend(frame.into_data().unwrap_or_default()),
            Ok(None) => {
                let (status, code) = (head.status.as_u16(), error_code(&read));
                return SoakRequestResult::End(
                    id,
                    EndedAnswer { tenant, status, code, at: Instant::now() },
                );
            }
            Ok(Some(Err(_))) | Err(_) => break,
        }
        sleep(pause).await;
    }
    SoakRequestResult::CutAfterId(id)
}
