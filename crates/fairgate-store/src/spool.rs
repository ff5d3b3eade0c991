//! Keeps rows that are acknowledged but not in the database yet. The spool is used with either
//! database.
//!
//! A response ends only when its row can survive a kill of the process, and the response must not
//! wait for a database that is slow or does not answer. A line that is appended to a file without a
//! sync reaches the kernel after some microseconds. So a row is acknowledged once its line is in a
//! spool file. A writer moves the rows to the database, hundreds at a time, and the next process
//! moves the rows that a killed process left. (Without the spool, each response would wait for a
//! commit. On SQLite, a commit of a few rows rewrites a page of the table and of every index, which
//! is about 7 KB per row at 4 000 rows a second, and stalls while the disk syncs the log. On
//! PostgreSQL, a commit takes a round trip, and never ends while the server does not answer.)
//!
//! [`SpoolIntake`] accepts the rows, formats the lines of all waiting rows and appends them with
//! one write.
//!
//! Lines are appended to the last of several numbered files. A file is removed once all of its rows are in the
//! database. A row that is both in a file and in the database after a kill is not charged twice, because the database
//! knows its request and attempt.
//!
//! Memory is limited. Up to a limit, rows wait in memory for the writer. Further rows are only in
//! the files, and are read back in order when the writer reaches them. The rows of an earlier
//! process are read in the same way. The total size of the files is limited too, and at that limit
//! no more rows are accepted.
//!
//! An incomplete line is skipped, and its file is copied ([`files::copy_damaged`]). If a file has
//! lines of another version of the program, it is left unchanged, and the spool cannot be opened.
//!
//! Without the spool, with an SQLite commit for every few rows, the p99 of responses was 2 to 30 ms
//! at a fifth of the maximum rate; with the spool it is 1 ms. Without the spool, an outage of
//! PostgreSQL delayed every response. A query of the ledger first moves the pending rows of its own
//! process to the database, so the query includes them.

mod files;
mod intake;
mod line;
mod segment;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use self::files::SpoolFiles;
pub(crate) use self::intake::{RowWriter, SpoolIntake};
use self::segment::{SpoolSegment, read_back};
use crate::ledger::AttemptRow;
use crate::private_files::{FileLock, private};

/// Number of waiting rows at which the writer is woken early.
pub(crate) const WAKE_ROWS: usize = 1_024;
/// Size of a file in bytes at which the next file begins.
const SEGMENT_BYTES: u64 = 4 << 20;

/// Limits of a spool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpoolBounds {
    /// Maximum number of rows that are held in memory.
    pub(crate) memory_rows: usize,
    /// Maximum total size of all files, in bytes.
    pub(crate) bytes_max: u64,
}

/// A row that was taken from the spool to be written to the database.
#[derive(Debug)]
pub(crate) struct SpooledRow {
    pub(crate) attempt: Box<AttemptRow>,
    /// Number of the file that contains the row's line.
    segment: u64,
}

/// Error for a row that was not written to any file.
#[derive(Debug)]
pub(crate) enum SpoolPutError {
    /// The spool accepts no more rows.
    Closed,
    /// The row could not be written.
    Unwritten { attempt: Box<AttemptRow>, problem: io::Error },
}

/// Result of writing one row to the files.
pub(crate) type PutResult = Result<(), SpoolPutError>;

/// Lines of rows, one after the other, and the offset of the end of each.
#[derive(Debug, Default)]
pub(crate) struct SpoolLines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl SpoolLines {
    /// Replaces the lines by the lines of these rows.
    fn set(&mut self, attempts: &[Box<AttemptRow>]) {
        self.bytes.clear();
        self.ends.clear();
        for attempt in attempts {
            line::write(attempt, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
    }

    /// Iterates over the lines, each with its offset.
    fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| (start, &self.bytes[start..*end]))
    }
}

/// Spool files, and the rows in them that are not in the database yet.
#[derive(Debug)]
pub(crate) struct Spool {
    files: SpoolFiles,
    bounds: SpoolBounds,
    state: Mutex<SpoolState>,
    /// True while the spool is open and the last write was successful. Changed together with the state.
    is_healthy: AtomicBool,
}

