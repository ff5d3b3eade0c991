//! Estimates the tokens of a request. Learns the bytes per token and the output of each tenant and model. Uses
//! integer arithmetic and bounded memory.
//!
//! An estimate decides only the order of requests and the size of a reservation. The real usage is settled at the end.
//! A client that drives its estimates down therefore gains nothing, and the estimator needs no protection other than
//! its bounds.

mod recent;
mod tokens;
mod weights;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::recent::RecentMap;
pub use self::tokens::{COUNTED_BYTES_MAX, TokenizerTable};
pub use self::weights::TokenWeights;
use crate::meter::{BYTES_PER_TOKEN, TokenUsage};
use crate::request_fields::{RequestFields, TOKENS_MAX};
use crate::request_files::RequestFiles;

/// Tokens that a request is expected to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenEstimate {
    /// Expected number of input tokens, cached ones included.
    pub input: u64,
    /// Upper bound on the input tokens of text, which a budget reserves. Text with fewer than two bytes per token may
    /// still use more.
    pub input_max: u64,
    /// Expected output tokens: the recent mean of this tenant and model, but at most `output_max`.
    pub output: u64,
    /// Upper bound on the output tokens: the client's limit times the number of choices. `None` if the client sets no
    /// limit.
    pub output_max: Option<u64>,
    /// True if `input_max` includes the tokens of files. Those tokens are not counted, but bounded from above by the
    /// numbers that providers document.
    pub has_files: bool,
}

/// Estimates the tokens of requests, and learns from reported usage. A pool has one estimator, whose methods take
/// `&self`, so that all tasks can share it.
///
/// The expected input is the number of bytes of the text divided by the bytes per token of this tenant's requests to
/// this model. That ratio follows the usage that upstreams report. A new tenant starts with the ratio of the other
/// tenants, limited to 2 to 8 bytes per token, or with 4 if there is no other tenant. Because of this limit, one
/// tenant's images do not distort the estimates of another tenant's text. JSON's own braces and names count as text,
/// because the ratio makes up for them and for the tokens that a chat template adds.
///
/// The expected output is the moving mean of this tenant's answers from this model, or `output_default` before the
/// first answer.
///
/// Keeps at most `names_max` models and `names_max` pairs of tenant and model, and forgets the least recently used
/// first. Names are stored as 64-bit hashes under a secret key, so long names take no more memory. Two names with the
/// same hash share an estimate.
pub struct TokenEstimator {
    /// Expected output tokens before anything was learned. Relaxed ordering is enough, because no other memory access
    /// depends on this value.
    output_default: AtomicU64,
    names: RandomState,
    memory: Mutex<EstimatorMemory>,
}

struct EstimatorMemory {
    /// Ratio of each model over all tenants, with which a new tenant starts.
    starts: RecentMap<BytesPerTokenRatio>,
    inputs: RecentMap<BytesPerTokenRatio>,
    outputs: RecentMap<OutputMean>,
}

impl TokenEstimate {
    /// Adds input tokens that are not in the body, such as the history of a stored response.
    pub fn with_more_input(self, tokens: u64) -> Self {
        Self {
            input: self.input.saturating_add(tokens),
            input_max: self.input_max.saturating_add(tokens),
            ..self
        }
    }

    /// Adds the files of the request to the upper bound. All other bytes of the body count as text.
    pub fn with_files(self, files: RequestFiles) -> Self {
        let text = self.input_max.max(files.text_bytes.div_ceil(2));
        let input_max = text.saturating_add(files.tokens);
        Self { input_max, has_files: files.count > 0, ..self }
    }
}

impl TokenEstimator {
    /// Creates an estimator. `output_default` is the expected output of an answer, in tokens, before anything was
    /// learned. `names_max` bounds memory, at roughly 100 bytes per name.
    pub fn new(output_default: u64, names_max: usize) -> Self {
        let memory = EstimatorMemory {
            starts: RecentMap::new(names_max),
            inputs: RecentMap::new(names_max),
            outputs: RecentMap::new(names_max),
        };
        let output_default = AtomicU64::new(output_default);
        Self { output_default, names: RandomState::new(), memory: Mutex::new(memory) }
    }

    /// Sets the expected output, in tokens, for models about which nothing was learned. Learned values stay.
    pub fn set_output_default(&self, tokens: u64) {
        self.output_default.store(tokens, Ordering::Relaxed);
    }

    /// Estimates the tokens of a request. `exact_input` is a tokenizer's count of the input, which replaces the
    /// estimate from bytes.
    pub fn estimate(
        &self,
        tenant: &str,
        model: &str,
        ask: &RequestFields,
        exact_input: Option<u64>,
    ) -> TokenEstimate {
        let (start, name) = self.names(tenant, model);
        let mut memory = self.memory();
        let (input, input_max) = match exact_input {
            // Adds 12.5 % and 32 tokens, because the exact count lacks the tokens that a chat template adds.
            Some(exact) => (exact, exact.saturating_add(exact / 8).saturating_add(32)),
            None => {
                let ratio = memory.inputs.get(name);
                let ratio = ratio.unwrap_or_else(|| memory.start(start));
                let tokens = ratio.tokens(ask.input_bytes);
                (tokens, tokens.max(ask.input_bytes.div_ceil(2)))
            }
        };
        let mean = memory.outputs.get(name).map(OutputMean::tokens);
        drop(memory);
        let mean = mean.unwrap_or_else(|| self.output_default.load(Ordering::Relaxed));
        // A request without answers has no output, even if the client sets a limit.
        let allowed = if ask.choices == 0 { Some(0) } else { ask.max_tokens };
        let output_max = allowed.map(|allowed| allowed.saturating_mul(ask.choices));
        let likely = mean.saturating_mul(ask.choices);
        let output = likely.min(output_max.unwrap_or(u64::MAX));
        TokenEstimate { input, input_max, output, output_max, has_files: false }
    }

