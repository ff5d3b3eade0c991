//! The journal of a gate: all events of its pool, in files that each begin with a snapshot.
//!
//! The task writes lines into memory, and passes them to a buffer of limited size after each batch
//! of messages. A separate thread writes the lines from the buffer to files. If the buffer is full,
//! the task waits for the disk, and all callers wait for the task, but at most for
//! [`JournalOptions::stall_max`]. After that time, or if the disk reports an error, the journal
//! stops and the gate continues. The events that follow are in no file;
//! [`status`](crate::Gate::status) reports their number and the reason. After
//! [`JournalOptions::retry`] the journal begins a new file with a snapshot. The name of that file
//! shows that events before it are lost. So events can be missing between two files, but never
//! inside a file.

mod buffer;
mod disk;
mod file_name;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fairgate_core::units::Micros;
use fairgate_journal::{JournalReader, JournalStart};
use fairgate_time::wall_clock;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use self::buffer::{JournalBuffer, JournalWriteError};
use self::disk::{JournalDisk, JournalFolder};
use self::file_name::GateJournalFileKind;
use self::writer::GateJournalWriter;
use crate::gate_status::JournalStatus;
use crate::pool_task::PoolTask;

/// Options of a gate's journal.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Folder of the files, `00000000-start.jsonl` and so on; created if missing. Each gate needs its own folder.
    pub folder: PathBuf,
    /// Number of bytes of events after which a new file begins, without the snapshot. Default: 64
    /// MiB.
    pub file_bytes_max: u64,
    /// Number of files that are kept, including the one being written. The oldest are deleted.
    /// Default: 16.
    pub files_max: usize,
    /// Maximum number of bytes that wait for the disk. Default: 8 MiB.
    pub buffer_bytes_max: usize,
    /// Maximum time that the gate waits for a slow disk before the journal stops. Default: 1 s.
    pub stall_max: Duration,
    /// Time after a stop until the journal is tried again. Default: 10 s.
    pub retry: Duration,
}

impl JournalOptions {
    /// Returns options for this folder, with the defaults.
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

/// Maximum time that a drain waits until the rest of the journal is written. It is measured with
/// the system's clock and not with tokio's.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The pool task's side of the journal. The writer's thread takes the lines out of the buffer.
pub(crate) struct GateJournal {
    buffer: Arc<JournalBuffer>,
    options: JournalOptions,
    file_bytes: u64,
    /// Time of the next try; `None` unless the journal is stopped.
    stopped_until: Option<Instant>,
}

impl GateJournal {
    /// Begins a journal with a snapshot of the pool; `now` is the pool's current time.
    pub(crate) fn open(
        options: JournalOptions,
        pool_task: &mut PoolTask,
        now: Micros,
    ) -> io::Result<Self> {
        let folder = JournalFolder::open(options.folder.clone())?;
        Self::on_disk(Box::new(folder), options, pool_task, now)
    }

    fn on_disk(
        disk: Box<dyn JournalDisk>,
        options: JournalOptions,
        pool_task: &mut PoolTask,
        now: Micros,
    ) -> io::Result<Self> {
        let unix_us = u64::try_from(wall_clock::now().0).unwrap_or(0);
        let clock = fairgate_journal::JournalClock { at: now, unix_us };
        let mut writer = GateJournalWriter::new(disk, options.files_max)?.with_clock(clock);
        writer.begin(&pool_task.pool().snapshot(), GateJournalFileKind::Start)?;
        let buffer = Arc::new(JournalBuffer::new(options.buffer_bytes_max));
        let shared = buffer.clone();
        thread::Builder::new()
            .name("fairgate-journal".into())
            .spawn(move || writer.run(&shared))?;
        pool_task.journal_lines.start();
        pool_task.journal_health.status = JournalStatus::Writing;
        Ok(Self { buffer, options, file_bytes: 0, stopped_until: None })
    }

    /// Returns the time at which a stopped journal is tried again; `None` if the journal is not
    /// stopped.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.stopped_until
    }

    /// Stops the journal if the writer has reported an error.
    pub(crate) fn check_failure(&mut self, pool_task: &mut PoolTask) {
        if let Some(JournalWriteError { error, events_lost }) = self.buffer.take_failure() {
            self.stop(error, events_lost, pool_task);
        }
    }

