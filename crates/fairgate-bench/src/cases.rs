//! What is compared with what, and how far apart the two may be.

use crate::measure::Subject;
use crate::steady::{open, open_bare, open_naive};
use crate::table::Bar;
use crate::{prefix, proportional, replay, scenarios as pools};

/// Two things, measured against each other.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) base: Side,
    pub(crate) big: Side,
    pub(crate) bar: Bar,
    pub(crate) unit: Unit,
    /// Operations per repetition: some milliseconds, which most often pass without interruption.
    pub(crate) operations: u64,
    pub(crate) repetitions: usize,
    /// Whether the big case is measured once only, after the base case: it takes long, and the bar is far away.
    pub(crate) big_once: bool,
    /// Operations whose instructions are counted, where they are.
    pub(crate) counted: Option<u64>,
    /// How many instructions an operation may take.
    pub(crate) instructions: Instructions,
}

/// Bars on instructions, which a noisy machine does not move.
#[derive(Clone, Copy)]
pub(crate) struct Instructions {
    /// The most that an operation of the base case may take.
    pub(crate) base: Option<f64>,
    /// How many times as many one of the big case may take.
    pub(crate) growth: Option<f64>,
}

const NO_BARS: Instructions = Instructions { base: None, growth: None };

/// How a case tells what an operation takes.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// As its time.
    Time,
    /// As lines per second.
    Lines,
}

/// One of the two.
pub(crate) struct Side {
    pub(crate) label: &'static str,
    pub(crate) open: fn() -> Box<dyn Subject>,
}

pub(crate) const fn side(label: &'static str, open: fn() -> Box<dyn Subject>) -> Side {
    Side { label, open }
}

/// How many operations are counted where instructions have a bar: the first hundreds of a pool, in which flows are new and
/// lists grow, make up little of them.
const STEADY: Option<u64> = Some(20_000);

/// Two pools, measured by the cycle.
pub(crate) const fn cycles(
    name: &'static str,
    what: &'static str,
    base: Side,
    big: Side,
    bar: Bar,
) -> Case {
    let (operations, repetitions, counted) = (2000, 41, Some(500));
    Case {
        name,
        what,
        base,
        big,
        bar,
        unit: Unit::Time,
        operations,
        repetitions,
        big_once: false,
        counted,
        instructions: NO_BARS,
    }
}

