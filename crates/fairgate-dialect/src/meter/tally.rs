//! Adds up the usage of an answer: the last plausible report of the upstream, plus a count of the text since that
//! report.

use super::answer_shape::TokenKind;
use super::document::DocumentFindings;
use super::{CacheWrites, MeasuredUsage, TokenUsage};
use crate::request_fields::TOKENS_MAX;
use crate::route::Route;

/// Bytes of text per token, if nothing better is known.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;
/// Number of reported output tokens that are accepted regardless of the bytes that passed, because a model may reason
/// at length without sending its reasoning.
const UNSEEN_TOKENS_MAX: u64 = 1 << 18;
/// Number of reported output tokens that are accepted beyond [`UNSEEN_TOKENS_MAX`] for each byte that passed.
const TOKENS_PER_BYTE_MAX: u64 = 64;
/// Greatest plausible number of bytes of text per reported output token. A report with more bytes per token is ignored.
const BYTES_PER_TOKEN_MAX: u64 = 512;

/// Usage as an upstream reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UsageReport {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    cache_written_5m: Option<u64>,
    cache_written_1h: Option<u64>,
    /// True if a count in the report was not a valid number of tokens.
    pub(super) absurd: bool,
}

impl UsageReport {
    pub(super) fn set(&mut self, count: TokenKind, tokens: u64) {
        *self.field(count) = Some(tokens);
        self.absurd |= tokens > TOKENS_MAX;
    }

    fn field(&mut self, count: TokenKind) -> &mut Option<u64> {
        match count {
            TokenKind::Input => &mut self.input,
            TokenKind::Output => &mut self.output,
            TokenKind::Cached => &mut self.cached,
            TokenKind::CacheRead => &mut self.cache_read,
            TokenKind::CacheWritten => &mut self.cache_written,
            TokenKind::CacheWritten5m => &mut self.cache_written_5m,
            TokenKind::CacheWritten1h => &mut self.cache_written_1h,
        }
    }

    /// Merges two reports by taking the larger of each number. Anthropic reports in two events, and a number that is in
    /// both may be zero in the second.
    fn with(self, earlier: Self) -> Self {
        Self {
            input: self.input.max(earlier.input),
            output: self.output.max(earlier.output),
            cached: self.cached.max(earlier.cached),
            cache_read: self.cache_read.max(earlier.cache_read),
            cache_written: self.cache_written.max(earlier.cache_written),
            cache_written_5m: self.cache_written_5m.max(earlier.cache_written_5m),
            cache_written_1h: self.cache_written_1h.max(earlier.cache_written_1h),
            absurd: self.absurd,
        }
    }

    /// Returns the number of all input tokens, and that of the cached tokens among them. Returns `None` if no input is
    /// reported. An input of 0 counts as not reported, because every prompt has tokens.
    fn inputs(&self) -> Option<(u64, u64)> {
        let [cached, read] = [self.cached, self.cache_read].map(|tokens| tokens.unwrap_or(0));
        let input = self.input?.saturating_add(read).saturating_add(self.writes().total);
        let cached = cached.saturating_add(read);
        (input > 0).then_some((input, cached))
    }

    /// Returns the tokens that were written to a cache. Upstreams report a total, or the parts that are kept for five
    /// minutes and for an hour, or both. The larger of the total and the sum of the parts is used.
    fn writes(&self) -> CacheWrites {
        let [total, five_minutes, one_hour] =
            [self.cache_written, self.cache_written_5m, self.cache_written_1h]
                .map(|tokens| tokens.unwrap_or(0));
        CacheWrites { total: total.max(five_minutes.saturating_add(one_hour)), one_hour }
    }

