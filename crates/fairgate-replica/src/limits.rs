//! Limits of tenants and keys, one for the whole cluster: requests and tokens per minute, and queued requests and
//! bytes.
//!
//! A submit is checked when it is applied, before its pool gets it. A member may also check it
//! earlier against its own replica ([`ClusterLimits::check`]) and refuse it there, so that a flood
//! of refusals adds no records to the log. Other submits may be applied between that check and the
//! submit's position in the log, so the check at that position decides.
//!
//! Only tenants and keys with limits have counts. The directory states the limits, and thereby
//! bounds their number.

mod minute_bucket;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::minute_bucket::ClusterMinuteBucket;
use crate::units::ClusterMicros;

/// The kind of owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallerKind {
    /// A tenant. Its limits count all its keys together.
    Tenant,
    /// A key. Its limits apply in addition to those of its tenant.
    Key,
}

/// Limits of one tenant or key. `None` sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerLimit {
    /// Maximum number of queued requests at once, in all pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_requests: Option<u64>,
    /// Maximum total size of the bodies of queued requests, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_bytes: Option<u64>,
    /// Maximum number of requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Maximum number of tokens per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
}

/// A limit that a request has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRefusal {
    /// Kind of the limit's owner: tenant or key.
    pub owner: CallerKind,
    /// Name of the tenant, or id of the key.
    pub name: Arc<str>,
    /// The limit, with the numbers for the error message.
    pub reached: ClusterLimitReached,
}

/// The reached limit, with the limit's value and its current use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterLimitReached {
    /// The requests of the minute are used up.
    RequestsPerMinute {
        /// The limit in requests per minute.
        limit: u64,
        /// Time until the next request is accepted.
        retry_after: ClusterMicros,
    },
    /// The tokens of the minute are used up.
    TokensPerMinute {
        /// The limit in tokens per minute.
        limit: u64,
        /// Number of tokens that were used beyond the limit, rounded up.
        over: u64,
        /// Time until the next request is accepted.
        retry_after: ClusterMicros,
    },
    /// The number of queued requests has reached the limit.
    QueuedRequests {
        /// The limit in requests.
        limit: u64,
        /// Number of requests that are queued already.
        waiting: u64,
    },
    /// With this request, the bodies of the queued requests would be too large.
    QueuedBytes {
        /// The limit in bytes.
        limit: u64,
        /// Number of bytes that are queued already.
        waiting: u64,
    },
}

impl ClusterLimitReached {
    /// Returns the stable code of this limit that clients see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::RequestsPerMinute { .. } => "rate_limited_requests",
            Self::TokensPerMinute { .. } => "rate_limited_tokens",
            Self::QueuedRequests { .. } => "queue_requests_exceeded",
            Self::QueuedBytes { .. } => "queue_bytes_exceeded",
        }
    }
}

/// The tenant and the key of a request, and the amounts that the request adds to their counts.
#[derive(Clone, Copy, Debug)]
pub struct LimitedRequest<'a> {
    /// Name of the tenant; `None` if the request has none.
    pub tenant: Option<&'a str>,
    /// Id of the key; `None` if the request has none.
    pub key: Option<&'a str>,
    /// Size of the body in bytes.
    pub bytes: u64,
    /// Tokens that the request is expected to use.
    pub estimate: u64,
}

/// The counts of one request, and the accounts in which they are. [`ClusterLimits::leave_queue`]
/// must be called once for it, and [`ClusterLimits::settle`] at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountedSubmit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Arc<str>>,
    bytes: u64,
    estimate: u64,
}

/// The limits of all tenants and keys that have limits, with their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLimits {
    tenants: BTreeMap<Arc<str>, CallerAccount>,
    keys: BTreeMap<Arc<str>, CallerAccount>,
}

/// The limits and the counts of one tenant or key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerAccount {
    /// The limits in force.
    pub limit: CallerLimit,
    /// Number of queued requests, in all pools.
    pub queued_requests: u64,
    /// Size of the bodies of the queued requests, in bytes.
    pub queued_bytes: u64,
    /// Bucket of the requests per minute; full if there is no such limit.
    pub requests: ClusterMinuteBucket,
    /// Bucket of the tokens per minute; full if there is no such limit.
    pub tokens: ClusterMinuteBucket,
}

impl ClusterLimits {
    /// Sets the limits of a tenant or key. If `limit` sets no limit, the account is removed with
    /// its counts.
    pub(crate) fn set_limit(
        &mut self,
        owner: CallerKind,
        name: &Arc<str>,
        limit: CallerLimit,
        now: ClusterMicros,
    ) {
        let accounts = self.accounts_mut(owner);
        if limit == CallerLimit::default() {
            accounts.remove(name);
            return;
        }
        match accounts.get_mut(name) {
            Some(account) => account.change_limit(limit, now),
            None => {
                accounts.insert(name.clone(), CallerAccount::new(limit, now));
            }
        }
    }

    /// Returns the limits and counts of a tenant or key; `None` if it has no limits.
    pub fn account(&self, owner: CallerKind, name: &str) -> Option<&CallerAccount> {
        match owner {
            CallerKind::Tenant => self.tenants.get(name),
            CallerKind::Key => self.keys.get(name),
        }
    }

