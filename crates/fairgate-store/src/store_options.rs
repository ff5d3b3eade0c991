//! Options of a store.

use std::path::PathBuf;
use std::time::Duration;

use crate::spool::SpoolBounds;

/// Limits and timeouts of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Maximum number of pending operations, and maximum number of rows that are held in memory
    /// until the database has them. Further rows are only in the spool files.
    pub pending_max: usize,
    /// Maximum total size of the spool files, in bytes. Rows beyond this size are rejected.
    pub spool_bytes_max: u64,
    /// Folder of the spool files, which no other process may use. Required for PostgreSQL. Ignored
    /// for SQLite, where the files are next to the database.
    pub spool: Option<PathBuf>,
    /// Maximum time that [`Store::reserve`](crate::Store::reserve) and
    /// [`Store::budgets`](crate::Store::budgets) wait while PostgreSQL sends no answer at all.
    /// [`Store::record`](crate::Store::record) waits as long if the spool does not accept its row.
    pub patience: Duration,
    /// Time without a heartbeat after which a process counts as dead, so that others resolve its
    /// reservations. Only for PostgreSQL.
    pub lease: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            pending_max: 4096,
            spool_bytes_max: 1 << 30,
            spool: None,
            patience: Duration::from_millis(200),
            lease: Duration::from_secs(30),
        }
    }
}

impl StoreOptions {
    pub(crate) fn bounds(&self) -> SpoolBounds {
        SpoolBounds { memory_rows: self.pending_max, bytes_max: self.spool_bytes_max }
    }
}
