//! Rows that are acknowledged and not yet in the database.
//!
//! An answer ends only when its row is safe from a killed process. A commit of SQLite makes it safe, but one commit for the
//! few rows that are pending rewrites a page of the table and of every index, about 7 KB a row at 4 000 rows a second, and
//! stands still while the disk syncs the very log that it writes to. A line appended to a file that nobody syncs is in the
//! kernel's hands after some microseconds. So a row is acknowledged with its line here, the writer brings rows into the
//! database by the hundred, and the next process brings in what a killed one left.
//!
//! Two files take turns. Lines go to one of them; once all of its rows are in the database, it is emptied. A row that is in
//! both places after a kill is not charged twice: the database knows it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

use super::file::private;
use crate::ledger::Attempt;

/// How many waiting rows the writer is woken for before it would wake by itself.
pub(super) const MANY: usize = 1_024;
/// Where the other file takes over, in bytes.
const PART_BYTES: u64 = 4 << 20;
/// How many digits of a line's hash are kept.
const HASH: usize = 8;

/// A row on its way into the database, and its place among those that may be pending.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) attempt: Box<Attempt>,
    part: usize,
    _turn: OwnedSemaphorePermit,
}

/// The two files, and the rows in them.
#[derive(Debug)]
pub(super) struct Spool {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    parts: [Part; 2],
    /// Which of them takes the lines.
    current: usize,
    /// The rows that the writer has not taken yet.
    waiting: Vec<Row>,
    line: Vec<u8>,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: Arc<File>,
    bytes: u64,
    /// How many of its rows are not in the database.
    rows: usize,
}

impl Spool {
    /// Opens the files beside a database, and reads the rows that an earlier process left in them, each request's last
    /// one after its others.
    pub(super) fn open(database: &Path) -> io::Result<(Self, Vec<Attempt>)> {
        let mut left = Vec::new();
        let mut open = |number: u8| {
            let mut path = database.to_path_buf().into_os_string();
            path.push(format!("-rows-{number}"));
            Part::open(PathBuf::from(path), &mut left)
        };
        let parts = [open(0)?, open(1)?];
        left.sort_by_key(|row| row.last);
        let state = State { parts, current: 0, waiting: Vec::new(), line: Vec::new() };
        Ok((Self { state: Mutex::new(state) }, left))
    }

    /// Empties the files: what was left in them is in the database.
    pub(super) fn clear(&self) -> io::Result<()> {
        for part in &mut self.state().parts {
            part.file.set_len(0)?;
            part.bytes = 0;
        }
        Ok(())
    }

    /// Makes a row safe from a killed process. Says whether the writer should hear of it, or gives the row back where the
    /// file takes no more.
    pub(super) fn put(
        &self,
        attempt: Box<Attempt>,
        turn: OwnedSemaphorePermit,
    ) -> Result<bool, (Box<Attempt>, OwnedSemaphorePermit, io::Error)> {
        let mut state = self.state();
        match state.append(&attempt) {
            Ok(part) => {
                state.waiting.push(Row { attempt, part, _turn: turn });
                Ok(matches!(state.waiting.len(), 1 | MANY))
            }
            Err(problem) => Err((attempt, turn, problem)),
        }
    }

    /// How many rows wait for the writer.
    pub(super) fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Whether a row is here that is not in the database.
    pub(super) fn is_ahead(&self) -> bool {
        self.state().parts.iter().any(|part| part.rows > 0)
    }

    /// The rows that wait, for the writer.
    pub(super) fn take(&self, rows: &mut Vec<Row>) {
        rows.append(&mut self.state().waiting);
    }

    /// These rows are in the database.
    pub(super) fn written(&self, rows: Vec<Row>) {
        let mut state = self.state();
        for row in rows {
            state.parts[row.part].rows -= 1;
        }
        let (one, other) = (state.current, 1 - state.current);
        if state.parts[one].is_done() && state.parts[other].bytes == 0 {
            state.current = other;
        }
        let old = 1 - state.current;
        if !state.parts[old].is_done() {
            return;
        }
        let file = state.parts[old].file.clone();
        // Nobody writes to this file before its length is known to be 0, so nobody need wait while it is cut.
        drop(state);
        match file.set_len(0) {
            Ok(()) => self.state().parts[old].bytes = 0,
            // Its rows are safe all the same; the other file goes on growing, and this is tried again.
            Err(problem) => tracing::warn!(%problem, "a file of rows could not be emptied"),
        }
    }

