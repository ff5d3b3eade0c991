//! Counts the pages of a PDF, and the bytes that its compressed streams hold, without a parser of the format.
//!
//! The scan looks at all bytes, whatever the file's table of objects says, so that a false table can hide nothing from
//! the scan. Pages are counted in two ways, by the names `/Page` and by the references in lists of `/Kids`, and the
//! larger number is used. Streams are inflated, because a page may be in a stream, and because a few kilobytes may hold
//! megabytes of text.
//!
//! The text of a page is bounded neither by the page's size nor by the number of pages. So the strings of all streams
//! with text are counted too, once for each place that refers to the stream.
//!
//! A file is unreadable if a list of `/Kids` is not written out in place, or if such lists name a page twice, because a
//! reader would count the page twice. It is also unreadable if a stream cannot be inflated, for example because it is
//! encrypted or in an old encoding. Some honest files are unreadable in this sense. For such a file, a budget reserves
//! as many tokens as the model can read, until the provider has reported the real usage.

mod shown_text;

use std::collections::{HashMap, HashSet};
use std::io::Read;

use super::base64;

/// Greatest number of bytes to which the streams of a request's PDFs are inflated.
pub(super) const INFLATED_BYTES_MAX: usize = 8 << 20;
/// Greatest number of bytes between the beginning of an object and its stream.
const DICTIONARY_BYTES_MAX: usize = 16 << 10;
/// Greatest number of references in the lists of `/Kids` of a file. No provider accepts that many pages.
const KIDS_MAX: usize = 10_000;

/// Greatest number of objects of a file to which other objects refer.
const REFERRED_MAX: usize = 200_000;

/// Pages, bytes and text of a PDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PdfContent {
    /// Number of pages.
    pub(super) pages: u64,
    /// The larger of the file's size and the number of bytes in its inflated streams.
    pub(super) bytes: u64,
    /// Number of bytes of the strings that the file's streams show as text.
    pub(super) text_bytes: u64,
}

/// The amount of work that may still be done for the PDFs of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PdfScanBudget {
    /// Number of bytes of base64 that may still be decoded.
    pub(super) read_bytes: usize,
    /// Number of bytes that may still be inflated.
    pub(super) inflated_bytes: usize,
}

impl Default for PdfScanBudget {
    fn default() -> Self {
        Self { read_bytes: 0, inflated_bytes: INFLATED_BYTES_MAX }
    }
}

impl PdfScanBudget {
    /// Scans a PDF in base64. Returns `None` if the PDF cannot be read, or if the work for this request is used up.
    pub(super) fn scan(&mut self, encoded: &[u8]) -> Option<PdfContent> {
        self.read_bytes = self.read_bytes.checked_sub(encoded.len())?;
        let file = base64::decode(encoded, encoded.len());
        let mut pages = PageCount::default();
        pages.read(&file)?;
        let mut inflated = 0;
        let mut at = 0;
        while let Some(found) = memchr::memmem::find(&file[at..], b"stream") {
            let start = at + found;
            at = start + b"stream".len();
            let is_begin =
                matches!(file.get(at), Some(b'\r' | b'\n')) && !file[..start].ends_with(b"end");
            if is_begin {
                inflated += self.stream(&file, start, &mut pages)?;
            }
        }
        if pages.object_streams != pages.object_streams_read {
            return None;
        }
        let bytes = (file.len() as u64).max(inflated as u64);
        let text_bytes = pages.text_bytes();
        let pages = pages.names.max(pages.kids.len() as u64).max(1);
        Some(PdfContent { pages, bytes, text_bytes })
    }

    /// Reads the stream whose keyword is at `start`. Returns the number of bytes to which the stream was inflated;
    /// `None` if it cannot be read.
    fn stream(&mut self, file: &[u8], start: usize, pages: &mut PageCount) -> Option<usize> {
        let before = &file[start.saturating_sub(DICTIONARY_BYTES_MAX)..start];
        let object = memchr::memmem::rfind(before, b"obj")?;
        let dictionary = before[object..].trim_ascii_end();
        if !dictionary.ends_with(b">>") {
            return None;
        }
        let names: Vec<Vec<u8>> = names(dictionary).map(|(name, _)| name).collect();
        let has = |wanted: &[u8]| names.iter().filter(|name| *name == wanted).count();
        let is_objects = has(b"ObjStm") > 0;
        let inflatable = has(b"FlateDecode") + has(b"Fl");
        let pictures: usize =
            [&b"DCTDecode"[..], b"DCT", b"JPXDecode", b"CCITTFaxDecode", b"CCF", b"JBIG2Decode"]
                .into_iter()
                .map(has)
                .sum();
        let filters = has(b"Filter");
        let data = start + b"stream".len();
        let data = &file[data + usize::from(file[data..].starts_with(b"\r\n")) + 1..];
        // A stream that looks compressed counts as compressed, even if its dictionary could not be found.
        let is_plain = filters == 0 && inflatable == 0 && !starts_zlib(data);
        if is_plain || (filters > 0 && inflatable == 0 && pictures > 0 && !is_objects) {
            pages.object_streams_read += usize::from(is_objects);
            if is_plain {
                let end = memchr::memmem::find(data, b"endstream").unwrap_or(data.len());
                pages.add_text(&before[..object], &data[..end])?;
            }
            return Some(0);
        }
        let others: usize = [
            &b"LZWDecode"[..],
            b"LZW",
            b"ASCII85Decode",
            b"A85",
            b"ASCIIHexDecode",
            b"AHx",
            b"RunLengthDecode",
            b"RL",
            b"Crypt",
        ]
        .into_iter()
        .map(has)
        .sum();
        if filters != 1 || inflatable != 1 || others > 0 {
            return None;
        }
        let mut content = Vec::new();
        let inflating = flate2::read::ZlibDecoder::new(data).take(self.inflated_bytes as u64 + 1);
        let is_whole = { inflating }.read_to_end(&mut content).is_ok();
        self.inflated_bytes = self.inflated_bytes.checked_sub(content.len())?;
        if !is_whole && (content.is_empty() || is_objects) {
            return None;
        }
        if is_objects {
            pages.read(&content)?;
            pages.object_streams_read += 1;
        }
        pages.add_text(&before[..object], &content)?;
        Some(content.len())
    }
}

