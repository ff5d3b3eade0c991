//! Scans JSON in one pass without building a tree. The scanner checks every byte against RFC 8259, reports the offsets
//! of values, and recognises strings that hold files instead of text.
//!
//! Accepts the same input that `serde_json` accepts for a value that is skipped, except that nesting ends at
//! [`DEPTH_MAX`]. No function recurses, so no input can exhaust the stack.

use std::ops::Range;

/// Keys of ids, and of objects with an id, whose owner is not known. A body without any of them is not searched.
const ACCOUNT_KEYS: [&[u8]; 8] = [
    b"file_id",
    b"file_ids",
    b"vector_store_ids",
    b"container",
    b"container_id",
    b"prompt",
    b"audio",
    b"voice",
];

/// Deepest nesting of a document, as in `serde_json`.
pub(crate) const DEPTH_MAX: u32 = 128;

/// Length in bytes of the shortest string that may be a file. Shorter strings always count as text.
const BLOB_BYTES_MIN: usize = 1024;
/// Number of bytes in which a data URL must name its encoding.
const BLOB_LOOK_BYTES: usize = 256;
/// Greatest number of bytes of text that a file counts as, about a thousand tokens. The number is limited because the
/// cost of an image does not grow with its bytes.
pub(crate) const BLOB_TEXT_BYTES: usize = 4096;

/// The reason why a text is not valid JSON, and the offset of the first invalid byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonFault {
    /// Description of the error, in a few words.
    pub(crate) what: &'static str,
    /// Offset of the invalid byte, counted from 0.
    pub(crate) at: usize,
}

/// A string in the text, as its range without the quotes and a flag that is true if the string has escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotedString {
    pub(crate) inner: Range<usize>,
    pub(crate) escaped: bool,
}

/// A cursor in a text that is valid UTF-8.
pub(crate) struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
    blob_bytes: usize,
    /// True if the last key is one of [`FILE_KEYS`], whose values may be files.
    in_file: bool,
    /// True if any key so far may belong to a file.
    mentions_files: bool,
    /// True if any key so far may be that of an id whose owner is not known.
    mentions_account_ids: bool,
    /// True if any key so far may be `id`.
    mentions_item_ids: bool,
}

