//! Describes where an answer has the text that a model wrote and the usage that the upstream reports.
//!
//! Each container in an answer has a meaning, an [`AnswerPlace`], which follows from the meaning of
//! the container around it and from its key. A container of no interest has the meaning
//! [`AnswerPlace::Elsewhere`] and is skipped.

use crate::route::Route;

/// Meaning of an object or array in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerPlace {
    /// The root of the document itself.
    Top,
    /// The object `response` or `message` in an event, which is a whole answer. Only its usage and
    /// its id are used, because its text came in earlier events.
    Answer,
    /// The object `usage`, with counts of tokens.
    Usage,
    /// The object `prompt_tokens_details` or `input_tokens_details` in the usage.
    Details,
    /// The list of output items of a response in an event. Only the ids of the items are used.
    EventItems,
    /// An output item in an event. Only its id is used.
    EventItem,
    /// The list of output items of a response.
    OutputItems,
    /// An output item of a response, in which known keys hold text.
    OutputItem,
    /// The object `cache_creation` in the usage of Anthropic's API. It has the tokens written to
    /// the cache, by the time for which they are kept.
    CacheCreation,
    /// The list `choices` of an answer.
    Choices,
    /// A model's output, in which known keys hold text.
    Content,
    /// A tool's input that came as JSON. All values in it count as text that a model wrote.
    Written,
    /// A container that is skipped, with everything inside.
    Elsewhere,
}

/// Meaning of a value that is not a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerLeaf {
    /// Text that a model wrote.
    Text,
    /// The type of an event.
    Kind,
    /// A value that is an error unless it is null.
    Error,
    /// The reason why the model stopped, after which no text follows.
    Finish,
    /// The id under which the upstream stores the answer.
    Id,
    /// The id of an output item.
    ItemId,
    /// A number of tokens.
    Tokens(TokenKind),
    /// A value of no interest.
    Other,
}

/// The kind of tokens that a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Input,
    Output,
    /// Cached input tokens, which the upstream also counts as input tokens.
    Cached,
    /// Input tokens that Anthropic read from its cache. Its input tokens do not include them.
    CacheRead,
    /// Input tokens that Anthropic wrote to its cache. Its input tokens do not include them.
    CacheWritten,
    /// Part of the tokens written to Anthropic's cache that is kept for five minutes.
    CacheWritten5m,
    /// Part of the tokens written to Anthropic's cache that is kept for an hour.
    CacheWritten1h,
}

/// Meaning of the value under a key. If the value is a container, `place` applies; otherwise `leaf`
/// applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueMeaning {
    pub(super) place: AnswerPlace,
    pub(super) leaf: AnswerLeaf,
}

impl ValueMeaning {
    const NOTHING: Self = Self { place: AnswerPlace::Elsewhere, leaf: AnswerLeaf::Other };
    /// Meaning of the outermost value of an answer's JSON document.
    pub(super) const ROOT: Self = Self { place: AnswerPlace::Top, leaf: AnswerLeaf::Other };

    fn place(place: AnswerPlace) -> Self {
        Self { place, leaf: AnswerLeaf::Other }
    }

    fn leaf(leaf: AnswerLeaf) -> Self {
        Self { place: AnswerPlace::Elsewhere, leaf }
    }
}

/// Structure of the JSON documents of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerShape {
    pub(super) route: Route,
    /// True if the documents are events of a stream, and false if each is a whole answer.
    pub(super) events: bool,
}

impl AnswerShape {
    /// Returns the meaning of the value under `key`, in an object with the meaning `place`.
    pub(super) fn member(self, place: AnswerPlace, key: &[u8]) -> ValueMeaning {
        match place {
            AnswerPlace::Top => self.top(key),
            AnswerPlace::Answer if key == b"usage" => ValueMeaning::place(AnswerPlace::Usage),
            AnswerPlace::Answer if key == b"id" => ValueMeaning::leaf(AnswerLeaf::Id),
            AnswerPlace::Answer if key == b"output" => ValueMeaning::place(AnswerPlace::EventItems),
            AnswerPlace::EventItem | AnswerPlace::OutputItem if key == b"id" => {
                ValueMeaning::leaf(AnswerLeaf::ItemId)
            }
            AnswerPlace::OutputItem => self.content(key),
            AnswerPlace::Usage => self.usage(key),
            AnswerPlace::Details if key == b"cached_tokens" => {
                ValueMeaning::leaf(AnswerLeaf::Tokens(TokenKind::Cached))
            }
            AnswerPlace::CacheCreation => match key {
                b"ephemeral_5m_input_tokens" => {
                    ValueMeaning::leaf(AnswerLeaf::Tokens(TokenKind::CacheWritten5m))
                }
                b"ephemeral_1h_input_tokens" => {
                    ValueMeaning::leaf(AnswerLeaf::Tokens(TokenKind::CacheWritten1h))
                }
                _ => ValueMeaning::NOTHING,
            },
            AnswerPlace::Content => self.content(key),
            AnswerPlace::Written => {
                ValueMeaning { place: AnswerPlace::Written, leaf: AnswerLeaf::Text }
            }
            _ => ValueMeaning::NOTHING,
        }
    }

