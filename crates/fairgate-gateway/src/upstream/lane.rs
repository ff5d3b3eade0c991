//! One connection to a backend, driven by whoever uses it.
//!
//! hyper wants somebody to poll a connection beside the request on it. Usually that is a task of its own, and every
//! answer then costs two changes of task. Here the request's own future, and later its body, polls the connection: the
//! bytes of an answer go from socket to socket in one task. An idle connection is polled by nobody; that the other side
//! has closed it is noticed when it is taken up again, before anything is sent.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest};

use super::connect::Wire;
use super::failure::FailureKind;

/// A connection.
pub(super) struct Lane {
    sender: SendRequest<Full<Bytes>>,
    /// Absent once it has closed.
    link: Option<Connection<Wire, Full<Bytes>>>,
}

/// A request that got no answer.
pub(super) struct SendError {
    pub(super) kind: FailureKind,
    /// The request, where certainly no byte of it was sent.
    pub(super) unsent: Option<Box<Request<Full<Bytes>>>>,
}

/// The head of an answer, the connection that its body comes over, and the body.
pub(super) struct Answered {
    pub(super) answer: Response<Incoming>,
    pub(super) lane: Box<Lane>,
}

impl Lane {
    pub(super) fn new(
        sender: SendRequest<Full<Bytes>>,
        link: Connection<Wire, Full<Bytes>>,
    ) -> Box<Self> {
        Box::new(Self { sender, link: Some(link) })
    }

    /// Lets the connection do what it can.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(link) = self.link.as_mut()
            && Pin::new(link).poll(cx).is_ready()
        {
            self.link = None;
        }
    }

    /// Whether another request may go over it. Looks at the socket.
    pub(super) fn is_fit(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.link.is_some() && !self.sender.is_closed()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        mut self: Box<Self>,
        request: Request<Full<Bytes>>,
    ) -> Result<Answered, SendError> {
        let ready = poll_fn(|cx| {
            self.drive(cx);
            self.sender.poll_ready(cx)
        });
        if ready.await.is_err() {
            return Err(SendError { kind: FailureKind::Reset, unsent: Some(Box::new(request)) });
        }
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            self.drive(cx);
            answer.as_mut().poll(cx)
        });
        match answered.await {
            Ok(answer) => Ok(Answered { answer, lane: self }),
            Err(mut error) => Err(SendError {
                kind: FailureKind::of(error.error()),
                unsent: error.take_message().map(Box::new),
            }),
        }
    }
}

/// Polls a body over its connection: the body says what it wants, the connection reads, the body has it.
pub(super) fn poll_over<T>(
    lane: Option<&mut Lane>,
    cx: &mut Context<'_>,
    mut body: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    match (body(cx), lane) {
        (Poll::Pending, Some(lane)) => {
            lane.drive(cx);
            body(cx)
        }
        (polled, _) => polled,
    }
}
