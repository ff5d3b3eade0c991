//! The pool's events as journal lines, kept in memory until the journal takes them.

use std::mem;

use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::JournalWriter;

/// Journal lines that were not passed to the journal yet. The task takes them after each batch of
/// messages. Before [`JournalLines::start`], events are only counted, and their lines are not kept.
#[derive(Default)]
pub(crate) struct JournalLines {
    writer: Option<JournalWriter<Vec<u8>>>,
    events: u64,
}

/// Lines taken from a [`JournalLines`].
#[derive(Debug, Default)]
pub(crate) struct JournalChunk {
    /// Complete lines, each with its newline.
    pub(crate) bytes: Vec<u8>,
    /// Number of events. Events are counted even if their lines were not kept and `bytes` is empty.
    pub(crate) events: u64,
}

impl JournalChunk {
    /// Appends the lines of `next`.
    pub(crate) fn append(&mut self, mut next: Self) {
        self.bytes.append(&mut next.bytes);
        self.events += next.events;
    }
}

impl JournalLines {
    /// Starts keeping lines; called when a journal is opened.
    pub(crate) fn start(&mut self) {
        self.writer.get_or_insert_with(|| JournalWriter::new(Vec::new()));
    }

    /// Adds the line of an event, or only counts the event if lines are not kept.
    pub(crate) fn write(&mut self, at: Micros, event: &Event) {
        self.events += 1;
        if let Some(writer) = &mut self.writer {
            // Writing to memory cannot fail.
            let _ = writer.write_event(at, event);
        }
    }

    /// Removes and returns all lines, with the number of events.
    pub(crate) fn take(&mut self) -> JournalChunk {
        let events = mem::take(&mut self.events);
        let bytes = match &mut self.writer {
            Some(writer) if events > 0 => {
                mem::replace(writer, JournalWriter::new(Vec::new())).into_inner()
            }
            _ => Vec::new(),
        };
        JournalChunk { bytes, events }
    }

    /// Returns true if no event was added since the last take.
    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0
    }
}
