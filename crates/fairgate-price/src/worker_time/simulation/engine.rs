//! An engine of known prices, which reads prompts in chunks between the steps of decoding.

use std::collections::VecDeque;
use std::vec::Vec;

use fairgate_random::SeededRng;

use super::super::RequestWork;

/// Times of an engine in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnginePrices {
    pub(super) step: f64,
    pub(super) output: f64,
    pub(super) context: f64,
    pub(super) prompt: f64,
    pub(super) input: f64,
    pub(super) position: f64,
    pub(super) cached: f64,
    /// Tokens of a prompt that are read between two steps.
    pub(super) chunk: u64,
    /// Time of the host, as a part of the engine's own time.
    pub(super) overhead: f64,
    /// Greatest number of requests that the engine decodes at once.
    pub(super) batch_max: usize,
    /// True if a part of a prompt and a step of decoding are one pass, which takes the time of a step once.
    pub(super) is_one_pass: bool,
    /// True if the engine stops for 0.1 to 0.6 s every 3 s.
    pub(super) stalls: bool,
}

/// Prices as measured on an H200.
pub(super) const H200: EnginePrices = EnginePrices {
    step: 2.85,
    output: 0.004,
    context: 2.82e-5,
    prompt: 2.49,
    input: 0.0106,
    position: 1.2e-6,
    cached: 0.0008,
    chunk: 2048,
    overhead: 0.04,
    batch_max: usize::MAX,
    is_one_pass: false,
    stalls: false,
};

impl EnginePrices {
    /// Returns the time in milliseconds of one request of each of these shapes, in a batch of 16.
    pub(super) fn time_of(&self, shapes: &[RequestWork]) -> f64 {
        let time = |work: &RequestWork| {
            let [input, cached, output] = [work.input, work.cached, work.output].map(|n| n as f64);
            let uncached = input - cached;
            let position = uncached * uncached / 2.0 + uncached * cached;
            self.prompt
                + self.input * uncached
                + self.position * position
                + self.cached * cached
                + output * (self.step / 16.0 + self.output + self.context * (input + output / 2.0))
        };
        shapes.iter().map(time).sum()
    }

    /// Draws an engine from the ranges that are usual today.
    pub(super) fn random(rng: &mut SeededRng) -> Self {
        let mut part = || rng.below(1_000_001) as f64 / 1e6;
        let mut between = |low: f64, high: f64| low + part() * (high - low);
        let step = between(2.0, 30.0);
        Self {
            step,
            output: step * between(0.0, 1.0 / 128.0),
            context: step * between(3e-6, 3e-5),
            prompt: step * between(0.5, 0.95),
            input: step / between(80.0, 500.0),
            position: step / between(1.5e6, 6e6),
            cached: step / between(2000.0, 8000.0),
            overhead: between(0.02, 0.05),
            chunk: [512, 1024, 2048, 8192][rng.index(4)],
            batch_max: usize::MAX,
            is_one_pass: false,
            stalls: false,
        }
    }
}

/// A token that a pass has made.
pub(super) struct MadeToken {
    pub(super) request: usize,
    pub(super) is_last: bool,
}

/// A request in the engine.
struct EngineRequest {
    number: usize,
    tenant: usize,
    work: RequestWork,
    arrived_us: u64,
    /// Tokens of the prompt that are read or cached.
    read: u64,
    made: u64,
}

/// An engine with its requests, and the pass that it makes now.
pub(super) struct SimulatedEngine {
    pub(super) prices: EnginePrices,
    prompts: VecDeque<EngineRequest>,
    decoding: Vec<EngineRequest>,
    is_busy: bool,
    next_stall_us: u64,
    /// Tokens of the present pass.
    pub(super) burst: Vec<MadeToken>,
    /// Time of the present pass, by tenant.
    pub(super) spent: Vec<(usize, f64)>,
}

impl SimulatedEngine {
    pub(super) fn new(prices: EnginePrices) -> Self {
        Self {
            prices,
            prompts: VecDeque::new(),
            decoding: Vec::new(),
            is_busy: false,
            next_stall_us: 3_000_000,
            burst: Vec::new(),
            spent: Vec::new(),
        }
    }

