//! The benchmark cases: pairs of subjects to compare, and the limits of each pair's ratio.

use fairgate_core::proportional::ScheduleMode;

use crate::measure::TimedSubject;
use crate::steady::{open, open_bare, open_naive};
use crate::table::RatioBar;
use crate::{proportional, replay, scenarios as pools};

/// Two subjects that are measured in turns, so that their times can be divided by each other.
pub(crate) struct BenchCase {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) base: CaseSide,
    pub(crate) big: CaseSide,
    pub(crate) bar: RatioBar,
    pub(crate) unit: CaseUnit,
    /// Number of operations per repetition, chosen so that a repetition takes a few milliseconds.
    /// In so short a time, other programs usually do not interrupt.
    pub(crate) operations: u64,
    pub(crate) repetitions: usize,
    /// True if the big side is measured only once, after the base side, because it takes long and
    /// the expected ratio is far from the bar.
    pub(crate) big_once: bool,
    /// Number of operations for which callgrind counts instructions; `None` to count none.
    pub(crate) counted: Option<u64>,
    /// Bars on the instructions per operation, counted over the `counted` operations.
    pub(crate) instructions: InstructionBars,
}

/// Bars on counted instructions, which, unlike times, do not depend on the load of the machine.
#[derive(Clone, Copy)]
pub(crate) struct InstructionBars {
    /// Greatest number of instructions per operation of the base side; `None` for no bar.
    pub(crate) base: Option<f64>,
    /// Greatest ratio of the instructions per operation of the big side to those of the base side;
    /// `None` for no bar.
    pub(crate) growth: Option<f64>,
}

const NO_BARS: InstructionBars = InstructionBars { base: None, growth: None };

/// Unit in which the table shows the results of a case.
#[derive(Clone, Copy)]
pub(crate) enum CaseUnit {
    /// Time per operation, shown in the unit from nanoseconds to seconds that suits the number.
    Time,
    /// Lines per second, for cases that read or replay a journal.
    Lines,
}

/// One of the two subjects of a case: the base side or the big side.
pub(crate) struct CaseSide {
    pub(crate) label: &'static str,
    pub(crate) open: fn() -> Box<dyn TimedSubject>,
}

pub(crate) const fn side(label: &'static str, open: fn() -> Box<dyn TimedSubject>) -> CaseSide {
    CaseSide { label, open }
}

/// Number of counted operations in cases with a bar on instructions. New flows and growing lists make the first few
/// hundred operations more expensive, but those are a small part of this number.
const STEADY: Option<u64> = Some(20_000);

/// Builds a case that compares the cycles (see `steady`) of two pools.
pub(crate) const fn cycles(
    name: &'static str,
    what: &'static str,
    base: CaseSide,
    big: CaseSide,
    bar: RatioBar,
) -> BenchCase {
    let (operations, repetitions, counted) = (2000, 41, Some(500));
    BenchCase {
        name,
        what,
        base,
        big,
        bar,
        unit: CaseUnit::Time,
        operations,
        repetitions,
        big_once: false,
        counted,
        instructions: NO_BARS,
    }
}

