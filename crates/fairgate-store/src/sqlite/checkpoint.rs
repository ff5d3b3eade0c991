//! The thread that moves the write-ahead log into the database file while the writer continues.
//!
//! Only a checkpoint waits for the disk. If the writer made the checkpoints, all callers that wait
//! for a commit (of a reservation or a change) would also wait for the disk, some milliseconds a
//! few times a second. A passive checkpoint on another thread never stops the writer. But only a
//! checkpoint of the writer itself can start the log again at its beginning, so the writer still
//! makes one occasionally. At that time, only the most recent part of the log is left to move.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rusqlite::Connection;

/// Interval between checkpoints. A power loss may undo the commits since the last checkpoint. The
/// disk is busy during a checkpoint, and commits then take longer; the more the checkpoint has to
/// write, the longer they take. With a commit for every few rows, an interval of 500 ms gave a p99
/// of 2 to 3 ms, and an interval of 5 s gave 30 to 40 ms.
const EVERY: Duration = Duration::from_millis(500);

/// Makes checkpoints until the sender of `stop` is dropped.
pub(super) fn run(connection: &Connection, stop: &Receiver<()>) {
    while stop.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(problem) = done {
            // The writer's own checkpoint limits the size of the log.
            tracing::debug!(%problem, "no checkpoint this time");
        }
    }
}
