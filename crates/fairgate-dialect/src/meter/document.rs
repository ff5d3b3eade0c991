//! Reads one JSON document of an answer as it passes, in chunks cut anywhere, and keeps only a few numbers.
//!
//! The parser follows the structure only. It does not check the content of numbers and literals, because the client
//! will do that. A body that is not a JSON document counts as text from beginning to end.

use super::answer_shape::{AnswerLeaf, AnswerPlace, AnswerShape, TokenKind, ValueMeaning};
use super::tally::UsageReport;
use crate::request_fields::ID_BYTES_MAX;
use crate::route::Route;

/// Deepest nesting that is read; a deeper document counts as unreadable.
const DEPTH_MAX: usize = 64;
/// Most ids of output items that are kept of one answer.
const ITEM_IDS_MAX: usize = 128;
/// Length in bytes of the longest key, string or literal that is compared with known words.
const WORD_BYTES_MAX: usize = 32;
/// Bytes of text that the escape `\uXXXX` counts as. The escape stands for one to four bytes, mostly for three.
const UNICODE_TEXT_BYTES: u64 = 3;

/// The parts of a document that the meter uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DocumentFindings {
    /// Bytes of text that a model wrote.
    pub(super) text_bytes: u64,
    /// Usage that the upstream reports.
    pub(super) report: Option<UsageReport>,
    pub(super) choices: ChoicesState,
    pub(super) kind: AnswerEventKind,
    /// True if the document has an `error` that is not null.
    pub(super) error: bool,
    /// True if the document has the reason why the model stopped.
    pub(super) finished: bool,
}

/// State of the list `choices` in a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChoicesState {
    #[default]
    Absent,
    Empty,
    Some,
}

/// The type of an event, as far as the meter distinguishes types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerEventKind {
    #[default]
    Other,
    /// The answer has ended properly.
    End,
    /// The answer has ended with a failure.
    Failed,
    /// An error event, after which further events of the answer may follow.
    Error,
}

impl AnswerEventKind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"message_stop" | b"response.completed" | b"response.incomplete" => Self::End,
            b"response.failed" => Self::Failed,
            b"error" => Self::Error,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentState {
    /// Between two tokens of the JSON text.
    Between,
    /// Within a number, `true`, `false` or `null`.
    Bare,
    /// Within a string or key.
    String,
    /// After a backslash in a string.
    Escape,
    /// Within the digits of `\uXXXX`, with the number of digits that are still to come.
    Hex(u8),
    /// After the end of the document; further bytes are ignored.
    Done,
    /// The input is not a JSON document.
    Broken,
}

/// An object or array whose end has not been read yet.
#[derive(Clone, Copy)]
struct OpenContainer {
    object: bool,
    place: AnswerPlace,
    /// True if the next string in the container is a key.
    key_next: bool,
    /// Meaning of the next value in the container.
    under: ValueMeaning,
}

/// A parser for one JSON document that arrives in chunks.
pub(super) struct AnswerDocument {
    shape: AnswerShape,
    state: DocumentState,
    frames: [OpenContainer; DEPTH_MAX],
    depth: usize,
    /// True if the string that is being read is a key.
    in_key: bool,
    word: ShortWord,
    found: DocumentFindings,
    fed_bytes: u64,
    members: RootMembers,
    id: AnswerId,
    items: AnswerItemIds,
}

/// The first id of an answer. The id is kept only for the Responses API, where a client can refer to the answer later.
/// [`AnswerDocument::restart`] keeps the id, because all events of a stream have the same one.
#[derive(Default)]
struct AnswerId {
    text: Vec<u8>,
    whole: bool,
}

/// The ids of an answer's output items, without duplicates. A client can refer to them later, as to the answer.
#[derive(Default)]
struct AnswerItemIds {
    /// The id that is being read; `None` if it is too long or has escapes.
    text: Option<Vec<u8>>,
    whole: Vec<Box<str>>,
}

