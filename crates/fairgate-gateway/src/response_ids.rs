//! Which tenant an id of a response or a conversation belongs to, and how many tokens are behind it.
//!
//! An upstream keeps answers under ids and takes an id for all the text that is behind it (`previous_response_id`). It knows
//! one client only, the gateway. So that no tenant goes on from another's answer, the ids that were given out are remembered
//! here, in memory: after a restart they are unknown. What is behind an id is input, which the estimate could not know from
//! the body alone.
//!
//! Each tenant has so many ids at most, and they expire; the oldest go first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The ids that were given out.
#[derive(Default)]
pub(crate) struct ResponseIds(Mutex<Known>);

#[derive(Default)]
struct Known {
    ids: HashMap<Arc<str>, Entry>,
    /// Every tenant's ids, oldest first.
    by_tenant: HashMap<Arc<str>, VecDeque<Arc<str>>>,
}

struct Entry {
    tenant: Arc<str>,
    tokens: u64,
    expires: Instant,
}

/// Whose an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The tenant's own, with so many tokens behind it.
    Own {
        tokens: u64,
    },
    Anothers,
    Unknown,
}

/// How many ids are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub(crate) per_tenant_max: usize,
    pub(crate) lifetime: Duration,
}

impl ResponseIds {
    pub(crate) fn whose(&self, id: &str, tenant: &str, now: Instant) -> Whose {
        match self.lock().ids.get(id).filter(|entry| entry.expires > now) {
            None => Whose::Unknown,
            Some(entry) if *entry.tenant == *tenant => Whose::Own { tokens: entry.tokens },
            Some(_) => Whose::Anothers,
        }
    }

    /// Remembers an id that a tenant was given. One that is another's stays that one's: an upstream may let clients choose
    /// ids. The tenant's own is renewed, with what is behind it now.
    pub(crate) fn remember(
        &self,
        id: &str,
        tenant: &Arc<str>,
        tokens: u64,
        keep: Keep,
        now: Instant,
    ) {
        let mut known = self.lock();
        let Known { ids, by_tenant } = &mut *known;
        let own = by_tenant.entry(tenant.clone()).or_default();
        while own.front().is_some_and(|oldest| ids.get(oldest).is_none_or(|e| e.expires <= now)) {
            own.pop_front().and_then(|oldest| ids.remove(&oldest));
        }
        let entry = Entry { tenant: tenant.clone(), tokens, expires: now + keep.lifetime };
        match ids.get_mut(id) {
            Some(before) if before.tenant == *tenant => *before = entry,
            Some(before) if before.expires > now => {}
            _ => {
                let id: Arc<str> = id.into();
                // Another tenant's that has expired goes from that one's list, too.
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

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Keep = Keep { per_tenant_max: 2, lifetime: Duration::from_secs(10) };

    #[test]
    fn an_id_is_its_tenants_until_it_expires_or_newer_ones_need_its_room() {
        let (ids, now) = (ResponseIds::default(), Instant::now());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        ids.remember("r1", &a, 7, KEEP, now);
        assert_eq!(ids.whose("r1", "a", now), Whose::Own { tokens: 7 });
        assert_eq!(ids.whose("r1", "b", now), Whose::Anothers);
        assert_eq!(ids.whose("r2", "a", now), Whose::Unknown);
        // Nobody takes an id from another; its own tenant renews it.
        ids.remember("r1", &b, 9, KEEP, now);
        ids.remember("r1", &a, 8, KEEP, now);
        assert_eq!(ids.whose("r1", "a", now), Whose::Own { tokens: 8 });
        ids.remember("r2", &a, 1, KEEP, now);
        ids.remember("r3", &a, 1, KEEP, now);
        assert_eq!(ids.whose("r1", "a", now), Whose::Unknown);
        assert_eq!(ids.whose("r3", "a", now), Whose::Own { tokens: 1 });
        let later = now + Duration::from_secs(10);
        assert_eq!(ids.whose("r3", "a", later), Whose::Unknown);
        ids.remember("r3", &b, 4, KEEP, later);
        assert_eq!(ids.whose("r3", "b", later), Whose::Own { tokens: 4 });
        ids.remember("r4", &a, 1, KEEP, later);
        let known = ids.lock();
        assert_eq!(
            (known.ids.len(), known.by_tenant[&a].len(), known.by_tenant[&b].len()),
            (2, 1, 1)
        );
    }
}
