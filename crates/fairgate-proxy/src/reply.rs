//! Responses to clients: a head, and a body of one of three kinds.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;

/// An HTTP response of the gateway.
pub(crate) type Reply = Response<ReplyBody>;

/// Body of a response: one piece, a streamed answer of an upstream, or a response of the admin API.
pub(crate) enum ReplyBody {
    /// A body in one piece; `None` once it was sent, or if it is empty.
    Whole(Option<Bytes>),
    /// A response of an upstream, streamed as it arrives.
    Answer(Box<dyn StreamedBody>),
    /// A response of the admin API.
    Control(axum::body::Body),
}

/// A body that is sent piece by piece while it arrives.
pub(crate) trait StreamedBody: Send {
    /// Polls for the next piece.
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenReplyError>>>;

    /// Returns true if no piece is left.
    fn has_ended(&self) -> bool;
}

/// Error of a body that broke off. The connection is then closed without a proper end, so that the
/// client does not take the response for complete.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
pub(crate) struct BrokenReplyError;

impl From<Infallible> for BrokenReplyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BrokenReplyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenReplyError>>> {
        match self.get_mut() {
            Self::Whole(piece) => Poll::Ready(piece.take().map(|piece| Ok(Frame::data(piece)))),
            Self::Answer(answer) => answer.poll_frame(cx),
            Self::Control(body) => Pin::new(body).poll_frame(cx).map_err(|_| BrokenReplyError),
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
                SizeHint::with_exact(piece.as_ref().map_or(0, |piece| content_length(piece.len())))
            }
            // If the length is known, the head already has a Content-Length.
            Self::Answer(_) => SizeHint::default(),
            Self::Control(body) => body.size_hint(),
        }
    }
}

/// Returns a body in one piece.
pub(crate) fn whole_body(bytes: Bytes) -> ReplyBody {
    ReplyBody::Whole((!bytes.is_empty()).then_some(bytes))
}

/// Returns a response with one JSON document as its body.
pub(crate) fn json(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(whole_body(body));
    *reply.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, json);
    reply
}

/// Sets the reason phrase of a status that no standard defines. Without it hyper would write
/// `<none>`, which some clients show to people.
pub(crate) fn set_reason_phrase(reply: &mut Reply) {
    let status = reply.status();
    if status.canonical_reason().is_none() {
        let phrase = ReasonPhrase::from_static(reason_phrase(status).as_bytes());
        reply.extensions_mut().insert(phrase);
    }
}

/// Returns the reason phrase of a status: that of the standard, or the gateway's own for a status that no standard
/// defines.
pub(crate) fn reason_phrase(status: StatusCode) -> &'static str {
    match (status.canonical_reason(), status.as_u16()) {
        (Some(phrase), _) => phrase,
        // Anthropic's status for a service without free capacity.
        (None, 529) => "Overloaded",
        (None, 400..=499) => "Client Error",
        (None, 500..=599) => "Server Error",
        (None, _) => "Other",
    }
}

/// Converts a length in bytes to the type of `Content-Length`.
pub(crate) fn content_length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
