//! What a request will cost, and what it did: bytes per token learned per model, output learned per tenant and model.
//! Integer arithmetic; bounded memory.
//!
//! An estimate decides only who goes first and how much is reserved: what a request really used is settled at its end.
//! So a caller who makes its estimates too low gains nothing, and the estimator need not defend itself beyond bounds.

mod recent;
mod tokens;
mod weights;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::recent::Recent;
pub use self::tokens::{COUNTED_BYTES_MAX, Table};
pub use self::weights::Weights;
use crate::ask::{Ask, TOKENS_MAX};
use crate::meter::{BYTES_PER_TOKEN, Usage};

/// What a request is expected to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Input tokens.
    pub input: u64,
    /// Input tokens at most, for text: what a budget sets aside. Text denser than two bytes a token may still take more.
    pub input_max: u64,
    /// Output tokens likely: what this tenant and model used lately, at most what the caller allows.
    pub output: u64,
    /// Output tokens at most: what the caller allows, times choices; `None` where it sets no bound.
    pub output_max: Option<u64>,
}

/// Learns from what comes back. One per pool; `&self`, safe to share between tasks, cheap.
///
/// Input: the text's bytes by the bytes per token of this tenant's requests to this model, which follow what upstreams
/// report. They begin with what other tenants' requests came to, from 2 to 8 bytes, and with 4 where there were none: what
/// one tenant sends, images say, does not change what another's text is taken for. JSON's own braces and names count as
/// text; the ratio learns them, as it learns what a chat template adds.
///
/// Output: the mean of this tenant's answers from this model, where the last ones count most; `output_default` before
/// the first.
///
/// It remembers at most `names_max` models and `names_max` pairs of tenant and model, and forgets those first that were
/// not used for the longest time. Names are kept as 64-bit hashes under a secret key, so that their length costs
/// nothing; where two meet, they share an estimate.
pub struct Estimator {
    /// A number by itself: nothing else is ordered by it.
    output_default: AtomicU64,
    names: RandomState,
    memory: Mutex<Memory>,
}

struct Memory {
    /// By model: where a tenant begins.
    starts: Recent<Ratio>,
    inputs: Recent<Ratio>,
    outputs: Recent<Mean>,
}

impl Expected {
    /// The same with so many input tokens more, which are not in the body.
    pub fn with_more_input(self, tokens: u64) -> Self {
        Self {
            input: self.input.saturating_add(tokens),
            input_max: self.input_max.saturating_add(tokens),
            ..self
        }
    }
}

impl Estimator {
    /// `output_default` is the output of an answer, in tokens, where nothing was learned; `names_max` bounds memory,
    /// at roughly 100 bytes a name.
    pub fn new(output_default: u64, names_max: usize) -> Self {
        let memory = Memory {
            starts: Recent::new(names_max),
            inputs: Recent::new(names_max),
            outputs: Recent::new(names_max),
        };
        let output_default = AtomicU64::new(output_default);
        Self { output_default, names: RandomState::new(), memory: Mutex::new(memory) }
    }

    /// Another output where nothing was learned; what was learned stays.
    pub fn set_output_default(&self, tokens: u64) {
        self.output_default.store(tokens, Ordering::Relaxed);
    }

    /// What to expect. `exact_input` replaces the estimate from bytes, where a tokenizer has counted, in tokens.
    pub fn expect(
        &self,
        tenant: &str,
        model: &str,
        ask: &Ask,
        exact_input: Option<u64>,
    ) -> Expected {
        let (start, name) = self.names(tenant, model);
        let mut memory = self.memory();
        let (input, input_max) = match exact_input {
            // What a chat template adds is not in the count.
            Some(exact) => (exact, exact.saturating_add(exact / 8).saturating_add(32)),
            None => {
                let ratio = memory.inputs.get(name);
                let ratio = ratio.unwrap_or_else(|| memory.start(start));
                let tokens = ratio.tokens(ask.input_bytes);
                (tokens, tokens.max(ask.input_bytes.div_ceil(2)))
            }
        };
        let mean = memory.outputs.get(name).map(Mean::tokens);
        drop(memory);
        let mean = mean.unwrap_or_else(|| self.output_default.load(Ordering::Relaxed));
        // No answers, no output, whether the caller states a bound or not.
        let allowed = if ask.choices == 0 { Some(0) } else { ask.max_tokens };
        let output_max = allowed.map(|allowed| allowed.saturating_mul(ask.choices));
        let likely = mean.saturating_mul(ask.choices);
        let output = likely.min(output_max.unwrap_or(u64::MAX));
        Expected { input, input_max, output, output_max }
    }

    /// What really came, where the upstream reported it.
    pub fn learn(&self, tenant: &str, model: &str, ask: &Ask, reported: Usage) {
        let (start, name) = self.names(tenant, model);
        let mut memory = self.memory();
        if reported.input > 0 {
            let begin = memory.start(start);
            memory.inputs.entry(name, || begin).learn(ask.input_bytes, reported.input);
            memory.starts.entry(start, Ratio::default).learn(ask.input_bytes, reported.input);
        }
        if let Some(output) = reported.output.checked_div(ask.choices) {
            let default = || Mean::new(self.output_default.load(Ordering::Relaxed));
            memory.outputs.entry(name, default).learn(output);
        }
    }

    fn names(&self, tenant: &str, model: &str) -> (u64, u64) {
        (self.names.hash_one(model), self.names.hash_one((tenant, model)))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Whoever panicked while it held the lock left numbers, which are as good as any.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Where a tenant begins with a model.
    fn start(&mut self, model: u64) -> Ratio {
        self.starts.get(model).unwrap_or_default().moderate()
    }
}

/// Bytes per token: sums of both, in 256ths, in which each answer counts a sixteenth less than the one after it. Sums, and not a
/// mean of ratios, because large requests should count for more: their estimates matter more.
#[derive(Clone, Copy)]
struct Ratio {
    bytes: u64,
    tokens: u64,
}

impl Default for Ratio {
    /// As if requests of 1024 tokens had come for ever.
    fn default() -> Self {
        let tokens = 1024 << (Self::FADING + Self::SCALE);
        Self { bytes: tokens * BYTES_PER_TOKEN, tokens }
    }
}

impl Ratio {
    /// The share of the past that fades with each answer, as a power of two.
    const FADING: u32 = 4;
    const SCALE: u32 = 8;
    /// One answer counts as at most this many bytes, so that none can wipe out what was learned.
    const BYTES_MAX: u64 = 1 << 16;
    /// No text has more tokens than bytes, but an image has.
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

    /// The same within what texts have, 2 to 8 bytes a token.
    fn moderate(self) -> Self {
        let (least, most) =
            (self.bytes / (2 * BYTES_PER_TOKEN), self.bytes / (BYTES_PER_TOKEN / 2));
        Self { tokens: self.tokens.clamp(least, most), ..self }
    }

    fn tokens(self, bytes: u64) -> u64 {
        let tokens = u128::from(bytes) * u128::from(self.tokens);
        u64::try_from(tokens.div_ceil(u128::from(self.bytes.max(1)))).unwrap_or(u64::MAX)
    }
}

/// A mean in which each answer counts an eighth less than the one after it; in 256ths of a token.
#[derive(Clone, Copy)]
struct Mean(u64);

impl Mean {
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
