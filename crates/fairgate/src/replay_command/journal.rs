//! Opens a journal, and reads the pool that it starts from and its events with their line numbers.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use fairgate_core::Pool;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::JournalReader;

use super::edition::OtherEdition;
use super::progress::ReplayProgress;
use crate::output::{FlushingInput, StdoutWriter};

type JournalInput = BufReader<FlushingInput<Box<dyn Read>>>;

/// A journal that is being read.
pub(crate) struct ReplayJournal {
    name: String,
    reader: JournalReader<JournalInput>,
    progress: ReplayProgress,
}

/// An event of a journal, with the number of its line.
#[derive(Debug)]
pub(crate) struct ReplayEntry {
    pub(crate) line: u64,
    pub(crate) at: Micros,
    pub(crate) event: Event,
}

impl ReplayJournal {
    /// Opens a journal and reads its first line, which has the pool that the journal starts from. Flushes `output`
    /// whenever more input must be read.
    pub(crate) fn open(path: &Path, output: &StdoutWriter) -> anyhow::Result<(Pool, Self)> {
        let (name, input, bytes) = open_input(path)?;
        let input = FlushingInput::new(input, output.clone());
        let input = BufReader::with_capacity(1 << 16, input);
        let (start, reader) = JournalReader::open(input).with_context(|| name.clone())?;
        let pool = start.into_pool().with_context(|| name.clone())?;
        let progress = ReplayProgress::hidden(bytes);
        Ok((pool, Self { name, reader, progress }))
    }

    /// Shows the progress on standard error, if that is a terminal.
    pub(crate) fn show_progress(&mut self, task: &'static str) {
        self.progress.show(task);
    }

    /// Returns the journal's name for error messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the edition of the scheduling rules that wrote the journal; `None` if it is this program's edition.
    pub(crate) fn other_edition(&self) -> Option<OtherEdition> {
        let is_other = self.reader.is_of_other_edition();
        is_other.then(|| OtherEdition::new(self.reader.machine()))
    }

    /// Returns the next event; `None` at the end.
    pub(crate) fn next_entry(&mut self) -> anyhow::Result<Option<ReplayEntry>> {
        let Some((at, event)) = self.reader.next_event().with_context(|| self.name.clone())? else {
            return Ok(None);
        };
        let line = self.reader.line();
        self.progress.advance(line, self.reader.bytes_read());
        Ok(Some(ReplayEntry { line, at, event }))
    }
}

/// Opens a file or standard input. Returns the name for error messages, the input, and the input's length in bytes if
/// it is known.
fn open_input(path: &Path) -> anyhow::Result<(String, Box<dyn Read>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok(("standard input".into(), Box::new(io::stdin()), None));
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let metadata = file.metadata().with_context(|| name.clone())?;
    let bytes = metadata.is_file().then_some(metadata.len());
    Ok((name, Box::new(file), bytes))
}
