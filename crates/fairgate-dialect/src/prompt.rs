//! The canonical bytes of a prompt: what an engine would reuse of it, in the order in which a chat template renders it (tools,
//! system, messages). A conversation's next turn has the bytes of this one at its beginning.
//!
//! White space and the order of keys do not matter, except inside of schemas and arguments, which templates print as they
//! are. What only bounds or steers the answer (`max_tokens`, `temperature`, `stream`) is left out, and so is what no
//! template prints (`cache_control`, `status`, members that are null). A text and a list of that one text are the same.
//!
//! The form: texts with escapes undone, and bytes that UTF-8 never has in between, so that no text can pass for another
//! structure.

mod tape;

use self::tape::{Kind, Tape};
use crate::ask::Ask;
use crate::route::Route;
use crate::scan::BLOB_TEXT_BYTES;

/// A part of a prompt's canonical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text, and the marks between texts.
    Text(&'a [u8]),
    /// A file in base64, or the like.
    File {
        /// The file as it stands in the body.
        bytes: &'a [u8],
        /// How many bytes of text it counts as: its size, 4096 at most.
        counted_bytes: usize,
    },
}

const STRING_END: u8 = 0xff;
const OBJECT: u8 = 0xfe;
const KEY_END: u8 = 0xfd;
const CLOSE: u8 = 0xfc;
const ARRAY: u8 = 0xfb;
const SCALAR: u8 = 0xfa;

/// What comes before the prompt in any dialect and changes how an engine renders or shares it.
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

/// Where a member has another value than this, engines compute all of a prompt again, whatever is cached: log probabilities
/// of the prompt (vLLM), and llama.cpp's switch.
const COMPUTED_AGAIN_UNLESS: [(&str, &[u8]); 3] =
    [("prompt_logprobs", b"null"), ("echo", b"false"), ("cache_prompt", b"true")];

