//! Task keys, which are short-lived keys of agents that work on a task. The owners of task keys are in the fleet, not
//! in the directory.
//!
//! A lookup is cached for two seconds, so that not every call of an agent queries the database. A key that is cached
//! but no longer valid cannot spend anything, because each call needs a reservation, which the store grants only while
//! the claim is in force.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_fleet::{Fleet, FleetError, TaskKey};
use fairgate_store::KeyHash;
use http::HeaderMap;
use tokio::sync::Semaphore;

use super::{Caller, presented_secret};
use crate::app::App;
use crate::directory_sync;
use crate::refusal::{self, Refusal};
use fairgate_time::wall_clock;

/// Prefix of every task key.
const PREFIX: &[u8] = b"fgt-";
/// Time for which a cached lookup is valid.
const CACHE_TTL: Duration = Duration::from_secs(2);
/// The most keys in the cache.
const KNOWN_MAX: usize = 10_000;
/// Greatest number of lookups at once, so that unknown keys cannot keep the database busy.
const LOOKS_MAX: usize = 8;
/// Longest wait for a slot after which the claim of a call is not checked again. The reservation was granted just
/// before the wait, while the claim was in force.
const RECHECK_AFTER: Duration = Duration::from_millis(200);

/// Cache of recently used task keys.
#[derive(Debug)]
pub(super) struct TaskKeyCache {
    known: Mutex<HashMap<KeyHash, (Arc<TaskKey>, Instant)>>,
    looks: Semaphore,
}

impl Default for TaskKeyCache {
    fn default() -> Self {
        Self { known: Mutex::default(), looks: Semaphore::new(LOOKS_MAX) }
    }
}

impl TaskKeyCache {
    /// Returns the cached owner of a task key, if the lookup is not older than [`CACHE_TTL`].
    fn cached(&self, hash: &KeyHash, now: Instant) -> Option<Arc<TaskKey>> {
        let known = self.lock();
        let (key, found_at) = known.get(hash)?;
        (now.saturating_duration_since(*found_at) < CACHE_TTL).then(|| key.clone())
    }

    /// Looks up the owner of a key in the database. Unknown keys are not cached.
    async fn look_up(
        &self,
        fleet: &Fleet,
        hash: KeyHash,
    ) -> Result<Option<Arc<TaskKey>>, FleetError> {
        let _one_of_few = self.looks.acquire().await;
        let found = fleet.task_key(hash).await?.map(Arc::new);
        let now = Instant::now();
        let mut known = self.lock();
        match &found {
            Some(key) => {
                if known.len() >= KNOWN_MAX {
                    known.retain(|_, (_, at)| now.saturating_duration_since(*at) < CACHE_TTL);
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

/// Returns the hash of the presented task key, if the request has one.
fn sent_task_key(headers: &HeaderMap) -> Option<KeyHash> {
    let secret = presented_secret(headers).ok()?;
    secret.starts_with(PREFIX).then(|| KeyHash::of(secret))
}

impl App {
    /// Returns the caller of a request: a tenant with one of its keys, or an agent with its task key.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Refusal> {
        match sent_task_key(headers) {
            // Boxed to keep this future small: many requests wait, and few have a task key.
            Some(hash) => Box::pin(self.task_caller(hash)).await,
            None => self.identity.caller(headers, wall_clock::now()),
        }
    }

    async fn task_caller(&self, hash: KeyHash) -> Result<Arc<Caller>, Refusal> {
        let keys = &self.identity.task_keys;
        let key = match keys.cached(&hash, Instant::now()) {
            Some(key) => Some(key),
            None => keys.look_up(&self.fleet, hash).await.map_err(|error| self.away(&error))?,
        };
        let key = key.ok_or_else(refusal::unknown_task_key)?;
        if !self.identity.has_tenant(&key.tenant) {
            // The tenant was added at another server a moment ago. A claim of one of its tasks exists, so it is in the
            // database, and one refresh finds it. If the database is away, the caller is refused below.
            let _ = directory_sync::refresh(self).await;
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
        match self.identity.task_keys.look_up(&self.fleet, caller.secret).await {
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
