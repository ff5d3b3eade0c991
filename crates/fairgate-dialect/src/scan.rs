//! Reads JSON in one pass without building anything: checks every byte against RFC 8259, says where values begin and
//! end, and notices strings that carry files instead of text.
//!
//! It accepts what `serde_json` accepts where it skips a value, except that nesting ends at [`DEPTH_MAX`]. No function
//! calls itself, so no input can exhaust the stack.

use std::ops::Range;

/// How deep a document may be nested, as in `serde_json`.
pub(crate) const DEPTH_MAX: u32 = 128;

/// Shorter strings are text in any case.
const BLOB_BYTES_MIN: usize = 1024;
/// How much of a long string is looked at to tell base64 from text: prose has a space, code a bracket by then.
const BLOB_LOOK_BYTES: usize = 256;
/// An image costs a model something, but not by the byte: it counts as if it had at most this many bytes of text, about
/// a thousand tokens.
pub(crate) const BLOB_TEXT_BYTES: usize = 4096;

/// Why a text is not a JSON document, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What is wrong.
    pub(crate) what: &'static str,
    /// The byte that is to blame, counted from 0.
    pub(crate) at: usize,
}

/// A string as it stands in the text: where it is, quotes not included, and whether it must be unescaped to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quoted {
    pub(crate) inner: Range<usize>,
    pub(crate) escaped: bool,
}

/// A place in a text that is valid UTF-8.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    blob_bytes: usize,
    /// The last key was one under which files stand.
    in_file: bool,
}

