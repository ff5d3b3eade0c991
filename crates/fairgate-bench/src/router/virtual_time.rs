//! Runs of both workloads in virtual time, to compare placement rules. Virtual time here means a simulation with its
//! own clock, without HTTP.
//!
//! The workers behave as those of the testbed. Each prefills one prompt at a time, in the order of
//! arrival, and its cache evicts the least recently used blocks. Agents send their next request
//! after each answer, as the testbed's clients do. A rule either sees the real contents of all
//! caches, so that results differ only by the rules, or is informed by a prefix index, as in the
//! gateway.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use fairgate_core::units::Micros;
use fairgate_prefix::{
    CacheIdentity, CacheReport, PrefixIndex, PrefixRoute, PromptChain, PromptChainBuilder,
    SecretKey,
};
use fairgate_sim::CACHE_BLOCK_TOKENS;

use super::placement::{PlacedRequest, PlacementRule, RequestPlacer};
use super::prompt::BlockPrompt;
use super::testbed::{DECODE_PER_TOKEN, WorkerSetup};
use super::workload::{
    ANSWER_TOKENS, AgentSession, RouterWorkload, SESSIONS_PER_WORKER, WorkloadKind,
};

/// The source from which a rule learns what the workers have cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheKnowledge {
    /// The real contents of the caches.
    Caches,
    /// A prefix index that assumes that each cache is `stated` times as large as it is.
    Index { stated: u64 },
}

/// Number of runs of the agents' workload, each with different sessions. An agent's next request
/// depends on the time of its last answer, so the result of a single run is partly chance.
pub(crate) const AGENT_RUNS: u64 = 10;

/// Result of one rule, over all runs of a workload.
pub(crate) struct RuleOutcome {
    /// Fraction (0 to 1) of all input tokens that was cached.
    pub(crate) saved: f64,
    /// Prefill tokens of the worker that has the most, divided by the mean over all workers; the
    /// mean of that ratio over the runs.
    pub(crate) imbalance: f64,
    /// The imbalance of each worker's sum over all runs. It shows whether the rule prefers a
    /// certain worker, because an imbalance that favours different workers in different runs
    /// cancels out.
    pub(crate) imbalance_over_all: f64,
    /// Slot time of the worker that has the most, divided by the mean over all workers; the mean of
    /// that ratio over the runs. Slot time is the time from sending a request to the end of its
    /// answer, with queueing at the worker, prefill and decode.
    pub(crate) slot_time_imbalance: f64,
    /// Time to the first token of each request of all runs, sorted.
    first_tokens: Vec<Duration>,
}

