//! Whether the server is there, as told by when it last answered anything.
//!
//! Whoever cannot go on without the database must be told soon that it is away. A fixed time limit would not do: a server
//! with much to do answers late, and is not away. So a wait ends when nothing at all has been answered, to anybody in this
//! process, for [`crate::StoreOptions::patience`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;

/// When the server last answered, and how long it may be silent before those who cannot go on without it give up.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    last: Arc<Mutex<Instant>>,
    patience: Duration,
}

impl Pulse {
    pub(super) fn new(patience: Duration) -> Self {
        Self { last: Arc::new(Mutex::new(Instant::now())), patience }
    }

    /// It has answered.
    pub(super) fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something while the server shows signs of life; drops it, with an error, where it shows none.
    pub(super) async fn or_away<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.or_silent_for(self.patience, work).await
    }

    /// The same, for work that the server may take longer for.
    pub(super) async fn or_silent_for<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let mut work = std::pin::pin!(work);
        let silent_until = || begun.max(self.last()) + patience;
        loop {
            if let Ok(done) = timeout_at(silent_until(), &mut work).await {
                return done;
            }
            if silent_until() <= Instant::now() {
                let millis = patience.as_millis();
                let problem = format!(
                    "PostgreSQL has not answered for {millis} ms; try again when it is back"
                );
                return Err(StoreError::Database(problem));
            }
        }
    }
}
