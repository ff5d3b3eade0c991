//! Joins small HTTP chunks of an upstream's answer that arrive together.
//!
//! hyper passes on an answer chunk by chunk, at about 2 000 instructions each. An upstream that
//! streams in chunks of one byte would cost forty times the instructions of the same bytes in
//! chunks of 1 KB. [`ChunkJoiningStream`] reads from the socket for hyper. Within the bytes of one
//! read, it replaces each run of small chunks by one chunk with the same data. It never waits for
//! more bytes, so it delays nothing.
//!
//! The framing must be read exactly as hyper reads it. Therefore only the simplest form is joined:
//! an answer of HTTP/1.1 with `Transfer-Encoding: chunked` and no `Content-Length`, and chunks of
//! hexadecimal digits and CRLF without extensions. From the first byte that differs from this form,
//! the bytes of the connection pass unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of a chunk that is joined with others, in bytes. Joining larger chunks would save
/// little, and copying them costs time.
const SMALL_CHUNK_BYTES: u64 = 512;
/// Maximum size of an answer's head that is kept until the rest of it arrives, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of digits in the size of a chunk.
const SIZE_DIGITS_MAX: u32 = 8;

/// A connection to an upstream that joins small chunks of answers. See the module's documentation.
pub(super) struct ChunkJoiningStream<S> {
    stream: S,
    joiner: ChunkJoiner,
}

impl<S> ChunkJoiningStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, joiner: ChunkJoiner::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ChunkJoiningStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        let kept = this.joiner.join(&mut into.filled_mut()[before..]);
        into.set_filled(before + kept);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ChunkJoiningStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Position of the bytes that were read so far within an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerPosition {
    /// In the head of an answer, or before it.
    Head,
    /// In a body with a stated length; the number is that of the bytes still to come.
    SizedBody(u64),
    /// In the digits of a chunk's size.
    ChunkSize { size: u64, digits: u32 },
    /// Before the line feed that ends the size.
    ChunkSizeEnd(u64),
    /// In the data of a chunk; the number is that of the bytes still to come. 0 is before the
    /// chunk's CRLF.
    ChunkData(u64),
    /// Before the line feed that ends a chunk.
    ChunkEnd,
    /// After the chunk of size 0, before the CRLF that ends the body.
    LastChunk,
    /// Before the line feed that ends the body.
    LastChunkEnd,
    /// In a form that is not understood. From here on the bytes pass unchanged.
    Unknown,
}

/// The beginning of a chunk's size.
const CHUNK_BEGIN: AnswerPosition = AnswerPosition::ChunkSize { size: 0, digits: 0 };

struct ChunkJoiner {
    position: AnswerPosition,
    /// Bytes of a head that is not complete.
    head: Vec<u8>,
    /// Data of the chunks that are being joined.
    joined: Vec<u8>,
}

impl Default for ChunkJoiner {
    fn default() -> Self {
        Self { position: AnswerPosition::Head, head: Vec::new(), joined: Vec::new() }
    }
}

/// A chunk that is complete within the bytes of a read.
struct WholeChunk {
    data_begin: usize,
    data_end: usize,
    end: usize,
}

impl ChunkJoiner {
    /// Joins the chunks in the bytes of one read, in place. Returns the number of bytes of the
    /// result, which is at the beginning of `bytes`. It is 0 only if `bytes` is empty.
    fn join(&mut self, bytes: &mut [u8]) -> usize {
        let (mut read, mut written) = (0, 0);
        while read < bytes.len() {
            if self.position == AnswerPosition::Unknown && written == read {
                return bytes.len();
            }
            if self.position == CHUNK_BEGIN
                && let Some((end, length)) = self.join_run(bytes, read, written)
            {
                (read, written) = (end, written + length);
                continue;
            }
            let step = self.advance(&bytes[read..]);
            bytes.copy_within(read..read + step, written);
            (read, written) = (read + step, written + step);
        }
        written
    }

    /// Replaces the whole small chunks from `begin` on by one chunk, which is written at `to`.
    /// Returns the end of the last replaced chunk and the length of the new one; `None` if there
    /// are fewer than two chunks.
    fn join_run(&mut self, bytes: &mut [u8], begin: usize, to: usize) -> Option<(usize, usize)> {
        self.joined.clear();
        let (mut end, mut count) = (begin, 0);
        while let Some(chunk) = whole_chunk(bytes, end) {
            self.joined.extend_from_slice(&bytes[chunk.data_begin..chunk.data_end]);
            (end, count) = (chunk.end, count + 1);
        }
        if count < 2 {
            return None;
        }
        let size = format!("{:x}\r\n", self.joined.len());
        // Each chunk had a digit and four bytes of line ends, so two of them have room for the
        // larger size of the joined chunk.
        let length = size.len() + self.joined.len() + 2;
        debug_assert!(to + length <= end, "{length} bytes from {to} do not fit before {end}");
        let (into, data) = bytes[to..to + length].split_at_mut(size.len());
        into.copy_from_slice(size.as_bytes());
        data[..self.joined.len()].copy_from_slice(&self.joined);
        data[self.joined.len()..].copy_from_slice(b"\r\n");
        Some((end, length))
    }

