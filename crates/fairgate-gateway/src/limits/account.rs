//! What one tenant or key has taken of its limits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_dialect::Problem;
use fairgate_store::Limits;
use http::StatusCode;

use super::Limited;
use super::bucket::Bucket;
use super::pace::Pace;

/// Whose limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A tenant's: all its keys together.
    Tenant,
    /// A key's own.
    Key,
}

/// What is left of a tenant's or key's limits. What is absent is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many of its requests wait in this process.
    pub queued_requests: u64,
    /// How many bytes of request bodies wait in this process.
    pub queued_bytes: u64,
    /// How many more requests it may send now.
    pub requests: Option<i64>,
    /// How many tokens its minute has left; below zero it has used more.
    pub tokens: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Account(Mutex<Book>);

#[derive(Debug)]
pub(super) struct Book {
    queued_requests: u64,
    queued_bytes: u64,
    requests: Bucket,
    tokens: Bucket,
    pace: Pace,
}

/// A limit that is reached.
#[derive(Debug)]
pub(super) struct Full {
    code: &'static str,
    what: String,
    retry_after: Duration,
}

/// Whether any of these limits is counted here, and not elsewhere.
pub(super) fn is_counted(limits: &Limits) -> bool {
    limits.queued_requests.is_some()
        || limits.queued_bytes.is_some()
        || limits.requests_per_minute.is_some()
        || limits.tokens_per_minute.is_some()
}

impl Account {
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(Book {
            queued_requests: 0,
            queued_bytes: 0,
            requests: Bucket::new(now),
            tokens: Bucket::new(now),
            pace: Pace::new(now),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Whether one more request with `bytes` may come in now.
    pub(super) fn check(&mut self, limits: &Limits, bytes: u64, now: Instant) -> Result<(), Full> {
        if let Some(rate) = limits.requests_per_minute {
            self.requests.fill(rate, now);
            self.requests.has_one(rate).map_err(|retry_after| Full {
                code: "rate_limited_requests",
                what: format!("has used its {rate} requests a minute"),
                retry_after,
            })?;
        }
        if let Some(rate) = limits.tokens_per_minute {
            self.tokens.fill(rate, now);
            self.tokens.has_any(rate).map_err(|retry_after| Full {
                code: "rate_limited_tokens",
                what: format!(
                    "has used its {rate} tokens a minute, and {} more",
                    self.tokens.wholes(rate).unsigned_abs()
                ),
                retry_after,
            })?;
        }
        self.check_queue(limits, bytes, now)
    }

    fn check_queue(&mut self, limits: &Limits, bytes: u64, now: Instant) -> Result<(), Full> {
        let waiting = self.queued_requests;
        if let Some(limit) = limits.queued_requests.filter(|limit| waiting >= *limit) {
            return Err(Full {
                code: "queue_requests_exceeded",
                what: format!("has {waiting} requests waiting, where its limit is {limit}"),
                retry_after: self.pace.until(waiting.saturating_sub(limit) + 1, now),
            });
        }
        let after = self.queued_bytes.saturating_add(bytes);
        if let Some(limit) = limits.queued_bytes.filter(|limit| after > *limit) {
            let over = u128::from(after - limit);
            // As many requests of the mean size as hold what is over.
            let mean = u128::from(self.queued_bytes / waiting.max(1)).max(1);
            let leaving = u64::try_from(over.div_ceil(mean)).unwrap_or(u64::MAX);
            return Err(Full {
                code: "queue_bytes_exceeded",
                what: format!(
                    "has {} bytes of requests waiting, and {bytes} more would pass its limit of {limit}",
                    self.queued_bytes
                ),
                retry_after: self.pace.until(leaving, now),
            });
        }
        Ok(())
    }

    /// Counts a request in that was checked just now.
    pub(super) fn take(&mut self, limits: &Limits, bytes: u64, estimate: u64) {
        if let Some(rate) = limits.requests_per_minute {
            self.requests.take(rate, 1);
        }
        if let Some(rate) = limits.tokens_per_minute {
            self.tokens.take(rate, i128::from(estimate));
        }
        self.queued_requests = self.queued_requests.saturating_add(1);
        self.queued_bytes = self.queued_bytes.saturating_add(bytes);
    }

    pub(super) fn leave(&mut self, bytes: u64) {
        self.queued_requests = self.queued_requests.saturating_sub(1);
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.pace.leave();
    }

    pub(super) fn settle(&mut self, rate: u64, estimate: u64, charged: u64, now: Instant) {
        self.tokens.fill(rate, now);
        self.tokens.take(rate, i128::from(charged) - i128::from(estimate));
    }

    pub(super) fn left(&mut self, limits: &Limits, now: Instant) -> Left {
        let left = |bucket: &mut Bucket, rate: Option<u64>| {
            let rate = rate?;
            bucket.fill(rate, now);
            Some(bucket.wholes(rate))
        };
        Left {
            queued_requests: self.queued_requests,
            queued_bytes: self.queued_bytes,
            requests: left(&mut self.requests, limits.requests_per_minute),
            tokens: left(&mut self.tokens, limits.tokens_per_minute),
        }
    }
}

impl Left {
    /// What somebody has who was never here.
    pub(super) fn untouched(limits: &Limits) -> Self {
        let all = |rate: u64| i64::try_from(rate).unwrap_or(i64::MAX);
        Self {
            queued_requests: 0,
            queued_bytes: 0,
            requests: limits.requests_per_minute.map(all),
            tokens: limits.tokens_per_minute.map(all),
        }
    }
}

impl Full {
    pub(super) fn limited(self, owner: Owner, name: &str) -> Limited {
        let owner = match owner {
            Owner::Tenant => "tenant",
            Owner::Key => "key",
        };
        let seconds = self.retry_after.as_millis().div_ceil(1000);
        let message = format!("{owner} {name:?} {}; try again in {seconds} s", self.what);
        let status = StatusCode::TOO_MANY_REQUESTS;
        let problem = Problem { status, code: self.code, message, param: None, reached: None };
        Limited { problem, retry_after: self.retry_after }
    }
}