/// Offsets in the root object that are needed to cut out a `"usage":null`.
#[derive(Clone, Copy, Default)]
struct RootMembers {
    /// Offset of the last comma between two members of the root object; `None` before the first comma.
    comma_at: Option<u64>,
    /// Offset of the last key in the root object.
    key_at: u64,
    /// Range of `"usage":null` with one comma; `None` if there is no such member.
    null_usage: Option<(u64, u64)>,
    /// True if `"usage":null` was the first member and the comma after it, which must be cut out too, has not been read
    /// yet.
    wants_comma: bool,
}

impl AnswerDocument {
    pub(super) fn new(shape: AnswerShape) -> Self {
        let frame = OpenContainer {
            object: false,
            place: AnswerPlace::Elsewhere,
            key_next: false,
            under: ValueMeaning::ROOT,
        };
        Self {
            shape,
            state: DocumentState::Between,
            frames: [frame; DEPTH_MAX],
            depth: 0,
            in_key: false,
            word: ShortWord::default(),
            found: DocumentFindings::default(),
            fed_bytes: 0,
            members: RootMembers::default(),
            id: AnswerId::default(),
            items: AnswerItemIds::default(),
        }
    }

    /// Returns the id under which the upstream stores the answer, once it was read.
    pub(super) fn id(&self) -> Option<&str> {
        std::str::from_utf8(&self.id.text).ok().filter(|_| self.id.whole)
    }

    /// Returns the ids of the output items that were read, at most [`ITEM_IDS_MAX`].
    pub(super) fn item_ids(&self) -> &[Box<str>] {
        &self.items.whole
    }

    /// Resets the parser, so that the next byte begins another document.
    pub(super) fn restart(&mut self) {
        self.state = DocumentState::Between;
        self.depth = 0;
        self.found = DocumentFindings::default();
        self.fed_bytes = 0;
        self.members = RootMembers::default();
    }

    /// Returns the range of a `"usage":null` of the root object in the bytes that were fed. The range includes one
    /// comma, so that the document is valid without the range.
    pub(super) fn null_usage(&self) -> Option<(u64, u64)> {
        self.members.null_usage.filter(|_| self.is_done())
    }

    /// Returns true if the document has ended.
    pub(super) fn is_done(&self) -> bool {
        self.state == DocumentState::Done
    }

    /// Returns the findings so far. All bytes of an unreadable document count as text.
    pub(super) fn found(&self) -> DocumentFindings {
        match self.state {
            DocumentState::Broken => DocumentFindings { text_bytes: self.fed_bytes, ..self.found },
            _ => self.found,
        }
    }

