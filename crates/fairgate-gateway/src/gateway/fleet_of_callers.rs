//! The fleet, as the data plane calls it.

use fairgate_fleet::{Fleet, FleetError, LimitCause, TaskKey};
use fairgate_store::{KeyHash, Store, StoreError, TaskClaim, UnixMicros};

use crate::fleet_calls::{FleetCall, FleetCalls};

/// The real fleet behind [`FleetCalls`].
pub(super) struct FleetOfCallers {
    pub(super) fleet: Fleet,
    pub(super) store: Store,
}

impl FleetCalls for FleetOfCallers {
    fn task_key(&self, hash: KeyHash) -> FleetCall<'_, Result<Option<TaskKey>, FleetError>> {
        self.fleet.task_key(hash)
    }

    fn note_limit<'a>(
        &'a self,
        claim: &'a TaskClaim,
        until: Option<UnixMicros>,
        cause: LimitCause,
    ) -> FleetCall<'a, Result<(), FleetError>> {
        self.fleet.note_limit(claim, until, cause)
    }

    fn project_weights(&self) -> FleetCall<'_, Result<Vec<(String, u64)>, StoreError>> {
        Box::pin(self.store.inspect(|transaction| fairgate_fleet::project_weights(transaction)))
    }
}