#[derive(Debug)]
struct SpoolState {
    /// File to which lines are appended, and its number, which is higher than the numbers of all older files.
    current: (u64, SpoolSegment),
    /// Files with rows that are not in the database, by number.
    older: BTreeMap<u64, SpoolSegment>,
    /// Next file and its number. The file is created in advance, so that [`Spool::put`] need not wait for its creation.
    spare: Option<(u64, SpoolSegment)>,
    next_number: u64,
    /// Total size of all segments, in bytes.
    bytes: u64,
    /// Rows in memory that the writer has not taken yet. They are older than all rows of the backlog.
    waiting: VecDeque<SpooledRow>,
    /// Rows that are in the files only and that the writer has not taken yet; `None` if there are no such rows.
    backlog: Option<SpoolBacklog>,
    /// Number of rows in memory: the waiting rows, and those that the writer has taken.
    in_memory: usize,
    /// Number of rows that this process accepted or that earlier processes left.
    put: u64,
    /// Number of these rows that are in the database.
    written: u64,
    /// True if a line could not be written and no probe has succeeded since then. A shorter line
    /// that is written successfully does not reset this flag.
    failing: bool,
    /// True if no more rows are accepted.
    closed: bool,
    /// Lock of the files, if this spool owns one. It is released when the spool closes.
    lock: Option<FileLock>,
}

/// File and offset of the first row that is only in the files, and the number of such rows.
#[derive(Clone, Copy, Debug)]
struct SpoolBacklog {
    segment: u64,
    offset: u64,
    rows: usize,
}

impl Spool {
    /// Opens the spool files. The writer first gets the rows that an earlier process left.
    pub(crate) fn open(
        files: SpoolFiles,
        bounds: SpoolBounds,
        lock: Option<FileLock>,
    ) -> io::Result<Self> {
        let mut older = BTreeMap::new();
        let (mut bytes, mut rows, mut next_number) = (0, 0, 0);
        for number in files.numbers()? {
            next_number = number.saturating_add(1);
            let (segment, damaged) = SpoolSegment::open_existing(files.path(number))?;
            if damaged > 0 {
                let aside = files::copy_damaged(&segment.path)?;
                tracing::warn!(
                    lines = damaged,
                    aside = %aside.display(),
                    "lines of rows are not whole and were kept aside"
                );
            }
            if segment.rows == 0 {
                std::fs::remove_file(&segment.path)?;
                continue;
            }
            bytes += segment.bytes;
            rows += segment.rows;
            older.insert(number, segment);
        }
        let oldest = older.keys().next().copied();
        let backlog = oldest.map(|segment| SpoolBacklog { segment, offset: 0, rows });
        let state = SpoolState {
            current: (next_number, SpoolSegment::create(files.path(next_number))?),
            older,
            spare: None,
            next_number: next_number + 1,
            bytes,
            waiting: VecDeque::new(),
            backlog,
            in_memory: 0,
            put: rows as u64,
            written: 0,
            failing: false,
            closed: false,
            lock,
        };
        Ok(Self { files, bounds, state: Mutex::new(state), is_healthy: AtomicBool::new(true) })
    }

    /// Writes rows to a file, so that they survive a kill of the process. The rows are written
    /// together, or one by one if the file does not accept all of them. Adds a result for each row
    /// to `results`, in their order. Returns true if the writer should be woken. `lines` is a
    /// buffer.
    pub(crate) fn put<R>(
        &self,
        rows: R,
        lines: &mut SpoolLines,
        results: &mut Vec<PutResult>,
    ) -> bool
    where
        R: AsRef<[Box<AttemptRow>]> + IntoIterator<Item = Box<AttemptRow>>,
    {
        lines.set(rows.as_ref());
        let mut state = self.state();
        if state.closed {
            results.extend(rows.into_iter().map(|_| Err(SpoolPutError::Closed)));
            return false;
        }
        let count = rows.as_ref().len();
        let all = state.append(&lines.bytes, count, &self.files, self.bounds.bytes_max);
        let mut must_wake = false;
        for (attempt, (start, line)) in rows.into_iter().zip(lines.iter()) {
            let place = match all {
                Ok((number, offset)) => Ok((number, offset + start as u64)),
                Err(_) => state.append(line, 1, &self.files, self.bounds.bytes_max),
            };
            results.push(match place {
                Ok(place) => {
                    state.accept(attempt, place, self.bounds.memory_rows);
                    must_wake |= matches!(state.waiting(), 1 | WAKE_ROWS);
                    Ok(())
                }
                Err(problem) => {
                    state.failing = true;
                    Err(SpoolPutError::Unwritten { attempt, problem })
                }
            });
        }
        self.note_health(&state);
        must_wake
    }

    fn note_health(&self, state: &SpoolState) {
        self.is_healthy.store(!state.closed && !state.failing, Ordering::Release);
    }

    /// Returns true if a row would be accepted now. The check writes to the file only if an earlier write failed.
    pub(crate) fn is_writable(&self) -> bool {
        if self.is_healthy.load(Ordering::Acquire) {
            return true;
        }
        let mut state = self.state();
        if state.closed || !state.failing {
            return !state.closed;
        }
        let has_room = state.bytes + segment::PROBE.len() as u64 <= self.bounds.bytes_max;
        state.failing = !(has_room && state.current.1.probe().is_ok());
        self.note_health(&state);
        !state.failing
    }