    /// Reads the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.fed_bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = match self.state {
                DocumentState::Between => self.between(rest),
                DocumentState::Bare => self.bare(rest),
                DocumentState::String => self.string(rest),
                DocumentState::Escape => self.escape(rest[0]),
                DocumentState::Hex(left) => {
                    self.state =
                        if left > 1 { DocumentState::Hex(left - 1) } else { DocumentState::String };
                    1
                }
                DocumentState::Done | DocumentState::Broken => return,
            };
            rest = &rest[read..];
        }
    }

    /// Reads at most the beginning of one token; returns the number of bytes read.
    fn between(&mut self, rest: &[u8]) -> usize {
        let skipped = match self.frame() {
            Some(frame) if frame.place == AnswerPlace::Elsewhere => until_structure(rest),
            _ => rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count(),
        };
        let Some(&byte) = rest.get(skipped) else { return skipped };
        if self.depth == 1 {
            self.note_member(byte, self.fed_bytes - (rest.len() - skipped) as u64);
        }
        match (byte, self.depth) {
            (b'{' | b'[', _) => self.open(byte == b'{'),
            (_, 0) => self.state = DocumentState::Broken,
            (b'}' | b']', _) => self.close(byte == b'}'),
            (b'"', _) => self.quote(),
            (b',', _) => self.separate(),
            (b':', _) => {}
            _ => {
                self.touch_element();
                self.word.clear();
                self.state = DocumentState::Bare;
                return skipped;
            }
        }
        skipped + 1
    }

    /// Records the offsets of commas and keys of the root object.
    fn note_member(&mut self, byte: u8, at: u64) {
        let key_next = self.frames[0].key_next;
        let members = &mut self.members;
        match byte {
            b',' => {
                if let Some((_, end)) = &mut members.null_usage
                    && std::mem::take(&mut members.wants_comma)
                {
                    *end = at + 1;
                }
                members.comma_at = Some(at);
            }
            b'"' if key_next => members.key_at = at,
            _ => {}
        }
    }

    fn frame(&mut self) -> Option<&mut OpenContainer> {
        self.depth.checked_sub(1).map(|top| &mut self.frames[top])
    }

    /// Returns the meaning of the value that begins at the current byte.
    fn under(&mut self) -> ValueMeaning {
        self.frame().map_or(ValueMeaning::ROOT, |frame| frame.under)
    }

    fn open(&mut self, object: bool) {
        let ValueMeaning { mut place, leaf } = self.under();
        self.touch_element();
        match leaf {
            AnswerLeaf::Error => self.found.error = true,
            AnswerLeaf::Tokens(_) => self.absurd(),
            _ => {}
        }
        match (place, object) {
            (AnswerPlace::Usage, true) => self.found.report = Some(UsageReport::default()),
            (AnswerPlace::Choices, false) => self.found.choices = ChoicesState::Empty,
            (AnswerPlace::Content | AnswerPlace::Written, _)
            | (AnswerPlace::EventItems | AnswerPlace::OutputItems, false)
            | (AnswerPlace::EventItem | AnswerPlace::OutputItem, true)
            | (
                AnswerPlace::Top
                | AnswerPlace::Answer
                | AnswerPlace::Details
                | AnswerPlace::CacheCreation,
                true,
            ) => {}
            _ => place = AnswerPlace::Elsewhere,
        }
        if self.depth == DEPTH_MAX {
            self.state = DocumentState::Broken;
            return;
        }
        let under = self.shape.element(place);
        self.frames[self.depth] = OpenContainer { object, place, key_next: object, under };
        self.depth += 1;
    }

    fn close(&mut self, object: bool) {
        if self.frame().is_none_or(|frame| frame.object != object) {
            self.state = DocumentState::Broken;
            return;
        }
        self.depth -= 1;
        if self.depth == 0 {
            self.state = DocumentState::Done;
        }
    }

    fn separate(&mut self) {
        if let Some(frame) = self.frame() {
            frame.key_next = frame.object;
        }
    }

    fn quote(&mut self) {
        self.in_key = self.frame().is_some_and(|frame| frame.key_next);
        if !self.in_key {
            self.touch_element();
            if let AnswerLeaf::Tokens(_) = self.under().leaf {
                self.absurd();
            }
        }
        self.word.clear();
        if self.is_in_id() {
            self.id.text.clear();
        }
        if self.is_in_item_id() {
            self.items.text = Some(Vec::new());
        }
        self.state = DocumentState::String;
    }

    /// Returns true if the current string is an id to keep.
    fn is_in_id(&mut self) -> bool {
        self.shape.route == Route::Responses
            && !self.id.whole
            && !self.in_key
            && self.under().leaf == AnswerLeaf::Id
    }

    /// Returns true if the current string is the id of an output item to keep.
    fn is_in_item_id(&mut self) -> bool {
        self.shape.route == Route::Responses
            && self.items.whole.len() < ITEM_IDS_MAX
            && !self.in_key
            && self.under().leaf == AnswerLeaf::ItemId
    }

    /// Reads up to the end of the string or a backslash; returns the number of bytes read.
    fn string(&mut self, rest: &[u8]) -> usize {
        let run = string_run(rest);
        self.count_text(run as u64);
        self.word.push(&rest[..run]);
        if self.is_in_id() && self.id.text.len() + run <= ID_BYTES_MAX {
            self.id.text.extend_from_slice(&rest[..run]);
        }
        if self.is_in_item_id() {
            let fits = |text: &Vec<u8>| text.len() + run <= ID_BYTES_MAX;
            self.items.text = self.items.text.take().filter(fits).map(|mut text| {
                text.extend_from_slice(&rest[..run]);
                text
            });
        }
        match rest.get(run) {
            None => return run,
            Some(b'\\') => self.state = DocumentState::Escape,
            Some(_) => self.end_string(),
        }
        run + 1
    }

    fn escape(&mut self, byte: u8) -> usize {
        // Keys and values that matter have no escapes: the backslash makes the word match none of them.
        self.word.push(b"\\");
        if self.is_in_item_id() {
            self.items.text = None;
        }
        let unicode = byte == b'u';
        self.count_text(if unicode { UNICODE_TEXT_BYTES } else { 1 });
        self.state = if unicode { DocumentState::Hex(4) } else { DocumentState::String };
        1
    }

    fn count_text(&mut self, bytes: u64) {
        let text = if self.in_key {
            self.frame().is_some_and(|frame| frame.place == AnswerPlace::Written)
        } else {
            self.under().leaf == AnswerLeaf::Text
        };
        if text {
            self.found.text_bytes += bytes;
        }
    }

    fn end_string(&mut self) {
        self.state = DocumentState::Between;
        if !self.in_key {
            match self.under().leaf {
                AnswerLeaf::Kind => self.found.kind = AnswerEventKind::of(self.word.bytes()),
                AnswerLeaf::Error => self.found.error |= !self.word.bytes().is_empty(),
                AnswerLeaf::Finish => self.found.finished = true,
                AnswerLeaf::Id => self.id.whole = !self.id.text.is_empty(),
                AnswerLeaf::ItemId => self.keep_item_id(),
                _ => {}
            }
            return;
        }
        let shape = self.shape;
        let word = self.word;
        if let Some(frame) = self.frame() {
            frame.under = shape.member(frame.place, word.bytes());
            frame.key_next = false;
        }
    }

    fn keep_item_id(&mut self) {
        let id = self.items.text.take().and_then(|text| String::from_utf8(text).ok());
        let Some(id) = id.filter(|id| !id.is_empty()).map(String::into_boxed_str) else { return };
        if !self.items.whole.contains(&id) {
            self.items.whole.push(id);
        }
    }

    /// Reads up to the end of a number or literal; returns the number of bytes read.
    fn bare(&mut self, rest: &[u8]) -> usize {
        let ends = |byte: &u8| {
            matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':')
                || byte.is_ascii_whitespace()
        };
        let run = rest.iter().position(ends).unwrap_or(rest.len());
        self.word.push(&rest[..run]);
        if run < rest.len() {
            self.state = DocumentState::Between;
            match self.under().leaf {
                AnswerLeaf::Tokens(count) => self.tokens(count),
                AnswerLeaf::Error => {
                    self.found.error |= !matches!(self.word.bytes(), b"null" | b"false")
                }
                _ => {}
            }
            if self.depth == 1
                && self.under().place == AnswerPlace::Usage
                && self.word.bytes() == b"null"
            {
                let end = self.fed_bytes - (rest.len() - run) as u64;
                let members = &mut self.members;
                members.wants_comma = members.comma_at.is_none();
                members.null_usage = Some((members.comma_at.unwrap_or(members.key_at), end));
            }
        }
        run
    }

    fn tokens(&mut self, count: TokenKind) {
        if self.word.bytes() == b"null" {
            return;
        }
        if self.shape.route == Route::CountTokens {
            self.found.report.get_or_insert_default();
        }
        match (self.word.number(), &mut self.found.report) {
            (Some(number), Some(report)) => report.set(count, number),
            _ => self.absurd(),
        }
    }

    fn absurd(&mut self) {
        if let Some(report) = &mut self.found.report {
            report.absurd = true;
        }
    }

    /// Records that a value begins. If the value is an element of the list of choices, the list is not empty.
    fn touch_element(&mut self) {
        if self.frame().is_some_and(|frame| frame.place == AnswerPlace::Choices) {
            self.found.choices = ChoicesState::Some;
        }
    }
}

