//! Decides which data is synced to the disk, and when.
//!
//! A row is acknowledged once the operating system's kernel has the row's line of the [`Spool`](crate::spool::Spool).
//! Any other commit is acknowledged once the kernel has the commit's part of the write-ahead log. This log is synced at
//! checkpoints (`synchronous = NORMAL`). So a killed process loses nothing that was acknowledged. When the *machine*
//! loses power, rows and reservations of about the last half second may be lost, newest first; the database itself
//! stays consistent. Changes of the directory are synced before they are acknowledged; see [`SqliteDurability`].

use rusqlite::Connection;

use crate::error::StoreError;

/// The failure that an acknowledged transaction must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SqliteDurability {
    /// Kill of the process. The disk is not synced with each commit.
    Kill,
    /// Power loss of the machine. The write-ahead log is synced with the commit, including
    /// everything that was committed before. This is used for changes of the directory and their
    /// audit entries, because a power loss must not make a revoked key valid again. The sync takes
    /// milliseconds, which is too long for every row and reservation.
    PowerLoss,
}

impl SqliteDurability {
    /// Sets the durability of the next transaction. Must not be called inside a transaction, because SQLite does not
    /// allow that.
    pub(super) fn set(self, connection: &Connection) -> Result<(), StoreError> {
        let synchronous = match self {
            Self::Kill => "NORMAL",
            Self::PowerLoss => "FULL",
        };
        Ok(connection.pragma_update(None, "synchronous", synchronous)?)
    }
}
