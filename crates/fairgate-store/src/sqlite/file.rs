//! The database's file: who has it, how it is opened, and its schema.
//!
//! A row is in the kernel's hands ([`Spool`]) before anyone is told of it, and so is every other commit (the write-ahead
//! log), which is synced at checkpoints (`synchronous = NORMAL`). A killed process therefore loses nothing that was
//! acknowledged. When the *machine* loses power, rows and reservations of about the last half second may be gone, newest
//! first; the database itself stays sound. Changes of the directory are synced before they are acknowledged: see
//! [`Durability`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::columns::{first, run};
use crate::error::StoreError;
use crate::migrations;
use crate::private::{FileLock, private};
use crate::rows::Columns;
use crate::spool::{Bounds, Files, Spool};

type Result<T> = std::result::Result<T, StoreError>;

/// How long to wait for someone else's lock: a backup, or the `sqlite3` shell.
const BUSY: Duration = Duration::from_secs(5);

/// What a transaction must outlive once it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// A killed process.
    Kill,
    /// A machine that loses its power: the log is synced with the commit, and with it all that was committed before. For
    /// changes of the directory and their audit entries, since a revoked key must not come back. It takes milliseconds,
    /// which is too long for every row and reservation.
    PowerLoss,
}

impl Durability {
    /// Sets it for the next transaction; SQLite does not allow that inside one.
    pub(super) fn set(self, connection: &Connection) -> Result<()> {
        let synchronous = match self {
            Self::Kill => "NORMAL",
            Self::PowerLoss => "FULL",
        };
        Ok(connection.pragma_update(None, "synchronous", synchronous)?)
    }
}

/// Where a database is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In this process's memory only.
    Memory,
    /// In a file.
    File(PathBuf),
}

impl Place {
    pub(super) fn new(path: &str) -> Result<Self> {
        if path == ":memory:" {
            return Ok(Self::Memory);
        }
        // Two names of one file must find the same lock.
        let path = Path::new(path);
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let name = path.file_name().ok_or_else(|| failed(path, "open", "it names no file"))?;
        let folder = folder.canonicalize().map_err(|problem| failed(path, "open", problem))?;
        let file = folder.join(name);
        Ok(Self::File(file.canonicalize().unwrap_or(file)))
    }

    /// Takes the file for this process alone, and creates it where it is missing, for its owner's eyes only.
    pub(super) fn lock(&self) -> Result<Option<FileLock>> {
        let Self::File(path) = self else { return Ok(None) };
        let mut name = path.clone().into_os_string();
        name.push(".lock");
        let taken = FileLock::take(Path::new(&name));
        let Some(lock) = taken.map_err(|problem| failed(path, "lock", problem))? else {
            return Err(StoreError::Locked { file: path.display().to_string() });
        };
        private().open(path).map_err(|problem| failed(path, "open", problem))?;
        Ok(Some(lock))
    }

    /// The connection that writes, with the schema up to date.
    pub(super) fn writer(&self) -> Result<Connection> {
        let connection = match self {
            Self::Memory => Connection::open_in_memory()?,
            Self::File(path) => {
                let connection =
                    Connection::open(path).map_err(|problem| failed(path, "open", problem))?;
                connection.busy_timeout(BUSY)?;
                connection
                    .pragma_update(None, "journal_mode", "WAL")
                    .map_err(|problem| failed(path, "use", problem))?;
                connection
            }
        };
        Durability::Kill.set(&connection)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        // In KiB: the pages that the indices of a busy ledger touch.
        connection.pragma_update(None, "cache_size", -32 * 1024)?;
        // In pages of 4 KiB. A checkpoint waits for the disk, and everybody who waits for a commit waits with it: the
        // checkpointer has done nearly all of that work before the writer comes to it.
        connection.pragma_update(None, "wal_autocheckpoint", 16_384)?;
        // In bytes: what the log is cut to after a burst.
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.set_prepared_statement_cache_capacity(64);
        migrate(&connection)?;
        Ok(connection)
    }

    /// The rows on their way; none for a database in memory.
    pub(super) fn spool(&self, bounds: Bounds) -> Result<Option<Spool>> {
        let Self::File(path) = self else { return Ok(None) };
        let opened = Spool::open(Files::beside(path), bounds, None);
        opened.map(Some).map_err(|problem| failed(path, "open the rows beside", problem))
    }

    /// A connection for the checkpointer; none for a database in memory, which has no log.
    pub(super) fn checkpointer(&self) -> Result<Option<Connection>> {
        let Self::File(path) = self else { return Ok(None) };
        let connection = Connection::open(path).map_err(|problem| failed(path, "open", problem))?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(Some(connection))
    }

    /// A connection that only reads; none for a database in memory, which only its one connection can see.
    pub(super) fn reader(&self) -> Result<Option<Connection>> {
        let Self::File(path) = self else { return Ok(None) };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .map_err(|problem| failed(path, "open", problem))?;
        connection.busy_timeout(BUSY)?;
        Ok(Some(connection))
    }
}

fn failed(path: &Path, what: &str, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Database(format!("cannot {what} {}: {problem}", path.display()))
}

fn migrate(connection: &Connection) -> Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = take_steps(connection);
    connection.execute_batch(if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    migrated
}

fn take_steps(connection: &Connection) -> Result<()> {
    connection.execute_batch(migrations::VERSION_TABLE)?;
    let found = first(connection, migrations::READ_VERSION, [], |row| row.int(0))?.unwrap_or(0);
    for step in migrations::missing(found)? {
        connection.execute_batch(step.sqlite)?;
        run(connection, migrations::WRITE_VERSION, [step.version])?;
    }
    Ok(())
}
