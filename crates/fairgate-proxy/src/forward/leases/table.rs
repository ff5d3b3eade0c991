//! The leases of all keys. Ended leases stay for a short time, so that repeated or late messages
//! get a correct response.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::lease::{LeaseChanges, LeaseHandle};
use crate::live_count::LiveCount;
use crate::refusal::{self, Refusal};

/// The most leases of one key that may be queued or granted at once.
const OPEN_PER_KEY_MAX: usize = 10_000;
/// Greatest number of ended leases of one key that are remembered, each for [`OVER_REMEMBERED`].
const OVER_PER_KEY_MAX: usize = 10_000;
const OVER_REMEMBERED: Duration = Duration::from_secs(120);
/// Greatest number of client programs of one key.
const CLIENTS_PER_KEY_MAX: usize = 1_000;

/// All leases of the gateway, by key.
#[derive(Default)]
pub(crate) struct LeaseTable {
    keys: Mutex<HashMap<Arc<str>, LeasesOfKey>>,
    /// Count of the running tasks of leases; a drain waits until the count is 0.
    pub(crate) running: LiveCount,
}

#[derive(Default)]
struct LeasesOfKey {
    by_id: HashMap<Box<str>, Arc<LeaseHandle>>,
    /// Lease ids by the clients' own ids.
    by_own_id: HashMap<Box<str>, Box<str>>,
    clients: HashMap<Box<str>, Arc<LeaseChanges>>,
    /// Ended leases, in the order in which they ended.
    ended: VecDeque<(Instant, Box<str>)>,
}

impl LeaseTable {
    /// Returns the key's lease with that id.
    pub(super) fn find(&self, key: &str, id: &str) -> Option<Arc<LeaseHandle>> {
        self.lock().get(key)?.by_id.get(id).cloned()
    }

    /// Returns the key's lease for which the client chose this id.
    pub(super) fn find_own(&self, key: &str, own_id: &str) -> Option<Arc<LeaseHandle>> {
        let keys = self.lock();
        let of_key = keys.get(key)?;
        of_key.by_id.get(of_key.by_own_id.get(own_id)?).cloned()
    }

    /// Returns the leases of a client program.
    pub(super) fn of_client(
        &self,
        key: &str,
        mailbox: &Arc<LeaseChanges>,
    ) -> Vec<Arc<LeaseHandle>> {
        let keys = self.lock();
        let all = keys.get(key).into_iter().flat_map(|of_key| of_key.by_id.values());
        all.filter(|lease| Arc::ptr_eq(&lease.mailbox, mailbox)).cloned().collect()
    }

    /// Returns the counter of a client program's changes; creates it if the program is new. Refuses when the key has
    /// too many programs.
    pub(super) fn mailbox(
        &self,
        key: &Arc<str>,
        client: &str,
    ) -> Result<Arc<LeaseChanges>, Refusal> {
        let mut keys = self.lock();
        let clients = &mut keys.entry(key.clone()).or_default().clients;
        if let Some(mailbox) = clients.get(client) {
            return Ok(mailbox.clone());
        }
        if clients.len() >= CLIENTS_PER_KEY_MAX {
            // Drops mailboxes that no request waits on and that have no lease.
            clients.retain(|_, mailbox| Arc::strong_count(mailbox) > 1);
        }
        if clients.len() >= CLIENTS_PER_KEY_MAX {
            return Err(refusal::too_many_leases("client programs", CLIENTS_PER_KEY_MAX));
        }
        Ok(clients.entry(client.into()).or_default().clone())
    }

