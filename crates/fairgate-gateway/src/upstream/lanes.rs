//! The connections to a backend that are open and idle.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::failure::FailureKind;
use super::lane::{Answered, Lane, poll_over};

/// How long a connection may be idle: shorter than the time after which the usual servers and balancers close theirs.
const IDLE_MAX: Duration = Duration::from_secs(50);

/// Idle connections, the one used last on top.
pub(super) struct Lanes {
    idle: Mutex<Vec<(Box<Lane>, Instant)>>,
    max: usize,
}

impl Lanes {
    pub(super) fn new(max: usize) -> Self {
        Self { idle: Mutex::default(), max }
    }

    /// An idle connection that is still open.
    pub(super) fn take(&self) -> Option<Box<Lane>> {
        loop {
            let (mut lane, since) = self.lock().pop()?;
            if since.elapsed() < IDLE_MAX && lane.is_fit() {
                return Some(lane);
            }
        }
    }

    /// Takes a connection back, where there is room and it is still open.
    fn put(&self, mut lane: Box<Lane>) {
        if lane.is_fit() {
            let mut idle = self.lock();
            if idle.len() < self.max {
                idle.push((lane, Instant::now()));
            }
        }
    }

    /// The answer with a body that gives its connection back when it has ended.
    pub(super) fn lend(self: &Arc<Self>, answered: Answered) -> Response<LaneBody> {
        let Answered { answer, lane } = answered;
        answer.map(|body| LaneBody { lane: Some(lane), body, home: self.clone() })
    }

    /// Closes what has been idle for long or is closed already.
    pub(super) fn sweep(&self) {
        self.lock().retain_mut(|(lane, since)| since.elapsed() < IDLE_MAX && lane.is_fit());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Box<Lane>, Instant)>> {
        // A list of connections is whole after every step.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer. Dropped before its end, it closes its connection.
pub(crate) struct LaneBody {
    lane: Option<Box<Lane>>,
    body: Incoming,
    home: Arc<Lanes>,
}

impl LaneBody {
    /// The next piece of the body; `None` at its end.
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, FailureKind>>> {
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

    /// Closes the connection: nobody wants the rest.
    pub(crate) fn hang_up(&mut self) {
        self.lane = None;
    }

    /// How many bytes it has, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    fn give_back(&mut self) {
        if let Some(lane) = self.lane.take() {
            self.home.put(lane);
        }
    }
}
