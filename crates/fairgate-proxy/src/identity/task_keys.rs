//! Task keys, which are short-lived keys of agents that work on a task. The fleet, and not the
//! directory, knows their owners.
//!
//! A lookup is cached for two seconds, so that not every call of an agent queries the database. A
//! cached key that is no longer valid cannot spend anything: each call needs a reservation, and the
//! store grants reservations only while the claim is in force.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_fleet::{FleetError, TaskKey};
use fairgate_store::KeyHash;
use tokio::sync::Semaphore;

use crate::fleet_calls::FleetCalls;

/// Prefix of every task key.
const PREFIX: &[u8] = b"fgt-";
/// Time for which a cached lookup is valid.
const CACHE_TTL: Duration = Duration::from_secs(2);
/// Maximum number of keys in the cache.
const KNOWN_MAX: usize = 10_000;
/// Maximum number of lookups at once, so that unknown keys cannot keep the database busy.
const LOOKS_MAX: usize = 8;

/// Cache of recently used task keys.
#[derive(Debug)]
pub(crate) struct TaskKeyCache {
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
    pub(crate) fn cached(&self, hash: &KeyHash, now: Instant) -> Option<Arc<TaskKey>> {
        let known = self.lock();
        let (key, found_at) = known.get(hash)?;
        (now.saturating_duration_since(*found_at) < CACHE_TTL).then(|| key.clone())
    }

    /// Looks up the owner of a key in the database. Unknown keys are not cached.
    pub(crate) async fn look_up(
        &self,
        fleet: &dyn FleetCalls,
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

/// Returns true if a presented secret is a task key.
pub(crate) fn is_task_key(secret: &[u8]) -> bool {
    secret.starts_with(PREFIX)
}
