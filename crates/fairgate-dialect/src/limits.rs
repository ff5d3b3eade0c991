//! What a provider says about its own limits: in the headers of every answer, and in the body of a refusal.
//!
//! Call [`told`] on the headers of each answer. Where the answer is an error, call [`refusal`] with its result.
//!
//! There is no standard, so a header is recognised by the words in its name: a prefix (`x-ratelimit-`,
//! `anthropic-ratelimit-`, `x-tokenlimit-` and others), one of `limit`, `remaining` and `reset`, what is counted, and a
//! window. A header with any other word in its name is left out, because it may count something else.
//!
//! # What the numbers mean
//! - **`remaining`** is what the provider would still accept. Anthropic rounds it to the nearest thousand tokens.
//! - **`reset_after`** is the time until the limit is *full* again, with OpenAI, Groq and Anthropic. A request fits
//!   long before that, so it bounds a pause from above. How long to wait is what [`Told::retry_after`] and
//!   [`Refusal::Rate`] say.
//! - **The window** is in the header's name (Mistral, Cerebras) or follows from the other three numbers. A limit that
//!   fills evenly has reset = window × used ÷ limit, so window = reset × limit ÷ used. Groq counts requests per day under the
//!   name that OpenAI uses for requests per minute; only this tells them apart.
//!
//! # What is not believed
//! Negative numbers, numbers above 10^15, limits of 0, times more than 32 days ahead or a day ago, and text that is no
//! number are dropped. Of two values under one name the more cautious counts. Each such case leaves an [`Absurd`] for the
//! log. Azure writes -1 where it states nothing, so an absurd value is no reason to distrust the others.

mod complaint;
mod header;
mod moment;
mod phrase;
mod refusal;
mod span;
mod value;

use std::fmt;
use std::time::Duration;

use self::header::{Field, Name};
use self::moment::Clock;
pub use self::refusal::{Refusal, refusal};
use self::value::Bad;

/// The longest time that is believed: a month and a day.
pub const SPAN_MAX: Duration = Duration::from_secs(32 * 86_400);
/// The largest number of requests or tokens that is believed.
pub const COUNT_MAX: u64 = 1_000_000_000_000_000;
/// How many absurd values are kept of one answer; the rest is dropped without a note.
const ABSURD_MAX: usize = 16;

/// A time of day: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMicros(pub i64);

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// Requests.
    Requests,
    /// Input and output tokens together.
    Tokens,
    /// Input tokens alone.
    InputTokens,
    /// Output tokens alone.
    OutputTokens,
}

/// The time over which a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    /// One second.
    Second,
    /// One minute.
    Minute,
    /// One hour.
    Hour,
    /// One day.
    Day,
    /// One month of any length.
    Month,
}

/// One limit, as far as it was stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it counts.
    pub counted: Counted,
    /// Over which time; `None` where nothing shows it. Most providers then mean a minute.
    pub window: Option<Window>,
    /// How many are allowed in a window, at least 1.
    pub limit: Option<u64>,
    /// How many are left, at most `limit`.
    pub remaining: Option<u64>,
    /// When it is full again; at most [`SPAN_MAX`].
    pub reset_after: Option<Duration>,
}

/// What the headers of one answer say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Every limit that was stated, by what it counts and its window.
    pub limits: Vec<Limit>,
    /// How long to wait before the next request; at most [`SPAN_MAX`].
    pub retry_after: Option<Duration>,
    /// What was dropped or corrected, for the log.
    pub absurd: Vec<Absurd>,
}

/// A value that was not believed, in one line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absurd {
    /// The header's name, or `body`. At most 64 characters.
    pub name: String,
    /// The value with control characters escaped, cut after 40 characters.
    pub value: String,
    /// What is wrong with it, and what was done.
    pub why: &'static str,
}

