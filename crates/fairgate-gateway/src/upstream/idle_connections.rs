//! Idle open connections to an upstream.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, Response};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::connection::{ConnectionAnswer, UpstreamConnection, poll_with_connection};
use super::decode::{BodyDecoder, ContentCoding, CorruptBodyError, UnknownCodingError};
use super::failure::FailureKind;

/// Longest idle time of a connection, unless its server states a shorter one. This is shorter than the time after which
/// common servers and load balancers close idle connections.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// Time by which an idle connection is closed before its server would close it, because a request that is sent at the
/// last moment may arrive too late.
const MARGIN: Duration = Duration::from_secs(1);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Idle connections to one upstream, the most recently used last.
pub(super) struct IdleConnections {
    idle: Mutex<Vec<IdleConnection>>,
    max: usize,
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
    /// Reads the header `Keep-Alive` of an answer. Without it, the connection may be idle for [`IDLE_MAX`].
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut kept = Self { idle: IDLE_MAX, more: true };
        let values = headers.get_all(KEEP_ALIVE).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in values.flat_map(|v| v.split(',')).filter_map(|p| p.split_once('=')) {
            let Ok(number) = value.trim().trim_matches('"').parse::<u64>() else { continue };
            match name.trim().to_ascii_lowercase().as_str() {
                "timeout" => {
                    let stated = Duration::from_secs(number).saturating_sub(MARGIN);
                    kept.idle = kept.idle.min(stated);
                }
                "max" => kept.more = number > 0,
                _ => {}
            }
        }
        kept
    }
}

impl IdleConnections {
    pub(super) fn new(max: usize) -> Self {
        Self { idle: Mutex::default(), max }
    }

    /// Returns an idle connection that is still open; `None` if there is none.
    pub(super) fn take(&self) -> Option<Box<UpstreamConnection>> {
        loop {
            let IdleConnection { connection: mut lane, until } = self.lock().pop()?;
            if Instant::now() < until && lane.is_usable() {
                return Some(lane);
            }
        }
    }

    /// Takes a connection back, if there is room and it is still open; otherwise the connection is closed.
    fn put(&self, mut lane: Box<UpstreamConnection>, kept: KeepAlive) {
        if kept.more && !kept.idle.is_zero() && lane.is_usable() {
            let mut idle = self.lock();
            if idle.len() < self.max {
                idle.push(IdleConnection { connection: lane, until: Instant::now() + kept.idle });
            }
        }
    }

    /// Returns the answer with a body that gives its connection back to the idle ones when the body has ended.
    pub(super) fn attach_connection(
        self: &Arc<Self>,
        answered: ConnectionAnswer,
    ) -> Response<UpstreamBody> {
        let ConnectionAnswer { answer, connection: lane } = answered;
        let (home, kept) = (self.clone(), KeepAlive::of(answer.headers()));
        answer.map(|body| UpstreamBody {
            connection: Some(lane),
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
        self.lock().retain_mut(|idle| now < idle.until && idle.connection.is_usable());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<IdleConnection>> {
        // A list of connections is consistent after every step, so poison is harmless.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Bytes that were already read and are to be read again.
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
    /// Polls for the next piece of the body; `None` at its end.
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

    /// Polls for the next piece of the body as it comes over the connection, before any decoding.
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
        if let Some(lane) = self.connection.take() {
            self.idle_connections.put(lane, self.kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(value: &'static str) -> KeepAlive {
        let mut headers = HeaderMap::new();
        headers.insert(KEEP_ALIVE, http::HeaderValue::from_static(value));
        KeepAlive::of(&headers)
    }

    #[test]
    fn a_server_says_how_long_it_keeps_a_connection() {
        let seconds = Duration::from_secs;
        assert_eq!(KeepAlive::of(&HeaderMap::new()), KeepAlive { idle: IDLE_MAX, more: true });
        assert_eq!(kept("timeout=5, max=100"), KeepAlive { idle: seconds(4), more: true });
        assert_eq!(kept("max=0;timeout=5"), KeepAlive { idle: IDLE_MAX, more: true });
        assert_eq!(kept("Timeout=\"3\",MAX=0"), KeepAlive { idle: seconds(2), more: false });
        assert_eq!(kept("timeout=1"), KeepAlive { idle: Duration::ZERO, more: true });
        assert_eq!(kept("timeout=600"), KeepAlive { idle: IDLE_MAX, more: true });
        assert_eq!(kept("soon, timeout=, max=-1"), KeepAlive { idle: IDLE_MAX, more: true });
    }
}