    /// Learns from the usage that the upstream reported.
    pub fn learn(&self, tenant: &str, model: &str, ask: &RequestFields, reported: TokenUsage) {
        let (start, name) = self.names(tenant, model);
        let mut memory = self.memory();
        if reported.input > 0 {
            let begin = memory.start(start);
            memory.inputs.entry(name, || begin).learn(ask.input_bytes, reported.input);
            memory
                .starts
                .entry(start, BytesPerTokenRatio::default)
                .learn(ask.input_bytes, reported.input);
        }
        if let Some(output) = reported.output.checked_div(ask.choices) {
            let default = || OutputMean::new(self.output_default.load(Ordering::Relaxed));
            memory.outputs.entry(name, default).learn(output);
        }
    }

    fn names(&self, tenant: &str, model: &str) -> (u64, u64) {
        (self.names.hash_one(model), self.names.hash_one((tenant, model)))
    }

    fn memory(&self) -> MutexGuard<'_, EstimatorMemory> {
        // After a panic under the lock, the state is still a set of valid numbers.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EstimatorMemory {
    /// Returns the ratio with which a new tenant starts for this model.
    fn start(&mut self, model: u64) -> BytesPerTokenRatio {
        self.starts.get(model).unwrap_or_default().clamped_to_text()
    }
}

/// Bytes per token, as a sum of bytes and a sum of tokens, both in units of 1/256. With each new answer, the weight of
/// every earlier answer falls by a sixteenth. Two sums are kept instead of a mean of ratios, so that large requests
/// count for more, because their estimates matter more.
#[derive(Clone, Copy)]
struct BytesPerTokenRatio {
    bytes: u64,
    tokens: u64,
}

impl Default for BytesPerTokenRatio {
    /// Returns a ratio of 4 bytes per token, as if many requests of 1024 tokens each had been learned before.
    fn default() -> Self {
        let tokens = 1024 << (Self::FADING + Self::SCALE);
        Self { bytes: tokens * BYTES_PER_TOKEN, tokens }
    }
}

impl BytesPerTokenRatio {
    /// Part of both sums that is dropped with each new answer, as the exponent of a power of two: 4 means 1 ÷ 2^4.
    const FADING: u32 = 4;
    const SCALE: u32 = 8;
    /// Largest number of bytes with which one answer is weighed, so that no single answer replaces everything learned
    /// before.
    const BYTES_MAX: u64 = 1 << 16;
    /// Upper bound on the learned tokens per byte. Text has at most one token per byte, but an image may have more.
    const TOKENS_PER_BYTE_MAX: u64 = 4;
    const BYTES_PER_TOKEN_MAX: u64 = 64;

    fn learn(&mut self, bytes: u64, tokens: u64) {
        let weighed = bytes.clamp(1, Self::BYTES_MAX);
        let scaled = u128::from(tokens) * u128::from(weighed) / u128::from(bytes.max(1));
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        let least = weighed.div_ceil(Self::BYTES_PER_TOKEN_MAX);
        let most = weighed * Self::TOKENS_PER_BYTE_MAX;
        let fade = |sum: u64, new: u64| sum - (sum >> Self::FADING) + (new << Self::SCALE);
        self.bytes = fade(self.bytes, weighed);
        self.tokens = fade(self.tokens, scaled.clamp(least, most));
    }

    /// Limits the ratio to the range of texts, 2 to 8 bytes per token.
    fn clamped_to_text(self) -> Self {
        let (least, most) =
            (self.bytes / (2 * BYTES_PER_TOKEN), self.bytes / (BYTES_PER_TOKEN / 2));
        Self { tokens: self.tokens.clamp(least, most), ..self }
    }

    fn tokens(self, bytes: u64) -> u64 {
        let tokens = u128::from(bytes) * u128::from(self.tokens);
        u64::try_from(tokens.div_ceil(u128::from(self.bytes.max(1)))).unwrap_or(u64::MAX)
    }
}

/// A moving mean of output tokens, in units of 1/256 token. With each new answer, the weight of every earlier answer
/// falls by an eighth.
#[derive(Clone, Copy)]
struct OutputMean(u64);

impl OutputMean {
    const FADING: u32 = 3;
    const SCALE: u32 = 8;

    fn new(tokens: u64) -> Self {
        Self(tokens.min(TOKENS_MAX) << Self::SCALE)
    }

    fn learn(&mut self, tokens: u64) {
        let new = Self::new(tokens).0 >> Self::FADING;
        self.0 = self.0 - (self.0 >> Self::FADING) + new;
    }

    fn tokens(self) -> u64 {
        self.0.div_ceil(1 << Self::SCALE)
    }
}

#[cfg(test)]
mod tests;
