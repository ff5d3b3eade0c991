//! The database file: its lock, its connections, and its schema.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::columns::{first, list, run};
use super::durability::SqliteDurability;
use crate::error::StoreError;
use crate::migrations;
use crate::private_files::{FileLock, private};
use crate::rows::RowColumns;
use crate::spool::{Spool, SpoolBounds, SpoolFiles};

type Result<T> = std::result::Result<T, StoreError>;

/// Maximum wait for a lock that another program holds, such as a backup or the `sqlite3` shell.
const BUSY: Duration = Duration::from_secs(5);

/// Location of a database.
#[derive(Clone, Debug)]
pub(super) enum SqliteLocation {
    /// The database is only in the memory of this process.
    Memory,
    /// The database is in the file with this canonical path.
    File(PathBuf),
}

impl SqliteLocation {
    pub(super) fn new(path: &str) -> Result<Self> {
        if path == ":memory:" {
            return Ok(Self::Memory);
        }
        // A file with two names has one canonical path, and therefore one lock.
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

    /// Locks the database file for this process. A missing file is created, readable by its owner only. Returns `None`
    /// for a database in memory.
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

    /// Opens the write connection, and migrates the schema.
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
        SqliteDurability::Kill.set(&connection)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        // In KiB. This is enough for the pages that the indices of a busy ledger use.
        connection.pragma_update(None, "cache_size", -32 * 1024)?;
        // In pages of 4 KiB. A checkpoint waits for the disk, and so does everybody who waits for a
        // commit. At this size of the log, the checkpoint thread has already done nearly all of the
        // work.
        connection.pragma_update(None, "wal_autocheckpoint", 16_384)?;
        // In bytes: the size to which the log is cut after a burst.
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        // The store and its callers have about a hundred statements, each of which is prepared
        // once.
        connection.set_prepared_statement_cache_capacity(256);
        // Otherwise SQLite prepares a statement again whenever a value that it compares with an indexed column differs
        // from the one before, because the value might change the plan.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        migrate(&connection)?;
        Ok(connection)
    }

    /// Opens the spool next to the database file. Returns `None` for a database in memory, which has no spool.
    pub(super) fn spool(&self, bounds: SpoolBounds) -> Result<Option<Spool>> {
        let Self::File(path) = self else { return Ok(None) };
        let opened = Spool::open(SpoolFiles::beside(path), bounds, None);
        opened.map(Some).map_err(|problem| failed(path, "open the rows beside", problem))
    }

    /// Opens a connection for the checkpoints. Returns `None` for a database in memory, which has no log.
    pub(super) fn checkpointer(&self) -> Result<Option<Connection>> {
        let Self::File(path) = self else { return Ok(None) };
        let connection = Connection::open(path).map_err(|problem| failed(path, "open", problem))?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(Some(connection))
    }

    /// Opens a read-only connection. Returns `None` for a database in memory, which has only the
    /// writer's connection.
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
    let found = migrated?;
    if let Some(queries) = migrations::kept_rights_queries(found) {
        let ids = |sql: &str| list(connection, sql, [], |row| row.text(0));
        migrations::log_kept_rights(&ids(queries[0])?, &ids(queries[1])?);
    }
    Ok(())
}

/// Applies all missing steps of the schema. Returns the version that was found.
fn take_steps(connection: &Connection) -> Result<i64> {
    connection.execute_batch(migrations::VERSION_TABLE)?;
    let found = first(connection, migrations::READ_VERSION, [], |row| row.int(0))?.unwrap_or(0);
    for step in migrations::missing(found)? {
        connection.execute_batch(step.sqlite)?;
        run(connection, migrations::WRITE_VERSION, [step.version])?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write as _};
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// The log lines of this thread, one for each event.
    #[derive(Clone, Default)]
    struct LogLines(Arc<Mutex<Vec<String>>>);

    struct LogLine(String);

    impl Visit for LogLine {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, "{field}={value:?} ");
        }
    }

    impl Subscriber for LogLines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = LogLine(format!("{} ", event.metadata().level()));
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    const KEYS: &str = "
INSERT INTO tenant_groups (name, weight, created_at) VALUES ('staff', 1, 5);
INSERT INTO tenants (name, group_name, weight, disabled, created_at) VALUES ('chat', 'staff', 1, FALSE, 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, classes, created_at)
    VALUES ('key-a', 'chat', '', '', x'01', 1, 'null', 5), ('key-b', 'chat', '', '', x'02', 1, '[]', 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, classes, created_at, revoked_at)
    VALUES ('key-c', 'chat', '', '', x'03', 1, 'null', 5, 6);
INSERT INTO fleet_projects (id, tenant, made, status, weight, concurrency, exclusive, agent_max, busy, baseline, baseline_at,
    window_bucket, window_tokens, window_oldest, window_completed, created_at)
    VALUES ('web', 'chat', 1, 'ACTIVE', 1000, 2, FALSE, '{}', FALSE, 0, 0, 0, 0, 0, 0, 5);
";

    /// The upgrade to closed keys logs one line that says who has more rights than a new key or
    /// project.
    #[test]
    fn kept_rights_are_logged_in_one_line_and_once() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(migrations::VERSION_TABLE).unwrap();
        for step in migrations::missing(0).unwrap().iter().take_while(|step| step.version <= 8) {
            connection.execute_batch(step.sqlite).unwrap();
            run(&connection, migrations::WRITE_VERSION, [step.version]).unwrap();
        }
        connection.execute_batch(KEYS).unwrap();
        let log = LogLines::default();
        let _here = tracing::subscriber::set_default(log.clone());
        migrate(&connection).unwrap();
        migrate(&connection).unwrap();
        let lines = log.0.lock().unwrap().clone();
        let lines: Vec<_> = lines.iter().filter(|line| line.contains("key-")).collect();
        let [line] = lines[..] else { panic!("one line: {lines:?}") };
        for part in [
            "WARN",
            "keys=key-a, key-b ",
            "projects=web ",
            "2 keys and 1 projects",
            "key list --wide",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        // A new database has no older keys and projects to log.
        migrate(&Connection::open_in_memory().unwrap()).unwrap();
        assert_eq!(
            log.0.lock().unwrap().iter().filter(|line| line.contains("keep what")).count(),
            1
        );
    }
}
