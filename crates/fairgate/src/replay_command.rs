//! The command `fairgate replay`, which computes a journal's decisions again, also under another policy.

mod decisions;
mod diff;
mod edition;
mod explain;
mod fairness;
mod flow_tally;
mod journal;
mod live_requests;
mod other_policy;
mod path;
mod progress;
mod recording;
mod steps;
mod what_if;

use std::cell::Cell;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgGroup, Args};
use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;

use self::decisions::DecisionPrinter;
use self::diff::PolicyDiff;
use self::edition::OtherEdition;
use self::explain::HistoryCollector;
use self::flow_tally::FlowTallyCollector;
use self::journal::ReplayJournal;
use self::other_policy::OtherPolicy;
use self::recording::RecordingBuilder;
use self::steps::{BothListeners, ReplayListener, SilentListener};
use self::what_if::WhatIfReplay;
use crate::output::StdoutWriter;
use crate::text_format::safe_name;

/// Replay a journal: print the decisions of its pool, line by line.
///
/// A journal holds everything that reached a pool: requests, ends, and the actions of operators and workers. The same
/// journal gives the same decisions on every machine, so a replay shows exactly what production decided, and why.
///
/// Prints one JSON object a line for each grant, rejection and expiry, as soon as the line that causes it has been
/// read. Memory grows with the number of requests that wait or are in flight, not with the journal's length. A bad line
/// ends the replay with an error that names the line and the field, and exit status 1; the decisions before it have
/// been printed.
///
/// A journal that was written with another version of the scheduling rules (another edition) is replayed with the rules
/// of this program. One line on standard error says so. With --json, the field other_edition says so too, in the report
/// or, with --fairness, in each node.
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
    /// Journal, a file of JSON lines; `-` reads standard input.
    #[arg(value_name = "JOURNAL")]
    journal: PathBuf,

    /// Replay the same arrivals under the policy in this file (what if).
    ///
    /// FILE holds a policy node, such as {"share":{"by":"tenant"}}, or a pool or a journal's first line with one in it;
    /// or it is a policy file in the schema of Dynamo's router (YAML), and each request gets a new class from its
    /// recorded class, input and cached tokens. The recording is first replayed under its own policy, to learn how long
    /// each request ran and what it used; then its arrivals, and the actions of operators and workers, are replayed
    /// under the other one.
    ///
    /// Each request takes its service time from the recording, and uses its recorded tokens. A request that never ran
    /// in the recording takes its cost times the recording's mean service time per token, and uses its cost. A request
    /// that still ran when the recording ended keeps its slot. A client that gave up waiting gives up at the same time,
    /// even if its request has been granted by then. Policy events in the recording are left out. After the last line,
    /// requests in flight end in their time. Under its own policy a recording without policy events gives its own
    /// decisions.
    ///
    /// The journal is read twice, so it must be a file. Takes about a hundred bytes of memory for each request in it.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// With --policy: print each flow's results under both policies, side by side, instead of the decisions.
    ///
    /// Per flow: requests, granted requests, their tokens (real usage, else their cost), refused requests (rejected or
    /// expired), and the median, 95th percentile and longest wait of the granted ones. The quantiles are exact: every
    /// wait is kept.
    #[arg(long, requires = "policy")]
    diff: bool,

    /// With --diff: attribute whose values are the flows. Default: the attribute of the recording's root node, or class
    /// if --policy names a policy file.
    #[arg(long, value_name = "ATTRIBUTE", requires = "diff", value_parser = attribute())]
    by: Option<Attribute>,

    /// Print the history of one request in words and numbers, instead of the decisions.
    ///
    /// It covers the request's arrival and the requests ahead of it; events of its flows while it waited; why it was
    /// granted before the runner-up, level by level, or why it was refused; where it ran; and what its end changed in
    /// the counters. An id that was used again has a history for each request. With --policy: its history under that
    /// policy.
    #[arg(long, value_name = "ID")]
    explain: Option<String>,

    /// Print the distance of every waiting flow from its share at the end of the journal, instead of the decisions.
    ///
    /// For each share and drr node: every flow with waiting requests, what it is owed in tokens per weight, and the
    /// range in which the policy keeps that, given the requests in flight. With --policy: under that policy.
    #[arg(long)]
    fairness: bool,

    /// Print the report as JSON, with times in microseconds.
    #[arg(long, requires = "report")]
    json: bool,
}

/// Runs the command. The error, written with `{:#}`, reads `JOURNAL: line N: field "…": message`.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    let mut output = StdoutWriter::stdout();
    let outcome = print(args, &output);
    let flushed = output.flush().context("standard output");
    outcome.and(flushed)
}