    /// Returns true if the numbers are plausible for an answer with this many bytes and this much text.
    fn is_plausible(&self, passed_bytes: u64, text_bytes: u64) -> bool {
        let output_max =
            UNSEEN_TOKENS_MAX.saturating_add(passed_bytes.saturating_mul(TOKENS_PER_BYTE_MAX));
        !self.absurd
            && self.inputs().is_none_or(|(input, cached)| cached <= input)
            && self.output.is_none_or(|output| {
                output <= output_max && output.saturating_mul(BYTES_PER_TOKEN_MAX) >= text_bytes
            })
    }
}

/// Running total of one answer.
pub(super) struct UsageTally {
    route: Route,
    input_estimate: u64,
    /// The last plausible report.
    report: UsageReport,
    /// Bytes of all text that the model has written so far.
    text_bytes: u64,
    /// Text since the last plausible report of output tokens.
    since: UnreportedText,
    /// Usage before the last document's report was applied. [`UsageTally::so_far`] never returns less than this.
    high: TokenUsage,
}

/// An amount of text, and the number of events in which it came.
#[derive(Clone, Copy, Default)]
struct UnreportedText {
    text_bytes: u64,
    events: u64,
}

impl UnreportedText {
    fn add(&mut self, text_bytes: u64) {
        self.text_bytes += text_bytes;
        self.events += u64::from(text_bytes > 0);
    }

    fn tokens(self) -> u64 {
        self.text_bytes.div_ceil(BYTES_PER_TOKEN).max(self.events)
    }
}

impl UsageTally {
    pub(super) fn new(route: Route, input_estimate: u64) -> Self {
        Self {
            route,
            input_estimate,
            report: UsageReport::default(),
            text_bytes: 0,
            since: UnreportedText::default(),
            high: TokenUsage::default(),
        }
    }

    /// Adds a document. Its text is added first, because the report in the document covers all text so far.
    pub(super) fn add(&mut self, found: DocumentFindings, passed_bytes: u64) {
        self.text_bytes += found.text_bytes;
        self.since.add(found.text_bytes);
        self.high = self.so_far(0);
        let Some(report) = found.report else { return };
        let merged = match self.route {
            Route::Messages => report.with(self.report),
            _ => report,
        };
        if !merged.is_plausible(passed_bytes, self.text_bytes) {
            return;
        }
        self.report = merged;
        if report.output.is_some() {
            self.since = UnreportedText::default();
        }
    }

    /// Returns the usage so far, with `more_text_bytes` of text that is not in a document yet. Never returns less than
    /// before.
    pub(super) fn so_far(&self, more_text_bytes: u64) -> TokenUsage {
        let now = self.usage(more_text_bytes);
        TokenUsage {
            input: now.input.max(self.high.input),
            cached: now.cached.max(self.high.cached),
            output: now.output.max(self.high.output),
        }
    }

    /// Returns the usage with `more_text_bytes` of further text, and whether the upstream reported all of it.
    pub(super) fn measured(&self, more_text_bytes: u64, complete: bool) -> MeasuredUsage {
        let silent_since = self.since.tokens() == 0 && more_text_bytes == 0;
        let output_told = self.report.output.is_some() && silent_since;
        let input_told = self.report.inputs().is_some();
        let reported = match self.route {
            Route::CountTokens | Route::Embeddings => input_told,
            _ => input_told && output_told,
        };
        let writes = if input_told { self.report.writes() } else { CacheWrites::default() };
        MeasuredUsage { usage: self.usage(more_text_bytes), writes, reported, complete }
    }

    /// Returns true if the last plausible report has the number of cached tokens, even if it is 0.
    pub(super) fn reports_cached(&self) -> bool {
        self.report.inputs().is_some() && self.report.cached.or(self.report.cache_read).is_some()
    }

    fn usage(&self, more_text_bytes: u64) -> TokenUsage {
        let (input, cached) = self.report.inputs().unwrap_or((self.input_estimate, 0));
        let mut since = self.since;
        since.add(more_text_bytes);
        let output = self.report.output.unwrap_or(0).saturating_add(since.tokens());
        TokenUsage { input, cached, output: if self.route.generates() { output } else { 0 } }
    }
}