    /// Moves the position over some of the bytes. Returns their number, which is at least 1.
    /// `bytes` must not be empty.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        use AnswerPosition::{
            ChunkData, ChunkEnd, ChunkSize, ChunkSizeEnd, Head, LastChunk, LastChunkEnd, SizedBody,
            Unknown,
        };
        let (next, step) = match (self.position, bytes[0]) {
            (Head, _) => return self.advance_in_head(bytes),
            (Unknown, _) => (Unknown, bytes.len()),
            (SizedBody(left), _) => match left_after(left, bytes) {
                (0, step) => (Head, step),
                (left, step) => (SizedBody(left), step),
            },
            (ChunkSize { size, digits: 1.. }, b'\r') => (ChunkSizeEnd(size), 1),
            (ChunkSize { size, digits }, byte) => match hexadecimal(byte) {
                Some(digit) if digits < SIZE_DIGITS_MAX => {
                    (ChunkSize { size: size << 4 | u64::from(digit), digits: digits + 1 }, 1)
                }
                _ => (Unknown, 1),
            },
            (ChunkSizeEnd(0), b'\n') => (LastChunk, 1),
            (ChunkSizeEnd(size), b'\n') => (ChunkData(size), 1),
            (ChunkData(0), b'\r') => (ChunkEnd, 1),
            (ChunkData(left @ 1..), _) => {
                let (left, step) = left_after(left, bytes);
                (ChunkData(left), step)
            }
            (ChunkEnd, b'\n') => (CHUNK_BEGIN, 1),
            (LastChunk, b'\r') => (LastChunkEnd, 1),
            (LastChunkEnd, b'\n') => (Head, 1),
            _ => (Unknown, 1),
        };
        self.position = next;
        step
    }

    fn advance_in_head(&mut self, bytes: &[u8]) -> usize {
        let known = self.head.len();
        // Most heads arrive in one piece.
        let head_end = match known {
            0 => head_end(bytes, 0),
            _ => {
                self.head.extend_from_slice(bytes);
                head_end(&self.head, known.saturating_sub(3))
            }
        };
        let Some(end) = head_end else {
            if known == 0 {
                self.head.extend_from_slice(bytes);
            }
            if self.head.len() > HEAD_BYTES_MAX {
                (self.head, self.position) = (Vec::new(), AnswerPosition::Unknown);
            }
            return bytes.len();
        };
        let head = if known == 0 { &bytes[..end] } else { &self.head[..end] };
        self.position = position_after_head(head);
        self.head = Vec::new();
        end - known
    }
}

/// Returns the whole chunk of at most [`SMALL_CHUNK_BYTES`] that starts at `begin`. `None` if there
/// is no such chunk, or if it is the last one, of size 0.
fn whole_chunk(bytes: &[u8], begin: usize) -> Option<WholeChunk> {
    let (mut at, mut size) = (begin, 0);
    while let Some(digit) = hexadecimal(*bytes.get(at)?) {
        size = size << 4 | u64::from(digit);
        at += 1;
        if size > SMALL_CHUNK_BYTES || at - begin > SIZE_DIGITS_MAX as usize {
            return None;
        }
    }
    let data_begin = at + 2;
    let data_end = data_begin + usize::try_from(size).ok()?;
    let end = data_end + 2;
    let is_whole =
        size > 0 && bytes.get(at..data_begin)? == b"\r\n" && bytes.get(data_end..end)? == b"\r\n";
    is_whole.then_some(WholeChunk { data_begin, data_end, end })
}

fn hexadecimal(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Returns the number of bytes of `left` that remain after `bytes`, and the number of bytes in
/// `bytes` that count.
fn left_after(left: u64, bytes: &[u8]) -> (u64, usize) {
    let step = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (left - step as u64, step)
}

/// Returns the end of a head, after the empty line; the search begins at `from`.
fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    let end = memchr::memmem::find(&bytes[from..], b"\r\n\r\n")?;
    Some(from + end + 4)
}

