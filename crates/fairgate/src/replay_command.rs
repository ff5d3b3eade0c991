//! The command `fairgate replay`, which computes a journal's decisions again, also under another policy.

mod progress;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgGroup, Args};
use fairgate_control::admin::moment::parse_typed_time;
use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_replay::{
    DecisionPrinter, DiffColumn, FlowWeight, HistoryCollector, OtherEdition, OtherPolicy,
    ReplayError, ReplayJournal, ReplayListener, ReplayPlan, ReplayRange, ShownUnit, SilentListener,
    fairness, policy_diff, replay, replay_under,
};
use fairgate_store::UnixMicros;
use fairgate_time::wall_clock;

use self::progress::ReplayProgress;
use crate::output::{FlushingInput, StdoutWriter};
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
#[command(group = ArgGroup::new("other").args(["policy", "weight"]))]
pub(crate) struct ReplayArgs {
    /// Journal: a file of JSON lines, or the folder of a pool's journal; `-` reads standard input.
    ///
    /// A folder's files are read as one journal, from the last start or gap on, or from --since. With --since or --until
    /// the times of day in the files' first lines are used.
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

    /// Replay the same arrivals with another weight for one flow, such as tenant:batch=50 (what if); repeatable.
    ///
    /// Like --policy, but the recording's own policy is kept. Recorded weights of the same flow are left out.
    #[arg(long, value_name = "BY:FLOW=WEIGHT", value_parser = str::parse::<FlowWeight>)]
    weight: Vec<FlowWeight>,

    /// With --policy or --weight: print each flow's results under both policies, side by side, instead of the decisions.
    ///
    /// Per flow: requests, granted requests, their tokens (real usage, else their cost), refused requests (rejected or
    /// expired), and the median, 95th percentile and longest wait of the granted ones. The quantiles are exact: every
    /// wait is kept.
    #[arg(long, requires = "other")]
    diff: bool,

    /// With --diff: attribute whose values are the flows. Default: the attribute of the recording's root node, or class
    /// if --policy names a policy file.
    #[arg(long, value_name = "ATTRIBUTE", requires = "diff", value_parser = attribute())]
    by: Option<Attribute>,

    /// With --diff: sort the flows by this column, greatest first. Numbers are those of the other policy.
    #[arg(long, value_name = "COLUMN", requires = "diff", value_parser = diff_column())]
    sort: Option<DiffColumn>,

    /// With --diff: list only the first N flows.
    #[arg(long, value_name = "N", requires = "diff", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,

    /// Begin at this time of day: an age such as 2h, or a time such as 2026-11-15T12:00:00Z.
    ///
    /// The events before it are replayed too, under the journal's own policy, and nothing is printed for them.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// End before this time of day, in the formats of --since.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

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

    /// Unit of the pool's costs, for headings, sentences and the field `unit` of --json: that of `cost.unit` in the pool. A
    /// journal does not state it.
    #[arg(long, value_name = "UNIT", default_value = "tokens", value_parser = shown_unit())]
    unit: ShownUnit,

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
    let other = args.other_policy()?;
    let plan = args.plan()?;
    let session =
        ReplaySession { args, plan, other, output, progress, other_edition: Cell::new(None) };
    match &args.explain {
        _ if args.diff => session.print_diff(),
        Some(id) => session.print_story(id),
        _ if args.fairness => session.print_fairness(),
        _ => session.replay(&mut DecisionPrinter::new(output.clone())).map(drop),
    }
}

/// Parses the name of an attribute.
fn attribute() -> impl TypedValueParser<Value = Attribute> {
    let names = PossibleValuesParser::new(Attribute::ALL.map(Attribute::name));
    names.try_map(|name| Attribute::from_name(&name).ok_or("not an attribute"))
}

/// Parses the name of a unit.
fn shown_unit() -> impl TypedValueParser<Value = ShownUnit> {
    let names = PossibleValuesParser::new(ShownUnit::NAMES.map(|(name, _)| name));
    let known = |name: String| ShownUnit::NAMES.into_iter().find(|(known, _)| *known == name);
    names.try_map(move |name| known(name).map(|(_, unit)| unit).ok_or("no such unit"))
}

/// Parses the name of a column of the comparison.
fn diff_column() -> impl TypedValueParser<Value = DiffColumn> {
    let names = PossibleValuesParser::new(DiffColumn::NAMES.map(|(name, _)| name));
    let known = |name: String| DiffColumn::NAMES.into_iter().find(|(known, _)| *known == name);
    names.try_map(move |name| known(name).map(|(_, column)| column).ok_or("no such column"))
}

impl ReplayArgs {
    /// Returns the differences of a what-if from the recording; `None` without --policy and
    /// --weight.
    fn other_policy(&self) -> anyhow::Result<Option<OtherPolicy>> {
        if !self.weight.is_empty() {
            self.check_two_passes("--weight")?;
            return Ok(Some(OtherPolicy::of_weights(self.weight.clone())));
        }
        let Some(path) = &self.policy else { return Ok(None) };
        self.check_two_passes("--policy")?;
        Ok(Some(OtherPolicy::read(path)?))
    }