impl<'a> JsonScanner<'a> {
    /// Creates a scanner at the beginning of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        Self::within(text.as_bytes(), 0)
    }

    /// Creates a scanner at an offset of a text that was fully checked before.
    pub(crate) fn within(text: &'a [u8], at: usize) -> Self {
        Self {
            text,
            at,
            blob_bytes: 0,
            in_file: false,
            mentions_files: false,
            mentions_account_ids: false,
            mentions_item_ids: false,
        }
    }

    /// Returns the offset of the next byte to read.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes read so far that do not count as text, because they belong to files.
    pub(crate) fn blob_bytes(&self) -> usize {
        self.blob_bytes
    }

    /// Returns true if a key that was read so far may belong to a file, so that it is worth looking for files.
    pub(crate) fn mentions_files(&self) -> bool {
        self.mentions_files
    }

    /// Returns true if a key that was read so far may be that of an id whose owner is not known.
    pub(crate) fn mentions_account_ids(&self) -> bool {
        self.mentions_account_ids
    }

    /// Returns true if a key that was read so far may be `id`.
    pub(crate) fn mentions_item_ids(&self) -> bool {
        self.mentions_item_ids
    }

    /// Skips white space and returns the next byte without reading it. Returns the byte 0 at the end of the text,
    /// because no token of JSON begins with this byte.
    pub(crate) fn peek(&mut self) -> u8 {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.at += 1;
        }
        0
    }

    /// Reads `byte`, or fails with the message `missing` if another byte comes next.
    pub(crate) fn expect(&mut self, byte: u8, missing: &'static str) -> Result<(), JsonFault> {
        if self.peek() != byte {
            return self.fault(missing);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads `byte` and returns true, if it is the next byte. Otherwise reads nothing and returns false.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    /// Fails unless the text has ended.
    pub(crate) fn end(&mut self) -> Result<(), JsonFault> {
        self.peek();
        if self.at < self.text.len() {
            self.fault("something follows the document")
        } else {
            Ok(())
        }
    }

    /// Reads the key of a member and its colon.
    pub(crate) fn key(&mut self) -> Result<QuotedString, JsonFault> {
        if self.peek() != b'"' {
            return self.fault("expected a key in quotes");
        }
        self.in_file = false;
        let key = self.string()?;
        let name = &self.text[key.inner.clone()];
        if !key.escaped && !may_be_listed(name) {
            self.expect(b':', "expected `:` after a key")?;
            return Ok(key);
        }
        self.in_file = FILE_KEYS.contains(&name);
        // A key with escapes may be any of them.
        self.mentions_files |= self.in_file || key.escaped || OTHER_FILE_KEYS.contains(&name);
        let is_any = |keys: &[&[u8]]| keys.iter().any(|key| key.eq_ignore_ascii_case(name));
        self.mentions_account_ids |= key.escaped || is_any(&ACCOUNT_KEYS);
        self.mentions_item_ids |= key.escaped || is_any(&[b"id"]);
        self.expect(b':', "expected `:` after a key")?;
        Ok(key)
    }

    /// Reads one value of any kind and returns its range. `depth` is the number of containers around it.
    pub(crate) fn value(&mut self, depth: u32) -> Result<Range<usize>, JsonFault> {
        self.peek();
        let start = self.at;
        let mut inside = EnclosingContainers { objects: 0, depth };
        loop {
            self.opening(&mut inside)?;
            // The value has ended; the containers around it may end too.
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
    fn opening(&mut self, inside: &mut EnclosingContainers) -> Result<(), JsonFault> {
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
                    // The byte values of ']' and '}' are those of their openers plus two.
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
    pub(crate) fn string(&mut self) -> Result<QuotedString, JsonFault> {
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
        Ok(QuotedString { inner, escaped })
    }

    /// Reads a string like [`JsonScanner::string`], in a text that was fully checked before. This function only
    /// searches for the string's end, which is several times as fast if there are many escapes.
    pub(crate) fn known_string(&mut self) -> QuotedString {
        self.at += 1;
        let start = self.at;
        let mut end = start;
        while let Some(quote) = memchr::memchr(b'"', self.text.get(end..).unwrap_or_default()) {
            end += quote;
            let before = self.text[start..end].iter().rev();
            // An even number of backslashes escape each other.
            if before.take_while(|&&byte| byte == b'\\').count() % 2 == 0 {
                break;
            }
            end += 1;
        }
        self.at = end + 1;
        let escaped = memchr::memchr(b'\\', &self.text[start..end]).is_some();
        QuotedString { inner: start..end, escaped }
    }

    /// Returns true if `string`, the last string that was read, holds a file.
    pub(crate) fn is_file(&self, string: &Range<usize>) -> bool {
        self.in_file && string.len() >= BLOB_BYTES_MIN && is_blob(&self.text[string.clone()])
    }

    fn escape(&mut self) -> Result<(), JsonFault> {
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

    pub(crate) fn number(&mut self) -> Result<(), JsonFault> {
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

    /// Reads at least one digit.
    fn digits(&mut self) -> Result<(), JsonFault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return self.fault("a number without digits");
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonFault> {
        if !self.text.get(self.at..).unwrap_or_default().starts_with(word) {
            return self.fault("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn fault<T>(&self, what: &'static str) -> Result<T, JsonFault> {
        let what = if self.at >= self.text.len() { "the text ends too early" } else { what };
        Err(JsonFault { what, at: self.at })
    }
}

/// The containers around a value. Each container has one bit, which is 1 for an object and 0 for an array.
struct EnclosingContainers {
    objects: u128,
    depth: u32,
}

impl EnclosingContainers {
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

/// Returns the number of bytes before the first quote, backslash or control character. Most strings are short, or have
/// an escape soon, and are tested in words of eight bytes. Long strings are tested in blocks without a branch per byte,
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

/// Returns the same as [`plain`], but tests eight bytes at a time. Subtracting `n` from a byte `x` sets the highest bit
/// of the result if `x < n`, and this bit marks a match. The borrow of a match may also mark bytes after it, but never
/// one before it. Only the first mark is used, so the result is right.
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

/// Keys whose values in requests are images, sounds and documents. Base64 under other keys is text to the model.
const FILE_KEYS: [&[u8]; 8] =
    [b"data", b"url", b"image_url", b"file_data", b"file_url", b"b64_json", b"image", b"audio"];

/// Other keys that belong to a file. Their values are not the bytes of the file.
const OTHER_FILE_KEYS: [&[u8]; 6] =
    [b"file_id", b"file", b"source", b"input_audio", b"audio_url", b"video_url"];

/// Returns false for a key that is in none of the lists, for most by its first letter, as `model` and `role`.
fn may_be_listed(name: &[u8]) -> bool {
    let first = name.first().map_or(0, u8::to_ascii_lowercase);
    // `content` is the most frequent key of all.
    matches!(first, b'a' | b'b' | b'c' | b'd' | b'f' | b'i' | b'p' | b's' | b'u' | b'v')
        && name != b"content"
}

/// Returns true if a long string is a file rather than text. A string is a file if it is base64 from its first to its
/// last byte, or a data URL in base64.
fn is_blob(string: &[u8]) -> bool {
    let head = &string[..BLOB_LOOK_BYTES.min(string.len())];
    if !head.starts_with(b"data:") {
        return is_base64(string);
    }
    let comma = memchr::memmem::find(head, b";base64,");
    comma.is_some_and(|at| is_base64(&string[at + b";base64,".len()..]))
}

/// Returns true if all bytes are letters of base64, in either alphabet. The backslash is allowed because some writers
/// escape every `/`.
pub(crate) fn is_base64(string: &[u8]) -> bool {
    const LETTERS: [bool; 256] = {
        let mut letters = [false; 256];
        let mut letter = 0_u8;
        loop {
            letters[letter as usize] = letter.is_ascii_alphanumeric()
                || matches!(letter, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\');
            if letter == u8::MAX {
                break;
            }
            letter += 1;
        }
        letters
    };
    string.iter().all(|&byte| LETTERS[byte as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_key_may_be_listed() {
        let listed = FILE_KEYS.iter().chain(&OTHER_FILE_KEYS).chain(&ACCOUNT_KEYS);
        for key in listed.copied().chain([&b"id"[..]]) {
            assert!(may_be_listed(key), "{key:?}");
            assert!(may_be_listed(&key.to_ascii_uppercase()), "{key:?}");
        }
        assert!(!may_be_listed(b"model") && !may_be_listed(b"content") && !may_be_listed(b""));
    }
}
