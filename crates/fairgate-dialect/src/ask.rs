//! What the gateway must know of a request's body.
//!
//! One pass over the bytes, nothing built. Whatever is not named here passes unseen and untouched, so that tool calls,
//! images and fields of tomorrow survive. What *is* named must be unambiguous: a field that stands twice is refused,
//! because the upstream might read the other one.

use std::borrow::Cow;
use std::ops::Range;

use crate::route::Route;
use crate::scan::{Fault, Quoted, Scanner};

/// More output tokens, or more used tokens, than any model can give: a number beyond is a mistake or an attack.
pub(crate) const TOKENS_MAX: u64 = 1_000_000_000;
/// The most answers to one prompt.
const CHOICES_MAX: u64 = 1024;
/// The longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 256;
/// The longest id of an earlier response or a conversation, in bytes.
pub(crate) const ID_BYTES_MAX: usize = 512;
/// The most members of a body that are not read here. No API has nearly as many, and their places are kept in memory.
const OTHERS_MAX: usize = 1024;
/// The least `thinking.budget_tokens` that Anthropic takes.
const THINKING_TOKENS_MIN: u64 = 1024;

/// What the gateway must know of a request's body; the bytes stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The model, as the caller named it: 1 to 256 bytes, no control characters.
    pub model: String,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The most output tokens of each answer that the caller allows (`max_tokens`, `max_completion_tokens` or
    /// `max_output_tokens`; the larger where both are there).
    pub max_tokens: Option<u64>,
    /// A cap on the output below this would make the upstream refuse: one more than Anthropic's `thinking.budget_tokens`,
    /// which can be lowered to 1024 and no further; 0 where there is none.
    pub least_tokens: u64,
    /// How many answers a model will write: `n`, default 1; `best_of` where larger; for completions, that many for each
    /// prompt of a list. 0 for embeddings and token counts, which have no output.
    pub choices: u64,
    /// Whether the caller asked for usage in a stream itself.
    pub usage_asked: bool,
    /// The earlier answer that this request goes on from (`previous_response_id`): what it came to is input.
    pub previous_response: Option<Box<str>>,
    /// The conversation that this request goes on with (`conversation`).
    pub conversation: Option<Box<str>>,
    /// Bytes of text in the body that a model would read, roughly: the body's size, where base64 images and the like
    /// count as 4096 bytes at most.
    pub input_bytes: u64,
    pub(crate) places: Places,
}

/// Where in the body the fields are that may have to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// The size of the body that was read.
    pub(crate) body_bytes: usize,
    /// Right after the opening brace.
    pub(crate) inside: usize,
    pub(crate) model: Range<usize>,
    /// The `prompt` of a completion.
    pub(crate) prompt: Option<Range<usize>>,
    pub(crate) caps: Vec<Cap>,
    pub(crate) floors: Vec<Floor>,
    /// The members that are not read here, in order.
    pub(crate) others: Vec<Member>,
    pub(crate) stream_options: Option<StreamOptions>,
}

/// A field that bounds the output; `null` allows any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    pub(crate) value: Range<usize>,
    pub(crate) allowed: Option<u64>,
}

/// A field that asks for at least so much output. Engines hold it higher than a cap, or refuse both together, so a cap
/// lowers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) value: Range<usize>,
    pub(crate) tokens: u64,
    /// How far it must stay below a cap.
    pub(crate) margin: u64,
}

/// A member of the body that is not read here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// How many members stand before it.
    pub(crate) position: usize,
    /// Its key, and whether that must be unescaped to be read.
    pub(crate) key: Quoted,
    /// Where the member before it ends, or the opening brace.
    pub(crate) before: usize,
    /// Where its value ends.
    pub(crate) end: usize,
    /// Where the next member begins, or where the last one ends.
    pub(crate) next: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    pub(crate) value: Range<usize>,
    pub(crate) content: OptionsContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionsContent {
    Null,
    /// An object without `include_usage`: where one can be put in, and whether something follows there.
    Silent {
        inside: usize,
        followed: bool,
    },
    /// An object with `include_usage`, here.
    Says(Range<usize>),
}

/// A body that cannot be served: says which parameter, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadAsk {
    /// A stable code: `invalid_json`, `missing_model`, `duplicate_field`, `invalid_value`, `unsupported_value`.
    pub code: &'static str,
    /// The parameter, where one is to blame.
    pub param: Option<&'static str>,
    /// What is wrong, for the caller. Never quotes the body.
    pub message: String,
}

impl Ask {
    /// A call that somebody makes elsewhere, of which only this is known. It has no body.
    pub fn elsewhere(model: String, max_tokens: u64) -> Self {
        let places = Places {
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
            places,
        }
    }

