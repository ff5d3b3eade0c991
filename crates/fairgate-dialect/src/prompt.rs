//! The canonical bytes of a prompt: the parts that an engine could reuse from its cache, in the order in which a chat
//! template renders them (tools, system, messages). The canonical bytes of a conversation's next turn begin with those
//! of the present turn.
//!
//! White space and the order of keys do not change the canonical bytes, except inside schemas and arguments, which
//! templates print as they are. Fields that only limit or steer the answer (`max_tokens`, `temperature`, `stream`) are
//! left out, and so are fields that no template prints (`cache_control`, `status`, members that are null). A text has
//! the same canonical bytes as a list that contains only this text.
//!
//! The format is a sequence of unescaped texts, separated by bytes that UTF-8 never uses, so that no text can imitate
//! another structure.

use crate::json_nodes::{JsonNodeKind, JsonNodes};
use crate::json_scanner::BLOB_TEXT_BYTES;
use crate::request_fields::RequestFields;
use crate::route::Route;

/// A piece of a prompt's canonical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptPiece<'a> {
    /// Bytes of texts, and of the separators between texts.
    Text(&'a [u8]),
    /// A file in the prompt, such as an image.
    File {
        /// Bytes of the file as in the body, usually base64.
        bytes: &'a [u8],
        /// Bytes of text that the file counts as: the file's size, but at most 4096.
        counted_bytes: usize,
    },
}

const STRING_END: u8 = 0xff;
const OBJECT: u8 = 0xfe;
const KEY_END: u8 = 0xfd;
const CLOSE: u8 = 0xfc;
const ARRAY: u8 = 0xfb;
const SCALAR: u8 = 0xfa;

/// Fields of any dialect that change how an engine renders or shares a prompt. Their canonical bytes come before those
/// of the prompt.
const BEFORE: [&str; 12] = [
    "cache_salt",
    "extra_key",
    "lora_path",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "documents",
    "reasoning",
    "reasoning_effort",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "suffix",
];

/// Members that make an engine compute the whole prompt again, whatever is cached. Beside each is the only value that
/// does not have this effect. They are vLLM's log probabilities of the prompt and llama.cpp's switch for the cache.
const COMPUTED_AGAIN_UNLESS: [(&str, &[u8]); 3] =
    [("prompt_logprobs", b"null"), ("echo", b"false"), ("cache_prompt", b"true")];

impl RequestFields {
    /// Passes the prompt's canonical bytes to `each`, in order, in pieces whose boundaries mean nothing. Returns false
    /// if no prefix can be determined, so that nothing counts as cached. This is so for embeddings, token counts,
    /// bodies with more parts than any prompt has, bodies with two prompts (the engine may read the other one), and
    /// requests for which engines use no cache.
    ///
    /// The model is not included, because the caller hashes it separately, by the name that is sent upstream.
    ///
    /// # Panics
    ///
    /// Panics if `body` is not the body that was read.
    pub fn prompt(&self, route: Route, body: &[u8], each: impl FnMut(PromptPiece<'_>)) -> bool {
        assert_eq!(
            body.len(),
            self.places.body_bytes,
            "the body that was read is the one that has the prompt"
        );
        let prompt: &[&str] = match route {
            Route::ChatCompletions => &["tools", "functions", "messages"],
            Route::Completions => &["prompt"],
            Route::Responses => &["tools", "instructions", "input"],
            Route::Messages => &["tools", "system", "messages"],
            Route::Embeddings | Route::CountTokens => return false,
        };
        let mut tape = JsonNodes::default();
        let mut fields = Vec::new();
        let Some(places) = self.prompt_places(body, prompt) else { return false };
        for (name, start) in places {
            match tape.read(body, start) {
                Some(at) => fields.push((name, at)),
                None => return false,
            }
        }
        let mut render =
            PromptWriter { body, tape: &tape, each, members: Vec::new(), buffer: Vec::new() };
        for id in [&self.previous_response, &self.conversation] {
            render.plain(id.as_deref().unwrap_or_default().as_bytes());
        }
        for (name, at) in fields {
            render.field(name, at);
        }
        render.flush();
        true
    }

    /// Returns the name and the value's offset of each member that is part of a prompt: first the members in
    /// [`BEFORE`], then those in `prompt`. Returns `None` if a member occurs twice (names are compared without regard
    /// to case), or if the engine would not use its cache.
    fn prompt_places<'n>(&self, body: &[u8], prompt: &[&'n str]) -> Option<Vec<(&'n str, usize)>> {
        let names: Vec<&'n str> = BEFORE.iter().chain(prompt).copied().collect();
        let mut starts = vec![None; names.len()];
        for (number, name) in self.other_members(body) {
            let value = self.other_value(body, number)?;
            let is = |known: &str| known.eq_ignore_ascii_case(&name);
            if COMPUTED_AGAIN_UNLESS.iter().any(|(known, usual)| is(known) && value != *usual) {
                return None;
            }
            let Some(at) = names.iter().position(|known| is(known)) else { continue };
            let start = self.places.others[number].end - value.len();
            if starts[at].replace(start).is_some() {
                return None;
            }
        }
        if let Some(at) = names.iter().position(|name| *name == "prompt") {
            starts[at] = self.places.prompt.as_ref().map(|value| value.start);
        }
        let found = names.into_iter().zip(starts);
        Some(found.filter_map(|(name, start)| Some((name, start?))).collect())
    }
}

