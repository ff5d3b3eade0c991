//! A log in memory, for tests and examples: it connects members in one process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairgate_replica::{EngineStamp, LogPosition, RECORD_BYTES_MAX, snapshot_hash};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::cluster_log::{
    ClusterLog, ClusterLogError, GenerationState, GenerationStore, LogCursor, LogRead,
    READ_RECORDS_MAX, StoredRecord, StoredReport, StoredSnapshot,
};

/// Time for which a report counts.
const REPORT_COUNTS: Duration = Duration::from_secs(3);

/// Longest wait of a reader.
const LOOK_AT_LEAST: Duration = Duration::from_secs(1);

/// The log of one cluster in the memory of this process, with the faults that a test asks for.
#[derive(Debug)]
pub struct MemoryLog {
    content: Mutex<MemoryContent>,
    changes: watch::Sender<u64>,
    began: Instant,
}

#[derive(Debug, Default)]
struct MemoryContent {
    is_away: bool,
    generation: u64,
    ending_since: Option<Instant>,
    reports: Vec<(StoredReport, Instant)>,
    snapshots: Vec<StoredSnapshot>,
    /// Number of records before the first one here.
    pruned: u64,
    records: Vec<(EngineStamp, Vec<u8>)>,
    /// The next read returns this record damaged.
    damaged: Option<(LogPosition, u32)>,
}

