//! `fairgate replay`: what a journal's pool decided, and what it would have decided.

mod decisions;
mod journal;
mod progress;
mod steps;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use self::decisions::Decisions;
use self::journal::Journal;
use crate::output::Output;

/// Replay a journal: print what its pool decided, line by line.
///
/// A journal holds everything that reached a pool: requests, ends, what operators and workers did. The same
/// journal gives the same decisions on every machine, so a replay shows exactly what production decided, and why.
///
/// Prints one JSON object a line for each grant, rejection and expiry, as soon as the line that causes it has been
/// read. Memory grows with what waits and flies, not with the journal. A bad line ends the replay with an error that
/// names the line and the field, and exit status 1; the decisions before it have been printed.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  fairgate replay monday.jsonl
  tail -n +1 -f live.jsonl | fairgate replay -")]
pub(crate) struct ReplayArgs {
    /// The journal, a file of JSON lines; `-` reads standard input.
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,
}

/// Runs the command. The error, written with `{:#}`, reads `JOURNAL: line N: field "…": message`.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let mut output = Output::stdout();
    let outcome = print(args, &output);
    let flushed = output.flush().context("standard output");
    outcome.and(flushed)
}

fn print(args: &ReplayArgs, output: &Output) -> anyhow::Result<()> {
    let (mut pool, mut journal) = Journal::open(&args.journal, output)?;
    if progress_may_show() {
        journal.show_progress("replay");
    }
    steps::replay(&mut pool, &mut journal, &mut Decisions::new(output.clone()))
}

/// Whether a bar would not run into the decisions: they go elsewhere than to the terminal.
fn progress_may_show() -> bool {
    io::stderr().is_terminal() && !io::stdout().is_terminal()
}
