//! The command `fairgate prove`, which runs a published experiment on this machine and checks the result.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use fairgate_prove::observe::for_stderr;
use fairgate_prove::render::{TextStyle, svg, text};
use fairgate_prove::report::ProveReport;
use fairgate_prove::scenario::{ExperimentLength, Scenario, scenarios};
use fairgate_prove::{RunOptions, run as run_scenario};

use crate::output::StdoutWriter;

/// Prove fairness with real clients that flood a real gateway over sockets. The journal, the ledger and the clients'
/// own counts are compared.
///
/// Each scenario starts simulated models, a gateway with its database and journal in a temporary folder, and clients
/// that send the next request as soon as one is answered. A small tenant floods the gateway; when requests wait, the
/// other tenants join. Then the journal is replayed, and journal, ledger and clients must agree. Each tenant's tokens
/// must differ from its ideal share by no more than the proven bound, and by no more than 3 % in the end. Exits with 1
/// if a check fails.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProveArgs {
    /// Scenarios to run. Default: all.
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,

    /// List the scenarios, and run none.
    #[arg(long, conflicts_with_all = ["long", "quick", "svg", "json", "keep"])]
    list: bool,

    /// Use the published experiment's own numbers: 20 ms to the first token, 5 ms per token, max_tokens 150, 10 s with
    /// one tenant alone, and at least 60 s with all tenants, for each scenario.
    #[arg(long)]
    long: bool,

    /// Take as little time as the checks allow.
    #[arg(long, conflicts_with = "long")]
    quick: bool,

    /// Write a picture of each scenario into this folder.
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Print the reports as one JSON list instead of text.
    #[arg(long)]
    json: bool,

    /// Keep each scenario's database and journal in this folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Runs the command. Fails if a check fails; the error names the check and the difference.
pub(crate) fn run(args: &ProveArgs) -> anyhow::Result<()> {
    let mut out = StdoutWriter::stdout();
    let pace = match (args.long, args.quick) {
        (true, _) => ExperimentLength::Long,
        (_, true) => ExperimentLength::Quick,
        _ => ExperimentLength::Normal,
    };
    let chosen = choose(scenarios(pace), &args.scenarios)?;
    if args.list {
        return list(&chosen, out).context("standard output");
    }
    let options = RunOptions { keep: args.keep.clone() };
    let mut observer = for_stderr(io::stderr().is_terminal());
    let mut reports = Vec::new();
    for scenario in &chosen {
        let report = run_scenario(scenario, &options, observer.as_mut())?;
        if let Some(folder) = &args.svg {
            draw(folder, &report)?;
        }
        if !args.json {
            writeln!(out, "{}", text(&report, TextStyle::for_stdout()))
                .context("standard output")?;
            out.flush().context("standard output")?;
        }
        reports.push(report);
    }
    drop(observer);
    if args.json {
        serde_json::to_writer_pretty(&mut out, &reports)
            .map_err(io::Error::from)
            .context("standard output")?;
        writeln!(out).context("standard output")?;
    }
    out.flush().context("standard output")?;
    verdict(&reports)
}

fn choose(all: Vec<Scenario>, names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let known = |name: &String| all.iter().any(|scenario| scenario.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let names: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
        bail!("there is no scenario {unknown:?}; there are {}", names.join(", "));
    }
    let wanted = |scenario: &Scenario| names.is_empty() || names.iter().any(|n| n == scenario.name);
    Ok(all.into_iter().filter(wanted).collect())
}

fn list(scenarios: &[Scenario], mut out: impl Write) -> io::Result<()> {
    for scenario in scenarios {
        writeln!(out, "{:24} {}", scenario.name, scenario.title)?;
    }
    out.flush()
}

fn draw(folder: &Path, report: &ProveReport) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = folder.join(format!("prove-{}.svg", report.scenario));
    fs::write(&file, svg(report)).with_context(|| file.display().to_string())
}

fn verdict(reports: &[ProveReport]) -> anyhow::Result<()> {
    let failed = reports.iter().flat_map(|report| {
        let bars = report.bars.iter().filter(|bar| !bar.passed);
        bars.map(|bar| format!("{}: {}: {}", report.scenario, bar.name, bar.says))
    });
    let failed: Vec<String> = failed.collect();
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("{} bars failed\n  {}", failed.len(), failed.join("\n  ")),
    }
}
