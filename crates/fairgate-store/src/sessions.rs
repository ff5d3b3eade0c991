//! Sessions that were revoked. A session itself is a signed value that the browser keeps. The
//! database has the key of the signature, and a row for each revoked session.

use fairgate_time::UnixMicros;

use crate::error::StoreError;
use crate::store::{Store, TransactionFuture};
use crate::transaction::{SqlValue, Transaction, TransactionDurability};

const REVOKE: &str =
    "INSERT INTO revoked_sessions (id, expires_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING";
const DROP_EXPIRED: &str = "DELETE FROM revoked_sessions WHERE expires_at <= $1";
const FIND: &str = "SELECT COUNT(*) FROM revoked_sessions WHERE id = $1";

impl Store {
    /// Revokes a session, so that no gateway on this database accepts it. The row is kept until the
    /// session's own expiry.
    pub fn revoke_session(
        &self,
        id: String,
        expires_at: UnixMicros,
        now: UnixMicros,
    ) -> TransactionFuture<'_, (), StoreError> {
        self.transact(TransactionDurability::ThroughPowerLoss, move |transaction| {
            revoke(transaction, id, expires_at, now)
        })
    }

    /// Returns true if the session was revoked.
    pub fn session_revocation(&self, id: String) -> TransactionFuture<'_, bool, StoreError> {
        self.inspect(move |transaction| {
            let found = transaction.first(FIND, &[SqlValue::Text(id)], |row| row.int(0))?;
            Ok(found.unwrap_or(0) > 0)
        })
    }
}

fn revoke(
    transaction: &mut dyn Transaction,
    id: String,
    expires_at: UnixMicros,
    now: UnixMicros,
) -> Result<(), StoreError> {
    transaction.run(DROP_EXPIRED, &[SqlValue::Int(now.0)])?;
    transaction.run(REVOKE, &[SqlValue::Text(id), SqlValue::Int(expires_at.0)])?;
    Ok(())
}
