//! The events of a pool as lines of a journal, until somebody takes them to the disk.

use std::mem;

use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::Writer;

/// Lines that are not on the disk yet. It is emptied after each batch of letters, or does not run.
#[derive(Default)]
pub(crate) struct Tape {
    writer: Option<Writer<Vec<u8>>>,
    events: u64,
}

/// What was on a tape.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Whole lines.
    pub(crate) bytes: Vec<u8>,
    /// How many.
    pub(crate) events: u64,
}

impl Page {
    /// Puts another page behind this one.
    pub(crate) fn append(&mut self, mut next: Self) {
        self.bytes.append(&mut next.bytes);
        self.events += next.events;
    }
}

impl Tape {
    /// Starts to keep events.
    pub(crate) fn run(&mut self) {
        self.writer.get_or_insert_with(|| Writer::new(Vec::new()));
    }

    /// Keeps an event, or only counts it.
    pub(crate) fn write(&mut self, at: Micros, event: &Event) {
        self.events += 1;
        if let Some(writer) = &mut self.writer {
            // Memory takes everything.
            let _ = writer.write_event(at, event);
        }
    }

    /// Takes what was kept, and how many events there were.
    pub(crate) fn take(&mut self) -> Page {
        let events = mem::take(&mut self.events);
        let bytes = match &mut self.writer {
            Some(writer) if events > 0 => {
                mem::replace(writer, Writer::new(Vec::new())).into_inner()
            }
            _ => Vec::new(),
        };
        Page { bytes, events }
    }

    /// Whether there is nothing on it.
    pub(crate) fn is_empty(&self) -> bool {
        self.events == 0
    }
}
