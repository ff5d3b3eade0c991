//! The traits of a log engine: one ordered log, and a few rows beside it.

use std::time::Duration;

use fairgate_replica::{EngineStamp, GenerationReport, LogPosition, ShortHash};

/// The place up to which a reader has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCursor {
    /// Number of the generation.
    pub generation: u64,
    /// Place of the last record that the reader has; 0 before the first.
    pub after: LogPosition,
}

/// One record as the log returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Place of the record.
    pub position: LogPosition,
    /// The engine's time when it took the record.
    pub stamp: EngineStamp,
    /// The bytes that a member appended.
    pub bytes: Vec<u8>,
}

/// Answer of the log to a reader or an appender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRead {
    /// The generation in force. If it is not the reader's, `records` is empty.
    pub generation: u64,
    /// True if a member has asked for the next generation, so that nothing is appended any more.
    pub is_ending: bool,
    /// Place of the last record of the reader's generation; 0 if there is none.
    pub end: LogPosition,
    /// The records after the reader's place, in order. An answer that does not reach `end` has at most
    /// [`READ_RECORDS_MAX`] records, and may have fewer.
    pub records: Vec<StoredRecord>,
}

/// Greatest number of records that one call returns.
pub const READ_RECORDS_MAX: usize = 256;

/// Reason why the log or its rows could not be used. Every call may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterLogError {
    /// The engine does not answer, or the answer was lost. It is not known whether the call had an effect.
    #[error("the cluster's log does not answer: {0}")]
    Unavailable(String),
    /// The engine answers, and refuses the call. Nothing has changed.
    #[error("the cluster's log refuses: {0}")]
    Refused(String),
    /// The record is larger than [`fairgate_replica::RECORD_BYTES_MAX`].
    #[error("a record of {bytes} bytes is larger than the {max} bytes that the log takes")]
    RecordTooLarge {
        /// Size of the record.
        bytes: usize,
        /// Greatest size of a record in bytes.
        max: usize,
    },
}

/// One order of records for all members of a cluster.
///
/// An engine must guarantee two things: all members read the records of a generation in the same order, and a record
/// that one live member has read reaches every other member that reads on. A record need not be durable, and may be
/// appended more than once.
pub trait ClusterLog: Send + Sync + 'static {
    /// Appends a record behind all others, unless the generation is over, and returns what is new after the cursor.
    fn append(
        &self,
        cursor: LogCursor,
        record: &[u8],
    ) -> impl Future<Output = Result<LogRead, ClusterLogError>> + Send;

    /// Returns what is new after the cursor.
    fn read(
        &self,
        cursor: LogCursor,
    ) -> impl Future<Output = Result<LogRead, ClusterLogError>> + Send;

    /// Waits until there may be something new after the cursor. It may return early, and returns after about a second
    /// at the latest.
    fn changed(&self, cursor: LogCursor) -> impl Future<Output = ()> + Send;

    /// Removes records of a generation up to a place, but never the last one.
    fn prune(
        &self,
        generation: u64,
        up_to: LogPosition,
    ) -> impl Future<Output = Result<(), ClusterLogError>> + Send;
}

/// A snapshot of the machine, as it is stored beside the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// Generation of the snapshot.
    pub generation: u64,
    /// Place of the last record that it contains.
    pub position: LogPosition,
    /// Hash of the bytes, as the taker stated it.
    pub hash: ShortHash,
    /// The bytes of the whole snapshot.
    pub bytes: Vec<u8>,
}

/// A state that a process offers as the base of the next generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReport {
    /// Id of the process.
    pub process: String,
    /// The state that the process offers.
    pub report: GenerationReport,
}

/// The row of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenerationState {
    /// The generation in force.
    pub generation: u64,
    /// Time since a member asked for the next generation; `None` if none did.
    pub ending_for: Option<Duration>,
    /// Reports of the last 3 s about this generation.
    pub reports: Vec<StoredReport>,
}

/// The generation and the snapshots of a cluster, outside of its log. They must be durable, and a change of the
/// generation must be decided by one row.
pub trait GenerationStore: Send + Sync + 'static {
    /// Creates the cluster with this first snapshot of generation 1, unless it exists.
    fn create(&self, first: &[u8]) -> impl Future<Output = Result<(), ClusterLogError>> + Send;

    /// Reads the row of the cluster.
    fn state(&self) -> impl Future<Output = Result<GenerationState, ClusterLogError>> + Send;

    /// States that a generation must end, and offers the state of a process as the base of the next one. A report
    /// counts for 3 s. Does nothing if another generation is in force.
    fn report(
        &self,
        report: &StoredReport,
    ) -> impl Future<Output = Result<(), ClusterLogError>> + Send;

    /// Begins generation `next` with this first snapshot, on an empty log. Returns false if `ended` is not in force.
    fn begin(
        &self,
        ended: u64,
        next: u64,
        base: &[u8],
    ) -> impl Future<Output = Result<bool, ClusterLogError>> + Send;

    /// Stores a snapshot, and removes all but the last two. Returns false if another generation is in force.
    fn store_snapshot(
        &self,
        snapshot: &StoredSnapshot,
    ) -> impl Future<Output = Result<bool, ClusterLogError>> + Send;

    /// Returns the newest snapshot of the generation in force; if `before` is given, the newest one before that place.
    /// `None` if there is none.
    fn newest_snapshot(
        &self,
        before: Option<LogPosition>,
    ) -> impl Future<Output = Result<Option<StoredSnapshot>, ClusterLogError>> + Send;
}
