//! The schema, brought up to date by one process at a time.

use std::time::Duration;

use super::link::Session;
use super::trouble::Trouble;
use crate::migrations;
use crate::rows::Columns;
use crate::sql::Value;

/// "fairgate", for the lock that those who migrate wait for.
const LOCK: i64 = 0x6661_6972_6761_7465;

/// How long all steps together may take, those included that another process takes first.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Takes the steps that are missing, all or none.
pub(super) async fn migrate(session: &Session) -> Result<(), Trouble> {
    // A step over a large table takes its time, and those who start in the meantime wait for it.
    session.run("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    session.run(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    session.run(migrations::VERSION_TABLE).await?;
    let found = session.first(migrations::READ_VERSION, &[], |row| row.int(0)).await?;
    for step in migrations::missing(found.unwrap_or(0))? {
        session.run(step.postgres).await?;
        let version = Value::Int(step.version);
        session.list(migrations::WRITE_VERSION, &[version], |_| Ok(())).await?;
    }
    session.run("COMMIT").await
}
