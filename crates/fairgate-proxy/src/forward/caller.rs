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

/// The claim of a task is checked again only after a longer wait for a slot than this. After a
/// shorter wait, the check at the reservation, just before the wait, is recent enough.
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
            // The tenant was just added at another server. A claim of one of its tasks exists, so
            // the tenant is in the database, and one refresh finds it. If the database does not
            // answer, the caller is refused below.
            let _ = self.directory_sync.refresh().await;
        }
        self.identity.of_task(&key, hash)
    }

    /// Checks the caller again after its request has waited for a slot. Refuses it if it would no
    /// longer be admitted.
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

    /// Refuses an agent that has lost the claim of its task. If the database is down, the request
    /// goes on, because the claim was in force when the tokens were reserved.
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
