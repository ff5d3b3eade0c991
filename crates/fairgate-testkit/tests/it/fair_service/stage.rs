//! The pool under test, with sources that always have requests waiting.

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{JournalWriter, parse_policy};
use fairgate_testkit::workload::SeededRng;

/// The real usage of a flow's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Exactly the cost.
    Exact,
    /// At most the cost.
    Under,
    /// No tokens, which count as one token.
    Nothing,
    /// At least the cost, and at most three times the cost.
    Over,
    /// Any of the other habits, drawn for each request.
    Any,
}

impl Habit {
    pub(crate) const ALL: [Self; 5] =
        [Self::Exact, Self::Under, Self::Nothing, Self::Over, Self::Any];

    fn used(self, cost: u64, rng: &mut SeededRng) -> u64 {
        match self {
            Self::Exact => cost,
            Self::Under => rng.range(0..=cost),
            Self::Nothing => 0,
            Self::Over => rng.range(cost..=3 * cost),
            Self::Any => rng.one_of(&Self::ALL[..4]).used(cost, rng),
        }
    }
}

/// A source of requests, which has one queue at the bottom of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) attributes: Attributes,
    pub(crate) costs: (u64, u64),
    pub(crate) habit: Habit,
}

impl Leaf {
    pub(crate) fn random(by: Attribute, name: &str, rng: &mut SeededRng) -> Self {
        let most = rng.one_of(&[1u64, 8, 100, 4096]);
        let least = rng.one_of(&[1, most.div_ceil(2), most]);
        let attributes = Attributes::none().with(by, name);
        Self { attributes, costs: (least, most), habit: rng.one_of(&Habit::ALL) }
    }
}

/// A request, with the tokens that it is released with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) leaf: usize,
    pub(crate) cost: u64,
    tokens: u64,
}

impl Request {
    /// Returns the tokens that the request is charged at its end.
    pub(crate) fn used(self) -> u64 {
        self.tokens.max(1)
    }
}

/// Checks each end and each grant.
pub(crate) trait Watch {
    fn ended(&mut self, request: Request) -> Result<(), String>;
    fn granted(&mut self, request: Request) -> Result<(), String>;
}

/// The limit on the number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Capacity,
    /// The slots of the only worker.
    Slots,
}

/// A pool with its journal, sources and requests.
pub(crate) struct Stage {
    pub(crate) rng: SeededRng,
    pool: Pool,
    journal: JournalWriter<Vec<u8>>,
    at: u64,
    limit: Limit,
    leaves: Vec<Leaf>,
    requests: Vec<Request>,
    waiting: Vec<usize>,
    in_flight: Vec<usize>,
    most_slots: u64,
}

/// Greatest number of slots. No event grants more requests, so a flow with one more waiting request
/// never becomes empty.
const MOST_SLOTS: u64 = 8;
const BACKLOG: usize = 9;

impl Stage {
    /// Creates a pool without slots.
    pub(crate) fn new(mut rng: SeededRng, policy: &str, leaves: Vec<Leaf>) -> Self {
        let policy = parse_policy(policy).expect("a good policy");
        let limit = rng.one_of(&[Limit::Capacity, Limit::Slots]);
        let config = match limit {
            Limit::Capacity => PoolConfig::new(0, policy),
            Limit::Slots => {
                PoolConfig { workers: vec![worker(0)], ..PoolConfig::new(MOST_SLOTS, policy) }
            }
        };
        let mut journal = JournalWriter::new(Vec::new());
        journal.write_header(&config).expect("written to memory");
        Self {
            rng,
            pool: Pool::new(config),
            journal,
            at: 0,
            limit,
            waiting: vec![0; leaves.len()],
            leaves,
            requests: Vec::new(),
            in_flight: Vec::new(),
            most_slots: MOST_SLOTS,
        }
    }

    /// Sets the greatest number of slots.
    pub(crate) fn with_slots_up_to(mut self, most: u64) -> Self {
        self.most_slots = most;
        self
    }

    /// Returns the sources and the journal so far as text, for a report.
    pub(crate) fn into_text(self) -> String {
        let journal = self.journal.into_inner();
        format!("{:#?}\n{}", self.leaves, String::from_utf8_lossy(&journal))
    }

