//! Rows that are acknowledged and not yet in the database, under either database.
//!
//! An answer ends only when its row is safe from a killed process, and it must not wait for a database that is slow or away.
//! A line appended to a file that nobody syncs is in the kernel's hands after some microseconds. So a row is acknowledged
//! with its line here, a writer brings rows into the database by the hundred, and the next process brings in what a killed one
//! left. (A commit of SQLite for the few rows that are pending rewrites a page of the table and of every index, about 7 KB a
//! row at 4 000 rows a second, and stands still while the disk syncs the very log that it writes to. A commit on PostgreSQL
//! takes a round trip, and for ever while the server is away.)
//!
//! Lines go to numbered files, always to the last one; a file goes once all of its rows are in the database. A row that is in
//! both places after a kill is not charged twice: the database knows it.
//!
//! Memory is bounded. Rows wait in memory for the writer up to a number; those that come after that are in the files only,
//! and are read back in order when it is their turn. What an earlier process left is read the same way. The files are bounded
//! too: at the limit no more rows are taken.
//!
//! A line that is not whole is skipped, and its file kept aside ([`files::keep_aside`]). A file with lines of another version
//! of the program is left alone, and so is the whole spool.

mod files;
mod line;
mod segment;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use self::files::Files;
use self::segment::{Segment, read_back};
use crate::ledger::Attempt;
use crate::private::{FileLock, private};

/// How many waiting rows the writer is woken for before it would wake by itself.
pub(crate) const MANY: usize = 1_024;
/// Where the next file takes over, in bytes.
const SEGMENT_BYTES: u64 = 4 << 20;

/// How much a spool may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many rows are held in memory.
    pub(crate) memory_rows: usize,
    /// How large all files together may become, in bytes.
    pub(crate) bytes_max: u64,
}

/// A row on its way into the database.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) attempt: Box<Attempt>,
    /// The file that its line is in.
    segment: u64,
}

/// A row that could not be made safe, and why.
#[derive(Debug)]
pub(crate) struct Back {
    pub(crate) attempt: Box<Attempt>,
    /// None where the spool is closed.
    pub(crate) problem: Option<io::Error>,
}

/// The files, and the rows in them.
#[derive(Debug)]
pub(crate) struct Spool {
    files: Files,
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The file that lines go to, and its number, higher than those of all others.
    current: (u64, Segment),
    /// Files with rows that are not in the database, by number.
    older: BTreeMap<u64, Segment>,
    /// The next file, made beforehand, so that whoever puts a row need not wait for that.
    spare: Option<(u64, Segment)>,
    next_number: u64,
    /// All segments together, in bytes.
    bytes: u64,
    /// Rows that the writer has not taken yet, before all those of the backlog.
    waiting: VecDeque<Row>,
    /// Rows that the writer has not taken yet and that are in the files only.
    backlog: Option<Backlog>,
    /// How many rows are in memory: those that wait and those that the writer has.
    in_memory: usize,
    /// How many rows have been taken in, by this process or before it, and how many of them are in the database.
    put: u64,
    written: u64,
    line: Vec<u8>,
    /// A line could not be written, and nobody has seen since that there is room again. That a shorter line fits is no sign of it.
    failing: bool,
    /// No more rows are taken.
    closed: bool,
    /// Where the files are this spool's own to lock, until it is closed.
    lock: Option<FileLock>,
}

/// Where the rows begin that are in the files only.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    segment: u64,
    offset: u64,
    rows: usize,
}

