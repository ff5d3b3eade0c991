//! Parameters of random journals.

use std::ops::RangeInclusive;

/// A kind of policy node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Deficit round robin (`drr`), over listed classes.
    Drr,
    /// Share score (`share`), by weight.
    Share,
    /// The load function (`load`), by depth and age.
    Load,
    /// Strict priority (`bands`) between listed classes.
    Bands,
}

/// The workers on which the requests of a flow may run in a random journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowHomes {
    /// Any worker, though some requests are pinned to one.
    Any,
    /// Flows of the same name share a worker that no other flow uses, so that a blocked flow does not block flows of
    /// other names.
    Own,
    /// The names of flows are spread over two to four small workers. A worker that becomes full blocks many flows at
    /// once, and a worker that gets a free slot makes many flows ready at once.
    Few,
}

/// The distribution of the requests' costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostDistribution {
    /// From 0 to 4 tokens.
    Tiny,
    /// From 1 to 4096 tokens.
    Ordinary,
    /// One cost for all requests, so that ties are common.
    Equal,
    /// Up to the largest number of 64 bits.
    Huge,
    /// Any of the other distributions, drawn for each request.
    Mixed,
}

impl CostDistribution {
    /// All distributions, in order of declaration.
    pub const ALL: [Self; 5] = [Self::Tiny, Self::Ordinary, Self::Equal, Self::Huge, Self::Mixed];
}

/// Parameters of random journals. If a parameter is a range or a list, each journal draws its own
/// value from it.
#[derive(Clone, Debug)]
pub struct WorkloadShape {
    /// Number of flow names for each attribute.
    pub flows: RangeInclusive<usize>,
    /// Number of events in the journal.
    pub events: usize,
    /// Depth of the policy trees, in nodes.
    pub depth: RangeInclusive<usize>,
    /// Kinds of node in the trees. A kind that is listed more than once is drawn more often.
    pub kinds: Vec<NodeKind>,
    /// Range from which the pool's capacity and that of capacity events are drawn.
    pub capacity: RangeInclusive<u64>,
    /// True if the journals use workers: most pools start with some, worker events add, change and remove them, and
    /// requests have placement fields. If false, no pool ever has a worker.
    pub workers: bool,
    /// True if workers have rates and pauses, and some requests state quotas.
    pub rates: bool,
    /// Workers on which the requests of a flow may run, if the pool has workers.
    pub homes: FlowHomes,
    /// True if requests and workers are drawn so that places often differ in only one criterion of the placement.
    pub ties: bool,
    /// True if 30, 60 or 100 % of a journal's requests have a timeout.
    pub timeouts: bool,
    /// True if the journal has policy events.
    pub policy_changes: bool,
    /// Number of hold, weight, cap, capacity, policy, worker and tick events for every 85 other
    /// events.
    pub controls: u64,
    /// True if requests may expire, or be pushed out of a full queue.
    pub limits: bool,
    /// Distribution of costs; `None` to draw it for each journal.
    pub costs: Option<CostDistribution>,
}

impl WorkloadShape {
    /// Returns a shape with a few flows and trees of every kind, in journals that are short enough
    /// to run thousands of them.
    pub fn small() -> Self {
        Self {
            flows: 1..=5,
            events: 200,
            depth: 1..=3,
            kinds: vec![NodeKind::Drr, NodeKind::Share, NodeKind::Load, NodeKind::Bands],
            capacity: 0..=8,
            workers: false,
            rates: false,
            homes: FlowHomes::Any,
            ties: false,
            timeouts: false,
            policy_changes: true,
            controls: 15,
            limits: true,
            costs: None,
        }
    }

    /// Returns a shape with 64 to 1000 flows and a deep backlog.
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

    /// Returns a shape with trees of a single `drr` node.
    pub fn drr() -> Self {
        Self { kinds: vec![NodeKind::Drr], depth: 1..=1, ..Self::small() }
    }

    /// Returns a shape with trees of a single `share` node.
    pub fn share() -> Self {
        Self { kinds: vec![NodeKind::Share], depth: 1..=1, ..Self::small() }
    }

    /// Returns a shape with trees of `share` nodes inside `share` nodes.
    pub fn hierarchical() -> Self {
        Self { kinds: vec![NodeKind::Share], depth: 2..=3, ..Self::small() }
    }

    /// Returns a shape with trees of a single `load` node.
    pub fn load() -> Self {
        Self { kinds: vec![NodeKind::Load], depth: 1..=1, ..Self::small() }
    }

    /// Returns a shape with trees of all kinds, up to five nodes deep.
    pub fn tree() -> Self {
        Self { depth: 2..=5, capacity: 0..=16, events: 300, ..Self::small() }
    }

