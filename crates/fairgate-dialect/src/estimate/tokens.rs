//! Counts tokens with OpenAI's own tables.

use std::sync::OnceLock;

use serde_json::{Map, Value};
use tiktoken_rs::CoreBPE;

use crate::route::Route;

static O200K: OnceLock<&CoreBPE> = OnceLock::new();
static CL100K: OnceLock<&CoreBPE> = OnceLock::new();

/// Size of the largest body that is counted, in bytes. A larger body is not counted, because a client could cause much
/// work at no cost, and because the size of a large text predicts its number of tokens well.
pub const COUNTED_BYTES_MAX: usize = 1 << 18;

/// Size in bytes of the parts into which a text is split. Splitting adds at most one token per part. A text is split
/// because a long run of one letter is a single word to the tokenizer, whose time per byte grows with the length of the
/// word.
const PART_BYTES_MAX: usize = 1 << 12;
/// Number of tokens that the role and the delimiters add to each message.
const MESSAGE_TOKENS: u64 = 4;
/// Number of tokens that a chat prompt has between the last message and the answer.
const ANSWER_TOKENS: u64 = 3;
/// Number of tokens that an image, a sound or a document counts as. The real number depends on the model and is not
/// published.
const FILE_TOKENS: u64 = 1024;

/// One of OpenAI's tables, with which tokens are counted exactly. A table is loaded once, by [`TokenizerTable::load`]
/// or at its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenizerTable {
    /// The table `o200k_base`, for GPT-4o and later models.
    O200k,
    /// The table `cl100k_base`, for GPT-4, GPT-3.5 and the embedding models.
    Cl100k,
}

impl TokenizerTable {
    /// Loads the table now, which takes a few hundred milliseconds, rather than with the first request.
    pub fn load(self) {
        self.table();
    }

    /// Counts the tokens of all text in this body that a model would read: messages, system prompt, prompt or input,
    /// and tools as JSON. Each message adds 4 tokens, a chat adds 3 more, and an image or another file counts as 1024.
    /// The count is exact for the text and for OpenAI's models only: other vendors' models split text differently, and
    /// every chat template adds tokens of its own.
    ///
    /// Returns `None` for a body larger than [`COUNTED_BYTES_MAX`], for one that is not a JSON object, and for one
    /// without any text field of its route. For such bodies, the estimate that is learned from bytes is better.
    ///
    /// Counting uses CPU time: about 20 ms, measured, for the largest bodies that are counted, and several times that
    /// for text made to be slow. Unless the body is small, call this where blocking is allowed, such as tokio's
    /// `spawn_blocking`.
    pub fn count(self, route: Route, body: &[u8]) -> Option<u64> {
        if body.len() > COUNTED_BYTES_MAX {
            return None;
        }
        let fields = serde_json::from_slice::<Map<String, Value>>(body).ok()?;
        TokenCounter { table: self.table() }.body(route, &fields)
    }

    /// Returns true if the table is loaded, so that counting does not have to load it first.
    pub fn is_loaded(self) -> bool {
        self.place().get().is_some()
    }

    fn place(self) -> &'static OnceLock<&'static CoreBPE> {
        match self {
            Self::O200k => &O200K,
            Self::Cl100k => &CL100K,
        }
    }

    fn table(self) -> &'static CoreBPE {
        self.place().get_or_init(|| match self {
            Self::O200k => tiktoken_rs::o200k_base_singleton(),
            Self::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        })
    }
}

struct TokenCounter {
    table: &'static CoreBPE,
}

impl TokenCounter {
    fn body(&self, route: Route, fields: &Map<String, Value>) -> Option<u64> {
        let read: &[&str] = match route {
            Route::ChatCompletions => &["messages"],
            Route::Completions => &["prompt", "suffix"],
            Route::Embeddings => &["input"],
            Route::Responses => &["instructions", "input"],
            Route::Messages | Route::CountTokens => &["system", "messages"],
        };
        let given = read.iter().filter_map(|&name| fields.get(name));
        let found: Vec<&Value> = given.filter(|value| !value.is_null()).collect();
        if found.is_empty() {
            return None;
        }
        let text: u64 = found.into_iter().map(|value| self.value(value)).sum();
        let tools: u64 = ["tools", "functions"]
            .iter()
            .filter_map(|&name| fields.get(name))
            .filter(|tools| !tools.is_null())
            .map(|tools| self.text(&tools.to_string()))
            .sum();
        let chat = matches!(route, Route::ChatCompletions | Route::Messages | Route::CountTokens);
        Some(text + tools + if chat { ANSWER_TOKENS } else { 0 })
    }

