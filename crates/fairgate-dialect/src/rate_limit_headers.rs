//! Reads a provider's rate limits from the headers of every answer and from the body of a refusal.
//!
//! Call [`read_rate_limits`] with the headers of each answer. If the answer is an error, pass the result to
//! [`classify_refusal`].
//!
//! There is no standard, so a header is recognised by the words in its name: a prefix (`x-ratelimit-`,
//! `anthropic-ratelimit-`, `x-tokenlimit-` and others), one of `limit`, `remaining` and `reset`, a unit, and a window.
//! A header with any other word in its name is ignored, because it may count something else.
//!
//! # Meaning of the numbers
//! - **`remaining`** is the amount that the provider would still accept. Anthropic rounds it to the nearest thousand
//!   tokens.
//! - **`reset_after`** is the time until the limit is *full* again, with OpenAI, Groq and Anthropic. A request fits
//!   long before that, so `reset_after` is only an upper bound on a pause. The time to wait is in
//!   [`RateLimitHeaders::retry_after`] and [`ProviderRefusal::Rate`].
//! - **The window** is in the header's name (Mistral, Cerebras) or follows from the other three numbers. A limit that
//!   refills evenly has reset = window × used ÷ limit, so window = reset × limit ÷ used. Groq counts requests per day
//!   under the header name that OpenAI uses for requests per minute, and only this formula distinguishes the two. The
//!   same formula finds limits per second: a limit of 20 requests, of which one is used, that is full again in 50 ms,
//!   is 20 per second. If a limit per minute were mistaken for a limit per second, it would be sixty times too high. So
//!   a limit counts as per second only under three conditions: (1) at most a tenth of it, or a single request or token,
//!   is used (OpenAI enforces some limits per minute over a second, and more is used of those); (2) the reset is a time
//!   span that is not rounded to whole seconds; (3) no other answer contradicts it, which [`crate::quota`] checks.
//!
//! # Values that are ignored
//! Negative numbers, numbers above 10^15, limits of 0, times more than 32 days ahead or more than a day ago, and text
//! that is not a number are dropped. If one header name has two different values, the more cautious value counts. Each
//! such case adds an [`IgnoredValue`] for the log. The other values of the same answer are still used, because a
//! provider such as Azure writes -1 for "not stated".

mod error_message;
mod header_name;
mod header_value;
mod provider_error;
mod refusal;
mod time_span;
mod timestamp;

use std::fmt;
use std::time::Duration;

use self::header_name::{HeaderMeaning, LimitField};
use self::header_value::HeaderValueError;
pub use self::refusal::{ProviderRefusal, classify_refusal};
use self::timestamp::ProviderClock;

/// Longest time span that is accepted: 32 days.
pub const SPAN_MAX: Duration = Duration::from_secs(32 * 86_400);
/// Largest number of requests or tokens that is accepted.
pub const COUNT_MAX: u64 = 1_000_000_000_000_000;
/// Longest computed window, in microseconds, that counts as one second: a second plus a tenth.
const WINDOW_MICROS_OF_A_SECOND: u128 = 1_100_000;
/// Greatest number of ignored values that are logged for one answer. Further values are dropped without a log line.
const IGNORED_MAX: usize = 16;

/// A point in time: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochMicros(pub i64);

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitUnit {
    /// Requests, each counted as one.
    Requests,
    /// Input and output tokens together.
    Tokens,
    /// Input tokens without output tokens.
    InputTokens,
    /// Output tokens without input tokens.
    OutputTokens,
}

/// The time span over which a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitWindow {
    /// A span of one second.
    Second,
    /// A span of one minute.
    Minute,
    /// A span of one hour.
    Hour,
    /// A span of one day.
    Day,
    /// A span of one month, of any length.
    Month,
}

