//! One spool file of lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::line::{self, SpoolLine};
use crate::ledger::AttemptRow;
use crate::private_files::private;

/// Bytes that a file must accept to count as writable again after a failure. Most lines are
/// shorter.
pub(super) const PROBE: [u8; 4096] = [b' '; 4096];

/// File to which bytes are only appended.
pub(super) trait AppendOnlyFile: Send + Sync + std::fmt::Debug {
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    fn cut(&self, length: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

impl AppendOnlyFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Spool file of lines, and the number of its rows that are not in the database.
#[derive(Debug)]
pub(super) struct SpoolSegment {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn AppendOnlyFile>,
    /// Total size of the complete lines, in bytes.
    pub(super) bytes: u64,
    /// Number of rows of this file that are not in the database.
    pub(super) rows: usize,
    /// True if there may be bytes after the last complete line, such as a part of the next one.
    may_have_incomplete_lines: bool,
}

impl SpoolSegment {
    /// Creates a new, empty file.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let file = private().create_new(true).append(true).open(&path)?;
        Ok(Self::of(path, Arc::new(file)))
    }

    pub(super) fn of(path: PathBuf, file: Arc<dyn AppendOnlyFile>) -> Self {
        Self { path, file, bytes: 0, rows: 0, may_have_incomplete_lines: false }
    }

    /// Opens a file that an earlier process left. Also returns the number of incomplete lines in the file.
    pub(super) fn open_existing(path: PathBuf) -> io::Result<(Self, usize)> {
        let file = private().create(false).append(true).open(&path)?;
        let (mut bytes, mut rows, mut damaged) = (0, 0, 0);
        for line in BufReader::new(&file).split(b'\n') {
            let line = line?;
            bytes += line.len() as u64 + 1;
            match line::read(&line) {
                SpoolLine::Row(_) => rows += 1,
                SpoolLine::NotWhole => damaged += 1,
                SpoolLine::Foreign => {
                    let problem = format!(
                        "{} has rows of another version of fairgate; start that one once and stop it",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
            }
        }
        Ok((
            Self { path, file: Arc::new(file), bytes, rows, may_have_incomplete_lines: true },
            damaged,
        ))
    }

    /// Appends the lines of `rows` rows. If that fails, the part that was written is never read.
    pub(super) fn append(&mut self, lines: &[u8], rows: usize) -> io::Result<()> {
        self.cut_incomplete_lines()?;
        self.may_have_incomplete_lines = true;
        self.file.append(lines)?;
        self.may_have_incomplete_lines = false;
        self.bytes += lines.len() as u64;
        self.rows += rows;
        Ok(())
    }

    /// Tests whether the file accepts [`PROBE`], and leaves the file unchanged.
    pub(super) fn probe(&mut self) -> io::Result<()> {
        self.cut_incomplete_lines()?;
        self.may_have_incomplete_lines = true;
        self.file.append(&PROBE)?;
        self.cut_incomplete_lines()
    }

    /// Removes the bytes after the last complete line, because they would corrupt the next line.
    fn cut_incomplete_lines(&mut self) -> io::Result<()> {
        if self.may_have_incomplete_lines {
            self.file.cut(self.bytes)?;
            self.may_have_incomplete_lines = false;
        }
        Ok(())
    }
}

/// Reads at most `max` rows between the offsets `offset` and `end`. Also returns the offset of the next row.
pub(super) fn read_back(
    path: &Path,
    offset: u64,
    end: u64,
    max: usize,
) -> io::Result<(Vec<AttemptRow>, u64)> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut lines = BufReader::new(file.take(end - offset));
    let (mut rows, mut at, mut line) = (Vec::new(), offset, Vec::new());
    while rows.len() < max {
        line.clear();
        let bytes = lines.read_until(b'\n', &mut line)?;
        if bytes == 0 {
            // The last line may lack its newline.
            return Ok((rows, end));
        }
        at += bytes as u64;
        if let SpoolLine::Row(row) = line::read(line.strip_suffix(b"\n").unwrap_or(&line)) {
            rows.push(*row);
        }
    }
    Ok((rows, at))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// A disk with room for a certain number of bytes. It can be made to refuse a truncation.
    #[derive(Debug, Default)]
    struct Narrow {
        bytes: Mutex<Vec<u8>>,
        room: AtomicUsize,
        stuck: AtomicBool,
    }

    impl AppendOnlyFile for Narrow {
        fn append(&self, bytes: &[u8]) -> io::Result<()> {
            let room = self.room.load(Relaxed);
            let fits = bytes.len().min(room);
            self.bytes.lock().unwrap().extend(&bytes[..fits]);
            self.room.store(room - fits, Relaxed);
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn cut(&self, length: u64) -> io::Result<()> {
            if self.stuck.load(Relaxed) {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            self.bytes.lock().unwrap().truncate(usize::try_from(length).unwrap());
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_spoils_no_acknowledged_line() {
        let disk = Arc::new(Narrow::default());
        let mut segment = SpoolSegment::of(PathBuf::new(), disk.clone());
        let line = |text: &str| format!("{text}\n").into_bytes();
        disk.room.store(8, Relaxed);
        segment.append(&line("first"), 1).unwrap();
        segment.append(&line("second"), 1).unwrap_err();
        // While the incomplete line cannot be cut off, nothing is appended.
        disk.stuck.store(true, Relaxed);
        disk.room.store(100, Relaxed);
        segment.append(&line("third"), 1).unwrap_err();
        disk.stuck.store(false, Relaxed);
        segment.append(&line("fourth"), 1).unwrap();
        assert_eq!(*disk.bytes.lock().unwrap(), b"first\nfourth\n");
        assert_eq!(segment.rows, 2);
        // A probe leaves the file unchanged, whether it succeeds or fails.
        segment.probe().unwrap_err();
        disk.room.store(10_000, Relaxed);
        segment.probe().unwrap();
        segment.append(&line("fifth"), 1).unwrap();
        assert_eq!(*disk.bytes.lock().unwrap(), b"first\nfourth\nfifth\n");
        assert_eq!(segment.rows, 3);
    }
}
