//! What a journal starts from.

use fairgate_core::Pool;
use fairgate_core::event::PoolConfig;
use fairgate_core::restore::RestoreError;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;

use crate::error::JournalError;
use crate::read::fault::printable_path;

/// What a journal starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// An empty pool.
    Fresh(PoolConfig),
    /// A pool as it was when the journal before this one was cut.
    Snapshot(Box<Snapshot>),
}

impl Start {
    /// The pool that the journal's events are for.
    ///
    /// A snapshot that describes no pool is an error on line 1, about one of the fields of `snapshot`.
    pub fn into_pool(self) -> Result<Pool, JournalError> {
        match self {
            Self::Fresh(config) => Ok(Pool::new(config)),
            Self::Snapshot(snapshot) => Pool::restore(*snapshot).map_err(no_pool),
        }
    }

    /// The time before which no event may be.
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
