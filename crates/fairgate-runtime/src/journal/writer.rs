//! The thread that writes a journal's files.
//!
//! Each chunk of complete lines is one write, so that the file of a killed process contains only
//! complete lines. A file is synced after its first line, the snapshot, and then only when the next
//! file begins, a write fails or the gate is drained. A power loss between these moments loses the
//! lines that the operating system has not yet written.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use fairgate_core::snapshot::Snapshot;

use super::buffer::{JournalBuffer, JournalWrite};
use super::disk::{JournalDisk, JournalDiskFile};
use super::file_name::{GateJournalFileKind, GateJournalFileName, UNFINISHED};
use crate::journal_lines::JournalChunk;

/// Writes the files of a journal, one after another.
pub(super) struct GateJournalWriter {
    disk: Box<dyn JournalDisk>,
    files_max: usize,
    next_number: u64,
    current: Option<OpenJournalFile>,
    /// Wall-clock time that corresponds to a pool time, for the first line of each file.
    clock: Option<fairgate_journal::JournalClock>,
}

/// The file that is being written.
struct OpenJournalFile {
    file: Box<dyn JournalDiskFile>,
    /// Length of the file up to the end of its last whole chunk, in bytes.
    length: u64,
}

impl GateJournalWriter {
    /// Returns a writer that continues the numbers of the files in the folder.
    pub(super) fn new(disk: Box<dyn JournalDisk>, files_max: usize) -> io::Result<Self> {
        let names = names(&*disk)?;
        let next_number = names.last().map_or(0, |last| last.number.saturating_add(1));
        Ok(Self { disk, files_max: files_max.max(1), next_number, current: None, clock: None })
    }

    /// Sets the wall-clock time that is written in the first line of each file.
    pub(super) fn with_clock(self, clock: fairgate_journal::JournalClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Begins a file with a snapshot. The file gets its final name once the snapshot is complete.
    pub(super) fn begin(
        &mut self,
        snapshot: &Snapshot,
        kind: GateJournalFileKind,
    ) -> io::Result<()> {
        self.finish()?;
        self.remove_oldest()?;
        let begun = self.write_first_line(snapshot, kind);
        if begun.is_err() {
            // If the file cannot be removed, the next file overwrites it.
            let _ = self.disk.remove(UNFINISHED);
        }
        begun
    }

    fn write_first_line(
        &mut self,
        snapshot: &Snapshot,
        kind: GateJournalFileKind,
    ) -> io::Result<()> {
        let mut counted = ByteCountingFile { file: self.disk.create(UNFINISHED)?, bytes: 0 };
        let mut writer = fairgate_journal::JournalWriter::new(BufWriter::new(&mut counted));
        if let Some(clock) = self.clock {
            writer = writer.with_clock(clock);
        }
        writer.write_snapshot(snapshot)?;
        writer.flush()?;
        drop(writer);
        counted.file.sync()?;
        let name = GateJournalFileName { number: self.next_number, kind };
        self.disk.rename(UNFINISHED, &name.to_string())?;
        self.next_number = self.next_number.saturating_add(1);
        self.current = Some(OpenJournalFile { file: counted.file, length: counted.bytes });
        Ok(())
    }

    /// Writes a chunk of lines. If that fails, the file ends with the previous chunk.
    fn write(&mut self, chunk: &JournalChunk) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Err(io::Error::other("no file was begun"));
        };
        if let Err(error) = current.file.write_all(&chunk.bytes) {
            // In the worst case, the last line of the file is incomplete, and a replay reports
            // that.
            let _ = current.file.truncate(current.length);
            let _ = self.finish();
            return Err(error);
        }
        current.length += chunk.bytes.len() as u64;
        Ok(())
    }

    /// Syncs and closes the current file.
    fn finish(&mut self) -> io::Result<()> {
        self.current.take().map_or(Ok(()), |mut current| current.file.sync())
    }

    /// Deletes the oldest files, so that there are at most `files_max` files after one new file is added.
    fn remove_oldest(&self) -> io::Result<()> {
        let names = names(&*self.disk)?;
        let too_many = (names.len() + 1).saturating_sub(self.files_max);
        names.iter().take(too_many).try_for_each(|name| self.disk.remove(&name.to_string()))
    }

    /// Writes everything that is passed through the buffer, until the buffer is closed.
    pub(super) fn run(mut self, buffer: &Arc<JournalBuffer>) {
        let _over = WriterEndGuard(buffer);
        while let Some(parcel) = buffer.next() {
            let (written, events) = match parcel {
                JournalWrite::Begin { snapshot, kind } => (self.begin(&snapshot, kind), 0),
                JournalWrite::Lines(chunk) => (self.write(&chunk), chunk.events),
            };
            if let Err(error) = written {
                self.current = None;
                buffer.fail(error.to_string(), events);
            }
        }
        if let Err(error) = self.finish() {
            buffer.fail(error.to_string(), 0);
        }
    }
}

/// Guard that reports to the task that the writer has ended for any reason.
struct WriterEndGuard<'a>(&'a JournalBuffer);

impl Drop for WriterEndGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct ByteCountingFile {
    file: Box<dyn JournalDiskFile>,
    bytes: u64,
}

impl Write for &mut ByteCountingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the names of the journal's files, oldest first.
pub(super) fn names(disk: &dyn JournalDisk) -> io::Result<Vec<GateJournalFileName>> {
    let mut names: Vec<GateJournalFileName> =
        disk.list()?.iter().filter_map(|name| GateJournalFileName::parse(name)).collect();
    names.sort_unstable_by_key(|name| name.number);
    Ok(names)
}
