//! The connections to a backend that are open and idle.

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

use super::decode::{Coding, Corrupt, Decoder, UnknownCoding};
use super::failure::FailureKind;
use super::lane::{Answered, Lane, poll_over};

/// How long a connection may be idle, where its server states nothing else: shorter than the time after which the usual
/// servers and balancers close theirs.
const IDLE_MAX: Duration = Duration::from_secs(50);
/// How much sooner than its server says a connection is given up: what is sent at the last moment may come too late.
const MARGIN: Duration = Duration::from_secs(1);
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Idle connections, the one used last on top.
pub(super) struct Lanes {
    idle: Mutex<Vec<Idle>>,
    max: usize,
}

/// A connection that nobody uses.
struct Idle {
    lane: Box<Lane>,
    /// When it is too old to be used.
    until: Instant,
}

/// How long a server keeps a connection, as the answer's `Keep-Alive` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeepAlive {
    idle: Duration,
    /// Whether another request may follow.
    more: bool,
}

impl KeepAlive {
    /// What the head of an answer says; without a word of it, what is usual.
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

impl Lanes {
    pub(super) fn new(max: usize) -> Self {
        Self { idle: Mutex::default(), max }
    }

    /// An idle connection that is still open.
    pub(super) fn take(&self) -> Option<Box<Lane>> {
        loop {
            let Idle { mut lane, until } = self.lock().pop()?;
            if Instant::now() < until && lane.is_fit() {
                return Some(lane);
            }
        }
    }

    /// Takes a connection back, where there is room and it is still open.
    fn put(&self, mut lane: Box<Lane>, kept: KeepAlive) {
        if kept.more && !kept.idle.is_zero() && lane.is_fit() {
            let mut idle = self.lock();
            if idle.len() < self.max {
                idle.push(Idle { lane, until: Instant::now() + kept.idle });
            }
        }
    }

    /// The answer with a body that gives its connection back when it has ended.
    pub(super) fn lend(self: &Arc<Self>, answered: Answered) -> Response<LaneBody> {
        let Answered { answer, lane } = answered;
        let (home, kept) = (self.clone(), KeepAlive::of(answer.headers()));
        answer.map(|body| LaneBody {
            lane: Some(lane),
            body,
            home,
            kept,
            decoder: None,
            put_back: None,
        })
    }

    /// Closes what has been idle for long or is closed already.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.lock().retain_mut(|idle| now < idle.until && idle.lane.is_fit());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        // A list of connections is whole after every step.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer. Dropped before its end, it closes its connection.
pub(crate) struct LaneBody {
    lane: Option<Box<Lane>>,
    body: Incoming,
    home: Arc<Lanes>,
    kept: KeepAlive,
    /// Where the upstream compressed it.
    decoder: Option<Box<Decoder>>,
    /// What was read of it already and is to be read again.
    put_back: Option<Bytes>,
}

/// Has the body decoded where its head says that it is compressed; the head then says so no more.
pub(super) fn decoded(answer: Response<LaneBody>) -> Result<Response<LaneBody>, UnknownCoding> {
    let coding = Coding::announced(answer.headers())?;
    let (mut head, mut body) = answer.into_parts();
    head.headers.remove(CONTENT_ENCODING);
    if let Some(coding) = coding {
        head.headers.remove(CONTENT_LENGTH);
        body.decoder = Some(Box::new(Decoder::new(coding)));
    }
    Ok(Response::from_parts(head, body))
}

impl LaneBody {
    /// The next piece of the body; `None` at its end.
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
            self.hang_up();
        }
        Poll::Ready(decoded)
    }

    /// The next piece of a compressed body.
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FailureKind>>> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(None) };
            match decoder.piece() {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) => {}
                Err(Corrupt) => return Poll::Ready(Some(Err(FailureKind::Incomplete))),
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

    /// The next piece of the body as it comes over the connection.
    fn poll_coded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FailureKind>>> {
        loop {
            let body = &mut self.body;
            let frame =
                poll_over(self.lane.as_deref_mut(), cx, |cx| Pin::new(&mut *body).poll_frame(cx));
            return match frame {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => {
                    self.give_back();
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Err(_))) => {
                    self.lane = None;
                    Poll::Ready(Some(Err(FailureKind::Reset)))
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        if self.body.is_end_stream() {
                            self.give_back();
                        }
                        Poll::Ready(Some(Ok(bytes)))
                    }
                    // Trailers are between the upstream and us.
                    Err(_) => continue,
                },
            };
        }
    }

    /// What was read of it is to be read again, before the rest.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.put_back = Some(bytes).filter(|bytes| !bytes.is_empty());
    }

    /// Closes the connection: nobody wants the rest.
    pub(crate) fn hang_up(&mut self) {
        self.lane = None;
    }

    /// How many bytes it has, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        let put_back = self.put_back.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let length = self.body.size_hint().exact().filter(|_| self.decoder.is_none());
        length.map(|rest| rest.saturating_add(put_back))
    }

    fn give_back(&mut self) {
        if let Some(lane) = self.lane.take() {
            self.home.put(lane, self.kept);
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