impl Ask {
    /// Gives the prompt's canonical bytes to `each`, in order, in pieces whose boundaries mean nothing. False where there is nothing that can
    /// be told, so that nothing counts as cached: embeddings, token counts, bodies of more parts than any prompt has, bodies with two
    /// prompts (the engine may read the other one), and requests for which engines use no cache.
    ///
    /// The model is not among them: it is given to whoever hashes them by the name that is sent upstream.
    ///
    /// # Panics
    ///
    /// Where `body` is not the one that was read.
    pub fn prompt(&self, route: Route, body: &[u8], each: impl FnMut(Piece<'_>)) -> bool {
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
        let mut tape = Tape::default();
        let mut fields = Vec::new();
        let Some(places) = self.prompt_places(body, prompt) else { return false };
        for (name, start) in places {
            match tape.read(body, start) {
                Some(at) => fields.push((name, at)),
                None => return false,
            }
        }
        let mut render =
            Render { body, tape: &tape, each, members: Vec::new(), buffer: Vec::new() };
        for id in [&self.previous_response, &self.conversation] {
            render.plain(id.as_deref().unwrap_or_default().as_bytes());
        }
        for (name, at) in fields {
            render.field(name, at);
        }
        render.flush();
        true
    }

    /// Where the values of the members begin that make a prompt, in the order of their names. `None` where one stands twice in any
    /// spelling that some reader may take for the same, and where no cache would be used.
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

/// Writes what a tape has in canonical form.
struct Render<'a, F> {
    body: &'a [u8],
    tape: &'a Tape,
    each: F,
    /// The places of an object's members, for all objects that are being written.
    members: Vec<usize>,
    /// Short texts that were not given out yet.
    buffer: Vec<u8>,
}

/// Shorter texts are given out together: a call for each line of a prompt would take longer than to hash it.
const BUFFER_BYTES: usize = 4096;

impl<F: FnMut(Piece<'_>)> Render<'_, F> {
    fn field(&mut self, name: &str, at: usize) {
        self.text(name.as_bytes());
        self.byte(KEY_END);
        let is_string = matches!(self.tape.nodes[at].kind, Kind::String { .. });
        // Responses: `input` as a text is a user's message.
        if name == "input" && is_string {
            self.text(&[ARRAY, OBJECT]);
            self.text(b"role\xfduser\xffcontent\xfd");
            self.value(at, false);
            self.byte(CLOSE);
        } else if !self.plain_texts(at) {
            self.value(at, false);
        }
    }

    /// Writes a value. `as_is` keeps all members of objects in their order. Nesting is bounded: [`Ask::read`] has refused what is
    /// deeper than [`crate::scan::DEPTH_MAX`].
    fn value(&mut self, at: usize, as_is: bool) {
        let node = self.tape.nodes[at];
        let body = self.body;
        let bytes = &body[node.bytes()];
        match node.kind {
            Kind::String { escaped } => self.string(bytes, escaped),
            Kind::File => {
                let counted_bytes = bytes.len().min(BLOB_TEXT_BYTES);
                self.flush();
                (self.each)(Piece::File { bytes, counted_bytes });
                self.byte(STRING_END);
            }
            Kind::Scalar => {
                self.byte(SCALAR);
                for part in bytes.split(u8::is_ascii_whitespace) {
                    self.text(part);
                }
                self.byte(STRING_END);
            }
            Kind::Array => {
                self.byte(ARRAY);
                let tape = self.tape;
                tape.items(at).for_each(|item| self.value(item, as_is));
                self.byte(CLOSE);
            }
            Kind::Object => match self.only_text(at).filter(|_| !as_is) {
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

    /// Writes a list of nothing but texts without its brackets: a lone text is then the same as the text itself.
    fn plain_texts(&mut self, at: usize) -> bool {
        let tape = self.tape;
        let is_list = tape.nodes[at].kind == Kind::Array && tape.items(at).next().is_some();
        if !is_list || !tape.items(at).all(|item| self.only_text(item).is_some()) {
            return false;
        }
        tape.items(at).for_each(|item| self.value(item, false));
        true
    }

    /// The text of `{"type": "text", "text": …}`, where there is nothing else in it.
    fn only_text(&self, at: usize) -> Option<usize> {
        if self.tape.nodes[at].kind != Kind::Object {
            return None;
        }
        let mut text = None;
        for key in self.tape.items(at).step_by(2).filter(|&key| !self.is_left_out(key)) {
            let value = self.tape.nodes[key + 1];
            match &self.body[self.tape.nodes[key].bytes()] {
                b"text" if matches!(value.kind, Kind::String { .. }) => text = Some(key + 1),
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

    /// Whether no template prints a member.
    fn is_left_out(&self, key: usize) -> bool {
        let value = self.tape.nodes[key + 1];
        let value_is = |text: &[u8]| &self.body[value.bytes()] == text;
        match &self.body[self.tape.nodes[key].bytes()] {
            b"cache_control" | b"status" | b"annotations" => true,
            // What an item of a response is where it does not say.
            b"type" if value_is(b"message") => true,
            _ => value.kind == Kind::Scalar && value_is(b"null"),
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

    /// Writes one escape, and says what follows it.
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

    /// Writes an escape by number, or two of them that are one character. Half of a pair is written as it stands.
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
            (self.each)(Piece::Text(bytes));
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            (self.each)(Piece::Text(&self.buffer));
            self.buffer.clear();
        }
    }
}

/// What is short comes first, so that a long text that another one extends is not followed by anything of its own message.
fn order(key: &[u8]) -> (u8, &[u8]) {
    let rank = match key {
        b"role" => 0,
        b"type" => 1,
        b"name" => 2,
        _ => 3,
    };
    (rank, key)
}

/// Whether templates print what stands under this key as the JSON that it is.
fn is_printed_as_is(key: &[u8]) -> bool {
    matches!(key, b"parameters" | b"input_schema" | b"schema" | b"arguments" | b"input")
}