/// Returns true if the data begins with a header of zlib.
fn starts_zlib(data: &[u8]) -> bool {
    matches!(data, [first, second, ..]
        if first & 0x0f == 8 && (u32::from(*first) << 8 | u32::from(*second)) % 31 == 0)
}

/// Returns true if the first bytes of a file show that it is a PDF.
pub(super) fn is_pdf(head: &[u8]) -> bool {
    memchr::memmem::find(&head[..head.len().min(1024)], b"%PDF-").is_some()
}

#[derive(Default)]
struct PageCount {
    names: u64,
    kids: HashSet<(u32, u32)>,
    object_streams: usize,
    object_streams_read: usize,
    /// Number of references to each object, by the object's number.
    references: HashMap<u32, u64>,
    /// The number of its object and the bytes of its text, for each stream that shows text.
    texts: Vec<(Option<u32>, u64)>,
}

impl PageCount {
    /// Adds the pages that these bytes name, and the lists of `/Kids` in them. Returns `None` if the pages cannot be
    /// counted.
    fn read(&mut self, bytes: &[u8]) -> Option<()> {
        for (name, end) in names(bytes) {
            match &*name {
                b"Page" => self.names += 1,
                b"ObjStm" => self.object_streams += 1,
                b"Kids" => self.kids(&bytes[end..])?,
                _ => {}
            }
        }
        for object in references(bytes) {
            *self.references.entry(object).or_default() += 1;
            if self.references.len() > REFERRED_MAX {
                return None;
            }
        }
        Some(())
    }

    /// Adds the text that a stream shows. `before` is the part of the file before the stream's dictionary, up to and
    /// without the keyword `obj`. Returns `None` if the stream makes single letters stand for long texts.
    fn add_text(&mut self, before: &[u8], content: &[u8]) -> Option<()> {
        if shown_text::has_long_letters(content) {
            return None;
        }
        let bytes = shown_text::bytes(content);
        if bytes > 0 {
            let mut words = before.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let number = words.nth(1).and_then(number_at_end);
            self.texts.push((number, bytes));
        }
        Some(())
    }

    /// Returns the bytes of all texts. The text of a stream counts once for each reference, because pages may share it.
    fn text_bytes(&self) -> u64 {
        let times = |number: &Option<u32>| {
            number.and_then(|number| self.references.get(&number)).copied().unwrap_or(1)
        };
        let all = self.texts.iter().map(|(number, bytes)| bytes.saturating_mul(times(number)));
        all.fold(0, u64::saturating_add)
    }

    /// Reads a list of references, such as `[3 0 R 4 0 R]`.
    fn kids(&mut self, bytes: &[u8]) -> Option<()> {
        let list = bytes.trim_ascii_start().strip_prefix(b"[")?;
        let list = &list[..memchr::memchr(b']', list)?];
        let mut words =
            list.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        while let Some(object) = words.next() {
            let kid = (number(object)?, number(words.next()?)?);
            if words.next()? != b"R" || self.kids.len() == KIDS_MAX || !self.kids.insert(kid) {
                return None;
            }
        }
        Some(())
    }
}

fn number(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Reads the number at the end of a word, such as `[3`; `None` if there is no number.
fn number_at_end(word: &[u8]) -> Option<u32> {
    let digits = word.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    number(&word[word.len() - digits..])
}

/// Iterates over the numbers of the objects to which references such as `3 0 R` point.
fn references(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    /// Length in bytes of the longest text of two numbers with the blanks after them.
    const NUMBERS_BYTES_MAX: usize = 32;
    memchr::memchr_iter(b'R', bytes).filter_map(|at| {
        let before = &bytes[at.saturating_sub(NUMBERS_BYTES_MAX)..at];
        before.last().filter(|byte| byte.is_ascii_whitespace())?;
        let mut words = before.rsplit(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        number(words.next()?)?;
        number_at_end(words.next()?)
    })
}

/// Iterates over the names in a file, such as `/Page`, without the slash and with their escapes resolved. Each name
/// comes with the offset at which it ends.
fn names(bytes: &[u8]) -> impl Iterator<Item = (Vec<u8>, usize)> + '_ {
    /// Length in bytes of the longest name that has a meaning here, with every letter escaped.
    const NAME_BYTES_MAX: usize = 48;
    memchr::memchr_iter(b'/', bytes).filter_map(move |slash| {
        let rest = &bytes[slash + 1..];
        let rest = &rest[..rest.len().min(NAME_BYTES_MAX)];
        let is_end = |byte: &u8| {
            byte.is_ascii_whitespace()
                || matches!(
                    byte,
                    0 | b'/' | b'<' | b'>' | b'[' | b']' | b'(' | b')' | b'%' | b'{' | b'}'
                )
        };
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        // Most slashes in binary data are followed by no name.
        if length == 0 || !(rest[0].is_ascii_alphabetic() || rest[0] == b'#') {
            return None;
        }
        Some((unescaped(&rest[..length]), slash + 1 + length))
    })
}

fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        let digits = name.get(at + 1..at + 3).filter(|_| byte == b'#');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests;