    /// Reads what is needed, in one pass over the body.
    pub fn read(route: Route, body: &[u8]) -> Result<Self, BadAsk> {
        let text = std::str::from_utf8(body).map_err(|error| {
            let at = error.valid_up_to();
            invalid_json(Fault { what: "not UTF-8", at })
        })?;
        let members = Members::read(route, text)?;
        let model = members.model(text)?;
        let stream = members.boolean(text, Field::Stream)?.unwrap_or(false);
        if members.boolean(text, Field::Background)? == Some(true) {
            let message = "`background` answers are written after the request has ended and cannot be accounted for; \
                           leave it out or set it to false";
            return Err(BadAsk::new("unsupported_value", Field::Background, message));
        }
        let caps = members.caps(text)?;
        let stream_options = members.stream_options(text)?;
        let usage_asked = stream_options.as_ref().is_some_and(
            |options| matches!(&options.content, OptionsContent::Says(value) if &text[value.clone()] == "true"),
        );
        let text_bytes = text.len().saturating_sub(members.blob_bytes);
        Ok(Self {
            model,
            stream,
            max_tokens: caps.iter().filter_map(|cap| cap.allowed).max(),
            least_tokens: members.least_tokens(text),
            choices: if route.generates() { members.choices(text)? } else { 0 },
            usage_asked,
            previous_response: members.id(text, Field::PreviousResponseId)?,
            conversation: members.conversation(text)?,
            input_bytes: u64::try_from(text_bytes).unwrap_or(u64::MAX),
            places: Places {
                body_bytes: body.len(),
                inside: members.inside,
                model: members.of(Field::Model).unwrap_or_default(),
                prompt: members.of(Field::Prompt),
                caps,
                floors: members.floors(text)?,
                others: members.others,
                stream_options,
            },
        })
    }

    /// The members of the body that this crate does not read, by their names, escapes undone. The numbers are what
    /// [`Changes::strip`](crate::Changes::strip) takes. A name that cannot be unescaped (half a surrogate pair) is left out:
    /// no upstream can mean anything by it.
    pub fn other_members<'a>(
        &'a self,
        body: &'a [u8],
    ) -> impl Iterator<Item = (usize, Cow<'a, str>)> + 'a {
        let others = self.places.others.iter().enumerate();
        others.filter_map(|(number, member)| {
            let Quoted { inner, escaped } = &member.key;
            let quoted = body.get(inner.start - 1..inner.end + 1)?;
            let name = match escaped {
                true => Cow::Owned(serde_json::from_slice::<String>(quoted).ok()?),
                false => Cow::Borrowed(std::str::from_utf8(&quoted[1..quoted.len() - 1]).ok()?),
            };
            Some((number, name))
        })
    }

    /// The value of one of these members, as it stands in the body.
    pub fn other_value<'a>(&self, body: &'a [u8], number: usize) -> Option<&'a [u8]> {
        let member = self.places.others.get(number)?;
        let rest = body.get(member.key.inner.end + 1..member.end)?;
        Some(rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
    }

    /// The most output tokens of each answer under this cap: what the caller allows where that is less, and never so
    /// little that the upstream would refuse.
    pub fn capped(&self, cap: u64) -> u64 {
        let cap = cap.max(self.least_tokens);
        self.max_tokens.map_or(cap, |allowed| allowed.min(cap))
    }

    /// Whether the dialect of this route must be asked for usage in a stream, and the caller did not.
    pub fn must_ask_usage(&self, route: Route) -> bool {
        route.usage_on_demand() && self.stream && !self.usage_asked
    }
}

/// The fields of a body that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
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

impl Field {
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

    /// Whether the field means something on this route; elsewhere it passes like any other.
    fn matters(self, route: Route) -> bool {
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
        field.matters(route).then_some(field)
    }
}

impl Field {
    /// The field that this is in another spelling, which we would not read and an upstream might.
    fn respelled(route: Route, name: &str) -> Option<Self> {
        if !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        Self::of(route, &name.to_ascii_lowercase())
    }
}

/// The body's members that matter, and where their values are.
struct Members {
    values: [Option<Range<usize>>; Field::COUNT],
    others: Vec<Member>,
    inside: usize,
    blob_bytes: usize,
}