    /// Returns a shape with trees of all kinds in a pool with workers.
    pub fn workers() -> Self {
        Self { workers: true, events: 300, ..Self::small() }
    }

    /// Returns a shape with a few flows that are often held, resumed and capped, and whose requests
    /// often expire.
    pub fn restless() -> Self {
        Self {
            flows: 2..=3,
            kinds: vec![NodeKind::Share, NodeKind::Share, NodeKind::Drr],
            depth: 1..=2,
            capacity: 1..=4,
            events: 600,
            controls: 35,
            policy_changes: false,
            costs: Some(CostDistribution::Ordinary),
            ..Self::small()
        }
    }

    /// Returns a shape with nested share nodes over few flow names. The flows are often capped, and
    /// each name has a flow under several parents.
    pub fn copies() -> Self {
        Self {
            flows: 2..=3,
            kinds: vec![
                NodeKind::Share,
                NodeKind::Share,
                NodeKind::Share,
                NodeKind::Drr,
                NodeKind::Load,
                NodeKind::Bands,
            ],
            depth: 2..=4,
            capacity: 2..=10,
            events: 250,
            controls: 30,
            ..Self::small()
        }
    }

    /// Returns a shape with small trees in a pool whose workers have few slots, rates that are
    /// often used up, pauses and tiers.
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

    /// Returns a shape with a few share flows, each with its own worker. The workers pause and run
    /// out of quota, so that some flows become blocked and ready only because time passes, while
    /// the other flows are served.
    pub fn paused() -> Self {
        Self {
            flows: 3..=4,
            kinds: vec![NodeKind::Share],
            homes: FlowHomes::Own,
            depth: 1..=1,
            capacity: 1..=4,
            limits: false,
            costs: Some(CostDistribution::Ordinary),
            ..Self::rates()
        }
    }

    /// Returns a shape with all features at once, in trees up to four nodes deep.
    pub fn wild() -> Self {
        Self { depth: 1..=4, capacity: 0..=12, policy_changes: true, controls: 25, ..Self::rates() }
    }

    /// Returns a shape like [`restless`](Self::restless), but with workers that are full most of
    /// the time, in a pool whose own capacity is not the limit.
    pub fn jammed() -> Self {
        Self { workers: true, capacity: 6..=12, kinds: vec![NodeKind::Share], ..Self::restless() }
    }

    /// Returns a shape with trees of all kinds of node, in which `bands` is drawn twice as often as
    /// each other kind. Classes are often capped.
    pub fn bands() -> Self {
        Self {
            kinds: vec![
                NodeKind::Bands,
                NodeKind::Bands,
                NodeKind::Share,
                NodeKind::Drr,
                NodeKind::Load,
            ],
            depth: 1..=3,
            capacity: 1..=8,
            events: 250,
            controls: 25,
            ..Self::small()
        }
    }

    /// Returns a shape with trees of all kinds whose requests have timeouts.
    pub fn deadlines() -> Self {
        Self { timeouts: true, depth: 1..=2, capacity: 1..=6, events: 300, ..Self::small() }
    }

    /// Returns a shape whose workers have equal prefill, cached tokens and requests in flight, so
    /// that only the last criteria decide the place of a request. Ranks are often added and
    /// removed.
    pub fn ties() -> Self {
        Self {
            workers: true,
            ties: true,
            depth: 1..=2,
            capacity: 4..=16,
            events: 300,
            controls: 20,
            ..Self::small()
        }
    }

    /// Returns a shape with 20 to 60 share flows on two to four small workers, so that many flows
    /// become blocked or ready at the same look.
    pub fn pinned() -> Self {
        Self {
            flows: 20..=60,
            kinds: vec![NodeKind::Share],
            depth: 1..=1,
            workers: true,
            homes: FlowHomes::Few,
            capacity: 3..=16,
            events: 400,
            controls: 20,
            ..Self::small()
        }
    }

    /// Returns a shape like [`pinned`](Self::pinned), but with share nodes inside share nodes, and
    /// sometimes nodes of another kind around or inside them.
    pub fn pinned_inside() -> Self {
        Self {
            flows: 4..=25,
            kinds: vec![
                NodeKind::Share,
                NodeKind::Share,
                NodeKind::Share,
                NodeKind::Share,
                NodeKind::Drr,
                NodeKind::Bands,
            ],
            depth: 2..=3,
            ..Self::pinned()
        }
    }

    /// Returns every shape whose journals run quickly, with the shape's name.
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
            ("bands", Self::bands()),
            ("deadlines", Self::deadlines()),
            ("ties", Self::ties()),
            ("pinned", Self::pinned()),
            ("pinned_inside", Self::pinned_inside()),
        ]
    }
}
