//! What OpenAI's and Anthropic's APIs say: how to read a request without changing a byte that need not change, how to
//! read usage out of an answer as it passes, how an error looks to each, and what a request will cost. Pure: no I/O,
//! no clock.

use bytes::Bytes;

/// An API dialect: decides the shape of errors and the header of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

/// A route that goes to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the paths say it")]
pub enum Route {
    ChatCompletions,
    Completions,
    Embeddings,
    Responses,
    Messages,
    CountTokens,
}

impl Route {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
    ];

    /// Its path.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
        }
    }

    /// Whose dialect it is.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            _ => Dialect::OpenAi,
        }
    }
}

/// What the gateway must know of a request's body; the bytes stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The model, as the caller named it.
    pub model: String,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The most output tokens that the caller allows (max_tokens, max_completion_tokens or max_output_tokens).
    pub max_tokens: Option<u64>,
    /// How many answers (`n`, default 1; `best_of` where larger).
    pub choices: u64,
    /// Whether the caller asked for usage in a stream itself.
    pub usage_asked: bool,
    /// Bytes of text in the body that a model would read, roughly: the body's size less base64 images and the like.
    pub input_bytes: u64,
    // private: where in the body the changeable fields are
}

/// A body that cannot be served: says which parameter, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadAsk {
    /// A stable code: `invalid_json`, `missing_model`, `invalid_value`, …
    pub code: &'static str,
    /// The parameter, where one is to blame.
    pub param: Option<&'static str>,
    /// What is wrong, for the caller. Never quotes the prompt.
    pub message: String,
}

/// What a rule changes in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// The upstream's name for the model.
    pub model: Option<&'a str>,
    /// A cap on output tokens: lowers what the caller allows, or sets it where it states none.
    pub max_tokens: Option<u64>,
    /// Asks for usage in a stream (`stream_options.include_usage`), where the dialect needs asking.
    pub ask_usage: bool,
}

#[allow(clippy::todo, unused_variables)]
impl Ask {
    /// Reads what is needed, in one pass over the body.
    pub fn read(route: Route, body: &[u8]) -> Result<Self, BadAsk> {
        todo!()
    }

    /// The body with these changes and every other byte as it was; the very same [`Bytes`] where nothing changes.
    pub fn changed(&self, route: Route, body: Bytes, changes: Changes<'_>) -> Bytes {
        todo!()
    }

    /// Whether the dialect of this route must be asked for usage in a stream.
    pub fn must_ask_usage(&self, route: Route) -> bool {
        todo!()
    }
}

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
    /// Whether the upstream said so; else what passed was counted.
    pub reported: bool,
    /// Whether the answer came to its proper end ([DONE], message_stop, response.completed, a whole JSON body).
    pub complete: bool,
}

/// How an answer's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document.
    Json,
    /// Server-sent events.
    Sse,
    /// Something else: only bytes are counted.
    Opaque,
}

/// Reads usage out of an answer as it passes. Holds at most a bounded part of it (one event, or a JSON body's tail).
pub struct Meter {
    // the helper who builds this crate decides
}

/// What to do with a chunk that was shown to the meter.
#[derive(Debug, Default)]
pub struct Passed {
    /// What goes on to the client, in order; usually the very same chunk. Empty where it was hidden or is held.
    pub forward: Vec<Bytes>,
    /// Whether the first token of the answer is in it.
    pub first_token: bool,
    /// Whether the proper end of the answer is in it: settle before it is given out.
    pub terminal: bool,
}

#[allow(clippy::todo, unused_variables, missing_docs)]
impl Meter {
    /// A meter for one answer. `hide_usage`: the usage event was asked for by us, so the client does not see it.
    /// `input_estimate` is what is counted as input where the upstream does not say.
    pub fn new(route: Route, framing: Framing, hide_usage: bool, input_estimate: u64) -> Self {
        todo!()
    }

    /// Shows it the next chunk.
    pub fn pass(&mut self, chunk: Bytes) -> Passed {
        todo!()
    }

    /// What was used so far: what would be charged if the caller left now.
    pub fn so_far(&self) -> Usage {
        todo!()
    }

    /// The body has ended, properly or not: what is left to forward, and what was used.
    pub fn finish(&mut self) -> (Vec<Bytes>, Measured) {
        todo!()
    }
}

/// An error as a caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: http::StatusCode,
    /// The stable code, such as `queue_full`.
    pub code: &'static str,
    /// What happened, what it concerned and what to do.
    pub message: String,
    /// The parameter, where one is to blame.
    pub param: Option<&'static str>,
}

#[allow(clippy::todo, unused_variables)]
impl Problem {
    /// The JSON body in the caller's dialect. OpenAI: `{"error":{"message","type","param","code"}}`; Anthropic:
    /// `{"type":"error","error":{"type","message","code"},"request_id"}` with its own type for each status.
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        todo!()
    }

    /// The error as an event of a stream that has begun, in the caller's dialect.
    pub fn event(&self, route: Route, request_id: &str) -> Bytes {
        todo!()
    }
}

pub mod estimate {
    //! What a request will cost, and what it did: bytes per token learned per model, output learned per tenant and model.
    //! Integer arithmetic; bounded memory.

    use super::{Ask, Usage};

    /// Weights in thousandths of a charged token per token.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Weights {
        /// For input.
        pub input_milli: u64,
        /// For cached input.
        pub cached_milli: u64,
        /// For output.
        pub output_milli: u64,
    }

    #[allow(clippy::todo, unused_variables)]
    impl Weights {
        /// What this usage is charged: at least 1 where anything was used; rounded up.
        pub fn charge(&self, usage: Usage) -> u64 {
            todo!()
        }
    }

    /// What a request is expected to use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Expected {
        /// Input tokens.
        pub input: u64,
        /// Output tokens likely: what this tenant and model used lately, at most what the caller allows.
        pub output: u64,
        /// Output tokens at most: what the caller allows, times choices; `None` where it sets no bound.
        pub output_max: Option<u64>,
    }

    /// Learns from what comes back. One per pool; `&self`, safe to share between tasks, cheap.
    pub struct Estimator {
        // bytes per token by model; recent output by (tenant, model); both bounded
    }

    #[allow(clippy::todo, unused_variables, missing_docs)]
    impl Estimator {
        pub fn new(output_default: u64, names_max: usize) -> Self {
            todo!()
        }

        /// What to expect. `exact_input` replaces the estimate from bytes, where a tokenizer has counted.
        pub fn expect(
            &self,
            tenant: &str,
            model: &str,
            ask: &Ask,
            exact_input: Option<u64>,
        ) -> Expected {
            todo!()
        }

        /// What really came, where the upstream reported it.
        pub fn learn(&self, tenant: &str, model: &str, ask: &Ask, reported: Usage) {
            todo!()
        }
    }

    /// Counts tokens exactly, with OpenAI's tables; loaded once, at the first use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub enum Table {
        O200k,
        Cl100k,
    }

    #[allow(clippy::todo, unused_variables)]
    impl Table {
        /// The tokens of all text that a model would read in this body.
        pub fn count(self, route: super::Route, body: &[u8]) -> u64 {
            todo!()
        }
    }
}
