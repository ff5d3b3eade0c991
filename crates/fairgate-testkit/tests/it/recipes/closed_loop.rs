//! A closed loop in virtual time: senders that keep a fixed number of requests waiting or in flight.
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

/// What a sender says that its requests cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Estimate {
    /// What they will use.
    Exact,
    /// Anything from a half to twice that.
    Noisy,
    /// Input within an eighth, and the mean output of the sender's requests that have ended.
    Learned,
    /// So many times what they will use.
    Times(u64),
}

/// Who sends, and what.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) attributes: Attributes,
    pub(crate) clients: usize,
    /// Its requests have these sizes, one after the other and then from the beginning.
    pub(crate) sizes: Vec<Size>,
    pub(crate) estimate: Estimate,
}

/// What came of one sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The real tokens of its requests that were granted.
    pub(crate) tokens: u64,
    /// The time that its requests were in flight, added up over requests.
    pub(crate) slot_us: u128,
    /// How long each granted request waited, in the order of the grants; and in ended requests.
    pub(crate) waits_us: Vec<u64>,
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
    /// When which request ends, the earliest first.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// Per sender: how many it has sent; how many have ended, with how many output tokens.
    sent: Vec<usize>,
    ended: Vec<(u64, u64)>,
    outcomes: Vec<Outcome>,
}

impl ClosedLoop {
    /// Every client has sent its first request.
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

    /// Goes on until so many more requests have ended.
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

    /// How long the request has waited that waits the longest.
    pub(crate) fn oldest_wait_us(&self) -> u64 {
        let oldest = self.requests.iter().find(|request| !request.granted);
        oldest.map_or(0, |request| self.now - request.submitted_us)
    }

    /// Lets the next request end, and its client send another.
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
