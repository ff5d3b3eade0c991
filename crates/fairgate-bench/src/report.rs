//! One run: all cases in turn, then the table.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::cases::{CASES, Case, Instructions, Side, Unit};
use crate::measure::{Comparison, compare, compare_with_once};
use crate::table::{Bar, Row, count, render, time, times};
use crate::{instructions, machine, memory, prefix};

/// What a run measures and how it tells.
#[derive(Args)]
pub(crate) struct Options {
    /// Only print: succeed where a bar fails.
    #[arg(long)]
    no_bars: bool,
    /// Print the table as Markdown, with date and machine.
    #[arg(long)]
    markdown: bool,
    /// Count no instructions, even where valgrind is there.
    #[arg(long)]
    no_instructions: bool,
    /// Only what has this in its name.
    #[arg(long, default_value = "")]
    only: String,
}

/// The core: measures, prints the table on stdout, and fails where a bar does.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
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

/// The prefix index: the same.
pub(crate) fn run_prefix(options: &Options) -> Result<ExitCode> {
    run_all(options, prefix::CASES, |progress| {
        progress.say(memory::PREFIX_INDEX);
        Ok(vec![index_row(memory::measure(memory::PREFIX_INDEX)?)])
    })
}

fn run_all(
    options: &Options,
    cases: &'static [Case],
    memory: impl FnOnce(&Progress) -> Result<Vec<Row>>,
) -> Result<ExitCode> {
    let progress = Progress(Instant::now());
    let chosen: Vec<&Case> = cases.iter().filter(|c| c.name.contains(&options.only)).collect();
    let mut rows = Vec::new();
    for case in &chosen {
        progress.say(case.what);
        rows.push(row_of(case, measure(case)));
    }
    if !options.no_instructions && instructions::are_countable() {
        progress.say("instructions of all of these, with callgrind");
        for (row, (told, holds)) in rows.iter_mut().zip(count_all(&chosen)) {
            row.instructions = told;
            row.ok = [row.ok, holds].into_iter().flatten().reduce(|a, b| a && b);
        }
    }
    if "memory".contains(&options.only) {
        rows.extend(memory(&progress)?);
    }
    println!("{}", told(&rows, options.markdown));
    let failed = rows.iter().filter(|row| row.ok == Some(false)).count();
    progress.say(&format!("done; {failed} bars fail"));
    Ok(if failed > 0 && !options.no_bars { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tells on stderr what is measured, and since when.
struct Progress(Instant);

impl Progress {
    fn say(&self, what: &str) {
        eprintln!("{:4.0} s  {what}", self.0.elapsed().as_secs_f64());
    }
}

fn told(rows: &[Row], markdown: bool) -> String {
    let (machine, table) = (machine::describe(), render(rows, markdown));
    match markdown {
        true => format!("Measured {machine}.\n\n{table}"),
        false => format!("{machine}\n\n{table}"),
    }
}

fn measure(case: &Case) -> Comparison {
    let (mut base, mut big) = ((case.base.open)(), (case.big.open)());
    let (base, big) = (|| base.time(case.operations), || big.time(case.operations));
    match case.big_once {
        false => compare(case.repetitions, base, big),
        true => compare_with_once(case.repetitions, base, big),
    }
}

fn row_of(case: &Case, found: Comparison) -> Row {
    let cell = |side: &Side, ns: f64| match case.unit {
        Unit::Time => format!("{}: {}", side.label, time(ns)),
        Unit::Lines => format!("{}: {} lines/s", side.label, count(1e9 / ns)),
    };
    Row {
        what: case.what.into(),
        base: cell(&case.base, found.base_ns),
        big: cell(&case.big, found.big_ns),
        ratio: times(found.ratio),
        bar: case.bar,
        ok: case.bar.holds(found.ratio),
        instructions: "–".into(),
    }
}

/// Ten million requests, each under a session name of its own, may take no more than the first million did.
fn sessions_row([first, last]: [f64; 2]) -> Row {
    let bar = Bar::AtMost(1.1);
    Row {
        what: memory::SESSIONS.into(),
        base: format!("1 million: {:.1} MB", first / 1e6),
        big: format!("10 million: {:.1} MB", last / 1e6),
        ratio: times(last / first),
        bar,
        ok: bar.holds(last / first),
        instructions: "–".into(),
    }
}

fn memory_row(case: &memory::MemoryCase, bytes: memory::Bytes) -> Row {
    let bar = if case.barred { Bar::BytesAtMost(256.0) } else { Bar::None };
    Row {
        what: case.what.into(),
        base: format!("texts: {:.0} B", bytes.texts),
        big: format!("beside: {:.0} B, resident {:.0} B", bytes.asked, bytes.resident),
        ratio: "–".into(),
        bar,
        ok: bar.holds(bytes.resident),
        instructions: "–".into(),
    }
}

/// A million blocks may take 200 MB, resident.
fn index_row(bytes: memory::Bytes) -> Row {
    let bar = Bar::BytesAtMost(200.0);
    Row {
        what: "index: a block of a million, each in the place of another".into(),
        base: "–".into(),
        big: format!("{:.0} B, resident {:.0} B", bytes.asked, bytes.resident),
        ratio: "–".into(),
        bar,
        ok: bar.holds(bytes.resident),
        instructions: "–".into(),
    }
}

/// The instructions of all cases, in their order, counted by as many processes as there are cores; with whether their
/// bars hold, where there are any.
fn count_all(cases: &[&Case]) -> Vec<(String, Option<bool>)> {
    let sides: Vec<(&Case, &str)> =
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
    let of = |case: &Case, side: &str| {
        let found = counted.iter().find(|(c, s, _)| c.name == case.name && *s == side);
        found.and_then(|(_, _, instructions)| *instructions)
    };
    let told = |case: &&Case| match of(case, "base").zip(of(case, "big")) {
        Some((base, big)) => told_instructions(case.instructions, base, big),
        None => ("–".into(), None),
    };
    cases.iter().map(told).collect()
}

fn told_instructions(bars: Instructions, base: f64, big: f64) -> (String, Option<bool>) {
    let growth = big / base;
    let within = |most: Option<f64>, number: f64| most.map(|most| number <= most);
    let bar = |text: Option<String>| text.map(|text| format!(", ≤ {text}")).unwrap_or_default();
    let told = format!(
        "{}{} → {} ({}{})",
        count(base),
        bar(bars.base.map(count)),
        count(big),
        times(growth),
        bar(bars.growth.map(times)),
    );
    let holds = [within(bars.base, base), within(bars.growth, growth)];
    (told, holds.into_iter().flatten().reduce(|a, b| a && b))
}

/// The instructions of one side, where they are to be counted and can be.
fn count_one(case: &Case, side: &str) -> Option<f64> {
    match instructions::per_operation(case.name, side, case.counted?) {
        Ok(found) => Some(found),
        Err(error) => {
            eprintln!("        {error:#}");
            None
        }
    }
}
