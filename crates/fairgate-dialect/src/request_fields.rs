//! Reads the fields of a request's body that the gateway needs.
//!
//! The body is scanned once, and no JSON tree is built. Fields that are not listed here are neither read nor changed,
//! so tool calls, images and future fields stay as they are. A field that *is* listed must be unambiguous: if it occurs
//! twice, the request is refused, because the upstream might read the other occurrence.

use std::borrow::Cow;
use std::ops::Range;

use crate::json_scanner::{JsonScanner, JsonSyntaxError, QuotedString};
use crate::route::Route;

/// Largest accepted number of output tokens or used tokens. No model produces more, so a larger number is a mistake or
/// an attack.
pub(crate) const TOKENS_MAX: u64 = 1_000_000_000;
/// Largest accepted number of answers to one prompt (`n`, `best_of`).
const CHOICES_MAX: u64 = 1024;
/// Longest accepted model name, in bytes.
const MODEL_BYTES_MAX: usize = 256;
/// Longest accepted id of an earlier response or a conversation, in bytes.
pub(crate) const ID_BYTES_MAX: usize = 512;
/// Greatest number of members of a body besides those that this crate reads. The number is limited because their
/// offsets are kept in memory. No API has nearly as many.
const OTHERS_MAX: usize = 1024;
/// Smallest `thinking.budget_tokens` that Anthropic accepts.
const THINKING_TOKENS_MIN: u64 = 1024;

/// The fields of a request's body that the gateway needs. The body's bytes are not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFields {
    /// Name of the model as the client sent it: 1 to 256 bytes, no control characters.
    pub model: String,
    /// True if the client requests a stream.
    pub stream: bool,
    /// Output token limit that the client sets for each answer: `max_tokens`, `max_completion_tokens` or
    /// `max_output_tokens`, and the larger if several are present. `None` if the client sets no limit.
    pub max_tokens: Option<u64>,
    /// Smallest output cap that the upstream still accepts: Anthropic's `thinking.budget_tokens` + 1. That budget can
    /// be lowered to 1024 and no further, so this number is at most 1025. It is 0 if the body has no such field.
    pub least_tokens: u64,
    /// Number of answers that the model will write: the larger of `n` and `best_of` (default 1), times the number of
    /// prompts for a completion with a list of prompts. 0 for embeddings and token counts, which have no output.
    pub choices: u64,
    /// True if the client itself requests usage in a stream.
    pub usage_asked: bool,
    /// Id of the earlier response that this request continues (`previous_response_id`). The tokens of that response
    /// count as input.
    pub previous_response: Option<Box<str>>,
    /// Id of the conversation that this request continues (`conversation`).
    pub conversation: Option<Box<str>>,
    /// Approximate number of bytes in the body that the model reads as text: the body's size, with each file in base64
    /// counted as at most 4096 bytes.
    pub input_bytes: u64,
    /// True if the body has keys that may belong to files. Only then need [`RequestFields::files`] be called.
    pub mentions_files: bool,
    /// True if the body has keys that may be those of ids whose owner is not known, such as `file_id`.
    /// [`RequestFields::stored_ids`] searches for the ids.
    pub mentions_account_ids: bool,
    /// True if the body has a key that may be `id`, as in an item of an earlier response. [`RequestFields::stored_ids`]
    /// searches for the ids.
    pub mentions_item_ids: bool,
    pub(crate) places: FieldPlaces,
}

/// Byte offsets, within a request's body, of the fields that the gateway may have to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPlaces {
    /// Size of the body that was read, in bytes.
    pub(crate) body_bytes: usize,
    /// Offset right after the opening brace of the body.
    pub(crate) inside: usize,
    pub(crate) model: Range<usize>,
    /// Range of the value of a completion's `prompt`; `None` if the body has no such field.
    pub(crate) prompt: Option<Range<usize>>,
    pub(crate) caps: Vec<OutputCapField>,
    pub(crate) floors: Vec<OutputFloorField>,
    /// Members that this crate does not read, in the order of the body.
    pub(crate) others: Vec<UnreadMember>,
    pub(crate) stream_options: Option<StreamOptions>,
}

/// A field that limits the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputCapField {
    pub(crate) value: Range<usize>,
    /// The limit that the field sets; `None` if its value is `null`, which sets no limit.
    pub(crate) allowed: Option<u64>,
}

