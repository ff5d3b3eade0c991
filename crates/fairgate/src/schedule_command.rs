//! The command `fairgate schedule`, which assigns ready tasks to idle agents from one snapshot, or repeats a fleet's
//! decisions from its journal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use fairgate_core::proportional::{ScheduleSnapshot, explain, schedule};
use fairgate_journal::schedule::{
    JsonLayout, read_round, read_snapshot, write_assignments, write_explanation,
};

use crate::input::read_text;

/// Assign ready tasks to idle agents by the projects' credit weights.
///
/// Reads one snapshot and prints a JSON list of {"agent_id","task_id","project_id"}. Nothing else is read and nothing
/// is remembered: the same snapshot always gives the same list.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScheduleArgs {
    /// Snapshot, a JSON file; `-` reads standard input.
    #[arg(value_name = "SNAPSHOT", required_unless_present = "journal")]
    pub(crate) snapshot: Option<PathBuf>,

    /// Also print the reasons why each project and each ready task was assigned an agent or has to wait.
    ///
    /// Prints an object with `assignments`, `projects` and `tasks`; each entry has a stable `reason`, a `text` and
    /// the numbers.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Indent the JSON output.
    #[arg(long)]
    pub(crate) pretty: bool,

    /// Repeat every decision of a fleet's journal, and print the number of decisions that gave the same result.
    ///
    /// If a decision differs, exits with 1 and names the first line with a difference.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["snapshot", "explain", "pretty"])]
    pub(crate) journal: Vec<PathBuf>,
}

/// Runs the command. The error, written with `{:#}`, reads `SNAPSHOT: field: message`.
pub(crate) fn run(args: &ScheduleArgs) -> anyhow::Result<()> {
    let Some(path) = &args.snapshot else { return repeat_decisions(&args.journal) };
    let name = || path.display().to_string();
    let text = read_text(path).with_context(name)?;
    let snapshot = read_snapshot(&text).with_context(name)?;
    let layout = if args.pretty { JsonLayout::Pretty } else { JsonLayout::Compact };
    let out = io::BufWriter::new(io::stdout().lock());
    match write(out, &snapshot, args.explain, layout) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Repeats the decision of every round in these files.
fn repeat_decisions(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut came_out = RepeatedRounds::default();
    for file in files {
        came_out.read(file).with_context(|| file.display().to_string())?;
    }
    let RepeatedRounds { rounds, same, first_other } = came_out;
    let summary = format!("{same} of {rounds} rounds gave the same assignments");
    match first_other {
        None => writeln!(io::stdout(), "{summary}").context("standard output"),
        Some(place) => bail!("{summary}; the first that did not: {place}"),
    }
}

/// Counts of the rounds whose decision was repeated.
#[derive(Debug, Default)]
struct RepeatedRounds {
    rounds: u64,
    same: u64,
    /// File and line of the first round that gave another result; `None` if all rounds agree.
    first_other: Option<String>,
}

impl RepeatedRounds {
    fn read(&mut self, file: &Path) -> anyhow::Result<()> {
        let mut lines = BufReader::new(File::open(file)?);
        let mut line = String::new();
        for number in 1.. {
            line.clear();
            // A killed process leaves its last line without an end.
            if lines.read_line(&mut line)? == 0 || !line.ends_with('\n') {
                break;
            }
            let round = read_round(&line).with_context(|| format!("line {number}"))?;
            self.rounds += 1;
            if schedule(&round.snapshot) == round.assignments {
                self.same += 1;
            } else {
                self.first_other.get_or_insert_with(|| format!("{}:{number}", file.display()));
            }
        }
        Ok(())
    }
}

fn write(
    out: impl Write,
    snapshot: &ScheduleSnapshot,
    with_reasons: bool,
    layout: JsonLayout,
) -> io::Result<()> {
    if with_reasons {
        write_explanation(out, &explain(snapshot), layout)
    } else {
        write_assignments(out, &schedule(snapshot), layout)
    }
}
