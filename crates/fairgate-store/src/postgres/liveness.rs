//! Decides whether the server is alive, by the time of its last answer.
//!
//! A caller that needs the database must get an error soon after the database becomes unavailable.
//! A fixed time limit is not suitable, because a busy server answers late although it is available.
//! So a wait ends only when the server has sent no answer at all, to any task of this process, for
//! a certain time.
//!
//! For reservations, budget checks and rows that the spool did not accept, this time is
//! [`crate::StoreOptions::patience`], which is 200 ms by default. Reads and transactions of callers have longer limits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::StoreError;

/// Time of the server's last answer, and the maximum time without answers for which callers wait.
#[derive(Clone, Debug)]
pub(super) struct ServerLiveness {
    last: Arc<Mutex<Instant>>,
    silence_timeout: Duration,
}

impl ServerLiveness {
    pub(super) fn new(silence_timeout: Duration) -> Self {
        Self { last: Arc::new(Mutex::new(Instant::now())), silence_timeout }
    }

    /// Records that the server has answered.
    pub(super) fn record_answer(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `work` as long as the server sends any answers to this process. If there are none
    /// for too long, drops `work` and returns an error.
    pub(super) async fn wait_unless_silent<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.wait_unless_silent_for(self.silence_timeout, work).await
    }

    /// Waits like [`Self::wait_unless_silent`], with `patience` as the maximum time without
    /// answers.
    pub(super) async fn wait_unless_silent_for<T>(
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