/// A field that sets a minimum of output. Some engines let this field take precedence over a cap, and others refuse the
/// combination, so the field is lowered together with the cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFloorField {
    pub(crate) value: Range<usize>,
    pub(crate) tokens: u64,
    /// Number of tokens by which the value must stay below a cap.
    pub(crate) margin: u64,
}

/// A member of the body that this crate does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadMember {
    /// Number of members of all kinds that come before this one in the body.
    pub(crate) position: usize,
    /// Range of the key, with a flag that is true if the key has escapes.
    pub(crate) key: QuotedString,
    /// Offset at which the previous member ends; for the first member, the offset right after the opening brace.
    pub(crate) before: usize,
    /// Offset at which the value of the member ends.
    pub(crate) end: usize,
    /// Offset at which the next member begins, or `end` for the last member.
    pub(crate) next: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    pub(crate) value: Range<usize>,
    pub(crate) content: StreamOptionsContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamOptionsContent {
    Null,
    /// An object without `include_usage`. `inside` is the offset at which `include_usage` can be inserted, and
    /// `followed` is true if another member comes after that offset.
    Silent {
        inside: usize,
        followed: bool,
    },
    /// An object with `include_usage`. The range is that of the value of `include_usage`.
    Says(Range<usize>),
}

/// Kind of the error of an invalid body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidRequestCode {
    /// The body is not JSON.
    InvalidJson,
    /// The body names no model.
    MissingModel,
    /// A field is twice in the body.
    DuplicateField,
    /// A field has a wrong type or value.
    InvalidValue,
    /// A field has a value that the gateway does not serve.
    UnsupportedValue,
}

impl InvalidRequestCode {
    /// All codes, in the order of their definition.
    pub const ALL: [Self; 5] = [
        Self::InvalidJson,
        Self::MissingModel,
        Self::DuplicateField,
        Self::InvalidValue,
        Self::UnsupportedValue,
    ];

    /// Returns the stable text that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidJson => "invalid_json",
            Self::MissingModel => "missing_model",
            Self::DuplicateField => "duplicate_field",
            Self::InvalidValue => "invalid_value",
            Self::UnsupportedValue => "unsupported_value",
        }
    }
}

/// The reason why a body cannot be served, with the invalid parameter and the problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidRequestError {
    /// Kind of the error.
    pub code: InvalidRequestCode,
    /// Name of the invalid parameter; `None` if the whole body is invalid.
    pub param: Option<&'static str>,
    /// Description of the problem for the client. Never quotes the body.
    pub message: String,
}

impl RequestFields {
    /// Creates the fields of a call that a client sends to a provider itself. Only the model and the output limit of
    /// such a call are known, and there is no body.
    pub fn without_body(model: String, max_tokens: u64) -> Self {
        let places = FieldPlaces {
            body_bytes: 0,
            inside: 0,
            model: 0..0,
            prompt: None,
            caps: Vec::new(),
            floors: Vec::new(),
            others: Vec::new(),
            stream_options: None,
        };
        Self {
            model,
            stream: false,
            max_tokens: Some(max_tokens),
            least_tokens: 0,
            choices: 1,
            usage_asked: false,
            previous_response: None,
            conversation: None,
            input_bytes: 0,
            mentions_files: false,
            mentions_account_ids: false,
            mentions_item_ids: false,
            places,
        }
    }

    /// Reads all fields in one pass over the body.
    pub fn read(route: Route, body: &[u8]) -> Result<Self, InvalidRequestError> {
        let text = std::str::from_utf8(body).map_err(|error| {
            let at = error.valid_up_to();
            invalid_json(JsonSyntaxError { what: "not UTF-8", at })
        })?;
        let members = RequestMembers::read(route, text)?;
        let model = members.model(text)?;
        let stream = members.boolean(text, RequestField::Stream)?.unwrap_or(false);
        if members.boolean(text, RequestField::Background)? == Some(true) {
            let message = "`background` answers are written after the request has ended and cannot be accounted for; \
                           leave it out or set it to false";
            return Err(InvalidRequestError::new(
                InvalidRequestCode::UnsupportedValue,
                RequestField::Background,
                message,
            ));
        }
        let caps = members.caps(text)?;
        let stream_options = members.stream_options(text)?;
        let usage_asked = stream_options.as_ref().is_some_and(
            |options| matches!(&options.content, StreamOptionsContent::Says(value) if &text[value.clone()] == "true"),
        );
        let text_bytes = text.len().saturating_sub(members.blob_bytes);
        Ok(Self {
            model,
            stream,
            max_tokens: caps.iter().filter_map(|cap| cap.allowed).max(),
            least_tokens: members.least_tokens(text),
            choices: if route.generates() { members.choices(text)? } else { 0 },
            usage_asked,
            previous_response: members.id(text, RequestField::PreviousResponseId)?,
            conversation: members.conversation(text)?,
            input_bytes: u64::try_from(text_bytes).unwrap_or(u64::MAX),
            mentions_files: members.mentions_files,
            mentions_account_ids: members.mentions_account_ids,
            mentions_item_ids: members.mentions_item_ids,
            places: FieldPlaces {
                body_bytes: body.len(),
                inside: members.inside,
                model: members.of(RequestField::Model).unwrap_or_default(),
                prompt: members.of(RequestField::Prompt),
                caps,
                floors: members.floors(text)?,
                others: members.others,
                stream_options,
            },
        })
    }

