//! The chores of the project, such as `cargo xtask test`.
//!
//! Every chore is a list of [`step::XtaskStep`]s, which run in order until one step fails. A CI run
//! builds this program first, so it depends only on the standard library.
#![allow(clippy::print_stdout, reason = "a command line program talks on stdout")]

mod agents;
mod bench;
mod cargo_tests;
mod clickhouse;
mod dist;
mod frameworks;
mod fuzz;
mod gateway;
mod lint;
mod mutants;
mod node;
mod packages;
mod python;
mod pythons;
mod step;
mod test;
mod tidy;
mod tools;
mod ui;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fmt};

use step::XtaskStep;

/// Cargo profile of programs that are measured or packaged. It is also the name of their folder
/// under `target/`.
const PROFILE_OF_PACKAGES: &str = "dist";
/// Features with which programs are packaged, and measured.
const FEATURES_OF_PACKAGES: &str = "fairgate/jemalloc";

const HELP: &str = "\
The chores of the project.

Usage: cargo xtask <chore>

  test                            everything that CI runs: lint, then all tests
  test quick                      after an edit: rustfmt, clippy, unit tests, cases, vectors, and
                                  the property tests on few journals; FAIRGATE_CASES sets how many
  test python                     of all tests, what the Python package needs
  test pythons                    the Python package's tests on each of Python 3.10 to 3.13 that is installed
                                  (not part of `test`)
  test sdk                        of all tests, the SDKs' tests of the gateway
  test backends                   of all tests, those of the gateway in front of llama.cpp and uvicorn
  test ui                         of all tests, those of the dashboard in a browser; FAIRGATE_UI_SCREENSHOTS
                                  names a folder for pictures of each page
  test long                       what `test` has no time for (not part of it): shares of worker time over sockets, for a
                                  minute instead of 26 seconds
  test soak                       of all tests, both soaks in 60 seconds each
  test frameworks [NAME]          the Python package's recipes with the real frameworks from PyPI (not
                                  part of `test`: they take gigabytes); all of them unless one is named
  test agents [NAME…]             the recipes of examples/recipes with the real coding agents from npm and
                                  PyPI, and the story of docs/team.md in full (not part of `test`); all of
                                  them, or the named ones: `team` is the story. With FAIRGATE_UPDATE_DOCS=1,
                                  docs/recipes.md and docs/team.md are written instead of compared
  test packages [--profile P]     the container image, compose, the Debian package, the chart and the site, built
                                  and used (not part of `test`, which has quick checks of them); the programs are
                                  those of the profile dist unless another is named
  test cluster                    clusters of gateways: simulated ones, and member processes whose PostgreSQL fails 30 times
  test clickhouse [ARGS]          the copy of the ledger in Debian's ClickHouse and in today's, while both sides are killed
                                  (not part of `test`); arguments are pytest's
  lint                            rustfmt, tidy, clippy and rustdoc, warnings are errors
  tidy [--all] [--lower]          counts names and doc comments that break the rules of docs/glossary.md, and
                                  rules with more than one home; the numbers in xtask/tidy.ratchet may only
                                  fall. --all prints every offender, --lower writes lower numbers down
  bench core [options]            the benchmarks of the core, as ratios; --help lists the options
  bench prefix [options]          the prefix index and placing by it, as ratios
  bench gateway [options]         the gateway beside nginx, LiteLLM and Portkey
  bench instructions [options]    instructions that a request costs the gateway and a bare hyper
                                  proxy, by part; needs valgrind
  bench router [options]          the gateway as a router beside sglang-router, vllm-router and
                                  round robin; --help lists the options
  bench fleet [options]           agents that claim and complete tasks, on SQLite and PostgreSQL
  bench store [options]           rows that the ledger takes, on SQLite and PostgreSQL
  bench watcher [options]         what a reader of the stream of events costs the requests of a full pool
  soak [--seconds N] [--seed N]   the gateway at load with attackers, in front of simulated and real
                                  servers, while PostgreSQL is away twice, the gateway is killed
                                  twice and its disk gets full; 600 seconds unless told otherwise;
                                  --plan prints what happens when; --attackers has no disasters and
                                  more attackers, and compares honest tenants before and during
                                  the attack
  bench python [options]          grants per second of the Python package beside loco-agent, and the
                                  instructions of a slot beside a Semaphore's
  dist                            everything that is published, in target/dist/packages: archive, Debian package,
                                  images, chart, wheel, checksums. The tree must have no changes. Signed with the
                                  minisign key that FAIRGATE_SIGNING_KEY_FILE names
  dist --verify [PROGRAM…]        builds the programs again from a copy of the commit elsewhere, and compares
  dist --sign FOLDER              signs the SHA256SUMS of a folder that `dist` made, on this machine or another
  pictures                        the pictures of docs/dashboard.md, of the pages as they are now, in docs/img
  site                            the documents as a site, in target/site/book
  wheel                           a wheel of the Python package, in target/wheels
  fuzz [target] [--seconds N]     fuzz one target, or all of them in turn; 60 seconds each
                                  unless told otherwise
  mutants [cargo-mutants args]    change the core's decision code, see that a test notices
  help                            this text

What a chore needs and the machine lacks is installed: Debian packages with apt-get, cargo
subcommands with cargo install, Python packages with pip into environments under target/venv,
npm packages under target/npm.
";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match chore(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("cargo xtask: {refusal}");
            ExitCode::FAILURE
        }
    }
}

fn chore(args: &[&str]) -> Result<(), XtaskError> {
    let root = root()?;
    let steps = match args {
        [] | ["help" | "--help" | "-h"] | ["test", "help" | "--help" | "-h"] => {
            print!("{HELP}");
            return Ok(());
        }
        ["test", rest @ ..] => test::steps(&root, rest)?,
        ["lint"] => lint::steps(),
        ["tidy", rest @ ..] => return tidy::run(&root, rest),
        ["bench", what, rest @ ..] => bench::steps(&root, what, rest)?,
        ["soak", rest @ ..] => gateway::soak_steps(&root, rest)?,
        ["dist", rest @ ..] => dist::steps(&root, rest)?,
        ["pictures"] => ui::picture_steps(&root)?,
        ["site"] => dist::site_steps(&root)?,
        ["wheel"] => python::wheel_steps(&root)?,
        ["fuzz", rest @ ..] => fuzz::steps(&root, rest)?,
        ["mutants", rest @ ..] => mutants::steps(rest),
        other => {
            let other = other.join(" ");
            return Err(XtaskError(format!(
                "no such chore: `{other}`; `cargo xtask help` lists them"
            )));
        }
    };
    step::run_all(&root, steps)
}

/// Returns the workspace's root, independent of the current folder.
fn root() -> Result<PathBuf, XtaskError> {
    env::var_os("CARGO_MANIFEST_DIR")
        .and_then(|xtask| Path::new(&xtask).parent().map(Path::to_owned))
        .ok_or_else(|| XtaskError("call me as `cargo xtask`, from inside the workspace".into()))
}

/// The reason why a chore failed or was not begun, as a sentence for the user.
#[derive(Debug, PartialEq, Eq)]
struct XtaskError(String);

impl fmt::Display for XtaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns a step that runs cargo with these arguments. The step uses the same cargo that runs this
/// program.
fn cargo(name: &str, args: &[&str]) -> XtaskStep {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    XtaskStep::new(name, &cargo, args)
}
