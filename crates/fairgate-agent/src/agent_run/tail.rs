//! The end of a command's output, as readable text.

use std::collections::VecDeque;

/// Greatest length of the line that is reported as progress, in bytes.
const LINE_BYTES_MAX: usize = 1 << 10;

/// The last bytes of a stream.
pub(super) struct OutputTail {
    bytes: VecDeque<u8>,
    bytes_max: usize,
}

impl OutputTail {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: VecDeque::new(), bytes_max }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// Returns the last lines without terminal control sequences; a line that was cut at its beginning is left out.
    pub(super) fn lines(&self, lines_max: usize) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let text = readable(&String::from_utf8_lossy(&bytes));
        let text = text.trim_end();
        let lines: Vec<&str> = text.lines().collect();
        let cut = usize::from(self.bytes.len() == self.bytes_max && lines.len() > 1);
        lines[lines.len().saturating_sub(lines_max).max(cut)..].join("\n")
    }
}

/// The last line that is not empty.
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
                self.last = non_empty(&line).or(self.last.take());
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(byte);
            }
        }
    }

    /// Returns the last whole line that is not empty; if there is none yet, the beginning of the first line.
    pub(super) fn get(&self) -> Option<String> {
        self.last.clone().or_else(|| non_empty(&self.line))
    }
}

fn non_empty(line: &[u8]) -> Option<String> {
    let line = readable(&String::from_utf8_lossy(line));
    let line = line.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Removes escape sequences and control characters, except line ends and tabs.
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

/// Skips the rest of an escape sequence, which is `[…letter`, `]…BEL`, `]…ESC \` or one character.
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

/// Cuts a text to at most this many bytes, between characters, and marks the cut.
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
        let mut tail = OutputTail::new(20);
        tail.push(b"a first line\nsecond\n\x1b[31mthird\x1b[0m\0\n");
        assert_eq!(tail.lines(10), "third");
        let mut tail = OutputTail::new(100);
        tail.push(b"one\r\ntwo\n");
        tail.push(b"three\n\n");
        assert_eq!(tail.lines(2), "two\nthree");
        assert_eq!(tail.lines(9), "one\ntwo\nthree");
        let mut flood = OutputTail::new(8);
        flood.push(&[b'x'; 100]);
        assert_eq!(flood.lines(9), "xxxxxxxx");
        assert_eq!(OutputTail::new(8).lines(9), "");
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
