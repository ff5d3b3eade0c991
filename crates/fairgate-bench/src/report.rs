//! One run of `bench core` or `bench prefix`: measures all cases one after the other, then prints
//! the table.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::cases::{BenchCase, CASES, CaseSide, CaseUnit, InstructionBars};
use crate::instructions::{InstructionCount, NO_SYMBOLS};
use crate::measure::{TimeComparison, compare, compare_with_once};
use crate::table::{BenchRow, RatioBar, count, render, time, times};
use crate::{instructions, machine, memory, prefix};

/// Options of `bench core` and `bench prefix`.
#[derive(Args)]
pub(crate) struct CoreBenchOptions {
    /// Succeed even if a bar fails; the table still shows the failure.
    #[arg(long)]
    no_bars: bool,
    /// Print the table as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
    /// Count no instructions even if valgrind is installed.
    #[arg(long)]
    no_instructions: bool,
    /// Run only the cases whose name contains this text.
    #[arg(long, default_value = "")]
    only: String,
}

/// Measures the core, prints the table on stdout, and fails if a bar fails.
pub(crate) fn run(options: &CoreBenchOptions) -> Result<ExitCode> {
    run_all(options, CASES, |progress| {
        progress.say(memory::SESSIONS);
        let mut rows = vec![sessions_row(memory::sessions()?)];
        for case in memory::CASES {
            progress.say(case.what);
            rows.push(memory_row(case, memory::measure(case.name)?));
        }
        Ok(rows)
    })
}

/// Measures the prefix index, prints the table on stdout, and fails if a bar fails.
pub(crate) fn run_prefix(options: &CoreBenchOptions) -> Result<ExitCode> {
    run_all(options, prefix::CASES, |progress| {
        progress.say(memory::PREFIX_INDEX);
        Ok(vec![index_row(memory::measure(memory::PREFIX_INDEX)?)])
    })
}

