//! Server-sent events, line by line, as the WHATWG describes them: lines end with LF, CR or CRLF, an event ends with an
//! empty line, a byte order mark at the beginning is no part of it. Chunks may be cut anywhere.

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A part of a `data` line's value.
    Data(&'a [u8]),
    /// A `data` line is over.
    DataEnd,
    /// An empty line: the event is over.
    Blank,
}

const BOM: &[u8] = b"\xEF\xBB\xBF";
const FIELD: &[u8] = b"data";

/// Where in a line it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// At the very beginning, after so many bytes of a byte order mark.
    Bom(usize),
    /// After so many bytes of the name `data`; 0 is the beginning of a line.
    Name(usize),
    /// After the colon of `data:`, where one space does not count.
    Colon,
    /// In the value of `data`.
    Value,
    /// In a comment or another field.
    Other,
}

/// A stream of events that is being read.
#[derive(Debug)]
pub(super) struct EventLines {
    line: Line,
    /// The line before ended with CR, and nothing came since: an LF would belong to it.
    after_cr: bool,
}

impl EventLines {
    pub(super) fn new() -> Self {
        Self { line: Line::Bom(0), after_cr: false }
    }

    /// Whether an LF that came now would only be the second half of the last line's end.
    pub(super) fn owes_lf(&self) -> bool {
        self.after_cr
    }

    /// Reads on: the next piece, and `rest` without it. `None` where the chunk is used up.
    pub(super) fn next<'a>(&mut self, rest: &mut &'a [u8]) -> Option<Piece<'a>> {
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
                Line::Bom(matched) if byte == BOM[matched] => {
                    *rest = &rest[1..];
                    let all = matched + 1 == BOM.len();
                    self.line = if all { Line::Name(0) } else { Line::Bom(matched + 1) };
                }
                Line::Bom(0) => self.line = Line::Name(0),
                Line::Name(matched) if FIELD.get(matched) == Some(&byte) => {
                    *rest = &rest[1..];
                    self.line = Line::Name(matched + 1);
                }
                Line::Name(matched) if matched == FIELD.len() && byte == b':' => {
                    *rest = &rest[1..];
                    self.line = Line::Colon;
                }
                Line::Bom(_) | Line::Name(_) => self.line = Line::Other,
                Line::Colon => {
                    if byte == b' ' {
                        *rest = &rest[1..];
                    }
                    self.line = Line::Value;
                }
                Line::Value => return Some(Piece::Data(take_line(rest))),
                Line::Other => {
                    take_line(rest);
                }
            }
        }
        None
    }

    /// The line ends with this byte, which was read.
    fn end_line(&mut self, byte: u8, rest: &mut &[u8]) -> Option<Piece<'static>> {
        if byte == b'\r' {
            match rest.first() {
                Some(b'\n') => *rest = &rest[1..],
                Some(_) => {}
                None => self.after_cr = true,
            }
        }
        match std::mem::replace(&mut self.line, Line::Name(0)) {
            Line::Name(0) | Line::Bom(0) => Some(Piece::Blank),
            // `data` alone is a line of data without a value.
            Line::Name(matched) if matched == FIELD.len() => Some(Piece::DataEnd),
            Line::Colon | Line::Value => Some(Piece::DataEnd),
            Line::Name(_) | Line::Bom(_) | Line::Other => None,
        }
    }
}

/// What is left of the line, without its end.
fn take_line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
    let (line, after) = rest.split_at(end);
    *rest = after;
    line
}