    /// Adds a lease. If the key already has a lease with the same client-chosen id, returns that lease instead.
    pub(super) fn open(
        &self,
        key: &Arc<str>,
        lease: &Arc<LeaseHandle>,
    ) -> Result<Option<Arc<LeaseHandle>>, Refusal> {
        let mut keys = self.lock();
        let of_key = keys.entry(key.clone()).or_default();
        of_key.forget_old(Instant::now());
        if let Some(own_id) = &lease.own_id {
            let known = of_key.by_own_id.get(own_id).and_then(|id| of_key.by_id.get(id));
            if let Some(known) = known {
                return Ok(Some(known.clone()));
            }
        }
        if of_key.by_id.len() - of_key.ended.len() >= OPEN_PER_KEY_MAX {
            return Err(refusal::too_many_leases("leases", OPEN_PER_KEY_MAX));
        }
        of_key.by_id.insert(lease.id.clone(), lease.clone());
        if let Some(own_id) = &lease.own_id {
            of_key.by_own_id.insert(own_id.clone(), lease.id.clone());
        }
        Ok(None)
    }

    /// Marks a lease as ended. The lease is remembered for [`OVER_REMEMBERED`].
    pub(super) fn mark_ended(&self, key: &str, lease: &LeaseHandle) {
        let now = Instant::now();
        if let Some(of_key) = self.lock().get_mut(key) {
            of_key.ended.push_back((now, lease.id.clone()));
            of_key.forget_old(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, LeasesOfKey>> {
        // Every change is a few insertions, none of which panics.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeasesOfKey {
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, id)) = self.ended.front() {
            let is_old = now.saturating_duration_since(*at) > OVER_REMEMBERED;
            if !is_old && self.ended.len() <= OVER_PER_KEY_MAX {
                return;
            }
            if let Some(lease) = self.by_id.remove(id)
                && let Some(own_id) = &lease.own_id
            {
                self.by_own_id.remove(own_id);
            }
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: &str, own_id: Option<&str>, mailbox: &Arc<LeaseChanges>) -> Arc<LeaseHandle> {
        let ttl = Duration::from_secs(15);
        LeaseHandle::new(id.into(), own_id.map(Into::into), "pool".into(), ttl, mailbox.clone()).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_found_until_it_has_been_over_for_a_while() {
        let (leases, key): (_, Arc<str>) = (LeaseTable::default(), "k".into());
        let mailbox = leases.mailbox(&key, "c").unwrap();
        let first = lease("a", Some("mine"), &mailbox);
        assert!(leases.open(&key, &first).unwrap().is_none());
        let again = leases.open(&key, &lease("b", Some("mine"), &mailbox)).unwrap().unwrap();
        assert_eq!(again.id, first.id);
        assert!(leases.find("other", "a").is_none());
        assert_eq!(leases.of_client("k", &mailbox).len(), 1);
        leases.mark_ended("k", &first);
        assert!(leases.find("k", "a").is_some());
        tokio::time::advance(OVER_REMEMBERED + Duration::from_secs(1)).await;
        assert!(leases.open(&key, &lease("c", None, &mailbox)).unwrap().is_none());
        assert!(leases.find("k", "a").is_none() && leases.find_own("k", "mine").is_none());
    }

    #[tokio::test]
    async fn a_key_has_so_many_leases_and_clients_and_no_more() {
        let (leases, key): (_, Arc<str>) = (LeaseTable::default(), "k".into());
        let mailbox = leases.mailbox(&key, "c").unwrap();
        for number in 0..OPEN_PER_KEY_MAX {
            leases.open(&key, &lease(&number.to_string(), None, &mailbox)).unwrap();
        }
        let refused = leases.open(&key, &lease("one more", None, &mailbox)).err().unwrap();
        assert_eq!(refused.code.as_str(), "too_many_leases");
        leases.mark_ended("k", &leases.find("k", "0").unwrap());
        assert!(leases.open(&key, &lease("one more", None, &mailbox)).is_ok());
        let kept: Vec<_> =
            (1..CLIENTS_PER_KEY_MAX).map(|it| leases.mailbox(&key, &it.to_string())).collect();
        assert_eq!(leases.mailbox(&key, "x").err().unwrap().code.as_str(), "too_many_leases");
        drop(kept);
        assert!(leases.mailbox(&key, "x").is_ok());
    }
}
