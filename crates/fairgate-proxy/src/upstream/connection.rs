//! One connection to an upstream, which is polled by the request that uses it.
//!
//! hyper requires that a connection is polled in addition to the request on it. Usually a separate task does that, and
//! every answer then costs two task switches. Here the request's own future, and later the body of the answer, polls
//! the connection, so that the bytes of an answer pass from socket to socket in one task. An idle connection is not
//! polled. If the server has closed it, this is noticed before the next request is sent on it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest};

use super::connect::UpstreamTransport;
use crate::upstream_failure::FailureKind;

/// One HTTP/1.1 connection to an upstream.
pub(super) struct UpstreamConnection {
    sender: SendRequest<Full<Bytes>>,
    /// The connection; `None` once it has closed.
    link: Option<Connection<UpstreamTransport, Full<Bytes>>>,
    /// Number of requests that were sent.
    requests: u64,
}

/// Error of a request that got no answer.
pub(super) struct UpstreamSendError {
    pub(super) kind: FailureKind,
    /// The request, if certainly no byte of it was sent.
    pub(super) unsent: Option<Box<Request<Full<Bytes>>>>,
}

/// Head and body of an answer, and the connection that the body comes over.
pub(super) struct ConnectionAnswer {
    pub(super) answer: Response<Incoming>,
    pub(super) connection: Box<UpstreamConnection>,
}

impl UpstreamConnection {
    pub(super) fn new(
        sender: SendRequest<Full<Bytes>>,
        link: Connection<UpstreamTransport, Full<Bytes>>,
    ) -> Box<Self> {
        Box::new(Self { sender, link: Some(link), requests: 0 })
    }

    /// Polls the connection, so that it reads and writes what it can.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = self.link.as_mut()
            && Pin::new(link).poll(cx).is_ready()
        {
            self.link = None;
        }
    }

    /// Returns true if the connection can take another request. Checks the socket.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.link.is_some() && !self.sender.is_closed()
    }

    /// Returns true if more than one request was sent on the connection.
    pub(super) fn is_reused(&self) -> bool {
        self.requests > 1
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        mut self: Box<Self>,
        request: Request<Full<Bytes>>,
    ) -> Result<ConnectionAnswer, UpstreamSendError> {
        // A kept connection was polled when it was taken, and is ready.
        let ready = poll_fn(|cx| match self.sender.poll_ready(cx) {
            Poll::Pending => {
                self.drive(cx);
                self.sender.poll_ready(cx)
            }
            ready => ready,
        });
        if ready.await.is_err() {
            return Err(UpstreamSendError {
                kind: FailureKind::Reset,
                unsent: Some(Box::new(request)),
            });
        }
        self.requests += 1;
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            self.drive(cx);
            answer.as_mut().poll(cx)
        });
        match answered.await {
            Ok(answer) => Ok(ConnectionAnswer { answer, connection: self }),
            Err(mut error) => Err(UpstreamSendError {
                kind: FailureKind::of(error.error()),
                unsent: error.take_message().map(Box::new),
            }),
        }
    }
}

/// Polls a body and its connection. The body is polled first, then the connection, which may read more of the body, and
/// then the body again.
pub(super) fn poll_with_connection<T>(
    connection: Option<&mut UpstreamConnection>,
    cx: &mut Context<'_>,
    mut body: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    match (body(cx), connection) {
        (Poll::Pending, Some(connection)) => {
            connection.drive(cx);
            body(cx)
        }
        (polled, _) => polled,
    }
}
