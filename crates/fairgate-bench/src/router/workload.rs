//! The workloads: recorded conversations that are sent at their recorded times, and agents that
//! send the next request after each answer.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use fairgate_testkit::workload::SeededRng;
use serde_json::{Value, json};

use super::prompt::{BlockPrompt, SeededText};

/// Number of tokens of one block in the trace. Each block is replaced by an eighth of that,
/// [`BLOCK_TOKENS`] tokens.
const TRACE_BLOCK_TOKENS: u64 = 512;
pub(crate) const BLOCK_TOKENS: u64 = 64;
const BYTES_PER_TOKEN: usize = 4;
/// Divisor of the recorded times of the trace, so that the run is shorter than the recording.
const TRACE_SPEED: u64 = 24;
/// Interval between the recorded arrival times of the trace, in milliseconds. Requests with the
/// same time are spread evenly over this interval.
const TRACE_GRID_MS: u64 = 3000;

/// Number of kinds of agents. All agents of a kind have the same system prompt.
const AGENT_KINDS: u64 = 4;
const SYSTEM_TOKENS: u64 = 1000;
const TURNS: u64 = 10;
/// Length of every answer, in tokens.
pub(crate) const ANSWER_TOKENS: u64 = 20;
/// Number of sessions that run in parallel, per worker.
pub(crate) const SESSIONS_PER_WORKER: usize = 5;

pub(crate) struct RouterWorkload {
    pub(crate) name: &'static str,
    pub(crate) time: Duration,
    pub(crate) kind: WorkloadKind,
    /// Expected number of input tokens per second, cached or not. The workers' speed is derived
    /// from this number.
    pub(crate) tokens_per_second: f64,
    /// Fraction (0 to 1) of all input tokens that one unlimited cache shared by all workers would
    /// save; `None` if it is not known in advance.
    pub(crate) repeated: Option<f64>,
    /// Number of tokens in all distinct prefixes, which is the size of a cache that keeps all of
    /// them.
    pub(crate) distinct_tokens: u64,
}

pub(crate) enum WorkloadKind {
    /// Recorded requests, each sent at its recorded time.
    Conversations(Vec<TraceRequest>),
    /// Sessions that are generated from seeds, as many as fit into the time of the run.
    Agents,
}

/// One recorded request of the trace.
pub(crate) struct TraceRequest {
    pub(crate) at: Duration,
    pub(crate) tokens: u64,
    pub(crate) blocks: Vec<u64>,
}

impl RouterWorkload {
    /// Reads the requests of the trace that fall into `time` after the trace is sped up, with
    /// shortened prompts.
    pub(crate) fn conversations(trace: &Path, time: Duration) -> Result<Self> {
        let file = File::open(trace).with_context(|| trace.display().to_string())?;
        let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
        let mut requests: Vec<TraceRequest> = Vec::new();
        let last_ms = u64::try_from(time.as_millis())? * TRACE_SPEED;
        for line in lines {
            let line: Value = serde_json::from_str(&line?)?;
            let number = |name: &str| line[name].as_u64().with_context(|| format!("no {name}"));
            let at_ms = number("timestamp")?;
            if at_ms >= last_ms {
                break;
            }
            let blocks = line["hash_ids"].as_array().context("no hash_ids")?;
            let blocks = blocks.iter().filter_map(Value::as_u64).collect();
            let tokens = number("input_length")? * BLOCK_TOKENS / TRACE_BLOCK_TOKENS;
            requests.push(TraceRequest { at: Duration::from_millis(at_ms), tokens, blocks });
        }
        spread(&mut requests);
        let tokens: u64 = requests.iter().map(|request| request.tokens).sum();
        let distinct: HashSet<u64> =
            requests.iter().flat_map(|request| &request.blocks).copied().collect();
        Ok(Self {
            name: "conversations",
            time,
            tokens_per_second: tokens as f64 / time.as_secs_f64(),
            repeated: Some(repeated(&requests)),
            distinct_tokens: distinct.len() as u64 * BLOCK_TOKENS,
            kind: WorkloadKind::Conversations(requests),
        })
    }

    /// Returns the workload of agents, whose sessions have a growing history.
    pub(crate) fn agents(time: Duration) -> Self {
        let mean = (SYSTEM_TOKENS + TURNS / 2 * 320) as f64;
        // There are about as many requests per second as in the conversations, and as many distinct
        // tokens.
        let requests_per_second = 40.0;
        let distinct = requests_per_second * time.as_secs_f64() * 340.0;
        Self {
            name: "agents",
            time,
            kind: WorkloadKind::Agents,
            tokens_per_second: requests_per_second * mean,
            repeated: None,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
            distinct_tokens: distinct as u64,
        }
    }
}

/// Returns the fraction (0 to 1) of all input tokens that repeat the beginning of an earlier
/// request.
fn repeated(requests: &[TraceRequest]) -> f64 {
    let (mut seen, mut shared, mut all) = (HashSet::<u64>::new(), 0_u64, 0_u64);
    for request in requests {
        let known = request.blocks.iter().take_while(|block| seen.contains(*block)).count();
        shared += (known as u64 * BLOCK_TOKENS).min(request.tokens);
        all += request.tokens;
        seen.extend(&request.blocks);
    }
    shared as f64 / all.max(1) as f64
}

