//! Limits of each caller that are checked before a request is submitted: requests and tokens per
//! minute, and queued requests and bytes. All counts are in the memory of this process. So if
//! several gateways use one database, each of them allows the full limits.
//!
//! Nothing is counted for a tenant or key without these limits. When a limit is set, requests that
//! arrived before are not counted in it.

mod account;
mod bucket;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use fairgate_store::Directory;

use self::account::{LimitAccount, is_counted};
pub use self::account::{LimitOwner, LimitsLeft};
use crate::identity::Caller;
use crate::refusal::Refusal;

/// The counters of all tenants and keys with limits on rates or queues. There are no more counters than tenants and
/// keys in the directory.
#[derive(Debug, Default)]
pub struct CallerLimits {
    tenants: LimitAccounts,
    keys: LimitAccounts,
}

/// The counters of tenants by name, or of keys by id.
#[derive(Debug, Default)]
struct LimitAccounts(RwLock<HashMap<Arc<str>, Arc<LimitAccount>>>);

/// Guard that counts a request in the queues of its tenant and key. Dropped when the request is granted or refused, or
/// when its caller leaves.
#[must_use]
#[derive(Debug)]
pub struct QueuedCountGuard {
    accounts: [Option<Arc<LimitAccount>>; 2],
    bytes: u64,
}

impl CallerLimits {
    /// Creates the counters of a new process, all empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses a request with a body of `bytes` if a limit is reached now. Counts nothing. So
    /// [`count_in`](Self::count_in) may still refuse the request, if others are counted first.
    pub(crate) fn check(&self, caller: &Caller, bytes: u64, now: Instant) -> Result<(), Refusal> {
        let owners = [
            (LimitOwner::Tenant, &self.tenants, &caller.tenant_limits, &caller.tenant),
            (LimitOwner::Key, &self.keys, &caller.key_limits, &caller.key),
        ];
        for (owner, accounts, limits, name) in owners {
            if is_counted(limits) {
                let account = accounts.open(name, now);
                let looked = account.lock().check(limits, bytes, now);
                looked.map_err(|full| full.refusal(owner, name))?;
            }
        }
        Ok(())
    }

    /// Counts one request, `estimate` tokens, and `bytes` in the queue, against the limits of the caller's tenant and
    /// key. If a limit is reached, refuses the request and counts nothing. Each bucket holds the limit of one minute
    /// and fills continuously.
    ///
    /// A request passes if the requests bucket holds at least 1 and the tokens bucket is above 0. The request may take
    /// the tokens bucket below 0; the next one passes once the bucket is above 0 again. So a request larger than the
    /// limit of one minute is delayed, not refused forever. Tokens that a request is charged beyond its estimate are
    /// taken from the bucket when the request is settled.
    pub(crate) fn count_in(
        &self,
        caller: &Caller,
        bytes: u64,
        estimate: u64,
        now: Instant,
    ) -> Result<QueuedCountGuard, Refusal> {
        let (tenant, key) = (&caller.tenant_limits, &caller.key_limits);
        let accounts = [
            is_counted(tenant).then(|| self.tenants.open(&caller.tenant, now)),
            is_counted(key).then(|| self.keys.open(&caller.key, now)),
        ];
        let owners =
            [(LimitOwner::Tenant, tenant, &caller.tenant), (LimitOwner::Key, key, &caller.key)];
        // Both are locked, tenant first, until both have accepted. A refused request is counted in
        // neither.
        let mut books = accounts.each_ref().map(|account| account.as_ref().map(|a| a.lock()));
        for (book, (owner, limits, name)) in books.iter_mut().zip(owners) {
            if let Some(book) = book {
                book.check(limits, bytes, now).map_err(|full| full.refusal(owner, name))?;
            }
        }
        for (book, (_, limits, _)) in books.iter_mut().zip(owners) {
            if let Some(book) = book {
                book.take(limits, bytes, estimate);
            }
        }
        drop(books);
        Ok(QueuedCountGuard { accounts, bytes })
    }

    /// Corrects the token buckets by the difference between `estimate`, which `count_in` took, and
    /// `charged`, which was really used. `caller` must be the value that `count_in` got, because
    /// its limits decided whether tokens were taken.
    pub fn settle(&self, caller: &Caller, estimate: u64, charged: u64, now: Instant) {
        let owners = [
            (&self.tenants, &caller.tenant, caller.tenant_limits.tokens_per_minute),
            (&self.keys, &caller.key, caller.key_limits.tokens_per_minute),
        ];
        for (accounts, name, rate) in owners {
            // A missing account was removed with its tenant or key.
            if let (Some(rate), Some(account)) = (rate, accounts.find(name)) {
                account.lock().settle(rate, estimate, charged, now);
            }
        }
    }

    /// Returns the amounts that are left of `limits` for the tenant of this name, or for the key of this id.
    pub fn left(
        &self,
        owner: LimitOwner,
        name: &str,
        limits: &fairgate_store::DirectoryLimits,
        now: Instant,
    ) -> LimitsLeft {
        let accounts = match owner {
            LimitOwner::Tenant => &self.tenants,
            LimitOwner::Key => &self.keys,
        };
        match accounts.find(name) {
            Some(account) => account.lock().left(limits, now),
            None => LimitsLeft::untouched(limits),
        }
    }

    /// Drops the counts of tenants and keys that are no longer in the directory.
    pub fn keep_only(&self, directory: &Directory) {
        self.tenants.keep_only(directory.tenants.iter().map(|tenant| tenant.name.as_str()));
        self.keys.keep_only(directory.keys.iter().map(|key| key.id.as_str()));
    }
}

impl LimitAccounts {
    fn find(&self, name: &str) -> Option<Arc<LimitAccount>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn open(&self, name: &Arc<str>, now: Instant) -> Arc<LimitAccount> {
        if let Some(account) = self.find(name) {
            return account;
        }
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        accounts.entry(name.clone()).or_insert_with(|| Arc::new(LimitAccount::new(now))).clone()
    }

    fn keep_only<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let names: HashSet<&str> = names.collect();
        let mut accounts = self.0.write().unwrap_or_else(PoisonError::into_inner);
        accounts.retain(|name, _| names.contains(&**name));
    }
}

impl Drop for QueuedCountGuard {
    fn drop(&mut self) {
        for account in self.accounts.iter().flatten() {
            account.lock().leave(self.bytes, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