impl Members {
    fn read(route: Route, text: &str) -> Result<Self, BadAsk> {
        let mut scanner = Scanner::new(text);
        scanner.expect(b'{', "a request is a JSON object").map_err(invalid_json)?;
        let inside = scanner.at();
        let mut values = [const { None }; Field::COUNT];
        let mut others: Vec<Member> = Vec::new();
        let (mut position, mut before, mut other_before) = (0, inside, false);
        let mut more = !scanner.take(b'}');
        while more {
            let key = scanner.key().map_err(invalid_json)?;
            let value = scanner.value(1).map_err(invalid_json)?;
            let (start, end) = (key.inner.start - 1, value.end);
            if let Some(last) = others.last_mut().filter(|_| other_before) {
                last.next = start;
            }
            if let Some(field) = named(text, &key, |name| Field::respelled(route, name)) {
                let message = format!(
                    "a field in the body is `{}` but for upper and lower case, which some upstreams take for the same; \
                     write it in lower case",
                    field.name()
                );
                return Err(BadAsk::new("duplicate_field", field, message));
            }
            let field = named(text, &key, |name| Field::of(route, name));
            other_before = field.is_none();
            match field {
                Some(field) if values[field as usize].replace(value).is_some() => {
                    let message =
                        format!("`{}` stands twice in the body; send it once", field.name());
                    return Err(BadAsk::new("duplicate_field", field, message));
                }
                Some(_) => {}
                None if others.len() == OTHERS_MAX => return Err(too_many_members()),
                None => others.push(Member { position, key, before, end, next: end }),
            }
            (position, before) = (position + 1, end);
            more = scanner.take(b',');
            if !more {
                scanner.expect(b'}', "expected `,` or `}`").map_err(invalid_json)?;
            }
        }
        scanner.end().map_err(invalid_json)?;
        others.shrink_to_fit();
        Ok(Self { values, others, inside, blob_bytes: scanner.blob_bytes() })
    }

    fn of(&self, field: Field) -> Option<Range<usize>> {
        self.values[field as usize].clone()
    }

    /// The field's value as it stands; `null` is as good as nothing.
    fn given<'a>(&self, text: &'a str, field: Field) -> Option<&'a str> {
        self.of(field).map(|value| &text[value]).filter(|&value| value != "null")
    }

    fn model(&self, text: &str) -> Result<String, BadAsk> {
        let Some(value) = self.given(text, Field::Model) else {
            let message = "`model` is missing; name the model that is to answer";
            return Err(BadAsk::new("missing_model", Field::Model, message));
        };
        let model: String = serde_json::from_str(value).unwrap_or_default();
        if model.is_empty() || model.len() > MODEL_BYTES_MAX || model.contains(char::is_control) {
            let message = format!(
                "`model` must be a name of 1 to {MODEL_BYTES_MAX} bytes without control characters"
            );
            return Err(BadAsk::new("invalid_value", Field::Model, message));
        }
        Ok(model)
    }

    fn boolean(&self, text: &str, field: Field) -> Result<Option<bool>, BadAsk> {
        match self.given(text, field) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => {
                let message = format!("`{}` must be true or false", field.name());
                Err(BadAsk::new("invalid_value", field, message))
            }
        }
    }

    fn integer(
        &self,
        text: &str,
        field: Field,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, BadAsk> {
        let Some(value) = self.given(text, field) else { return Ok(None) };
        // The digits alone: "12", 12.0 and 1e3 are read differently by different upstreams.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse::<u64>() {
            Ok(number) if digits && (least..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let message =
                    format!("`{}` must be a whole number from {least} to {most}", field.name());
                Err(BadAsk::new("invalid_value", field, message))
            }
        }
    }

    fn caps(&self, text: &str) -> Result<Vec<Cap>, BadAsk> {
        let mut caps = Vec::new();
        for field in [Field::MaxTokens, Field::MaxCompletionTokens, Field::MaxOutputTokens] {
            if let Some(value) = self.of(field) {
                caps.push(Cap { value, allowed: self.integer(text, field, 0, TOKENS_MAX)? });
            }
        }
        Ok(caps)
    }

    /// What keeps a cap from being lower: see [`Ask::least_tokens`].
    fn least_tokens(&self, text: &str) -> u64 {
        let (_, budget) = self.thinking_budget(text).unwrap_or_default();
        budget.saturating_add(u64::from(budget > 0)).min(THINKING_TOKENS_MIN + 1)
    }

    fn floors(&self, text: &str) -> Result<Vec<Floor>, BadAsk> {
        let least = self.integer(text, Field::MinTokens, 0, TOKENS_MAX)?;
        let least = least.and_then(|tokens| {
            Some(Floor { value: self.of(Field::MinTokens)?, tokens, margin: 0 })
        });
        let thinking = self.thinking_budget(text);
        let thinking = thinking.map(|(value, tokens)| Floor { value, tokens, margin: 1 });
        Ok(least.into_iter().chain(thinking).collect())
    }

    /// Where `thinking.budget_tokens` stands and what it says. What is wrong with it the upstream will say.
    fn thinking_budget(&self, text: &str) -> Option<(Range<usize>, u64)> {
        let offset = self.of(Field::Thinking)?.start;
        let thinking = self.given(text, Field::Thinking)?;
        let value = named_members(thinking, "budget_tokens").pop()?;
        let tokens = thinking[value.clone()].parse().ok()?;
        Some((offset + value.start..offset + value.end, tokens))
    }

    /// The id of something that an upstream keeps.
    fn id(&self, text: &str, field: Field) -> Result<Option<Box<str>>, BadAsk> {
        self.given(text, field).map(|value| read_id(value, field)).transpose()
    }

    /// `"conv_1"` or `{"id":"conv_1"}`.
    fn conversation(&self, text: &str) -> Result<Option<Box<str>>, BadAsk> {
        let field = Field::Conversation;
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

    fn choices(&self, text: &str) -> Result<u64, BadAsk> {
        let n = self.integer(text, Field::N, 1, CHOICES_MAX)?.unwrap_or(1);
        let best_of = self.integer(text, Field::BestOf, 1, CHOICES_MAX)?.unwrap_or(1);
        let prompts = self.given(text, Field::Prompt).map_or(1, prompts);
        Ok(n.max(best_of).saturating_mul(prompts))
    }

    fn stream_options(&self, text: &str) -> Result<Option<StreamOptions>, BadAsk> {
        let Some(value) = self.of(Field::StreamOptions) else { return Ok(None) };
        let content = match &text[value.clone()] {
            "null" => OptionsContent::Null,
            object if object.starts_with('{') => options_content(object, value.start)?,
            _ => return Err(bad_options("`stream_options` must be an object")),
        };
        Ok(Some(StreamOptions { value, content }))
    }
}

