//! Reads a journal from its first line to its last.

use std::io::BufRead;

use fairgate_core::event::Event;
use fairgate_core::units::Micros;

use crate::clock::JournalClock;
use crate::error::JournalError;
use crate::journal_text_error::JournalTextError;
use crate::read::event::event;
use crate::read::header::{EDITION, JournalHeader, header};
use crate::read::lines::{BoundedLine, BoundedLines};
use crate::start::JournalStart;

/// Greatest number of bytes that the line of an event may have, which is 64 MiB. A longer line is refused after that
/// many bytes have been read.
pub const MAX_EVENT_LINE_BYTES: u64 = 64 << 20;

/// Greatest number of bytes that the first line may have, which is 4 GiB. A longer line is refused after that many
/// bytes have been read.
pub const MAX_FIRST_LINE_BYTES: u64 = 4 << 30;

/// Reads a journal event by event. Only one line is held in memory, however long the journal is.
///
/// After an error, or at the end of the journal, the reader returns no more events.
#[derive(Debug)]
pub struct JournalReader<R> {
    lines: BoundedLines<R>,
    latest: Micros,
    clock: Option<JournalClock>,
    machine: Option<u64>,
    is_of_other_edition: bool,
    finished: bool,
}

impl<R: BufRead> JournalReader<R> {
    /// Opens a journal and reads its first line.
    pub fn open(input: R) -> Result<(JournalStart, Self), JournalError> {
        let lines = BoundedLines::new(input);
        let mut reader = Self {
            lines,
            latest: Micros(0),
            clock: None,
            machine: None,
            is_of_other_edition: false,
            finished: false,
        };
        let Some(JournalHeader { start, clock, machine }) =
            reader.read_line(MAX_FIRST_LINE_BYTES, header)?
        else {
            return Err(JournalError::bad(1, "the journal is empty: its first line is missing"));
        };
        reader.latest = start.now();
        reader.clock = clock;
        reader.machine = machine;
        reader.is_of_other_edition = match machine {
            Some(machine) => machine != EDITION,
            None => clock.is_some() && start.has_workers(),
        };
        reader.lines.release_buffer();
        Ok((start, reader))
    }

    /// Reads the next event and its time, or `None` at the end of the journal.
    ///
    /// Times must never decrease. An event with a time before that of the previous event, or before that of the
    /// snapshot from which the journal starts, is an error.
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

    /// Returns one moment of the journal together with its time of day; `None` if the first line states none.
    pub fn clock(&self) -> Option<JournalClock> {
        self.clock
    }

    /// Returns the edition of the scheduling rules by which the writer decided; `None` if the first line states none.
    pub fn machine(&self) -> Option<u64> {
        self.machine
    }

    /// Returns true if the writer used another edition of the scheduling rules than [`EDITION`], which this program
    /// uses. The replayed decisions may then differ from the original ones. The result is true if the first line names
    /// another edition. It is also true if the first line states a clock and workers but no edition, because a writer
    /// of this edition states the edition whenever it states a clock.
    pub fn is_of_other_edition(&self) -> bool {
        self.is_of_other_edition
    }

    /// Returns the number of the line that was read last, counted from 1.
    pub fn line(&self) -> u64 {
        self.lines.count
    }

    /// Returns the number of bytes of the journal that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.lines.bytes
    }

    /// Reads one line; `None` at the end of the journal. Blank lines are only allowed at the end.
    fn read_line<T>(
        &mut self,
        most_bytes: u64,
        read: impl FnOnce(&str) -> Result<T, JournalTextError>,
    ) -> Result<Option<T>, JournalError> {
        let line = self.lines.count + 1;
        let io = |source| JournalError::Io { line, source };
        let bytes = match self.lines.next(most_bytes).map_err(io)? {
            BoundedLine::Bytes(bytes) => bytes,
            BoundedLine::TooLong => {
                let message = format!("longer than {most_bytes} bytes");
                return Err(JournalError::bad(line, message));
            }
            BoundedLine::End => return Ok(None),
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

    /// Checks that only blank lines follow the blank line whose line number is `blank`.
    fn expect_end(&mut self, blank: u64, most_bytes: u64) -> Result<(), JournalError> {
        loop {
            let line = self.lines.count + 1;
            let io = |source| JournalError::Io { line, source };
            match self.lines.next(most_bytes).map_err(io)? {
                BoundedLine::End => return Ok(()),
                BoundedLine::Bytes(bytes) if is_blank(bytes) => {}
                BoundedLine::Bytes(_) | BoundedLine::TooLong => {
                    return Err(JournalError::bad(blank, "malformed JSON: the line is blank"));
                }
            }
        }
    }
}

fn goes_back(at: Micros, latest: Micros) -> JournalTextError {
    let (at, latest) = (at.0, latest.0);
    JournalTextError::new(0, format!("time goes back: {at} after {latest}")).in_field("at")
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'))
}
