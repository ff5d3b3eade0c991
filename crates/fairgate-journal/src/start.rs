//! The state from which a journal starts, which is an empty pool or a snapshot.

use fairgate_core::Pool;
use fairgate_core::event::PoolConfig;
use fairgate_core::restore::RestoreError;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;

use crate::error::JournalError;
use crate::journal_text_error::printable_path;

/// The state of the pool before the first event of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalStart {
    /// An empty pool with this configuration.
    Fresh(PoolConfig),
    /// The state of the pool when the previous journal ended.
    Snapshot(Box<Snapshot>),
}

impl JournalStart {
    /// Creates the pool to which the journal's events can be applied.
    ///
    /// A snapshot that describes no valid pool is an error on line 1, about one of the fields of `snapshot`.
    pub fn into_pool(self) -> Result<Pool, JournalError> {
        match self {
            Self::Fresh(config) => Ok(Pool::new(config)),
            Self::Snapshot(snapshot) => Pool::restore(*snapshot).map_err(no_pool),
        }
    }

    /// Returns true if the pool has workers from the start.
    pub(crate) fn has_workers(&self) -> bool {
        match self {
            Self::Fresh(config) => !config.workers.is_empty(),
            Self::Snapshot(snapshot) => snapshot.workers.is_some(),
        }
    }

    /// Returns the time of the start; no event may have an earlier time.
    pub(crate) fn now(&self) -> Micros {
        match self {
            Self::Fresh(_) => Micros(0),
            Self::Snapshot(snapshot) => snapshot.now,
        }
    }
}

fn no_pool(error: RestoreError) -> JournalError {
    let field = Some(format!("snapshot.{}", printable_path(&error.field)));
    JournalError::Bad { line: 1, field, message: error.problem.into() }
}
