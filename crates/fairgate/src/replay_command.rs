//! `fairgate replay`: what a journal's pool decided, and what it would have decided.

mod decisions;
mod diff;
mod explain;
mod fairness;
mod journal;
mod other_policy;
mod path;
mod progress;
mod recording;
mod roster;
mod steps;
mod tally;
mod what_if;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgGroup, Args};
use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;

use self::decisions::Decisions;
use self::diff::Diff;
use self::explain::Explain;
use self::journal::Journal;
use self::other_policy::OtherPolicy;
use self::recording::Learner;
use self::steps::{Both, Listener, Silent};
use self::tally::Tally;
use self::what_if::WhatIf;
use crate::output::Output;
use crate::words::shown;

/// Replay a journal: print what its pool decided, line by line.
///
/// A journal holds everything that reached a pool: requests, ends, what operators and workers did. The same
/// journal gives the same decisions on every machine, so a replay shows exactly what production decided, and why.
///
/// Prints one JSON object a line for each grant, rejection and expiry, as soon as the line that causes it has been
/// read. Memory grows with what waits and what is in flight, not with the journal's length. A bad line ends the replay
/// with an error that names the line and the field, and exit status 1; the decisions before it have been printed.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  What was decided:
    fairgate replay examples/noisy-neighbour.jsonl
  The same of a journal that is being written:
    tail -n +1 -f live.jsonl | fairgate replay -
  What another policy would have meant for each tenant:
    fairgate replay examples/noisy-neighbour.jsonl --policy examples/share-policy.json --diff --by tenant
  What the classes of a policy file would have meant:
    fairgate replay examples/router.jsonl --policy examples/router-policy.yaml --diff
  Why a request waited:
    fairgate replay examples/noisy-neighbour.jsonl --explain quiet-2")]
#[command(group = ArgGroup::new("report").args(["diff", "explain", "fairness"]))]
pub(crate) struct ReplayArgs {
    /// The journal, a file of JSON lines; `-` reads standard input.
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,

    /// What if: the same arrivals under the policy in this file.
    ///
    /// FILE holds a policy node, such as {"share":{"by":"tenant"}}, or a pool or a journal's first line with one in
    /// it; or it is a policy file in the schema of Dynamo's router (YAML), and each request gets its class anew from its recorded
    /// class, input and cached tokens. The recording is first replayed under its own policy, to learn how long each request ran and what it used;
    /// then its arrivals, and what operators and workers did, are replayed under the other one.
    ///
    /// Each request takes the service time that it had in the recording, and uses the tokens that it used there. One
    /// that never ran there takes its cost times the recording's mean service time per token, and uses its cost. One that
    /// still ran when the recording ended keeps its slot. A client that gave up waiting gives up at the same time, even if
    /// its request has been granted by then. Policy events in the recording are left out. After the last line, what is still
    /// in flight ends in its time. Under its own policy a recording without policy events gives its own decisions.
    ///
    /// The journal is read twice, so it must be a file. Takes about a hundred bytes of memory for each request in it.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// With --policy: print what each flow got under both policies, side by side, instead of the decisions.
    ///
    /// Per flow: requests, how many were granted, their tokens (what they really used, else their cost), how many were
    /// refused (rejected or expired), and the median, 95th percentile and longest wait of the granted ones. The
    /// quantiles are exact: every wait is kept.
    #[arg(long, requires = "policy")]
    diff: bool,

    /// With --diff: the attribute whose values are the flows; by default that of the recording's root node, and class with a
    /// policy file.
    #[arg(long, value_name = "ATTRIBUTE", requires = "diff", value_parser = attribute())]
    by: Option<Attribute>,

    /// Tell one request's story in words and numbers, instead of the decisions.
    ///
    /// When it came and what was ahead of it then; what happened to its flows while it waited; why it was granted before
    /// the runner-up, level by level, or why it was refused; where it ran; what its end did to the books. An id that was
    /// used again has a story for each request. With --policy: its story under that policy.
    #[arg(long, value_name = "ID")]
    explain: Option<String>,

    /// Print how far every waiting flow is from its share when the journal ends, instead of the decisions.
    ///
    /// For each share and drr node: every flow in which something waits, what it is owed in tokens per weight, and the
    /// range in which the policy keeps that, given what is in flight. With --policy: under that policy.
    #[arg(long)]
    fairness: bool,

    /// Print the report as JSON, with times in microseconds.
    #[arg(long, requires = "report")]
    json: bool,
}

/// Runs the command. The error, written with `{:#}`, reads `JOURNAL: line N: field "…": message`.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let mut output = Output::stdout();
    let outcome = print(args, &output);
    let flushed = output.flush().context("standard output");
    outcome.and(flushed)
}

