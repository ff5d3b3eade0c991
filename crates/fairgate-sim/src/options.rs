//! Options of a simulated backend, and their defaults.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::account::SimAccount;

/// Options of a [`Sim`](crate::Sim). Start from the defaults and change single fields:
///
/// ```
/// # use fairgate_sim::SimOptions;
/// let options = SimOptions { slots: 4, ..SimOptions::instant() };
/// ```
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Names of the models that the backend serves, at least one. A request for another model gets 404.
    pub models: Vec<String>,
    /// Greatest number of requests in flight at once, at least one. Further requests wait, first come, first served.
    pub slots: usize,
    /// Greatest number of requests that wait for a slot. A further request is refused with 503.
    pub waiting_max: usize,
    /// Time from the moment when a request gets a slot to its first output token, for a prompt without tokens.
    pub prefill_base: Duration,
    /// Time that each uncached input token adds to [`prefill_base`](Self::prefill_base).
    pub prefill_per_token: Duration,
    /// Greatest number of prompts that are prefilled at once. Further requests keep their slots and wait, first come,
    /// first served. `None` prefills as many prompts as there are slots, each at full speed. A GPU is not faster with
    /// two prompts at once than with one after the other, so 1 is the most realistic value.
    pub prefill_at_once: Option<usize>,
    /// Time from one output token to the next. The choices of one request advance together.
    pub decode_per_token: Duration,
    /// Length of an answer, unless the request's own limit is lower.
    pub output_tokens: OutputLength,
    /// Bytes of prompt text per input token.
    pub bytes_per_token: BytesPerToken,
    /// Input tokens for each image in a prompt, independent of its size.
    pub image_tokens: u64,
    /// Greatest number of blocks of [`CACHE_BLOCK_TOKENS`](crate::CACHE_BLOCK_TOKENS) input tokens in the prefix cache.
    /// With 0 there is no prefix cache, and no usage reports cached tokens.
    pub prefix_cache_blocks: usize,
    /// API key that requests must have, as `Authorization: Bearer …` or `x-api-key`; `None` accepts any key, or none.
    pub api_key: Option<ApiKey>,
    /// Account whose limits apply to the requests; `None` for no limits. Several backends may share one account.
    pub account: Option<Arc<SimAccount>>,
    /// Allows requests to steer the backend, with the headers `x-sim-fault` and `x-sim-tokens`, the prompt markers
    /// `[sim:fault=…]` and `[sim:tokens=…]`, and the routes `GET /sim/stats` and `PUT /sim/fault`.
    pub steering: bool,
    /// Largest request body in bytes. A request with a larger body gets 413.
    pub body_bytes_max: usize,
    /// Number of ended requests that [`Sim::stats`](crate::Sim::stats) lists individually.
    pub log_len: usize,
    /// Time that [`Sim::stop`](crate::Sim::stop) waits for requests in flight before it cuts their connections.
    pub stop_grace: Duration,
    /// The way in which requests are answered: like a model, or with as little work as possible for a benchmark.
    pub mode: SimMode,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            models: vec!["sim".to_owned()],
            slots: 8,
            waiting_max: 16_384,
            prefill_base: Duration::from_millis(20),
            prefill_per_token: Duration::from_micros(50),
            prefill_at_once: None,
            decode_per_token: Duration::from_millis(5),
            output_tokens: OutputLength::between(40, 160),
            bytes_per_token: BytesPerToken::default(),
            image_tokens: 85,
            prefix_cache_blocks: 0,
            api_key: None,
            account: None,
            steering: false,
            body_bytes_max: 16 << 20,
            log_len: 256,
            stop_grace: Duration::from_secs(10),
            mode: SimMode::Model,
        }
    }
}

impl SimOptions {
    /// Returns the defaults with all delays set to 0, so that answers come as fast as the machine generates them.
    pub fn instant() -> Self {
        Self {
            prefill_base: Duration::ZERO,
            prefill_per_token: Duration::ZERO,
            decode_per_token: Duration::ZERO,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.models.is_empty() {
            return Err("a simulated backend needs at least one model: name one in `models`");
        }
        if self.slots == 0 || self.slots > tokio::sync::Semaphore::MAX_PERMITS {
            return Err("a simulated backend needs at least one slot: set `slots` to 1 or more");
        }
        if self.prefill_at_once == Some(0) {
            return Err(
                "a simulated backend reads at least one prompt at once: set `prefill_at_once` to 1 or more",
            );
        }
        Ok(())
    }
}

/// The way in which a [`Sim`](crate::Sim) answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimMode {
    /// Parses each request and answers like a model.
    Model,
    /// Answers with prebuilt bytes at once, without parsing JSON, as the upstream of benchmarks. The options for
    /// models, slots, times, keys, limits and faults have no effect.
    Trivial(TrivialOptions),
}

