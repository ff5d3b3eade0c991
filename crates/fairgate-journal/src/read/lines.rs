//! Lines of bounded length, read into one buffer.

use std::io::{self, BufRead, Read};

/// Reads lines, and counts them and their bytes.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// How many lines were read.
    pub(crate) count: u64,
    /// How many bytes were read, ends of lines included.
    pub(crate) bytes: u64,
}

/// What the next line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line, without its end.
    Bytes(&'a [u8]),
    /// A line longer than it may be, of which no more was read than that.
    TooLong,
    /// There is none.
    End,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), count: 0, bytes: 0 }
    }

    /// Reads the next line, which may have `most` bytes. The last line may lack its end.
    pub(crate) fn next(&mut self, most: u64) -> io::Result<Line<'_>> {
        self.buffer.clear();
        let mut bounded = self.input.by_ref().take(most.saturating_add(1));
        let read = bounded.read_until(b'\n', &mut self.buffer)? as u64;
        self.bytes += read;
        if read == 0 {
            return Ok(Line::End);
        }
        self.count += 1;
        match self.buffer.strip_suffix(b"\n") {
            Some(line) => Ok(Line::Bytes(line)),
            None if read > most => Ok(Line::TooLong),
            None => Ok(Line::Bytes(&self.buffer)),
        }
    }

    /// Gives back the buffer's memory, after a line that was much longer than those to come.
    pub(crate) fn release_buffer(&mut self) {
        self.buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_bounded() {
        let mut lines = Lines::new(&b"abcd\n\nabcd"[..]);
        assert_eq!(lines.next(4).unwrap(), Line::Bytes(b"abcd"));
        assert_eq!(lines.next(0).unwrap(), Line::Bytes(b""));
        assert_eq!((lines.count, lines.bytes), (2, 6));
        assert_eq!(lines.next(4).unwrap(), Line::Bytes(b"abcd"));
        assert_eq!((lines.count, lines.bytes), (3, 10));
        assert_eq!(lines.next(4).unwrap(), Line::End);
        assert_eq!((lines.count, lines.bytes), (3, 10));
    }

    #[test]
    fn a_line_that_is_too_long_is_not_read_on() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'x')));
        assert_eq!(lines.next(1000).unwrap(), Line::TooLong);
        assert_eq!((lines.count, lines.bytes), (1, 1001));
        assert_eq!(Lines::new(&b"abcde\n"[..]).next(4).unwrap(), Line::TooLong);
        assert_eq!(Lines::new(&b"abcde"[..]).next(4).unwrap(), Line::TooLong);
    }

    #[test]
    fn the_buffer_can_be_given_back() {
        let mut lines = Lines::new(&b"abcd\nef\n"[..]);
        lines.next(4).unwrap();
        lines.release_buffer();
        assert_eq!(lines.buffer.capacity(), 0);
        assert_eq!(lines.next(4).unwrap(), Line::Bytes(b"ef"));
    }
}
