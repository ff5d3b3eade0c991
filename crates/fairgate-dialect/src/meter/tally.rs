//! Adds up what an answer used: what the upstream said, where that can be believed, and a count of what passed since.

use super::document::Found;
use super::path::Count;
use super::{Measured, Usage};
use crate::ask::TOKENS_MAX;
use crate::route::Route;

/// How many bytes of text make a token, where nobody says.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;
/// So much output is believed whatever passed: a model may think long and say little, unseen.
const UNSEEN_TOKENS_MAX: u64 = 1 << 18;
/// Beyond that, so many tokens are believed for each byte that passed.
const TOKENS_PER_BYTE_MAX: u64 = 64;
/// More text than that in a token is not believed.
const BYTES_PER_TOKEN_MAX: u64 = 512;

/// What an upstream says was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    /// Something in it was no number of tokens.
    pub(super) absurd: bool,
}

impl Report {
    pub(super) fn set(&mut self, count: Count, tokens: u64) {
        *self.field(count) = Some(tokens);
        self.absurd |= tokens > TOKENS_MAX;
    }

    fn field(&mut self, count: Count) -> &mut Option<u64> {
        match count {
            Count::Input => &mut self.input,
            Count::Output => &mut self.output,
            Count::Cached => &mut self.cached,
            Count::CacheRead => &mut self.cache_read,
            Count::CacheWritten => &mut self.cache_written,
        }
    }

    /// Anthropic tells its numbers in two events, and what the second repeats may be zero: the larger counts.
    fn with(self, earlier: Self) -> Self {
        Self {
            input: self.input.max(earlier.input),
            output: self.output.max(earlier.output),
            cached: self.cached.max(earlier.cached),
            cache_read: self.cache_read.max(earlier.cache_read),
            cache_written: self.cache_written.max(earlier.cache_written),
            absurd: self.absurd,
        }
    }

    /// All input and what of it was cached. No prompt has no tokens: a zero is as good as nothing.
    fn inputs(&self) -> Option<(u64, u64)> {
        let [cached, read, written] =
            [self.cached, self.cache_read, self.cache_written].map(|tokens| tokens.unwrap_or(0));
        let input = self.input?.saturating_add(read).saturating_add(written);
        let cached = cached.saturating_add(read);
        (input > 0).then_some((input, cached))
    }

    /// Whether these can be the tokens of an answer of so many bytes with so much text in it.
    fn believable(&self, passed_bytes: u64, text_bytes: u64) -> bool {
        let output_max =
            UNSEEN_TOKENS_MAX.saturating_add(passed_bytes.saturating_mul(TOKENS_PER_BYTE_MAX));
        !self.absurd
            && self.inputs().is_none_or(|(input, cached)| cached <= input)
            && self.output.is_none_or(|output| {
                output <= output_max && output.saturating_mul(BYTES_PER_TOKEN_MAX) >= text_bytes
            })
    }
}

/// The sum of an answer.
pub(super) struct Tally {
    route: Route,
    input_estimate: u64,
    /// The last report that could be believed.
    report: Report,
    /// All text that passed.
    text_bytes: u64,
    /// What passed since that report.
    since: Passage,
    /// The most that was ever said by [`Tally::so_far`].
    high: Usage,
}

/// Text that passed, and in how many events.
#[derive(Clone, Copy, Default)]
struct Passage {
    text_bytes: u64,
    events: u64,
}

impl Passage {
    fn add(&mut self, text_bytes: u64) {
        self.text_bytes += text_bytes;
        self.events += u64::from(text_bytes > 0);
    }

    fn tokens(self) -> u64 {
        self.text_bytes.div_ceil(BYTES_PER_TOKEN).max(self.events)
    }
}

impl Tally {
    pub(super) fn new(route: Route, input_estimate: u64) -> Self {
        Self {
            route,
            input_estimate,
            report: Report::default(),
            text_bytes: 0,
            since: Passage::default(),
            high: Usage::default(),
        }
    }

    /// Adds a document: its text first, then what it says about all text up to here.
    pub(super) fn add(&mut self, found: Found, passed_bytes: u64) {
        self.text_bytes += found.text_bytes;
        self.since.add(found.text_bytes);
        self.high = self.so_far(0);
        let Some(report) = found.report else { return };
        let merged = match self.route {
            Route::Messages => report.with(self.report),
            _ => report,
        };
        if !merged.believable(passed_bytes, self.text_bytes) {
            return;
        }
        self.report = merged;
        if report.output.is_some() {
            self.since = Passage::default();
        }
    }

    /// What was used, if nothing more comes but this text. Never less than it was before.
    pub(super) fn so_far(&self, more_text_bytes: u64) -> Usage {
        let now = self.usage(more_text_bytes);
        Usage {
            input: now.input.max(self.high.input),
            cached: now.cached.max(self.high.cached),
            output: now.output.max(self.high.output),
        }
    }

    /// What was used, and whether the upstream said so.
    pub(super) fn measured(&self, more_text_bytes: u64, complete: bool) -> Measured {
        let silent_since = self.since.tokens() == 0 && more_text_bytes == 0;
        let output_told = self.report.output.is_some() && silent_since;
        let input_told = self.report.inputs().is_some();
        let reported = match self.route {
            Route::CountTokens | Route::Embeddings => input_told,
            _ => input_told && output_told,
        };
        Measured { usage: self.usage(more_text_bytes), reported, complete }
    }

    /// Whether the last believable report says what was cached.
    pub(super) fn says_cached(&self) -> bool {
        self.report.inputs().is_some() && self.report.cached.or(self.report.cache_read).is_some()
    }

    fn usage(&self, more_text_bytes: u64) -> Usage {
        let (input, cached) = self.report.inputs().unwrap_or((self.input_estimate, 0));
        let mut since = self.since;
        since.add(more_text_bytes);
        let output = self.report.output.unwrap_or(0).saturating_add(since.tokens());
        Usage { input, cached, output: if self.route.generates() { output } else { 0 } }
    }
}