fn print(args: &ReplayArgs, output: &StdoutWriter) -> anyhow::Result<()> {
    // A progress bar must not mix with decisions on the same terminal; a report comes after the bar is gone.
    let reports = args.diff || args.explain.is_some() || args.fairness;
    let progress = io::stderr().is_terminal() && (reports || !io::stdout().is_terminal());
    let session = ReplaySession { args, output, progress, other_edition: Cell::new(None) };
    match (&args.policy, &args.explain) {
        (Some(policy), _) if args.diff => session.print_diff(policy),
        (_, Some(id)) => session.print_story(id),
        _ if args.fairness => session.print_fairness(),
        _ => session.replay(&mut DecisionPrinter::new(output.clone())).map(drop),
    }
}

/// Parses the name of an attribute.
fn attribute() -> impl TypedValueParser<Value = Attribute> {
    let names = PossibleValuesParser::new(Attribute::ALL.map(Attribute::name));
    names.try_map(|name| Attribute::from_name(&name).ok_or("not an attribute"))
}

/// State that all kinds of replay share.
struct ReplaySession<'a> {
    args: &'a ReplayArgs,
    output: &'a StdoutWriter,
    progress: bool,
    /// Version of the scheduling rules that wrote the journal, set when the journal is opened; `None` if it is this
    /// program's.
    other_edition: Cell<Option<OtherEdition>>,
}

impl ReplaySession<'_> {
    /// Replays the journal under its own policy or, if another policy was given, under that one. Returns the pool at
    /// the end.
    fn replay(&self, listener: &mut impl ReplayListener) -> anyhow::Result<Pool> {
        let Some(path) = &self.args.policy else {
            let (mut pool, mut journal) = self.open("replay")?;
            steps::replay(&mut pool, &mut journal, listener)?;
            return Ok(pool);
        };
        let policy = self.read_policy(path)?;
        let (mut pool, mut journal) = self.open("recording")?;
        let mut learner = RecordingBuilder::default();
        steps::replay(&mut pool, &mut journal, &mut learner)?;
        let recording = learner.finish();
        let (pool, mut journal) = self.open("what if")?;
        WhatIfReplay::new(&recording, pool, &policy).run(&mut journal, listener)
    }

    fn print_diff(&self, path: &Path) -> anyhow::Result<()> {
        let policy = self.read_policy(path)?;
        let (mut pool, mut journal) = self.open("recording")?;
        let mut learner = RecordingBuilder::default();
        // The recording's root does not know the file's classes.
        let by = self.args.by.or(policy.classifies().then_some(Attribute::Class));
        let mut recorded = FlowTallyCollector::new(by);
        steps::replay(&mut pool, &mut journal, &mut BothListeners(&mut learner, &mut recorded))?;
        let recording = learner.finish();
        let recorded = recorded.finish(&recording);
        let (pool, mut journal) = self.open("what if")?;
        let mut what_if = FlowTallyCollector::new(by);
        WhatIfReplay::new(&recording, pool, &policy).run(&mut journal, &mut what_if)?;
        drop(journal);
        let what_if = what_if.finish(&recording);
        let diff = PolicyDiff::new(&recorded, &what_if, self.other_edition.get());
        let written = match self.args.json {
            true => diff.write_json(self.output.clone()),
            false => diff.write_table(self.output.clone()),
        };
        written.context("standard output")
    }

    fn print_story(&self, id: &str) -> anyhow::Result<()> {
        let mut explain = HistoryCollector::new(id);
        let replayed = self.replay(&mut explain);
        explain.finish();
        if explain.is_empty() {
            replayed?;
            anyhow::bail!("{}: there is no request {}", self.args.journal.display(), safe_name(id));
        }
        let written = match self.args.json {
            true => explain.write_json(self.output.clone(), self.other_edition.get()),
            false => explain.write_words(self.output.clone()),
        };
        written.context("standard output")?;
        replayed.map(drop)
    }

    fn print_fairness(&self) -> anyhow::Result<()> {
        let pool = self.replay(&mut SilentListener)?;
        let written = match self.args.json {
            true => fairness::write_json(&pool, self.output.clone(), self.other_edition.get()),
            false => fairness::write_tables(&pool, self.output.clone()),
        };
        written.context("standard output")
    }

    fn open(&self, task: &'static str) -> anyhow::Result<(Pool, ReplayJournal)> {
        let (pool, mut journal) = ReplayJournal::open(&self.args.journal, self.output)?;
        if let Some(other) = journal.other_edition()
            && self.other_edition.replace(Some(other)).is_none()
        {
            eprintln!("{}", other.note(journal.name()));
        }
        if self.progress {
            journal.show_progress(task);
        }
        Ok((pool, journal))
    }

    /// Reads the other policy, after checking that the journal can be read twice.
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
