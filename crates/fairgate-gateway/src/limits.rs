//! How much each caller may ask, before anything is submitted: requests and tokens a minute, and how much it may have
//! waiting. All in memory, for this process: several gateways on one database each allow this much.
//!
//! A tenant or key that has none of these limits costs nothing here. Limits count from when they were set.

mod account;
mod bucket;
mod pace;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fairgate_dialect::Problem;
use fairgate_store::Directory;

use self::account::{Account, is_counted};
pub use self::account::{Left, Owner};
use crate::identity::Caller;

/// The counters of all tenants and keys; bounded by the directory.
#[derive(Debug, Default)]
pub struct Limits {
    tenants: Accounts,
    keys: Accounts,
}

/// The accounts of tenants, or of keys, by name.
#[derive(Debug, Default)]
struct Accounts(RwLock<HashMap<Arc<str>, Arc<Account>>>);

/// A request that waits: counted in its tenant's and key's queue until this is dropped (when it is granted, refused, or
/// its caller leaves).
#[must_use]
#[derive(Debug)]
pub struct Queued {
    accounts: [Option<Arc<Account>>; 2],
    bytes: u64,
}

/// Why a limit refuses, and when to come back.
#[derive(Debug)]
pub struct Limited {
    /// 429 `rate_limited_requests`, `rate_limited_tokens`, `queue_requests_exceeded`, `queue_bytes_exceeded`; the message
    /// names whose limit, how full it is and how much it holds.
    pub problem: Problem,
    /// When to come back. A day at most.
    pub retry_after: Duration,
}

impl Limits {
    /// No counts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a request of so many bytes could come in now. Counts nothing: between this and [`enter`](Self::enter) others
    /// may come.
    pub fn look(&self, caller: &Caller, bytes: u64, now: Instant) -> Result<(), Limited> {
        let owners = [
            (Owner::Tenant, &self.tenants, &caller.tenant_limits, &caller.tenant),
            (Owner::Key, &self.keys, &caller.key_limits, &caller.key),
        ];
        for (owner, accounts, limits, name) in owners {
            if is_counted(limits) {
                let account = accounts.open(name, now);
                let looked = account.lock().check(limits, bytes, now);
                looked.map_err(|full| full.limited(owner, name))?;
            }
        }
        Ok(())
    }

    /// Counts a request in: one request, `estimate` tokens, and `bytes` that wait. Refuses and counts nothing where a
    /// limit is reached. Token buckets hold one minute's worth and fill continuously.
    ///
    /// A request needs one request's worth in its requests bucket, and *anything* in its tokens bucket: it may take
    /// that below zero, and the next waits until it is above. So a request larger than a minute's worth is late, not
    /// refused for ever. What requests in flight are charged beyond their estimates comes off the next minutes.
    pub fn enter(
        &self,
        caller: &Caller,
        bytes: u64,
        estimate: u64,
        now: Instant,
    ) -> Result<Queued, Limited> {
        let (tenant, key) = (&caller.tenant_limits, &caller.key_limits);
        let accounts = [
            is_counted(tenant).then(|| self.tenants.open(&caller.tenant, now)),
            is_counted(key).then(|| self.keys.open(&caller.key, now)),
        ];
        let owners = [(Owner::Tenant, tenant, &caller.tenant), (Owner::Key, key, &caller.key)];
        // Both are locked, tenant first, until both have said yes: who is refused is counted nowhere.
        let mut books = accounts.each_ref().map(|account| account.as_ref().map(|a| a.lock()));
        for (book, (owner, limits, name)) in books.iter_mut().zip(owners) {
            if let Some(book) = book {
                book.check(limits, bytes, now).map_err(|full| full.limited(owner, name))?;
            }
        }
        for (book, (_, limits, _)) in books.iter_mut().zip(owners) {
            if let Some(book) = book {
                book.take(limits, bytes, estimate);
            }
        }
        drop(books);
        Ok(Queued { accounts, bytes })
    }

    /// Corrects the tokens of a minute: `estimate` was taken at [`enter`](Self::enter), `charged` was used. To be called
    /// with the same `caller`, whose limits say whether anything was taken.
    pub fn settle(&self, caller: &Caller, estimate: u64, charged: u64, now: Instant) {
        let owners = [
            (&self.tenants, &caller.tenant, caller.tenant_limits.tokens_per_minute),
            (&self.keys, &caller.key, caller.key_limits.tokens_per_minute),
        ];
        for (accounts, name, rate) in owners {
            // An account that is gone went with its tenant or key.
            if let (Some(rate), Some(account)) = (rate, accounts.find(name)) {
                account.lock().settle(rate, estimate, charged, now);
            }
        }
    }

    /// How a tenant or key stands against these limits of its.
    pub fn left(
        &self,
        owner: Owner,
        name: &str,
        limits: &fairgate_store::Limits,
        now: Instant,
    ) -> Left {
        let accounts = match owner {
            Owner::Tenant => &self.tenants,
            Owner::Key => &self.keys,
        };
        match accounts.find(name) {
            Some(account) => account.lock().left(limits, now),
            None => Left::untouched(limits),
        }
    }

    /// Forgets the counts of tenants and keys that are not in the directory any more.
    pub fn keep_only(&self, directory: &Directory) {
        self.tenants.keep_only(directory.tenants.iter().map(|tenant| tenant.name.as_str()));
        self.keys.keep_only(directory.keys.iter().map(|key| key.id.as_str()));
    }
}

impl Accounts {
    fn find(&self, name: &str) -> Option<Arc<Account>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn open(&self, name: &Arc<str>, now: Instant) -> Arc<Account> {
        if let Some(account) = self.find(name) {
            return account;
        }
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        accounts.entry(name.clone()).or_insert_with(|| Arc::new(Account::new(now))).clone()
    }

    fn keep_only<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let names: HashSet<&str> = names.collect();
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        accounts.retain(|name, _| names.contains(&**name));
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        for account in self.accounts.iter().flatten() {
            account.lock().leave(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