    /// Returns the meaning of the elements of an array with the meaning `place`.
    pub(super) fn element(self, place: AnswerPlace) -> ValueMeaning {
        match place {
            AnswerPlace::EventItems => ValueMeaning::place(AnswerPlace::EventItem),
            AnswerPlace::OutputItems => ValueMeaning::place(AnswerPlace::OutputItem),
            AnswerPlace::Choices | AnswerPlace::Content => {
                ValueMeaning::place(AnswerPlace::Content)
            }
            AnswerPlace::Written => {
                ValueMeaning { place: AnswerPlace::Written, leaf: AnswerLeaf::Text }
            }
            _ => ValueMeaning::NOTHING,
        }
    }

    fn top(self, key: &[u8]) -> ValueMeaning {
        use Route::{ChatCompletions, Completions, CountTokens, Messages, Responses};
        match (key, self.route, self.events) {
            (b"error", ..) => ValueMeaning::leaf(AnswerLeaf::Error),
            (b"type", ..) => ValueMeaning::leaf(AnswerLeaf::Kind),
            // The token count is the whole answer. It counts as the request's input.
            (b"input_tokens", CountTokens, false) => {
                ValueMeaning::leaf(AnswerLeaf::Tokens(TokenKind::Input))
            }
            (_, CountTokens, _) => ValueMeaning::NOTHING,
            (b"usage", ..) => ValueMeaning::place(AnswerPlace::Usage),
            (b"choices", ChatCompletions | Completions, _) => {
                ValueMeaning::place(AnswerPlace::Choices)
            }
            (b"response", Responses, true) => ValueMeaning::place(AnswerPlace::Answer),
            (b"delta", Responses, true) => ValueMeaning::leaf(AnswerLeaf::Text),
            (b"id", Responses, false) => ValueMeaning::leaf(AnswerLeaf::Id),
            (b"output", Responses, false) => ValueMeaning::place(AnswerPlace::OutputItems),
            (b"item", Responses, true) => ValueMeaning::place(AnswerPlace::EventItem),
            (b"message", Messages, true) => ValueMeaning::place(AnswerPlace::Answer),
            (b"delta" | b"content_block", Messages, true) => {
                ValueMeaning::place(AnswerPlace::Content)
            }
            (b"content", Messages, false) => ValueMeaning::place(AnswerPlace::Content),
            _ => ValueMeaning::NOTHING,
        }
    }

    fn usage(self, key: &[u8]) -> ValueMeaning {
        let count = match key {
            b"prompt_tokens" | b"input_tokens" => TokenKind::Input,
            b"completion_tokens" | b"output_tokens" => TokenKind::Output,
            b"cache_read_input_tokens" if self.route == Route::Messages => TokenKind::CacheRead,
            b"cache_creation_input_tokens" if self.route == Route::Messages => {
                TokenKind::CacheWritten
            }
            b"cache_creation" if self.route == Route::Messages => {
                return ValueMeaning::place(AnswerPlace::CacheCreation);
            }
            b"prompt_tokens_details" | b"input_tokens_details" => {
                return ValueMeaning::place(AnswerPlace::Details);
            }
            _ => return ValueMeaning::NOTHING,
        };
        ValueMeaning::leaf(AnswerLeaf::Tokens(count))
    }

    /// Returns the meaning of the value under a key in a model's output. The values of only a few keys are text; ids,
    /// roles, reasons, signatures and indexes are not.
    fn content(self, key: &[u8]) -> ValueMeaning {
        match key {
            b"content" | b"text" | b"arguments" | b"reasoning" | b"reasoning_content"
            | b"thinking" | b"partial_json" | b"refusal" | b"transcript" | b"name" => {
                ValueMeaning { place: AnswerPlace::Content, leaf: AnswerLeaf::Text }
            }
            b"finish_reason" | b"stop_reason" => ValueMeaning::leaf(AnswerLeaf::Finish),
            b"logprobs" => ValueMeaning::NOTHING,
            b"input" if self.route == Route::Messages => {
                ValueMeaning { place: AnswerPlace::Written, leaf: AnswerLeaf::Text }
            }
            _ => ValueMeaning::place(AnswerPlace::Content),
        }
    }
}