    /// Returns the number of rows that wait for the writer.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting()
    }

    /// Returns the number of rows that are not in the database yet.
    pub(crate) fn pending_rows(&self) -> u64 {
        let state = self.state();
        state.put - state.written
    }

    /// Returns the number of rows accepted so far. See [`Self::has_written`].
    pub(crate) fn rows_accepted(&self) -> u64 {
        self.state().put
    }

    /// Returns true if at least `rows` rows are in the database. These are not always the oldest
    /// ones: while the writer holds an older row that it could not write, newer rows may already be
    /// in the database. So the writer calls this method only when all rows that it had taken are
    /// written.
    pub(crate) fn has_written(&self, rows: u64) -> bool {
        self.state().written >= rows
    }

    /// Moves waiting rows into `rows`, oldest first, until `rows` has `max` elements. Only the writer may call this
    /// method.
    pub(crate) fn take(&self, rows: &mut Vec<SpooledRow>, max: usize) -> io::Result<()> {
        loop {
            let mut state = self.state();
            let some = state.waiting.len().min(max.saturating_sub(rows.len()));
            rows.extend(state.waiting.drain(..some));
            if rows.len() >= max {
                return Ok(());
            }
            let Some((number, offset)) = state.backlog_start() else { return Ok(()) };
            let Some(segment) = state.segment(number) else { return Ok(()) };
            let (path, end) = (segment.path.clone(), segment.bytes);
            // Lines are only appended after `end`, so reading the lines before it needs no lock.
            drop(state);
            let (read, next) = read_back(&path, offset, end, max - rows.len())?;
            let mut state = self.state();
            state.in_memory += read.len();
            state.backlog_read(number, next, read.len());
            let row = |attempt| SpooledRow { attempt: Box::new(attempt), segment: number };
            rows.extend(read.into_iter().map(row));
        }
    }

    /// Marks rows as stored in the database, or as rejected permanently ([`Self::set_aside`]).
    /// Removes files without remaining rows.
    pub(crate) fn mark_written(&self, rows: Vec<SpooledRow>) {
        let (done, wants_spare) = {
            let mut state = self.state();
            state.in_memory -= rows.len();
            state.written += rows.len() as u64;
            for row in &rows {
                if let Some(segment) = state.segment(row.segment) {
                    segment.rows -= 1;
                }
            }
            (state.take_done(), state.take_number_for_spare())
        };
        drop(rows);
        // Nobody writes to these files any more, so they are removed without the lock.
        done.iter().for_each(remove);
        if let Some(number) = wants_spare {
            self.make_spare(number);
        }
    }

    fn make_spare(&self, number: u64) {
        // If the file cannot be created, for example on a full disk, the current file stays in use.
        let Ok(segment) = SpoolSegment::create(self.files.path(number)) else { return };
        let mut state = self.state();
        // Another thread may have switched to the next file meanwhile, and the lines must be in the
        // order of the file numbers.
        let done = if state.current.0 < number && !state.closed {
            state.spare = Some((number, segment));
            state.take_done()
        } else {
            vec![segment]
        };
        drop(state);
        done.iter().for_each(remove);
    }

    /// Appends a row that the database rejects because of its content to a separate file. That file
    /// is not read again.
    pub(crate) fn set_aside(&self, attempt: &AttemptRow) -> io::Result<std::path::PathBuf> {
        let mut line = Vec::new();
        line::write(attempt, &mut line);
        let path = self.files.refused();
        private().append(true).open(&path)?.write_all(&line)?;
        Ok(path)
    }

    /// Syncs the files to disk. While the database does not answer, their lines may be the only
    /// copy of the rows for a long time.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let files: Vec<_> = {
            let state = self.state();
            let with_rows = state.segments().filter(|(_, segment)| segment.rows > 0);
            with_rows.map(|(_, segment)| segment.file.clone()).collect()
        };
        files.iter().try_for_each(|file| file.sync())?;
        self.files.sync_names()
    }

    /// Stops accepting rows. The writer can still take the rows that were accepted before.
    pub(crate) fn stop(&self) {
        let mut state = self.state();
        state.closed = true;
        self.note_health(&state);
    }

    /// Stops accepting rows, and removes the files whose rows are all in the database. Returns the number of rows that
    /// are not in the database.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        state.closed = true;
        self.note_health(&state);
        if let Some((_, spare)) = state.spare.take() {
            remove(&spare);
        }
        let empty = state.segments().filter(|(_, segment)| segment.rows == 0);
        empty.for_each(|(_, segment)| remove(segment));
        state.lock = None;
        state.put - state.written
    }

    fn state(&self) -> MutexGuard<'_, SpoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpoolState {
    fn waiting(&self) -> usize {
        self.waiting.len() + self.backlog.map_or(0, |backlog| backlog.rows)
    }

    /// Iterates over all files, oldest first.
    fn segments(&self) -> impl Iterator<Item = (u64, &SpoolSegment)> {
        let older = self.older.iter().map(|(number, segment)| (*number, segment));
        older.chain(std::iter::once((self.current.0, &self.current.1)))
    }

    fn segment(&mut self, number: u64) -> Option<&mut SpoolSegment> {
        if number == self.current.0 {
            Some(&mut self.current.1)
        } else {
            self.older.get_mut(&number)
        }
    }

    /// Counts a row whose line is in a file. The row waits in memory if there is room.
    fn accept(&mut self, attempt: Box<AttemptRow>, (segment, offset): (u64, u64), rows_max: usize) {
        self.put += 1;
        if let Some(backlog) = &mut self.backlog {
            backlog.rows += 1;
        } else if self.in_memory < rows_max {
            self.in_memory += 1;
            self.waiting.push_back(SpooledRow { attempt, segment });
        } else {
            self.backlog = Some(SpoolBacklog { segment, offset, rows: 1 });
        }
    }

    /// Appends the lines of `rows` rows with one write. Returns the number of the file and the offset in it.
    fn append(
        &mut self,
        lines: &[u8],
        rows: usize,
        files: &SpoolFiles,
        bytes_max: u64,
    ) -> io::Result<(u64, u64)> {
        let length = lines.len() as u64;
        if self.bytes + length > bytes_max {
            let problem = format!(
                "{} rows that are not in the database fill the {} MiB that they may take",
                self.put - self.written,
                bytes_max >> 20
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, problem));
        }
        if self.current.1.bytes >= SEGMENT_BYTES {
            self.switch_to_next_file(files);
        }
        let (number, segment) = &mut self.current;
        let offset = segment.bytes;
        segment.append(lines, rows)?;
        self.bytes += length;
        Ok((*number, offset))
    }

    /// Switches to the next file. If none can be created, the current one stays in use.
    fn switch_to_next_file(&mut self, files: &SpoolFiles) {
        let next = self.spare.take().or_else(|| {
            let number = self.next_number;
            self.next_number += 1;
            Some((number, SpoolSegment::create(files.path(number)).ok()?))
        });
        if let Some(next) = next {
            self.switch_to(next);
        }
    }

    fn switch_to(&mut self, next: (u64, SpoolSegment)) {
        let (number, segment) = std::mem::replace(&mut self.current, next);
        self.older.insert(number, segment);
    }

    /// Removes the files whose rows are all in the database from the state, and returns them. The
    /// current file is one of them if the spare file can replace it.
    fn take_done(&mut self) -> Vec<SpoolSegment> {
        let current = &self.current.1;
        if current.rows == 0
            && current.bytes > 0
            && let Some(spare) = self.spare.take()
        {
            self.switch_to(spare);
        }
        let is_done = |_: &u64, segment: &mut SpoolSegment| segment.rows == 0;
        let done: Vec<_> = self.older.extract_if(.., is_done).map(|(_, done)| done).collect();
        self.bytes -= done.iter().map(|segment| segment.bytes).sum::<u64>();
        done
    }

    /// Reserves the number of the next spare file; `None` if no spare file is needed.
    fn take_number_for_spare(&mut self) -> Option<u64> {
        if self.spare.is_some() || self.closed {
            return None;
        }
        self.next_number += 1;
        Some(self.next_number - 1)
    }

    /// Returns the file and the offset at which the backlog begins; `None` if there is no backlog.
    fn backlog_start(&mut self) -> Option<(u64, u64)> {
        let backlog = self.backlog?;
        let at = self.segments().find_map(|(number, segment)| {
            let offset = if number == backlog.segment { backlog.offset } else { 0 };
            (number >= backlog.segment && offset < segment.bytes).then_some((number, offset))
        });
        if at.is_none() {
            self.backlog = None;
        }
        at
    }

    /// Records that `rows` rows of the backlog were read, up to `offset` in the file `segment`.
    fn backlog_read(&mut self, segment: u64, offset: u64, rows: usize) {
        if let Some(backlog) = &mut self.backlog {
            *backlog = SpoolBacklog { segment, offset, rows: backlog.rows - rows };
        }
        // After the last row of the backlog, new rows wait in memory again.
        self.backlog_start();
    }
}

fn remove(segment: &SpoolSegment) {
    if let Err(problem) = std::fs::remove_file(&segment.path)
        && problem.kind() != io::ErrorKind::NotFound
    {
        let file = segment.path.display();
        tracing::warn!(%file, %problem, "a file of rows that are in the database could not be removed");
    }
}

#[cfg(test)]
mod tests;