    /// Returns the accounts of all tenants and keys that have limits: tenants first, each kind
    /// sorted by name.
    pub fn all(&self) -> impl Iterator<Item = (CallerKind, &Arc<str>, &CallerAccount)> {
        let tenants = self.tenants.iter().map(|(name, it)| (CallerKind::Tenant, name, it));
        tenants.chain(self.keys.iter().map(|(name, it)| (CallerKind::Key, name, it)))
    }

    /// Checks a request against the limits of its tenant and then of its key. Counts nothing.
    pub fn check(
        &self,
        request: &LimitedRequest<'_>,
        now: ClusterMicros,
    ) -> Result<(), LimitRefusal> {
        let callers = [(CallerKind::Tenant, request.tenant), (CallerKind::Key, request.key)];
        for (owner, name) in callers {
            let Some(name) = name else { continue };
            let Some(account) = self.account(owner, name) else { continue };
            account.check(request.bytes, now).map_err(|reached| LimitRefusal {
                owner,
                name: name.into(),
                reached,
            })?;
        }
        Ok(())
    }

    /// Counts a request that passed [`check`](Self::check) at the same `now`. Returns `None` if neither its tenant nor
    /// its key has limits.
    pub(crate) fn count_in(
        &mut self,
        request: &LimitedRequest<'_>,
        now: ClusterMicros,
    ) -> Option<CountedSubmit> {
        let LimitedRequest { bytes, estimate, .. } = *request;
        let mut take = |owner, name: Option<&str>| {
            let accounts = self.accounts_mut(owner);
            let name = accounts.get_key_value(name?)?.0.clone();
            accounts.get_mut(&name)?.take(bytes, estimate, now);
            Some(name)
        };
        let tenant = take(CallerKind::Tenant, request.tenant);
        let key = take(CallerKind::Key, request.key);
        let is_counted = tenant.is_some() || key.is_some();
        is_counted.then_some(CountedSubmit { tenant, key, bytes, estimate })
    }

    /// Removes a request from the counts of queued requests, because it was granted or has left.
    pub(crate) fn leave_queue(&mut self, counted: &CountedSubmit) {
        self.each_of(counted, |account| {
            account.queued_requests = account.queued_requests.saturating_sub(1);
            account.queued_bytes = account.queued_bytes.saturating_sub(counted.bytes);
        });
    }

    /// Corrects the bucket of tokens per minute by `charged` minus the estimate of the request.
    pub(crate) fn settle(&mut self, counted: &CountedSubmit, charged: u64, now: ClusterMicros) {
        self.each_of(counted, |account| {
            if let Some(rate) = account.limit.tokens_per_minute {
                let difference = i128::from(charged) - i128::from(counted.estimate);
                account.tokens.take(rate, difference, now);
            }
        });
    }

    fn each_of(&mut self, counted: &CountedSubmit, mut change: impl FnMut(&mut CallerAccount)) {
        // A missing account was removed with its tenant or key, or because it no longer has limits.
        let tenant = counted.tenant.as_ref().and_then(|name| self.tenants.get_mut(name));
        let key = counted.key.as_ref().and_then(|name| self.keys.get_mut(name));
        tenant.into_iter().chain(key).for_each(&mut change);
    }

    fn accounts_mut(&mut self, owner: CallerKind) -> &mut BTreeMap<Arc<str>, CallerAccount> {
        match owner {
            CallerKind::Tenant => &mut self.tenants,
            CallerKind::Key => &mut self.keys,
        }
    }
}

impl CallerAccount {
    fn new(limit: CallerLimit, now: ClusterMicros) -> Self {
        Self {
            limit,
            queued_requests: 0,
            queued_bytes: 0,
            requests: ClusterMinuteBucket::new(now),
            tokens: ClusterMinuteBucket::new(now),
        }
    }

    fn change_limit(&mut self, limit: CallerLimit, now: ClusterMicros) {
        self.requests.change_rate(self.limit.requests_per_minute, limit.requests_per_minute, now);
        self.tokens.change_rate(self.limit.tokens_per_minute, limit.tokens_per_minute, now);
        self.limit = limit;
    }

    fn check(&self, bytes: u64, now: ClusterMicros) -> Result<(), ClusterLimitReached> {
        if let Some(limit) = self.limit.requests_per_minute {
            self.requests.need_one(limit, now).map_err(|retry_after| {
                ClusterLimitReached::RequestsPerMinute { limit, retry_after }
            })?;
        }
        if let Some(limit) = self.limit.tokens_per_minute {
            self.tokens.need_any(limit, now).map_err(|retry_after| {
                let over = self.tokens.wholes(limit, now).unsigned_abs();
                ClusterLimitReached::TokensPerMinute { limit, over, retry_after }
            })?;
        }
        let waiting = self.queued_requests;
        if let Some(limit) = self.limit.queued_requests.filter(|limit| waiting >= *limit) {
            return Err(ClusterLimitReached::QueuedRequests { limit, waiting });
        }
        let waiting = self.queued_bytes;
        let after = waiting.saturating_add(bytes);
        if let Some(limit) = self.limit.queued_bytes.filter(|limit| after > *limit) {
            return Err(ClusterLimitReached::QueuedBytes { limit, waiting });
        }
        Ok(())
    }

    fn take(&mut self, bytes: u64, estimate: u64, now: ClusterMicros) {
        if let Some(rate) = self.limit.requests_per_minute {
            self.requests.take(rate, 1, now);
        }
        if let Some(rate) = self.limit.tokens_per_minute {
            self.tokens.take(rate, i128::from(estimate), now);
        }
        self.queued_requests = self.queued_requests.saturating_add(1);
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests;
