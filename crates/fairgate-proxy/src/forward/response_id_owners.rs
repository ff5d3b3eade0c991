//! Remembers which tenant owns each response, conversation and item id, and how many tokens of
//! history the id stands for.
//!
//! An upstream stores answers under ids, and accepts an id in place of all the text that the id
//! stands for (`previous_response_id`, `item_reference`). To the upstream, all requests come from
//! one client: the gateway. The gateway therefore remembers the owner of each id, so that no tenant
//! can continue another tenant's answer. It also remembers the tokens of the history, because the
//! body does not contain them and the estimate needs them.
//!
//! Ids are kept in memory. A separate task ([`store_ids`]) writes them to the database a moment later, so that they are
//! known after a restart and to other gateways. An id that is not in memory is looked up in the database. While the
//! database does not answer, ids wait to be written, and an id that is not in memory is refused with 503.
//!
//! The number of ids per tenant is bounded, in memory and in the database, and the oldest of that tenant are forgotten
//! first. Ids also expire.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_store::{Store, StoreError, StoredResponseId, UnixMicros};
use tokio::sync::{Notify, Semaphore};

use super::data_plane::DataPlane;
use crate::phase::GatewayPhase;
use fairgate_time::wall_clock;

/// Maximum number of ids that wait to be written. Beyond it, the oldest are not written and stay in
/// memory only.
const PENDING_MAX: usize = 16_384;
/// Maximum number of ids that one transaction writes.
const BATCH_MAX: usize = 256;
/// Pause after a write that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Greatest number of look-ups at once, so that unknown ids cannot keep the database busy.
const LOOKS_MAX: usize = 8;

/// The ids that upstreams have returned to clients.
pub(crate) struct ResponseIdOwners {
    table: Mutex<ResponseIdTable>,
    /// Ids to be written to the database, oldest first.
    pending: Mutex<VecDeque<StoredResponseId>>,
    pending_notify: Notify,
    /// Held while ids are written. So a drain, which writes the last ids, also waits for those that the task writes.
    writes: tokio::sync::Mutex<()>,
    looks: Semaphore,
}

impl Default for ResponseIdOwners {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            pending: Mutex::default(),
            pending_notify: Notify::new(),
            writes: tokio::sync::Mutex::default(),
            looks: Semaphore::new(LOOKS_MAX),
        }
    }
}

#[derive(Default)]
struct ResponseIdTable {
    ids: HashMap<Arc<str>, ResponseIdEntry>,
    /// Ids of each tenant, oldest first.
    by_tenant: HashMap<Arc<str>, VecDeque<Arc<str>>>,
}

struct ResponseIdEntry {
    tenant: Arc<str>,
    tokens: u64,
    expires: Instant,
}

/// Owner of an id, as seen from the tenant that sends the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseIdOwner {
    /// The id belongs to the tenant that sends it, and stands for `tokens` of history.
    Own {
        tokens: u64,
    },
    OtherTenant,
    Unknown,
}

/// Limits of the remembered ids: their number per tenant, and the time for which each is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseIdBounds {
    pub(crate) per_tenant_max: usize,
    pub(crate) lifetime: Duration,
}

impl ResponseIdOwners {
    pub(crate) fn owner(&self, id: &str, tenant: &str, now: Instant) -> ResponseIdOwner {
        match self.lock().ids.get(id).filter(|entry| entry.expires > now) {
            None => ResponseIdOwner::Unknown,
            Some(entry) if *entry.tenant == *tenant => {
                ResponseIdOwner::Own { tokens: entry.tokens }
            }
            Some(_) => ResponseIdOwner::OtherTenant,
        }
    }

    /// Returns the owners of these ids, in the same order. Ids that are not in memory are looked up in the database.
    pub(crate) async fn owners(
        &self,
        store: &Store,
        ids: &[&str],
        tenant: &str,
        keep: ResponseIdBounds,
    ) -> Result<Vec<ResponseIdOwner>, StoreError> {
        let now = Instant::now();
        let mut owners: Vec<_> = ids.iter().map(|id| self.owner(id, tenant, now)).collect();
        let is_missing = |owner: &ResponseIdOwner| *owner == ResponseIdOwner::Unknown;
        if !owners.iter().any(is_missing) {
            return Ok(owners);
        }
        let missing = ids.iter().zip(&owners).filter(|(_, owner)| is_missing(owner));
        let missing = missing.map(|(id, _)| (*id).to_owned()).collect();
        let clock = wall_clock::now();
        let found = {
            // The semaphore is never closed.
            let _look = self.looks.acquire().await.map_err(|_| StoreError::Closed)?;
            store.response_ids(missing, clock).await?
        };
        for stored in found {
            let lifetime = stored.expires_at.0.saturating_sub(clock.0);
            let lifetime = Duration::from_micros(u64::try_from(lifetime).unwrap_or(0));
            let keep = ResponseIdBounds { lifetime: lifetime.min(keep.lifetime), ..keep };
            self.put(&stored.id, &stored.tenant.as_str().into(), stored.tokens, keep, now);
        }
        for (id, owner) in ids.iter().zip(&mut owners).filter(|(_, owner)| is_missing(owner)) {
            *owner = self.owner(id, tenant, now);
        }
        Ok(owners)
    }