impl MemoryContent {
    fn end(&self) -> u64 {
        self.pruned + self.records.len() as u64
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLog {
    /// Creates an empty log.
    pub fn new() -> Self {
        Self { content: Mutex::default(), changes: watch::Sender::new(0), began: Instant::now() }
    }

    /// Makes every call fail, or work again.
    pub fn set_away(&self, is_away: bool) {
        self.lock().is_away = is_away;
        self.changes.send_modify(|count| *count += 1);
    }

    /// Loses all records, as an unlogged table does in a crash.
    pub fn lose_records(&self) {
        let mut content = self.lock();
        content.records.clear();
        content.pruned = 0;
    }

    /// Goes back to an earlier generation without records, as a database does that is restored from a backup.
    pub fn go_back(&self, generation: u64) {
        let mut content = self.lock();
        let snapshots = std::mem::take(&mut content.snapshots);
        *content = MemoryContent { generation, snapshots, ..MemoryContent::default() };
    }

    /// Damages a record in the next `times` answers that contain it.
    pub fn damage(&self, position: LogPosition, times: u32) {
        self.lock().damaged = Some((position, times));
    }

    /// Damages the bytes of the newest snapshot.
    pub fn damage_snapshot(&self) {
        if let Some(byte) = self.lock().snapshots.last_mut().and_then(|it| it.bytes.first_mut()) {
            *byte ^= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call, unless the log is away.
    fn call<T>(&self, work: impl FnOnce(&mut MemoryContent) -> T) -> Result<T, ClusterLogError> {
        let mut content = self.lock();
        match content.is_away {
            true => Err(ClusterLogError::Unavailable("it was told to be away".to_owned())),
            false => Ok(work(&mut content)),
        }
    }

    fn stamp(&self) -> EngineStamp {
        EngineStamp(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

fn read_after(content: &mut MemoryContent, cursor: LogCursor) -> LogRead {
    let is_of_it = content.generation == cursor.generation;
    let first = cursor.after.0.max(content.pruned);
    let skipped = usize::try_from(first - content.pruned).unwrap_or(usize::MAX);
    let new = content.records.iter().skip(skipped).take(READ_RECORDS_MAX);
    let records = (first + 1..).zip(new).map(|(position, (stamp, bytes))| StoredRecord {
        position: LogPosition(position),
        stamp: *stamp,
        bytes: bytes.clone(),
    });
    let mut records: Vec<StoredRecord> = if is_of_it { records.collect() } else { Vec::new() };
    if let Some((position, times)) = content.damaged.filter(|(_, times)| *times > 0)
        && let Some(record) = records.iter_mut().find(|it| it.position == position)
    {
        let middle = record.bytes.len() / 2;
        record.bytes[middle] ^= 1;
        content.damaged = Some((position, times - 1));
    }
    LogRead {
        generation: content.generation,
        is_ending: content.ending_since.is_some(),
        end: LogPosition(if is_of_it { content.end() } else { 0 }),
        records,
    }
}

impl ClusterLog for MemoryLog {
    async fn append(&self, cursor: LogCursor, record: &[u8]) -> Result<LogRead, ClusterLogError> {
        let (bytes, max) = (record.len(), RECORD_BYTES_MAX);
        if bytes > max {
            return Err(ClusterLogError::RecordTooLarge { bytes, max });
        }
        let stamp = self.stamp();
        let read = self.call(|content| {
            if content.generation == cursor.generation && content.ending_since.is_none() {
                content.records.push((stamp, record.to_vec()));
            }
            read_after(content, cursor)
        });
        self.changes.send_modify(|count| *count += 1);
        read
    }

    async fn read(&self, cursor: LogCursor) -> Result<LogRead, ClusterLogError> {
        self.call(|content| read_after(content, cursor))
    }

    async fn changed(&self, cursor: LogCursor) {
        let mut changes = self.changes.subscribe();
        let is_new = |_: &u64| {
            let content = self.lock();
            content.generation != cursor.generation || content.end() > cursor.after.0
        };
        tokio::select! {
            _ = changes.wait_for(is_new) => {}
            () = sleep(LOOK_AT_LEAST) => {}
        }
    }

    async fn prune(&self, generation: u64, up_to: LogPosition) -> Result<(), ClusterLogError> {
        self.call(|content| {
            let up_to = up_to.0.min(content.end().saturating_sub(1));
            if content.generation == generation && up_to > content.pruned {
                let count = usize::try_from(up_to - content.pruned).unwrap_or(0);
                content.records.drain(..count);
                content.pruned = up_to;
            }
        })
    }
}

impl GenerationStore for MemoryLog {
    async fn create(&self, first: &[u8]) -> Result<(), ClusterLogError> {
        self.call(|content| {
            if content.generation == 0 {
                content.generation = 1;
                content.snapshots.push(first_snapshot(1, first));
            }
        })
    }

    async fn state(&self) -> Result<GenerationState, ClusterLogError> {
        self.call(|content| {
            content.reports.retain(|(_, at)| at.elapsed() < REPORT_COUNTS);
            GenerationState {
                generation: content.generation,
                ending_for: content.ending_since.map(|since| since.elapsed()),
                reports: content.reports.iter().map(|(report, _)| report.clone()).collect(),
            }
        })
    }

    async fn report(&self, report: &StoredReport) -> Result<(), ClusterLogError> {
        self.call(|content| {
            if content.generation != report.report.generation {
                return;
            }
            let now = Instant::now();
            content.ending_since.get_or_insert(now);
            content.reports.retain(|(it, _)| it.process != report.process);
            content.reports.push((report.clone(), now));
        })
    }

    async fn begin(&self, ended: u64, next: u64, base: &[u8]) -> Result<bool, ClusterLogError> {
        let begun = self.call(|content| {
            if content.generation != ended {
                return false;
            }
            *content = MemoryContent {
                generation: next,
                snapshots: vec![first_snapshot(next, base)],
                ..MemoryContent::default()
            };
            true
        });
        self.changes.send_modify(|count| *count += 1);
        begun
    }

    async fn store_snapshot(&self, snapshot: &StoredSnapshot) -> Result<bool, ClusterLogError> {
        self.call(|content| {
            if content.generation != snapshot.generation {
                return false;
            }
            content.snapshots.push(snapshot.clone());
            let old = content.snapshots.len().saturating_sub(2);
            content.snapshots.drain(..old);
            true
        })
    }

    async fn newest_snapshot(
        &self,
        before: Option<LogPosition>,
    ) -> Result<Option<StoredSnapshot>, ClusterLogError> {
        self.call(|content| {
            let is_before = |it: &&StoredSnapshot| before.is_none_or(|before| it.position < before);
            content.snapshots.iter().rev().find(is_before).cloned()
        })
    }
}

fn first_snapshot(generation: u64, bytes: &[u8]) -> StoredSnapshot {
    let (position, hash) = (LogPosition(0), snapshot_hash(bytes));
    StoredSnapshot { generation, position, hash, bytes: bytes.to_vec() }
}
