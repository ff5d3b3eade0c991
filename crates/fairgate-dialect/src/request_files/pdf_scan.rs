//! Counts the pages of a PDF, and the bytes that its compressed streams hold, without a parser of the format.
//!
//! The scan looks at all bytes, whatever the file's table of objects says, so that a false table can hide nothing from
//! the scan. Pages are the names `/Page` and the references in lists of `/Kids`; the larger number counts. Streams are
//! inflated, because a page may be in one, and because a few kilobytes may hold megabytes of text.
//!
//! A file is unreadable if a list of `/Kids` is not written out in place, or if such lists name a page twice, because a
//! reader would count the page twice. It is also unreadable if a stream cannot be inflated, for example because it is
//! encrypted or in an old encoding. Some honest files are unreadable in this sense. A budget reserves for them as many
//! tokens as the model can read, until the provider has reported the real usage.

use std::collections::HashSet;
use std::io::Read;

use super::base64;

/// Most bytes that the streams of a request's PDFs are inflated to.
pub(super) const INFLATED_BYTES_MAX: usize = 8 << 20;
/// Most bytes between the beginning of an object and its stream.
const DICTIONARY_BYTES_MAX: usize = 16 << 10;
/// Most references in the lists of `/Kids` of a file. No provider accepts that many pages.
const KIDS_MAX: usize = 10_000;

/// Pages and bytes of a PDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PdfContent {
    /// Number of pages.
    pub(super) pages: u64,
    /// Larger of the file's size and of the bytes in its streams after they were inflated.
    pub(super) bytes: u64,
}

/// Work that may still be done for the PDFs of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PdfScanBudget {
    /// Bytes of base64 that may still be decoded.
    pub(super) read_bytes: usize,
    /// Bytes that may still be inflated.
    pub(super) inflated_bytes: usize,
}

impl Default for PdfScanBudget {
    fn default() -> Self {
        Self { read_bytes: 0, inflated_bytes: INFLATED_BYTES_MAX }
    }
}

impl PdfScanBudget {
    /// Scans a PDF in base64. Returns `None` if it cannot be read, or if the work for this request is used up.
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
        Some(PdfContent { pages: pages.names.max(pages.kids.len() as u64).max(1), bytes })
    }

    /// Reads the stream whose keyword is at `start`. Returns the number of bytes that it was inflated to.
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
        // A stream that looks compressed is, even if its dictionary could not be found.
        let is_plain = filters == 0 && inflatable == 0 && !starts_zlib(data);
        if is_plain || (filters > 0 && inflatable == 0 && pictures > 0 && !is_objects) {
            pages.object_streams_read += usize::from(is_objects);
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
        Some(content.len())
    }
}

/// Returns true if the data begins with a header of zlib.
fn starts_zlib(data: &[u8]) -> bool {
    matches!(data, [first, second, ..]
        if first & 0x0f == 8 && (u32::from(*first) << 8 | u32::from(*second)) % 31 == 0)
}

/// Returns true if the beginning of a file shows a PDF.
pub(super) fn is_pdf(head: &[u8]) -> bool {
    memchr::memmem::find(&head[..head.len().min(1024)], b"%PDF-").is_some()
}

#[derive(Default)]
struct PageCount {
    names: u64,
    kids: HashSet<(u32, u32)>,
    object_streams: usize,
    object_streams_read: usize,
}

impl PageCount {
    /// Adds the pages that these bytes name, and the lists of `/Kids` in them. Returns `None` if they cannot be
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
        Some(())
    }

    /// Reads a list of references, such as `[3 0 R 4 0 R]`.
    fn kids(&mut self, bytes: &[u8]) -> Option<()> {
        let list = bytes.trim_ascii_start().strip_prefix(b"[")?;
        let list = &list[..memchr::memchr(b']', list)?];
        let mut words =
            list.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        while let Some(object) = words.next() {
            let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
            let kid = (number(object)?, number(words.next()?)?);
            if words.next()? != b"R" || self.kids.len() == KIDS_MAX || !self.kids.insert(kid) {
                return None;
            }
        }
        Some(())
    }
}

/// Iterates over the names in a file, such as `/Page`, without the slash and with their escapes resolved. Each name
/// comes with the offset at which it ends.
fn names(bytes: &[u8]) -> impl Iterator<Item = (Vec<u8>, usize)> + '_ {
    /// Longest name that has a meaning here, with every letter escaped.
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
