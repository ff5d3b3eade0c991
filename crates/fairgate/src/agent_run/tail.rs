//! The end of what a command printed, as people read it.

use std::collections::VecDeque;

/// How long a line of progress may be, in bytes.
const LINE_BYTES_MAX: usize = 1 << 10;

/// The last bytes of a stream.
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    bytes_max: usize,
}

impl Tail {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: VecDeque::new(), bytes_max }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// The last lines, without what steers a terminal; of a line that is only there in part, nothing.
    pub(super) fn lines(&self, lines_max: usize) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let text = readable(&String::from_utf8_lossy(&bytes));
        let text = text.trim_end();
        let lines: Vec<&str> = text.lines().collect();
        let cut = usize::from(self.bytes.len() == self.bytes_max && lines.len() > 1);
        lines[lines.len().saturating_sub(lines_max).max(cut)..].join("\n")
    }
}

/// The last line that says something.
#[derive(Default)]
pub(super) struct LastLine {
    line: Vec<u8>,
    last: Option<String>,
}

impl LastLine {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' || byte == b'\r' {
                let line = std::mem::take(&mut self.line);
                self.last = said(&line).or(self.last.take());
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(byte);
            }
        }
    }

    /// The last whole line; where there is none yet, what there is of the first.
    pub(super) fn get(&self) -> Option<String> {
        self.last.clone().or_else(|| said(&self.line))
    }
}

fn said(line: &[u8]) -> Option<String> {
    let line = readable(&String::from_utf8_lossy(line));
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// A text without escape sequences and control characters, other than ends of lines and tabs.
pub(super) fn readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => skip_escape(&mut chars),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(char),
            _ if char.is_control() => {}
            _ => out.push(char),
        }
    }
    out
}

/// Goes past the rest of an escape sequence: `[…letter`, `]…BEL` or `]…ESC \`, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => while chars.next().is_some_and(|char| !('@'..='~').contains(&char)) {},
        Some(']') => {
            while let Some(char) = chars.next() {
                if char == '\u{7}' {
                    break;
                }
                if char == '\u{1b}' {
                    chars.next();
                    break;
                }
            }
        }
        _ => {}
    }
}

/// At most this many bytes of a text, cut between characters, with a mark where it was cut.
pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let room = text.floor_char_boundary(bytes_max.saturating_sub(MARK.len()));
    format!("{}{MARK}", &text[..room])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole_and_readable() {
        let mut tail = Tail::new(20);
        tail.push(b"a first line\nsecond\n\x1b[31mthird\x1b[0m\0\n");
        assert_eq!(tail.lines(10), "third");
        let mut tail = Tail::new(100);
        tail.push(b"one\r\ntwo\n");
        tail.push(b"three\n\n");
        assert_eq!(tail.lines(2), "two\nthree");
        assert_eq!(tail.lines(9), "one\ntwo\nthree");
        let mut flood = Tail::new(8);
        flood.push(&[b'x'; 100]);
        assert_eq!(flood.lines(9), "xxxxxxxx");
        assert_eq!(Tail::new(8).lines(9), "");
    }

    #[test]
    fn progress_is_the_last_line_that_says_something() {
        let mut line = LastLine::default();
        assert_eq!(line.get(), None);
        line.push(b"star");
        assert_eq!(line.get().as_deref(), Some("star"));
        line.push(b"ted\n\x1b]0;title\x07 10 %\r 20 %\r\n   \n");
        assert_eq!(line.get().as_deref(), Some("20 %"));
        line.push(b"half a l");
        assert_eq!(line.get().as_deref(), Some("20 %"));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("äöüß", 6), "ä…");
        assert!(cut("äöüß", 6).len() <= 6);
    }
}
