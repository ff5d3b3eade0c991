//! Remembers the tenant of each response or conversation id, and the tokens of history behind the id.
//!
//! An upstream stores answers under ids, and accepts an id in place of all the text behind it (`previous_response_id`).
//! The upstream knows only one client, the gateway. So that no tenant continues another tenant's answer, the gateway
//! remembers the owner of each id, in memory; after a restart all ids are unknown. The history behind an id is input
//! that the estimate could not know from the body alone.
//!
//! The number of ids per tenant is bounded, and the oldest are forgotten first. Ids also expire.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The ids that upstreams have returned to clients.
#[derive(Default)]
pub(crate) struct ResponseIdOwners(Mutex<ResponseIdTable>);

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
    /// The id belongs to the tenant that sends it, with `tokens` of history behind the id.
    Own {
        tokens: u64,
    },
    OtherTenant,
    Unknown,
}

/// Limits of the remembered ids: their number per tenant and their lifetime.
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

    /// Remembers an id that an upstream gave to a tenant. An unexpired id of another tenant keeps its owner, because an
    /// upstream may let clients choose ids. An id that the tenant already owns is renewed, with the current tokens
    /// behind it.
    pub(crate) fn remember(
        &self,
        id: &str,
        tenant: &Arc<str>,
        tokens: u64,
        keep: ResponseIdBounds,
        now: Instant,
    ) {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