fn print(args: &ReplayArgs, output: &Output) -> anyhow::Result<()> {
    // A bar must not run into decisions that go to the same terminal; a report comes when the bar is gone.
    let reports = args.diff || args.explain.is_some() || args.fairness;
    let progress = io::stderr().is_terminal() && (reports || !io::stdout().is_terminal());
    let session = Session { args, output, progress };
    match (&args.policy, &args.explain) {
        (Some(policy), _) if args.diff => session.print_diff(policy),
        (_, Some(id)) => session.print_story(id),
        _ if args.fairness => session.print_fairness(),
        _ => session.replay(&mut Decisions::new(output.clone())).map(drop),
    }
}

/// Reads the name of an attribute.
fn attribute() -> impl TypedValueParser<Value = Attribute> {
    let names = PossibleValuesParser::new(Attribute::ALL.map(Attribute::name));
    names.try_map(|name| Attribute::from_name(&name).ok_or("not an attribute"))
}

/// What all ways of replaying a journal have in common.
struct Session<'a> {
    args: &'a ReplayArgs,
    output: &'a Output,
    progress: bool,
}

impl Session<'_> {
    /// Replays the journal under its own policy or, where one was named, another; gives back the pool at the end.
    fn replay(&self, listener: &mut impl Listener) -> anyhow::Result<Pool> {
        let Some(path) = &self.args.policy else {
            let (mut pool, mut journal) = self.open("replay")?;
            steps::replay(&mut pool, &mut journal, listener)?;
            return Ok(pool);
        };
        let policy = self.read_policy(path)?;
        let (mut pool, mut journal) = self.open("recording")?;
        let mut learner = Learner::default();
        steps::replay(&mut pool, &mut journal, &mut learner)?;
        let recording = learner.finish();
        let (pool, mut journal) = self.open("what if")?;
        WhatIf::new(&recording, pool, &policy).run(&mut journal, listener)
    }

    fn print_diff(&self, path: &Path) -> anyhow::Result<()> {
        let policy = self.read_policy(path)?;
        let (mut pool, mut journal) = self.open("recording")?;
        let mut learner = Learner::default();
        // The recording's root knows nothing of the file's classes.
        let by = self.args.by.or(policy.classifies().then_some(Attribute::Class));
        let mut recorded = Tally::new(by);
        steps::replay(&mut pool, &mut journal, &mut Both(&mut learner, &mut recorded))?;
        let recording = learner.finish();
        let recorded = recorded.finish(&recording);
        let (pool, mut journal) = self.open("what if")?;
        let mut what_if = Tally::new(by);
        WhatIf::new(&recording, pool, &policy).run(&mut journal, &mut what_if)?;
        drop(journal);
        let what_if = what_if.finish(&recording);
        let diff = Diff::new(&recorded, &what_if);
        let written = match self.args.json {
            true => diff.write_json(self.output.clone()),
            false => diff.write_table(self.output.clone()),
        };
        written.context("standard output")
    }

    fn print_story(&self, id: &str) -> anyhow::Result<()> {
        let mut explain = Explain::new(id);
        let replayed = self.replay(&mut explain);
        explain.finish();
        if explain.is_empty() {
            replayed?;
            anyhow::bail!("{}: there is no request {}", self.args.journal.display(), shown(id));
        }
        let written = match self.args.json {
            true => explain.write_json(self.output.clone()),
            false => explain.write_words(self.output.clone()),
        };
        written.context("standard output")?;
        replayed.map(drop)
    }

    fn print_fairness(&self) -> anyhow::Result<()> {
        let pool = self.replay(&mut Silent)?;
        let written = match self.args.json {
            true => fairness::write_json(&pool, self.output.clone()),
            false => fairness::write_tables(&pool, self.output.clone()),
        };
        written.context("standard output")
    }

    fn open(&self, task: &'static str) -> anyhow::Result<(Pool, Journal)> {
        let (pool, mut journal) = Journal::open(&self.args.journal, self.output)?;
        if self.progress {
            journal.show_progress(task);
        }
        Ok((pool, journal))
    }

    /// Reads the other policy, having checked that the journal can be read twice.
    fn read_policy(&self, path: &Path) -> anyhow::Result<OtherPolicy> {
        let journal = &self.args.journal;
        let twice = "--policy reads the journal twice: it must be a file";
        if journal == Path::new("-") {
            let usage = format!("{twice}, not standard input\n");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, usage).into());
        }
        let name = || journal.display().to_string();
        let metadata = fs::metadata(journal).with_context(name)?;
        anyhow::ensure!(metadata.is_file(), "{}: {twice}", name());
        OtherPolicy::read(path)
    }
}