/// Options for the streams of [`SimMode::Trivial`]. A request whose body contains `"stream": true` gets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrivialOptions {
    /// Number of chunks in a stream.
    pub stream_chunks: u32,
    /// Time from one chunk to the next.
    pub chunk_interval: Duration,
}

impl Default for TrivialOptions {
    fn default() -> Self {
        Self { stream_chunks: 16, chunk_interval: Duration::from_millis(5) }
    }
}

/// Range of the length of an answer in tokens, before the request's own limit is applied. The prompt's hash chooses the
/// length from the range, so that the same prompt always gets the same answer. The text form is `100` or `40-160`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLength {
    least: u64,
    most: u64,
}

impl OutputLength {
    /// Creates a range in which every answer has `tokens` tokens; 0 becomes 1.
    pub fn exactly(tokens: u64) -> Self {
        Self::between(tokens, tokens)
    }

    /// Creates a range from `least` to `most`, both included. The two may be in either order, and each is raised to 1
    /// if it is 0.
    pub fn between(least: u64, most: u64) -> Self {
        Self { least: least.min(most).max(1), most: least.max(most).max(1) }
    }

    pub(crate) fn choose(self, hash: u64) -> u64 {
        match (self.most - self.least).checked_add(1) {
            Some(width) => self.least + hash % width,
            None => hash,
        }
    }
}

impl FromStr for OutputLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.trim().parse::<u64>().map_err(|_| {
                format!("`{text}` is not a number of tokens: write one number, or two as 40-160")
            })
        };
        match text.split_once('-') {
            None => number(text).map(Self::exactly),
            Some((least, most)) => Ok(Self::between(number(least)?, number(most)?)),
        }
    }
}

/// Bytes of text per input token, exact to a thousandth. The text form is `4` or `3.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesPerToken {
    thousandths: u64,
}

impl BytesPerToken {
    /// Creates a ratio of `thousandths` ÷ 1000 bytes per token; 0 becomes one thousandth.
    pub fn from_thousandths(thousandths: u32) -> Self {
        Self { thousandths: u64::from(thousandths.max(1)) }
    }

    /// Returns the number of tokens of a text with `bytes` bytes, rounded up.
    pub fn tokens(self, bytes: u64) -> u64 {
        bytes.saturating_mul(1000).div_ceil(self.thousandths)
    }

    /// Returns the number of bytes of a text with `tokens` tokens, rounded up.
    pub(crate) fn bytes(self, tokens: u64) -> u64 {
        tokens.saturating_mul(self.thousandths).div_ceil(1000)
    }
}

impl Default for BytesPerToken {
    fn default() -> Self {
        Self { thousandths: 4000 }
    }
}

impl FromStr for BytesPerToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{decimals:0<3}");
        match digits.parse::<u32>() {
            Ok(thousandths) if thousandths > 0 && decimals.len() <= 3 => {
                Ok(Self::from_thousandths(thousandths))
            }
            _ => Err(format!(
                "`{text}` is not a number of bytes: write one above 0 with at most three decimals, such as 3.5"
            )),
        }
    }
}

/// A secret that requests must have. The `Debug` output hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Creates a key from any text.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(crate) fn matches(&self, candidate: &[u8]) -> bool {
        self.0.as_bytes() == candidate
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_per_token_are_exact_decimals() {
        let rate: BytesPerToken = "3.5".parse().unwrap();
        assert_eq!(rate, BytesPerToken::from_thousandths(3500));
        assert_eq!((rate.tokens(0), rate.tokens(7), rate.tokens(8)), (0, 2, 3));
        assert_eq!("4".parse(), Ok(BytesPerToken::default()));
        for bad in ["0", "", "x", "1.2345", "-4"] {
            assert!(bad.parse::<BytesPerToken>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lengths_stay_in_their_range() {
        let length: OutputLength = "40-160".parse().unwrap();
        assert_eq!((length.choose(0), length.choose(120), length.choose(121)), (40, 160, 40));
        assert_eq!("7".parse::<OutputLength>().unwrap().choose(u64::MAX), 7);
        assert_eq!(OutputLength::between(0, u64::MAX).choose(u64::MAX), 1);
        assert!("many".parse::<OutputLength>().is_err());
    }

    #[test]
    fn a_key_never_shows_itself() {
        let options = SimOptions { api_key: Some(ApiKey::new("hush")), ..SimOptions::default() };
        assert!(!format!("{options:?}").contains("hush"));
    }
}
