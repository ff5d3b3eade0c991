//! Idle open connections to an upstream.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::connection::{ConnectionAnswer, UpstreamConnection, poll_with_connection};
use super::decode::{BodyDecoder, ContentCoding, CorruptBodyError, UnknownCodingError};
use crate::upstream_failure::FailureKind;

/// Maximum idle time of a connection, unless its server states a shorter one. Common load balancers
/// close idle connections after a longer time.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Maximum idle time of a connection without TLS whose server states no time. uvicorn, which serves
/// vLLM and SGLang, closes idle connections after 5 s and does not say so. A request that is sent
/// at the moment of the close is lost, and cannot be sent again without the risk that it runs
/// twice.
const PLAIN_UNSTATED_IDLE: Duration = Duration::from_secs(4);
/// Time by which the gateway closes an idle connection before its server would. A request that is
/// sent at the last moment could arrive after the close.
const MARGIN: Duration = Duration::from_secs(1);
/// Time for which no idle connections are kept after the server has closed one too early. It doubles with each early
/// close, up to [`DISTRUST_MAX`], and starts again from this value once a kept connection was used.
const DISTRUST_FIRST: Duration = Duration::from_secs(10);
const DISTRUST_MAX: Duration = Duration::from_secs(640);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Idle connections to one upstream.
///
/// A server may close a connection earlier than it promised. The gateway learns of the close only
/// afterwards, and a request that is sent just before is lost. So after an early close, no
/// connections are kept for a while. Connections that break during a request do not count as early
/// closes: a tenant's requests can cause that, and all tenants would pay for new connections.
pub(super) struct IdleConnections {
    state: Mutex<IdleState>,
    max: usize,
    /// Maximum idle time of a connection whose server states none.
    unstated_idle: Duration,
}

#[derive(Default)]
struct IdleState {
    /// Connections that are not in use, the most recently used last.
    connections: Vec<IdleConnection>,
    /// Time until which no connections are kept; `None` if the server never closed one too early.
    distrusted_until: Option<Instant>,
    /// Length of the last time without kept connections; 0 if a kept connection was used since then.
    distrust: Duration,
}

impl IdleState {
    /// Records that the server closed a connection earlier than it promised.
    fn record_early_close(&mut self, now: Instant) {
        self.connections.clear();
        self.distrust = (self.distrust * 2).clamp(DISTRUST_FIRST, DISTRUST_MAX);
        self.distrusted_until = Some(now + self.distrust);
    }
}

/// A connection that is not in use.
struct IdleConnection {
    connection: Box<UpstreamConnection>,
    /// Time after which the connection is too old to be used.
    until: Instant,
}

/// Time for which a server keeps a connection open, from the header `Keep-Alive` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepAlive {
    idle: Duration,
    /// True if another request may follow on the connection.
    more: bool,
}

impl KeepAlive {
    /// Reads the header `Keep-Alive` of an answer. If it states no time, the connection may be idle for `unstated`.
    fn of(headers: &HeaderMap, unstated: Duration) -> Self {
        let closes = |value: &HeaderValue| {
            let options = value.to_str().unwrap_or_default().split(',');
            options.map(str::trim).any(|option| option.eq_ignore_ascii_case("close"))
        };
        let mut more = !headers.get_all(CONNECTION).iter().any(closes);
        let mut stated = None::<Duration>;
        let values = headers.get_all(KEEP_ALIVE).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in values.flat_map(|v| v.split(',')).filter_map(|p| p.split_once('=')) {
            let Ok(number) = value.trim().trim_matches('"').parse::<u64>() else { continue };
            match name.trim().to_ascii_lowercase().as_str() {
                "timeout" => {
                    let idle = Duration::from_secs(number).saturating_sub(MARGIN);
                    stated = Some(stated.unwrap_or(IDLE_MAX).min(idle));
                }
                "max" => more &= number > 0,
                _ => {}
            }
        }
        Self { idle: stated.unwrap_or(unstated), more }
    }
}

