//! Identifies the caller of a request, and checks the caller again after a wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_fleet::FleetError;
use fairgate_store::KeyHash;
use fairgate_time::wall_clock;
use http::HeaderMap;

use super::data_plane::DataPlane;
use crate::identity::{Caller, is_task_key, presented_secret};
use crate::refusal::{self, Refusal};

/// Longest wait for a slot after which the claim of a call is not checked again. The reservation was granted just
/// before the wait, while the claim was in force.
const RECHECK_AFTER: Duration = Duration::from_millis(200);

impl DataPlane {
    /// Returns the caller of a request: a tenant with one of its keys, or an agent with its task key.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Refusal> {
        let secret = presented_secret(headers)?;
        let hash = KeyHash::of(secret);
        match is_task_key(secret) {
            // Boxed to keep this future small: many requests wait, and few have a task key.
            true => Box::pin(self.task_caller(hash)).await,
            false => self.identity.caller_of_secret(hash, wall_clock::now()),
        }
    }

    async fn task_caller(&self, hash: KeyHash) -> Result<Arc<Caller>, Refusal> {
        let keys = &self.identity.task_keys;
        let key = match keys.cached(&hash, Instant::now()) {
            Some(key) => Some(key),
            None => keys.look_up(&*self.fleet, hash).await.map_err(|error| self.away(&error))?,
        };
        let key = key.ok_or_else(refusal::unknown_task_key)?;
        if !self.identity.has_tenant(&key.tenant) {
            // The tenant was added at another server a moment ago. A claim of one of its tasks exists, so it is in the
            // database, and one refresh finds it. If the database is away, the caller is refused below.
            let _ = self.directory_sync.refresh().await;
        }
        self.identity.of_task(&key, hash)
    }

    /// Refuses an admitted caller that would be refused now, after its request has waited for a slot.
    pub(crate) async fn recheck_caller(
        &self,
        caller: &Caller,
        waited: Duration,
    ) -> Result<(), Refusal> {
        self.identity.recheck(caller, wall_clock::now())?;
        match &caller.claim {
            Some(_) if waited > RECHECK_AFTER => Box::pin(self.recheck_task(caller)).await,
            _ => Ok(()),
        }
    }

    /// Refuses an agent that no longer has the claim of its call. If the database is down, the call goes on, because
    /// its claim was in force when its tokens were reserved.
    async fn recheck_task(&self, caller: &Caller) -> Result<(), Refusal> {
        match self.identity.task_keys.look_up(&*self.fleet, caller.secret).await {
            Ok(None) => Err(refusal::unknown_task_key()),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    fn away(&self, error: &FleetError) -> Refusal {
        let what = "task keys cannot be looked up";
        if let Some(left_out) = self.log_throttle.admit(what, tokio::time::Instant::now()) {
            tracing::error!(%error, left_out, "{what}");
        }
        refusal::store_unavailable()
    }
}
