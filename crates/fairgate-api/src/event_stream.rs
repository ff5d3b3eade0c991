//! Reads a stream of server-sent events, as responses with the content type `text/event-stream` have it.
//!
//! [`EventStreamReader`] is a pure parser. It takes bytes in pieces of any size, and returns the
//! events that are complete. It follows the section "Server-sent events" of the HTML standard:
//!
//! - Lines end with CR, LF or CR LF. An empty line ends an event.
//! - Lines that begin with a colon are comments.
//! - Several `data` lines of one event are joined with line feeds.
//! - An event without data is ignored.
//!
//! The size of an event is bounded, so a server cannot fill the client's memory.

use std::fmt;
use std::mem;

/// Longest event that is read unless the caller says otherwise, in bytes.
pub const EVENT_BYTES_MAX: usize = 16 << 20;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// Name of the event; empty if the server gave none.
    pub name: String,
    /// Data of the event; its lines are joined by `\n`.
    pub data: String,
    /// Id of the last event that had an id, with which a client can continue the stream; empty if
    /// no event had one.
    pub last_id: String,
}

/// The error of an event that is longer than the reader allows. The stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLargeError {
    /// Longest event that the reader allows, in bytes.
    pub bytes_max: usize,
}

impl fmt::Display for EventTooLargeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of the stream is longer than {} bytes", self.bytes_max)
    }
}

impl std::error::Error for EventTooLargeError {}

/// Incremental parser of a stream of events.
#[derive(Clone, Debug)]
pub struct EventStreamReader {
    bytes_max: usize,
    /// Bytes of a line whose end has not come yet.
    line: Vec<u8>,
    /// True if the last byte was a CR. An LF after it belongs to the same line end.
    after_cr: bool,
    /// True after the first line was read. Only the first line may begin with a byte order mark.
    has_begun: bool,
    name: String,
    data: String,
    has_data: bool,
    last_id: String,
}

impl Default for EventStreamReader {
    fn default() -> Self {
        Self::new(EVENT_BYTES_MAX)
    }
}

impl EventStreamReader {
    /// Creates a reader that allows events of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            after_cr: false,
            has_begun: false,
            name: String::new(),
            data: String::new(),
            has_data: false,
            last_id: String::new(),
        }
    }

    /// Reads the next bytes of the stream, and returns the events that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<ServerSentEvent>, EventTooLargeError> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some((&first, after_first)) = rest.split_first() {
            if mem::take(&mut self.after_cr) && first == b'\n' {
                rest = after_first;
                continue;
            }
            let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let Some(end) = rest.iter().position(is_end) else {
                self.extend_line(rest)?;
                break;
            };
            self.extend_line(&rest[..end])?;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            events.extend(self.end_line()?);
        }
        Ok(events)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLargeError> {
        self.line.extend_from_slice(bytes);
        self.check(self.line.len())
    }

    fn check(&self, length: usize) -> Result<(), EventTooLargeError> {
        match length > self.bytes_max {
            true => Err(EventTooLargeError { bytes_max: self.bytes_max }),
            false => Ok(()),
        }
    }

    /// Handles a complete line. Returns an event if the line is empty and so ends an event with
    /// data.
    fn end_line(&mut self) -> Result<Option<ServerSentEvent>, EventTooLargeError> {
        let line = mem::take(&mut self.line);
        let line = match mem::replace(&mut self.has_begun, true) {
            true => &line[..],
            false => line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line),
        };
        if line.is_empty() {
            return Ok(self.end_event());
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.check(self.data.len())?;
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.last_id),
            // Comments, `retry` and unknown fields are ignored.
            _ => {}
        }
        Ok(None)
    }

    fn end_event(&mut self) -> Option<ServerSentEvent> {
        let (name, data) = (mem::take(&mut self.name), mem::take(&mut self.data));
        let has_data = mem::take(&mut self.has_data);
        has_data.then(|| ServerSentEvent { name, data, last_id: self.last_id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str, last_id: &str) -> ServerSentEvent {
        ServerSentEvent { name: name.into(), data: data.into(), last_id: last_id.into() }
    }

    /// Parses a stream in pieces of `size` bytes, and returns its events.
    fn in_pieces(text: &str, size: usize) -> Vec<ServerSentEvent> {
        let mut reader = EventStreamReader::default();
        let pieces = text.as_bytes().chunks(size);
        pieces.flat_map(|piece| reader.push(piece).expect("short events")).collect()
    }

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let text = "\u{feff}event: live\ndata: {\"a\":1}\nid: 7\n\n: a comment\n\n\
                    data:one\r\ndata: two\r\n\r\nevent: empty\n\ndata\n\ndata: ü\rdata\r\r\ndata: cut";
        let expected = [
            event("live", "{\"a\":1}", "7"),
            event("", "one\ntwo", "7"),
            event("", "", "7"),
            event("", "ü\n", "7"),
        ];
        for size in 1..=text.len() {
            assert_eq!(in_pieces(text, size), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_value_keeps_all_but_its_first_space() {
        assert_eq!(in_pieces("data:  x: y\nretry: 5\nodd\n\n", 3), [event("", " x: y", "")]);
    }

    #[test]
    fn an_event_without_end_does_not_fill_the_memory() {
        let error = EventTooLargeError { bytes_max: 8 };
        assert_eq!(EventStreamReader::new(8).push(b"data: 0123"), Err(error));
        let mut reader = EventStreamReader::new(8);
        assert_eq!(reader.push(b"data: 1\ndata: 2\ndata: 3\ndata: 4\n"), Ok(Vec::new()));
        assert_eq!(reader.push(b"data: 5\n"), Err(error));
    }
}