/// Writes JSON values in canonical form, and passes the bytes on in pieces.
struct PromptWriter<'a, F> {
    body: &'a [u8],
    tape: &'a JsonNodes,
    each: F,
    /// Stack of the members of all objects that are being written, as indexes of their nodes.
    members: Vec<usize>,
    /// Short texts that were not passed on yet.
    buffer: Vec<u8>,
}

/// Size in bytes of the buffer in which short texts are collected, because passing on each line of a prompt on its own
/// would take longer than hashing it.
const BUFFER_BYTES: usize = 4096;

impl<F: FnMut(PromptPiece<'_>)> PromptWriter<'_, F> {
    fn field(&mut self, name: &str, at: usize) {
        self.text(name.as_bytes());
        self.byte(KEY_END);
        let is_string = matches!(self.tape.nodes[at].kind, JsonNodeKind::String { .. });
        // In the Responses API, an `input` that is a text is a user's message.
        if name == "input" && is_string {
            self.text(&[ARRAY, OBJECT]);
            self.text(b"role\xfduser\xffcontent\xfd");
            self.value(at, false);
            self.byte(CLOSE);
        } else if !self.plain_texts(at) {
            self.value(at, false);
        }
    }

    /// Writes a value. If `as_is` is true, keeps all members of objects in their order. The recursion is bounded,
    /// because [`RequestFields::read`] refuses a body deeper than [`DEPTH_MAX`](crate::json_scanner::DEPTH_MAX).
    fn value(&mut self, at: usize, as_is: bool) {
        let node = self.tape.nodes[at];
        let body = self.body;
        let bytes = &body[node.bytes()];
        match node.kind {
            JsonNodeKind::String { escaped } => self.string(bytes, escaped),
            JsonNodeKind::File => {
                let counted_bytes = bytes.len().min(BLOB_TEXT_BYTES);
                self.flush();
                (self.each)(PromptPiece::File { bytes, counted_bytes });
                self.byte(STRING_END);
            }
            JsonNodeKind::Scalar => {
                self.byte(SCALAR);
                for part in bytes.split(u8::is_ascii_whitespace) {
                    self.text(part);
                }
                self.byte(STRING_END);
            }
            JsonNodeKind::Array => {
                self.byte(ARRAY);
                let tape = self.tape;
                tape.items(at).for_each(|item| self.value(item, as_is));
                self.byte(CLOSE);
            }
            JsonNodeKind::Object => match self.only_text(at).filter(|_| !as_is) {
                Some(text) => self.value(text, as_is),
                None => self.object(at, as_is),
            },
        }
    }

    fn object(&mut self, at: usize, as_is: bool) {
        self.byte(OBJECT);
        let first = self.members.len();
        let tape = self.tape;
        for key in tape.items(at).step_by(2) {
            if as_is || !self.is_left_out(key) {
                self.members.push(key);
            }
        }
        if !as_is {
            let body = self.body;
            let key = |at: &usize| order(&body[tape.nodes[*at].bytes()]);
            self.members[first..].sort_by(|one, two| key(one).cmp(&key(two)));
        }
        for number in first..self.members.len() {
            let key = self.members[number];
            let name = &self.body[tape.nodes[key].bytes()];
            let value = key + 1;
            self.text(name);
            self.byte(KEY_END);
            let as_is = as_is || is_printed_as_is(name);
            if as_is || !self.plain_texts(value) {
                self.value(value, as_is);
            }
        }
        self.members.truncate(first);
        self.byte(CLOSE);
    }

    /// Writes a list of texts without brackets, so that a list of one text has the same bytes as that text. Returns
    /// false and writes nothing if the list has an item that is no text.
    fn plain_texts(&mut self, at: usize) -> bool {
        let tape = self.tape;
        let is_list = tape.nodes[at].kind == JsonNodeKind::Array && tape.items(at).next().is_some();
        if !is_list || !tape.items(at).all(|item| self.only_text(item).is_some()) {
            return false;
        }
        tape.items(at).for_each(|item| self.value(item, false));
        true
    }

    /// Returns the node of the text in an object `{"type": "text", "text": …}`; `None` if the object has other members.
    fn only_text(&self, at: usize) -> Option<usize> {
        if self.tape.nodes[at].kind != JsonNodeKind::Object {
            return None;
        }
        let mut text = None;
        for key in self.tape.items(at).step_by(2).filter(|&key| !self.is_left_out(key)) {
            let value = self.tape.nodes[key + 1];
            match &self.body[self.tape.nodes[key].bytes()] {
                b"text" if matches!(value.kind, JsonNodeKind::String { .. }) => {
                    text = Some(key + 1)
                }
                b"type"
                    if matches!(
                        &self.body[value.bytes()],
                        b"text" | b"input_text" | b"output_text"
                    ) => {}
                _ => return None,
            }
        }
        text
    }

    /// Returns true if no chat template prints the member with this key.
    fn is_left_out(&self, key: usize) -> bool {
        let value = self.tape.nodes[key + 1];
        let value_is = |text: &[u8]| &self.body[value.bytes()] == text;
        match &self.body[self.tape.nodes[key].bytes()] {
            b"cache_control" | b"status" | b"annotations" => true,
            // This is the default type of a response's item.
            b"type" if value_is(b"message") => true,
            _ => value.kind == JsonNodeKind::Scalar && value_is(b"null"),
        }
    }

    fn string(&mut self, mut bytes: &[u8], escaped: bool) {
        while let Some(at) = memchr::memchr(b'\\', bytes).filter(|_| escaped) {
            let (before, rest) = bytes.split_at(at);
            self.text(before);
            bytes = self.escape(rest);
        }
        self.plain(bytes);
    }

    /// Writes the character of the escape at the start of `bytes`. Returns the bytes after the escape.
    fn escape<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let plain = match bytes.get(1) {
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode(bytes),
            Some(&other) => other,
            None => return &[],
        };
        self.byte(plain);
        &bytes[2..]
    }

    /// Writes the character of a numeric escape, or of two numeric escapes that form a surrogate pair. Half of a pair
    /// is written unchanged. Returns the bytes after the escape or the pair.
    fn unicode<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let unit = |at: usize| {
            let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let units = [unit(0), unit(6)].map(Option::unwrap_or_default);
        match char::decode_utf16(units).next() {
            Some(Ok(character)) => {
                self.text(character.encode_utf8(&mut [0; 4]).as_bytes());
                &bytes[6 * character.len_utf16()..]
            }
            _ => {
                self.text(&bytes[..6]);
                &bytes[6..]
            }
        }
    }

    fn plain(&mut self, bytes: &[u8]) {
        self.text(bytes);
        self.byte(STRING_END);
    }

    fn byte(&mut self, byte: u8) {
        self.text(&[byte]);
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush();
        }
        if bytes.len() > BUFFER_BYTES {
            (self.each)(PromptPiece::Text(bytes));
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            (self.each)(PromptPiece::Text(&self.buffer));
            self.buffer.clear();
        }
    }
}

/// Returns the sort key of an object's member. Short members come first and a long text comes last. So a text that the
/// next turn may extend is at the end of its message, and no other member follows the text.
fn order(key: &[u8]) -> (u8, &[u8]) {
    let rank = match key {
        b"role" => 0,
        b"type" => 1,
        b"name" => 2,
        _ => 3,
    };
    (rank, key)
}

/// Returns true if chat templates print the value under this key as JSON, such as schemas and arguments.
fn is_printed_as_is(key: &[u8]) -> bool {
    matches!(key, b"parameters" | b"input_schema" | b"schema" | b"arguments" | b"input")
}
