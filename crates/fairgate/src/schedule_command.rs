//! `fairgate schedule`: which ready task goes to which idle agent, decided from one snapshot.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use fairgate_core::proportional::{Snapshot, explain, schedule};
use fairgate_journal::schedule::{Layout, read_snapshot, write_assignments, write_explanation};

use crate::input::read_text;

/// Give ready tasks to idle agents by the projects' credit weights.
///
/// Reads one snapshot and prints a JSON list of {"agent_id","task_id","project_id"}. Nothing else is read and
/// nothing is remembered: the same snapshot always gives the same list.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScheduleArgs {
    /// The snapshot, a JSON file; `-` reads standard input.
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: PathBuf,

    /// Also say why: for every project and every ready task, what it got or what keeps it waiting.
    ///
    /// Prints an object with `assignments`, `projects` and `tasks`; each entry has a stable `reason`, a `text` and
    /// the numbers.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Indent the JSON.
    #[arg(long)]
    pub(crate) pretty: bool,
}

/// Runs the command. The error, written with `{:#}`, reads `SNAPSHOT: field: message`.
pub(crate) fn run(args: &ScheduleArgs) -> anyhow::Result<()> {
    let name = || args.snapshot.display().to_string();
    let text = read_text(&args.snapshot).with_context(name)?;
    let snapshot = read_snapshot(&text).with_context(name)?;
    let layout = if args.pretty { Layout::Pretty } else { Layout::Compact };
    let out = io::BufWriter::new(io::stdout().lock());
    match write(out, &snapshot, args.explain, layout) {
        // Whoever reads the list has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
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