    /// Iterates over the members of the body that this crate does not read, as (index, unescaped name).
    /// [`BodyChanges::strip`](crate::BodyChanges::strip) takes these indexes. A name that cannot be unescaped, because
    /// it has half a surrogate pair, is left out. Such a name means nothing to any upstream.
    pub fn other_members<'a>(
        &'a self,
        body: &'a [u8],
    ) -> impl Iterator<Item = (usize, Cow<'a, str>)> + 'a {
        let others = self.places.others.iter().enumerate();
        others.filter_map(|(number, member)| {
            let QuotedString { inner, escaped } = &member.key;
            let quoted = body.get(inner.start - 1..inner.end + 1)?;
            let name = match escaped {
                true => Cow::Owned(serde_json::from_slice::<String>(quoted).ok()?),
                false => Cow::Borrowed(std::str::from_utf8(&quoted[1..quoted.len() - 1]).ok()?),
            };
            Some((number, name))
        })
    }

    /// Returns the raw value of the member with the index `number`; `None` if there is no such member.
    /// [`RequestFields::other_members`] returns the indexes.
    pub fn other_value<'a>(&self, body: &'a [u8], number: usize) -> Option<&'a [u8]> {
        let member = self.places.others.get(number)?;
        let rest = body.get(member.key.inner.end + 1..member.end)?;
        Some(rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
    }

    /// Returns the output token limit of each answer under this cap: the lower of the cap and the client's own limit.
    /// The cap is first raised to [`RequestFields::least_tokens`].
    pub fn capped(&self, cap: u64) -> u64 {
        let cap = cap.max(self.least_tokens);
        self.max_tokens.map_or(cap, |allowed| allowed.min(cap))
    }

    /// Returns true if a stream on this route reports usage only on request and the client did not request it.
    pub fn must_ask_usage(&self, route: Route) -> bool {
        route.usage_on_demand() && self.stream && !self.usage_asked
    }
}

/// The fields of a body that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestField {
    Model,
    Stream,
    StreamOptions,
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    N,
    BestOf,
    Prompt,
    Background,
    MinTokens,
    Thinking,
    PreviousResponseId,
    Conversation,
}

impl RequestField {
    const COUNT: usize = 14;

    fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxOutputTokens => "max_output_tokens",
            Self::N => "n",
            Self::BestOf => "best_of",
            Self::Prompt => "prompt",
            Self::Background => "background",
            Self::MinTokens => "min_tokens",
            Self::Thinking => "thinking",
            Self::PreviousResponseId => "previous_response_id",
            Self::Conversation => "conversation",
        }
    }

    /// Returns true if the field has a meaning on this route. Otherwise it is passed on like any unknown field.
    fn applies_to(self, route: Route) -> bool {
        use Route::{ChatCompletions, Completions, Messages, Responses};
        match self {
            Self::Model => true,
            Self::Stream => route.generates(),
            Self::StreamOptions => route.usage_on_demand(),
            Self::MaxTokens => matches!(route, ChatCompletions | Completions | Messages),
            Self::MaxCompletionTokens => route == ChatCompletions,
            Self::MaxOutputTokens
            | Self::Background
            | Self::PreviousResponseId
            | Self::Conversation => route == Responses,
            Self::N | Self::BestOf | Self::MinTokens => {
                matches!(route, ChatCompletions | Completions)
            }
            Self::Thinking => route == Messages,
            Self::Prompt => route == Completions,
        }
    }

    fn of(route: Route, name: &str) -> Option<Self> {
        let field = match name {
            "model" => Self::Model,
            "stream" => Self::Stream,
            "stream_options" => Self::StreamOptions,
            "max_tokens" => Self::MaxTokens,
            "max_completion_tokens" => Self::MaxCompletionTokens,
            "max_output_tokens" => Self::MaxOutputTokens,
            "n" => Self::N,
            "best_of" => Self::BestOf,
            "prompt" => Self::Prompt,
            "background" => Self::Background,
            "min_tokens" => Self::MinTokens,
            "thinking" => Self::Thinking,
            "previous_response_id" => Self::PreviousResponseId,
            "conversation" => Self::Conversation,
            _ => return None,
        };
        field.applies_to(route).then_some(field)
    }
}