impl IdleConnections {
    /// Creates an empty set of at most `max` connections. A connection whose server states no idle time is kept for
    /// `unstated_idle`.
    pub(super) fn new(max: usize, unstated_idle: Duration) -> Self {
        Self { state: Mutex::default(), max, unstated_idle }
    }

    /// Returns the maximum idle time of a connection to `url` whose server states none. Servers
    /// with TLS are mostly behind load balancers, which keep idle connections for a minute or
    /// longer.
    pub(super) fn unstated_idle_time(url: &Uri) -> Duration {
        if url.scheme() == Some(&Scheme::HTTPS) { IDLE_MAX } else { PLAIN_UNSTATED_IDLE }
    }

    /// Returns an idle connection that is still open; `None` if there is none.
    pub(super) fn take(&self) -> Option<Box<UpstreamConnection>> {
        loop {
            let IdleConnection { mut connection, until } = self.lock().connections.pop()?;
            let now = Instant::now();
            match (now < until, connection.is_usable()) {
                (true, true) => return Some(connection),
                (true, false) => self.lock().record_early_close(now),
                (false, _) => {}
            }
        }
    }

    /// Takes a connection back, if there is room and it is still open; otherwise the connection is closed.
    fn put(&self, mut connection: Box<UpstreamConnection>, kept: KeepAlive) {
        if !kept.more || kept.idle.is_zero() {
            return;
        }
        let (now, is_open) = (Instant::now(), connection.is_usable());
        let mut state = self.lock();
        if connection.is_reused() {
            state.distrust = Duration::ZERO;
        }
        if !is_open {
            state.record_early_close(now);
        } else if state.distrusted_until.is_none_or(|until| until <= now)
            && state.connections.len() < self.max
        {
            state.connections.push(IdleConnection { connection, until: now + kept.idle });
        }
    }

    /// Returns the answer with a body that gives its connection back to the idle ones when the body has ended.
    pub(super) fn attach_connection(
        self: &Arc<Self>,
        answered: ConnectionAnswer,
    ) -> Response<UpstreamBody> {
        let ConnectionAnswer { answer, connection } = answered;
        let (home, kept) = (self.clone(), KeepAlive::of(answer.headers(), self.unstated_idle));
        answer.map(|body| UpstreamBody {
            connection: Some(connection),
            body,
            idle_connections: home,
            kept,
            decoder: None,
            put_back: None,
        })
    }