    /// Remembers an id that an upstream gave to a tenant, and queues it for the database. Does nothing if the id
    /// belongs to another tenant.
    pub(crate) fn remember(
        &self,
        id: &str,
        tenant: &Arc<str>,
        tokens: u64,
        keep: ResponseIdBounds,
        now: Instant,
    ) {
        self.put(id, tenant, tokens, keep, now);
        if !matches!(self.owner(id, tenant, now), ResponseIdOwner::Own { .. }) {
            return;
        }
        let lifetime = i64::try_from(keep.lifetime.as_micros()).unwrap_or(i64::MAX);
        let stored = StoredResponseId {
            id: id.to_owned(),
            tenant: tenant.to_string(),
            tokens,
            expires_at: UnixMicros(wall_clock::now().0.saturating_add(lifetime)),
        };
        let mut pending = self.lock_pending();
        if pending.len() == PENDING_MAX {
            pending.pop_front();
        }
        pending.push_back(stored);
        drop(pending);
        self.pending_notify.notify_one();
    }

    /// Writes all ids that wait to be written, after those that are being written. Ids that could not be written wait
    /// again.
    pub(crate) async fn flush(
        &self,
        store: &Store,
        per_tenant_max: usize,
    ) -> Result<(), StoreError> {
        let _one_at_a_time = self.writes.lock().await;
        loop {
            let batch: Vec<StoredResponseId> = {
                let mut pending = self.lock_pending();
                let count = pending.len().min(BATCH_MAX);
                pending.drain(..count).collect()
            };
            if batch.is_empty() {
                return Ok(());
            }
            let written =
                store.put_response_ids(batch.clone(), per_tenant_max, wall_clock::now()).await;
            if let Err(error) = written {
                let mut pending = self.lock_pending();
                let room = PENDING_MAX.saturating_sub(pending.len());
                let again = batch.into_iter().rev().take(room);
                again.for_each(|stored| pending.push_front(stored));
                return Err(error);
            }
        }
    }

    fn lock_pending(&self) -> MutexGuard<'_, VecDeque<StoredResponseId>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers an id in memory. An id that belongs to another tenant and has not expired keeps
    /// its owner, because an upstream may let clients choose ids. An id that the tenant already
    /// owns gets a new lifetime and the new number of tokens.
    fn put(&self, id: &str, tenant: &Arc<str>, tokens: u64, keep: ResponseIdBounds, now: Instant) {
        let mut known = self.lock();
        let ResponseIdTable { ids, by_tenant } = &mut *known;
        let own = by_tenant.entry(tenant.clone()).or_default();
        while own.front().is_some_and(|oldest| ids.get(oldest).is_none_or(|e| e.expires <= now)) {
            own.pop_front().and_then(|oldest| ids.remove(&oldest));
        }
        let entry =
            ResponseIdEntry { tenant: tenant.clone(), tokens, expires: now + keep.lifetime };
        match ids.get_mut(id) {
            Some(before) if before.tenant == *tenant => *before = entry,
            Some(before) if before.expires > now => {}
            _ => {
                let id: Arc<str> = id.into();
                // The expired id of another tenant is also removed from that tenant's list.
                if let Some(before) = ids.insert(id.clone(), entry)
                    && let Some(list) = by_tenant.get_mut(&before.tenant)
                {
                    list.retain(|other| *other != id);
                }
                by_tenant.entry(tenant.clone()).or_default().push_back(id);
            }
        }
        if let Some(own) = by_tenant.get_mut(tenant) {
            while own.len() > keep.per_tenant_max {
                own.pop_front().and_then(|oldest| ids.remove(&oldest));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ResponseIdTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes remembered ids to the database, until the gateway closes. [`ResponseIdOwners::flush`] writes the last of them.
pub(crate) async fn store_ids(app: Arc<DataPlane>) {
    let mut phase = app.phase.watch();
    loop {
        tokio::select! {
            () = app.response_ids.pending_notify.notified() => {}
            _ = phase.wait_for(|phase| *phase == GatewayPhase::Closing) => return,
        }
        if let Err(error) = app.write_response_ids().await {
            let what = "response ids cannot be written";
            if let Some(left_out) = app.log_throttle.admit(what, tokio::time::Instant::now()) {
                tracing::error!(%error, left_out, "{what}; a restart would not know them");
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            app.response_ids.pending_notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: ResponseIdBounds =
        ResponseIdBounds { per_tenant_max: 2, lifetime: Duration::from_secs(10) };

    #[test]
    fn an_id_is_its_tenants_until_it_expires_or_newer_ones_need_its_room() {
        let (ids, now) = (ResponseIdOwners::default(), Instant::now());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        ids.remember("r1", &a, 7, KEEP, now);
        assert_eq!(ids.owner("r1", "a", now), ResponseIdOwner::Own { tokens: 7 });
        assert_eq!(ids.owner("r1", "b", now), ResponseIdOwner::OtherTenant);
        assert_eq!(ids.owner("r2", "a", now), ResponseIdOwner::Unknown);
        // Nobody takes an id from another; its own tenant renews it.
        ids.remember("r1", &b, 9, KEEP, now);
        ids.remember("r1", &a, 8, KEEP, now);
        assert_eq!(ids.owner("r1", "a", now), ResponseIdOwner::Own { tokens: 8 });
        ids.remember("r2", &a, 1, KEEP, now);
        ids.remember("r3", &a, 1, KEEP, now);
        assert_eq!(ids.owner("r1", "a", now), ResponseIdOwner::Unknown);
        assert_eq!(ids.owner("r3", "a", now), ResponseIdOwner::Own { tokens: 1 });
        let later = now + Duration::from_secs(10);
        assert_eq!(ids.owner("r3", "a", later), ResponseIdOwner::Unknown);
        ids.remember("r3", &b, 4, KEEP, later);
        assert_eq!(ids.owner("r3", "b", later), ResponseIdOwner::Own { tokens: 4 });
        ids.remember("r4", &a, 1, KEEP, later);
        let known = ids.lock();
        assert_eq!(
            (known.ids.len(), known.by_tenant[&a].len(), known.by_tenant[&b].len()),
            (2, 1, 1)
        );
    }
}
