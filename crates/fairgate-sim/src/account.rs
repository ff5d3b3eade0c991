//! A simulated account with a provider. It limits requests and tokens per minute, and counts its refusals.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bucket::{BucketLevel, RateBucket};
use crate::limit_statement::{LimitHeaderFault, LimitHeaders};
use crate::sliding_window::SlidingWindow;

/// Greatest number of keys with buckets of their own. All further keys share one pair of buckets.
const KEYS_MAX: usize = 1024;

/// Limits of an account, and the format in which responses state these limits.
///
/// When a request arrives, the account charges one request to the limit of requests. It charges the input tokens, plus
/// `max_tokens` for each choice, to the limit of tokens. Without `max_tokens`, each choice is charged
/// [`output_tokens_assumed`](Self::output_tokens_assumed). Azure and Cerebras also charge the sum of input and
/// `max_tokens`; OpenAI documents that it charges only the larger of the two. When the request ends, the charge is
/// corrected to the tokens really used, cached input tokens included. A refused request is charged nothing.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    /// Greatest number of requests per minute, at least 1; `None` for no limit.
    pub requests_per_minute: Option<u64>,
    /// Greatest number of input and output tokens per minute, at least 1; `None` for no limit.
    pub tokens_per_minute: Option<u64>,
    /// Time whose quota a full bucket holds; with [`QuotaRefill::SlidingWindow`], the length of the window. A request
    /// that needs more tokens than this quota is always refused.
    pub burst: Duration,
    /// The way in which used quota becomes available again.
    pub refill: QuotaRefill,
    /// The requests that share the limits: all requests of the account, or the requests of one key.
    pub scope: LimitScope,
    /// Format of the headers that state the limits.
    pub statement: LimitHeaders,
    /// Deliberate error in the headers that state the limits; `None` for correct headers. The enforced limits do not
    /// change.
    pub lie: Option<LimitHeaderFault>,
    /// Number of output tokens charged on arrival for each choice of a request that sets no `max_tokens`.
    pub output_tokens_assumed: u64,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            tokens_per_minute: None,
            burst: Duration::from_secs(60),
            refill: QuotaRefill::Evenly,
            scope: LimitScope::Account,
            statement: LimitHeaders::Route,
            lie: None,
            output_tokens_assumed: 256,
        }
    }
}

/// The way in which used quota becomes available again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRefill {
    /// A bucket that fills evenly.
    Evenly,
    /// A sliding window: used units become available again when they are older than [`burst`](AccountOptions::burst).
    SlidingWindow,
}

/// The requests that share one pair of buckets of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// All requests of the account share one pair of buckets, whatever their keys.
    Account,
    /// Only requests with the same API key share a pair of buckets.
    Key,
}

/// Numbers of requests that an account has accepted and refused so far. `accepted`, `refused_by_requests`,
/// `refused_by_tokens` and `too_large` add up to all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountCounts {
    /// Number of requests that were within the limits and were charged.
    pub accepted: u64,
    /// Number of requests refused because of the limit on requests per minute.
    pub refused_by_requests: u64,
    /// Number of requests refused because of the limit on tokens per minute.
    pub refused_by_tokens: u64,
    /// Number of requests refused because they need more tokens than a full bucket has.
    pub too_large: u64,
    /// Number of tokens charged to all accepted requests: the tokens really used for ended requests, and the charge on
    /// arrival for other requests.
    pub tokens: u64,
}

/// One simulated account, with its limits and counts. Backends that hold clones of one `Arc<SimAccount>` share the
/// limits; see [`SimOptions::account`](crate::SimOptions::account).
#[derive(Debug)]
pub struct SimAccount {
    pub(crate) options: AccountOptions,
    state: Mutex<AccountState>,
}

#[derive(Debug, Default)]
struct AccountState {
    /// Buckets by the hash of the API key. The entry 0 is for all requests of an account-wide limit, and for keys
    /// beyond [`KEYS_MAX`].
    buckets: HashMap<u64, KeyBuckets, BuildHasherDefault<DefaultHasher>>,
    counts: AccountCounts,
    statements: u64,
}

#[derive(Debug)]
struct KeyBuckets {
    requests: Option<AccountLimit>,
    tokens: Option<AccountLimit>,
}

