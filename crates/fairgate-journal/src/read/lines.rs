//! Reads lines of bounded length into one buffer that is reused.

use std::io::{self, BufRead, Read};

/// Reads an input line by line, with a limit on the length of a line. Keeps the number of lines and of bytes that were
/// read.
#[derive(Debug)]
pub(crate) struct BoundedLines<R> {
    input: R,
    buffer: Vec<u8>,
    /// Number of lines read so far.
    pub(crate) count: u64,
    /// Number of bytes read so far, including line ends.
    pub(crate) bytes: u64,
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BoundedLine<'a> {
    /// The bytes of a line, without the line end.
    Bytes(&'a [u8]),
    /// The line is longer than allowed. Reading stopped one byte after the limit.
    TooLong,
    /// The input has no further line.
    End,
}

impl<R: BufRead> BoundedLines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), count: 0, bytes: 0 }
    }

    /// Reads the next line, which may have at most `most` bytes without its line end. The last line may lack a line
    /// end.
    pub(crate) fn next(&mut self, most: u64) -> io::Result<BoundedLine<'_>> {
        self.buffer.clear();
        let mut bounded = self.input.by_ref().take(most.saturating_add(1));
        let read = bounded.read_until(b'\n', &mut self.buffer)? as u64;
        self.bytes += read;
        if read == 0 {
            return Ok(BoundedLine::End);
        }
        self.count += 1;
        match self.buffer.strip_suffix(b"\n") {
            Some(line) => Ok(BoundedLine::Bytes(line)),
            None if read > most => Ok(BoundedLine::TooLong),
            None => Ok(BoundedLine::Bytes(&self.buffer)),
        }
    }

    /// Frees the memory of the buffer. Used after the first line, which may be much longer than all others.
    pub(crate) fn release_buffer(&mut self) {
        self.buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_and_bounded() {
        let mut lines = BoundedLines::new(&b"abcd\n\nabcd"[..]);
        assert_eq!(lines.next(4).unwrap(), BoundedLine::Bytes(b"abcd"));
        assert_eq!(lines.next(0).unwrap(), BoundedLine::Bytes(b""));
        assert_eq!((lines.count, lines.bytes), (2, 6));
        assert_eq!(lines.next(4).unwrap(), BoundedLine::Bytes(b"abcd"));
        assert_eq!((lines.count, lines.bytes), (3, 10));
        assert_eq!(lines.next(4).unwrap(), BoundedLine::End);
        assert_eq!((lines.count, lines.bytes), (3, 10));
    }

    #[test]
    fn a_line_that_is_too_long_is_not_read_on() {
        let mut lines = BoundedLines::new(io::BufReader::new(io::repeat(b'x')));
        assert_eq!(lines.next(1000).unwrap(), BoundedLine::TooLong);
        assert_eq!((lines.count, lines.bytes), (1, 1001));
        assert_eq!(BoundedLines::new(&b"abcde\n"[..]).next(4).unwrap(), BoundedLine::TooLong);
        assert_eq!(BoundedLines::new(&b"abcde"[..]).next(4).unwrap(), BoundedLine::TooLong);
    }

    #[test]
    fn the_buffer_can_be_given_back() {
        let mut lines = BoundedLines::new(&b"abcd\nef\n"[..]);
        lines.next(4).unwrap();
        lines.release_buffer();
        assert_eq!(lines.buffer.capacity(), 0);
        assert_eq!(lines.next(4).unwrap(), BoundedLine::Bytes(b"ef"));
    }
}