fn run_all(
    options: &CoreBenchOptions,
    cases: &'static [BenchCase],
    memory: impl FnOnce(&BenchProgress) -> Result<Vec<BenchRow>>,
) -> Result<ExitCode> {
    let progress = BenchProgress(Instant::now());
    let chosen: Vec<&BenchCase> = cases.iter().filter(|c| c.name.contains(&options.only)).collect();
    let mut rows = Vec::new();
    for case in &chosen {
        progress.say(case.what);
        rows.push(row_of(case, measure(case)));
    }
    if !options.no_instructions && instructions::are_countable() {
        progress.say("instructions of all of these, with callgrind");
        for (row, (described, holds)) in rows.iter_mut().zip(count_all(&chosen)) {
            row.instructions = described;
            row.ok = [row.ok, holds].into_iter().flatten().reduce(|a, b| a && b);
        }
    }
    if "memory".contains(&options.only) {
        rows.extend(memory(&progress)?);
    }
    println!("{}", render_report(&rows, options.markdown));
    let failed = rows.iter().filter(|row| row.ok == Some(false)).count();
    progress.say(&format!("done; {failed} bars fail"));
    Ok(if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reports on stderr the case that is being measured, with the time since the start of the run.
struct BenchProgress(Instant);

impl BenchProgress {
    fn say(&self, what: &str) {
        eprintln!("{:4.0} s  {what}", self.0.elapsed().as_secs_f64());
    }
}

fn render_report(rows: &[BenchRow], markdown: bool) -> String {
    let (machine, table) = (machine::describe(), render(rows, markdown));
    match markdown {
        true => format!("Measured {machine}.\n\n{table}"),
        false => format!("{machine}\n\n{table}"),
    }
}

fn measure(case: &BenchCase) -> TimeComparison {
    let (mut base, mut big) = ((case.base.open)(), (case.big.open)());
    let (base, big) = (|| base.time(case.operations), || big.time(case.operations));
    match case.big_once {
        false => compare(case.repetitions, base, big),
        true => compare_with_once(case.repetitions, base, big),
    }
}

fn row_of(case: &BenchCase, found: TimeComparison) -> BenchRow {
    let cell = |side: &CaseSide, ns: f64| match case.unit {
        CaseUnit::Time => format!("{}: {}", side.label, time(ns)),
        CaseUnit::Lines => format!("{}: {} lines/s", side.label, count(1e9 / ns)),
    };
    BenchRow {
        what: case.what.into(),
        base: cell(&case.base, found.base_ns),
        big: cell(&case.big, found.big_ns),
        ratio: times(found.ratio),
        bar: case.bar,
        ok: case.bar.holds(found.ratio),
        instructions: "–".into(),
    }
}

/// Builds the table's row about sessions. After ten million requests, the pool's memory may be at
/// most 1.1 times its memory after one million.
fn sessions_row([first, last]: [f64; 2]) -> BenchRow {
    let bar = RatioBar::AtMost(1.1);
    BenchRow {
        what: memory::SESSIONS.into(),
        base: format!("1 million: {:.1} MB", first / 1e6),
        big: format!("10 million: {:.1} MB", last / 1e6),
        ratio: times(last / first),
        bar,
        ok: bar.holds(last / first),
        instructions: "–".into(),
    }
}

fn memory_row(case: &memory::MemoryCase, bytes: memory::BytesPerRequest) -> BenchRow {
    let bar = if case.barred { RatioBar::BytesAtMost(256.0) } else { RatioBar::None };
    BenchRow {
        what: case.what.into(),
        base: format!("texts: {:.0} B", bytes.texts),
        big: format!("beside: {:.0} B, resident {:.0} B", bytes.asked, bytes.resident),
        ratio: "–".into(),
        bar,
        ok: bar.holds(bytes.resident),
        instructions: "–".into(),
    }
}

/// Builds the table's row about the memory of the prefix index. A million blocks may take at most
/// 200 MB of resident memory.
fn index_row(bytes: memory::BytesPerRequest) -> BenchRow {
    let bar = RatioBar::BytesAtMost(200.0);
    BenchRow {
        what: "index: a block of a million, each in the place of another".into(),
        base: "–".into(),
        big: format!("{:.0} B, resident {:.0} B", bytes.asked, bytes.resident),
        ratio: "–".into(),
        bar,
        ok: bar.holds(bytes.resident),
        instructions: "–".into(),
    }
}

/// Counts the instructions of all cases, in as many parallel processes as there are cores. Returns
/// for each case, in order, the text for the table and whether its bars are met (`None` if it has
/// no bars).
fn count_all(cases: &[&BenchCase]) -> Vec<(String, Option<bool>)> {
    let sides: Vec<(&BenchCase, &str)> =
        cases.iter().flat_map(|case| ["base", "big"].map(|side| (*case, side))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((case, side)) = sides.get(next.fetch_add(1, Relaxed)) {
            found.push((*case, *side, count_one(case, side)));
        }
        found
    };
    let counted: Vec<_> = thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    let of = |case: &BenchCase, side: &str| {
        let found = counted.iter().find(|(c, s, _)| c.name == case.name && *s == side);
        found.and_then(|(_, _, instructions)| *instructions)
    };
    if counted.iter().any(|(_, _, found)| *found == Some(InstructionCount::NoSymbols)) {
        eprintln!("        {NO_SYMBOLS_HELP}");
    }
    let described =
        |case: &&BenchCase| describe_counts(case.instructions, of(case, "base"), of(case, "big"));
    cases.iter().map(described).collect()
}

const NO_SYMBOLS_HELP: &str = "callgrind counts inside one function, which it finds by name, and this binary has no names: \
    no instructions were counted. Build it with CARGO_PROFILE_DIST_STRIP=none, as `cargo xtask bench core` does.";

fn describe_counts(
    bars: InstructionBars,
    base: Option<InstructionCount>,
    big: Option<InstructionCount>,
) -> (String, Option<bool>) {
    match (base, big) {
        (Some(InstructionCount::PerOperation(base)), Some(InstructionCount::PerOperation(big))) => {
            describe_instructions(bars, base, big)
        }
        (Some(InstructionCount::NoSymbols), _) | (_, Some(InstructionCount::NoSymbols)) => {
            (NO_SYMBOLS.into(), None)
        }
        _ => ("–".into(), None),
    }
}

fn describe_instructions(bars: InstructionBars, base: f64, big: f64) -> (String, Option<bool>) {
    let growth = big / base;
    let within = |most: Option<f64>, number: f64| most.map(|most| number <= most);
    let bar = |text: Option<String>| text.map(|text| format!(", ≤ {text}")).unwrap_or_default();
    let described = format!(
        "{}{} → {} ({}{})",
        count(base),
        bar(bars.base.map(count)),
        count(big),
        times(growth),
        bar(bars.growth.map(times)),
    );
    let holds = [within(bars.base, base), within(bars.growth, growth)];
    (described, holds.into_iter().flatten().reduce(|a, b| a && b))
}

/// Counts the instructions of one side of a case; `None` if the case does not require it or
/// callgrind failed.
fn count_one(case: &BenchCase, side: &str) -> Option<InstructionCount> {
    match instructions::per_operation(case.name, side, case.counted?) {
        Ok(found) => Some(found),
        Err(error) => {
            eprintln!("        {error:#}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_nobody_counted_are_not_told_as_zero() {
        let bars = InstructionBars { base: Some(100.0), growth: Some(2.0) };
        let of = |number| Some(InstructionCount::PerOperation(number));
        let described = describe_counts(bars, of(90.0), of(270.0));
        assert_eq!(described, ("90, ≤ 100 → 270 (3.00×, ≤ 2.00×)".into(), Some(false)));
        let unnamed = Some(InstructionCount::NoSymbols);
        assert_eq!(describe_counts(bars, unnamed, unnamed), (NO_SYMBOLS.into(), None));
        assert_eq!(describe_counts(bars, of(90.0), None), ("–".into(), None));
    }
}