/// All cases, in the order of the table.
pub(crate) static CASES: &[Case] = &[
    cycles(
        "drr-one-busy",
        "drr: 1 busy class of n",
        side("4", || open(pools::drr_one_busy(4))),
        side("1 024", || open(pools::drr_one_busy(1024))),
        Bar::AtMost(2.0),
    ),
    cycles(
        "drr-held",
        "drr: n held classes beside 2 running",
        side("4", || open(pools::drr_held(4))),
        side("1 024", || open(pools::drr_held(1024))),
        Bar::AtMost(2.0),
    ),
    Case {
        operations: 400,
        ..cycles(
            "drr-one-draining",
            "drr: 1 busy class of n, release and grant only",
            side("4", || open(pools::drr_one_draining(4))),
            side("1 024", || open(pools::drr_one_draining(1024))),
            Bar::AtMost(2.0),
        )
    },
    Case {
        operations: 400,
        ..cycles(
            "drr-held-draining",
            "drr: n held classes beside 2 running, release and grant only",
            side("4", || open(pools::drr_held_draining(4))),
            side("1 024", || open(pools::drr_held_draining(1024))),
            Bar::AtMost(2.0),
        )
    },
    Case {
        counted: STEADY,
        instructions: Instructions { base: Some(3500.0), growth: Some(1.6) },
        ..cycles(
            "drr-all-busy",
            "drr: n busy classes",
            side("4", || open(pools::drr_all_busy(4))),
            side("1 024", || open(pools::drr_all_busy(1024))),
            Bar::None,
        )
    },
    Case {
        counted: STEADY,
        ..cycles(
            "drr-bare",
            "drr: 4 busy classes, by name and on bare handles",
            side("by name", || open(pools::drr_all_busy(4))),
            side("bare", || open_bare(pools::drr_all_busy(4))),
            Bar::None,
        )
    },
    Case {
        counted: STEADY,
        instructions: Instructions { base: Some(3500.0), growth: Some(2.0) },
        ..cycles(
            "share",
            "share: n backlogged tenants",
            side("100", || open(pools::share_tenants(100))),
            side("100 000", || open(pools::share_tenants(100_000))),
            Bar::AtMost(5.0),
        )
    },
    Case {
        counted: STEADY,
        ..cycles(
            "share-bare",
            "share: 100 backlogged tenants, by name and on bare handles",
            side("by name", || open(pools::share_tenants(100))),
            side("bare", || open_bare(pools::share_tenants(100))),
            Bar::None,
        )
    },
    Case {
        counted: None,
        ..cycles(
            "share-bounded",
            "share: n backlogged tenants, bounded queue",
            side("100", || open(pools::share_bounded(100))),
            side("100 000", || open(pools::share_bounded(100_000))),
            Bar::None,
        )
    },
    cycles(
        "tree",
        "share of groups of 1 000 tenants against one queue",
        side("queue", || open(pools::single_queue(2000))),
        side("tree", || open(pools::share_groups(1000))),
        Bar::AtMost(4.0),
    ),
    Case {
        instructions: Instructions { base: Some(15_000.0), growth: None },
        ..cycles(
            "load",
            "load: n backlogged agents",
            side("100", || open(pools::load_agents(100))),
            side("10 000", || open(pools::load_agents(10_000))),
            Bar::AtMost(8.0),
        )
    },
    Case {
        operations: 600,
        ..cycles(
            "load-convex",
            "load: n agents, all corners of the hull",
            side("100", || open(pools::load_convex(100))),
            side("10 000", || open(pools::load_convex(10_000))),
            Bar::None,
        )
    },
    Case {
        operations: 600,
        ..cycles(
            "load-collinear",
            "load: n agents, all on one line",
            side("100", || open(pools::load_collinear(100))),
            side("10 000", || open(pools::load_collinear(10_000))),
            Bar::None,
        )
    },
    Case {
        operations: 600,
        ..cycles(
            "load-tied",
            "load: n agents, all of equal value",
            side("100", || open(pools::load_tied(100))),
            side("10 000", || open(pools::load_tied(10_000))),
            Bar::None,
        )
    },
    cycles(
        "load-tuned",
        "load: n agents, auto_tune and max_wait_ticks",
        side("100", || open(pools::load_tuned(100))),
        side("10 000", || open(pools::load_tuned(10_000))),
        Bar::None,
    ),
    Case {
        operations: 10,
        repetitions: 9,
        counted: None,
        ..cycles(
            "load-naive-growth",
            "load: n agents, naive full scan",
            side("100", || open_naive(pools::load_agents(100))),
            side("1 000", || open_naive(pools::load_agents(1000))),
            Bar::None,
        )
    },
    Case {
        operations: 10,
        repetitions: 9,
        counted: None,
        ..cycles(
            "load-naive",
            "load: 1 000 agents, ours against the naive full scan",
            side("ours", || open(pools::load_agents(1000))),
            side("naive", || open_naive(pools::load_agents(1000))),
            Bar::None,
        )
    },
    cycles(
        "blocked-heads",
        "n heads pinned to 4 busy workers beside 1 running flow",
        side("4", || open(pools::blocked_heads(4, 4))),
        side("1 024", || open(pools::blocked_heads(1024, 4))),
        Bar::AtMost(2.0),
    ),
    cycles(
        "full-worker",
        "n tenants that share 1 full worker",
        side("10", || open(pools::full_worker(10))),
        side("1 000", || open(pools::full_worker(1000))),
        Bar::AtMost(4.0),
    ),
    Case {
        operations: 100,
        counted: Some(100),
        ..cycles(
            "two-full-workers",
            "n tenants pinned half and half to 2 full workers",
            side("10", || open(pools::two_full_workers(10))),
            side("1 000", || open(pools::two_full_workers(1000))),
            Bar::None,
        )
    },
    cycles(
        "workers",
        "100 tenants, n free workers",
        side("4", || open(pools::many_workers(4))),
        side("256", || open(pools::many_workers(256))),
        Bar::None,
    ),
    Case {
        operations: 1,
        repetitions: 9,
        big_once: true,
        counted: None,
        ..cycles(
            "proportional-naive",
            "proportional, strict: 10 000 projects, 100 000 tasks, 1 000 agents",
            side("ours", || proportional::open(10_000, 1000)),
            side("naive", || proportional::open_naive(10_000, 1000)),
            Bar::AtLeast(30.0),
        )
    },
    Case {
        operations: 1,
        repetitions: 9,
        counted: Some(1),
        ..cycles(
            "proportional-agents",
            "proportional, strict: 5 000 projects, n agents",
            side("500", || proportional::open(5000, 500)),
            side("1 000", || proportional::open(5000, 1000)),
            Bar::GrowsAtMost(2.0),
        )
    },
    Case {
        operations: 1,
        repetitions: 9,
        counted: Some(1),
        ..cycles(
            "proportional-projects",
            "proportional, strict: n projects, 1 000 agents",
            side("5 000", || proportional::open(5000, 1000)),
            side("10 000", || proportional::open(10_000, 1000)),
            Bar::GrowsAtMost(2.0),
        )
    },
    Case {
        operations: 1,
        repetitions: 9,
        unit: Unit::Lines,
        counted: None,
        ..cycles(
            "replay",
            "a journal of 1 000 tenants, read, or also decided and written",
            side("read", || replay::open(false)),
            side("all", || replay::open(true)),
            Bar::None,
        )
    },
];

/// The case of that name.
pub(crate) fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().chain(prefix::CASES).find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case that is not in steady state panics.
    #[test]
    fn every_case_can_be_measured() {
        for case in CASES.iter().chain(prefix::CASES) {
            assert!((case.base.open)().time(2) > 0.0, "{}", case.name);
            assert!(std::ptr::eq(find(case.name).unwrap(), case), "{}", case.name);
        }
    }
}
