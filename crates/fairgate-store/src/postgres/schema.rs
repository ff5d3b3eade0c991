//! Migration of the schema, by one process at a time.

use std::time::Duration;

use super::connection::PostgresSession;
use super::error::PostgresError;
use crate::migrations;
use crate::rows::RowColumns;
use crate::sql::SqlValue;

/// Id of the advisory lock for migrations: "fairgate" in ASCII.
const LOCK: i64 = 0x6661_6972_6761_7465;

/// Maximum time for all steps of the migration together, including the time in which another
/// process migrates.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Applies all missing steps of the schema in one transaction.
pub(super) async fn migrate(session: &PostgresSession) -> Result<(), PostgresError> {
    // A step over a large table takes long, and processes that start in the meantime wait for it.
    session.run("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    session.run(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    session.run(migrations::VERSION_TABLE).await?;
    let found = session.first(migrations::READ_VERSION, &[], |row| row.int(0)).await?;
    let found = found.unwrap_or(0);
    for step in migrations::missing(found)? {
        session.run(step.postgres).await?;
        let version = SqlValue::Int(step.version);
        session.list(migrations::WRITE_VERSION, &[version], |_| Ok(())).await?;
    }
    session.run("COMMIT").await?;
    if let Some([keys, projects]) = migrations::kept_rights_queries(found) {
        let keys = session.list(keys, &[], |row| row.text(0)).await?;
        let projects = session.list(projects, &[], |row| row.text(0)).await?;
        migrations::log_kept_rights(&keys, &projects);
    }
    Ok(())
}