    /// Closes connections that have been idle too long or that the server has closed.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        state.connections.retain(|idle| now < idle.until);
        let before = state.connections.len();
        state.connections.retain_mut(|idle| idle.connection.is_usable());
        if state.connections.len() < before {
            state.record_early_close(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, IdleState> {
        // A list of connections is consistent after every step, so poison is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Body of an answer. If the body is dropped before its end, its connection is closed.
pub(crate) struct UpstreamBody {
    connection: Option<Box<UpstreamConnection>>,
    body: Incoming,
    idle_connections: Arc<IdleConnections>,
    kept: KeepAlive,
    /// Decoder, if the upstream compressed the body.
    decoder: Option<Box<BodyDecoder>>,
    /// Bytes that were read already and are returned again by the next poll.
    put_back: Option<Bytes>,
}

/// Sets up decoding if the headers announce a compressed body, and removes that announcement.
pub(super) fn decoded(
    answer: Response<UpstreamBody>,
) -> Result<Response<UpstreamBody>, UnknownCodingError> {
    let coding = ContentCoding::announced(answer.headers())?;
    let (mut head, mut body) = answer.into_parts();
    head.headers.remove(CONTENT_ENCODING);
    if let Some(coding) = coding {
        head.headers.remove(CONTENT_LENGTH);
        body.decoder = Some(Box::new(BodyDecoder::new(coding)));
    }
    Ok(Response::from_parts(head, body))
}

impl UpstreamBody {
    /// Polls for the next piece of the body, decoded; `None` at the end of the body.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, FailureKind>>> {
        if let Some(bytes) = self.put_back.take() {
            return Poll::Ready(Some(Ok(bytes)));
        }
        if self.decoder.is_none() {
            return self.poll_coded(cx);
        }
        let decoded = ready!(self.poll_decoded(cx));
        if matches!(decoded, Some(Err(_))) {
            self.close_connection();
        }
        Poll::Ready(decoded)
    }

    /// Polls for the next piece of a compressed body, decoded.
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FailureKind>>> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(None) };
            match decoder.piece() {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) => {}
                Err(CorruptBodyError) => return Poll::Ready(Some(Err(FailureKind::Incomplete))),
            }
            if decoder.has_ended() {
                return Poll::Ready(None);
            }
            let coded = ready!(self.poll_coded(cx));
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(None) };
            let fed = match coded {
                Some(Ok(chunk)) => decoder.feed(chunk),
                Some(Err(kind)) => return Poll::Ready(Some(Err(kind))),
                None => decoder.end(),
            };
            if fed.is_err() {
                return Poll::Ready(Some(Err(FailureKind::Incomplete)));
            }
        }
    }

    /// Polls for the next piece of the body as it arrives on the connection, before any decoding.
    fn poll_coded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FailureKind>>> {
        loop {
            let body = &mut self.body;
            let frame = poll_with_connection(self.connection.as_deref_mut(), cx, |cx| {
                Pin::new(&mut *body).poll_frame(cx)
            });
            return match frame {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => {
                    self.give_back();
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Err(_))) => {
                    self.connection = None;
                    Poll::Ready(Some(Err(FailureKind::Reset)))
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        if self.body.is_end_stream() {
                            self.give_back();
                        }
                        Poll::Ready(Some(Ok(bytes)))
                    }
                    // Trailers are not passed on to the client.
                    Err(_) => continue,
                },
            };
        }
    }

    /// Puts bytes back, to be read again before the rest.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.put_back = Some(bytes).filter(|bytes| !bytes.is_empty());
    }

    /// Closes the connection, because the rest of the body is not needed.
    pub(crate) fn close_connection(&mut self) {
        self.connection = None;
    }

    /// Returns the number of bytes that are left of the body; `None` if it is not known.
    pub(crate) fn length(&self) -> Option<u64> {
        let put_back = self.put_back.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let length = self.body.size_hint().exact().filter(|_| self.decoder.is_none());
        length.map(|rest| rest.saturating_add(put_back))
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle_connections.put(connection, self.kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(value: &'static str) -> KeepAlive {
        let mut headers = HeaderMap::new();
        headers.insert(KEEP_ALIVE, HeaderValue::from_static(value));
        KeepAlive::of(&headers, PLAIN_UNSTATED_IDLE)
    }

    #[test]
    fn a_server_that_closes_connections_early_is_asked_to_keep_one_less_and_less_often() {
        let (mut state, now) = (IdleState::default(), Instant::now());
        let mut seconds = Vec::new();
        for _ in 0..8 {
            state.record_early_close(now);
            seconds.push((state.distrusted_until.unwrap() - now).as_secs());
        }
        assert_eq!(seconds, [10, 20, 40, 80, 160, 320, 640, 640]);
    }

    #[test]
    fn a_server_says_how_long_it_keeps_a_connection() {
        let seconds = Duration::from_secs;
        assert_eq!(
            KeepAlive::of(&HeaderMap::new(), IDLE_MAX),
            KeepAlive { idle: IDLE_MAX, more: true }
        );
        assert_eq!(kept("timeout=5, max=100"), KeepAlive { idle: seconds(4), more: true });
        assert_eq!(kept("max=0;timeout=5"), KeepAlive { idle: PLAIN_UNSTATED_IDLE, more: true });
        assert_eq!(kept("Timeout=\"3\",MAX=0"), KeepAlive { idle: seconds(2), more: false });
        assert_eq!(kept("timeout=1"), KeepAlive { idle: Duration::ZERO, more: true });
        assert_eq!(kept("timeout=600"), KeepAlive { idle: IDLE_MAX, more: true });
        assert_eq!(
            kept("soon, timeout=, max=-1"),
            KeepAlive { idle: PLAIN_UNSTATED_IDLE, more: true }
        );
    }
}
