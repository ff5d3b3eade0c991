//! The thread that brings the log into the database while the writer goes on.
//!
//! Only a checkpoint waits for the disk. Were it the writer's, everybody who waits for a commit would wait with it, some
//! milliseconds a few times a second. A passive checkpoint never stops a writer; what is left over for the writer's own,
//! which alone can start the log anew, is what came in since.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rusqlite::Connection;

/// How often. While the disk takes a checkpoint, commits can wait for it too, so few is better than many; the log grows
/// by what is written in between.
const EVERY: Duration = Duration::from_secs(5);

/// Runs until the other end of `stop` is gone.
pub(super) fn run(connection: &Connection, stop: &Receiver<()>) {
    while stop.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        let done = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(problem) = done {
            // The writer's own checkpoint bounds the log all the same.
            tracing::debug!(%problem, "no checkpoint this time");
        }
    }
}
