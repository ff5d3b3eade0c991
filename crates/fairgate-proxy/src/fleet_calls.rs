//! The calls of the data plane to the fleet. The gateway implements them with the real fleet.

use std::future::Future;
use std::pin::Pin;

use fairgate_fleet::{FleetError, LimitCause, TaskKey};
use fairgate_store::{BudgetExhausted, KeyHash, StoreError, TaskClaim, UnixMicros};

/// A boxed future of a call to the fleet.
pub type FleetCall<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Calls of the data plane to the fleet.
pub trait FleetCalls: Send + Sync {
    /// Returns the owner of a task key; `None` if no claim in force has the key.
    fn task_key(&self, hash: KeyHash) -> FleetCall<'_, Result<Option<TaskKey>, FleetError>>;

    /// Records that a limit refused a request of the task. The limit ends at `until`; `None` if it
    /// does not end by itself.
    fn note_limit<'a>(
        &'a self,
        claim: &'a TaskClaim,
        until: Option<UnixMicros>,
        cause: LimitCause,
    ) -> FleetCall<'a, Result<(), FleetError>>;

    /// Reports to the fleet's webhooks that a budget has no room for a request. Returns without
    /// waiting.
    fn note_budget_refusal(&self, refused: &BudgetExhausted);

    /// Returns the id and the weight, in thousandths, of each project.
    fn project_weights(&self) -> FleetCall<'_, Result<Vec<(String, u64)>, StoreError>>;
}