impl RequestField {
    /// Returns the field whose name differs from `name` only in upper and lower case; `None` if there is none. This
    /// crate would not read a field of that spelling, but an upstream might.
    fn respelled(route: Route, name: &str) -> Option<Self> {
        if !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        Self::of(route, &name.to_ascii_lowercase())
    }
}

/// The known members of a body, with the ranges of their values.
struct RequestMembers {
    values: [Option<Range<usize>>; RequestField::COUNT],
    others: Vec<UnreadMember>,
    inside: usize,
    blob_bytes: usize,
    mentions_files: bool,
    mentions_account_ids: bool,
    mentions_item_ids: bool,
}

impl RequestMembers {
    fn read(route: Route, text: &str) -> Result<Self, InvalidRequestError> {
        let mut scanner = JsonScanner::new(text);
        scanner.expect(b'{', "a request is a JSON object").map_err(invalid_json)?;
        let inside = scanner.at();
        let mut values = [const { None }; RequestField::COUNT];
        let mut others: Vec<UnreadMember> = Vec::new();
        let (mut position, mut before, mut other_before) = (0, inside, false);
        let mut more = !scanner.take(b'}');
        while more {
            let key = scanner.key().map_err(invalid_json)?;
            let value = scanner.value(1).map_err(invalid_json)?;
            let (start, end) = (key.inner.start - 1, value.end);
            if let Some(last) = others.last_mut().filter(|_| other_before) {
                last.next = start;
            }
            if let Some(field) = named(text, &key, |name| RequestField::respelled(route, name)) {
                let message = format!(
                    "a field in the body is `{}` but for upper and lower case, which some upstreams take for the same; \
                     write it in lower case",
                    field.name()
                );
                return Err(InvalidRequestError::new(
                    InvalidRequestCode::DuplicateField,
                    field,
                    message,
                ));
            }
            let field = named(text, &key, |name| RequestField::of(route, name));
            other_before = field.is_none();
            match field {
                Some(field) if values[field as usize].replace(value).is_some() => {
                    let message =
                        format!("`{}` stands twice in the body; send it once", field.name());
                    return Err(InvalidRequestError::new(
                        InvalidRequestCode::DuplicateField,
                        field,
                        message,
                    ));
                }
                Some(_) => {}
                None if others.len() == OTHERS_MAX => return Err(too_many_members()),
                None => others.push(UnreadMember { position, key, before, end, next: end }),
            }
            (position, before) = (position + 1, end);
            more = scanner.take(b',');
            if !more {
                scanner.expect(b'}', "expected `,` or `}`").map_err(invalid_json)?;
            }
        }
        scanner.end().map_err(invalid_json)?;
        others.shrink_to_fit();
        Ok(Self {
            values,
            others,
            inside,
            blob_bytes: scanner.blob_bytes(),
            mentions_files: scanner.mentions_files(),
            mentions_account_ids: scanner.mentions_account_ids(),
            mentions_item_ids: scanner.mentions_item_ids(),
        })
    }

    fn of(&self, field: RequestField) -> Option<Range<usize>> {
        self.values[field as usize].clone()
    }