/// Returns the position after the head of an answer, which ends with an empty line.
///
/// hyper parses the head again and refuses a malformed one. So this function parses only what the
/// framing needs. It is strict only where hyper is lenient: every line must end with CRLF and be a
/// header of its own.
fn position_after_head(head: &[u8]) -> AnswerPosition {
    let Some(code) = status_code(head) else { return AnswerPosition::Unknown };
    match code {
        101 => return AnswerPosition::Unknown,
        100..200 | 204 | 304 => return AnswerPosition::Head,
        _ => {}
    }
    let (mut encoding, mut length) = (None, None);
    let mut begin = 0;
    for line_feed in memchr::memchr_iter(b'\n', head) {
        let Some(line) = head[begin..line_feed].strip_suffix(b"\r") else {
            return AnswerPosition::Unknown;
        };
        begin = line_feed + 1;
        let found = match line.first() {
            Some(b't' | b'T') => value(line, b"transfer-encoding").map(|it| encoding.replace(it)),
            Some(b'c' | b'C') => value(line, b"content-length").map(|it| length.replace(it)),
            // The rest of a folded header.
            Some(b' ' | b'\t') => return AnswerPosition::Unknown,
            // The empty line is the end.
            None if begin != head.len() => return AnswerPosition::Unknown,
            _ => None,
        };
        if found.flatten().is_some() {
            return AnswerPosition::Unknown;
        }
    }
    match (encoding, length) {
        (Some(encoding), None) if encoding.eq_ignore_ascii_case(b"chunked") => CHUNK_BEGIN,
        (None, Some(length)) => match decimal(length) {
            Some(0) => AnswerPosition::Head,
            Some(length) => AnswerPosition::SizedBody(length),
            None => AnswerPosition::Unknown,
        },
        _ => AnswerPosition::Unknown,
    }
}

/// Returns the status of a head of HTTP/1.1; `None` for anything else.
fn status_code(head: &[u8]) -> Option<u64> {
    let code = head.strip_prefix(b"HTTP/1.1 ")?.get(..4)?;
    match code[3] {
        b' ' | b'\r' => decimal(&code[..3]),
        _ => None,
    }
}