/// A key, string or literal of at most [`WORD_BYTES_MAX`] bytes. A longer one is marked as too long, and matches no
/// known word.
#[derive(Clone, Copy, Default)]
struct ShortWord {
    bytes: [u8; WORD_BYTES_MAX],
    len: usize,
}

impl ShortWord {
    fn clear(&mut self) {
        self.len = 0;
    }

    fn push(&mut self, more: &[u8]) {
        let end = self.len.saturating_add(more.len());
        match self.bytes.get_mut(self.len..end) {
            Some(place) => {
                place.copy_from_slice(more);
                self.len = end;
            }
            None => self.len = usize::MAX,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(b"too long")
    }

    /// Parses the word as a whole number without sign, decimals and exponent; `None` if it is no such number.
    fn number(&self) -> Option<u64> {
        let digits = self.bytes().iter().all(u8::is_ascii_digit);
        std::str::from_utf8(self.bytes()).ok().filter(|_| digits)?.parse().ok()
    }
}

/// Returns the number of bytes before the next quote or backslash. Most strings are short keys and words: the first two
/// words of eight bytes are tested here, because the start of a vector search costs more. Subtracting 1 from a byte sets
/// its highest bit if it was 0; the borrow may mark bytes after it, but never one before it.
fn string_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let mut passed = 0;
    for &word in bytes.as_chunks().0.iter().take(2) {
        let word = u64::from_le_bytes(word);
        let equal = |byte: u8| {
            let zeros = word ^ (ONES * u64::from(byte));
            zeros.wrapping_sub(ONES) & !zeros
        };
        let found = (equal(b'"') | equal(b'\\')) & HIGHS;
        if found != 0 {
            return passed + (found.trailing_zeros() / 8) as usize;
        }
        passed += 8;
    }
    let far = &bytes[passed..];
    passed + memchr::memchr2(b'"', b'\\', far).unwrap_or(far.len())
}

