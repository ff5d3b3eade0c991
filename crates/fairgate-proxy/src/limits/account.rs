//! The counts of one tenant or key, and the checks against its limits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_core::units::Micros;
use fairgate_runtime::RecentGrants;
use fairgate_store::DirectoryLimits;

use super::bucket::MinuteBucket;
use crate::refusal::{Refusal, RefusalCode};

/// Maximum wait that is proposed to a caller whose queue is full.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The kind of owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOwner {
    /// A tenant's limit, which counts all its keys together.
    Tenant,
    /// A key's own limit, beside its tenant's.
    Key,
}

/// Current use of a tenant's or key's queue, and the amounts that are left of its rates. An amount is `None` if its
/// rate is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsLeft {
    /// Queued requests in this process.
    pub queued_requests: u64,
    /// Bytes of queued request bodies in this process.
    pub queued_bytes: u64,
    /// Requests that the tenant or key may send now.
    pub requests: Option<i64>,
    /// Tokens left in the bucket of tokens per minute; below zero if more than the limit of one minute was used.
    pub tokens: Option<i64>,
}

#[derive(Debug)]
pub(super) struct LimitAccount(Mutex<LimitCounts>);

#[derive(Debug)]
pub(super) struct LimitCounts {
    queued_requests: u64,
    queued_bytes: u64,
    requests: MinuteBucket,
    tokens: MinuteBucket,
    /// Requests that left the queue in the last minute; the proposed wait is computed from them.
    left: RecentGrants,
    /// Time from which the times in `left` count.
    since: Instant,
}

/// A limit that is reached, with the code, text and wait of its refusal.
#[derive(Debug)]
pub(super) struct LimitReached {
    code: RefusalCode,
    what: String,
    retry_after: Duration,
}

/// Returns true if any of these limits is counted in this module.
pub(super) fn is_counted(limits: &DirectoryLimits) -> bool {
    limits.queued_requests.is_some()
        || limits.queued_bytes.is_some()
        || limits.requests_per_minute.is_some()
        || limits.tokens_per_minute.is_some()
}

impl LimitAccount {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(LimitCounts {
            queued_requests: 0,
            queued_bytes: 0,
            requests: MinuteBucket::new(now),
            tokens: MinuteBucket::new(now),
            left: RecentGrants::new(Micros(0)),
            since: now,
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LimitCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LimitCounts {
    /// Refuses one more request with a body of `bytes` if a limit is reached now.
    pub(super) fn check(
        &mut self,
        limits: &DirectoryLimits,
        bytes: u64,
        now: Instant,
    ) -> Result<(), LimitReached> {
        if let Some(rate) = limits.requests_per_minute {
            self.requests.fill(rate, now);
            self.requests.need_one(rate).map_err(|retry_after| LimitReached {
                code: RefusalCode::RateLimitedRequests,
                what: format!("has used its {rate} requests a minute"),
                retry_after,
            })?;
        }
        if let Some(rate) = limits.tokens_per_minute {
            self.tokens.fill(rate, now);
            self.tokens.need_any(rate).map_err(|retry_after| LimitReached {
                code: RefusalCode::RateLimitedTokens,
                what: format!(
                    "has used its {rate} tokens a minute, and {} more",
                    self.tokens.wholes(rate).unsigned_abs()
                ),
                retry_after,
            })?;
        }
        self.check_queue(limits, bytes, now)
    }

    fn check_queue(
        &mut self,
        limits: &DirectoryLimits,
        bytes: u64,
        now: Instant,
    ) -> Result<(), LimitReached> {
        let waiting = self.queued_requests;
        if let Some(limit) = limits.queued_requests.filter(|limit| waiting >= *limit) {
            return Err(LimitReached {
                code: RefusalCode::QueueRequestsExceeded,
                what: format!("has {waiting} requests waiting, where its limit is {limit}"),
                retry_after: self.retry_after(waiting.saturating_sub(limit) + 1, now),
            });
        }
        let after = self.queued_bytes.saturating_add(bytes);
        if let Some(limit) = limits.queued_bytes.filter(|limit| after > *limit) {
            let over = u128::from(after - limit);
            // The number of mean-sized requests that hold the excess bytes.
            let mean = u128::from(self.queued_bytes / waiting.max(1)).max(1);
            let leaving = u64::try_from(over.div_ceil(mean)).unwrap_or(u64::MAX);
            return Err(LimitReached {
                code: RefusalCode::QueueBytesExceeded,
                what: format!(
                    "has {} bytes of requests waiting, and {bytes} more would pass its limit of {limit}",
                    self.queued_bytes
                ),
                retry_after: self.retry_after(leaving, now),
            });
        }
        Ok(())
    }

    /// Counts a request that was checked just before, under the same lock.
    pub(super) fn take(&mut self, limits: &DirectoryLimits, bytes: u64, estimate: u64) {
        if let Some(rate) = limits.requests_per_minute {
            self.requests.take(rate, 1);
        }
        if let Some(rate) = limits.tokens_per_minute {
            self.tokens.take(rate, i128::from(estimate));
        }
        self.queued_requests = self.queued_requests.saturating_add(1);
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }

    /// Returns the expected time until `leaving` requests have left the queue, from 1 s to [`RETRY_AFTER_MAX`].
    fn retry_after(&self, leaving: u64, now: Instant) -> Duration {
        self.left.retry_after(leaving, self.micros(now), RETRY_AFTER_MAX)
    }

    fn micros(&self, now: Instant) -> Micros {
        let elapsed = now.saturating_duration_since(self.since);
        Micros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn leave(&mut self, bytes: u64, now: Instant) {
        self.queued_requests = self.queued_requests.saturating_sub(1);
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.left.note(self.micros(now));
    }

    pub(super) fn settle(&mut self, rate: u64, estimate: u64, charged: u64, now: Instant) {
        self.tokens.fill(rate, now);
        self.tokens.take(rate, i128::from(charged) - i128::from(estimate));
    }

    pub(super) fn left(&mut self, limits: &DirectoryLimits, now: Instant) -> LimitsLeft {
        let left = |bucket: &mut MinuteBucket, rate: Option<u64>| {
            let rate = rate?;
            bucket.fill(rate, now);
            Some(bucket.wholes(rate))
        };
        LimitsLeft {
            queued_requests: self.queued_requests,
            queued_bytes: self.queued_bytes,
            requests: left(&mut self.requests, limits.requests_per_minute),
            tokens: left(&mut self.tokens, limits.tokens_per_minute),
        }
    }
}

impl LimitsLeft {
    /// Returns empty queues and full rates, for a tenant or key that has no counts yet.
    pub(super) fn untouched(limits: &DirectoryLimits) -> Self {
        let all = |rate: u64| i64::try_from(rate).unwrap_or(i64::MAX);
        Self {
            queued_requests: 0,
            queued_bytes: 0,
            requests: limits.requests_per_minute.map(all),
            tokens: limits.tokens_per_minute.map(all),
        }
    }
}

impl LimitReached {
    /// Builds the refusal. Its message names the limit's owner, the limit's value and its current use.
    pub(super) fn refusal(self, owner: LimitOwner, name: &str) -> Refusal {
        let owner = match owner {
            LimitOwner::Tenant => "tenant",
            LimitOwner::Key => "key",
        };
        let seconds = self.retry_after.as_millis().div_ceil(1000);
        let message = format!("{owner} {name:?} {}; try again in {seconds} s", self.what);
        Refusal::new(self.code, message).with_retry_after(Some(self.retry_after))
    }
}
