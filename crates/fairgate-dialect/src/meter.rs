//! Reads usage out of an answer as it passes.

mod document;
mod event_lines;
mod json;
mod path;
mod stream;
mod tally;

use bytes::Bytes;

use self::path::Shape;
use self::tally::Tally;
use crate::route::{Framing, Route};

pub(crate) use self::tally::BYTES_PER_TOKEN;

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Of these, how many the upstream had cached.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
}

/// What an answer used, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The tokens.
    pub usage: Usage,
    /// Whether the upstream said so; else what passed was counted, in part or in whole.
    pub reported: bool,
    /// Whether the answer came to its proper end (`[DONE]`, `message_stop`, `response.completed` or `.incomplete`, a
    /// whole JSON body) without an error in it. Nothing is known of an opaque body, so it never does.
    pub complete: bool,
}

/// Reads usage out of an answer as it passes, and what the answer came to where usage is missing or absurd.
///
/// Nothing of the answer is kept. One part may be held back: an event of a chat or completion stream until it is whole
/// (at most 1 MiB), and only where the usage event is to be hidden.
///
/// A report is absurd, and is ignored, if a count in it is negative, broken, or above 10⁹; if more was cached than put
/// in; if the output is more than 262 144 tokens (a model may think unseen) plus 64 for each byte that passed, or less
/// than one token for 512 bytes of text. What passed since the last good report is counted as one token for 4 bytes of
/// text, at least one for each event with text.
pub struct Meter {
    body: Body,
}

enum Body {
    Json(Box<json::Body>),
    Sse(Box<stream::Stream>),
    Opaque { tally: Tally, bytes: u64 },
}

/// What to do with a chunk that was shown to the meter.
#[derive(Debug, Default)]
pub struct Passed {
    /// What goes on to the client at once, in order; usually the very same chunk. Empty where it was hidden or is held.
    pub forward: Vec<Bytes>,
    /// What goes on to the client after the answer is settled: the event that ends it and whatever follows, or the last
    /// part of a JSON body. Empty unless `terminal`.
    pub end: Vec<Bytes>,
    /// Whether the first token of the answer is in it: the first text in a stream, the first byte of all else.
    pub first_token: bool,
    /// Whether the proper end of the answer is in it: settle [`Meter::measured`] before `end` is given out. True at
    /// most once.
    pub terminal: bool,
}

impl Meter {
    /// A meter for one answer. `hide_usage`: the usage event was asked for by us, so the client does not see it, nor the
    /// `"usage":null` that OpenAI then puts into all other events. `input_estimate` is what is counted as input where the upstream does not say, in tokens.
    pub fn new(route: Route, framing: Framing, hide_usage: bool, input_estimate: u64) -> Self {
        let tally = Tally::new(route, input_estimate);
        let shape = Shape { route, events: framing == Framing::Sse };
        let body = match framing {
            Framing::Json => Body::Json(Box::new(json::Body::new(shape, tally))),
            Framing::Sse => Body::Sse(Box::new(stream::Stream::new(shape, hide_usage, tally))),
            Framing::Opaque => Body::Opaque { tally, bytes: 0 },
        };
        Self { body }
    }

    /// Shows it the next chunk.
    pub fn pass(&mut self, chunk: Bytes) -> Passed {
        if chunk.is_empty() {
            return Passed::default();
        }
        match &mut self.body {
            Body::Json(body) => body.pass(&chunk),
            Body::Sse(stream) => stream.pass(&chunk),
            Body::Opaque { bytes, .. } => {
                let first_token = *bytes == 0;
                *bytes += chunk.len() as u64;
                Passed { forward: vec![chunk], first_token, ..Passed::default() }
            }
        }
    }

    /// Whether a stream has said why the model stopped. All of its text has passed then; what it used may be still to come.
    pub fn has_finished(&self) -> bool {
        match &self.body {
            Body::Sse(stream) => stream.has_finished(),
            Body::Json(_) | Body::Opaque { .. } => false,
        }
    }

    /// What was used so far, for watching an answer: cheap, and never less than before. It may stay above what the
    /// upstream reports in the end; settle with [`Meter::measured`].
    pub fn so_far(&self) -> Usage {
        match &self.body {
            Body::Json(body) => body.so_far(),
            Body::Sse(stream) => stream.so_far(),
            Body::Opaque { tally, bytes } => tally.so_far(*bytes),
        }
    }

    /// The id under which the upstream keeps the answer (Responses API only), once it has passed.
    pub fn response_id(&self) -> Option<&str> {
        match &self.body {
            Body::Json(body) => body.id(),
            Body::Sse(stream) => stream.id(),
            Body::Opaque { .. } => None,
        }
    }

    /// Whether the upstream has said how much of the input was cached, none included. Some never say.
    pub fn says_cached(&self) -> bool {
        match &self.body {
            Body::Json(body) => body.says_cached(),
            Body::Sse(stream) => stream.says_cached(),
            Body::Opaque { .. } => false,
        }
    }

    /// What to charge if the answer ends here, properly or because the caller left.
    pub fn measured(&self) -> Measured {
        match &self.body {
            Body::Json(body) => body.measured(),
            Body::Sse(stream) => stream.measured(),
            Body::Opaque { tally, bytes } => tally.measured(*bytes, false),
        }
    }

    /// The body has ended, properly or not: what is left to forward, and what was used. No chunk may follow.
    pub fn finish(&mut self) -> (Vec<Bytes>, Measured) {
        let rest = match &mut self.body {
            Body::Json(body) => {
                body.finish();
                Vec::new()
            }
            Body::Sse(stream) => stream.finish(),
            Body::Opaque { .. } => Vec::new(),
        };
        (rest, self.measured())
    }
}