/// Returns the number of bytes before the next bracket, brace or quote. Whole blocks are tested without a branch per
/// byte, which the compiler turns into vector instructions, because embeddings are long lists of numbers.
fn until_structure(bytes: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let structure = |byte: u8| {
        // `[` and `{`, `]` and `}` differ in one bit.
        let folded = byte | 0x20;
        u8::from(byte == b'"') | u8::from(folded == b'{') | u8::from(folded == b'}')
    };
    let mut passed = 0;
    for block in bytes.chunks_exact(BLOCK) {
        if block.iter().fold(0, |any, &byte| any | structure(byte)) != 0 {
            break;
        }
        passed += BLOCK;
    }
    let rest = &bytes[passed..];
    passed + rest.iter().position(|&byte| structure(byte) != 0).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_runs_to_its_first_quote_or_backslash_wherever_that_is() {
        // Bytes that a subtraction of 1 or a flip of a bit turns into one another.
        let others = [0, 1, b'!', b'#', b'[', b']', 0x80, 0xff];
        for length in 0..40 {
            for at in 0..=length {
                for other in others {
                    let mut text = vec![other; length];
                    for end in [b'"', b'\\'] {
                        text.splice(at.., [end, b'"', b'\\'].into_iter().take(length - at));
                        assert_eq!(string_run(&text), at, "{text:?}");
                    }
                }
            }
        }
    }
}
