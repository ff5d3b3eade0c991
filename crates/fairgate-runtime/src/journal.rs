//! The journal of everything that a gate decides on: events, in files that each begin with a snapshot.
//!
//! The task writes lines into memory and passes them on after each batch of letters; a thread of its own writes
//! them to files. Between them is a buffer of bounded size. Where it is full the task waits for the disk, and so do
//! all who want something of it; but not for longer than [`JournalOptions::stall_max`]. Then, or where the disk gives
//! an error, the journal stops: what happens from there on is in no file, [`live`](crate::Gate::live) says why and how
//! much, and the gate goes on. After [`JournalOptions::retry`] a new file is begun, with a snapshot, and with a name
//! that says that events before it are lost. A gap is never inside a file.

mod buffer;
mod disk;
mod names;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use fairgate_core::units::Micros;
use fairgate_journal::{Reader, Start};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use self::buffer::{Buffer, Failure};
use self::disk::{Disk, Folder};
use self::names::Kind;
use self::writer::FileWriter;
use crate::desk::Desk;
use crate::live::JournalStatus;

/// How a journal is kept.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The folder of its files, `00000000-start.jsonl` and so on; made where it is not there. One gate, one folder.
    pub folder: PathBuf,
    /// A file ends when its events have this many bytes; its snapshot comes on top. Default: 64 MiB.
    pub file_bytes_max: u64,
    /// How many files are kept, the one being written included; the oldest are deleted. Default: 16.
    pub files_max: usize,
    /// How many bytes may wait for the disk. Default: 8 MiB.
    pub buffer_bytes_max: usize,
    /// How long the gate stands still for a slow disk before the journal stops. Default: 1 s.
    pub stall_max: Duration,
    /// When to try again after it stopped. Default: 10 s.
    pub retry: Duration,
}

impl JournalOptions {
    /// A journal in this folder, with the defaults.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            file_bytes_max: 64 << 20,
            files_max: 16,
            buffer_bytes_max: 8 << 20,
            stall_max: Duration::from_secs(1),
            retry: Duration::from_secs(10),
        }
    }
}

/// How long a drain waits for the disk in the end, on the machine's clock.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The task's side of a journal.
pub(crate) struct Journal {
    buffer: Arc<Buffer>,
    options: JournalOptions,
    file_bytes: u64,
    /// When to try again, where it has stopped.
    stopped_until: Option<Instant>,
}

impl Journal {
    /// Begins a journal with the pool as it is at this time, which is now.
    pub(crate) fn open(options: JournalOptions, desk: &mut Desk, now: Micros) -> io::Result<Self> {
        let folder = Folder::open(options.folder.clone())?;
        Self::on_disk(Box::new(folder), options, desk, now)
    }

    fn on_disk(
        disk: Box<dyn Disk>,
        options: JournalOptions,
        desk: &mut Desk,
        now: Micros,
    ) -> io::Result<Self> {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix_us = u64::try_from(unix.as_micros()).unwrap_or(u64::MAX);
        let clock = fairgate_journal::Clock { at: now, unix_us };
        let mut writer = FileWriter::new(disk, options.files_max)?.with_clock(clock);
        writer.begin(&desk.pool().snapshot(), Kind::Start)?;
        let buffer = Arc::new(Buffer::new(options.buffer_bytes_max));
        let shared = buffer.clone();
        thread::Builder::new()
            .name("fairgate-journal".into())
            .spawn(move || writer.run(&shared))?;
        desk.tape.run();
        desk.journal_health.status = JournalStatus::Writing;
        Ok(Self { buffer, options, file_bytes: 0, stopped_until: None })
    }

