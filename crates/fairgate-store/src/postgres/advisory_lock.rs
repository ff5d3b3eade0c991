//! An advisory lock of the server. It belongs to a connection, and is released when the connection
//! ends.

use std::fmt;

use super::connection::{PostgresConnection, PostgresSession, with_answer_timeout};
use super::error::PostgresError;
use crate::error::StoreError;
use crate::rows::RowColumns;
use crate::sql::SqlValue;

type Result<T> = std::result::Result<T, PostgresError>;

const TRY_LOCK: &str = "SELECT pg_try_advisory_lock($1)";
/// Statement that the server answers at once.
const PING: &str = "SELECT 1";

/// Lock with a connection of its own.
pub(crate) struct AdvisoryLock {
    connection: PostgresConnection,
    id: i64,
    /// Session that holds the lock; `None` if it is not held.
    holder: Option<PostgresSession>,
}

impl AdvisoryLock {
    pub(super) fn new(connection: PostgresConnection, id: i64) -> Self {
        Self { connection, id, holder: None }
    }

    /// Takes the lock if it is free. Returns true if the lock is held now.
    pub(crate) async fn try_hold(&mut self) -> std::result::Result<bool, StoreError> {
        Ok(self.hold_or_take().await?)
    }

    async fn hold_or_take(&mut self) -> Result<bool> {
        if let Some(session) = self.holder.take()
            && !session.client.is_closed()
            && with_answer_timeout(session.run(PING)).await.is_ok()
        {
            self.holder = Some(session);
            return Ok(true);
        }
        let session = self.connection.take_session().await?;
        let id = [SqlValue::Int(self.id)];
        let taken = with_answer_timeout(session.first(TRY_LOCK, &id, |row| row.flag(0))).await;
        match taken {
            Ok(Some(true)) => {
                self.holder = Some(session);
                Ok(true)
            }
            outcome => {
                self.connection.return_session(session, &outcome).await;
                outcome.map(|_| false)
            }
        }
    }
}

impl fmt::Debug for AdvisoryLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryLock").field("is_held", &self.holder.is_some()).finish()
    }
}
