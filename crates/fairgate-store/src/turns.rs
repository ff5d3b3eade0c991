//! How much may be pending at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::StoreError;

/// How long to wait for a turn. It comes within milliseconds, unless the database takes nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// A turn for each command and row that may be pending; each gives its own back once it is done with.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    turns: Arc<Semaphore>,
    all: usize,
}

impl Turns {
    pub(crate) fn new(all: usize) -> Self {
        let all = all.clamp(1, Semaphore::MAX_PERMITS);
        Self { turns: Arc::new(Semaphore::new(all)), all }
    }

    /// A turn, where there is one at once.
    pub(crate) fn try_next(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().try_acquire_owned().ok()
    }

    /// Waits for a turn; it is an error that none comes.
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

    /// Nobody gets a turn any more.
    pub(crate) fn close(&self) {
        self.turns.close();
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.turns.is_closed()
    }

    /// How many have a turn.
    pub(crate) fn taken(&self) -> usize {
        self.all - self.turns.available_permits()
    }
}
