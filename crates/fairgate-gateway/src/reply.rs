//! What goes back to a client: a head, and a body of one of a few kinds.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};

use crate::forward::Streamed;

/// A response of the gateway.
pub(crate) type Reply = Response<ReplyBody>;

/// The body of a response.
pub(crate) enum ReplyBody {
    /// One piece, or nothing.
    Whole(Option<Bytes>),
    /// An upstream's answer, as it passes.
    Answer(Streamed),
    /// From the control plane.
    Control(axum::body::Body),
}

/// An answer that broke off: the connection must not look as if it had ended well.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct BrokenOff;

impl From<Infallible> for BrokenOff {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            Self::Whole(piece) => Poll::Ready(piece.take().map(|piece| Ok(Frame::data(piece)))),
            Self::Answer(answer) => answer.poll_frame(cx),
            Self::Control(body) => Pin::new(body).poll_frame(cx).map_err(|_| BrokenOff),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(piece) => piece.is_none(),
            Self::Answer(answer) => answer.has_ended(),
            Self::Control(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(piece) => {
                SizeHint::with_exact(piece.as_ref().map_or(0, |piece| length(piece.len())))
            }
            // Its Content-Length, where it has one, is in its head.
            Self::Answer(_) => SizeHint::default(),
            Self::Control(body) => body.size_hint(),
        }
    }
}

/// A body in one piece.
pub(crate) fn whole(bytes: Bytes) -> ReplyBody {
    ReplyBody::Whole((!bytes.is_empty()).then_some(bytes))
}

/// A response that is one JSON document.
pub(crate) fn json(status: http::StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(whole(body));
    *reply.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, json);
    reply
}

/// A length in bytes as HTTP counts it.
pub(crate) fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