/// All cases, in the order of the table.
pub(crate) static CASES: &[BenchCase] = &[
    cycles(
        "drr-one-busy",
        "drr: 1 busy class of n",
        side("4", || open(pools::drr_one_busy(4))),
        side("1 024", || open(pools::drr_one_busy(1024))),
        RatioBar::AtMost(2.0),
    ),
    cycles(
        "drr-held",
        "drr: n held classes beside 2 running",
        side("4", || open(pools::drr_held(4))),
        side("1 024", || open(pools::drr_held(1024))),
        RatioBar::AtMost(2.0),
    ),
    BenchCase {
        operations: 400,
        ..cycles(
            "drr-one-draining",
            "drr: 1 busy class of n, release and grant only",
            side("4", || open(pools::drr_one_draining(4))),
            side("1 024", || open(pools::drr_one_draining(1024))),
            RatioBar::AtMost(2.0),
        )
    },
    BenchCase {
        operations: 400,
        ..cycles(
            "drr-held-draining",
            "drr: n held classes beside 2 running, release and grant only",
            side("4", || open(pools::drr_held_draining(4))),
            side("1 024", || open(pools::drr_held_draining(1024))),
            RatioBar::AtMost(2.0),
        )
    },
    BenchCase {
        counted: STEADY,
        instructions: InstructionBars { base: Some(3500.0), growth: Some(1.6) },
        ..cycles(
            "drr-all-busy",
            "drr: n busy classes",
            side("4", || open(pools::drr_all_busy(4))),
            side("1 024", || open(pools::drr_all_busy(1024))),
            RatioBar::None,
        )
    },
    BenchCase {
        counted: STEADY,
        ..cycles(
            "drr-bare",
            "drr: 4 busy classes, by name and on bare handles",
            side("by name", || open(pools::drr_all_busy(4))),
            side("bare", || open_bare(pools::drr_all_busy(4))),
            RatioBar::None,
        )
    },
    BenchCase {
        counted: STEADY,
        instructions: InstructionBars { base: Some(2500.0), growth: None },
        ..cycles(
            "bands",
            "bands: n strict bands, all busy, the first 4 at their caps",
            side("4", || open(pools::bands(4))),
            side("1 024", || open(pools::bands(1024))),
            RatioBar::None,
        )
    },
    BenchCase {
        counted: STEADY,
        instructions: InstructionBars { base: Some(3500.0), growth: Some(2.0) },
        ..cycles(
            "share",
            "share: n backlogged tenants",
            side("100", || open(pools::share_tenants(100))),
            side("100 000", || open(pools::share_tenants(100_000))),
            RatioBar::AtMost(5.0),
        )
    },
    BenchCase {
        counted: STEADY,
        ..cycles(
            "share-bare",
            "share: 100 backlogged tenants, by name and on bare handles",
            side("by name", || open(pools::share_tenants(100))),
            side("bare", || open_bare(pools::share_tenants(100))),
            RatioBar::None,
        )
    },
    BenchCase {
        counted: None,
        ..cycles(
            "share-bounded",
            "share: n backlogged tenants, bounded queue",
            side("100", || open(pools::share_bounded(100))),
            side("100 000", || open(pools::share_bounded(100_000))),
            RatioBar::None,
        )
    },
    cycles(
        "tree",
        "share of groups of 1 000 tenants against one queue",
        side("queue", || open(pools::single_queue(2000))),
        side("tree", || open(pools::share_groups(1000))),
        RatioBar::AtMost(4.0),
    ),
    BenchCase {
        instructions: InstructionBars { base: Some(15_000.0), growth: None },
        ..cycles(
            "load",
            "load: n backlogged agents",
            side("100", || open(pools::load_agents(100))),
            side("10 000", || open(pools::load_agents(10_000))),
            RatioBar::AtMost(8.0),
        )
    },
    BenchCase {
        operations: 600,
        ..cycles(
            "load-convex",
            "load: n agents, all corners of the hull",
            side("100", || open(pools::load_convex(100))),
            side("10 000", || open(pools::load_convex(10_000))),
            RatioBar::None,
        )
    },
    BenchCase {
        operations: 600,
        ..cycles(
            "load-collinear",
            "load: n agents, all on one line",
            side("100", || open(pools::load_collinear(100))),
            side("10 000", || open(pools::load_collinear(10_000))),
            RatioBar::None,
        )
    },
    BenchCase {
        operations: 600,
        ..cycles(
            "load-tied",
            "load: n agents, all of equal value",
            side("100", || open(pools::load_tied(100))),
            side("10 000", || open(pools::load_tied(10_000))),
            RatioBar::None,
        )
    },
    cycles(
        "load-tuned",
        "load: n agents, auto_tune and max_wait_ticks",
        side("100", || open(pools::load_tuned(100))),
        side("10 000", || open(pools::load_tuned(10_000))),
        RatioBar::None,
    ),
    BenchCase {
        operations: 10,
        repetitions: 9,
        counted: None,
        ..cycles(
            "load-naive-growth",
            "load: n agents, naive full scan",
            side("100", || open_naive(pools::load_agents(100))),
            side("1 000", || open_naive(pools::load_agents(1000))),
            RatioBar::None,
        )
    },
    BenchCase {
        operations: 10,
        repetitions: 9,
        counted: None,
        ..cycles(
            "load-naive",
            "load: 1 000 agents, ours against the naive full scan",
            side("ours", || open(pools::load_agents(1000))),
            side("naive", || open_naive(pools::load_agents(1000))),
            RatioBar::None,
        )
    },
    cycles(
        "blocked-heads",
        "n heads pinned to 4 busy workers beside 1 running flow",
        side("4", || open(pools::blocked_heads(4, 4))),
        side("1 024", || open(pools::blocked_heads(1024, 4))),
        RatioBar::AtMost(2.0),
    ),
    cycles(
        "full-worker",
        "n tenants that share 1 full worker",
        side("10", || open(pools::full_worker(10))),
        side("1 000", || open(pools::full_worker(1000))),
        RatioBar::AtMost(4.0),
    ),
    BenchCase {
        operations: 100,
        counted: Some(100),
        ..cycles(
            "two-full-workers",
            "n tenants pinned half and half to 2 full workers",
            side("10", || open(pools::two_full_workers(10))),
            side("1 000", || open(pools::two_full_workers(1000))),
            RatioBar::None,
        )
    },
    BenchCase {
        operations: 100,
        counted: Some(100),
        instructions: InstructionBars { base: None, growth: Some(4.0) },
        ..cycles(
            "pinned",
            "1 000 tenants and 2 full workers, each tenant pinned to one of them",
            side("unpinned", || open(pools::two_full_workers_unpinned(1000))),
            side("pinned", || open(pools::two_full_workers(1000))),
            RatioBar::AtMost(4.0),
        )
    },
    cycles(
        "workers",
        "100 tenants, n free workers",
        side("4", || open(pools::many_workers(4))),
        side("256", || open(pools::many_workers(256))),
        RatioBar::None,
    ),
    BenchCase {
        operations: 1,
        repetitions: 9,
        big_once: true,
        counted: None,
        ..cycles(
            "proportional-naive",
            "proportional, strict: 10 000 projects, 100 000 tasks, 1 000 agents",
            side("ours", || proportional::open(ScheduleMode::Strict, 10_000, 1000)),
            side("naive", || proportional::open_naive(ScheduleMode::Strict, 10_000, 1000)),
            RatioBar::AtLeast(30.0),
        )
    },
    BenchCase {
        operations: 1,
        repetitions: 9,
        big_once: true,
        counted: None,
        ..cycles(
            "proportional-classic",
            "proportional, classic: 10 000 projects, 100 000 tasks, 1 000 agents",
            side("ours", || proportional::open(ScheduleMode::Classic, 10_000, 1000)),
            side("naive", || proportional::open_naive(ScheduleMode::Classic, 10_000, 1000)),
            RatioBar::AtLeast(30.0),
        )
    },
    BenchCase {
        operations: 1,
        repetitions: 9,
        counted: Some(1),
        ..cycles(
            "proportional-agents",
            "proportional, strict: 5 000 projects, n agents",
            side("500", || proportional::open(ScheduleMode::Strict, 5000, 500)),
            side("1 000", || proportional::open(ScheduleMode::Strict, 5000, 1000)),
            RatioBar::GrowsAtMost(2.0),
        )
    },
    BenchCase {
        operations: 1,
        repetitions: 9,
        counted: Some(1),
        ..cycles(
            "proportional-projects",
            "proportional, strict: n projects, 1 000 agents",
            side("5 000", || proportional::open(ScheduleMode::Strict, 5000, 1000)),
            side("10 000", || proportional::open(ScheduleMode::Strict, 10_000, 1000)),
            RatioBar::GrowsAtMost(2.0),
        )
    },
    BenchCase {
        operations: 1,
        repetitions: 9,
        unit: CaseUnit::Lines,
        counted: None,
        ..cycles(
            "replay",
            "a journal of 1 000 tenants, read, or also decided and written",
            side("read", || replay::open(false)),
            side("all", || replay::open(true)),
            RatioBar::None,
        )
    },
];
