//! `cargo xtask test` runs all checks that a change must pass before it is merged; `test quick`
//! runs those that are worth running after every edit.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use crate::step::XtaskStep;
use crate::{XtaskError, cargo, frameworks, gateway, lint, python, pythons, tools};

/// Number of random journals that the property tests try in `test quick`. The whole suite tries 20
/// 000.
const QUICK_CASES: &str = "600";

/// Crates that `test quick` tests: the core, the journal, the oracle and the async runtime.
const QUICK_CRATES: [&str; 4] =
    ["fairgate-core", "fairgate-journal", "fairgate-testkit", "fairgate-runtime"];

/// Slowest tests of [`QUICK_CRATES`], which only the whole suite runs: they try millions of damaged
/// inputs, thousands of schedules, or restarts.
const SLOW_TESTS: [&str; 5] = ["hostile", "model", "restart", "stress", "tampered"];

pub(crate) fn steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    match args {
        [] => all(root),
        ["quick"] => quick(root),
        ["python"] => python::steps_alone(root),
        ["pythons"] => pythons::steps(root),
        ["sdk"] => gateway::sdk_steps_alone(root),
        ["backends"] => gateway::backend_steps_alone(root),
        ["frameworks", rest @ ..] => frameworks::steps(root, rest),
        ["soak"] => Ok(gateway::short_soak_steps_alone(root)),
        other => {
            let other = other.join(" ");
            let there_are = "there are `quick`, `python`, `pythons`, `sdk`, `backends`, `soak` and `frameworks`, and none for everything";
            Err(XtaskError(format!("no such tests: `{other}`; {there_are}")))
        }
    }
}

fn all(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = lint::steps();
    steps.extend(tools::need_postgresql());
    // README's agents call the gateway with it.
    steps.extend(tools::need_debian("curl", "curl"));
    steps.push(cargo("tests", &["test", "--workspace", "--no-fail-fast"]));
    steps.extend(gateway::sdk_steps(root)?);
    steps.extend(gateway::backend_steps(root)?);
    steps.extend(python::steps(root)?);
    steps.extend(gateway::short_soak_steps(root));
    Ok(steps)
}

/// Returns the steps of `test quick`: clippy and the tests of [`QUICK_CRATES`]. The other crates
/// take most of the build time, and have few tests that a change of a scheduling rule could break.
fn quick(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let names = quick_tests(root)?;
    let crates: Vec<&str> = QUICK_CRATES.iter().flat_map(|name| ["--package", name]).collect();
    let clippy = [&["clippy"], &crates[..], &["--all-targets", "--", "-Dwarnings"]].concat();
    let mut tests = [&["test"], &crates[..], &["--no-fail-fast", "--lib"]].concat();
    tests.extend(names.iter().flat_map(|name| ["--test", name]));
    let cases = env::var("FAIRGATE_CASES").unwrap_or_else(|_| QUICK_CASES.into());
    let tests = cargo("tests", &tests).env("FAIRGATE_CASES", &cases);
    Ok(vec![lint::format(), cargo("clippy", &clippy), tests])
}

/// Returns the names of the integration tests of [`QUICK_CRATES`], which are in `tests/NAME.rs` or
/// `tests/NAME/main.rs`.
fn quick_tests(root: &Path) -> Result<BTreeSet<String>, XtaskError> {
    let mut names = BTreeSet::new();
    for name in QUICK_CRATES {
        let dir = root.join("crates").join(name).join("tests");
        if !dir.exists() {
            continue;
        }
        let unreadable = |error| XtaskError(format!("cannot read {}: {error}", dir.display()));
        for entry in fs::read_dir(&dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|e| e == "rs") || path.join("main.rs").is_file() {
                names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
    }
    for slow in SLOW_TESTS {
        names.remove(slow);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
    }

    #[test]
    fn only_what_is_there_is_run() {
        assert_eq!(steps(root(), &["quick"]).map(|steps| steps.len()), Ok(3));
        for bad in [&["fast"][..], &["quick", "quick"], &["--quick"]] {
            assert!(steps(root(), bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_quick_run_has_the_tests_of_what_decides() {
        let quick = quick_tests(root()).expect("the crates are there");
        for name in ["cases", "properties", "regressions", "round_trip", "vectors"] {
            assert!(quick.contains(name), "{name} is not in {quick:?}");
        }
        assert!(!quick.contains("seeds") && !quick.contains("support"), "{quick:?} has folders");
        assert!(SLOW_TESTS.iter().all(|slow| !quick.contains(*slow)), "{quick:?}");
    }
}
