//! Reads one JSON document of an answer as it passes, in pieces cut anywhere, and keeps nothing of it but a few numbers.
//!
//! It follows the structure only: what is inside of numbers and words is not checked, because the client will. What is
//! no JSON document counts as text from beginning to end.

use super::path::{Count, Leaf, Place, Shape, Under};
use super::tally::Report;
use crate::ask::ID_BYTES_MAX;
use crate::route::Route;

/// Answers are not nested deeper; what is counts as unreadable.
const DEPTH_MAX: usize = 64;
/// Longer keys and words are none that matter.
const WORD_BYTES_MAX: usize = 32;
/// `\uXXXX` stands for one to four bytes of text, mostly for three.
const UNICODE_TEXT_BYTES: u64 = 3;

/// What was found in a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of text that a model wrote.
    pub(super) text_bytes: u64,
    /// What the upstream says was used.
    pub(super) report: Option<Report>,
    pub(super) choices: Choices,
    pub(super) kind: Kind,
    /// An `error` that is not null.
    pub(super) error: bool,
    /// A reason why the model stopped.
    pub(super) finished: bool,
}

/// The list of choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Choices {
    #[default]
    Absent,
    Empty,
    Some,
}

/// The type of an event, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Other,
    /// The answer is over.
    End,
    /// The answer is over, and failed.
    Failed,
    /// An error.
    Error,
}

impl Kind {
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
enum State {
    /// Between tokens.
    Between,
    /// In a number, `true`, `false` or `null`.
    Bare,
    /// In a string.
    String,
    /// After a backslash in a string.
    Escape,
    /// In the digits of `\uXXXX`, so many to come.
    Hex(u8),
    /// The document is over; what follows is not looked at.
    Done,
    /// This is no JSON document.
    Broken,
}

/// A container that is open.
#[derive(Clone, Copy)]
struct Frame {
    object: bool,
    place: Place,
    /// Whether the next string is a key.
    key_next: bool,
    /// What the next value is.
    under: Under,
}

/// A document that is being read.
pub(super) struct Document {
    shape: Shape,
    state: State,
    frames: [Frame; DEPTH_MAX],
    depth: usize,
    /// The string in progress is a key.
    in_key: bool,
    word: Word,
    found: Found,
    fed_bytes: u64,
    members: Members,
    id: AnswerId,
}

/// The first id of an answer that was seen. Only what can be asked for again is of interest, so only that of the Responses
/// API. It outlives [`Document::restart`]: the events of a stream repeat it.
#[derive(Default)]
struct AnswerId {
    text: Vec<u8>,
    whole: bool,
}

/// Where the members of the document's object are, as far as a `"usage":null` among them must be known.
#[derive(Clone, Copy, Default)]
struct Members {
    /// The last comma between two of them.
    comma_at: Option<u64>,
    /// The last key.
    key_at: u64,
    /// `"usage":null` with the comma before it.
    null_usage: Option<(u64, u64)>,
    /// It was the first of them: the comma after it belongs to it instead.
    wants_comma: bool,
}

impl Document {
    pub(super) fn new(shape: Shape) -> Self {
        let frame =
            Frame { object: false, place: Place::Elsewhere, key_next: false, under: Under::ROOT };
        Self {
            shape,
            state: State::Between,
            frames: [frame; DEPTH_MAX],
            depth: 0,
            in_key: false,
            word: Word::default(),
            found: Found::default(),
            fed_bytes: 0,
            members: Members::default(),
            id: AnswerId::default(),
        }
    }

    /// The id under which the upstream keeps the answer, once it was seen.
    pub(super) fn id(&self) -> Option<&str> {
        std::str::from_utf8(&self.id.text).ok().filter(|_| self.id.whole)
    }

    /// Forgets what was read: the next byte begins another document.
    pub(super) fn restart(&mut self) {
        self.state = State::Between;
        self.depth = 0;
        self.found = Found::default();
        self.fed_bytes = 0;
        self.members = Members::default();
    }

    /// Where in what was fed a `"usage":null` of the document itself stands, with one comma: without it the document is
    /// whole.
    pub(super) fn null_usage(&self) -> Option<(u64, u64)> {
        self.members.null_usage.filter(|_| self.is_done())
    }