    /// Passes the pending lines to the writer, and begins a new file if the current one is full. A stopped journal
    /// drops the lines and counts their events as lost.
    pub(crate) async fn pass_on(&mut self, pool_task: &mut PoolTask) {
        self.check_failure(pool_task);
        if let Some(until) = self.stopped_until {
            pool_task.journal_health.events_lost += pool_task.journal_lines.take().events;
            if until <= Instant::now() {
                self.try_again(pool_task);
            }
            return;
        }
        if pool_task.journal_lines.is_empty() {
            return;
        }
        let mut page = pool_task.journal_lines.take();
        let bytes = page.bytes.len() as u64;
        let patience = Instant::now() + self.options.stall_max;
        while let Err(back) = self.buffer.offer(page) {
            page = back;
            let left = patience.saturating_duration_since(Instant::now());
            if left.is_zero() || timeout(left, self.buffer.wait_emptied()).await.is_err() {
                let stalled = format!("the disk took nothing for {:?}", self.options.stall_max);
                self.stop(stalled, page.events, pool_task);
                return;
            }
        }
        self.file_bytes += bytes;
        if self.file_bytes >= self.options.file_bytes_max && self.buffer.has_room_for_snapshot() {
            self.begin(GateJournalFileKind::Next, pool_task);
        }
    }

    /// Closes the buffer and waits until the writer has written everything in it, but at most [`LAST_WAIT`]. After that
    /// time the journal counts as stopped.
    pub(crate) async fn finish(mut self, pool_task: &mut PoolTask) {
        self.buffer.close();
        let buffer = self.buffer.clone();
        let over = spawn_blocking(move || buffer.wait_until_over(LAST_WAIT)).await;
        self.check_failure(pool_task);
        if !over.unwrap_or(false) {
            self.stop(format!("the disk did not take the rest in {LAST_WAIT:?}"), 0, pool_task);
        }
    }

    /// Passes the last lines on while the task panics. If the disk still accepts them, they show
    /// the event that caused the panic.
    pub(crate) fn abandon(&mut self, pool_task: &mut PoolTask) {
        if self.stopped_until.is_none() {
            let _ = self.buffer.offer(pool_task.journal_lines.take());
        }
        self.buffer.close();
    }

    fn begin(&mut self, kind: GateJournalFileKind, pool_task: &PoolTask) {
        self.file_bytes = 0;
        self.buffer.begin(Box::new(pool_task.pool().snapshot()), kind);
    }

    fn stop(&mut self, error: String, events_lost: u64, pool_task: &mut PoolTask) {
        let health = &mut pool_task.journal_health;
        health.gaps += u64::from(self.stopped_until.is_none());
        health.events_lost += events_lost;
        health.status = JournalStatus::Stopped { error };
        self.stopped_until = Some(Instant::now() + self.options.retry);
    }

    /// Begins a new file, or waits for another [`JournalOptions::retry`] if the writer still writes earlier lines.
    fn try_again(&mut self, pool_task: &mut PoolTask) {
        if !self.buffer.is_idle() {
            self.stopped_until = Some(Instant::now() + self.options.retry);
            return;
        }
        self.stopped_until = None;
        pool_task.journal_health.status = JournalStatus::Writing;
        self.begin(GateJournalFileKind::Gap, pool_task);
    }
}

impl Drop for GateJournal {
    fn drop(&mut self) {
        self.buffer.close();
    }
}

/// Returns the latest time in the newest journal file of this folder; 0 if there is no file or its times cannot be
/// read. The pool's clock continues from this time.
pub(crate) fn latest_time(folder: &Path) -> Micros {
    let newest = JournalFolder::open(folder.into()).and_then(|disk| writer::names(&disk));
    let Some(newest) = newest.ok().and_then(|names| names.last().copied()) else {
        return Micros(0);
    };
    let path = folder.join(newest.to_string());
    let (first, last) = (first_time(&path), last_time(&path));
    first.into_iter().chain(last.ok().flatten()).max().unwrap_or_default()
}

/// Returns the time of the snapshot with which a journal begins.
fn first_time(path: &Path) -> Option<Micros> {
    match JournalReader::open(BufReader::new(File::open(path).ok()?)).ok()?.0 {
        JournalStart::Snapshot(snapshot) => Some(snapshot.now),
        JournalStart::Fresh(_) => None,
    }
}

/// Returns the time of a journal's last whole line, if that line is an event.
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