impl Spool {
    /// Opens the files. Rows that an earlier process left are the first that the writer takes.
    pub(crate) fn open(files: Files, bounds: Bounds, lock: Option<FileLock>) -> io::Result<Self> {
        let mut older = BTreeMap::new();
        let (mut bytes, mut rows, mut next_number) = (0, 0, 0);
        for number in files.numbers()? {
            next_number = number.saturating_add(1);
            let (segment, damaged) = Segment::left(files.path(number))?;
            if damaged > 0 {
                let aside = files::keep_aside(&segment.path)?;
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
        let backlog = oldest.map(|segment| Backlog { segment, offset: 0, rows });
        let state = State {
            current: (next_number, Segment::create(files.path(next_number))?),
            older,
            spare: None,
            next_number: next_number + 1,
            bytes,
            waiting: VecDeque::new(),
            backlog,
            in_memory: 0,
            put: rows as u64,
            written: 0,
            line: Vec::new(),
            failing: false,
            closed: false,
            lock,
        };
        Ok(Self { files, bounds, state: Mutex::new(state) })
    }

    /// Makes a row safe from a killed process. Says whether the writer should hear of it, or gives the row back where the
    /// files take no more.
    pub(crate) fn put(&self, attempt: Box<Attempt>) -> Result<bool, Back> {
        let mut state = self.state();
        if state.closed {
            return Err(Back { attempt, problem: None });
        }
        let (segment, offset) = match state.append(&attempt, &self.files, self.bounds.bytes_max) {
            Ok(place) => place,
            Err(problem) => {
                state.failing = true;
                return Err(Back { attempt, problem: Some(problem) });
            }
        };
        state.put += 1;
        if let Some(backlog) = &mut state.backlog {
            backlog.rows += 1;
        } else if state.in_memory < self.bounds.memory_rows {
            state.in_memory += 1;
            state.waiting.push_back(Row { attempt, segment });
        } else {
            state.backlog = Some(Backlog { segment, offset, rows: 1 });
        }
        Ok(matches!(state.waiting(), 1 | MANY))
    }

    /// Whether a row would be taken now. Costs nothing unless one was not.
    pub(crate) fn is_writable(&self) -> bool {
        let mut state = self.state();
        if state.closed || !state.failing {
            return !state.closed;
        }
        let has_room = state.bytes + segment::PROBE.len() as u64 <= self.bounds.bytes_max;
        state.failing = !(has_room && state.current.1.probe().is_ok());
        !state.failing
    }

    /// How many rows wait for the writer.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting()
    }

    /// How many rows are here that are not in the database.
    pub(crate) fn ahead(&self) -> u64 {
        let state = self.state();
        state.put - state.written
    }

    /// How many rows have been put so far. Rows reach the database in order: see [`Self::has_written`].
    pub(crate) fn put_so_far(&self) -> u64 {
        self.state().put
    }

    /// Whether so many rows are in the database.
    pub(crate) fn has_written(&self, rows: u64) -> bool {
        self.state().written >= rows
    }

    /// Takes the rows that wait, oldest first, until `rows` has `max` of them. For the one writer.
    pub(crate) fn take(&self, rows: &mut Vec<Row>, max: usize) -> io::Result<()> {
        loop {
            let mut state = self.state();
            let some = state.waiting.len().min(max.saturating_sub(rows.len()));
            rows.extend(state.waiting.drain(..some));
            if rows.len() >= max {
                return Ok(());
            }
            let Some((number, offset)) = state.backlog_begins() else { return Ok(()) };
            let Some(segment) = state.segment(number) else { return Ok(()) };
            let (path, end) = (segment.path.clone(), segment.bytes);
            // Lines are only added behind `end`, so nobody need wait while these are read.
            drop(state);
            let (read, next) = read_back(&path, offset, end, max - rows.len())?;
            let mut state = self.state();
            state.in_memory += read.len();
            state.backlog_read(number, next, read.len());
            let row = |attempt| Row { attempt: Box::new(attempt), segment: number };
            rows.extend(read.into_iter().map(row));
        }
    }

    /// These rows are in the database, or will never be ([`Self::refuse`]).
    pub(crate) fn written(&self, rows: Vec<Row>) {
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
        // Nobody writes to these any more, and nobody need wait while they go.
        done.iter().for_each(remove);
        if let Some(number) = wants_spare {
            self.make_spare(number);
        }
    }

    fn make_spare(&self, number: u64) {
        // A disk that is full may take no new file: then the current one goes on.
        let Ok(segment) = Segment::create(self.files.path(number)) else { return };
        let mut state = self.state();
        // Somebody may have needed the next file in the meantime, and lines are in the order of the numbers.
        let done = if state.current.0 < number && !state.closed {
            state.spare = Some((number, segment));
            state.take_done()
        } else {
            vec![segment]
        };
        drop(state);
        done.iter().for_each(remove);
    }

    /// Keeps a row that a database refuses for what is in it, in a file that nobody reads again by itself.
    pub(crate) fn refuse(&self, attempt: &Attempt) -> io::Result<std::path::PathBuf> {
        let mut line = Vec::new();
        line::write(attempt, &mut line)?;
        let path = self.files.refused();
        private().append(true).open(&path)?.write_all(&line)?;
        Ok(path)
    }

    /// Brings the lines to the disk: while the database is away they are the only copy for long.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let files: Vec<_> = {
            let state = self.state();
            let with_rows = state.segments().filter(|(_, segment)| segment.rows > 0);
            with_rows.map(|(_, segment)| segment.file.clone()).collect()
        };
        files.iter().try_for_each(|file| file.sync())?;
        self.files.sync_names()
    }

    /// Takes no more rows; those that are here can still be taken.
    pub(crate) fn stop(&self) {
        self.state().closed = true;
    }

    /// Takes no more rows, and removes the files unless they still hold rows that the database lacks. Says how many.
    pub(crate) fn close(&self) -> u64 {
        let mut state = self.state();
        state.closed = true;
        if let Some((_, spare)) = state.spare.take() {
            remove(&spare);
        }
        let empty = state.segments().filter(|(_, segment)| segment.rows == 0);
        empty.for_each(|(_, segment)| remove(segment));
        state.lock = None;
        state.put - state.written
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.waiting.len() + self.backlog.map_or(0, |backlog| backlog.rows)
    }

    /// All files, oldest first.
    fn segments(&self) -> impl Iterator<Item = (u64, &Segment)> {
        let older = self.older.iter().map(|(number, segment)| (*number, segment));
        older.chain(std::iter::once((self.current.0, &self.current.1)))
    }

    fn segment(&mut self, number: u64) -> Option<&mut Segment> {
        if number == self.current.0 {
            Some(&mut self.current.1)
        } else {
            self.older.get_mut(&number)
        }
    }

    /// Appends a row's line; says to which file, and where in it.
    fn append(
        &mut self,
        attempt: &Attempt,
        files: &Files,
        bytes_max: u64,
    ) -> io::Result<(u64, u64)> {
        let mut line = std::mem::take(&mut self.line);
        let written = line::write(attempt, &mut line).map_err(io::Error::from);
        let placed = written.and_then(|()| self.append_line(&line, files, bytes_max));
        self.line = line;
        placed
    }

    fn append_line(
        &mut self,
        line: &[u8],
        files: &Files,
        bytes_max: u64,
    ) -> io::Result<(u64, u64)> {
        let length = line.len() as u64;
        if self.bytes + length > bytes_max {
            let problem = format!(
                "{} rows that are not in the database fill the {} MiB that they may take",
                self.put - self.written,
                bytes_max >> 20
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, problem));
        }
        if self.current.1.bytes >= SEGMENT_BYTES {
            self.turn_over(files);
        }
        let (number, segment) = &mut self.current;
        let offset = segment.bytes;
        segment.append(line)?;
        self.bytes += length;
        Ok((*number, offset))
    }

    /// Goes on with the next file. Where there can be none, the current one goes on.
    fn turn_over(&mut self, files: &Files) {
        let next = self.spare.take().or_else(|| {
            let number = self.next_number;
            self.next_number += 1;
            Some((number, Segment::create(files.path(number)).ok()?))
        });
        if let Some(next) = next {
            self.go_on_with(next);
        }
    }

    fn go_on_with(&mut self, next: (u64, Segment)) {
        let (number, segment) = std::mem::replace(&mut self.current, next);
        self.older.insert(number, segment);
    }

    /// The files of which all rows are in the database, which this spool has no more to do with. The current one is among them
    /// where another can take its place.
    fn take_done(&mut self) -> Vec<Segment> {
        let current = &self.current.1;
        if current.rows == 0
            && current.bytes > 0
            && let Some(spare) = self.spare.take()
        {
            self.go_on_with(spare);
        }
        let is_done = |_: &u64, segment: &mut Segment| segment.rows == 0;
        let done: Vec<_> = self.older.extract_if(.., is_done).map(|(_, done)| done).collect();
        self.bytes -= done.iter().map(|segment| segment.bytes).sum::<u64>();
        done
    }

    /// The number of the spare file, where one is to be made.
    fn take_number_for_spare(&mut self) -> Option<u64> {
        if self.spare.is_some() || self.closed {
            return None;
        }
        self.next_number += 1;
        Some(self.next_number - 1)
    }

    /// The file and the place in it where the backlog begins; none where there is no backlog.
    fn backlog_begins(&mut self) -> Option<(u64, u64)> {
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

    /// So many rows of the backlog were read, up to this place.
    fn backlog_read(&mut self, segment: u64, offset: u64, rows: usize) {
        if let Some(backlog) = &mut self.backlog {
            *backlog = Backlog { segment, offset, rows: backlog.rows - rows };
        }
        // At the end of all of it, rows wait in memory again.
        self.backlog_begins();
    }
}

fn remove(segment: &Segment) {
    if let Err(problem) = std::fs::remove_file(&segment.path)
        && problem.kind() != io::ErrorKind::NotFound
    {
        let file = segment.path.display();
        tracing::warn!(%file, %problem, "a file of rows that are in the database could not be removed");
    }
}

#[cfg(test)]
mod tests;
