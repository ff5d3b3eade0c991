//! Two async tasks between a member and its log: one appends, one reads.

use std::sync::Arc;
use std::time::Duration;

use fairgate_replica::LogPosition;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::cluster_log::{ClusterLog, ClusterLogError, LogCursor, LogRead};

/// The pause after the first failed call, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Longest time for which the reader waits until the member has applied what it got.
const APPLY_PATIENCE: Duration = Duration::from_millis(200);

/// Place up to which the member has applied the log, and a number that it raises to have the log read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReaderPlace {
    pub(super) cursor: LogCursor,
    pub(super) again: u64,
}

/// A record to append.
#[derive(Debug)]
pub(super) struct AppendJob {
    pub(super) generation: u64,
    pub(super) record: Vec<u8>,
}

/// Answer of the log, or what went wrong.
#[derive(Debug)]
pub(super) struct LogAnswer {
    /// Place up to which the member had applied the log when the call was made. It may have applied more since, because the other task's
    /// answer came first.
    pub(super) asked: LogCursor,
    pub(super) read: Result<LogRead, ClusterLogError>,
}

/// A pause that grows while calls fail.
#[derive(Debug, Default)]
struct GrowingPause(Duration);

impl GrowingPause {
    async fn wait(&mut self) {
        self.0 = (self.0 * 2).clamp(PAUSE.0, PAUSE.1);
        sleep(self.0).await;
    }

    fn end(&mut self) {
        self.0 = Duration::ZERO;
    }
}

/// Appends records one after the other, and passes the answers on.
pub(super) async fn append_records<L: ClusterLog>(
    log: Arc<L>,
    place: watch::Receiver<ReaderPlace>,
    mut jobs: mpsc::Receiver<AppendJob>,
    answers: mpsc::Sender<LogAnswer>,
) {
    let mut pause = GrowingPause::default();
    while let Some(job) = jobs.recv().await {
        let cursor = place.borrow().cursor;
        if job.generation != cursor.generation {
            continue;
        }
        let read = log.append(cursor, &job.record).await;
        let has_failed = read.is_err();
        if answers.send(LogAnswer { asked: cursor, read }).await.is_err() {
            return;
        }
        // The member sends what it did not read back again, so nothing is repeated here.
        match has_failed {
            true => pause.wait().await,
            false => pause.end(),
        }
    }
}

/// Reads what is new, and passes it on.
pub(super) async fn read_records<L: ClusterLog>(
    log: Arc<L>,
    mut place: watch::Receiver<ReaderPlace>,
    answers: mpsc::Sender<LogAnswer>,
) {
    let mut pause = GrowingPause::default();
    let mut read_at_once = true;
    let mut last = *place.borrow();
    loop {
        let at = *place.borrow_and_update();
        let has_moved = at.cursor.generation != last.cursor.generation || at.again != last.again;
        last = at;
        if !read_at_once && !has_moved {
            tokio::select! {
                () = log.changed(at.cursor) => {}
                changed = place.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            }
        }
        let read = log.read(at.cursor).await;
        let has_failed = read.is_err();
        let newest = read.as_ref().ok().and_then(|it| it.records.last()).map(|it| it.position);
        let end = read.as_ref().map_or(LogPosition(0), |it| it.end);
        read_at_once = has_failed || newest.is_some_and(|newest| newest < end);
        if answers.send(LogAnswer { asked: at.cursor, read }).await.is_err() {
            return;
        }
        if has_failed {
            pause.wait().await;
            continue;
        }
        pause.end();
        if let Some(newest) = newest {
            let generation = at.cursor.generation;
            let is_applied = |it: &ReaderPlace| {
                it.cursor.generation != generation
                    || it.cursor.after >= newest
                    || it.again != at.again
            };
            // If the member does not apply it, for example because it waits for a snapshot, it is read again.
            let _ = timeout(APPLY_PATIENCE, place.wait_for(is_applied)).await;
        }
    }
}
