//! The thread that writes a journal's files.
//!
//! Each page of whole lines is one write, so that a killed process leaves whole lines. A file is synced to the disk
//! when it ends and when the gate is drained; in between a loss of power may take what the system had not written.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use fairgate_core::snapshot::Snapshot;

use super::buffer::{Buffer, Parcel};
use super::disk::{Disk, DiskFile};
use super::names::{FileName, Kind, UNFINISHED};
use crate::tape::Page;

/// Writes files one after another.
pub(super) struct FileWriter {
    disk: Box<dyn Disk>,
    files_max: usize,
    next_number: u64,
    current: Option<Current>,
    /// Which time of day the pool's time was, for the first line of each file.
    clock: Option<fairgate_journal::Clock>,
}

/// The file that is being written.
struct Current {
    file: Box<dyn DiskFile>,
    /// How long it is with its last whole page.
    length: u64,
}

impl FileWriter {
    /// Goes on after the files that are there.
    pub(super) fn new(disk: Box<dyn Disk>, files_max: usize) -> io::Result<Self> {
        let names = names(&*disk)?;
        let next_number = names.last().map_or(0, |last| last.number.saturating_add(1));
        Ok(Self { disk, files_max: files_max.max(1), next_number, current: None, clock: None })
    }

    /// Lets each file say which time of day its times were.
    pub(super) fn with_clock(self, clock: fairgate_journal::Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Begins a file with a snapshot. It is seen under its name when that is whole.
    pub(super) fn begin(&mut self, snapshot: &Snapshot, kind: Kind) -> io::Result<()> {
        self.finish()?;
        self.remove_oldest()?;
        let begun = self.write_first_line(snapshot, kind);
        if begun.is_err() {
            // What cannot be removed is overwritten by the next beginning.
            let _ = self.disk.remove(UNFINISHED);
        }
        begun
    }

    fn write_first_line(&mut self, snapshot: &Snapshot, kind: Kind) -> io::Result<()> {
        let mut counted = Counted { file: self.disk.create(UNFINISHED)?, bytes: 0 };
        let mut writer = fairgate_journal::Writer::new(BufWriter::new(&mut counted));
        if let Some(clock) = self.clock {
            writer = writer.with_clock(clock);
        }
        writer.write_snapshot(snapshot)?;
        writer.flush()?;
        drop(writer);
        counted.file.sync()?;
        let name = FileName { number: self.next_number, kind };
        self.disk.rename(UNFINISHED, &name.to_string())?;
        self.next_number = self.next_number.saturating_add(1);
        self.current = Some(Current { file: counted.file, length: counted.bytes });
        Ok(())
    }

    /// Writes a page. Where that fails the file ends with the page before.
    fn write(&mut self, page: &Page) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Err(io::Error::other("no file was begun"));
        };
        if let Err(error) = current.file.write_all(&page.bytes) {
            // At worst the file's last line is torn, which a replay says.
            let _ = current.file.truncate(current.length);
            let _ = self.finish();
            return Err(error);
        }
        current.length += page.bytes.len() as u64;
        Ok(())
    }

    /// Brings the current file to its end.
    fn finish(&mut self) -> io::Result<()> {
        self.current.take().map_or(Ok(()), |mut current| current.file.sync())
    }

    /// Makes room for one more file.
    fn remove_oldest(&self) -> io::Result<()> {
        let names = names(&*self.disk)?;
        let too_many = (names.len() + 1).saturating_sub(self.files_max);
        names.iter().take(too_many).try_for_each(|name| self.disk.remove(&name.to_string()))
    }

    /// Writes what comes through the buffer, until it is closed.
    pub(super) fn run(mut self, buffer: &Arc<Buffer>) {
        let _over = Over(buffer);
        while let Some(parcel) = buffer.next() {
            let (written, events) = match parcel {
                Parcel::Begin { snapshot, kind } => (self.begin(&snapshot, kind), 0),
                Parcel::Lines(page) => (self.write(&page), page.events),
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

/// However the writer ends, the task learns it.
struct Over<'a>(&'a Buffer);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Counted {
    file: Box<dyn DiskFile>,
    bytes: u64,
}

impl Write for &mut Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The journal's files, oldest first.
pub(super) fn names(disk: &dyn Disk) -> io::Result<Vec<FileName>> {
    let mut names: Vec<FileName> =
        disk.list()?.iter().filter_map(|name| FileName::parse(name)).collect();
    names.sort_unstable_by_key(|name| name.number);
    Ok(names)
}
