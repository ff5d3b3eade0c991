//! An account with a provider: requests and tokens per minute, and who was refused.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bucket::{Bucket, Level};
use crate::statement::{Lie, Statement};

/// Keys that have buckets of their own; further ones share one pair.
const KEYS_MAX: usize = 1024;

/// How an account is limited, and what it says about that.
///
/// A request is charged when it arrives: one request, and its input tokens plus `max_tokens` for each choice (or
/// [`output_tokens_assumed`](Self::output_tokens_assumed)). Azure and Cerebras count like this. OpenAI documents only the
/// larger of the two. When it ends, the charge is corrected to the tokens really used, cached ones included. Whoever is
/// refused is charged nothing.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    /// Requests per minute, at least 1; `None` for no limit.
    pub requests_per_minute: Option<u64>,
    /// Input and output tokens per minute, at least 1; `None` for no limit.
    pub tokens_per_minute: Option<u64>,
    /// How deep the buckets are: they hold what comes in this time. A request with more tokens is refused for ever.
    pub burst: Duration,
    /// Whether all keys share the limits.
    pub scope: Scope,
    /// Which headers state the limits.
    pub statement: Statement,
    /// How these headers lie. What is enforced stays the same.
    pub lie: Option<Lie>,
    /// Output tokens that a request without a limit of its own is charged for at first.
    pub output_tokens_assumed: u64,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            tokens_per_minute: None,
            burst: Duration::from_secs(60),
            scope: Scope::Account,
            statement: Statement::Route,
            lie: None,
            output_tokens_assumed: 256,
        }
    }
}

/// Who shares a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every request, whatever its key.
    Account,
    /// The requests with the same key.
    Key,
}

/// What an account has decided so far. `accepted` and the three others add up to all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountCounts {
    /// Requests within the limits.
    pub accepted: u64,
    /// Refused because of the requests per minute.
    pub refused_by_requests: u64,
    /// Refused because of the tokens per minute.
    pub refused_by_tokens: u64,
    /// Refused because the bucket can never hold so many tokens.
    pub too_large: u64,
    /// Tokens charged, as corrected by requests that have ended.
    pub tokens: u64,
}

/// The limits of one account. Give clones of one `Arc` to several [`Sim`](crate::Sim)s, and they draw on it together.
#[derive(Debug)]
pub struct Account {
    pub(crate) options: AccountOptions,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// By the hash of the key; 0 where all share.
    buckets: HashMap<u64, Buckets, BuildHasherDefault<DefaultHasher>>,
    counts: AccountCounts,
    statements: u64,
}

#[derive(Debug)]
struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

/// How an account stands when it has decided about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) requests: Option<Level>,
    pub(crate) tokens: Option<Level>,
    /// How many requests were answered before this one.
    pub(crate) statement: u64,
}

/// Which limit stands against a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    Requests { wait: Duration },
    Tokens { wait: Duration },
    TooLarge,
}

/// Tokens that a request was charged for. Settle it when the request ends.
#[must_use = "settle it with the tokens really used"]
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    key: u64,
    tokens: u64,
}

impl Account {
    /// An account whose buckets are full.
    pub fn new(options: AccountOptions) -> Arc<Self> {
        Arc::new(Self { options, books: Mutex::default() })
    }

    /// What it has decided so far.
    pub fn counts(&self) -> AccountCounts {
        self.books().counts
    }

    /// Charges a request, or says what stands against it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        key: Option<&[u8]>,
        tokens: u64,
        now: Instant,
    ) -> (Result<Charge, Shortage>, Standing) {
        let mut books = self.books();
        let Books { buckets, counts, statements } = &mut *books;
        let mut key = match self.options.scope {
            Scope::Account => 0,
            Scope::Key => BuildHasherDefault::<DefaultHasher>::default().hash_one(key),
        };
        if buckets.len() >= KEYS_MAX && !buckets.contains_key(&key) {
            key = 0;
        }
        let buckets = buckets.entry(key).or_insert_with(|| self.full(now));
        let shortage = buckets.charge(tokens, now);
        let standing = buckets.standing(*statements);
        *statements += 1;
        let decided = match shortage {
            None => {
                counts.accepted += 1;
                counts.tokens = counts.tokens.saturating_add(tokens);
                Ok(Charge { account: Arc::clone(self), key, tokens })
            }
            Some(shortage) => {
                match shortage {
                    Shortage::Requests { .. } => counts.refused_by_requests += 1,
                    Shortage::Tokens { .. } => counts.refused_by_tokens += 1,
                    Shortage::TooLarge => counts.too_large += 1,
                }
                Err(shortage)
            }
        };
        (decided, standing)
    }

    fn full(&self, now: Instant) -> Buckets {
        let bucket =
            |rate: Option<u64>| rate.map(|rate| Bucket::new(rate, self.options.burst, now));
        Buckets {
            requests: bucket(self.options.requests_per_minute),
            tokens: bucket(self.options.tokens_per_minute),
        }
    }

    /// A panic while the lock is held would be a bug; counts that are off by one are better than none.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buckets {
    /// Takes one request and so many tokens where both are there, else nothing.
    fn charge(&mut self, tokens: u64, now: Instant) -> Option<Shortage> {
        for bucket in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            bucket.fill(now);
        }
        let wait = |bucket: &Option<Bucket>, units| {
            bucket.as_ref().map_or(Some(Duration::ZERO), |bucket| bucket.wait_for(units))
        };
        let Some(tokens_wait) = wait(&self.tokens, tokens) else { return Some(Shortage::TooLarge) };
        match wait(&self.requests, 1) {
            Some(Duration::ZERO) => {}
            requests_wait => {
                return Some(Shortage::Requests { wait: requests_wait.unwrap_or_default() });
            }
        }
        if tokens_wait > Duration::ZERO {
            return Some(Shortage::Tokens { wait: tokens_wait });
        }
        for (bucket, units) in [(&mut self.requests, 1), (&mut self.tokens, tokens)] {
            bucket.iter_mut().for_each(|bucket| bucket.take(units));
        }
        None
    }

    fn standing(&self, statement: u64) -> Standing {
        let level = |bucket: &Option<Bucket>| bucket.as_ref().map(Bucket::level);
        Standing { requests: level(&self.requests), tokens: level(&self.tokens), statement }
    }
}

