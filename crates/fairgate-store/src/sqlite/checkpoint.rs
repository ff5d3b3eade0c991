//! The thread that brings the log into the database while the writer goes on.
//!
//! Only a checkpoint waits for the disk. Were it the writer's, everybody who waits for a commit (a reservation, a change)
//! would wait with it, some milliseconds a few times a second. A passive checkpoint never stops a writer; what is left over for the writer's own,
//! which alone can start the log anew, is what came in since.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rusqlite::Connection;

/// How often: so much a loss of power may take. Commits wait for the disk while it takes a checkpoint, the longer the more
/// there is in it: with a commit for every few rows, every 500 ms gave a p99 of 2 to 3 ms where every 5 s gave 30 to 40 ms.
const EVERY: Duration = Duration::from_millis(500);

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