/// One limit of an account.
#[derive(Debug)]
enum AccountLimit {
    Bucket(RateBucket),
    Window(SlidingWindow),
}

impl AccountLimit {
    fn new(per_minute: u64, options: &AccountOptions, now: Instant) -> Self {
        match options.refill {
            QuotaRefill::Evenly => Self::Bucket(RateBucket::new(per_minute, options.burst, now)),
            QuotaRefill::SlidingWindow => {
                Self::Window(SlidingWindow::new(per_minute, options.burst, now))
            }
        }
    }

    fn advance(&mut self, now: Instant) {
        match self {
            Self::Bucket(bucket) => bucket.fill(now),
            Self::Window(window) => window.advance(now),
        }
    }

    fn wait_for(&self, units: u64) -> Option<Duration> {
        match self {
            Self::Bucket(bucket) => bucket.wait_for(units),
            Self::Window(window) => window.wait_for(units),
        }
    }

    fn take(&mut self, units: u64) {
        match self {
            Self::Bucket(bucket) => bucket.take(units),
            Self::Window(window) => window.take(units),
        }
    }

    fn give_back(&mut self, units: u64) {
        match self {
            Self::Bucket(bucket) => bucket.give_back(units),
            Self::Window(window) => window.give_back(units),
        }
    }

    fn level(&self) -> BucketLevel {
        match self {
            Self::Bucket(bucket) => bucket.level(),
            Self::Window(window) => window.level(),
        }
    }
}

/// Levels of an account's buckets right after a decision about one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccountLevels {
    pub(crate) requests: Option<BucketLevel>,
    pub(crate) tokens: Option<BucketLevel>,
    /// Number of requests that the account had decided before this one.
    pub(crate) statement: u64,
}

/// The limit that a refused request exceeds. `wait` is the time until the bucket has enough for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    Requests { wait: Duration },
    Tokens { wait: Duration },
    TooLarge,
}

/// Tokens that an account has charged for one request. Call [`TokenCharge::settle`] when the request ends.
#[must_use = "settle it with the tokens really used"]
#[derive(Debug)]
pub(crate) struct TokenCharge {
    account: Arc<SimAccount>,
    key: u64,
    tokens: u64,
}

impl SimAccount {
    /// Creates an account with full buckets.
    pub fn new(options: AccountOptions) -> Arc<Self> {
        Arc::new(Self { options, state: Mutex::default() })
    }

    /// Returns the counts of accepted and refused requests, and of charged tokens, so far.
    pub fn counts(&self) -> AccountCounts {
        self.state().counts
    }

    /// Charges one request and `tokens` tokens, or returns the limit that the request exceeds. Also returns, in both
    /// cases, the levels of the buckets after the decision.
    pub(crate) fn admit(
        self: &Arc<Self>,
        key: Option<&[u8]>,
        tokens: u64,
        now: Instant,
    ) -> (Result<TokenCharge, ExceededLimit>, AccountLevels) {
        let mut books = self.state();
        let AccountState { buckets, counts, statements } = &mut *books;
        let mut key = match self.options.scope {
            LimitScope::Account => 0,
            LimitScope::Key => BuildHasherDefault::<DefaultHasher>::default().hash_one(key),
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
                Ok(TokenCharge { account: Arc::clone(self), key, tokens })
            }
            Some(shortage) => {
                match shortage {
                    ExceededLimit::Requests { .. } => counts.refused_by_requests += 1,
                    ExceededLimit::Tokens { .. } => counts.refused_by_tokens += 1,
                    ExceededLimit::TooLarge => counts.too_large += 1,
                }
                Err(shortage)
            }
        };
        (decided, standing)
    }

    fn full(&self, now: Instant) -> KeyBuckets {
        let bucket =
            |rate: Option<u64>| rate.map(|rate| AccountLimit::new(rate, &self.options, now));
        KeyBuckets {
            requests: bucket(self.options.requests_per_minute),
            tokens: bucket(self.options.tokens_per_minute),
        }
    }

    /// Locks the state. Ignores poisoning, because counts that are off by one after a panic are better than none.
    fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyBuckets {
    /// Takes one request and `tokens` tokens from the buckets if both have enough. Otherwise takes nothing and returns
    /// the limit that is exceeded.
    fn charge(&mut self, tokens: u64, now: Instant) -> Option<ExceededLimit> {
        for bucket in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            bucket.advance(now);
        }
        let wait = |bucket: &Option<AccountLimit>, units| {
            bucket.as_ref().map_or(Some(Duration::ZERO), |bucket| bucket.wait_for(units))
        };
        let Some(tokens_wait) = wait(&self.tokens, tokens) else {
            return Some(ExceededLimit::TooLarge);
        };
        match wait(&self.requests, 1) {
            Some(Duration::ZERO) => {}
            requests_wait => {
                return Some(ExceededLimit::Requests { wait: requests_wait.unwrap_or_default() });
            }
        }
        if tokens_wait > Duration::ZERO {
            return Some(ExceededLimit::Tokens { wait: tokens_wait });
        }
        for (bucket, units) in [(&mut self.requests, 1), (&mut self.tokens, tokens)] {
            bucket.iter_mut().for_each(|bucket| bucket.take(units));
        }
        None
    }

    fn standing(&self, statement: u64) -> AccountLevels {
        let level = |bucket: &Option<AccountLimit>| bucket.as_ref().map(AccountLimit::level);
        AccountLevels { requests: level(&self.requests), tokens: level(&self.tokens), statement }
    }
}