impl Charge {
    /// Corrects the charge to the tokens really used.
    pub(crate) fn settle(self, used: u64) {
        let mut books = self.account.books();
        let Books { buckets, counts, .. } = &mut *books;
        counts.tokens = counts.tokens.saturating_sub(self.tokens).saturating_add(used);
        let Some(bucket) = buckets.get_mut(&self.key).and_then(|both| both.tokens.as_mut()) else {
            return;
        };
        bucket.fill(Instant::now());
        bucket.give_back(self.tokens.saturating_sub(used));
        bucket.take(used.saturating_sub(self.tokens));
    }
}

impl AccountCounts {
    /// As `GET /sim/stats` tells them.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "accepted": self.accepted, "refused_by_requests": self.refused_by_requests,
            "refused_by_tokens": self.refused_by_tokens, "too_large": self.too_large,
            "tokens": self.tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(requests: u64, tokens: u64, scope: Scope) -> Arc<Account> {
        Account::new(AccountOptions {
            requests_per_minute: Some(requests),
            tokens_per_minute: Some(tokens),
            scope,
            ..AccountOptions::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn both_limits_hold_and_refill() {
        let account = account(3, 1000, Scope::Account);
        let ask = |tokens| account.admit(None, tokens, Instant::now()).0;
        assert!(ask(1001).is_err_and(|shortage| shortage == Shortage::TooLarge));
        let charges = [ask(400).unwrap(), ask(500).unwrap()];
        let wait = Duration::from_secs(6);
        assert!(ask(200).is_err_and(|shortage| shortage == Shortage::Tokens { wait }));
        let last = ask(100).unwrap();
        let wait = Duration::from_secs(20);
        assert!(ask(1).is_err_and(|shortage| shortage == Shortage::Requests { wait }));
        tokio::time::advance(wait).await;
        let again = ask(333).unwrap();
        let counts = account.counts();
        assert_eq!((counts.accepted, counts.refused_by_requests), (4, 1));
        assert_eq!((counts.refused_by_tokens, counts.too_large, counts.tokens), (1, 1, 1333));
        charges.into_iter().chain([last, again]).for_each(|charge| charge.settle(0));
        assert_eq!(account.counts().tokens, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_charge_is_corrected_at_the_end() {
        let account = account(100, 1000, Scope::Account);
        let remaining = || {
            let (decided, standing) = account.admit(None, 0, Instant::now());
            decided.unwrap().settle(0);
            standing.tokens.unwrap().remaining
        };
        account.admit(None, 600, Instant::now()).0.unwrap().settle(100);
        assert_eq!(remaining(), 900);
        account.admit(None, 100, Instant::now()).0.unwrap().settle(300);
        assert_eq!((remaining(), account.counts().tokens), (600, 400));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_share_or_do_not() {
        for (scope, second) in [(Scope::Account, false), (Scope::Key, true)] {
            let account = account(1, 1000, scope);
            let ask = |key: &[u8]| account.admit(Some(key), 1, Instant::now()).0.is_ok();
            assert!(ask(b"one") && !ask(b"one"));
            assert_eq!(ask(b"two"), second);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_takes_in_an_hour_is_what_it_allows() {
        let account = account(600, 1_000_000, Scope::Account);
        for _ in 0..3600 * 20 {
            if let Ok(charge) = account.admit(None, 10, Instant::now()).0 {
                charge.settle(10);
            }
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        // One bucket at first, then 600 a minute.
        let accepted = account.counts().accepted;
        assert!((600 * 61 - 1..=600 * 61).contains(&accepted), "{accepted}");
    }
}
