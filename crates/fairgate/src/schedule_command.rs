//! `fairgate schedule`: which ready task goes to which idle agent, decided from one snapshot; or what a fleet decided, decided
//! again from its journal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use fairgate_core::proportional::{Snapshot, explain, schedule};
use fairgate_journal::schedule::{
    Layout, read_round, read_snapshot, write_assignments, write_explanation,
};

use crate::input::read_text;

/// Give ready tasks to idle agents by the projects' credit weights.
///
/// Reads one snapshot and prints a JSON list of {"agent_id","task_id","project_id"}. Nothing else is read and
/// nothing is remembered: the same snapshot always gives the same list.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScheduleArgs {
    /// The snapshot, a JSON file; `-` reads standard input.
    #[arg(value_name = "SNAPSHOT", required_unless_present = "journal")]
    pub(crate) snapshot: Option<PathBuf>,

    /// Also say why: for every project and every ready task, what it got or what keeps it waiting.
    ///
    /// Prints an object with `assignments`, `projects` and `tasks`; each entry has a stable `reason`, a `text` and
    /// the numbers.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Indent the JSON.
    #[arg(long)]
    pub(crate) pretty: bool,

    /// Decide every line of a fleet's journal again, and say how many came out the same.
    ///
    /// Names the first line that did not, and exits with 1 then.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["snapshot", "explain", "pretty"])]
    pub(crate) journal: Vec<PathBuf>,
}

/// Runs the command. The error, written with `{:#}`, reads `SNAPSHOT: field: message`.
pub(crate) fn run(args: &ScheduleArgs) -> anyhow::Result<()> {
    let Some(path) = &args.snapshot else { return decide_again(&args.journal) };
    let name = || path.display().to_string();
    let text = read_text(path).with_context(name)?;
    let snapshot = read_snapshot(&text).with_context(name)?;
    let layout = if args.pretty { Layout::Pretty } else { Layout::Compact };
    let out = io::BufWriter::new(io::stdout().lock());
    match write(out, &snapshot, args.explain, layout) {
        // Whoever reads the list has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Decides every round of these files again.
fn decide_again(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut came_out = CameOut::default();
    for file in files {
        came_out.read(file).with_context(|| file.display().to_string())?;
    }
    let CameOut { rounds, same, first_other } = came_out;
    let summary = format!("{same} of {rounds} rounds gave the same assignments");
    match first_other {
        None => writeln!(io::stdout(), "{summary}").context("standard output"),
        Some(place) => bail!("{summary}; the first that did not: {place}"),
    }
}

/// What deciding again came to.
#[derive(Debug, Default)]
struct CameOut {
    rounds: u64,
    same: u64,
    /// The file and line of the first round that came out otherwise.
    first_other: Option<String>,
}

impl CameOut {
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
    snapshot: &Snapshot,
    with_reasons: bool,
    layout: Layout,
) -> io::Result<()> {
    if with_reasons {
        write_explanation(out, &explain(snapshot), layout)
    } else {
        write_assignments(out, &schedule(snapshot), layout)
    }
}
