//! What every call of the fleet knows and does.

use std::sync::Arc;

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction};
use serde_json::Value as Json;

use crate::error::FleetError;
use crate::fleet::FleetOptions;
use crate::usage::Window;

/// When a call is carried out, for whom, and by which settings.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) now: UnixMicros,
    /// `agent:NAME`, `admin`, `admin:NAME`, or `fleet`.
    pub(crate) actor: String,
    pub(crate) options: Arc<FleetOptions>,
}

impl Call {
    pub(crate) fn window(&self) -> Window {
        Window::new(self.options.window)
    }

    /// Writes an entry of the audit trail.
    pub(crate) fn audit(
        &self,
        tx: &mut dyn Transaction,
        action: &str,
        subject: &str,
        before: Option<&Json>,
        after: Option<&Json>,
    ) -> Result<(), StoreError> {
        let text = |json: Option<&Json>| json.map(Json::to_string);
        tx.run(
            "INSERT INTO audit (at, actor, action, subject, before_json, after_json) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[
                self.now.into(),
                self.actor.as_str().into(),
                action.into(),
                subject.into(),
                text(before).into(),
                text(after).into(),
            ],
        )?;
        Ok(())
    }
}

/// Counts a change of the fleet. Belongs into every transaction that changes what a round looks at.
pub(crate) fn bump_version(tx: &mut dyn Transaction) -> Result<(), StoreError> {
    tx.run("UPDATE fleet SET version = version + 1 WHERE one = 1", &[])?;
    Ok(())
}

/// Takes places in the order in which things are made; the first of them.
pub(crate) fn take_places(tx: &mut dyn Transaction, count: i64) -> Result<i64, FleetError> {
    let last = tx.first(
        "UPDATE fleet SET made = made + $1 WHERE one = 1 RETURNING made",
        &[count.into()],
        |row| row.int(0),
    )?;
    let none = || StoreError::Database("the table fleet has no row".to_owned());
    Ok(last.ok_or_else(none)? - count + 1)
}

/// What was not found.
pub(crate) fn not_found(what: &'static str, id: &str) -> FleetError {
    FleetError::NotFound { what, id: id.to_owned() }
}
