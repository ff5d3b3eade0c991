//! A closed loop in virtual time, in which senders keep a fixed number of requests waiting or in
//! flight.
//!
//! Each sender has a number of clients. A client sends a request, waits for its slot, runs for the time that the
//! request's size takes, and sends the next one at once. With more clients than a sender can have in flight, it always
//! has something waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairgate_core::Pool;
use fairgate_core::attribute::Attributes;
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_testkit::workload::SeededRng;

use super::sizes::Size;

/// The costs that a sender states for its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimate {
    /// Exactly the tokens that the request will use.
    Exact,
    /// From a half of to twice the tokens that the request will use.
    Noisy,
    /// The input with an error of at most an eighth, plus the mean output of the sender's ended
    /// requests.
    Learned,
    /// This many times the tokens that the request will use.
    Times(u64),
}

/// A sender, with the attributes and sizes of its requests.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) attributes: Attributes,
    pub(crate) clients: usize,
    /// Sizes of the requests, in order. After the last size, the first follows again.
    pub(crate) sizes: Vec<Size>,
    pub(crate) estimate: Estimate,
}

/// The results of one sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Number of tokens that the sender's granted requests really use.
    pub(crate) tokens: u64,
    /// Summed time in microseconds for which the sender's requests were in flight.
    pub(crate) slot_us: u128,
    /// The wait of each granted request in microseconds, in the order of the grants.
    pub(crate) waits_us: Vec<u64>,
    /// The longest wait, counted in ended requests.
    pub(crate) longest_wait_ticks: u64,
}

struct Request {
    sender: usize,
    size: Size,
    submitted_us: u64,
    submitted_ticks: u64,
    granted: bool,
}

/// A pool and its senders.
pub(crate) struct ClosedLoop {
    pool: Pool,
    senders: Vec<Sender>,
    now: u64,
    requests: Vec<Request>,
    /// Times at which requests end, with the request's index, the earliest first.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// For each sender, the number of requests that it has sent.
    sent: Vec<usize>,
    /// For each sender, the number of its ended requests and their output tokens.
    ended: Vec<(u64, u64)>,
    outcomes: Vec<Outcome>,
}

impl ClosedLoop {
    /// Creates a pool in which every client has sent its first request.
    pub(crate) fn start(config: PoolConfig, senders: &[Sender]) -> Self {
        let mut this = Self {
            pool: Pool::new(config),
            senders: senders.to_vec(),
            now: 0,
            requests: Vec::new(),
            ends: BinaryHeap::new(),
            sent: vec![0; senders.len()],
            ended: vec![(0, 0); senders.len()],
            outcomes: vec![Outcome::default(); senders.len()],
        };
        let most = senders.iter().map(|sender| sender.clients).max().unwrap_or(0);
        for client in 0..most {
            for (index, sender) in senders.iter().enumerate() {
                if client < sender.clients {
                    this.submit(index);
                }
            }
        }
        this
    }

    /// Runs until this many more requests have ended.
    pub(crate) fn run(&mut self, ends: usize) {
        for _ in 0..ends {
            self.end_next();
        }
    }

    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the wait so far of the request that has waited longest, in microseconds.
    pub(crate) fn oldest_wait_us(&self) -> u64 {
        let oldest = self.requests.iter().find(|request| !request.granted);
        oldest.map_or(0, |request| self.now - request.submitted_us)
    }

    /// Ends the next request. Its client then sends another.
    fn end_next(&mut self) {
        loop {
            let end = self.ends.peek().map(|Reverse((at, _))| *at);
            match (end, self.pool.next_change()) {
                (end, Some(Micros(change))) if end.is_none_or(|end| change < end) => {
                    self.now = self.now.max(change);
                    self.apply(Event::Tick);
                }
                (Some(_), _) => break,
                (None, _) => panic!("nothing is in flight and nothing will change"),
            }
        }
        let Some(Reverse((at, number))) = self.ends.pop() else { return };
        self.now = at;
        let Request { sender, size, .. } = self.requests[number];
        let (count, output) = &mut self.ended[sender];
        *count += 1;
        *output += size.output;
        self.outcomes[sender].slot_us += u128::from(size.duration_us());
        let tokens = Some(Tokens(size.tokens()));
        self.apply(Event::Release { id: number.to_string().into(), tokens, quota: None });
        self.submit(sender);
    }

    fn submit(&mut self, sender: usize) {
        let Sender { attributes, sizes, estimate, .. } = &self.senders[sender];
        let size = sizes[self.sent[sender] % sizes.len()];
        let mut submit = Submit::new(&self.requests.len().to_string());
        submit.attributes = attributes.clone();
        submit.cost = Some(Tokens(self.cost(sender, size, *estimate).max(1)));
        self.sent[sender] += 1;
        self.requests.push(Request {
            sender,
            size,
            submitted_us: self.now,
            submitted_ticks: self.pool.ticks().0,
            granted: false,
        });
        self.apply(Event::Submit(Box::new(submit)));
    }

    fn cost(&self, sender: usize, size: Size, estimate: Estimate) -> u64 {
        // The same request has the same noise under every policy.
        let mut rng = SeededRng::new((sender as u64) << 32 | self.sent[sender] as u64);
        match estimate {
            Estimate::Exact => size.tokens(),
            Estimate::Noisy => match rng.percent(50) {
                true => size.tokens() * rng.range(500..=1000) / 1000,
                false => size.tokens() * rng.range(1000..=2000) / 1000,
            },
            Estimate::Learned => {
                let (ended, output) = self.ended[sender];
                let mean = output.checked_div(ended).unwrap_or(256);
                size.input * rng.range(875..=1125) / 1000 + mean
            }
            Estimate::Times(times) => size.tokens() * times,
        }
    }

    fn apply(&mut self, event: Event) {
        let mut decisions = Vec::new();
        self.pool.apply(Micros(self.now), event, &mut decisions).expect("time goes on");
        for decision in decisions {
            let Decision::Grant(grant) = decision else { panic!("refused: {decision:?}") };
            let number: usize = grant.id.parse().expect("a number");
            self.requests[number].granted = true;
            let Request { sender, size, submitted_ticks, .. } = self.requests[number];
            self.ends.push(Reverse((self.now + size.duration_us(), number)));
            let outcome = &mut self.outcomes[sender];
            outcome.tokens += size.tokens();
            outcome.waits_us.push(grant.waited.0);
            let ticks = self.pool.ticks().0 - submitted_ticks;
            outcome.longest_wait_ticks = outcome.longest_wait_ticks.max(ticks);
        }
    }
}
