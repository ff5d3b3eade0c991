//! Limit on the number of pending operations.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::StoreError;

/// Maximum wait for a permit. A permit becomes free within milliseconds, unless the database
/// accepts nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Permits for pending commands and rows. Each permit is given back when its command or row is done.
#[derive(Clone, Debug)]
pub(crate) struct PendingPermits {
    turns: Arc<Semaphore>,
    all: usize,
}

impl PendingPermits {
    pub(crate) fn new(all: usize) -> Self {
        let all = all.clamp(1, Semaphore::MAX_PERMITS);
        Self { turns: Arc::new(Semaphore::new(all)), all }
    }

    /// Returns a permit, or `None` if no permit is free.
    pub(crate) fn try_next(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().try_acquire_owned().ok()
    }

    /// Waits until a permit is free. Fails after [`PATIENCE`].
    pub(crate) async fn next(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        if let Some(turn) = self.try_next() {
            return Ok(turn);
        }
        match tokio::time::timeout(PATIENCE, self.turns.clone().acquire_owned()).await {
            Ok(turn) => turn.map_err(|_| StoreError::Closed),
            Err(_) => {
                let (all, seconds) = (self.all, PATIENCE.as_secs());
                let problem = format!("took none of {all} pending rows within {seconds} s");
                Err(StoreError::Database(problem))
            }
        }
    }

    /// Closes the semaphore, so that no more permits are given out.
    pub(crate) fn close(&self) {
        self.turns.close();
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.turns.is_closed()
    }

    /// Returns the number of permits in use.
    pub(crate) fn taken(&self) -> usize {
        self.all - self.turns.available_permits()
    }
}