/// One rate limit of a provider. Numbers that the provider did not state are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The unit that the limit counts.
    pub counted: LimitUnit,
    /// The time span over which the limit counts; `None` if the provider does not state it and it cannot be derived.
    /// Most providers mean a minute in this case.
    pub window: Option<LimitWindow>,
    /// Number of requests or tokens allowed per window, at least 1.
    pub limit: Option<u64>,
    /// Number of requests or tokens left in the window, at most `limit`.
    pub remaining: Option<u64>,
    /// Time until the limit is full again, at most [`SPAN_MAX`].
    pub reset_after: Option<Duration>,
}

/// The rate limits in the headers of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// All stated limits, sorted by unit and window.
    pub limits: Vec<RateLimit>,
    /// Time to wait before the next request, at most [`SPAN_MAX`]; `None` if the provider states none.
    pub retry_after: Option<Duration>,
    /// Values that were dropped or corrected, for the log.
    pub ignored: Vec<IgnoredValue>,
}

/// A value that was dropped or corrected, printed as one log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredValue {
    /// Name of the header, cut after 64 characters; `body` for a value from an error's body.
    pub name: String,
    /// The value with control characters escaped, cut after 40 characters.
    pub value: String,
    /// The problem with the value, and what was done about it, as the end of a sentence.
    pub why: &'static str,
}