/// Returns the value of a header line if it has this name, without the whitespace around it.
fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Returns the number that a text of 1 to 18 decimal digits states; `None` for anything else.
fn decimal(text: &[u8]) -> Option<u64> {
    if !(1..=18).contains(&text.len()) {
        return None;
    }
    text.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use fairgate_random::SeededRng;

    use super::*;

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Passes the bytes through a joiner: first in reads of the given lengths, and then the rest in
    /// one read.
    fn joined(bytes: &[u8], reads: impl IntoIterator<Item = usize>) -> Vec<u8> {
        let (mut joiner, mut all, mut rest) = (ChunkJoiner::default(), Vec::new(), bytes);
        for length in reads.into_iter().chain([usize::MAX]) {
            let (read, after) = rest.split_at(length.min(rest.len()));
            let mut read = read.to_vec();
            let kept = joiner.join(&mut read);
            assert_eq!(kept == 0, read.is_empty(), "a read of 0 bytes would be the end");
            all.extend_from_slice(&read[..kept]);
            rest = after;
        }
        all
    }

    fn text(bytes: &[u8], reads: impl IntoIterator<Item = usize>) -> String {
        String::from_utf8(joined(bytes, reads)).expect("text")
    }

    /// Returns the data of the chunks after a head, the number of chunks, and the end of the
    /// answer. It uses only the grammar of chunks.
    fn decoded(answer: &[u8]) -> (Vec<u8>, usize, usize) {
        let mut at = head_end(answer, 0).expect("a head");
        let (mut data, mut chunks) = (Vec::new(), 0);
        loop {
            let line = at + memchr::memmem::find(&answer[at..], b"\r\n").expect("a size");
            let size = std::str::from_utf8(&answer[at..line]).expect("text");
            let size = usize::from_str_radix(size, 16).expect("a number");
            let end = line + 2 + size;
            data.extend_from_slice(&answer[line + 2..end]);
            assert_eq!(&answer[end..end + 2], b"\r\n");
            at = end + 2;
            if size == 0 {
                return (data, chunks, at);
            }
            chunks += 1;
        }
    }

    #[test]
    fn chunks_that_arrive_together_become_one() {
        let answer = format!("{CHUNKED}1\r\na\r\n2\r\nbc\r\n0A\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(
            text(answer.as_bytes(), []),
            format!("{CHUNKED}d\r\nabc0123456789\r\n0\r\n\r\n")
        );
    }

    #[test]
    fn a_chunk_that_is_not_whole_is_passed_on_at_once() {
        let answer =
            format!("{CHUNKED}1\r\na\r\n1\r\nb\r\n3\r\ncde\r\n1\r\nf\r\n1\r\ng\r\n0\r\n\r\n");
        // The first read ends in the data of the third chunk, the second one in the size of the fifth.
        let first = CHUNKED.len() + 6 + 6 + 4;
        assert_eq!(
            text(answer.as_bytes(), [first, 11]),
            format!("{CHUNKED}2\r\nab\r\n3\r\ncde\r\n1\r\nf\r\n1\r\ng\r\n0\r\n\r\n")
        );
    }

    #[test]
    fn the_next_answer_on_the_connection_is_joined_again() {
        let small = "1\r\na\r\n1\r\nb\r\n0\r\n\r\n";
        let sized = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n1\r\na\r\n1\r\nb\r\n";
        let bodiless = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        let answers = format!("{CHUNKED}{small}{sized}{bodiless}{CHUNKED}{small}");
        let one = format!("{CHUNKED}2\r\nab\r\n0\r\n\r\n");
        assert_eq!(text(answers.as_bytes(), []), format!("{one}{sized}{bodiless}{one}"));
    }

    #[test]
    fn whatever_is_not_plain_passes_unchanged() {
        let small = "1\r\na\r\n1\r\nb\r\n";
        for head in [
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n , gzip\r\n\r\n",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1\r\na\r\n0\r\n\r\n",
            "HTTP/1.1 2000 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            let answer = format!("{head}{small}{small}");
            assert_eq!(text(answer.as_bytes(), []), answer);
        }
        for odd in [
            "1;a=b\r\na\r\n",
            "\r\n",
            "g\r\n",
            "1\na\n",
            "1\r\nab\r\n",
            "123456789\r\n",
            " 1\r\na\r\n",
        ] {
            let answer = format!("{CHUNKED}{odd}{small}{small}");
            assert_eq!(text(answer.as_bytes(), []), answer);
        }
        // A trailer ends what is understood.
        let answer = format!("{CHUNKED}{small}0\r\nX-A: b\r\n\r\n{CHUNKED}{small}");
        let rest = format!("0\r\nX-A: b\r\n\r\n{CHUNKED}{small}");
        assert_eq!(text(answer.as_bytes(), []), format!("{CHUNKED}2\r\nab\r\n{rest}"));
    }

    #[test]
    fn a_head_that_never_ends_is_not_kept() {
        let mut joiner = ChunkJoiner::default();
        for _ in 0..100 {
            let mut read = vec![b'a'; 1 << 12];
            assert_eq!(joiner.join(&mut read), 1 << 12);
            assert!(joiner.head.len() <= HEAD_BYTES_MAX);
        }
        assert_eq!(joiner.position, AnswerPosition::Unknown);
    }

    #[test]
    fn the_data_of_random_answers_is_the_same_in_fewer_chunks() {
        for seed in 0..2_000 {
            let mut random = SeededRng::new(seed);
            let (mut answers, mut data, mut chunks) = (Vec::new(), Vec::new(), 0);
            let count = random.count(1..=3);
            for _ in 0..count {
                answers.extend_from_slice(CHUNKED.as_bytes());
                for _ in 0..random.count(0..=40) {
                    let size = if random.percent(90) {
                        random.count(1..=9)
                    } else {
                        random.count(1..=2000)
                    };
                    let bytes: Vec<u8> = (0..size).map(|_| b"\r\n01aA;"[random.index(7)]).collect();
                    let zeros = "0".repeat(random.count(0..=2));
                    answers.extend_from_slice(format!("{zeros}{size:x}\r\n").as_bytes());
                    answers.extend_from_slice(&bytes);
                    answers.extend_from_slice(b"\r\n");
                    data.extend(bytes);
                    chunks += 1;
                }
                answers.extend_from_slice(b"0\r\n\r\n");
            }
            let longest = if random.percent(50) { 20 } else { 3000 };
            let reads: Vec<usize> = (0..200).map(|_| random.count(1..=longest)).collect();
            let passed = joined(&answers, reads);
            let (mut again, mut left, mut rest) = (Vec::new(), 0, &passed[..]);
            for _ in 0..count {
                let (data, chunks, end) = decoded(rest);
                again.extend(data);
                left += chunks;
                rest = &rest[end..];
            }
            assert!(again == data && rest.is_empty() && left <= chunks, "seed {seed}");
        }
    }
}
