//! The pool under test, and sources that always have a request waiting.

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{JournalWriter, parse_policy};
use fairgate_testkit::workload::SeededRng;

/// What a flow's requests turn out to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// What they cost.
    Exact,
    /// At most what they cost.
    Under,
    /// Nothing, which counts as one token.
    Nothing,
    /// At least what they cost, up to three times that.
    Over,
    /// Any of these.
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

/// A source of requests: one queue at the bottom of the tree.
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
    /// What it is charged in the end.
    pub(crate) fn used(self) -> u64 {
        self.tokens.max(1)
    }
}

/// Who checks.
pub(crate) trait Watch {
    fn ended(&mut self, request: Request) -> Result<(), String>;
    fn granted(&mut self, request: Request) -> Result<(), String>;
}

/// What limits how many requests are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Capacity,
    /// The slots of the only worker.
    Slots,
}

/// A pool, and what an outsider knows of it.
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

/// No event grants more than this many, so with one more waiting a flow never runs empty.
const MOST_SLOTS: u64 = 8;
const BACKLOG: usize = 9;

impl Stage {
    /// No slot is there yet.
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

    /// The same with at most so many slots.
    pub(crate) fn with_slots_up_to(mut self, most: u64) -> Self {
        self.most_slots = most;
        self
    }

    /// The sources and the journal so far, for a report.
    pub(crate) fn into_text(self) -> String {
        let journal = self.journal.into_inner();
        format!("{:#?}\n{}", self.leaves, String::from_utf8_lossy(&journal))
    }

    /// One event; the watch hears first what ended, then what was granted, one after the other.
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

    /// Another number of slots.
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

    /// Ends any of those in flight.
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

    /// How many sources there are.
    pub(crate) fn count(&self) -> usize {
        self.leaves.len()
    }

    pub(crate) fn fill(&mut self, leaf: usize, watch: &mut impl Watch) -> Result<(), String> {
        while self.waiting[leaf] < BACKLOG {
            self.submit(leaf, watch)?;
        }
        Ok(())
    }

    /// Many events through which each of these leaves always has something waiting.
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

    /// All wait before the first slot is there.
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
