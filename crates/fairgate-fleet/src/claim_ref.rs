//! The claim that an agent's operation names, and the check that this claim is in force.

use fairgate_store::{StoreError, Transaction};

use crate::call_context::not_found;
use crate::error::FleetError;
use crate::transition::{self, TaskRow, write};

/// The claim that an agent's operation names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimRef<'a> {
    pub(crate) agent: &'a str,
    pub(crate) task: &'a str,
    pub(crate) epoch: u64,
}

impl ClaimRef<'_> {
    /// Returns whether the agent holds the task under this claim.
    pub(crate) fn is_held(self, standing: &TaskRow) -> bool {
        standing.state.is_held() && self.is_last(standing)
    }

    /// Returns true if this is the task's latest claim, whether or not it is over.
    pub(crate) fn is_last(self, standing: &TaskRow) -> bool {
        standing.epoch == self.epoch && standing.agent.as_deref() == Some(self.agent)
    }

    /// Returns the error that says what happened to the agent's claim.
    pub(crate) fn lost(self, standing: &TaskRow) -> FleetError {
        let TaskRow { state, epoch, reason, .. } = standing;
        let holder = standing.agent.as_deref().unwrap_or("another agent");
        let claim = self.epoch;
        let why = if state.is_held() && holder == self.agent {
            format!("you hold it as claim {epoch}, and this is about claim {claim}")
        } else if state.is_held() {
            format!("agent {holder:?} holds it as claim {epoch}; yours was claim {claim}")
        } else {
            let reason = reason.as_deref().map(|reason| format!(" ({reason})"));
            format!("it is {state}{}, and claim {claim} is over", reason.unwrap_or_default())
        };
        FleetError::LeaseLost { task: self.task.to_owned(), why }
    }
}

/// Returns the task if it is held under this claim, and an error otherwise.
pub(crate) fn held(tx: &mut dyn Transaction, named: ClaimRef<'_>) -> Result<TaskRow, FleetError> {
    let standing = transition::load_task(tx, named.task)?;
    match named.is_held(&standing) {
        true => Ok(standing),
        false => Err(not_held(tx, named, &standing)?),
    }
}

/// Returns the error for a claim that does not hold its task. An agent that never had the task gets
/// the error for a missing task. Otherwise it could find out the names, states and agents of all
/// tasks.
pub(crate) fn not_held(
    tx: &mut dyn Transaction,
    named: ClaimRef<'_>,
    standing: &TaskRow,
) -> Result<FleetError, StoreError> {
    if standing.agent.as_deref() == Some(named.agent) {
        return Ok(named.lost(standing));
    }
    let sql = "SELECT 1 FROM fleet_history WHERE task = $1 AND (actor = $2 OR reason = $3)";
    let values = [
        named.task.into(),
        format!("agent:{}", named.agent).into(),
        write::given_to(named.agent).into(),
    ];
    Ok(match tx.first(sql, &values, |_| Ok(()))? {
        Some(()) => named.lost(standing),
        None => not_found("task", named.task),
    })
}