    /// Checks that the journal can be read twice.
    fn check_two_passes(&self, option: &str) -> anyhow::Result<()> {
        let journal = &self.journal;
        let twice = format!("{option} reads the journal twice: it must be a file");
        if journal == Path::new("-") {
            let usage = format!("{twice}, not standard input\n");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, usage).into());
        }
        let name = || journal.display().to_string();
        let metadata = fs::metadata(journal).with_context(name)?;
        anyhow::ensure!(metadata.is_file() || metadata.is_dir(), "{}: {twice}", name());
        Ok(())
    }

    /// Chooses the files and the time range.
    fn plan(&self) -> anyhow::Result<ReplayPlan> {
        let now = wall_clock::now();
        let time = |option: &str, text: &Option<String>| -> anyhow::Result<Option<UnixMicros>> {
            let Some(text) = text else { return Ok(None) };
            let usage = || {
                let usage = format!(
                    "{option} {text}: must be a time such as 2026-11-15T12:00:00Z, seconds since 1970, or an age such as 2h\n"
                );
                clap::Error::raw(ErrorKind::ValueValidation, usage)
            };
            Ok(Some(parse_typed_time(text, now).ok_or_else(usage)?))
        };
        let range = ReplayRange {
            since: time("--since", &self.since)?,
            until: time("--until", &self.until)?,
        };
        if self.journal.is_dir() {
            return Ok(ReplayPlan::of_folder(&self.journal, range)?);
        }
        if self.journal == Path::new("-") && range != ReplayRange::default() {
            let usage = "--since and --until need a file or a folder, not standard input\n";
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, usage).into());
        }
        Ok(ReplayPlan::of_file(&self.journal, range)?)
    }
}

/// State that all kinds of replay share.
struct ReplaySession<'a> {
    args: &'a ReplayArgs,
    plan: ReplayPlan,
    /// Differences of a what-if from the recording; `None` to replay the journal as it is.
    other: Option<OtherPolicy>,
    output: &'a StdoutWriter,
    progress: bool,
    /// Version of the scheduling rules that wrote the journal, set when the journal is opened; `None` if it is this
    /// program's.
    other_edition: Cell<Option<OtherEdition>>,
}

impl ReplaySession<'_> {
    /// Replays the journal under its own policy or, if another policy was given, under that other
    /// policy. Returns the pool at the end.
    fn replay(&self, listener: &mut impl ReplayListener) -> anyhow::Result<Pool> {
        let Some(other) = &self.other else {
            let (mut pool, mut journal) = self.open("replay")?;
            replay(&mut pool, &mut journal, listener)?;
            return Ok(pool);
        };
        Ok(replay_under(other, &|task| self.open(task), listener)?)
    }

    fn print_diff(&self) -> anyhow::Result<()> {
        let other = self.other.as_ref().context("--diff needs --policy or --weight")?;
        let mut diff = policy_diff(other, self.args.by, &|task| self.open(task))?.diff;
        let top = self.args.top.map(|top| usize::try_from(top).unwrap_or(usize::MAX));
        diff.keep_top(self.args.sort, top);
        diff.set_unit(self.args.unit);
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
        let unit = self.args.unit;
        let written = match self.args.json {
            true => explain.write_json(self.output.clone(), unit, self.other_edition.get()),
            false => explain.write_words(self.output.clone(), unit),
        };
        written.context("standard output")?;
        replayed.map(drop)
    }

    fn print_fairness(&self) -> anyhow::Result<()> {
        let pool = self.replay(&mut SilentListener)?;
        let unit = self.args.unit;
        let written = match self.args.json {
            true => {
                fairness::write_json(&pool, unit, self.output.clone(), self.other_edition.get())
            }
            false => fairness::write_tables(&pool, unit, self.output.clone()),
        };
        written.context("standard output")
    }

    fn open(&self, task: &'static str) -> Result<(Pool, ReplayJournal), ReplayError> {
        let (pool, mut journal) = match self.args.journal.is_dir() {
            true => ReplayJournal::open(&self.plan)?,
            false => {
                let (path, output) = (&self.args.journal, self.output);
                let name = match path == Path::new("-") {
                    true => "standard input".to_owned(),
                    false => path.display().to_string(),
                };
                let opener = |path: &Path| open_input(path, output);
                ReplayJournal::open_with(&self.plan, &name, &opener)?
            }
        };
        if let Some(other) = journal.other_edition()
            && self.other_edition.replace(Some(other)).is_none()
        {
            eprintln!("{}", other.note(journal.name()));
        }
        if self.progress {
            let progress = ReplayProgress::shown(self.plan.bytes(), task);
            journal.set_progress(Box::new(move |line, bytes| progress.advance(line, bytes)));
        }
        Ok((pool, journal))
    }
}

/// Opens a file or standard input. Flushes `output` whenever more input must be read.
fn open_input(path: &Path, output: &StdoutWriter) -> io::Result<Box<dyn Read>> {
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path)?),
    };
    Ok(Box::new(FlushingInput::new(input, output.clone())))
}