/// Looks into `stream_options`, a valid object that stands at `offset`.
fn options_content(object: &str, offset: usize) -> Result<OptionsContent, BadAsk> {
    let mut found = named_members(object, "include_usage");
    match (found.pop(), found.is_empty()) {
        (None, _) => {
            let inside = offset + 1;
            let followed = !object[1..].trim_start().starts_with('}');
            Ok(OptionsContent::Silent { inside, followed })
        }
        (Some(_), false) => {
            let message = "`stream_options.include_usage` stands twice in the body; send it once";
            Err(BadAsk::new("duplicate_field", Field::StreamOptions, message))
        }
        (Some(value), true) if matches!(&object[value.clone()], "true" | "false" | "null") => {
            Ok(OptionsContent::Says(offset + value.start..offset + value.end))
        }
        (Some(_), true) => Err(bad_options("`stream_options.include_usage` must be true or false")),
    }
}

/// The values under this key in a valid object, first to last.
fn named_members(object: &str, wanted: &str) -> Vec<Range<usize>> {
    let mut scanner = Scanner::new(object);
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

/// How many prompts a completion is asked for: a list of texts or of token lists is as many, all else is one.
fn prompts(value: &str) -> u64 {
    let mut scanner = Scanner::new(value);
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

/// What a key means; most need no unescaping. One that cannot be unescaped (half a surrogate pair) means nothing here.
fn named<T>(text: &str, key: &Quoted, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
    if !key.escaped {
        return meaning(&text[key.inner.clone()]);
    }
    let quoted = &text[key.inner.start - 1..key.inner.end + 1];
    serde_json::from_str::<String>(quoted).ok().and_then(|name| meaning(&name))
}

fn invalid_json(fault: Fault) -> BadAsk {
    let message =
        format!("the body is not a valid JSON object: {} at byte {}", fault.what, fault.at);
    BadAsk { code: "invalid_json", param: None, message }
}

fn read_id(value: &str, field: Field) -> Result<Box<str>, BadAsk> {
    let id: String = serde_json::from_str(value).map_err(|_| bad_id(field))?;
    match id.is_empty() || id.len() > ID_BYTES_MAX {
        true => Err(bad_id(field)),
        false => Ok(id.into()),
    }
}

fn bad_id(field: Field) -> BadAsk {
    let message = format!("`{}` must be an id of 1 to {ID_BYTES_MAX} bytes", field.name());
    BadAsk::new("invalid_value", field, message)
}

fn too_many_members() -> BadAsk {
    let message = format!("the body has more than {OTHERS_MAX} members that are not known");
    BadAsk { code: "invalid_value", param: None, message }
}

fn bad_options(message: &str) -> BadAsk {
    BadAsk::new("invalid_value", Field::StreamOptions, message)
}

impl BadAsk {
    fn new(code: &'static str, field: Field, message: impl Into<String>) -> Self {
        Self { code, param: Some(field.name()), message: message.into() }
    }
}
