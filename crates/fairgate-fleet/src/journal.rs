//! The journal of rounds: each call of the scheduler as one JSON line, which `fairgate schedule --journal` decides again.
//!
//! A thread writes it, so that no round waits for a disk. Files are called `00000001.jsonl` and so on; a full one is followed
//! by the next, and the oldest are removed. What cannot be written is counted and complained about, and nothing else: the
//! fleet goes on.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use fairgate_journal::schedule::{Round, write_round};
use fairgate_store::Throttle;
use tokio::time::Instant;

/// How large a file becomes, in bytes, and how many are kept.
const FILE_BYTES_MAX: u64 = 64 << 20;
const FILES_MAX: usize = 16;
/// How many calls may wait for the disk.
const WAITING_MAX: usize = 1_024;

/// The journal of rounds.
#[derive(Debug)]
pub(crate) struct Journal {
    writer: Mutex<Option<(SyncSender<Round>, JoinHandle<()>)>>,
    trouble: Arc<Trouble>,
}

/// What did not get into the journal.
#[derive(Debug, Default)]
struct Trouble {
    lost: AtomicU64,
    complaints: Throttle<&'static str>,
}

impl Trouble {
    fn lose(&self, cause: &'static str, problem: &str) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(left_out) = self.complaints.admit(cause, Instant::now()) {
            tracing::warn!(%problem, lost, left_out, "a round of the fleet is missing in the journal of rounds");
        }
    }
}

impl Journal {
    /// A journal in this folder, after the files that are there.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self::with_bounds(folder, FILE_BYTES_MAX, FILES_MAX)
    }

    fn with_bounds(folder: PathBuf, file_bytes_max: u64, files_max: usize) -> Self {
        let trouble = Arc::new(Trouble::default());
        let (sender, inbox) = sync_channel(WAITING_MAX);
        let files = Files { folder, file_bytes_max, files_max, current: None };
        let writing = Arc::clone(&trouble);
        let named = thread::Builder::new().name("fairgate-fleet-journal".into());
        let thread = named.spawn(move || files.write_all(&inbox, &writing));
        let writer = thread.map(|thread| (sender, thread));
        let writer = writer.map_err(|problem| trouble.lose("thread", &problem.to_string())).ok();
        Self { writer: Mutex::new(writer), trouble }
    }

    /// Takes a call in.
    pub(crate) fn put(&self, call: Round) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = match &*writer {
            Some((sender, _)) => sender.try_send(call).map_err(|error| match error {
                TrySendError::Full(_) => "the disk does not keep up",
                TrySendError::Disconnected(_) => "its writer is gone",
            }),
            None => Err("it is closed"),
        };
        if let Err(problem) = sent {
            self.trouble.lose(problem, problem);
        }
    }

    /// How many calls are missing in it.
    pub(crate) fn lost(&self) -> u64 {
        self.trouble.lost.load(Ordering::Relaxed)
    }

    /// Writes what is left, and closes. Waits for the disk.
    pub(crate) fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = writer {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// The files of a journal.
struct Files {
    folder: PathBuf,
    file_bytes_max: u64,
    files_max: usize,
    /// The file that is written, and how long it is.
    current: Option<(File, u64)>,
}

impl Files {
    fn write_all(mut self, inbox: &Receiver<Round>, trouble: &Trouble) {
        let mut line = Vec::new();
        for call in inbox {
            line.clear();
            // Writing to memory does not fail.
            let written = write_round(&mut line, &call).and_then(|()| self.append(&line));
            if let Err(problem) = written {
                trouble.lose("disk", &format!("{}: {problem}", self.folder.display()));
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_none_or(|(_, length)| *length >= self.file_bytes_max) {
            self.current = Some((self.begin()?, 0));
        }
        let Some((file, length)) = &mut self.current else { return Ok(()) };
        if let Err(error) = file.write_all(line) {
            // A line that is cut off at the end of a file is left out by whoever reads it.
            let _ = file.set_len(*length);
            self.current = None;
            return Err(error);
        }
        *length += line.len() as u64;
        Ok(())
    }

    /// Begins the file after the last one, and makes room for it.
    fn begin(&self) -> io::Result<File> {
        fs::create_dir_all(&self.folder)?;
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            numbers.extend(entry?.file_name().to_str().and_then(number));
        }
        numbers.sort_unstable();
        let too_many = (numbers.len() + 1).saturating_sub(self.files_max);
        for number in numbers.iter().take(too_many) {
            fs::remove_file(self.folder.join(name(*number)))?;
        }
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let mut options = File::options();
        options.write(true).create_new(true);
        // It tells who works on what.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(self.folder.join(name(next)))
    }
}

fn name(number: u64) -> String {
    format!("{number:08}.jsonl")
}

/// The number of a file of ours.
fn number(file: &str) -> Option<u64> {
    let number = file.strip_suffix(".jsonl")?.parse().ok()?;
    (name(number) == file).then_some(number)
}

#[cfg(test)]
mod tests {
    use fairgate_core::proportional::{Snapshot, SnapshotParts};
    use fairgate_journal::schedule::read_round;

    use super::*;

    fn call(at: i64) -> Round {
        let snapshot = Snapshot::check(SnapshotParts::default()).unwrap();
        Round { at, snapshot, assignments: Vec::new() }
    }

    /// The moments in each file, by the file's name.
    fn files(folder: &std::path::Path) -> Vec<(String, Vec<i64>)> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
        names.sort();
        let moments = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            text.lines().map(|line| read_round(line).unwrap().at).collect()
        };
        let shown = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        names.iter().map(|path| (shown(path), moments(path))).collect()
    }

    #[test]
    fn files_follow_each_other_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        for start in [0, 10] {
            let journal = Journal::with_bounds(folder.path().into(), 1, 4);
            (start..start + 3).for_each(|at| journal.put(call(at)));
            journal.close();
            assert_eq!(journal.lost(), 0);
        }
        let expected = [(3, 2), (4, 10), (5, 11), (6, 12)];
        assert_eq!(files(folder.path()), expected.map(|(file, at)| (name(file), vec![at])));
    }

    #[test]
    fn what_fits_shares_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(folder.path().join("rounds"));
        (0..3).for_each(|at| journal.put(call(at)));
        journal.close();
        assert_eq!(files(&folder.path().join("rounds")), [(name(1), vec![0, 1, 2])]);
        journal.put(call(3));
        assert_eq!(journal.lost(), 1, "it is closed");
    }

    #[test]
    fn a_journal_that_cannot_be_written_counts_what_it_lost() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("rounds");
        fs::write(&in_the_way, "not a folder").unwrap();
        let journal = Journal::new(in_the_way);
        (0..3).for_each(|at| journal.put(call(at)));
        journal.close();
        assert_eq!(journal.lost(), 3);
    }
}
