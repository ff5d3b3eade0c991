//! The context of one call of a method of [`crate::Fleet`], and functions that most of these
//! methods need.

use std::sync::Arc;

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::Value as Json;

use crate::error::FleetError;
use crate::options::FleetOptions;
use crate::project_baseline::BaselineTerms;
use crate::window_usage::UsageWindow;

/// Time and actor of one call of a method of [`crate::Fleet`], with the fleet's options.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    pub(crate) now: UnixMicros,
    /// Name of the caller, as the history and the audit trail show it: `agent:NAME`, `admin`,
    /// `admin:NAME`, `tenant:NAME` or `fleet`.
    pub(crate) actor: String,
    pub(crate) options: Arc<FleetOptions>,
}

impl CallContext {
    pub(crate) fn window(&self) -> UsageWindow {
        UsageWindow::new(self.options.window)
    }

    pub(crate) fn terms(&self) -> BaselineTerms {
        BaselineTerms { window: self.window(), share: self.options.share }
    }

    /// Returns true if an operator makes this call. Operators may see all projects and agents;
    /// agents and tenants may not.
    pub(crate) fn is_by_operator(&self) -> bool {
        self.actor == "admin" || self.actor.starts_with("admin:")
    }

    /// Returns whether an agent makes this call.
    pub(crate) fn is_by_agent(&self) -> bool {
        self.actor.starts_with("agent:")
    }

    /// Writes one entry of the audit trail, with the actor and time of this call.
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

/// Increments the fleet's version. Every transaction that changes an input of a round must call
/// this.
pub(crate) fn bump_version(tx: &mut dyn Transaction) -> Result<(), StoreError> {
    fairgate_usage::sql::count_change(tx)
}

/// Reserves `count` consecutive numbers for new projects or tasks, and returns the first number. Projects and tasks are
/// listed in the order of their numbers.
pub(crate) fn reserve_creation_order(
    tx: &mut dyn Transaction,
    count: i64,
) -> Result<i64, FleetError> {
    let last = tx.first(
        "UPDATE fleet SET made = made + $1 WHERE one = 1 RETURNING made",
        &[count.into()],
        |row| row.int(0),
    )?;
    let none = || StoreError::Database("the table fleet has no row".to_owned());
    Ok(last.ok_or_else(none)? - count + 1)
}

/// Returns the error that nothing of the kind `what`, such as `task`, has this id.
pub(crate) fn not_found(what: &'static str, id: &str) -> FleetError {
    FleetError::NotFound { what, id: id.to_owned() }
}