    /// Returns the field's raw value; `None` if the field is absent or `null`.
    fn given<'a>(&self, text: &'a str, field: RequestField) -> Option<&'a str> {
        self.of(field).map(|value| &text[value]).filter(|&value| value != "null")
    }

    fn model(&self, text: &str) -> Result<String, InvalidRequestError> {
        let Some(value) = self.given(text, RequestField::Model) else {
            let message = "`model` is missing; name the model that is to answer";
            return Err(InvalidRequestError::new(
                InvalidRequestCode::MissingModel,
                RequestField::Model,
                message,
            ));
        };
        let model: String = serde_json::from_str(value).unwrap_or_default();
        if model.is_empty() || model.len() > MODEL_BYTES_MAX || model.contains(char::is_control) {
            let message = format!(
                "`model` must be a name of 1 to {MODEL_BYTES_MAX} bytes without control characters"
            );
            return Err(InvalidRequestError::new(
                InvalidRequestCode::InvalidValue,
                RequestField::Model,
                message,
            ));
        }
        Ok(model)
    }

    fn boolean(
        &self,
        text: &str,
        field: RequestField,
    ) -> Result<Option<bool>, InvalidRequestError> {
        match self.given(text, field) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => {
                let message = format!("`{}` must be true or false", field.name());
                Err(InvalidRequestError::new(InvalidRequestCode::InvalidValue, field, message))
            }
        }
    }

    fn integer(
        &self,
        text: &str,
        field: RequestField,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, InvalidRequestError> {
        let Some(value) = self.given(text, field) else { return Ok(None) };
        // Only digits are accepted: upstreams read "12", 12.0 and 1e3 differently.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse::<u64>() {
            Ok(number) if digits && (least..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let message =
                    format!("`{}` must be a whole number from {least} to {most}", field.name());
                Err(InvalidRequestError::new(InvalidRequestCode::InvalidValue, field, message))
            }
        }
    }

    fn caps(&self, text: &str) -> Result<Vec<OutputCapField>, InvalidRequestError> {
        let mut caps = Vec::new();
        for field in [
            RequestField::MaxTokens,
            RequestField::MaxCompletionTokens,
            RequestField::MaxOutputTokens,
        ] {
            if let Some(value) = self.of(field) {
                caps.push(OutputCapField {
                    value,
                    allowed: self.integer(text, field, 0, TOKENS_MAX)?,
                });
            }
        }
        Ok(caps)
    }

    /// Returns the value of [`RequestFields::least_tokens`] for this body.
    fn least_tokens(&self, text: &str) -> u64 {
        let (_, budget) = self.thinking_budget(text).unwrap_or_default();
        budget.saturating_add(u64::from(budget > 0)).min(THINKING_TOKENS_MIN + 1)
    }

    fn floors(&self, text: &str) -> Result<Vec<OutputFloorField>, InvalidRequestError> {
        let least = self.integer(text, RequestField::MinTokens, 0, TOKENS_MAX)?;
        let least = least.and_then(|tokens| {
            Some(OutputFloorField { value: self.of(RequestField::MinTokens)?, tokens, margin: 0 })
        });
        let thinking = self.thinking_budget(text);
        let thinking =
            thinking.map(|(value, tokens)| OutputFloorField { value, tokens, margin: 1 });
        Ok(least.into_iter().chain(thinking).collect())
    }

    /// Returns the range and the value of `thinking.budget_tokens`. An invalid value is ignored here, because the
    /// upstream will reject it.
    fn thinking_budget(&self, text: &str) -> Option<(Range<usize>, u64)> {
        let offset = self.of(RequestField::Thinking)?.start;
        let thinking = self.given(text, RequestField::Thinking)?;
        let value = named_members(thinking, "budget_tokens").pop()?;
        let tokens = thinking[value.clone()].parse().ok()?;
        Some((offset + value.start..offset + value.end, tokens))
    }

    /// Returns the id in this field, which names an object that the upstream stores; `None` if the field is absent.
    fn id(&self, text: &str, field: RequestField) -> Result<Option<Box<str>>, InvalidRequestError> {
        self.given(text, field).map(|value| read_id(value, field)).transpose()
    }

    /// Returns the conversation's id, which is written as `"conv_1"` or `{"id":"conv_1"}`; `None` if the field is
    /// absent.
    fn conversation(&self, text: &str) -> Result<Option<Box<str>>, InvalidRequestError> {
        let field = RequestField::Conversation;
        let Some(value) = self.given(text, field) else { return Ok(None) };
        if !value.starts_with('{') {
            return read_id(value, field).map(Some);
        }
        let mut ids = named_members(value, "id");
        match (ids.pop(), ids.is_empty()) {
            (Some(id), true) => read_id(&value[id], field).map(Some),
            _ => Err(bad_id(field)),
        }
    }

    fn choices(&self, text: &str) -> Result<u64, InvalidRequestError> {
        let n = self.integer(text, RequestField::N, 1, CHOICES_MAX)?.unwrap_or(1);
        let best_of = self.integer(text, RequestField::BestOf, 1, CHOICES_MAX)?.unwrap_or(1);
        let prompts = self.given(text, RequestField::Prompt).map_or(1, prompts);
        Ok(n.max(best_of).saturating_mul(prompts))
    }

    fn stream_options(&self, text: &str) -> Result<Option<StreamOptions>, InvalidRequestError> {
        let Some(value) = self.of(RequestField::StreamOptions) else { return Ok(None) };
        let content = match &text[value.clone()] {
            "null" => StreamOptionsContent::Null,
            object if object.starts_with('{') => options_content(object, value.start)?,
            _ => return Err(bad_options("`stream_options` must be an object")),
        };
        Ok(Some(StreamOptions { value, content }))
    }
}

