//! What a simulated backend is made of, and the one home of its defaults.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::account::Account;

/// How a [`Sim`](crate::Sim) behaves. Take the defaults and change what matters:
///
/// ```
/// # use fairgate_sim::SimOptions;
/// let options = SimOptions { slots: 4, ..SimOptions::instant() };
/// ```
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The models that it serves; a request for another one is answered with 404. At least one.
    pub models: Vec<String>,
    /// Batch slots: how many requests are worked on at once. The rest waits, first come, first served. At least one.
    pub slots: usize,
    /// How many requests may wait for a slot; one more is refused with 503.
    pub waiting_max: usize,
    /// Time from a slot to the first token of a prompt without tokens.
    pub prefill_base: Duration,
    /// What each input token that is not cached adds to that.
    pub prefill_per_token: Duration,
    /// How many prompts are read at once; the others wait with their slots, first come, first served. `None` reads as many as there
    /// are slots, each at its full speed. A GPU that reads one prompt takes no less time for two: 1 is closest to it.
    pub prefill_at_once: Option<usize>,
    /// Time from one output token to the next. The choices of one request advance together.
    pub decode_per_token: Duration,
    /// How long an answer is, unless the request's own limit cuts it short.
    pub output_tokens: OutputLength,
    /// How many bytes of prompt text make one input token.
    pub bytes_per_token: BytesPerToken,
    /// Input tokens for each image in a prompt, whatever its size.
    pub image_tokens: u64,
    /// How many blocks of [`CACHE_BLOCK_TOKENS`](crate::CACHE_BLOCK_TOKENS) input tokens the prefix cache remembers;
    /// 0 turns it off, and then no usage speaks of cached tokens.
    pub prefix_cache_blocks: usize,
    /// The key that requests must carry, as `Authorization: Bearer …` or `x-api-key`; `None` asks for none.
    pub api_key: Option<ApiKey>,
    /// The account whose limits its requests meet; `None` for no limits. Share it to let several backends draw on one.
    pub account: Option<Arc<Account>>,
    /// Whether requests may steer: the headers `x-sim-fault` and `x-sim-tokens`, the prompt markers `[sim:fault=…]` and
    /// `[sim:tokens=…]`, and the routes `GET /sim/stats` and `PUT /sim/fault`.
    pub steering: bool,
    /// The largest request body in bytes; a larger one is answered with 413.
    pub body_bytes_max: usize,
    /// How many ended requests [`Sim::stats`](crate::Sim::stats) remembers one by one.
    pub log_len: usize,
    /// How long [`Sim::stop`](crate::Sim::stop) waits for what flies before it cuts the rest.
    pub stop_grace: Duration,
    /// Whether to answer as a model or as a benchmark's cheapest upstream.
    pub mode: Mode,
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
            mode: Mode::Model,
        }
    }
}

impl SimOptions {
    /// The defaults without any delay: answers come as fast as the machine makes them.
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

/// What a [`Sim`](crate::Sim) does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads it and answers like a model.
    Model,
    /// Answers prebuilt bytes at once, without reading JSON: the upstream of benchmarks. Models, slots, times, keys,
    /// limits and faults do not apply.
    Trivial(TrivialOptions),
}

/// The streams of [`Mode::Trivial`]. A request whose body says `"stream": true` gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrivialOptions {
    /// How many chunks a stream has.
    pub stream_chunks: u32,
    /// The time from one chunk to the next.
    pub chunk_interval: Duration,
}

impl Default for TrivialOptions {
    fn default() -> Self {
        Self { stream_chunks: 16, chunk_interval: Duration::from_millis(5) }
    }
}

/// How many tokens an answer has before its request's limit is applied: chosen from a range by the prompt's hash, so
/// that the same prompt always has the same answer. Read from text as `100` or `40-160`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLength {
    least: u64,
    most: u64,
}

impl OutputLength {
    /// Always `tokens`, but at least one.
    pub fn exactly(tokens: u64) -> Self {
        Self::between(tokens, tokens)
    }

    /// Anything from `least` to `most`, both included; in either order, and at least one.
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

/// How many bytes of text make one input token, exact to a thousandth. Read from text as `4` or `3.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesPerToken {
    thousandths: u64,
}

impl BytesPerToken {
    /// `thousandths` / 1000 bytes for each token, and at least one thousandth.
    pub fn from_thousandths(thousandths: u32) -> Self {
        Self { thousandths: u64::from(thousandths.max(1)) }
    }

    /// The tokens of a text of this many bytes, rounded up.
    pub fn tokens(self, bytes: u64) -> u64 {
        bytes.saturating_mul(1000).div_ceil(self.thousandths)
    }

    /// The bytes of this many tokens, rounded up.
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

/// A secret that requests must know. It never shows itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Keeps the key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(crate) fn is(&self, candidate: &[u8]) -> bool {
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
