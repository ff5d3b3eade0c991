//! A journal, opened: the pool it starts from and its events, each with its line.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use fairgate_core::Pool;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::Reader;

use super::progress::Progress;
use crate::output::{FlushingInput, Output};

type Input = BufReader<FlushingInput<Box<dyn Read>>>;

/// A journal that is being read.
pub(crate) struct Journal {
    name: String,
    reader: Reader<Input>,
    progress: Progress,
}

/// An event of a journal, with its line.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) line: u64,
    pub(crate) at: Micros,
    pub(crate) event: Event,
}

impl Journal {
    /// Opens a journal and reads its first line: the pool it starts from. What `output` holds is passed on whenever more must be read.
    pub(crate) fn open(path: &Path, output: &Output) -> anyhow::Result<(Pool, Self)> {
        let (name, input, bytes) = open_input(path)?;
        let input = FlushingInput::new(input, output.clone());
        let input = BufReader::with_capacity(1 << 16, input);
        let (start, reader) = Reader::open(input).with_context(|| name.clone())?;
        let pool = start.into_pool().with_context(|| name.clone())?;
        let progress = Progress::hidden(bytes);
        Ok((pool, Self { name, reader, progress }))
    }

    /// Shows how far it is on standard error, where that is a terminal.
    pub(crate) fn show_progress(&mut self, task: &'static str) {
        self.progress.show(task);
    }

    /// The next event, or nothing at the end.
    pub(crate) fn next_entry(&mut self) -> anyhow::Result<Option<Entry>> {
        let Some((at, event)) = self.reader.next_event().with_context(|| self.name.clone())? else {
            return Ok(None);
        };
        let line = self.reader.line();
        self.progress.advance(line, self.reader.bytes_read());
        Ok(Some(Entry { line, at, event }))
    }
}

/// The input, what errors call it, and its length where it is known.
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