    /// Whether the document came to its end.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What was found so far. All of what cannot be read counts as text.
    pub(super) fn found(&self) -> Found {
        match self.state {
            State::Broken => Found { text_bytes: self.fed_bytes, ..self.found },
            _ => self.found,
        }
    }

    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.fed_bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let read = match self.state {
                State::Between => self.between(rest),
                State::Bare => self.bare(rest),
                State::String => self.string(rest),
                State::Escape => self.escape(rest[0]),
                State::Hex(left) => {
                    self.state = if left > 1 { State::Hex(left - 1) } else { State::String };
                    1
                }
                State::Done | State::Broken => return,
            };
            rest = &rest[read..];
        }
    }

    /// Reads at most one token's beginning; says how many bytes that were.
    fn between(&mut self, rest: &[u8]) -> usize {
        let skipped = match self.frame() {
            Some(frame) if frame.place == Place::Elsewhere => until_structure(rest),
            _ => rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count(),
        };
        let Some(&byte) = rest.get(skipped) else { return skipped };
        if self.depth == 1 {
            self.note_member(byte, self.fed_bytes - (rest.len() - skipped) as u64);
        }
        match (byte, self.depth) {
            (b'{' | b'[', _) => self.open(byte == b'{'),
            (_, 0) => self.state = State::Broken,
            (b'}' | b']', _) => self.close(byte == b'}'),
            (b'"', _) => self.quote(),
            (b',', _) => self.separate(),
            (b':', _) => {}
            _ => {
                self.touch_element();
                self.word.clear();
                self.state = State::Bare;
                return skipped;
            }
        }
        skipped + 1
    }

    /// What stands between the members of the document's object.
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

    fn frame(&mut self) -> Option<&mut Frame> {
        self.depth.checked_sub(1).map(|top| &mut self.frames[top])
    }

    /// What the value that begins here is.
    fn under(&mut self) -> Under {
        self.frame().map_or(Under::ROOT, |frame| frame.under)
    }

    fn open(&mut self, object: bool) {
        let Under { mut place, leaf } = self.under();
        self.touch_element();
        match leaf {
            Leaf::Error => self.found.error = true,
            Leaf::Tokens(_) => self.absurd(),
            _ => {}
        }
        match (place, object) {
            (Place::Usage, true) => self.found.report = Some(Report::default()),
            (Place::Choices, false) => self.found.choices = Choices::Empty,
            (Place::Content | Place::Written, _)
            | (Place::Top | Place::Answer | Place::Details, true) => {}
            _ => place = Place::Elsewhere,
        }
        if self.depth == DEPTH_MAX {
            self.state = State::Broken;
            return;
        }
        let under = self.shape.element(place);
        self.frames[self.depth] = Frame { object, place, key_next: object, under };
        self.depth += 1;
    }

    fn close(&mut self, object: bool) {
        if self.frame().is_none_or(|frame| frame.object != object) {
            self.state = State::Broken;
            return;
        }
        self.depth -= 1;
        if self.depth == 0 {
            self.state = State::Done;
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
            if let Leaf::Tokens(_) = self.under().leaf {
                self.absurd();
            }
        }
        self.word.clear();
        if self.is_in_id() {
            self.id.text.clear();
        }
        self.state = State::String;
    }

    /// Whether the string in progress is an id that is to be kept.
    fn is_in_id(&mut self) -> bool {
        self.shape.route == Route::Responses
            && !self.id.whole
            && !self.in_key
            && self.under().leaf == Leaf::Id
    }

    /// Reads on in a string, to its end or to a backslash.
    fn string(&mut self, rest: &[u8]) -> usize {
        let run = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        self.count_text(run as u64);
        self.word.push(&rest[..run]);
        if self.is_in_id() && self.id.text.len() + run <= ID_BYTES_MAX {
            self.id.text.extend_from_slice(&rest[..run]);
        }
        match rest.get(run) {
            None => return run,
            Some(b'\\') => self.state = State::Escape,
            Some(_) => self.end_string(),
        }
        run + 1
    }

    fn escape(&mut self, byte: u8) -> usize {
        // What matters is never written with an escape: the word becomes one that is not known.
        self.word.push(b"\\");
        let unicode = byte == b'u';
        self.count_text(if unicode { UNICODE_TEXT_BYTES } else { 1 });
        self.state = if unicode { State::Hex(4) } else { State::String };
        1
    }

    fn count_text(&mut self, bytes: u64) {
        let text = if self.in_key {
            self.frame().is_some_and(|frame| frame.place == Place::Written)
        } else {
            self.under().leaf == Leaf::Text
        };
        if text {
            self.found.text_bytes += bytes;
        }
    }

    fn end_string(&mut self) {
        self.state = State::Between;
        if !self.in_key {
            match self.under().leaf {
                Leaf::Kind => self.found.kind = Kind::of(self.word.bytes()),
                Leaf::Error => self.found.error |= !self.word.bytes().is_empty(),
                Leaf::Finish => self.found.finished = true,
                Leaf::Id => self.id.whole = !self.id.text.is_empty(),
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

    /// Reads on in a number or a word.
    fn bare(&mut self, rest: &[u8]) -> usize {
        let ends = |byte: &u8| {
            matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':')
                || byte.is_ascii_whitespace()
        };
        let run = rest.iter().position(ends).unwrap_or(rest.len());
        self.word.push(&rest[..run]);
        if run < rest.len() {
            self.state = State::Between;
            match self.under().leaf {
                Leaf::Tokens(count) => self.tokens(count),
                Leaf::Error => self.found.error |= !matches!(self.word.bytes(), b"null" | b"false"),
                _ => {}
            }
            if self.depth == 1 && self.under().place == Place::Usage && self.word.bytes() == b"null"
            {
                let end = self.fed_bytes - (rest.len() - run) as u64;
                let members = &mut self.members;
                members.wants_comma = members.comma_at.is_none();
                members.null_usage = Some((members.comma_at.unwrap_or(members.key_at), end));
            }
        }
        run
    }

    fn tokens(&mut self, count: Count) {
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

    /// A value begins: if it is one of the choices, there are some.
    fn touch_element(&mut self) {
        if self.frame().is_some_and(|frame| frame.place == Place::Choices) {
            self.found.choices = Choices::Some;
        }
    }
}

/// A short word; a longer one is marked as too long and equals none.
#[derive(Clone, Copy, Default)]
struct Word {
    bytes: [u8; WORD_BYTES_MAX],
    len: usize,
}

impl Word {
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

    /// A plain whole number.
    fn number(&self) -> Option<u64> {
        let digits = self.bytes().iter().all(u8::is_ascii_digit);
        std::str::from_utf8(self.bytes()).ok().filter(|_| digits)?.parse().ok()
    }
}

/// How many bytes come before the next bracket, brace or quote. Whole blocks are looked at without a branch per byte,
/// which the compiler turns into vector instructions: embeddings are long lists of numbers.
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