/// Reads `stream_options`, which must be a valid object. The object begins at `offset` in the body.
fn options_content(
    object: &str,
    offset: usize,
) -> Result<StreamOptionsContent, InvalidRequestError> {
    let mut found = named_members(object, "include_usage");
    match (found.pop(), found.is_empty()) {
        (None, _) => {
            let inside = offset + 1;
            let followed = !object[1..].trim_start().starts_with('}');
            Ok(StreamOptionsContent::Silent { inside, followed })
        }
        (Some(_), false) => {
            let message = "`stream_options.include_usage` stands twice in the body; send it once";
            Err(InvalidRequestError::new(
                InvalidRequestCode::DuplicateField,
                RequestField::StreamOptions,
                message,
            ))
        }
        (Some(value), true) if matches!(&object[value.clone()], "true" | "false" | "null") => {
            Ok(StreamOptionsContent::Says(offset + value.start..offset + value.end))
        }
        (Some(_), true) => Err(bad_options("`stream_options.include_usage` must be true or false")),
    }
}

/// Returns the ranges of all values under this key in a valid object, in order.
fn named_members(object: &str, wanted: &str) -> Vec<Range<usize>> {
    let mut scanner = JsonScanner::new(object);
    let mut found = Vec::new();
    let mut more = scanner.take(b'{') && scanner.peek() != b'}';
    while more {
        let (Ok(key), Ok(value)) = (scanner.key(), scanner.value(2)) else { break };
        if named(object, &key, |name| (name == wanted).then_some(())).is_some() {
            found.push(value);
        }
        more = scanner.take(b',');
    }
    found
}

/// Returns the number of prompts of a completion: the length of a list of texts or of token lists, and 1 for any other
/// value.
fn prompts(value: &str) -> u64 {
    let mut scanner = JsonScanner::new(value);
    if !scanner.take(b'[') || !matches!(scanner.peek(), b'"' | b'[') {
        return 1;
    }
    let mut count = 0;
    while scanner.value(2).is_ok() {
        count += 1;
        if !scanner.take(b',') {
            break;
        }
    }
    count
}

/// Applies `meaning` to the unescaped key. Returns `None` for a key that cannot be unescaped (half a surrogate pair).
fn named<T>(text: &str, key: &QuotedString, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
    if !key.escaped {
        return meaning(&text[key.inner.clone()]);
    }
    let quoted = &text[key.inner.start - 1..key.inner.end + 1];
    serde_json::from_str::<String>(quoted).ok().and_then(|name| meaning(&name))
}

fn invalid_json(fault: JsonSyntaxError) -> InvalidRequestError {
    let message =
        format!("the body is not a valid JSON object: {} at byte {}", fault.what, fault.at);
    InvalidRequestError { code: InvalidRequestCode::InvalidJson, param: None, message }
}

fn read_id(value: &str, field: RequestField) -> Result<Box<str>, InvalidRequestError> {
    let id: String = serde_json::from_str(value).map_err(|_| bad_id(field))?;
    match id.is_empty() || id.len() > ID_BYTES_MAX {
        true => Err(bad_id(field)),
        false => Ok(id.into()),
    }
}

fn bad_id(field: RequestField) -> InvalidRequestError {
    let message = format!("`{}` must be an id of 1 to {ID_BYTES_MAX} bytes", field.name());
    InvalidRequestError::new(InvalidRequestCode::InvalidValue, field, message)
}

fn too_many_members() -> InvalidRequestError {
    let message = format!("the body has more than {OTHERS_MAX} members that are not known");
    InvalidRequestError { code: InvalidRequestCode::InvalidValue, param: None, message }
}

fn bad_options(message: &str) -> InvalidRequestError {
    InvalidRequestError::new(InvalidRequestCode::InvalidValue, RequestField::StreamOptions, message)
}

impl InvalidRequestError {
    fn new(code: InvalidRequestCode, field: RequestField, message: impl Into<String>) -> Self {
        Self { code, param: Some(field.name()), message: message.into() }
    }
}
