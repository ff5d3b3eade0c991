//! The journal of rounds: one JSON line per scheduler call, which `fairgate schedule --journal` decides again.
//!
//! A thread writes the journal, so that no round waits for a disk. The files are named
//! `00000001.jsonl` and so on. When a file is full, the next one begins, and the oldest files are
//! removed. If a line cannot be written, this is counted and logged, and the fleet continues
//! without the line.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use fairgate_journal::schedule::{ScheduleRound, write_round};
use fairgate_store::{LogThrottle, private_folder};
use tokio::time::Instant;

/// Size in bytes at which a file counts as full.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of files that are kept.
const FILES_MAX: usize = 16;
/// Maximum number of scheduler calls that wait to be written. Further calls are dropped and
/// counted.
const WAITING_MAX: usize = 1_024;

/// Handle to the journal's writer thread.
#[derive(Debug)]
pub(crate) struct RoundJournal {
    writer: Mutex<Option<(SyncSender<ScheduleRound>, JoinHandle<()>)>>,
    lost_rounds: Arc<LostRounds>,
}

/// Counts and logs the scheduler calls that could not be written to the journal.
#[derive(Debug, Default)]
struct LostRounds {
    lost: AtomicU64,
    log_throttle: LogThrottle<&'static str>,
}

impl LostRounds {
    fn record_loss(&self, cause: &'static str, problem: &str) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(left_out) = self.log_throttle.admit(cause, Instant::now()) {
            tracing::warn!(%problem, lost, left_out, "a round of the fleet is missing in the journal of rounds");
        }
    }
}