impl TokenCharge {
    /// Replaces the tokens charged on arrival with `used`, the tokens that the request really used.
    pub(crate) fn settle(self, used: u64) {
        let mut books = self.account.state();
        let AccountState { buckets, counts, .. } = &mut *books;
        counts.tokens = counts.tokens.saturating_sub(self.tokens).saturating_add(used);
        let Some(bucket) = buckets.get_mut(&self.key).and_then(|both| both.tokens.as_mut()) else {
            return;
        };
        bucket.advance(Instant::now());
        bucket.give_back(self.tokens.saturating_sub(used));
        bucket.take(used.saturating_sub(self.tokens));
    }
}

impl AccountCounts {
    /// Formats the counts for `GET /sim/stats`.
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

    fn account(requests: u64, tokens: u64, scope: LimitScope) -> Arc<SimAccount> {
        SimAccount::new(AccountOptions {
            requests_per_minute: Some(requests),
            tokens_per_minute: Some(tokens),
            scope,
            ..AccountOptions::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn both_limits_hold_and_refill() {
        let account = account(3, 1000, LimitScope::Account);
        let try_admit = |tokens| account.admit(None, tokens, Instant::now()).0;
        assert!(try_admit(1001).is_err_and(|shortage| shortage == ExceededLimit::TooLarge));
        let charges = [try_admit(400).unwrap(), try_admit(500).unwrap()];
        let wait = Duration::from_secs(6);
        assert!(try_admit(200).is_err_and(|shortage| shortage == ExceededLimit::Tokens { wait }));
        let last = try_admit(100).unwrap();
        let wait = Duration::from_secs(20);
        assert!(try_admit(1).is_err_and(|shortage| shortage == ExceededLimit::Requests { wait }));
        tokio::time::advance(wait).await;
        let again = try_admit(333).unwrap();
        let counts = account.counts();
        assert_eq!((counts.accepted, counts.refused_by_requests), (4, 1));
        assert_eq!((counts.refused_by_tokens, counts.too_large, counts.tokens), (1, 1, 1333));
        charges.into_iter().chain([last, again]).for_each(|charge| charge.settle(0));
        assert_eq!(account.counts().tokens, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_charge_is_corrected_at_the_end() {
        let account = account(100, 1000, LimitScope::Account);
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
        for (scope, second) in [(LimitScope::Account, false), (LimitScope::Key, true)] {
            let account = account(1, 1000, scope);
            let try_admit = |key: &[u8]| account.admit(Some(key), 1, Instant::now()).0.is_ok();
            assert!(try_admit(b"one") && !try_admit(b"one"));
            assert_eq!(try_admit(b"two"), second);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_it_takes_in_an_hour_is_what_it_allows() {
        let account = account(600, 1_000_000, LimitScope::Account);
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