impl<'a> Scanner<'a> {
    /// At the beginning of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), at: 0, blob_bytes: 0, in_file: false }
    }

    /// Somewhere in a text that was read to its end before.
    pub(crate) fn within(text: &'a [u8], at: usize) -> Self {
        Self { text, at, blob_bytes: 0, in_file: false }
    }

    /// Where it stands: the offset of the byte that it will read next.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// How many bytes of what was read belong to files rather than to text.
    pub(crate) fn blob_bytes(&self) -> usize {
        self.blob_bytes
    }

    /// The next byte that is not white space, which stays unread; 0 at the end (no token begins with it).
    pub(crate) fn peek(&mut self) -> u8 {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.at += 1;
        }
        0
    }

    /// Reads this byte, or else says what was missing.
    pub(crate) fn expect(&mut self, byte: u8, missing: &'static str) -> Result<(), Fault> {
        if self.peek() != byte {
            return self.fault(missing);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads this byte if it is the next one.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    /// The text must be over.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.peek();
        if self.at < self.text.len() {
            self.fault("something follows the document")
        } else {
            Ok(())
        }
    }

    /// Reads the key of a member and its colon.
    pub(crate) fn key(&mut self) -> Result<Quoted, Fault> {
        if self.peek() != b'"' {
            return self.fault("expected a key in quotes");
        }
        self.in_file = false;
        let key = self.string()?;
        self.in_file = FILE_KEYS.contains(&&self.text[key.inner.clone()]);
        self.expect(b':', "expected `:` after a key")?;
        Ok(key)
    }

    /// Reads one value, whatever it is, and says where it stands. `depth` is how many containers are around it.
    pub(crate) fn value(&mut self, depth: u32) -> Result<Range<usize>, Fault> {
        self.peek();
        let start = self.at;
        let mut inside = Enclosing { objects: 0, depth };
        loop {
            self.opening(&mut inside)?;
            // A value is over: so may be what is around it.
            loop {
                if inside.depth == depth {
                    return Ok(start..self.at);
                }
                match (self.peek(), inside.is_object()) {
                    (b',', object) => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (b'}', true) | (b']', false) => {
                        self.at += 1;
                        inside.leave();
                    }
                    (_, true) => return self.fault("expected `,` or `}`"),
                    (_, false) => return self.fault("expected `,` or `]`"),
                }
            }
        }
    }

    /// Reads a scalar, or the beginning of containers down to the first scalar or empty container in them.
    fn opening(&mut self, inside: &mut Enclosing) -> Result<(), Fault> {
        loop {
            let first = self.peek();
            match first {
                b'"' => return self.string().map(|_| ()),
                b'{' | b'[' => {
                    if inside.depth >= DEPTH_MAX {
                        return self.fault("nested too deep");
                    }
                    self.at += 1;
                    let object = first == b'{';
                    // ']' and '}' both stand two after their openers.
                    if self.take(first + 2) {
                        return Ok(());
                    }
                    inside.enter(object);
                    if object {
                        self.key()?;
                    }
                }
                b'-' | b'0'..=b'9' => return self.number(),
                b't' => return self.literal(b"true"),
                b'f' => return self.literal(b"false"),
                b'n' => return self.literal(b"null"),
                _ => return self.fault("expected a value"),
            }
        }
    }

    /// Reads a string from its opening quote to its closing one.
    pub(crate) fn string(&mut self) -> Result<Quoted, Fault> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain(self.text.get(self.at..).unwrap_or_default());
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.fault("a control character in a string"),
                None => return self.fault("a string does not end"),
            }
        }
        let inner = start..self.at;
        self.at += 1;
        if self.is_file(&inner) {
            self.blob_bytes += inner.len().saturating_sub(BLOB_TEXT_BYTES);
        }
        Ok(Quoted { inner, escaped })
    }

    /// As [`Scanner::string`], in a text that was read to its end before: only its end is looked for, which is several times
    /// as fast where there are many escapes.
    pub(crate) fn known_string(&mut self) -> Quoted {
        self.at += 1;
        let start = self.at;
        let mut end = start;
        while let Some(quote) = memchr::memchr(b'"', self.text.get(end..).unwrap_or_default()) {
            end += quote;
            let before = self.text[start..end].iter().rev();
            // An even number of backslashes are escapes of each other.
            if before.take_while(|&&byte| byte == b'\\').count() % 2 == 0 {
                break;
            }
            end += 1;
        }
        self.at = end + 1;
        let escaped = memchr::memchr(b'\\', &self.text[start..end]).is_some();
        Quoted { inner: start..end, escaped }
    }

    /// Whether the string that was read last carries a file.
    pub(crate) fn is_file(&self, string: &Range<usize>) -> bool {
        self.in_file && string.len() >= BLOB_BYTES_MIN && is_blob(&self.text[string.clone()])
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.text.get(self.at + 2..self.at + 6).unwrap_or_default();
                if digits.len() != 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return self.fault("a bad escape in a string");
                }
                self.at += 6;
            }
            _ => return self.fault("a bad escape in a string"),
        }
        Ok(())
    }

    pub(crate) fn number(&mut self) -> Result<(), Fault> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        let whole = self.at;
        self.digits()?;
        if self.text[whole] == b'0' && self.at > whole + 1 {
            self.at = whole;
            return self.fault("a number with a leading zero");
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return self.fault("a number without digits");
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.text.get(self.at..).unwrap_or_default().starts_with(word) {
            return self.fault("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        let what = if self.at >= self.text.len() { "the text ends too early" } else { what };
        Err(Fault { what, at: self.at })
    }
}

/// The containers around a value: one bit each, set for objects.
struct Enclosing {
    objects: u128,
    depth: u32,
}

impl Enclosing {
    fn enter(&mut self, object: bool) {
        self.objects = self.objects << 1 | u128::from(object);
        self.depth += 1;
    }

    fn leave(&mut self) {
        self.objects >>= 1;
        self.depth -= 1;
    }

    fn is_object(&self) -> bool {
        self.objects & 1 == 1
    }
}

/// How many bytes at the beginning are plain parts of a string: no quote, backslash or control character. Most strings
/// are short, or have an escape soon, and are looked at by the word; long ones in blocks without a branch per byte,
/// which the compiler turns into vector instructions.
fn plain(text: &[u8]) -> usize {
    const NEAR: usize = 64;
    const BLOCK: usize = 32;
    let near = &text[..text.len().min(NEAR)];
    let mut passed = plain_words(near);
    if passed < near.len() {
        return passed;
    }
    let special =
        |byte: u8| u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
    for block in text[passed..].as_chunks::<BLOCK>().0 {
        if block.iter().fold(0, |any, &byte| any | special(byte)) != 0 {
            break;
        }
        passed += BLOCK;
    }
    passed + plain_words(&text[passed..])
}

/// As [`plain`], eight bytes at a time. A byte of a word that is looked for gets its highest bit set: `x - n` borrows
/// from it where `x < n`. A borrow may go on to bytes above, but the lowest is right, and that is the one that counts.
fn plain_words(text: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let (words, rest) = text.as_chunks();
    let mut passed = 0;
    for &word in words {
        let word = u64::from_le_bytes(word);
        let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word;
        let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = (below(word, 0x20) | equal(b'"') | equal(b'\\')) & HIGHS;
        if found != 0 {
            return passed + (found.trailing_zeros() / 8) as usize;
        }
        passed += 8;
    }
    let special = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    passed + rest.iter().position(special).unwrap_or(rest.len())
}

/// Where images, sounds and documents stand in requests. What looks like a file elsewhere is text to the model.
const FILE_KEYS: [&[u8]; 8] =
    [b"data", b"url", b"image_url", b"file_data", b"file_url", b"b64_json", b"image", b"audio"];

/// Whether a long string is a file rather than text: a data URL, or base64 from beginning to end as far as looked at.
fn is_blob(string: &[u8]) -> bool {
    let head = &string[..BLOB_LOOK_BYTES.min(string.len())];
    if head.starts_with(b"data:") {
        return memchr::memmem::find(head, b";base64,").is_some();
    }
    let tail = &string[string.len() - BLOB_LOOK_BYTES.min(string.len())..];
    // The backslash because some writers escape every `/`.
    let base64 = |&byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\')
    };
    head.iter().all(base64) && tail.iter().all(base64)
}
