//! Times at which keys were last used.
//!
//! The writer of ledger rows writes these times, at most once a minute for each key. They have a
//! table of their own, so that the use of a key does not change the directory.

use std::collections::HashMap;

use fairgate_time::UnixMicros;

use crate::error::StoreError;
use crate::ledger::AttemptRow;
use crate::sql::SqlValue;
use crate::transaction::{DatabaseKind, Transaction};

/// Minimum time between two writes for one key, in microseconds.
const WRITE_EVERY_US: i64 = 60_000_000;
/// Maximum number of keys whose last write is remembered. Beyond it, all are forgotten, and their
/// next uses are written.
const REMEMBERED_MAX: usize = 100_000;

/// Writes the last use `$1` of key `$2`, unless the key does not exist or a later use is known.
pub(crate) const PUT_KEY_USE: &str = "INSERT INTO key_uses (key_id, used_at) \
     SELECT id, CAST($1 AS BIGINT) FROM tenant_keys WHERE id = $2 \
     ON CONFLICT (key_id) DO UPDATE SET used_at = excluded.used_at WHERE excluded.used_at > key_uses.used_at";

/// Uses of keys that this process has written.
#[derive(Debug, Default)]
pub(crate) struct KeyUseLog {
    written: HashMap<String, UnixMicros>,
}

impl KeyUseLog {
    /// Returns the keys of these rows whose last use must be written, with the time of that use,
    /// sorted by key. The order is the same in all processes, so that their transactions cannot
    /// deadlock.
    pub(crate) fn due<'a>(
        &self,
        attempts: impl Iterator<Item = &'a AttemptRow>,
    ) -> Vec<(String, UnixMicros)> {
        let mut latest: HashMap<&str, UnixMicros> = HashMap::new();
        for attempt in attempts {
            let use_of_key = latest.entry(&attempt.key).or_insert(attempt.started_at);
            *use_of_key = attempt.started_at.max(*use_of_key);
        }
        let is_due = |key: &str, at: UnixMicros| {
            let written = self.written.get(key);
            written.is_none_or(|written| at.0.saturating_sub(written.0) >= WRITE_EVERY_US)
        };
        let due = latest.into_iter().filter(|(key, at)| is_due(key, *at));
        let mut due: Vec<_> = due.map(|(key, at)| (key.to_owned(), at)).collect();
        due.sort_unstable();
        due
    }

    /// Notes that these uses are in the database.
    pub(crate) fn note_written(&mut self, uses: Vec<(String, UnixMicros)>) {
        if self.written.len() > REMEMBERED_MAX {
            self.written.clear();
        }
        self.written.extend(uses);
    }
}

/// Returns the time of the last use of each of these keys, by key id. Keys that were never used are
/// left out.
pub(crate) fn read_key_uses(
    transaction: &mut dyn Transaction,
    keys: Vec<String>,
) -> Result<HashMap<String, UnixMicros>, StoreError> {
    let texts = match transaction.database() {
        DatabaseKind::Sqlite => "SELECT e.value FROM json_each($1) AS e",
        DatabaseKind::Postgres => {
            "SELECT e.value FROM jsonb_array_elements_text(CAST(CAST($1 AS TEXT) AS JSONB)) AS e(value)"
        }
    };
    let sql = format!("SELECT key_id, used_at FROM key_uses WHERE key_id IN ({texts})");
    let values = [SqlValue::Text(serde_json::Value::from(keys).to_string())];
    let uses = transaction.list(&sql, &values, |row| Ok((row.text(0)?, row.moment(1)?)))?;
    Ok(uses.into_iter().collect())
}
