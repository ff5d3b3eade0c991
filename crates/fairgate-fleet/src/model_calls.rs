//! Requests in flight that were made for tasks.

use std::collections::HashMap;

use fairgate_store::{StoreError, Transaction};

use crate::json_rows;

/// Returns the task for each of these requests, by request id. Requests that belong to no task are
/// left out.
pub(crate) fn tasks_of(
    tx: &mut dyn Transaction,
    requests: &[String],
) -> Result<HashMap<String, String>, StoreError> {
    let texts = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT request, task FROM reservations WHERE task IS NOT NULL AND request IN {texts}"
    );
    let names = json_rows::names(requests.iter().map(String::as_str));
    let found = tx.list(&sql, &[names], |row| Ok((row.text(0)?, row.text(1)?)))?;
    Ok(found.into_iter().collect())
}