    /// Applies one event. Calls the watch for the ended request, then for each granted request.
    fn tell(&mut self, event: Event, watch: &mut impl Watch) -> Result<(), String> {
        self.at += 1;
        let at = Micros(self.at);
        self.journal.write_event(at, &event).expect("written to memory");
        if let Event::Release { id, .. } | Event::Cancel { id } = &event {
            watch.ended(self.requests[number(id)])?;
        }
        let mut decisions = Vec::new();
        self.pool.apply(at, event, &mut decisions).expect("time goes on");
        for decision in decisions {
            let Decision::Grant(grant) = decision else {
                return Err(format!("nothing here is refused: {decision:?}"));
            };
            let number = number(&grant.id);
            let request = self.requests[number];
            self.waiting[request.leaf] -= 1;
            self.in_flight.push(number);
            watch.granted(request)?;
        }
        Ok(())
    }

    /// Changes the number of slots.
    pub(crate) fn change_slots(&mut self, watch: &mut impl Watch) -> Result<(), String> {
        let slots = self.rng.range(1..=self.most_slots);
        let event = match self.limit {
            Limit::Capacity => Event::Capacity { slots },
            Limit::Slots => Event::Worker(worker(slots)),
        };
        self.tell(event, watch)
    }

    pub(crate) fn submit(&mut self, leaf: usize, watch: &mut impl Watch) -> Result<(), String> {
        let Leaf { attributes, costs, habit } = self.leaves[leaf].clone();
        let cost = self.rng.range(costs.0..=costs.1);
        let tokens = habit.used(cost, &mut self.rng);
        let mut submit = Submit::new(&format!("r{}", self.requests.len()));
        submit.attributes = attributes;
        submit.cost = Some(Tokens(cost));
        self.requests.push(Request { leaf, cost, tokens });
        self.waiting[leaf] += 1;
        self.tell(Event::Submit(Box::new(submit)), watch)
    }

    /// Ends a random request in flight.
    pub(crate) fn end_one(&mut self, watch: &mut impl Watch) -> Result<(), String> {
        let number = self.in_flight.swap_remove(self.rng.index(self.in_flight.len()));
        let Request { cost, tokens, .. } = self.requests[number];
        let id = format!("r{number}").into();
        // A release without tokens used what it cost.
        let event = match self.rng.range(0..=3) {
            0 if tokens == cost => Event::Cancel { id },
            1 if tokens == cost => Event::Release { id, tokens: None, quota: None },
            _ => Event::Release { id, tokens: Some(Tokens(tokens)), quota: None },
        };
        self.tell(event, watch)
    }

    pub(crate) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the number of sources.
    pub(crate) fn count(&self) -> usize {
        self.leaves.len()
    }

    pub(crate) fn fill(&mut self, leaf: usize, watch: &mut impl Watch) -> Result<(), String> {
        while self.waiting[leaf] < BACKLOG {
            self.submit(leaf, watch)?;
        }
        Ok(())
    }

    /// Applies many events. Each of these leaves always has requests waiting.
    pub(crate) fn run(
        &mut self,
        leaves: &[usize],
        events: usize,
        watch: &mut impl Watch,
    ) -> Result<(), String> {
        for _ in 0..events {
            match self.rng.range(0..=39) {
                0 => self.change_slots(watch)?,
                1 => {
                    let leaf = self.rng.one_of(leaves);
                    self.submit(leaf, watch)?;
                }
                _ => self.end_one(watch)?,
            }
            for leaf in leaves {
                self.fill(*leaf, watch)?;
            }
        }
        Ok(())
    }

    /// Submits the requests of all sources, and then opens the first slots.
    pub(crate) fn start_full(&mut self, watch: &mut impl Watch) -> Result<(), String> {
        for leaf in 0..self.leaves.len() {
            self.fill(leaf, watch)?;
        }
        self.change_slots(watch)?;
        (0..self.leaves.len()).try_for_each(|leaf| self.fill(leaf, watch))
    }
}

fn worker(slots: u64) -> WorkerChange {
    WorkerChange { name: "w".into(), slots: Some(slots), ..WorkerChange::default() }
}

fn number(id: &str) -> usize {
    id[1..].parse().expect("r and a number")
}
