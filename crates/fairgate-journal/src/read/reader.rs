//! Reading a journal from its first line to its last.

use std::io::BufRead;

use fairgate_core::event::Event;
use fairgate_core::units::Micros;

use crate::clock::Clock;
use crate::error::JournalError;
use crate::read::event::event;
use crate::read::fault::Fault;
use crate::read::header::header;
use crate::read::lines::{Line, Lines};
use crate::start::Start;

/// The most bytes that an event's line may have: 64 MiB. A longer one is refused when that much of it was read.
pub const MAX_EVENT_LINE_BYTES: u64 = 64 << 20;

/// The most bytes that the first line may have: 4 GiB. A longer one is refused when that much of it was read.
pub const MAX_FIRST_LINE_BYTES: u64 = 4 << 30;

/// Reads a journal event by event. It holds one line in memory, whatever the length of the journal.
///
/// After an error, or at the end, it has no more events.
#[derive(Debug)]
pub struct Reader<R> {
    lines: Lines<R>,
    latest: Micros,
    clock: Option<Clock>,
    finished: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line of a journal.
    pub fn open(input: R) -> Result<(Start, Self), JournalError> {
        let lines = Lines::new(input);
        let mut reader = Self { lines, latest: Micros(0), clock: None, finished: false };
        let Some((start, clock)) = reader.read_line(MAX_FIRST_LINE_BYTES, header)? else {
            return Err(JournalError::bad(1, "the journal is empty: its first line is missing"));
        };
        reader.latest = start.now();
        reader.clock = clock;
        reader.lines.release_buffer();
        Ok((start, reader))
    }

    /// Reads the next event and its time, or `None` at the end of the journal.
    ///
    /// Times never decrease: an event before the latest one, or before the snapshot that the journal starts
    /// from, is an error.
    pub fn next_event(&mut self) -> Result<Option<(Micros, Event)>, JournalError> {
        if self.finished {
            return Ok(None);
        }
        let latest = self.latest;
        let next = self.read_line(MAX_EVENT_LINE_BYTES, |text| {
            let (at, event) = event(text)?;
            match at >= latest {
                true => Ok((at, event)),
                false => Err(goes_back(at, latest)),
            }
        });
        match &next {
            Ok(Some((at, _))) => self.latest = *at,
            Ok(None) | Err(_) => self.finished = true,
        }
        next
    }

    /// Which time of day the journal's times were, where its first line says so.
    pub fn clock(&self) -> Option<Clock> {
        self.clock
    }

    /// The number of the line that was read last, counted from 1.
    pub fn line(&self) -> u64 {
        self.lines.count
    }

    /// How many bytes of the journal were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.lines.bytes
    }

    /// Reads one line, if there is one. Blank lines may only stand at the end.
    fn read_line<T>(
        &mut self,
        most_bytes: u64,
        read: impl FnOnce(&str) -> Result<T, Fault>,
    ) -> Result<Option<T>, JournalError> {
        let line = self.lines.count + 1;
        let io = |source| JournalError::Io { line, source };
        let bytes = match self.lines.next(most_bytes).map_err(io)? {
            Line::Bytes(bytes) => bytes,
            Line::TooLong => {
                let message = format!("longer than {most_bytes} bytes");
                return Err(JournalError::bad(line, message));
            }
            Line::End => return Ok(None),
        };
        if is_blank(bytes) {
            return self.expect_end(line, most_bytes).map(|()| None);
        }
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let column = e.valid_up_to() + 1;
            JournalError::bad(line, format!("not valid UTF-8 at column {column}"))
        })?;
        read(text).map(Some).map_err(|fault| JournalError::from_fault(fault, text, line))
    }

    /// Checks that nothing but blank lines follows the blank line `blank`.
    fn expect_end(&mut self, blank: u64, most_bytes: u64) -> Result<(), JournalError> {
        loop {
            let line = self.lines.count + 1;
            let io = |source| JournalError::Io { line, source };
            match self.lines.next(most_bytes).map_err(io)? {
                Line::End => return Ok(()),
                Line::Bytes(bytes) if is_blank(bytes) => {}
                Line::Bytes(_) | Line::TooLong => {
                    return Err(JournalError::bad(blank, "malformed JSON: the line is blank"));
                }
            }
        }
    }
}

fn goes_back(at: Micros, latest: Micros) -> Fault {
    let (at, latest) = (at.0, latest.0);
    Fault::new(0, format!("time goes back: {at} after {latest}")).in_field("at")
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'))
}
