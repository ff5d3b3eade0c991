//! Reads server-sent events line by line, as the WHATWG describes them: lines end with LF, CR or CRLF, an event ends
//! with an empty line, and a byte order mark at the beginning is ignored. Chunks may be cut anywhere.

/// One item of a stream of server-sent events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SseItem<'a> {
    /// A part of a `data` line's value.
    Data(&'a [u8]),
    /// The end of a `data` line.
    DataEnd,
    /// An empty line, which ends the event.
    Blank,
}

const BOM: &[u8] = b"\xEF\xBB\xBF";
const FIELD: &[u8] = b"data";

/// State of the parser within a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SsePosition {
    /// At the very beginning, after this many bytes of a byte order mark.
    Bom(usize),
    /// After this many bytes of the name `data`; 0 is the beginning of a line.
    Name(usize),
    /// After the colon of `data:`, where one space is ignored.
    Colon,
    /// Within the value of `data`.
    Value,
    /// Within a comment or another field.
    Other,
}

/// A parser for a stream of server-sent events that arrives in chunks.
#[derive(Debug)]
pub(super) struct SseLines {
    line: SsePosition,
    /// True if the previous line ended with CR and no byte came since. If the next byte is an LF, it belongs to the end
    /// of that line.
    after_cr: bool,
}

impl SseLines {
    pub(super) fn new() -> Self {
        Self { line: SsePosition::Bom(0), after_cr: false }
    }

    /// Returns true if an LF as the next byte would only be the second half of the last line's CRLF.
    pub(super) fn owes_lf(&self) -> bool {
        self.after_cr
    }

    /// Reads the next item and removes it from `rest`. Returns `None` at the end of the chunk.
    pub(super) fn next<'a>(&mut self, rest: &mut &'a [u8]) -> Option<SseItem<'a>> {
        if std::mem::take(&mut self.after_cr) {
            match rest.first() {
                None => self.after_cr = true,
                Some(b'\n') => *rest = &rest[1..],
                Some(_) => {}
            }
        }
        while let Some(&byte) = rest.first() {
            if matches!(byte, b'\n' | b'\r') {
                *rest = &rest[1..];
                if let Some(piece) = self.end_line(byte, rest) {
                    return Some(piece);
                }
                continue;
            }
            match self.line {
                SsePosition::Bom(matched) if byte == BOM[matched] => {
                    *rest = &rest[1..];
                    let all = matched + 1 == BOM.len();
                    self.line =
                        if all { SsePosition::Name(0) } else { SsePosition::Bom(matched + 1) };
                }
                SsePosition::Bom(0) => self.line = SsePosition::Name(0),
                SsePosition::Name(matched) if FIELD.get(matched) == Some(&byte) => {
                    *rest = &rest[1..];
                    self.line = SsePosition::Name(matched + 1);
                }
                SsePosition::Name(matched) if matched == FIELD.len() && byte == b':' => {
                    *rest = &rest[1..];
                    self.line = SsePosition::Colon;
                }
                SsePosition::Bom(_) | SsePosition::Name(_) => self.line = SsePosition::Other,
                SsePosition::Colon => {
                    if byte == b' ' {
                        *rest = &rest[1..];
                    }
                    self.line = SsePosition::Value;
                }
                SsePosition::Value => return Some(SseItem::Data(take_line(rest))),
                SsePosition::Other => {
                    take_line(rest);
                }
            }
        }
        None
    }

    /// Ends the line at `byte`, a CR or LF that was already read.
    fn end_line(&mut self, byte: u8, rest: &mut &[u8]) -> Option<SseItem<'static>> {
        if byte == b'\r' {
            match rest.first() {
                Some(b'\n') => *rest = &rest[1..],
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        match std::mem::replace(&mut self.line, SsePosition::Name(0)) {
            SsePosition::Name(0) | SsePosition::Bom(0) => Some(SseItem::Blank),
            // `data` without a colon is a data line without a value.
            SsePosition::Name(matched) if matched == FIELD.len() => Some(SseItem::DataEnd),
            SsePosition::Colon | SsePosition::Value => Some(SseItem::DataEnd),
            SsePosition::Name(_) | SsePosition::Bom(_) | SsePosition::Other => None,
        }
    }
}

/// Removes the rest of the line from `rest` and returns it, without the CR or LF at its end.
fn take_line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
    let (line, after) = rest.split_at(end);
    *rest = after;
    line
}