    /// Adds a request. Returns true if the engine was idle.
    pub(super) fn arrive(
        &mut self,
        at_us: u64,
        number: usize,
        tenant: usize,
        work: RequestWork,
    ) -> bool {
        let request =
            EngineRequest { number, tenant, work, arrived_us: at_us, read: work.cached, made: 0 };
        self.prompts.push_back(request);
        !self.is_busy
    }

    /// Drops a request whose client has left.
    pub(super) fn leave(&mut self, number: usize) {
        self.prompts.retain(|request| request.number != number);
        self.decoding.retain(|request| request.number != number);
    }

    /// Returns true if the engine has requests and makes no pass.
    pub(super) fn is_idle(&self) -> bool {
        let has_work = !self.prompts.is_empty() || !self.decoding.is_empty();
        has_work && !self.is_busy
    }

    /// Starts a pass: a part of the oldest prompt, then a step of decoding. Returns the time at which the pass ends;
    /// `None` if there is nothing to do.
    pub(super) fn start_pass(&mut self, now_us: u64, rng: &mut SeededRng) -> Option<u64> {
        let (mut read, has_first_token) = self.read_prompt(now_us);
        let mut step = self.prices.step;
        if self.prices.is_one_pass && read > 0.0 {
            // The time that both share is divided by Shapley's value, which gives half of it to each.
            let of_prompt = if self.decoding.is_empty() { step } else { step / 2.0 };
            self.spent.extend(self.prompts.front().map(|prompt| (prompt.tenant, of_prompt)));
            read += of_prompt;
            step -= of_prompt;
        }
        let length = read + self.decode(step);
        if has_first_token && let Some(request) = self.prompts.pop_front() {
            self.make_token(request);
        }
        self.is_busy = length > 0.0;
        if !self.is_busy {
            return None;
        }
        let mut end_us = now_us + (1000.0 * length * (1.0 + self.prices.overhead)) as u64;
        if self.prices.stalls && end_us >= self.next_stall_us {
            end_us += rng.range(100_000..=600_000);
            self.next_stall_us = end_us + 3_000_000;
        }
        Some(end_us)
    }

    /// Reads a part of the oldest prompt. Returns the time that this takes, and true if the prompt is read to its end.
    fn read_prompt(&mut self, now_us: u64) -> (f64, bool) {
        let prices = self.prices;
        let has_room = self.decoding.len() < prices.batch_max;
        let next = self.prompts.front_mut().filter(|next| next.arrived_us <= now_us && has_room);
        let Some(next) = next else { return (0.0, false) };
        let mut time = 0.0;
        if next.read == next.work.cached {
            time += prices.prompt + prices.cached * next.work.cached as f64;
        }
        let tokens = (next.work.input - next.read).min(prices.chunk);
        let (part, before) = (tokens as f64, next.read as f64);
        time += prices.input * part + prices.position * (part * part / 2.0 + part * before);
        next.read += tokens;
        self.spent.push((next.tenant, time));
        (time, next.read == next.work.input)
    }

    /// Decodes one token of each request that has begun, in a step that takes `step` milliseconds by itself. Returns
    /// the time of all in milliseconds.
    fn decode(&mut self, step: f64) -> f64 {
        let prices = self.prices;
        let part = step / self.decoding.len().max(1) as f64;
        let mut length = 0.0;
        for request in core::mem::take(&mut self.decoding) {
            let context = (request.work.input + request.made) as f64;
            let time = part + prices.output + prices.context * context;
            self.spent.push((request.tenant, time));
            length += time;
            self.make_token(request);
        }
        length
    }

    fn make_token(&mut self, mut request: EngineRequest) {
        request.made += 1;
        let is_last = request.made == request.work.output;
        self.burst.push(MadeToken { request: request.number, is_last });
        if !is_last {
            self.decoding.push(request);
        }
    }
}
