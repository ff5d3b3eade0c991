//! Finds the files in a request's body, and bounds the tokens that a provider may count for them. A budget reserves
//! these tokens.
//!
//! The kind of a file follows from the type that the JSON part around it states, and from the file's first bytes. The
//! tokens of an image are computed from the size in its header, those of a PDF from its pages, its bytes and its text,
//! and those of a sound from its bytes. A text in base64 counts by its bytes, like other text. An image that the body
//! only names by id or URL counts as the largest image. Any other file that is only named, or whose kind is not known,
//! counts as if it filled all that the model can read.
//!
//! The default rates are upper bounds on the numbers in these documents: OpenAI, "Images and vision" (patches of 32 ×
//! 32 pixels times at most 2.46, which is one token per 416 pixels; 85 + 170 per tile, at most 1 445); Anthropic,
//! "Vision" (width × height ÷ 750, at most 4 784); Google, "Media resolution" (1 120 an image); Anthropic, "PDF
//! support" (1 500 to 3 000 a page).
//!
//! The search is bounded: for all PDFs of a request together, at most [`READ_BYTES_MAX`] of base64 are decoded and
//! inflated to at most [`INFLATED_BYTES_MAX`](pdf_scan::INFLATED_BYTES_MAX). A PDF beyond these bounds counts as
//! unreadable.

mod base64;
mod image_header;
mod pdf_scan;

use std::borrow::Cow;

use crate::json_nodes::{JsonNodeKind, JsonNodes};
use crate::json_scanner::is_base64;
use crate::request_fields::RequestFields;

/// Greatest number of bytes of base64 that are decoded to count the pages of a request's PDFs.
const READ_BYTES_MAX: usize = 8 << 20;
/// Number of bytes of base64 that are decoded to find the size of an image. In a JPEG, the size may come after a
/// preview.
const HEADER_BYTES_MAX: usize = 256 << 10;
/// Members of a body in which no files are searched, because they hold no prompt or only look like files.
const NOT_SEARCHED: [&str; 4] = ["tools", "functions", "response_format", "metadata"];

/// Numbers by which the tokens of files are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTokenRates {
    /// Tokens for each page of a PDF.
    pub pdf_page_tokens: u64,
    /// Number of bytes of a PDF, after its streams were inflated, that count as one token. A PDF counts by its bytes or
    /// by its pages, whichever gives more tokens.
    pub pdf_bytes_per_token: u64,
    /// Number of pixels of an image that count as one token.
    pub image_pixels_per_token: u64,
    /// Least number of tokens of an image.
    pub image_tokens_min: u64,
    /// Greatest number of tokens of an image. Also the number of tokens of an image whose size cannot be read or that
    /// is given by id or URL.
    pub image_tokens_max: u64,
    /// Number of bytes of a sound that count as one token.
    pub audio_bytes_per_token: u64,
    /// Number of tokens of any other file that cannot be read, or that is given by id or URL.
    pub unreadable_tokens: u64,
}

/// The files of a request, with the numbers that a reservation needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFiles {
    /// Number of files.
    pub count: u64,
    /// Upper bound on the tokens of all files together.
    pub tokens: u64,
    /// Number of bytes of the body that belong to none of the request's files and count as text.
    pub text_bytes: u64,
}

impl RequestFields {
    /// Finds the files of a request. Takes CPU time that grows with the body, up to some 50 ms for a body that is made
    /// to be slow, so call this where blocking is allowed.
    pub fn files(&self, body: &[u8], rates: &FileTokenRates) -> RequestFiles {
        let mut search = FileSearch {
            body,
            nodes: JsonNodes::default(),
            rates,
            found: RequestFiles::default(),
            hidden_bytes: 0,
            pdf_budget: pdf_scan::PdfScanBudget {
                read_bytes: READ_BYTES_MAX,
                ..Default::default()
            },
        };
        if self.mentions_files {
            match search.nodes.read(body, 0) {
                Some(root) => search.body(root),
                // The body has more parts than any prompt has, so nothing is known of the files among them.
                None => search.add(rates.unreadable_tokens, 0),
            }
        }
        let text_bytes = body.len().saturating_sub(search.hidden_bytes) as u64;
        RequestFiles { text_bytes, ..search.found }
    }
}

/// Kind of a file, as the JSON part around it states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Image,
    Audio,
    /// A document, a video, or a file of a kind that is not stated.
    Other,
}

/// A string that holds a file or names its address, with the file's media type.
struct FileString<'a> {
    /// Media type, in lower case; empty if nothing states it.
    media_type: Cow<'a, str>,
    /// The base64 text of the file; `None` if the file is not in the body, or is not base64.
    base64: Option<&'a [u8]>,
}