    /// Removes the files, unless they still hold rows that the database lacks.
    pub(super) fn remove(&self) {
        for part in &self.state().parts {
            if part.rows == 0
                && let Err(problem) = std::fs::remove_file(&part.path)
            {
                tracing::warn!(file = %part.path.display(), %problem, "could not be removed");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Appends a row's line to the file whose turn it is; says to which.
    fn append(&mut self, attempt: &Attempt) -> io::Result<usize> {
        if self.parts[self.current].bytes >= PART_BYTES && self.parts[1 - self.current].bytes == 0 {
            self.current = 1 - self.current;
        }
        self.line.clear();
        self.line.resize(HASH, b' ');
        self.line.push(b' ');
        serde_json::to_writer(&mut self.line, attempt)?;
        let hash = hash(&self.line[HASH + 1..]);
        self.line[..HASH].copy_from_slice(hash.as_bytes());
        self.line.push(b'\n');
        self.parts[self.current].append(&self.line)?;
        Ok(self.current)
    }
}

impl Part {
    fn open(path: PathBuf, left: &mut Vec<Attempt>) -> io::Result<Self> {
        let file = private().append(true).open(&path)?;
        let mut bytes = 0;
        for line in BufReader::new(&file).split(b'\n') {
            let line = line?;
            bytes += line.len() as u64 + 1;
            match read(&line) {
                Some(row) => left.push(row),
                // A line that is not whole was not acknowledged, or the machine lost power.
                None => tracing::warn!(file = %path.display(), "a row's line is not whole"),
            }
        }
        Ok(Self { path, file: Arc::new(file), bytes, rows: 0 })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Err(problem) = self.file.as_ref().write_all(line) {
            // What was written of it would spoil the next line.
            self.file.set_len(self.bytes)?;
            return Err(problem);
        }
        self.bytes += line.len() as u64;
        self.rows += 1;
        Ok(())
    }

    /// Whether it has lines, and all of them are in the database.
    fn is_done(&self) -> bool {
        self.bytes > 0 && self.rows == 0
    }
}

fn hash(json: &[u8]) -> String {
    let mut hash = blake3::hash(json).to_hex().to_string();
    hash.truncate(HASH);
    hash
}

fn read(line: &[u8]) -> Option<Attempt> {
    let (told, json) = line.split_at_checked(HASH + 1)?;
    if told[..HASH] != *hash(json).as_bytes() {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::directory::UnixMicros;
    use crate::ledger::Reservation;

    fn row(request: &str) -> Box<Attempt> {
        let held = Reservation {
            request: request.into(),
            group: "g".into(),
            tenant: "t".into(),
            key: "k".into(),
            model: "m \"1\"\n".into(),
            tokens: 7,
            at: UnixMicros(5),
        };
        Box::new(held.lost(0))
    }

    /// A spool in a folder of its own.
    struct Place {
        folder: tempfile::TempDir,
        turns: Arc<Semaphore>,
    }

    impl Place {
        fn new() -> Self {
            let turns = Arc::new(Semaphore::new(100_000));
            Self { folder: tempfile::tempdir().unwrap(), turns }
        }

        fn open(&self) -> (Spool, Vec<String>) {
            let (spool, left) = Spool::open(&self.folder.path().join("db")).unwrap();
            (spool, left.into_iter().map(|row| row.request).collect())
        }

        fn put(&self, spool: &Spool, request: &str) -> bool {
            let turn = self.turns.clone().try_acquire_owned().unwrap();
            spool.put(row(request), turn).unwrap()
        }

        fn part(&self, number: u8) -> PathBuf {
            self.folder.path().join(format!("db-rows-{number}"))
        }

        fn bytes(&self) -> [u64; 2] {
            [0, 1].map(|number| std::fs::metadata(self.part(number)).unwrap().len())
        }
    }

    fn write_some(spool: &Spool) -> usize {
        let mut rows = Vec::new();
        spool.take(&mut rows);
        let count = rows.len();
        spool.written(rows);
        count
    }

    #[test]
    fn what_was_put_is_there_for_the_next_process() {
        let place = Place::new();
        let (spool, left) = place.open();
        assert!(left.is_empty());
        // The writer is woken for the first row, not for the next.
        assert!(place.put(&spool, "a"));
        assert!(!place.put(&spool, "b"));
        assert!(spool.is_ahead());
        drop(spool);
        let (spool, left) = place.open();
        assert_eq!(left, ["a", "b"]);
        spool.clear().unwrap();
        drop(spool);
        assert!(place.open().1.is_empty());
    }

    #[test]
    fn a_line_that_is_not_whole_spoils_no_other() {
        let place = Place::new();
        let (spool, _) = place.open();
        for request in ["a", "b", "c"] {
            place.put(&spool, request);
        }
        drop(spool);
        let mut bytes = std::fs::read(place.part(0)).unwrap();
        let second = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 20;
        bytes[second] ^= 1;
        bytes.truncate(bytes.len() - 5);
        std::fs::write(place.part(0), bytes).unwrap();
        assert_eq!(place.open().1, ["a"]);
    }

    #[test]
    fn written_rows_leave_the_files() {
        let place = Place::new();
        let (spool, _) = place.open();
        for _ in 0..3 {
            place.put(&spool, "a");
            place.put(&spool, "b");
            assert_eq!(write_some(&spool), 2);
            assert_eq!((place.bytes(), spool.is_ahead()), ([0, 0], false));
        }
        // While a row is on its way, others may come.
        place.put(&spool, "c");
        let mut taken = Vec::new();
        spool.take(&mut taken);
        place.put(&spool, "d");
        spool.written(taken);
        assert!(spool.is_ahead());
        drop(spool);
        assert_eq!(place.open().1.last().unwrap(), "d");
        assert_eq!(place.turns.available_permits(), 100_000);
    }

    #[test]
    fn the_files_take_turns_and_stay_small() {
        let place = Place::new();
        let (spool, _) = place.open();
        let mut most = 0;
        for n in 0..60_000_u32 {
            place.put(&spool, &format!("request-{n}"));
            if n % 100 == 99 {
                // The writer is always one row behind.
                let mut rows = Vec::new();
                spool.take(&mut rows);
                let last = rows.pop();
                spool.written(rows);
                let mut state = spool.state();
                state.waiting.extend(last);
                most = most.max(state.parts.iter().map(|part| part.bytes).sum());
            }
        }
        assert!(most > PART_BYTES / 2 && most < PART_BYTES + (1 << 20), "{most} bytes");
        assert_eq!(place.bytes().iter().filter(|&&bytes| bytes > PART_BYTES).count(), 0);
    }

    #[test]
    fn files_that_are_done_are_removed() {
        let place = Place::new();
        let (spool, _) = place.open();
        place.put(&spool, "a");
        spool.remove();
        assert!(place.part(0).exists() && !place.part(1).exists());
        write_some(&spool);
        spool.remove();
        assert!(!place.part(0).exists());
    }
}
