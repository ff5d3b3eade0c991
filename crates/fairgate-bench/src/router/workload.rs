//! What is asked: recorded conversations at their times, or agents that go on as soon as they are answered.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use fairgate_testkit::workload::Rng;
use serde_json::{Value, json};

/// The tokens of one of the trace's blocks, and what they become: prompts are an eighth as long.
const TRACE_BLOCK_TOKENS: u64 = 512;
pub(crate) const BLOCK_TOKENS: u64 = 64;
const BYTES_PER_TOKEN: usize = 4;
/// How much faster the trace runs.
const TRACE_SPEED: u64 = 24;
/// The trace has its arrivals on a grid of so many milliseconds; each batch is spread over it.
const TRACE_GRID_MS: u64 = 3000;

/// The agents: a few kinds, each with its system prompt; a session goes on for some turns.
const AGENT_KINDS: u64 = 4;
const SYSTEM_TOKENS: usize = 1000;
const TURNS: usize = 10;
const ANSWER_TOKENS: usize = 20;
/// How many sessions go on at once, for each worker.
pub(crate) const SESSIONS_PER_WORKER: usize = 5;

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) time: Duration,
    pub(crate) kind: Kind,
    /// Input tokens a second if nothing is cached, which the workers are made for.
    pub(crate) tokens_per_second: f64,
    /// The part of all input tokens that one cache for all workers, which forgets nothing, would save; where it is known in
    /// advance.
    pub(crate) repeated: Option<f64>,
    /// The tokens of all different prefixes: what a cache would need to keep everything.
    pub(crate) distinct_tokens: u64,
}

pub(crate) enum Kind {
    /// Requests at their times.
    Conversations(Vec<Conversation>),
    /// As many sessions as fit, each from a seed.
    Agents,
}

/// One request of the trace.
pub(crate) struct Conversation {
    pub(crate) at: Duration,
    pub(crate) tokens: u64,
    pub(crate) blocks: Vec<u64>,
}

impl Workload {
    /// The beginning of a trace, shortened and sped up.
    pub(crate) fn conversations(trace: &Path, time: Duration) -> Result<Self> {
        let file = File::open(trace).with_context(|| trace.display().to_string())?;
        let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
        let mut requests: Vec<Conversation> = Vec::new();
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
            requests.push(Conversation { at: Duration::from_millis(at_ms), tokens, blocks });
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
            kind: Kind::Conversations(requests),
        })
    }

    /// Sessions with a growing history.
    pub(crate) fn agents(time: Duration) -> Self {
        let mean = (SYSTEM_TOKENS + TURNS / 2 * 320) as f64;
        // About as many requests a second as the conversations have, and as much that differs.
        let requests_per_second = 40.0;
        let distinct = requests_per_second * time.as_secs_f64() * 340.0;
        Self {
            name: "agents",
            time,
            kind: Kind::Agents,
            tokens_per_second: requests_per_second * mean,
            repeated: None,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
            distinct_tokens: distinct as u64,
        }
    }
}

/// The part of all tokens that earlier requests had at their beginnings too.
fn repeated(requests: &[Conversation]) -> f64 {
    let (mut seen, mut shared, mut all) = (HashSet::<u64>::new(), 0_u64, 0_u64);
    for request in requests {
        let known = request.blocks.iter().take_while(|block| seen.contains(*block)).count();
        shared += (known as u64 * BLOCK_TOKENS).min(request.tokens);
        all += request.tokens;
        seen.extend(&request.blocks);
    }
    shared as f64 / all.max(1) as f64
}

/// Spreads each batch of the grid evenly, and makes all times shorter.
fn spread(requests: &mut [Conversation]) {
    for batch in requests.chunk_by_mut(|one, two| one.at == two.at) {
        let count = batch.len() as u64;
        for (number, request) in batch.iter_mut().enumerate() {
            let later = Duration::from_millis(TRACE_GRID_MS * number as u64 / count);
            request.at = (request.at + later) / u32::try_from(TRACE_SPEED).unwrap_or(1);
        }
    }
}

impl Conversation {
    /// The body: a block's text depends on its id alone, so that equal ids are equal text.
    pub(crate) fn body(&self) -> String {
        let mut text = String::new();
        for &block in &self.blocks {
            text += &words(block, BLOCK_TOKENS);
        }
        text.truncate(usize::try_from(self.tokens).unwrap_or(0).max(1) * BYTES_PER_TOKEN);
        body(&[json!({"role": "user", "content": text})])
    }
}

/// One agent's history.
pub(crate) struct Session {
    rng: Rng,
    messages: Vec<Value>,
    turns: usize,
}

impl Session {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = rng.range(0..=AGENT_KINDS - 1);
        let system = words(1 << 60 | kind, SYSTEM_TOKENS as u64);
        Self { rng, messages: vec![json!({"role": "system", "content": system})], turns: 0 }
    }

    /// The next turn's body: a tool's result after the last answer. `None` where the session is over.
    pub(crate) fn turn(&mut self) -> Option<String> {
        if self.turns == TURNS {
            return None;
        }
        if self.turns > 0 {
            let answer = words(self.rng.next_u64(), ANSWER_TOKENS as u64);
            self.messages.push(json!({"role": "assistant", "content": answer}));
        }
        let tokens = self.rng.range(100..=500);
        let result = words(self.rng.next_u64(), tokens);
        self.messages.push(json!({"role": "user", "content": result}));
        self.turns += 1;
        Some(body(&self.messages))
    }

    /// How long the agent works before its next turn.
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

/// Text of so many tokens that follows from a number.
fn words(seed: u64, tokens: u64) -> String {
    let mut rng = Rng::new(seed);
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
            |ms| Conversation { at: Duration::from_millis(ms), tokens: 1, blocks: vec![] };
        let mut requests = [request(0), request(0), request(0), request(3000)];
        spread(&mut requests);
        let times = requests.map(|request| request.at.as_micros() * u128::from(TRACE_SPEED) / 1000);
        assert_eq!(times.map(|time| time.next_multiple_of(1000)), [0, 1000, 2000, 3000]);
    }

    #[test]
    fn equal_blocks_are_equal_text_and_turns_extend_each_other() {
        let one = Conversation { at: Duration::ZERO, tokens: 100, blocks: vec![7, 8] };
        let two = Conversation { at: Duration::ZERO, tokens: 120, blocks: vec![7, 9] };
        let shared = one.body().bytes().zip(two.body().bytes()).take_while(|(a, b)| a == b).count();
        assert!((256..400).contains(&shared), "{shared}");
        let mut session = Session::new(3);
        let turns: Vec<String> = std::iter::from_fn(|| session.turn()).collect();
        assert_eq!(turns.len(), TURNS);
        for pair in turns.windows(2) {
            let history =
                pair[0].split("\"messages\":[").nth(1).and_then(|text| text.split("],").next());
            assert!(pair[1].contains(history.unwrap()));
        }
    }
}