impl fmt::Display for IgnoredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}: {}` {}", self.name, self.value, self.why)
    }
}

/// Reads the rate-limit headers of an answer. `now` is the local time, with which points in time are turned into time
/// spans. If the answer's own `date` differs from `now` by at least two seconds and at most a day, spans are counted
/// from that date instead, because the provider computed the times with its own clock.
pub fn read_rate_limits<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    now: EpochMicros,
) -> RateLimitHeaders {
    let known: Vec<_> = headers
        .into_iter()
        .filter_map(|(name, value)| Some((name, header_name::read(name)?, value.trim_ascii())))
        .collect();
    let date =
        known.iter().find(|(_, name, _)| *name == HeaderMeaning::Date).map(|(.., value)| *value);
    let clock = ProviderClock::new(now, date);
    let mut told = RateLimitHeaders::default();
    let mut drafts = Vec::new();
    for (header, name, value) in known {
        let read = match name {
            HeaderMeaning::Date => Ok(()),
            HeaderMeaning::RetryAfter => {
                header_value::reset(value, clock).map(|(wait, _)| told.wait(wait))
            }
            HeaderMeaning::RetryAfterMs => header_value::millis(value).map(|wait| told.wait(wait)),
            HeaderMeaning::Limit(field, counted, window) => {
                draft(&mut drafts, counted, window).read(field, value, clock)
            }
        };
        if let Err(HeaderValueError(why)) = read {
            told.note_ignored(header, value, why);
        }
    }
    for draft in drafts {
        told.add_draft(draft);
    }
    told.limits.sort_by_key(|limit| (limit.counted, limit.window));
    told
}

impl RateLimitHeaders {
    /// Returns the limit on requests that is the tightest now; `None` if there is none.
    pub fn requests(&self) -> Option<&RateLimit> {
        self.binding(|counted| counted == LimitUnit::Requests)
    }

    /// Returns the limit on tokens that is the tightest now; `None` if there is none. [`RateLimit::counted`] says if
    /// the limit counts input tokens, output tokens or both.
    pub fn tokens(&self) -> Option<&RateLimit> {
        self.binding(|counted| counted != LimitUnit::Requests)
    }

    /// Returns the tightest of the limits for whose unit `concerned` returns true. Limits with nothing left come first.
    /// Next come limits with a window of at most a minute or with an unknown window. Among those, the limit with the
    /// smallest part left is the tightest.
    fn binding(&self, concerned: impl Fn(LimitUnit) -> bool) -> Option<&RateLimit> {
        let stated = |limit: &&RateLimit| limit.limit.is_some() || limit.remaining.is_some();
        self.limits.iter().filter(|limit| concerned(limit.counted)).filter(stated).min_by_key(
            |limit| {
                let long = limit.window.is_some_and(|window| window > LimitWindow::Minute);
                (limit.remaining != Some(0), long, limit.left_per_million(), limit.counted)
            },
        )
    }

    fn wait(&mut self, wait: Duration) {
        self.retry_after = later(self.retry_after, Some(wait));
    }

    fn note_ignored(&mut self, name: &str, value: &[u8], why: &'static str) {
        if self.ignored.len() < IGNORED_MAX {
            let shown = String::from_utf8_lossy(value.get(..64).unwrap_or(value));
            self.ignored.push(IgnoredValue {
                name: name.chars().take(64).collect(),
                value: shown.escape_debug().take(40).collect(),
                why,
            });
        }
    }

    fn add_draft(&mut self, draft: RateLimitDraft) {
        let mut limit = draft.limit;
        let name = draft.name();
        if draft.contradicts {
            self.note_ignored(
                &name,
                b"",
                "was stated twice with different values; the more cautious counts",
            );
        }
        if let (Some(most), Some(left)) = (limit.limit, limit.remaining)
            && left > most
        {
            let text = left.to_string();
            self.note_ignored(
                &name,
                text.as_bytes(),
                "remaining is above its limit and counts as the limit",
            );
            limit.remaining = Some(most);
        }
        limit.window = limit.window.or_else(|| limit.window_by_refill(draft.absolute));
        if limit.limit.is_some() || limit.remaining.is_some() || limit.reset_after.is_some() {
            self.limits.push(limit);
        }
    }
}

impl RateLimit {
    /// Returns the limit as requests or tokens per minute, if the window is a minute, a second or unknown. Returns
    /// `None` for a window of an hour or longer, because such a limit does not say how much may be sent in one minute.
    pub fn per_minute(&self) -> Option<u64> {
        match self.window {
            None | Some(LimitWindow::Minute) => self.limit,
            Some(LimitWindow::Second) => self.limit.map(|limit| limit.saturating_mul(60)),
            Some(LimitWindow::Hour | LimitWindow::Day | LimitWindow::Month) => None,
        }
    }

    /// Returns true if the provider names no window and its numbers fit any window: the limit is full, no reset is
    /// stated, or the reset is at most a second away. Such a short reset does not prove a limit per second, because
    /// providers whose limits per minute allow only short bursts state such resets too.
    pub(crate) fn fits_any_window(&self) -> bool {
        let is_full = self.limit.is_some() && self.limit == self.remaining;
        let is_soon = |reset: Duration| reset <= Duration::from_secs(1);
        self.window.is_none() && (is_full || self.reset_after.is_none_or(is_soon))
    }

    fn left_per_million(&self) -> u128 {
        let left = self
            .remaining
            .zip(self.limit)
            .and_then(|(left, most)| (u128::from(left) * 1_000_000).checked_div(u128::from(most)));
        left.unwrap_or(1_000_000)
    }

    /// Derives the window from the other numbers. A limit that refills evenly has window = reset × limit ÷ used. The
    /// result is the standard window that differs from this value by at most a tenth; a value of up to about a second
    /// gives a second.
    ///
    /// An hour or a day is accepted only if the reset is far enough away. Then neither rounding nor, for absolute
    /// times, a difference between two clocks can have turned a minute into an hour or a day. If no window matches, a
    /// reset more than ten minutes away gives the shortest window that contains it.
    fn window_by_refill(&self, absolute: bool) -> Option<LimitWindow> {
        let reset = self.reset_after?;
        let by_refill = self.limit.and_then(|limit| {
            // The request that was answered is counted, so at least one is used.
            let remaining = self.remaining.unwrap_or(limit - 1);
            let used = u128::from(limit.checked_sub(remaining)?);
            let micros = reset.as_micros().checked_mul(u128::from(limit))?.checked_div(used)?;
            let near = |seconds: u64| {
                let window = u128::from(seconds) * 1_000_000;
                micros.abs_diff(window) * 10 <= window
            };
            let sure = self.remaining.is_some()
                && reset >= Duration::from_secs(if absolute { 120 } else { 5 });
            let is_exact = !absolute && reset.subsec_nanos() != 0;
            // Of a limit per minute that allows only a short burst, less is left, however soon that burst is available
            // again.
            let is_nearly_full = used.saturating_mul(10) <= u128::from(limit) || used == 1;
            match () {
                () if micros <= WINDOW_MICROS_OF_A_SECOND && is_exact && is_nearly_full => {
                    Some(LimitWindow::Second)
                }
                () if near(60) && self.remaining.is_some() => Some(LimitWindow::Minute),
                () if near(3600) && sure => Some(LimitWindow::Hour),
                () if near(86_400) && sure => Some(LimitWindow::Day),
                () => None,
            }
        });
        // An overdrawn minute limit can take several minutes to refill, but hardly ten.
        by_refill.or(match reset.as_secs() {
            0..=600 => None,
            601..=3_600 => Some(LimitWindow::Hour),
            3_601..=90_000 => Some(LimitWindow::Day),
            _ => Some(LimitWindow::Month),
        })
    }
}

/// Returns the longer of two stated waits, because a request that comes too early is refused again. If one wait is the
/// other one rounded to whole seconds (`retry-after: 1` beside `retry-after-ms: 50`), returns the exact one.
fn later(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    let rounded = |wait: Duration| wait.subsec_nanos() == 0;
    if a.abs_diff(b) < Duration::from_secs(1) && rounded(a) != rounded(b) {
        return Some(if rounded(a) { b } else { a });
    }
    Some(a.max(b))
}

/// A limit whose headers are still being read.
struct RateLimitDraft {
    limit: RateLimit,
    /// True if the provider gave the reset as a point in time rather than a time span.
    absolute: bool,
    contradicts: bool,
}

fn draft(
    drafts: &mut Vec<RateLimitDraft>,
    counted: LimitUnit,
    window: Option<LimitWindow>,
) -> &mut RateLimitDraft {
    let at = drafts
        .iter()
        .position(|draft| (draft.limit.counted, draft.limit.window) == (counted, window));
    let at = at.unwrap_or_else(|| {
        let limit = RateLimit { counted, window, limit: None, remaining: None, reset_after: None };
        drafts.push(RateLimitDraft { limit, absolute: false, contradicts: false });
        drafts.len() - 1
    });
    &mut drafts[at]
}

impl RateLimitDraft {
    fn read(
        &mut self,
        field: LimitField,
        value: &[u8],
        clock: ProviderClock,
    ) -> Result<(), HeaderValueError> {
        match field {
            LimitField::Limit => {
                let limit = header_value::limit(value)?;
                self.contradicts |= self.limit.limit.is_some_and(|before| before != limit);
                self.limit.limit = Some(self.limit.limit.map_or(limit, |before| before.min(limit)));
            }
            LimitField::Remaining => {
                let left = header_value::count(value)?;
                self.contradicts |= self.limit.remaining.is_some_and(|before| before != left);
                self.limit.remaining =
                    Some(self.limit.remaining.map_or(left, |before| before.min(left)));
            }
            LimitField::Reset => {
                let (reset, absolute) = header_value::reset(value, clock)?;
                self.contradicts |= self.limit.reset_after.is_some_and(|before| before != reset);
                self.limit.reset_after = self.limit.reset_after.max(Some(reset));
                self.absolute |= absolute;
            }
        }
        Ok(())
    }

    /// Returns the name of the limit for the log, such as `InputTokens per Minute`.
    fn name(&self) -> String {
        match self.limit.window {
            None => format!("{:?}", self.limit.counted),
            Some(window) => format!("{:?} per {window:?}", self.limit.counted),
        }
    }
}
