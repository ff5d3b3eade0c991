//! Tells whoever watches of attempts that ended. While nobody watches, an ended attempt costs one look at a flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairgate_store::AttemptRow;
use tokio::sync::broadcast;

/// Number of rows that a slow watcher may be behind before it misses some.
const BEHIND_MAX: usize = 1024;

/// The rows of attempts as they end.
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
    /// Tells the watchers of a row, if there are any.
    pub fn tell(&self, row: &AttemptRow) {
        if self.is_watched.load(Ordering::Relaxed) {
            // Fails if the last watcher has just left.
            let _ = self.rows.send(Arc::new(row.clone()));
        }
    }

    /// Says if anybody watches.
    pub fn watch(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// Returns a receiver of the rows from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<AttemptRow>> {
        self.rows.subscribe()
    }
}