    /// Counts the tokens of all text in a value. A number counts as one token, because it is a token id that the client
    /// sent. The recursion is bounded, because `serde_json` limits the nesting of its input.
    fn value(&self, value: &Value) -> u64 {
        match value {
            Value::String(text) => self.text(text),
            Value::Number(_) => 1,
            Value::Array(items) => items.iter().map(|item| self.value(item)).sum(),
            Value::Object(fields) => {
                let message = if fields.contains_key("role") { MESSAGE_TOKENS } else { 0 };
                message + fields.iter().map(|(name, value)| self.member(name, value)).sum::<u64>()
            }
            Value::Null | Value::Bool(_) => 0,
        }
    }

    fn member(&self, name: &str, value: &Value) -> u64 {
        match name {
            "image_url" | "source" | "input_audio" | "file" | "file_data" | "file_url"
                if !value.is_null() =>
            {
                FILE_TOKENS
            }
            "type" | "role" | "id" | "call_id" | "tool_call_id" | "tool_use_id" | "status"
            | "detail" | "cache_control" | "signature" | "encrypted_content" | "file_id"
            | "index" => 0,
            _ => self.value(value),
        }
    }

    fn text(&self, text: &str) -> u64 {
        let mut rest = text;
        let mut tokens = 0;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(PART_BYTES_MAX));
            tokens += self.table.count_ordinary(part) as u64;
            rest = after;
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(route: Route, body: &str) -> u64 {
        TokenizerTable::O200k.count(route, body.as_bytes()).unwrap()
    }

    #[test]
    fn text_is_counted_and_names_are_not() {
        // "hello world" is two tokens in both tables.
        for table in [TokenizerTable::O200k, TokenizerTable::Cl100k] {
            let body = br#"{"model":"m","prompt":"hello world","user":"somebody"}"#;
            assert_eq!(table.count(Route::Completions, body), Some(2));
            let body = br#"{"model":"m","input":["hello world","hello world"]}"#;
            assert_eq!(table.count(Route::Embeddings, body), Some(4));
            let body = br#"{"model":"m","input":[[1,2,3],[4]]}"#;
            assert_eq!(table.count(Route::Embeddings, body), Some(4));
        }
    }

    #[test]
    fn chats_count_messages_tools_and_files() {
        let one = r#"{"messages":[{"role":"user","content":"hello world"}]}"#;
        assert_eq!(count(Route::ChatCompletions, one), 2 + 4 + 3);
        let parts = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hello world"},
            {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#;
        assert_eq!(count(Route::ChatCompletions, parts), 2 + 1024 + 4 + 3);
        let tools = r#"{"messages":[],"tools":[{"name":"f"}]}"#;
        let json = count(Route::Completions, r#"{"prompt":"[{\"name\":\"f\"}]"}"#);
        assert_eq!(count(Route::ChatCompletions, tools), json + 3);
    }

    #[test]
    fn each_dialect_has_its_own_places_for_text() {
        let messages =
            r#"{"system":"hello world","messages":[{"role":"user","content":"hello world"}]}"#;
        assert_eq!(count(Route::Messages, messages), 2 + 2 + 4 + 3);
        assert_eq!(count(Route::CountTokens, messages), 2 + 2 + 4 + 3);
        let responses = r#"{"instructions":"hello world","input":"hello world"}"#;
        assert_eq!(count(Route::Responses, responses), 4);
        let items = r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello world"}]}]}"#;
        assert_eq!(count(Route::Responses, items), 2 + 4);
    }

    #[test]
    fn nothing_is_said_of_what_cannot_be_counted() {
        let count = |route, body: &str| TokenizerTable::O200k.count(route, body.as_bytes());
        assert_eq!(count(Route::Completions, "12345"), None);
        assert_eq!(
            count(Route::Completions, r#"{"messages":["hello world"],"prompt":null}"#),
            None
        );
        assert_eq!(count(Route::Messages, r#"{"tools":[{"name":"f"}]}"#), None);
        assert_eq!(count(Route::ChatCompletions, r#"{"messages":[]}"#), Some(3));
        let body = |bytes: usize| format!(r#"{{"prompt":"{}"}}"#, " ".repeat(bytes - 13));
        assert!(count(Route::Completions, &body(COUNTED_BYTES_MAX)).is_some());
        assert_eq!(count(Route::Completions, &body(COUNTED_BYTES_MAX + 1)), None);
    }

    #[test]
    fn hostile_texts_are_counted_without_a_panic() {
        for text in [" ", "a", "\\n", "\u{1F980}", "' "] {
            let text = text.repeat(250_000 / text.len());
            let body = format!(r#"{{"prompt":"{text}"}}"#);
            assert!(count(Route::Completions, &body) > 0);
        }
    }
}