impl RuleOutcome {
    pub(crate) fn first_token_ms(&self, percent: usize) -> f64 {
        let index = self.first_tokens.len() * percent / 100;
        self.first_tokens.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Runs a workload by one rule in virtual time.
pub(crate) fn run(
    workload: &RouterWorkload,
    size: &WorkerSetup,
    rule: PlacementRule,
    knowledge: CacheKnowledge,
) -> RuleOutcome {
    let runs = match workload.kind {
        WorkloadKind::Conversations(_) => 1,
        WorkloadKind::Agents => AGENT_RUNS,
    };
    outcome((0..runs).map(|number| run_once(workload, size, rule, knowledge, number)))
}

fn run_once(
    workload: &RouterWorkload,
    size: &WorkerSetup,
    rule: PlacementRule,
    knowledge: CacheKnowledge,
    number: u64,
) -> VirtualRun {
    let mut run = VirtualRun {
        placer: rule.placer(size.workers),
        per_token: size.per_token,
        workers: (0..size.workers).map(|_| VirtualWorker::new(size)).collect(),
        beliefs: CacheBeliefs::new(knowledge, size),
        requests: Vec::new(),
        events: BinaryHeap::new(),
        scheduled: 0,
        sessions: Vec::new(),
        end: workload.time,
    };
    match &workload.kind {
        WorkloadKind::Conversations(conversations) => {
            for conversation in conversations {
                run.arrive_at(conversation.at, conversation.prompt(), None);
            }
        }
        WorkloadKind::Agents => {
            for agent in 0..size.workers * SESSIONS_PER_WORKER {
                // The first run has the same sessions as the run over HTTP.
                run.sessions.push(AgentSessions::new(number << 16 | agent as u64));
                run.next_turn(agent, Duration::ZERO);
            }
        }
    }
    while let Some(Reverse((at, _, event))) = run.events.pop() {
        run.handle(at, event);
    }
    run
}

fn outcome(runs: impl Iterator<Item = VirtualRun>) -> RuleOutcome {
    let (mut all, mut read) = (0, Vec::new());
    let (mut imbalances, mut of_slot_times) = (Vec::new(), Vec::new());
    let mut first_tokens: Vec<Duration> = Vec::new();
    for run in runs {
        all += run.requests.iter().map(|request| request.prompt.tokens).sum::<u64>();
        let took = run.requests.iter().map(|request| request.first_token - request.came);
        first_tokens.extend(took);
        read.resize(run.workers.len(), 0);
        let own: Vec<u64> = run.workers.iter().map(|worker| worker.read_tokens).collect();
        read.iter_mut().zip(&own).for_each(|(sum, tokens)| *sum += tokens);
        imbalances.push(imbalance(&own));
        let slot_times: Vec<u64> = run.workers.iter().map(|worker| worker.slot_time_us).collect();
        of_slot_times.push(imbalance(&slot_times));
    }
    first_tokens.sort_unstable();
    RuleOutcome {
        saved: 1.0 - read.iter().sum::<u64>() as f64 / all.max(1) as f64,
        imbalance: mean(&imbalances),
        imbalance_over_all: imbalance(&read),
        slot_time_imbalance: mean(&of_slot_times),
        first_tokens,
    }
}

/// Returns the largest value divided by the mean.
fn imbalance(of_workers: &[u64]) -> f64 {
    let (sum, most) = (of_workers.iter().sum::<u64>(), of_workers.iter().max().copied());
    (most.unwrap_or_default() * of_workers.len() as u64) as f64 / sum.max(1) as f64
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

struct VirtualRun {
    placer: Box<dyn RequestPlacer>,
    per_token: Duration,
    workers: Vec<VirtualWorker>,
    beliefs: CacheBeliefs,
    requests: Vec<VirtualRequest>,
    /// Pending events, ordered by time and then by the order in which they were scheduled.
    events: BinaryHeap<Reverse<(Duration, u64, VirtualEvent)>>,
    scheduled: u64,
    sessions: Vec<AgentSessions>,
    end: Duration,
}

struct VirtualRequest {
    prompt: BlockPrompt,
    came: Duration,
    agent: Option<usize>,
    first_token: Duration,
    cached: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VirtualEvent {
    Arrival(usize),
    FirstToken(usize),
    End(usize),
}

/// The sessions that one agent runs one after another. Their seeds are the same as over HTTP.
struct AgentSessions {
    agent: u64,
    number: u64,
    session: AgentSession,
}

impl AgentSessions {
    fn new(agent: u64) -> Self {
        Self { agent, number: 0, session: AgentSession::new(agent << 32) }
    }

    /// Advances to the next turn and returns its prompt. If the current session is over, starts the
    /// next session.
    fn turn(&mut self) -> BlockPrompt {
        loop {
            if self.session.next_turn() {
                return self.session.prompt();
            }
            self.number += 1;
            self.session = AgentSession::new(self.agent << 32 | self.number);
        }
    }
}

impl VirtualRun {
    fn schedule(&mut self, at: Duration, event: VirtualEvent) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    fn arrive_at(&mut self, came: Duration, prompt: BlockPrompt, agent: Option<usize>) {
        let id = self.requests.len();
        let first_token = Duration::ZERO;
        self.requests.push(VirtualRequest { prompt, came, agent, first_token, cached: 0 });
        self.schedule(came, VirtualEvent::Arrival(id));
    }

    fn next_turn(&mut self, agent: usize, at: Duration) {
        let prompt = self.sessions[agent].turn();
        self.arrive_at(at, prompt, Some(agent));
    }

    fn handle(&mut self, at: Duration, event: VirtualEvent) {
        let now = micros(at);
        let placed = match event {
            VirtualEvent::Arrival(id) => {
                let prompt = &self.requests[id].prompt;
                let cached = self.beliefs.cached(id, prompt, &self.workers);
                self.placer.submit(now, id, prompt.tokens, &cached)
            }
            VirtualEvent::FirstToken(id) => self.placer.first_token(now, id),
            VirtualEvent::End(id) => {
                let request = &self.requests[id];
                self.beliefs.answered(id, &request.prompt, request.cached);
                let placed = self.placer.end(now, id);
                if let Some(agent) = self.requests[id].agent.filter(|_| at < self.end) {
                    let pause = self.sessions[agent].session.pause();
                    self.next_turn(agent, at + pause);
                }
                placed
            }
        };
        for placed in placed {
            self.send(at, placed);
        }
    }

    fn send(&mut self, at: Duration, (id, place): PlacedRequest) {
        self.beliefs.sent(id, place);
        let (request, worker) = (&mut self.requests[id], &mut self.workers[place]);
        // The last token is never cached, because the first output token is computed from it.
        request.cached =
            worker.cached(&request.prompt).min(request.prompt.tokens.saturating_sub(1));
        let tokens = request.prompt.tokens - request.cached;
        let reading = self.per_token * u32::try_from(tokens).unwrap_or(u32::MAX);
        worker.free_at = worker.free_at.max(at) + reading;
        worker.read_tokens += tokens;
        worker.cache.use_all(&request.prompt.blocks);
        request.first_token = worker.free_at;
        let first = worker.free_at;
        let rest = DECODE_PER_TOKEN * u32::try_from(ANSWER_TOKENS - 1).unwrap_or(u32::MAX);
        worker.slot_time_us += micros(first + rest - at).0;
        self.schedule(first, VirtualEvent::FirstToken(id));
        self.schedule(first + rest, VirtualEvent::End(id));
    }
}

fn micros(time: Duration) -> Micros {
    Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

struct VirtualWorker {
    cache: LruBlockCache,
    free_at: Duration,
    read_tokens: u64,
    slot_time_us: u64,
}

impl VirtualWorker {
    fn new(size: &WorkerSetup) -> Self {
        let cache = LruBlockCache::new(size.cache_tokens / CACHE_BLOCK_TOKENS);
        Self { cache, free_at: Duration::ZERO, read_tokens: 0, slot_time_us: 0 }
    }

    fn cached(&self, prompt: &BlockPrompt) -> u64 {
        let known = prompt.blocks.iter().take_while(|block| self.cache.has(**block)).count();
        known as u64 * CACHE_BLOCK_TOKENS
    }
}

/// The state of the source from which a rule learns what the workers have cached.
enum CacheBeliefs {
    Caches,
    Index(Box<IndexedBeliefs>),
}

struct IndexedBeliefs {
    index: PrefixIndex,
    workers: Vec<fairgate_prefix::PrefixWorker>,
    asked: HashMap<usize, (PromptChain, Option<PrefixRoute>)>,
}

impl CacheBeliefs {
    fn new(knowledge: CacheKnowledge, size: &WorkerSetup) -> Self {
        let CacheKnowledge::Index { stated } = knowledge else { return Self::Caches };
        let mut index = PrefixIndex::new(usize::MAX);
        let workers = (0..size.workers).map(|_| index.add(size.cache_tokens * stated)).collect();
        Self::Index(Box::new(IndexedBeliefs { index, workers, asked: HashMap::new() }))
    }

    fn cached(&mut self, id: usize, prompt: &BlockPrompt, workers: &[VirtualWorker]) -> Vec<u64> {
        match self {
            Self::Caches => workers.iter().map(|worker| worker.cached(prompt)).collect(),
            Self::Index(indexed) => {
                let chain = chain(prompt);
                let overlap = indexed.index.overlap(&chain);
                let cached = indexed.workers.iter().map(|worker| overlap.tokens(*worker)).collect();
                indexed.asked.insert(id, (chain, None));
                cached
            }
        }
    }

    fn sent(&mut self, id: usize, place: usize) {
        let Self::Index(indexed) = self else { return };
        if let Some((chain, route)) = indexed.asked.get_mut(&id) {
            *route = indexed.index.routed(indexed.workers[place], chain);
        }
    }

    fn answered(&mut self, id: usize, prompt: &BlockPrompt, cached_tokens: u64) {
        let Self::Index(indexed) = self else { return };
        if let Some((chain, Some(route))) = indexed.asked.remove(&id) {
            let report = CacheReport { input_tokens: prompt.tokens, cached_tokens, origin: 0 };
            indexed.index.observed(&route, &chain, report);
        }
    }
}

/// Builds the chain of hashes that the gateway would build for the prompt's text. The text has 4
/// bytes per token and is derived from the prompt's block hashes.
fn chain(prompt: &BlockPrompt) -> PromptChain {
    const KEY: SecretKey = SecretKey::new([7; 16]);
    let mut builder =
        PromptChainBuilder::new(KEY, CacheIdentity { model: "bench", ..CacheIdentity::default() });
    let mut left = prompt.tokens * 4;
    for block in &prompt.blocks {
        let bytes = CACHE_BLOCK_TOKENS * 4;
        builder.text(&block.to_le_bytes().repeat(usize::try_from(bytes / 8).unwrap_or(0)));
        left -= bytes;
    }
    builder.text(&vec![0; usize::try_from(left).unwrap_or(0)]);
    builder.finish(prompt.tokens)
}

/// A cache of blocks that evicts the least recently used block.
struct LruBlockCache {
    capacity: u64,
    clock: u64,
    used_at: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl LruBlockCache {
    fn new(capacity: u64) -> Self {
        Self { capacity, clock: 0, used_at: HashMap::new(), by_use: BTreeMap::new() }
    }

    fn has(&self, block: u64) -> bool {
        self.used_at.contains_key(&block)
    }

    /// Marks blocks as used, in reverse order, so that the last block is evicted first. A later
    /// block is useless without the blocks before it.
    fn use_all(&mut self, blocks: &[u64]) {
        for &block in blocks.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used_at.insert(block, self.clock) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.clock, block);
        }
        while self.used_at.len() as u64 > self.capacity {
            let Some((_, block)) = self.by_use.pop_first() else { break };
            self.used_at.remove(&block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{BLOCK_TOKENS, TraceRequest};
    use super::*;

    fn workload(requests: impl Iterator<Item = (u64, Vec<u64>)>) -> RouterWorkload {
        let request = |(at_ms, blocks): (u64, Vec<u64>)| {
            let tokens = blocks.len() as u64 * BLOCK_TOKENS;
            TraceRequest { at: Duration::from_millis(at_ms), tokens, blocks }
        };
        RouterWorkload {
            name: "test",
            time: Duration::from_secs(30),
            kind: WorkloadKind::Conversations(requests.map(request).collect()),
            tokens_per_second: 1.0,
            repeated: None,
            distinct_tokens: 0,
        }
    }

    fn place(
        workload: &RouterWorkload,
        rule: PlacementRule,
        knowledge: CacheKnowledge,
    ) -> RuleOutcome {
        let per_token = Duration::from_micros(10);
        let size = WorkerSetup { workers: 4, cache_tokens: 4 * BLOCK_TOKENS, per_token };
        run(workload, &size, rule, knowledge)
    }

    #[test]
    fn a_cache_forgets_the_ends_of_what_was_used_longest_ago() {
        let mut cache = LruBlockCache::new(3);
        cache.use_all(&[1, 2]);
        cache.use_all(&[3, 4]);
        assert_eq!([1, 2, 3, 4].map(|block| cache.has(block)), [true, false, true, true]);
    }

    #[test]
    fn ties_decide_where_new_prompts_go() {
        // Far apart, so that nobody has anything to read.
        let new = workload((0..8).map(|n| (n * 1000, vec![2 * n, 2 * n + 1])));
        let first = place(&new, PlacementRule::SecondEdition, CacheKnowledge::Caches);
        assert!((first.imbalance - 4.0).abs() < 1e-9, "{}", first.imbalance);
        assert!((first.slot_time_imbalance - 4.0).abs() < 1e-9, "one worker is in use");
        // Asked again, only four caches together have them all.
        let again = workload((0..16).map(|n| (n * 1000, vec![n % 8 * 2, n % 8 * 2 + 1])));
        assert!(place(&again, PlacementRule::SecondEdition, CacheKnowledge::Caches).saved < 0.01);
        for rule in [PlacementRule::LeastToReadTiesByTurns, PlacementRule::Core] {
            for knowledge in [CacheKnowledge::Caches, CacheKnowledge::Index { stated: 1 }] {
                let turns = place(&new, rule, knowledge);
                assert!((turns.imbalance - 1.0).abs() < 1e-9, "{rule:?} {}", turns.imbalance);
                let saved = place(&again, rule, knowledge).saved;
                assert!((0.49..=0.5).contains(&saved), "{rule:?}: {saved}");
            }
        }
    }

    #[test]
    fn the_most_cached_waits_where_the_least_to_read_does_not() {
        let hot = workload((0..8).map(|n| (0, vec![1, 2, 3, 100 + n])));
        let cached = place(&hot, PlacementRule::MostCached, CacheKnowledge::Caches);
        let least = place(&hot, PlacementRule::SecondEdition, CacheKnowledge::Caches);
        assert!(cached.saved > least.saved);
        assert!(cached.first_token_ms(99) > least.first_token_ms(99));
    }

    #[test]
    fn agents_go_on_when_they_are_answered() {
        let agents = RouterWorkload::agents(Duration::from_secs(5));
        let per_token = Duration::from_micros(10);
        let size = WorkerSetup { workers: 2, cache_tokens: 1_000_000, per_token };
        let outcome = run(&agents, &size, PlacementRule::Core, CacheKnowledge::Caches);
        // Ten agents, each with a turn in about 0.4 s.
        let requests = outcome.first_tokens.len() as u64 / AGENT_RUNS;
        assert!((60..200).contains(&requests), "{requests}");
        assert!(outcome.saved > 0.7, "{}", outcome.saved);
    }
}
