//! One run: all cases in turn, then the table.

use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use clap::Args;

use crate::cases::{CASES, Case};
use crate::measure::{Comparison, compare, compare_with_once};
use crate::table::{Bar, Row, count, render, time, times};
use crate::{instructions, machine, memory};

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

/// Measures, prints the table on stdout, and fails where a bar does.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let progress = Progress(Instant::now());
    let chosen: Vec<&Case> = CASES.iter().filter(|c| c.name.contains(&options.only)).collect();
    let mut rows = Vec::new();
    for case in &chosen {
        progress.say(case.what);
        rows.push(row_of(case, measure(case)));
    }
    if !options.no_instructions && instructions::are_countable() {
        progress.say("instructions of all of these, with callgrind");
        for (row, told) in rows.iter_mut().zip(count_all(&chosen)?) {
            row.instructions = told;
        }
    }
    for case in memory::CASES.iter().filter(|_| "memory".contains(&options.only)) {
        progress.say(case.what);
        rows.push(memory_row(case, memory::measure(case.name)?));
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
    Row {
        what: case.what.into(),
        base: format!("{}: {}", case.base.label, time(found.base_ns)),
        big: format!("{}: {}", case.big.label, time(found.big_ns)),
        ratio: times(found.ratio),
        bar: case.bar,
        ok: case.bar.holds(found.ratio),
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
        ok: bar.holds(bytes.asked),
        instructions: "–".into(),
    }
}

/// The instructions of all cases, in their order, counted by as many processes as there are cores.
fn count_all(cases: &[&Case]) -> Result<Vec<String>> {
    let jobs: Vec<(&Case, &str, u64)> = cases
        .iter()
        .filter_map(|case| Some((*case, case.counted?)))
        .flat_map(|(case, counted)| ["base", "big"].map(|side| (case, side, counted)))
        .collect();
    let queue = Mutex::new(jobs.iter().enumerate());
    let results = Mutex::new(vec![None; jobs.len()]);
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().map_err(|_| anyhow!("a counter panicked"))?.next();
            let Some((index, (case, side, counted))) = next else { return Ok(()) };
            let found = instructions::per_operation(case.name, side, *counted)?;
            results.lock().map_err(|_| anyhow!("a counter panicked"))?[index] = Some(found);
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| anyhow!("a counter panicked"))?)
    })?;
    let results = results.into_inner().map_err(|_| anyhow!("a counter panicked"))?;
    let mut pairs = results.chunks(2);
    let told = |case: &&Case| match case.counted.and_then(|_| pairs.next()) {
        Some([Some(base), Some(big)]) => {
            format!("{} → {} ({})", count(*base), count(*big), times(big / base))
        }
        _ => "–".into(),
    };
    Ok(cases.iter().map(told).collect())
}