impl RoundJournal {
    /// Opens a journal in this folder. New lines go to a new file, whose number follows those of the existing files.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self::with_bounds(folder, FILE_BYTES_MAX, FILES_MAX)
    }

    fn with_bounds(folder: PathBuf, file_bytes_max: u64, files_max: usize) -> Self {
        let lost_rounds = Arc::new(LostRounds::default());
        let (sender, inbox) = sync_channel(WAITING_MAX);
        let files = RoundJournalFiles { folder, file_bytes_max, files_max, current: None };
        let writing = Arc::clone(&lost_rounds);
        let named = thread::Builder::new().name("fairgate-fleet-journal".into());
        let thread = named.spawn(move || files.write_all(&inbox, &writing));
        let writer = thread.map(|thread| (sender, thread));
        let writer =
            writer.map_err(|problem| lost_rounds.record_loss("thread", &problem.to_string())).ok();
        Self { writer: Mutex::new(writer), lost_rounds }
    }

    /// Queues a scheduler call to be written. Never blocks: if the queue is full, the call is
    /// dropped and counted as lost.
    pub(crate) fn put(&self, call: ScheduleRound) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = match &*writer {
            Some((sender, _)) => sender.try_send(call).map_err(|error| match error {
                TrySendError::Full(_) => "the disk does not keep up",
                TrySendError::Disconnected(_) => "its writer is gone",
            }),
            None => Err("it is closed"),
        };
        if let Err(problem) = sent {
            self.lost_rounds.record_loss(problem, problem);
        }
    }

    /// Returns the number of scheduler calls that could not be written to the journal.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_rounds.lost.load(Ordering::Relaxed)
    }

    /// Writes the queued scheduler calls and closes the journal. Blocks until the writer thread has ended.
    pub(crate) fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = writer {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// The journal's files, which the writer thread uses.
struct RoundJournalFiles {
    folder: PathBuf,
    file_bytes_max: u64,
    files_max: usize,
    /// The file that is being written, and its length in bytes.
    current: Option<(File, u64)>,
}

impl RoundJournalFiles {
    fn write_all(mut self, inbox: &Receiver<ScheduleRound>, trouble: &LostRounds) {
        let mut line = Vec::new();
        for call in inbox {
            line.clear();
            // Writing to memory does not fail, so an error comes from the disk.
            let written = write_round(&mut line, &call).and_then(|()| self.append(&line));
            if let Err(problem) = written {
                trouble.record_loss("disk", &format!("{}: {problem}", self.folder.display()));
            }
        }
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.current.as_ref().is_none_or(|(_, length)| *length >= self.file_bytes_max) {
            self.current = Some((self.begin()?, 0));
        }
        let Some((file, length)) = &mut self.current else { return Ok(()) };
        if let Err(error) = file.write_all(line) {
            // Writing continues in this file when the disk has room again. A new file would fail on
            // the same disk, and the oldest file would be removed for nothing.
            if file.set_len(*length).is_err() {
                self.current = None;
            }
            return Err(error);
        }
        *length += line.len() as u64;
        Ok(())
    }

    /// Creates the file with the next number, and removes the oldest files if there would be too many.
    fn begin(&self) -> io::Result<File> {
        private_folder(&self.folder)?;
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
        options.append(true).create_new(true);
        // Only the owner may read the file, because it shows who works on which task.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(self.folder.join(name(next)))
    }
}

fn name(number: u64) -> String {
    format!("{number:08}.jsonl")
}

/// Parses the number of a journal file from its name; `None` if this is not the name of a journal
/// file.
fn number(file: &str) -> Option<u64> {
    let number = file.strip_suffix(".jsonl")?.parse().ok()?;
    (name(number) == file).then_some(number)
}

#[cfg(test)]
mod tests {
    use fairgate_core::proportional::{ScheduleSnapshot, ScheduleSnapshotParts};
    use fairgate_journal::schedule::read_round;

    use super::*;

    fn call(at: i64) -> ScheduleRound {
        let snapshot = ScheduleSnapshot::check(ScheduleSnapshotParts::default()).unwrap();
        ScheduleRound { at, price_per_1000_s: None, snapshot, assignments: Vec::new() }
    }

    /// Returns the name of each file, with the times of its rounds.
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
            let journal = RoundJournal::with_bounds(folder.path().into(), 1, 4);
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
        let journal = RoundJournal::new(folder.path().join("rounds"));
        (0..3).for_each(|at| journal.put(call(at)));
        journal.close();
        assert_eq!(files(&folder.path().join("rounds")), [(name(1), vec![0, 1, 2])]);
        journal.put(call(3));
        assert_eq!(journal.lost(), 1, "it is closed");
    }

    const FOLDER: &str = "FAIRGATE_FLEET_FULL_JOURNAL";

    /// Runs in the child process. Writes more than the disk has room for.
    #[test]
    #[ignore = "the child process of the test below"]
    fn child() {
        let Some(folder) = std::env::var_os(FOLDER) else { return };
        let journal = RoundJournal::with_bounds(folder.into(), FILE_BYTES_MAX, 4);
        (100..300).for_each(|at| journal.put(call(at)));
        journal.close();
        println!("lost {}.", journal.lost());
    }

    #[test]
    fn a_full_disk_costs_no_older_file() {
        let folder = tempfile::tempdir().unwrap();
        let journal = RoundJournal::with_bounds(folder.path().into(), 1, 4);
        (0..3).for_each(|at| journal.put(call(at)));
        journal.close();
        // No file of the child may be larger than 4 KiB: its writes fail beyond that, as on a full disk.
        let child = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["round_journal::tests::child", "--exact", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout).into_owned();
        let lost = told.split_once("lost ").and_then(|(_, rest)| rest.split_once('.'));
        let lost: usize = lost.and_then(|(lost, _)| lost.parse().ok()).expect(&told);
        let files = files(folder.path());
        let kept: Vec<_> = files.iter().take(3).map(|(_, moments)| moments.clone()).collect();
        assert_eq!((files.len(), kept), (4, vec![vec![0], vec![1], vec![2]]));
        let written = &files[3].1;
        assert!(lost > 0 && !written.is_empty(), "{told}");
        assert_eq!(written.len() + lost, 200, "what is not lost is there, in whole lines");
    }

    #[test]
    fn a_journal_that_cannot_be_written_counts_what_it_lost() {
        let folder = tempfile::tempdir().unwrap();
        let in_the_way = folder.path().join("rounds");
        fs::write(&in_the_way, "not a folder").unwrap();
        let journal = RoundJournal::new(in_the_way);
        (0..3).for_each(|at| journal.put(call(at)));
        journal.close();
        assert_eq!(journal.lost(), 3);
    }
}
