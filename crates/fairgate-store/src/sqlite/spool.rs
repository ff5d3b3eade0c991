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
//!
//! A line is the format's version, a hash of the row, and the row as JSON. A line whose hash is wrong was not written whole,
//! and so not acknowledged, or the machine lost power; it is kept aside. One whose hash is right and that cannot be read is of
//! another version of the program, which must take it back.

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
/// Where a file that cannot be emptied takes no more, in bytes.
const PART_BYTES_MAX: u64 = 64 << 20;
/// What a line begins with: the format's version.
const VERSION: &[u8] = b"1 ";
/// How many digits of a line's hash are kept.
const HASH: usize = 8;
/// Where the row begins in a line.
const ROW: usize = VERSION.len() + HASH + 1;

/// A row on its way into the database, and its place among those that may be pending.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) attempt: Box<Attempt>,
    /// The file that it is in, if it is in one.
    part: Option<usize>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Row {
    /// A row that is in no file.
    pub(super) fn loose(attempt: Box<Attempt>, turn: Option<OwnedSemaphorePermit>) -> Self {
        Self { attempt, part: None, _turn: turn }
    }

    /// Whether a killed process would lose it.
    pub(super) fn is_loose(&self) -> bool {
        self.part.is_none()
    }
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
    /// The files are no longer this process's.
    closed: bool,
}

#[derive(Debug)]
struct Part {
    path: PathBuf,
    file: Arc<dyn Tail>,
    bytes: u64,
    /// How many of its rows are not in the database.
    rows: usize,
    /// Something may stand behind its last whole line.
    torn: bool,
}

/// A file that is written at its end.
trait Tail: Send + Sync + std::fmt::Debug {
    fn append(&self, bytes: &[u8]) -> io::Result<()>;
    fn cut(&self, length: u64) -> io::Result<()>;
}