struct FileSearch<'a> {
    body: &'a [u8],
    nodes: JsonNodes,
    rates: &'a FileTokenRates,
    found: RequestFiles,
    /// Bytes of the body that belong to files and not to texts.
    hidden_bytes: usize,
    pdf_budget: pdf_scan::PdfScanBudget,
}

impl<'a> FileSearch<'a> {
    fn body(&mut self, root: usize) {
        for (key, value) in self.members(root) {
            if !NOT_SEARCHED.contains(&&*key) {
                self.member(&key, value, FileKind::Other);
            }
        }
    }

    fn value(&mut self, at: usize) {
        match self.nodes.nodes[at].kind {
            JsonNodeKind::Array => {
                let items: Vec<usize> = self.nodes.items(at).collect();
                items.into_iter().for_each(|item| self.value(item));
            }
            JsonNodeKind::Object => self.object(at, FileKind::Other),
            _ => {}
        }
    }

    /// Searches an object for files. `around` is the kind of file that the enclosing object states.
    fn object(&mut self, at: usize, around: FileKind) {
        let members = self.members(at);
        let types: Vec<Cow<'a, str>> = members
            .iter()
            .filter(|(key, _)| key == "type")
            .filter_map(|(_, value)| self.string(*value))
            .collect();
        let kind =
            types.iter().map(|name| kind_of_part(name)).find(|kind| *kind != FileKind::Other);
        let kind = kind.unwrap_or(around);
        let is_call = types.iter().any(|name| name.ends_with("tool_use"));
        for (key, value) in members {
            // The arguments of a call are text, whatever their names.
            if !(is_call && key == "input") {
                self.member(&key, value, kind);
            }
        }
    }

    fn member(&mut self, key: &str, value: usize, kind: FileKind) {
        let string = self.string(value);
        match (key, string) {
            ("image_url" | "image" | "b64_json", Some(text)) => {
                self.file(&text, value, FileKind::Image, "")
            }
            ("audio_url" | "input_audio" | "audio", Some(text)) if is_address(&text) => {
                self.file(&text, value, FileKind::Audio, "");
            }
            ("file_data", Some(text)) => self.file(&text, value, kind, ""),
            ("video_url" | "file_url" | "file_id", Some(_)) => self.named_file(kind),
            ("source", None) => self.source(value, kind),
            ("image_url" | "b64_json", None) => self.addressed(value, FileKind::Image),
            ("input_audio" | "audio_url" | "audio", None) => self.addressed(value, FileKind::Audio),
            ("video_url", None) => self.addressed(value, FileKind::Other),
            ("file", None) => self.object_or_list(value, kind),
            (_, None) => self.value(value),
            (_, Some(_)) => {}
        }
    }

    fn object_or_list(&mut self, at: usize, kind: FileKind) {
        match self.nodes.nodes[at].kind {
            JsonNodeKind::Object => self.object(at, kind),
            _ => self.value(at),
        }
    }

    /// Adds the file of an object `{"url": …}` or `{"data": …, "format": …}`.
    fn addressed(&mut self, at: usize, kind: FileKind) {
        if self.nodes.nodes[at].kind != JsonNodeKind::Object {
            return self.value(at);
        }
        for (key, value) in self.members(at) {
            match (&*key, self.string(value)) {
                ("url" | "data", Some(text)) => self.file(&text, value, kind, ""),
                _ => self.member(&key, value, kind),
            }
        }
    }

