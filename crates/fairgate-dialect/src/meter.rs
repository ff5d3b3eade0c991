//! Reads the usage of an answer while the answer passes through the gateway.

mod answer_shape;
mod document;
mod event_lines;
mod json;
mod stream;
mod tally;

use bytes::Bytes;

use self::answer_shape::AnswerShape;
use self::tally::UsageTally;
use crate::route::{BodyFraming, Route};

pub(crate) use self::tally::BYTES_PER_TOKEN;

/// Tokens that one answer used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Cached part of the input tokens.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
}

/// Input tokens that an upstream wrote to its cache. They count as input, but not as cached input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheWrites {
    /// Number of all tokens written.
    pub total: u64,
    /// Part of `total` that the upstream keeps for an hour.
    pub one_hour: u64,
}

/// Usage of an answer, and whether the upstream reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredUsage {
    /// Tokens that the answer used, as reported by the upstream or as counted here.
    pub usage: TokenUsage,
    /// Input tokens that the upstream reported as written to its cache.
    pub writes: CacheWrites,
    /// True if the upstream reported the usage; false if it was counted here, in part or in whole.
    pub reported: bool,
    /// True if the answer ended properly (`[DONE]`, `message_stop`, `response.completed` or `.incomplete`, a whole JSON
    /// body) without an error in it. Always false for an opaque body, whose end cannot be recognised.
    pub complete: bool,
}

/// Reads usage from an answer as it passes. If the reported usage is missing or absurd, counts the text itself.
///
/// The answer is not stored, with one exception: if the usage event is to be hidden, each event of a chat or completion
/// stream is held back until the event is whole, up to 1 MiB.
///
/// A report is absurd, and is ignored, in these cases: a count in it is negative, malformed, or above 10⁹; more tokens
/// were cached than the whole input; or the number of output tokens does not fit the answer. It must not exceed 262 144
/// (for reasoning that is not sent) plus 64 for each byte that passed, nor be less than one token per 512 bytes of
/// text. Text since the last valid report counts as one token per 4 bytes, and at least one for each event with text.
pub struct UsageMeter {
    body: MeteredBody,
}

enum MeteredBody {
    Json(Box<json::JsonMeter>),
    Sse(Box<stream::StreamMeter>),
    Opaque { tally: UsageTally, bytes: u64 },
}

/// Result of passing one chunk through the meter.
#[derive(Debug, Default)]
pub struct MeteredChunk {
    /// Bytes to send to the client at once, in order; usually the chunk itself. Empty if the chunk was hidden or is
    /// held back.
    pub forward: Vec<Bytes>,
    /// Bytes to send to the client after the settlement: the event that ends the answer and everything after it, or the
    /// last part of a JSON body. Empty if `terminal` is false.
    pub end: Vec<Bytes>,
    /// True if the chunk has the first token of the answer, which is the first text of a stream or the first byte of
    /// any other body.
    pub first_token: bool,
    /// Number of events of a stream with text, tool calls or reasoning that the chunk completes; 0 for any other body.
    pub output_events: u32,
    /// True if the chunk has the proper end of the answer. The caller must then settle [`UsageMeter::measured`] before
    /// sending `end`. True for at most one chunk of an answer.
    pub terminal: bool,
}

impl UsageMeter {
    /// Creates a meter for one answer. Set `hide_usage` if the gateway asked for the usage event. The client then gets
    /// neither that event nor the `"usage":null` that OpenAI puts into all other events. `input_estimate` is the number
    /// of input tokens to count if the upstream does not report it.
    pub fn new(route: Route, framing: BodyFraming, hide_usage: bool, input_estimate: u64) -> Self {
        let tally = UsageTally::new(route, input_estimate);
        let shape = AnswerShape { route, events: framing == BodyFraming::Sse };
        let body = match framing {
            BodyFraming::Json => MeteredBody::Json(Box::new(json::JsonMeter::new(shape, tally))),
            BodyFraming::Sse => {
                MeteredBody::Sse(Box::new(stream::StreamMeter::new(shape, hide_usage, tally)))
            }
            BodyFraming::Opaque => MeteredBody::Opaque { tally, bytes: 0 },
        };
        Self { body }
    }

    /// Reads the next chunk of the answer, and returns the bytes to send to the client.
    pub fn pass(&mut self, chunk: Bytes) -> MeteredChunk {
        if chunk.is_empty() {
            return MeteredChunk::default();
        }
        match &mut self.body {
            MeteredBody::Json(body) => body.pass(&chunk),
            MeteredBody::Sse(stream) => stream.pass(&chunk),
            MeteredBody::Opaque { bytes, .. } => {
                let first_token = *bytes == 0;
                *bytes += chunk.len() as u64;
                MeteredChunk { forward: vec![chunk], first_token, ..MeteredChunk::default() }
            }
        }
    }

    /// Returns true once a stream has given the reason why the model stopped. All text of the answer has passed then,
    /// but the usage may still follow.
    pub fn has_finished(&self) -> bool {
        match &self.body {
            MeteredBody::Sse(stream) => stream.has_finished(),
            MeteredBody::Json(_) | MeteredBody::Opaque { .. } => false,
        }
    }

    /// Returns the usage so far, for monitoring. The result is never less than an earlier result, so it may be more
    /// than the final usage. Use [`UsageMeter::measured`] to settle a request.
    pub fn so_far(&self) -> TokenUsage {
        match &self.body {
            MeteredBody::Json(body) => body.so_far(),
            MeteredBody::Sse(stream) => stream.so_far(),
            MeteredBody::Opaque { tally, bytes } => tally.so_far(*bytes),
        }
    }

    /// Returns the id under which the upstream stores the answer (Responses API only); `None` until the id has passed.
    pub fn response_id(&self) -> Option<&str> {
        match &self.body {
            MeteredBody::Json(body) => body.id(),
            MeteredBody::Sse(stream) => stream.id(),
            MeteredBody::Opaque { .. } => None,
        }
    }

    /// Returns the ids of the answer's output items that have passed (Responses API only).
    pub fn item_ids(&self) -> &[Box<str>] {
        match &self.body {
            MeteredBody::Json(body) => body.item_ids(),
            MeteredBody::Sse(stream) => stream.item_ids(),
            MeteredBody::Opaque { .. } => &[],
        }
    }

    /// Returns true once the upstream has reported the cached part of the input, even if this part is 0. Some upstreams
    /// never report it.
    pub fn reports_cached(&self) -> bool {
        match &self.body {
            MeteredBody::Json(body) => body.reports_cached(),
            MeteredBody::Sse(stream) => stream.reports_cached(),
            MeteredBody::Opaque { .. } => false,
        }
    }

    /// Returns the usage to charge if the answer ends here, whether properly or because the client left.
    pub fn measured(&self) -> MeasuredUsage {
        match &self.body {
            MeteredBody::Json(body) => body.measured(),
            MeteredBody::Sse(stream) => stream.measured(),
            MeteredBody::Opaque { tally, bytes } => tally.measured(*bytes, false),
        }
    }

    /// Ends the answer, properly or not. Returns the bytes that are left to send and the usage. No chunk may follow.
    pub fn finish(&mut self) -> (Vec<Bytes>, MeasuredUsage) {
        let rest = match &mut self.body {
            MeteredBody::Json(body) => {
                body.finish();
                Vec::new()
            }
            MeteredBody::Sse(stream) => stream.finish(),
            MeteredBody::Opaque { .. } => Vec::new(),
        };
        (rest, self.measured())
    }
}