/// Spreads the requests with equal recorded times evenly over the interval between recorded times,
/// and divides all times by [`TRACE_SPEED`].
fn spread(requests: &mut [TraceRequest]) {
    for batch in requests.chunk_by_mut(|one, two| one.at == two.at) {
        let count = batch.len() as u64;
        for (number, request) in batch.iter_mut().enumerate() {
            let later = Duration::from_millis(TRACE_GRID_MS * number as u64 / count);
            request.at = (request.at + later) / u32::try_from(TRACE_SPEED).unwrap_or(1);
        }
    }
}

impl TraceRequest {
    /// Returns the prompt without its text.
    pub(crate) fn prompt(&self) -> BlockPrompt {
        let mut left = self.tokens;
        BlockPrompt::of(self.blocks.iter().map(|&seed| {
            let tokens = left.min(BLOCK_TOKENS);
            left -= tokens;
            SeededText { seed, tokens }
        }))
    }

    /// Builds the HTTP body. The text of a block depends only on its id, so that equal ids give
    /// equal texts.
    pub(crate) fn body(&self) -> String {
        let mut text = String::new();
        for &block in &self.blocks {
            text += &words(block, BLOCK_TOKENS);
        }
        text.truncate(usize::try_from(self.tokens).unwrap_or(0).max(1) * BYTES_PER_TOKEN);
        body(&[json!({"role": "user", "content": text})])
    }
}

/// The history of one agent's session.
pub(crate) struct AgentSession {
    rng: SeededRng,
    messages: Vec<(&'static str, SeededText)>,
    turns: u64,
}

impl AgentSession {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let kind = rng.range(0..=AGENT_KINDS - 1);
        let system = SeededText { seed: 1 << 60 | kind, tokens: SYSTEM_TOKENS };
        Self { rng, messages: vec![("system", system)], turns: 0 }
    }

    /// Advances to the next turn, which appends a tool's result after the last answer. Returns
    /// false if the session is over.
    pub(crate) fn next_turn(&mut self) -> bool {
        if self.turns == TURNS {
            return false;
        }
        if self.turns > 0 {
            let answer = SeededText { seed: self.rng.next_u64(), tokens: ANSWER_TOKENS };
            self.messages.push(("assistant", answer));
        }
        let tokens = self.rng.range(100..=500);
        self.messages.push(("user", SeededText { seed: self.rng.next_u64(), tokens }));
        self.turns += 1;
        true
    }

    /// Advances to the next turn and returns its HTTP body; `None` if the session is over.
    pub(crate) fn turn(&mut self) -> Option<String> {
        self.next_turn().then(|| {
            let message = |(role, text): &(&str, SeededText)| json!({"role": role, "content": words(text.seed, text.tokens)});
            body(&self.messages.iter().map(message).collect::<Vec<Value>>())
        })
    }

    /// Returns the prompt of the current turn, without its text.
    pub(crate) fn prompt(&self) -> BlockPrompt {
        BlockPrompt::of(self.messages.iter().map(|(_, text)| *text))
    }

    /// Draws the time that the agent works before its next turn.
    pub(crate) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.rng.range(0..=600))
    }
}

fn body(messages: &[Value]) -> String {
    let options = json!({"include_usage": true});
    json!({
        "model": "bench", "max_tokens": ANSWER_TOKENS, "stream": true, "stream_options": options, "messages": messages,
    })
    .to_string()
}

/// Generates pseudo-random text of the given number of tokens from a seed.
fn words(seed: u64, tokens: u64) -> String {
    let mut rng = SeededRng::new(seed);
    let mut text = String::new();
    for _ in 0..tokens.div_ceil(4) {
        text += &format!("{:015x} ", rng.next_u64() >> 4);
    }
    text.truncate(usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_spread_over_its_grid() {
        let request =
            |ms| TraceRequest { at: Duration::from_millis(ms), tokens: 1, blocks: vec![] };
        let mut requests = [request(0), request(0), request(0), request(3000)];
        spread(&mut requests);
        let times = requests.map(|request| request.at.as_micros() * u128::from(TRACE_SPEED) / 1000);
        assert_eq!(times.map(|time| time.next_multiple_of(1000)), [0, 1000, 2000, 3000]);
    }

    #[test]
    fn equal_blocks_are_equal_text_and_turns_extend_each_other() {
        let one = TraceRequest { at: Duration::ZERO, tokens: 100, blocks: vec![7, 8] };
        let two = TraceRequest { at: Duration::ZERO, tokens: 120, blocks: vec![7, 9] };
        let shared = one.body().bytes().zip(two.body().bytes()).take_while(|(a, b)| a == b).count();
        assert!((256..400).contains(&shared), "{shared}");
        let mut session = AgentSession::new(3);
        let turns: Vec<String> = std::iter::from_fn(|| session.turn()).collect();
        assert_eq!(turns.len() as u64, TURNS);
        for pair in turns.windows(2) {
            let history =
                pair[0].split("\"messages\":[").nth(1).and_then(|text| text.split("],").next());
            assert!(pair[1].contains(history.unwrap()));
        }
    }
}