impl fmt::Display for Absurd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}: {}` {}", self.name, self.value, self.why)
    }
}

/// Reads the rate-limit headers of an answer. `now` turns absolute times into spans. Where the answer's own `date`
/// differs from `now` by more than two seconds, spans are counted from that date: the provider's clock set them.
pub fn told<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>, now: UnixMicros) -> Told {
    let known: Vec<_> = headers
        .into_iter()
        .filter_map(|(name, value)| Some((name, header::read(name)?, value.trim_ascii())))
        .collect();
    let date = known.iter().find(|(_, name, _)| *name == Name::Date).map(|(.., value)| *value);
    let clock = Clock::new(now, date);
    let mut told = Told::default();
    let mut drafts = Vec::new();
    for (header, name, value) in known {
        let read = match name {
            Name::Date => Ok(()),
            Name::RetryAfter => value::reset(value, clock).map(|(wait, _)| told.wait(wait)),
            Name::RetryAfterMs => value::millis(value).map(|wait| told.wait(wait)),
            Name::Limit(field, counted, window) => {
                draft(&mut drafts, counted, window).read(field, value, clock)
            }
        };
        if let Err(Bad(why)) = read {
            told.doubt(header, value, why);
        }
    }
    for draft in drafts {
        told.settle(draft);
    }
    told.limits.sort_by_key(|limit| (limit.counted, limit.window));
    told
}

impl Told {
    /// The limit on requests that binds first.
    pub fn requests(&self) -> Option<&Limit> {
        self.binding(|counted| counted == Counted::Requests)
    }

    /// The limit on tokens that binds first; [`Limit::counted`] says whether it counts input, output or both.
    pub fn tokens(&self) -> Option<&Limit> {
        self.binding(|counted| counted != Counted::Requests)
    }

    /// One with nothing left, else one over a minute or less rather than a longer one, else the one with the smallest part
    /// left.
    fn binding(&self, concerned: impl Fn(Counted) -> bool) -> Option<&Limit> {
        let stated = |limit: &&Limit| limit.limit.is_some() || limit.remaining.is_some();
        self.limits.iter().filter(|limit| concerned(limit.counted)).filter(stated).min_by_key(
            |limit| {
                let long = limit.window.is_some_and(|window| window > Window::Minute);
                (limit.remaining != Some(0), long, limit.left_per_million(), limit.counted)
            },
        )
    }

    fn wait(&mut self, wait: Duration) {
        self.retry_after = later(self.retry_after, Some(wait));
    }

    fn doubt(&mut self, name: &str, value: &[u8], why: &'static str) {
        if self.absurd.len() < ABSURD_MAX {
            let shown = String::from_utf8_lossy(value.get(..64).unwrap_or(value));
            self.absurd.push(Absurd {
                name: name.chars().take(64).collect(),
                value: shown.escape_debug().take(40).collect(),
                why,
            });
        }
    }

    fn settle(&mut self, draft: Draft) {
        let mut limit = draft.limit;
        let name = draft.name();
        if draft.contradicts {
            self.doubt(
                &name,
                b"",
                "was stated twice with different values; the more cautious counts",
            );
        }
        if let (Some(most), Some(left)) = (limit.limit, limit.remaining)
            && left > most
        {
            let text = left.to_string();
            self.doubt(
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

impl Limit {
    /// The limit as requests or tokens per minute, where its window is a minute, a second or unknown. A limit per hour
    /// or longer is a stock rather than a rate, and gives `None`.
    pub fn per_minute(&self) -> Option<u64> {
        match self.window {
            None | Some(Window::Minute) => self.limit,
            Some(Window::Second) => self.limit.map(|limit| limit.saturating_mul(60)),
            Some(Window::Hour | Window::Day | Window::Month) => None,
        }
    }

    fn left_per_million(&self) -> u128 {
        let left = self
            .remaining
            .zip(self.limit)
            .and_then(|(left, most)| (u128::from(left) * 1_000_000).checked_div(u128::from(most)));
        left.unwrap_or(1_000_000)
    }

    /// The window of a limit that fills evenly, where reset × limit ÷ used comes within a tenth of one. An hour or a day is
    /// believed only where rounding and, for absolute times, two clocks that differ cannot have made it from a minute.
    fn window_by_refill(&self, absolute: bool) -> Option<Window> {
        let reset = self.reset_after?;
        let by_refill = self.limit.zip(self.remaining).and_then(|(limit, remaining)| {
            let used = u128::from(limit.checked_sub(remaining)?);
            let micros = reset.as_micros().checked_mul(u128::from(limit))?.checked_div(used)?;
            let near = |seconds: u64| {
                let window = u128::from(seconds) * 1_000_000;
                micros.abs_diff(window) * 10 <= window
            };
            let sure = reset >= Duration::from_secs(if absolute { 120 } else { 5 });
            match () {
                () if near(60) => Some(Window::Minute),
                () if near(3600) && sure => Some(Window::Hour),
                () if near(86_400) && sure => Some(Window::Day),
                () => None,
            }
        });
        // An overdrawn minute can take several to fill, but hardly ten.
        by_refill.or(match reset.as_secs() {
            0..=600 => None,
            601..=3_600 => Some(Window::Hour),
            3_601..=90_000 => Some(Window::Day),
            _ => Some(Window::Month),
        })
    }
}

/// The later of two stated waits, because an early request is refused again. Where one of them is the other rounded to
/// whole seconds (`retry-after: 1` beside `retry-after-ms: 50`), the exact one.
fn later(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    let rounded = |wait: Duration| wait.subsec_nanos() == 0;
    if a.abs_diff(b) < Duration::from_secs(1) && rounded(a) != rounded(b) {
        return Some(if rounded(a) { b } else { a });
    }
    Some(a.max(b))
}

/// A limit whose headers are still being read.
struct Draft {
    limit: Limit,
    /// Whether its reset was an absolute time.
    absolute: bool,
    contradicts: bool,
}

fn draft(drafts: &mut Vec<Draft>, counted: Counted, window: Option<Window>) -> &mut Draft {
    let at = drafts
        .iter()
        .position(|draft| (draft.limit.counted, draft.limit.window) == (counted, window));
    let at = at.unwrap_or_else(|| {
        let limit = Limit { counted, window, limit: None, remaining: None, reset_after: None };
        drafts.push(Draft { limit, absolute: false, contradicts: false });
        drafts.len() - 1
    });
    &mut drafts[at]
}

impl Draft {
    fn read(&mut self, field: Field, value: &[u8], clock: Clock) -> Result<(), Bad> {
        match field {
            Field::Limit => {
                let limit = value::limit(value)?;
                self.contradicts |= self.limit.limit.is_some_and(|before| before != limit);
                self.limit.limit = Some(self.limit.limit.map_or(limit, |before| before.min(limit)));
            }
            Field::Remaining => {
                let left = value::count(value)?;
                self.contradicts |= self.limit.remaining.is_some_and(|before| before != left);
                self.limit.remaining =
                    Some(self.limit.remaining.map_or(left, |before| before.min(left)));
            }
            Field::Reset => {
                let (reset, absolute) = value::reset(value, clock)?;
                self.contradicts |= self.limit.reset_after.is_some_and(|before| before != reset);
                self.limit.reset_after = self.limit.reset_after.max(Some(reset));
                self.absolute |= absolute;
            }
        }
        Ok(())
    }

    /// What it is called in a note: `InputTokens per Minute`.
    fn name(&self) -> String {
        match self.limit.window {
            None => format!("{:?}", self.limit.counted),
            Some(window) => format!("{:?} per {window:?}", self.limit.counted),
        }
    }
}
