//! Runs of all placement rules in virtual time, with their table and the bars for Fairgate's rule.

use super::placement::PlacementRule;
use super::testbed::{self, RouterKind};
use super::virtual_time::{self, CacheKnowledge, RuleOutcome};
use super::workload::RouterWorkload;
use super::{RouterBar, RouterRun};
use crate::table::columns;

/// A row of the table: one rule, and its source of information about the caches.
struct RuleRow {
    name: &'static str,
    rule: PlacementRule,
    knowledge: CacheKnowledge,
}

const fn row(name: &'static str, rule: PlacementRule, knowledge: CacheKnowledge) -> RuleRow {
    RuleRow { name, rule, knowledge }
}

const SECOND_EDITION: &str = "rule of the second edition";
const FAIRGATE: &str = "Fairgate";

/// All rows of the table. Every rule has a row in which the caches themselves inform it. Fairgate's
/// rule has further rows in which the prefix index informs it.
const ROWS: [RuleRow; 7] = [
    row(SECOND_EDITION, PlacementRule::SecondEdition, CacheKnowledge::Caches),
    row(FAIRGATE, PlacementRule::Core, CacheKnowledge::Caches),
    row("Fairgate, by its index", PlacementRule::Core, CacheKnowledge::Index { stated: 1 }),
    row(
        "Fairgate, index told 4× the cache",
        PlacementRule::Core,
        CacheKnowledge::Index { stated: 4 },
    ),
    row(
        "least to read, ties by turns",
        PlacementRule::LeastToReadTiesByTurns,
        CacheKnowledge::Caches,
    ),
    row(
        "most cached, if 30 % of the prompt are",
        PlacementRule::MostCachedIfMuch,
        CacheKnowledge::Caches,
    ),
    row("most cached", PlacementRule::MostCached, CacheKnowledge::Caches),
];

/// The results of one workload on a number of workers: one per rule, in the order of the rows.
pub(crate) struct RouterBenchCell {
    workload: &'static str,
    workers: usize,
    outcomes: Vec<RuleOutcome>,
}

impl RouterBenchCell {
    fn outcome(&self, name: &str) -> Option<&RuleOutcome> {
        let place = ROWS.iter().position(|row| row.name == name)?;
        self.outcomes.get(place)
    }
}

/// Places all workloads by all rules, for each number of workers.
pub(crate) fn place_all(workloads: &[RouterWorkload], workers: &[usize]) -> Vec<RouterBenchCell> {
    let cell = |workload: &RouterWorkload, workers: usize| {
        let size = testbed::worker_setup(workload, workers);
        let outcome = |row: &RuleRow| virtual_time::run(workload, &size, row.rule, row.knowledge);
        RouterBenchCell {
            workload: workload.name,
            workers,
            outcomes: ROWS.iter().map(outcome).collect(),
        }
    };
    let workloads = workloads.iter();
    workloads
        .flat_map(|workload| workers.iter().map(move |&workers| cell(workload, workers)))
        .collect()
}

/// Prints the table on stdout.
#[expect(clippy::print_stdout, reason = "the result")]
pub(crate) fn print(cells: &[RouterBenchCell], markdown: bool) {
    let titles = [
        "workload",
        "workers",
        "rule",
        "prefill saved",
        "first token p50",
        "first token p99",
        "imbalance of prefill tokens",
        "of their sums over all runs",
        "of slot time",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    for cell in cells {
        for (row, outcome) in ROWS.iter().zip(&cell.outcomes) {
            rows.push([
                cell.workload.to_owned(),
                cell.workers.to_string(),
                row.name.to_owned(),
                format!("{:.1} %", outcome.saved * 100.0),
                format!("{:.0} ms", outcome.first_token_ms(50)),
                format!("{:.0} ms", outcome.first_token_ms(99)),
                format!("{:.2}", outcome.imbalance),
                format!("{:.2}", outcome.imbalance_over_all),
                format!("{:.2}", outcome.slot_time_imbalance),
            ]);
        }
    }
    let runs = virtual_time::AGENT_RUNS;
    println!("The same requests, placed in virtual time by one rule each (agents: {runs} runs):\n");
    println!("{}", columns(&rows, markdown));
    println!(
        "Imbalance is the worker that has the most ÷ the mean over all workers, as the mean of the runs. Slot time is the \
         time from sending a request to the end of its answer.\n"
    );
}

/// Returns the least percentage of input tokens that Fairgate must save for a workload and number
/// of workers; `None` if no bar is set for them.
fn saved_least(workload: &str, workers: usize) -> Option<f64> {
    match (workload, workers) {
        ("conversations", 4 | 16) => Some(21.0),
        ("agents", 4) => Some(87.0),
        ("agents", 16) => Some(74.0),
        _ => None,
    }
}

const IMBALANCE_MAX: f64 = 1.15;
const P99_MAX: f64 = 1.02;

/// Compares Fairgate's current rule with its former one, for each workload and number of workers.
pub(crate) fn bars(cells: &[RouterBenchCell]) -> Vec<RouterBar> {
    let mut bars = Vec::new();
    for cell in cells {
        let (Some(ours), Some(before)) = (cell.outcome(FAIRGATE), cell.outcome(SECOND_EDITION))
        else {
            continue;
        };
        let mut bar = |what: String, measured: String, holds: bool| {
            let what = format!("rules: {}, {} workers: {what}", cell.workload, cell.workers);
            bars.push(RouterBar { what, measured, holds });
        };
        let (saved, least) = (ours.saved * 100.0, before.saved * 100.0);
        let measured = format!("{saved:.1} % against {least:.1} %");
        bar("saves at least as much as the second edition".into(), measured, saved >= least);
        if let Some(least) = saved_least(cell.workload, cell.workers) {
            bar(format!("saves at least {least} %"), format!("{saved:.1} %"), saved >= least);
        }
        let imbalance = ours.imbalance;
        let measured = format!("{imbalance:.2}");
        bar(format!("imbalance at most {IMBALANCE_MAX}"), measured, imbalance <= IMBALANCE_MAX);
        let ratio = ours.first_token_ms(99) / before.first_token_ms(99);
        let what = format!("first token p99 at most {P99_MAX}× that of the second edition");
        bar(what, format!("{ratio:.3}×"), ratio <= P99_MAX);
    }
    bars
}

const SAVED_POINTS_MAX: f64 = 2.0;
const IMBALANCE_OFF_MAX: f64 = 0.1;

/// Checks that Fairgate over HTTP is at least as good as its rule in virtual time, with a
/// tolerance. Returns `None` for other routers.
pub(crate) fn bar_over_http(cells: &[RouterBenchCell], run: &RouterRun) -> Option<RouterBar> {
    let is_same =
        |cell: &&RouterBenchCell| (cell.workload, cell.workers) == (run.workload, run.workers);
    let rule = cells.iter().find(is_same)?.outcome(FAIRGATE)?;
    (run.router == RouterKind::Fairgate).then(|| {
        let points = (run.seen.saved() - rule.saved) * 100.0;
        let off = run.seen.imbalance() - rule.imbalance;
        let what = format!(
            "{}, {} workers: over HTTP within {SAVED_POINTS_MAX} points and {IMBALANCE_OFF_MAX} of the rule",
            run.workload, run.workers
        );
        let holds = points >= -SAVED_POINTS_MAX && off <= IMBALANCE_OFF_MAX;
        RouterBar { what, measured: format!("{points:+.1} points, imbalance {off:+.2}"), holds }
    })
}
