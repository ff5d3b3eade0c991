//! Task keys: short-lived keys of agents that work on a task. Whose they are is in the fleet, not in the directory.
//!
//! What was found is believed for a moment, so that an agent's calls do not each ask the database. That a key is still known
//! here lets nobody spend: each call reserves, and the store grants that only while the claim is in force.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_fleet::{Fleet, FleetError, TaskKey};
use fairgate_store::KeyHash;
use http::HeaderMap;
use tokio::sync::Semaphore;

use super::{Caller, presented_secret};
use crate::app::App;
use crate::forward::unix_now;
use crate::refusal::{self, Refusal};

/// What every task key begins with.
const PREFIX: &[u8] = b"fgt-";
/// For how long it is believed whose a key is.
const FRESH: Duration = Duration::from_secs(2);
/// How many keys are remembered.
const KNOWN_MAX: usize = 10_000;
/// How many are looked for at once: whoever sends keys that nobody has must not keep the database busy.
const LOOKS_MAX: usize = 8;
/// A call that waited for its slot no longer than this was granted its reservation a moment ago.
const A_MOMENT: Duration = Duration::from_millis(200);

/// The task keys that were seen of late.
#[derive(Debug)]
pub(super) struct TaskKeys {
    known: Mutex<HashMap<KeyHash, (Arc<TaskKey>, Instant)>>,
    looks: Semaphore,
}

impl Default for TaskKeys {
    fn default() -> Self {
        Self { known: Mutex::default(), looks: Semaphore::new(LOOKS_MAX) }
    }
}

impl TaskKeys {
    /// Whose key it is, as it was known a moment ago.
    fn recall(&self, hash: &KeyHash, now: Instant) -> Option<Arc<TaskKey>> {
        let known = self.lock();
        let (key, found_at) = known.get(hash)?;
        (now.saturating_duration_since(*found_at) < FRESH).then(|| key.clone())
    }

    /// Whose key it is. One that is nobody's is not remembered.
    async fn look(&self, fleet: &Fleet, hash: KeyHash) -> Result<Option<Arc<TaskKey>>, FleetError> {
        let _one_of_few = self.looks.acquire().await;
        let found = fleet.task_key(hash).await?.map(Arc::new);
        let now = Instant::now();
        let mut known = self.lock();
        match &found {
            Some(key) => {
                if known.len() >= KNOWN_MAX {
                    known.retain(|_, (_, at)| now.saturating_duration_since(*at) < FRESH);
                }
                if known.len() < KNOWN_MAX {
                    known.insert(hash, (key.clone(), now));
                }
            }
            None => drop(known.remove(&hash)),
        }
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, (Arc<TaskKey>, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash of the task key that was sent, where one was.
fn sent_task_key(headers: &HeaderMap) -> Option<KeyHash> {
    let secret = presented_secret(headers).ok()?;
    secret.starts_with(PREFIX).then(|| KeyHash::of(secret))
}

impl App {
    /// Who asks: a tenant with one of its keys, or an agent with the key of its task.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Refusal> {
        match sent_task_key(headers) {
            // Boxed: there are many waiting requests, and few of them are looked for.
            Some(hash) => Box::pin(self.task_caller(hash)).await,
            None => Ok(self.identity.caller(headers, unix_now())?),
        }
    }

    async fn task_caller(&self, hash: KeyHash) -> Result<Arc<Caller>, Refusal> {
        let keys = &self.identity.task_keys;
        let key = match keys.recall(&hash, Instant::now()) {
            Some(key) => Some(key),
            None => keys.look(&self.fleet, hash).await.map_err(|error| self.away(&error))?,
        };
        let key = key.ok_or_else(refusal::unknown_task_key)?;
        Ok(self.identity.of_task(&key, hash)?)
    }

    /// Whether a caller that was let in would be let in now, after it waited so long for its slot.
    pub(crate) async fn still(&self, caller: &Caller, waited: Duration) -> Result<(), Refusal> {
        self.identity.still(caller, unix_now())?;
        match &caller.claim {
            Some(_) if waited > A_MOMENT => Box::pin(self.task_still(caller)).await,
            _ => Ok(()),
        }
    }

    /// Whether an agent still has the task that it made a call for. Where the database is away, what it answered when the call
    /// was reserved for holds.
    async fn task_still(&self, caller: &Caller) -> Result<(), Refusal> {
        match self.identity.task_keys.look(&self.fleet, caller.secret).await {
            Ok(None) => Err(refusal::unknown_task_key()),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    fn away(&self, error: &FleetError) -> Refusal {
        let what = "task keys cannot be looked up";
        if let Some(left_out) = self.complaints.admit(what, tokio::time::Instant::now()) {
            tracing::error!(%error, left_out, "{what}");
        }
        refusal::store_unavailable()
    }
}
