//! Which parts of an answer mean something: the text that a model wrote, and what the upstream says it used.
//!
//! A path through an answer is a walk from [`Place`] to [`Place`] by keys; what cannot lead anywhere is
//! [`Place::Elsewhere`] and is skipped.

use crate::route::Route;

/// What a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The document.
    Top,
    /// A whole answer inside an event: `response` or `message`. Only its usage is of interest, its text came before.
    Answer,
    /// `usage`.
    Usage,
    /// `prompt_tokens_details`, `input_tokens_details`.
    Details,
    /// `choices`.
    Choices,
    /// What a model wrote, by known keys.
    Content,
    /// What a model wrote, all of it: a tool's input that came as JSON.
    Written,
    /// Of no interest, with all that is in it.
    Elsewhere,
}

/// What a value is that is no container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// Text that a model wrote.
    Text,
    /// The type of an event.
    Kind,
    /// An error, unless null.
    Error,
    /// Why the model stopped: after this it says nothing more.
    Finish,
    /// The id under which the upstream keeps the answer.
    Id,
    /// A number of tokens.
    Tokens(Count),
    /// Of no interest.
    Other,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Input,
    Output,
    /// Part of the input.
    Cached,
    /// Beside the input, as Anthropic has it.
    CacheRead,
    /// Beside the input, as Anthropic has it.
    CacheWritten,
}

/// What the value under a key is: a place if it is a container, else a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Under {
    pub(super) place: Place,
    pub(super) leaf: Leaf,
}

impl Under {
    const NOTHING: Self = Self { place: Place::Elsewhere, leaf: Leaf::Other };
    /// The document itself.
    pub(super) const ROOT: Self = Self { place: Place::Top, leaf: Leaf::Other };

    fn place(place: Place) -> Self {
        Self { place, leaf: Leaf::Other }
    }

    fn leaf(leaf: Leaf) -> Self {
        Self { place: Place::Elsewhere, leaf }
    }
}

/// The documents of a route: whole answers, or events of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) route: Route,
    pub(super) events: bool,
}

impl Shape {
    /// What the value under this key of an object is.
    pub(super) fn member(self, place: Place, key: &[u8]) -> Under {
        match place {
            Place::Top => self.top(key),
            Place::Answer if key == b"usage" => Under::place(Place::Usage),
            Place::Answer if key == b"id" => Under::leaf(Leaf::Id),
            Place::Usage => self.usage(key),
            Place::Details if key == b"cached_tokens" => Under::leaf(Leaf::Tokens(Count::Cached)),
            Place::Content => self.content(key),
            Place::Written => Under { place: Place::Written, leaf: Leaf::Text },
            _ => Under::NOTHING,
        }
    }

    /// What an element of an array is.
    pub(super) fn element(self, place: Place) -> Under {
        match place {
            Place::Choices | Place::Content => Under::place(Place::Content),
            Place::Written => Under { place: Place::Written, leaf: Leaf::Text },
            _ => Under::NOTHING,
        }
    }

    fn top(self, key: &[u8]) -> Under {
        use Route::{ChatCompletions, Completions, CountTokens, Messages, Responses};
        match (key, self.route, self.events) {
            (b"error", ..) => Under::leaf(Leaf::Error),
            (b"type", ..) => Under::leaf(Leaf::Kind),
            // A token count is all that there is, and it is what the request had as input.
            (b"input_tokens", CountTokens, false) => Under::leaf(Leaf::Tokens(Count::Input)),
            (_, CountTokens, _) => Under::NOTHING,
            (b"usage", ..) => Under::place(Place::Usage),
            (b"choices", ChatCompletions | Completions, _) => Under::place(Place::Choices),
            (b"response", Responses, true) => Under::place(Place::Answer),
            (b"delta", Responses, true) => Under::leaf(Leaf::Text),
            (b"id", Responses, false) => Under::leaf(Leaf::Id),
            (b"output", Responses, false) => Under::place(Place::Content),
            (b"message", Messages, true) => Under::place(Place::Answer),
            (b"delta" | b"content_block", Messages, true) => Under::place(Place::Content),
            (b"content", Messages, false) => Under::place(Place::Content),
            _ => Under::NOTHING,
        }
    }

    fn usage(self, key: &[u8]) -> Under {
        let count = match key {
            b"prompt_tokens" | b"input_tokens" => Count::Input,
            b"completion_tokens" | b"output_tokens" => Count::Output,
            b"cache_read_input_tokens" if self.route == Route::Messages => Count::CacheRead,
            b"cache_creation_input_tokens" if self.route == Route::Messages => Count::CacheWritten,
            b"prompt_tokens_details" | b"input_tokens_details" => {
                return Under::place(Place::Details);
            }
            _ => return Under::NOTHING,
        };
        Under::leaf(Leaf::Tokens(count))
    }

    /// Text stands under few keys; ids, roles, reasons, signatures and indexes do not count.
    fn content(self, key: &[u8]) -> Under {
        match key {
            b"content" | b"text" | b"arguments" | b"reasoning" | b"reasoning_content"
            | b"thinking" | b"partial_json" | b"refusal" | b"transcript" | b"name" => {
                Under { place: Place::Content, leaf: Leaf::Text }
            }
            b"finish_reason" | b"stop_reason" => Under::leaf(Leaf::Finish),
            b"logprobs" => Under::NOTHING,
            b"input" if self.route == Route::Messages => {
                Under { place: Place::Written, leaf: Leaf::Text }
            }
            _ => Under::place(Place::Content),
        }
    }
}