    /// Adds the file of Anthropic's `source`. A source of the type `text` counts as text.
    fn source(&mut self, at: usize, kind: FileKind) {
        if self.nodes.nodes[at].kind != JsonNodeKind::Object {
            return self.value(at);
        }
        let members = self.members(at);
        let texts = |wanted: &str| -> Vec<Cow<'a, str>> {
            let named = members.iter().filter(|(key, _)| key == wanted);
            named.filter_map(|(_, value)| self.string(*value)).collect()
        };
        let (types, media) = (texts("type"), texts("media_type"));
        let is_text = !types.is_empty() && types.iter().all(|name| name == "text");
        let media_type = media.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        for (key, value) in members {
            match (&*key, self.string(value)) {
                ("data", Some(_)) if is_text => {}
                ("data" | "url", Some(text)) => self.file(&text, value, kind, &media_type),
                _ => self.member(&key, value, kind),
            }
        }
    }

    /// Adds a file that the body names by id or URL.
    fn named_file(&mut self, kind: FileKind) {
        let tokens = match kind {
            FileKind::Image => self.rates.image_tokens_max,
            FileKind::Audio | FileKind::Other => self.rates.unreadable_tokens,
        };
        self.add(tokens, 0);
    }

    /// Adds the file whose bytes or address is the string at node `at`.
    fn file(&mut self, text: &str, at: usize, kind: FileKind, media_type: &str) {
        let string = &self.body[self.nodes.nodes[at].bytes()];
        let file = FileString::read(text, string, media_type);
        let Some(encoded) = file.base64 else { return self.named_file(kind) };
        let head = base64::decode(encoded, HEADER_BYTES_MAX);
        let bytes = base64::decoded_len(encoded) as u64;
        let rates = self.rates;
        let tokens = if pdf_scan::is_pdf(&head) {
            let pdf = self.pdf_budget.scan(encoded);
            let by_bytes = |bytes: u64| bytes.div_ceil(rates.pdf_bytes_per_token.max(1));
            match pdf {
                Some(pdf) => by_bytes(pdf.bytes)
                    .max(pdf.pages.saturating_mul(rates.pdf_page_tokens))
                    .max(text_tokens(pdf.text_bytes)),
                None => by_bytes(bytes).max(rates.unreadable_tokens),
            }
        } else if kind == FileKind::Image || file.media_type.starts_with("image/") {
            match image_header::size(&head) {
                Some((width, height)) => {
                    let pixels = u64::from(width) * u64::from(height);
                    let tokens = pixels.div_ceil(rates.image_pixels_per_token.max(1));
                    tokens.max(rates.image_tokens_min).min(rates.image_tokens_max)
                }
                None => rates.image_tokens_max,
            }
        } else if kind == FileKind::Audio || file.media_type.starts_with("audio/") {
            bytes.div_ceil(rates.audio_bytes_per_token.max(1))
        } else if file.media_type.starts_with("text/") || file.media_type == "application/json" {
            text_tokens(bytes)
        } else {
            rates.unreadable_tokens
        };
        self.add(tokens, encoded.len());
    }

    fn add(&mut self, tokens: u64, hidden_bytes: usize) {
        self.found.count += 1;
        self.found.tokens = self.found.tokens.saturating_add(tokens);
        self.hidden_bytes += hidden_bytes;
    }

    /// Returns the members of an object, with their keys unescaped and in lower case, because some upstreams do not
    /// distinguish upper and lower case.
    fn members(&self, object: usize) -> Vec<(String, usize)> {
        let keys = self.nodes.items(object).step_by(2);
        keys.map(|key| {
            let name = self.text(key).unwrap_or_default();
            (name.to_ascii_lowercase(), key + 1)
        })
        .collect()
    }

    /// Returns the text of a string; `None` if the node is another value.
    fn string(&self, at: usize) -> Option<Cow<'a, str>> {
        match self.nodes.nodes[at].kind {
            JsonNodeKind::String { .. } | JsonNodeKind::File => self.text(at),
            _ => None,
        }
    }

    fn text(&self, at: usize) -> Option<Cow<'a, str>> {
        let node = self.nodes.nodes[at];
        let bytes = node.bytes();
        let raw = std::str::from_utf8(&self.body[bytes.clone()]).ok()?;
        match node.kind {
            JsonNodeKind::String { escaped: true } => {
                // A string that cannot be unescaped has half a surrogate pair. It stays a string.
                let quoted = &self.body[bytes.start - 1..bytes.end + 1];
                Some(
                    serde_json::from_slice::<String>(quoted).map_or(Cow::Borrowed(raw), Cow::Owned),
                )
            }
            _ => Some(Cow::Borrowed(raw)),
        }
    }
}

impl<'a> FileString<'a> {
    /// Reads a data URL, another URL, or base64. `text` is the unescaped text of `string`.
    fn read(text: &str, string: &'a [u8], media_type: &str) -> Self {
        let own = |media_type: &str| Cow::Owned(media_type.to_ascii_lowercase());
        let scheme = text.get(..5).unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("data:") {
            let is_address = is_address(text) || !is_base64(string) || string.is_empty();
            return Self { media_type: own(media_type), base64: (!is_address).then_some(string) };
        }
        let stated = text[5..].split([';', ',']).next().unwrap_or_default();
        let comma = memchr::memmem::find(string, b"base64,").map(|at| at + b"base64,".len());
        let payload = comma.map(|at| &string[at..]).filter(|payload| is_base64(payload));
        Self { media_type: own(stated), base64: payload }
    }
}

/// Returns the number of tokens that a budget reserves for this much text, at two bytes per token.
fn text_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(2)
}

/// Returns true if the text is a URL.
fn is_address(text: &str) -> bool {
    let head = text.get(..16).unwrap_or(text);
    head.contains("://") || head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Returns the kind of file that a JSON part of this type holds.
fn kind_of_part(name: &str) -> FileKind {
    match name {
        "image" | "image_url" | "input_image" | "computer_screenshot" => FileKind::Image,
        "input_audio" | "audio" | "audio_url" => FileKind::Audio,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests;
