//! Sends the rows of ended attempts to subscribers. Without a subscriber, an ended attempt costs
//! one read of a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairgate_store::AttemptRow;
use tokio::sync::broadcast;

/// Number of rows that a slow subscriber may be behind before it misses rows.
const BEHIND_MAX: usize = 1024;

/// Broadcasts the row of each attempt when the attempt ends.
#[derive(Debug)]
pub struct EndedRows {
    rows: broadcast::Sender<Arc<AttemptRow>>,
    is_watched: AtomicBool,
}

impl Default for EndedRows {
    fn default() -> Self {
        Self { rows: broadcast::channel(BEHIND_MAX).0, is_watched: AtomicBool::new(false) }
    }
}

impl EndedRows {
    /// Sends a row to the subscribers, if there are any.
    pub fn tell(&self, row: &AttemptRow) {
        if self.is_watched.load(Ordering::Relaxed) {
            // Fails if the last watcher has just left.
            let _ = self.rows.send(Arc::new(row.clone()));
        }
    }

    /// Sets whether rows are sent at all.
    pub fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// Returns a receiver of the rows from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<AttemptRow>> {
        self.rows.subscribe()
    }
}
