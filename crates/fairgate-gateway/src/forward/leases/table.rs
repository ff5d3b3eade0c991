//! The leases of all keys: those that run, and those that ended a moment ago, so that a word that is said twice or too
//! late is answered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::lease::{Lease, Mailbox};
use crate::in_flight::InFlight;
use crate::refusal::{self, Refusal};

/// How many leases of a key may wait or be held at once.
const OPEN_PER_KEY_MAX: usize = 10_000;
/// How many that are over are remembered of a key, and for how long.
const OVER_PER_KEY_MAX: usize = 10_000;
const OVER_REMEMBERED: Duration = Duration::from_secs(120);
/// How many client programs of a key are told apart.
const CLIENTS_PER_KEY_MAX: usize = 1_000;

/// All leases.
#[derive(Default)]
pub(crate) struct Leases {
    keys: Mutex<HashMap<Arc<str>, OfKey>>,
    /// Tasks of leases.
    pub(crate) running: InFlight,
}

#[derive(Default)]
struct OfKey {
    by_id: HashMap<Box<str>, Arc<Lease>>,
    /// Ids by what the clients call their leases.
    by_own_id: HashMap<Box<str>, Box<str>>,
    clients: HashMap<Box<str>, Arc<Mailbox>>,
    /// Those that are over, in the order in which they ended.
    over: VecDeque<(Instant, Box<str>)>,
}

impl Leases {
    /// The lease of that id.
    pub(super) fn find(&self, key: &str, id: &str) -> Option<Arc<Lease>> {
        self.lock().get(key)?.by_id.get(id).cloned()
    }

    /// The lease that a client calls so.
    pub(super) fn find_own(&self, key: &str, own_id: &str) -> Option<Arc<Lease>> {
        let keys = self.lock();
        let of_key = keys.get(key)?;
        of_key.by_id.get(of_key.by_own_id.get(own_id)?).cloned()
    }

    /// The leases of a client program.
    pub(super) fn of_client(&self, key: &str, mailbox: &Arc<Mailbox>) -> Vec<Arc<Lease>> {
        let keys = self.lock();
        let all = keys.get(key).into_iter().flat_map(|of_key| of_key.by_id.values());
        all.filter(|lease| Arc::ptr_eq(&lease.mailbox, mailbox)).cloned().collect()
    }

    /// Where the changes of a client program's leases are noticed.
    pub(super) fn mailbox(&self, key: &Arc<str>, client: &str) -> Result<Arc<Mailbox>, Refusal> {
        let mut keys = self.lock();
        let clients = &mut keys.entry(key.clone()).or_default().clients;
        if let Some(mailbox) = clients.get(client) {
            return Ok(mailbox.clone());
        }
        if clients.len() >= CLIENTS_PER_KEY_MAX {
            // Those of which nobody asks and which have no lease.
            clients.retain(|_, mailbox| Arc::strong_count(mailbox) > 1);
        }
        if clients.len() >= CLIENTS_PER_KEY_MAX {
            return Err(refusal::too_many_leases("client programs", CLIENTS_PER_KEY_MAX));
        }
        Ok(clients.entry(client.into()).or_default().clone())
    }

    /// Takes a lease in. Where its client has one of that name already, that one is given back instead.
    pub(super) fn open(
        &self,
        key: &Arc<str>,
        lease: &Arc<Lease>,
    ) -> Result<Option<Arc<Lease>>, Refusal> {
        let mut keys = self.lock();
        let of_key = keys.entry(key.clone()).or_default();
        of_key.forget_old(Instant::now());
        if let Some(own_id) = &lease.own_id {
            let known = of_key.by_own_id.get(own_id).and_then(|id| of_key.by_id.get(id));
            if let Some(known) = known {
                return Ok(Some(known.clone()));
            }
        }
        if of_key.by_id.len() - of_key.over.len() >= OPEN_PER_KEY_MAX {
            return Err(refusal::too_many_leases("leases", OPEN_PER_KEY_MAX));
        }
        of_key.by_id.insert(lease.id.clone(), lease.clone());
        if let Some(own_id) = &lease.own_id {
            of_key.by_own_id.insert(own_id.clone(), lease.id.clone());
        }
        Ok(None)
    }

    /// A lease is over: it is remembered for a while.
    pub(super) fn ended(&self, key: &str, lease: &Lease) {
        let now = Instant::now();
        if let Some(of_key) = self.lock().get_mut(key) {
            of_key.over.push_back((now, lease.id.clone()));
            of_key.forget_old(now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, OfKey>> {
        // Every change is a few insertions, none of which panics.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfKey {
    fn forget_old(&mut self, now: Instant) {
        while let Some((at, id)) = self.over.front() {
            let is_old = now.saturating_duration_since(*at) > OVER_REMEMBERED;
            if !is_old && self.over.len() <= OVER_PER_KEY_MAX {
                return;
            }
            if let Some(lease) = self.by_id.remove(id)
                && let Some(own_id) = &lease.own_id
            {
                self.by_own_id.remove(own_id);
            }
            self.over.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: &str, own_id: Option<&str>, mailbox: &Arc<Mailbox>) -> Arc<Lease> {
        let ttl = Duration::from_secs(15);
        Lease::new(id.into(), own_id.map(Into::into), "pool".into(), ttl, mailbox.clone()).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_found_until_it_has_been_over_for_a_while() {
        let (leases, key): (_, Arc<str>) = (Leases::default(), "k".into());
        let mailbox = leases.mailbox(&key, "c").unwrap();
        let first = lease("a", Some("mine"), &mailbox);
        assert!(leases.open(&key, &first).unwrap().is_none());
        let again = leases.open(&key, &lease("b", Some("mine"), &mailbox)).unwrap().unwrap();
        assert_eq!(again.id, first.id);
        assert!(leases.find("other", "a").is_none());
        assert_eq!(leases.of_client("k", &mailbox).len(), 1);
        leases.ended("k", &first);
        assert!(leases.find("k", "a").is_some());
        tokio::time::advance(OVER_REMEMBERED + Duration::from_secs(1)).await;
        assert!(leases.open(&key, &lease("c", None, &mailbox)).unwrap().is_none());
        assert!(leases.find("k", "a").is_none() && leases.find_own("k", "mine").is_none());
    }

    #[tokio::test]
    async fn a_key_has_so_many_leases_and_clients_and_no_more() {
        let (leases, key): (_, Arc<str>) = (Leases::default(), "k".into());
        let mailbox = leases.mailbox(&key, "c").unwrap();
        for number in 0..OPEN_PER_KEY_MAX {
            leases.open(&key, &lease(&number.to_string(), None, &mailbox)).unwrap();
        }
        let refused = leases.open(&key, &lease("one more", None, &mailbox)).err().unwrap();
        assert_eq!(refused.problem.code, "too_many_leases");
        leases.ended("k", &leases.find("k", "0").unwrap());
        assert!(leases.open(&key, &lease("one more", None, &mailbox)).is_ok());
        let kept: Vec<_> =
            (1..CLIENTS_PER_KEY_MAX).map(|it| leases.mailbox(&key, &it.to_string())).collect();
        assert_eq!(leases.mailbox(&key, "x").err().unwrap().problem.code, "too_many_leases");
        drop(kept);
        assert!(leases.mailbox(&key, "x").is_ok());
    }
}