impl Tail for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// A row that could not be put, and why.
pub(super) struct Back {
    pub(super) attempt: Box<Attempt>,
    pub(super) turn: OwnedSemaphorePermit,
    pub(super) problem: io::Error,
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
        let state =
            State { parts, current: 0, waiting: Vec::new(), line: Vec::new(), closed: false };
        Ok((Self { state: Mutex::new(state) }, left))
    }

    /// Empties the files: what was left in them is in the database.
    pub(super) fn clear(&self) -> io::Result<()> {
        for part in &mut self.state().parts {
            part.file.cut(0)?;
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
    ) -> Result<bool, Back> {
        let mut state = self.state();
        match state.append(&attempt) {
            Ok(part) => {
                state.waiting.push(Row { attempt, part: Some(part), _turn: Some(turn) });
                Ok(matches!(state.waiting.len(), 1 | MANY))
            }
            Err(problem) => Err(Back { attempt, turn, problem }),
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
        for part in rows.iter().filter_map(|row| row.part) {
            state.parts[part].rows -= 1;
        }
        let (one, other) = (state.current, 1 - state.current);
        if state.parts[one].is_done() && state.parts[other].bytes == 0 {
            state.current = other;
        }
        let old = 1 - state.current;
        let done = state.parts[old].is_done().then(|| state.parts[old].file.clone());
        // Nobody writes to this file before its length is known to be 0, so nobody need wait while it is cut. Turns go back
        // outside as well: that wakes those who wait for one.
        drop(state);
        drop(rows);
        match done.map(|file| file.cut(0)) {
            Some(Ok(())) => {
                let part = &mut self.state().parts[old];
                (part.bytes, part.torn) = (0, false);
            }
            // Its rows are safe all the same; the other file goes on growing, and this is tried again.
            Some(Err(problem)) => tracing::warn!(%problem, "a file of rows could not be emptied"),
            None => {}
        }
    }

    /// Takes no more rows, and removes the files unless they still hold rows that the database lacks. Says how many.
    pub(super) fn close(&self) -> usize {
        let mut state = self.state();
        state.closed = true;
        for part in state.parts.iter().filter(|part| part.rows == 0) {
            if let Err(problem) = std::fs::remove_file(&part.path)
                && problem.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(file = %part.path.display(), %problem, "could not be removed");
            }
        }
        state.parts.iter().map(|part| part.rows).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Appends a row's line to the file whose turn it is; says to which.
    fn append(&mut self, attempt: &Attempt) -> io::Result<usize> {
        if self.closed {
            return Err(io::Error::other("the store is closed"));
        }
        if self.parts[self.current].bytes >= PART_BYTES && self.parts[1 - self.current].bytes == 0 {
            self.current = 1 - self.current;
        }
        self.line.clear();
        self.line.extend_from_slice(VERSION);
        self.line.resize(ROW, b' ');
        serde_json::to_writer(&mut self.line, attempt)?;
        let hash = hash(&self.line[ROW..]);
        self.line[VERSION.len()..ROW - 1].copy_from_slice(hash.as_bytes());
        self.line.push(b'\n');
        self.parts[self.current].append(&self.line)?;
        Ok(self.current)
    }
}

impl Part {
    fn open(path: PathBuf, left: &mut Vec<Attempt>) -> io::Result<Self> {
        let file = private().append(true).open(&path)?;
        let (mut bytes, mut damaged) = (0, 0);
        for line in BufReader::new(&file).split(b'\n') {
            let line = line?;
            bytes += line.len() as u64 + 1;
            match read(&line) {
                Line::Row(row) => left.push(*row),
                Line::NotWhole => damaged += 1,
                Line::Foreign => {
                    let problem = format!(
                        "{} has rows of another version of fairgate; start that one once and stop it",
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
            }
        }
        if damaged > 0 {
            let mut aside = path.clone().into_os_string();
            aside.push(".damaged");
            std::fs::copy(&path, &aside)?;
            let aside = Path::new(&aside).display();
            tracing::warn!(lines = damaged, %aside, "lines of rows are not whole and were kept aside");
        }
        Ok(Self { path, file: Arc::new(file), bytes, rows: 0, torn: false })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes >= PART_BYTES_MAX {
            return Err(io::Error::other("the file of rows could not be emptied for long"));
        }
        // What was written of an earlier line would spoil this one.
        if self.torn {
            self.file.cut(self.bytes)?;
            self.torn = false;
        }
        self.torn = true;
        self.file.append(line)?;
        self.torn = false;
        self.bytes += line.len() as u64;
        self.rows += 1;
        Ok(())
    }

    /// Whether it has lines, and all of them are in the database.
    fn is_done(&self) -> bool {
        (self.bytes > 0 || self.torn) && self.rows == 0
    }
}

fn hash(json: &[u8]) -> String {
    let mut hash = blake3::hash(json).to_hex().to_string();
    hash.truncate(HASH);
    hash
}

/// What a line is.
enum Line {
    Row(Box<Attempt>),
    NotWhole,
    /// Whole, and of another version.
    Foreign,
}

fn read(line: &[u8]) -> Line {
    let Some((head, json)) = line.split_at_checked(ROW) else { return Line::NotWhole };
    if head[VERSION.len()..ROW - 1] != *hash(json).as_bytes() {
        return Line::NotWhole;
    }
    match serde_json::from_slice(json) {
        Ok(row) if head.starts_with(VERSION) => Line::Row(Box::new(row)),
        _ => Line::Foreign,
    }
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
            spool.put(row(request), turn).ok().unwrap()
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
        std::fs::write(place.part(0), &bytes).unwrap();
        assert_eq!(place.open().1, ["a"]);
        let aside = place.folder.path().join("db-rows-0.damaged");
        assert_eq!(std::fs::read(aside).unwrap(), bytes);
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
        assert_eq!(spool.close(), 1);
        assert!(place.part(0).exists() && !place.part(1).exists());
        // Nobody else's file is written to.
        let turn = place.turns.clone().try_acquire_owned().unwrap();
        assert!(spool.put(row("b"), turn).is_err());
        write_some(&spool);
        assert_eq!(spool.close(), 0);
        assert!(!place.part(0).exists());
    }

    #[test]
    fn rows_of_another_version_are_left_alone() {
        // A line of the first format, as it is on disks.
        const KNOWN: &str = concat!(
            r#"1 HASHHASH {"request":"r","attempt":1,"last":true,"started_at":5,"group":"g","tenant":"t","key":"k","#,
            r#""agent":null,"session":null,"route":"-","stream":false,"model":"m","pool":null,"worker":null,"#,
            r#""estimate":7,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"charged":7,"usage":"assumed","#,
            r#""waited_us":0,"first_token_us":null,"total_us":0,"status":499,"outcome":"lost","code":"lost","#,
            r#""brownout":false}"#
        );
        let place = Place::new();
        let write = |line: &str| {
            let json = &line.as_bytes()[ROW..];
            std::fs::write(place.part(0), line.replace("HASHHASH", &hash(json)) + "\n").unwrap();
        };
        write(KNOWN);
        assert_eq!(place.open().1, ["r"]);
        for foreign in [KNOWN.replacen('1', "2", 1), KNOWN.replace("lost", "vanished")] {
            write(&foreign);
            let refused = Spool::open(&place.folder.path().join("db")).err().unwrap();
            assert!(refused.to_string().contains("another version"), "{refused}");
            assert!(place.bytes()[0] > 0);
        }
    }

    /// A disk that takes so many bytes more, and can be told not to cut.
    #[derive(Debug, Default)]
    struct Narrow {
        bytes: Mutex<Vec<u8>>,
        room: std::sync::atomic::AtomicUsize,
        stuck: std::sync::atomic::AtomicBool,
    }

    impl Tail for Narrow {
        fn append(&self, bytes: &[u8]) -> io::Result<()> {
            let room = self.room.load(std::sync::atomic::Ordering::Relaxed);
            let fits = bytes.len().min(room);
            self.bytes.lock().unwrap().extend(&bytes[..fits]);
            self.room.store(room - fits, std::sync::atomic::Ordering::Relaxed);
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }

        fn cut(&self, length: u64) -> io::Result<()> {
            if self.stuck.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(io::ErrorKind::ReadOnlyFilesystem.into());
            }
            self.bytes.lock().unwrap().truncate(usize::try_from(length).unwrap());
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_spoils_no_acknowledged_line() {
        use std::sync::atomic::Ordering::Relaxed;
        let disk = Arc::new(Narrow::default());
        let part =
            || Part { path: PathBuf::new(), file: disk.clone(), bytes: 0, rows: 0, torn: false };
        let mut part = part();
        let line = |text: &str| format!("{text}\n").into_bytes();
        disk.room.store(8, Relaxed);
        part.append(&line("first")).unwrap();
        part.append(&line("second")).unwrap_err();
        // It stays torn for as long as it cannot be cut, and takes nothing.
        disk.stuck.store(true, Relaxed);
        disk.room.store(100, Relaxed);
        part.append(&line("third")).unwrap_err();
        disk.stuck.store(false, Relaxed);
        part.append(&line("fourth")).unwrap();
        assert_eq!(*disk.bytes.lock().unwrap(), b"first\nfourth\n");
        assert_eq!(part.rows, 2);
    }
}
