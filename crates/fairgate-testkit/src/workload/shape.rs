//! What kind of journal is wanted.

use std::ops::RangeInclusive;

/// A kind of policy node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Deficit round robin.
    Drr,
    /// Share score.
    Share,
    /// The load function.
    Load,
}

/// How costs are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Costs {
    /// 0 to 4 tokens.
    Tiny,
    /// 1 to 4096 tokens.
    Ordinary,
    /// All the same, so that ties are common.
    Equal,
    /// Anything up to the largest that can be said.
    Huge,
    /// Any of these from one request to the next.
    Mixed,
}

impl Costs {
    /// All distributions.
    pub const ALL: [Self; 5] = [Self::Tiny, Self::Ordinary, Self::Equal, Self::Huge, Self::Mixed];
}

/// What kind of journal is wanted. Whatever a shape leaves open is drawn anew for each journal.
#[derive(Clone, Debug)]
pub struct Shape {
    /// How many names each attribute has.
    pub flows: RangeInclusive<usize>,
    /// How many events the journal has.
    pub events: usize,
    /// How deep the policy's trees are, in nodes.
    pub depth: RangeInclusive<usize>,
    /// The kinds of node in them.
    pub kinds: Vec<Kind>,
    /// How many requests may be in flight; also the range of capacity events.
    pub capacity: RangeInclusive<u64>,
    /// Whether the pool has workers.
    pub workers: bool,
    /// Whether its workers have rates and pauses, and its requests quotas.
    pub rates: bool,
    /// Whether each name has a worker of its own: what blocks one flow leaves the others.
    pub homes: bool,
    /// Whether policy events occur.
    pub policy_changes: bool,
    /// How many hold, weight, cap, capacity, policy, worker and tick events come with 85 others.
    pub controls: u64,
    /// Whether requests may expire or be pushed out.
    pub limits: bool,
    /// The distribution of costs; drawn for each journal where absent.
    pub costs: Option<Costs>,
}

impl Shape {
    /// A few flows, trees of every kind, short enough to run by the thousand.
    pub fn small() -> Self {
        Self {
            flows: 1..=5,
            events: 200,
            depth: 1..=3,
            kinds: vec![Kind::Drr, Kind::Share, Kind::Load],
            capacity: 0..=8,
            workers: false,
            rates: false,
            homes: false,
            policy_changes: true,
            controls: 15,
            limits: true,
            costs: None,
        }
    }

    /// 64 to 1000 flows with a deep backlog.
    pub fn crowded() -> Self {
        Self {
            flows: 64..=1000,
            events: 4000,
            depth: 1..=2,
            capacity: 1..=16,
            limits: false,
            policy_changes: false,
            ..Self::small()
        }
    }

    /// Deficit round robin alone.
    pub fn drr() -> Self {
        Self { kinds: vec![Kind::Drr], depth: 1..=1, ..Self::small() }
    }

    /// Share score alone.
    pub fn share() -> Self {
        Self { kinds: vec![Kind::Share], depth: 1..=1, ..Self::small() }
    }

    /// Share score inside share score.
    pub fn hierarchical() -> Self {
        Self { kinds: vec![Kind::Share], depth: 2..=3, ..Self::small() }
    }

    /// The load function alone.
    pub fn load() -> Self {
        Self { kinds: vec![Kind::Load], depth: 1..=1, ..Self::small() }
    }

    /// Trees up to five nodes deep, of all kinds.
    pub fn tree() -> Self {
        Self { depth: 2..=5, capacity: 0..=16, events: 300, ..Self::small() }
    }

    /// Trees of all kinds in a pool with workers.
    pub fn workers() -> Self {
        Self { workers: true, events: 300, ..Self::small() }
    }

    /// A few flows that are held, resumed, capped and expired all the time.
    pub fn restless() -> Self {
        Self {
            flows: 2..=3,
            kinds: vec![Kind::Share, Kind::Share, Kind::Drr],
            depth: 1..=2,
            capacity: 1..=4,
            events: 600,
            controls: 35,
            policy_changes: false,
            costs: Some(Costs::Ordinary),
            ..Self::small()
        }
    }

    /// Share nodes inside each other over few names, which are capped all the time: each name has copies under
    /// several parents.
    pub fn copies() -> Self {
        Self {
            flows: 2..=3,
            kinds: vec![Kind::Share, Kind::Share, Kind::Share, Kind::Drr, Kind::Load],
            depth: 2..=4,
            capacity: 2..=10,
            events: 250,
            controls: 30,
            ..Self::small()
        }
    }

    /// Workers with few slots, rates that bind, pauses and tiers before ordinary trees.
    pub fn rates() -> Self {
        Self {
            workers: true,
            rates: true,
            depth: 1..=2,
            capacity: 3..=12,
            events: 250,
            controls: 20,
            policy_changes: false,
            ..Self::small()
        }
    }

    /// A few share flows, each with a worker of its own that pauses and runs empty: they stop and go on by time alone,
    /// while the others are served.
    pub fn paused() -> Self {
        Self {
            flows: 3..=4,
            kinds: vec![Kind::Share],
            homes: true,
            depth: 1..=1,
            capacity: 1..=4,
            limits: false,
            costs: Some(Costs::Ordinary),
            ..Self::rates()
        }
    }

    /// Everything at once, in trees up to four nodes deep.
    pub fn wild() -> Self {
        Self { depth: 1..=4, capacity: 0..=12, policy_changes: true, controls: 25, ..Self::rates() }
    }

    /// The same as restless, before workers that are full most of the time, in a pool with slots to spare.
    pub fn jammed() -> Self {
        Self { workers: true, capacity: 6..=12, kinds: vec![Kind::Share], ..Self::restless() }
    }

    /// Every shape that runs quickly, with its name.
    pub fn quick() -> Vec<(&'static str, Self)> {
        vec![
            ("small", Self::small()),
            ("drr", Self::drr()),
            ("share", Self::share()),
            ("hierarchical", Self::hierarchical()),
            ("load", Self::load()),
            ("tree", Self::tree()),
            ("workers", Self::workers()),
            ("restless", Self::restless()),
            ("jammed", Self::jammed()),
            ("copies", Self::copies()),
            ("rates", Self::rates()),
            ("paused", Self::paused()),
            ("wild", Self::wild()),
        ]
    }
}