    /// When something is to be done, whether or not anything happens.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.stopped_until
    }

    /// Notices where the disk has failed.
    pub(crate) fn look(&mut self, desk: &mut Desk) {
        if let Some(Failure { error, events_lost }) = self.buffer.take_failure() {
            self.stop(error, events_lost, desk);
        }
    }

    /// Passes on what is on the tape.
    pub(crate) async fn pass_on(&mut self, desk: &mut Desk) {
        self.look(desk);
        if let Some(until) = self.stopped_until {
            desk.journal_health.events_lost += desk.tape.take().events;
            if until <= Instant::now() {
                self.try_again(desk);
            }
            return;
        }
        if desk.tape.is_empty() {
            return;
        }
        let mut page = desk.tape.take();
        let bytes = page.bytes.len() as u64;
        let patience = Instant::now() + self.options.stall_max;
        while let Err(back) = self.buffer.offer(page) {
            page = back;
            let left = patience.saturating_duration_since(Instant::now());
            if left.is_zero() || timeout(left, self.buffer.emptied()).await.is_err() {
                let stalled = format!("the disk took nothing for {:?}", self.options.stall_max);
                self.stop(stalled, page.events, desk);
                return;
            }
        }
        self.file_bytes += bytes;
        if self.file_bytes >= self.options.file_bytes_max && self.buffer.takes_a_beginning() {
            self.begin(Kind::Next, desk);
        }
    }

    /// Ends the journal with everything that was passed on, as far as the disk takes it within a few seconds.
    pub(crate) async fn finish(mut self, desk: &mut Desk) {
        self.buffer.close();
        let buffer = self.buffer.clone();
        let over = spawn_blocking(move || buffer.wait_until_over(LAST_WAIT)).await;
        self.look(desk);
        if !over.unwrap_or(false) {
            self.stop(format!("the disk did not take the rest in {LAST_WAIT:?}"), 0, desk);
        }
    }

    /// The task is dying: what is on the tape shows of what, if the disk still takes it.
    pub(crate) fn abandon(&mut self, desk: &mut Desk) {
        if self.stopped_until.is_none() {
            let _ = self.buffer.offer(desk.tape.take());
        }
        self.buffer.close();
    }

    fn begin(&mut self, kind: Kind, desk: &Desk) {
        self.file_bytes = 0;
        self.buffer.begin(Box::new(desk.pool().snapshot()), kind);
    }

    fn stop(&mut self, error: String, events_lost: u64, desk: &mut Desk) {
        let health = &mut desk.journal_health;
        health.gaps += u64::from(self.stopped_until.is_none());
        health.events_lost += events_lost;
        health.status = JournalStatus::Stopped { error };
        self.stopped_until = Some(Instant::now() + self.options.retry);
    }

    /// Begins a new file, unless the disk has not even taken what it had before.
    fn try_again(&mut self, desk: &mut Desk) {
        if !self.buffer.is_idle() {
            self.stopped_until = Some(Instant::now() + self.options.retry);
            return;
        }
        self.stopped_until = None;
        desk.journal_health.status = JournalStatus::Writing;
        self.begin(Kind::Gap, desk);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.buffer.close();
    }
}

/// The latest time in the journals of this folder, as far as it can be read: the clock goes on from there.
pub(crate) fn latest_time(folder: &Path) -> Micros {
    let newest = Folder::open(folder.into()).and_then(|disk| writer::names(&disk));
    let Some(newest) = newest.ok().and_then(|names| names.last().copied()) else {
        return Micros(0);
    };
    let path = folder.join(newest.to_string());
    let (first, last) = (first_time(&path), last_time(&path));
    first.into_iter().chain(last.ok().flatten()).max().unwrap_or_default()
}

/// The time of the snapshot that a journal begins with.
fn first_time(path: &Path) -> Option<Micros> {
    match Reader::open(BufReader::new(File::open(path).ok()?)).ok()?.0 {
        Start::Snapshot(snapshot) => Some(snapshot.now),
        Start::Fresh(_) => None,
    }
}

/// The time of a journal's last whole line, if that is an event's.
fn last_time(path: &Path) -> io::Result<Option<Micros>> {
    const TAIL: u64 = 1 << 20;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let line = tail[..whole].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = str::from_utf8(line).unwrap_or_default();
    let digits = text.strip_prefix("{\"at\":").and_then(|rest| rest.split(',').next());
    Ok(digits.and_then(|digits| digits.parse().ok()).map(Micros))
}
