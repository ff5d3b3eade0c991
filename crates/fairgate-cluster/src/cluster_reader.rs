//! Reads a cluster from outside, without joining it.

use fairgate_replica::{
    ApplyError, ClusterEffects, LogEntry, LogPosition, Replica, ShortHash, SnapshotError,
    snapshot_hash,
};

use crate::cluster_log::{ClusterLog, ClusterLogError, GenerationStore, LogCursor, StoredSnapshot};

/// Reason why a cluster could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterReadError {
    /// The log or its rows cannot be used.
    #[error(transparent)]
    Log(#[from] ClusterLogError),
    /// A snapshot cannot be restored.
    #[error("the snapshot at record {}: {error}", position.0)]
    Snapshot {
        /// Place of the snapshot.
        position: LogPosition,
        /// The fault of its bytes.
        error: SnapshotError,
    },
    /// A record cannot be applied.
    #[error(transparent)]
    Record(ApplyError),
    /// The log does not contain what follows the snapshot: it was pruned, or a new generation has begun meanwhile.
    #[error("the log does not contain record {}: try again", position.0)]
    Missing {
        /// Place of the first record that is missing.
        position: LogPosition,
    },
}

/// Two computations of the same state, which must be equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedSnapshot {
    /// Generation of the snapshots.
    pub generation: u64,
    /// Place of the older snapshot, from which the state was computed again.
    pub from: LogPosition,
    /// Place of the newest snapshot.
    pub position: LogPosition,
    /// Hash of the newest snapshot, as the member that took it has stated it.
    pub stated: ShortHash,
    /// Hash of the state that was computed from the older snapshot and the records since.
    pub computed: ShortHash,
}

/// Returns the state of the cluster at the end of its log, as a member would compute it.
pub async fn read_cluster<L: ClusterLog + GenerationStore>(
    log: &L,
) -> Result<Replica, ClusterReadError> {
    let missing = ClusterReadError::Missing { position: LogPosition(0) };
    let newest = log.newest_snapshot(None).await?.ok_or(missing)?;
    let mut replica = restored(newest)?;
    apply_until(log, &mut replica, None).await?;
    Ok(replica)
}

/// Computes the newest snapshot once more, from the one before it. `None` if there is only one.
///
/// The two were taken by different members, if there is more than one. So a difference means that a member decides
/// otherwise than this program.
pub async fn verify_snapshot<L: ClusterLog + GenerationStore>(
    log: &L,
) -> Result<Option<VerifiedSnapshot>, ClusterReadError> {
    let Some(newest) = log.newest_snapshot(None).await? else { return Ok(None) };
    let Some(older) = log.newest_snapshot(Some(newest.position)).await? else { return Ok(None) };
    let (generation, from) = (older.generation, older.position);
    let (position, stated) = (newest.position, newest.hash);
    let mut replica = restored(older)?;
    apply_until(log, &mut replica, Some(position)).await?;
    let computed = snapshot_hash(&replica.machine().snapshot());
    Ok(Some(VerifiedSnapshot { generation, from, position, stated, computed }))
}

fn restored(snapshot: StoredSnapshot) -> Result<Replica, ClusterReadError> {
    let StoredSnapshot { position, hash, bytes, .. } = snapshot;
    let failed = |error| ClusterReadError::Snapshot { position, error };
    if snapshot_hash(&bytes) != hash {
        let problem = "the hash is not that of the bytes".to_owned();
        return Err(failed(SnapshotError::Bad { line: 1, problem }));
    }
    Replica::restore(bytes).map_err(failed)
}

/// Applies the records up to a place, or up to the end.
async fn apply_until<L: ClusterLog>(
    log: &L,
    replica: &mut Replica,
    last: Option<LogPosition>,
) -> Result<(), ClusterReadError> {
    let mut effects = ClusterEffects::default();
    loop {
        let machine = replica.machine();
        let cursor = LogCursor { generation: machine.generation(), after: machine.position() };
        if last.is_some_and(|last| cursor.after >= last) {
            return Ok(());
        }
        let read = log.read(cursor).await?;
        let is_continued =
            read.records.first().is_none_or(|first| first.position == cursor.after.next());
        let is_there = read.generation == cursor.generation && read.end >= cursor.after;
        if !is_continued || !is_there || (last.is_some() && read.records.is_empty()) {
            return Err(ClusterReadError::Missing { position: cursor.after.next() });
        }
        if read.records.is_empty() {
            return Ok(());
        }
        for record in read.records.iter().filter(|it| last.is_none_or(|last| it.position <= last)) {
            let (position, stamp) = (record.position, record.stamp);
            let entry = LogEntry { position, stamp, record: &record.bytes };
            replica.apply(&entry, &mut effects).map_err(ClusterReadError::Record)?;
            effects.decisions.clear();
        }
    }
}
