//! `cargo xtask test` runs all checks that a change must pass before it is merged. `cargo xtask
//! test quick` runs the checks that are worth running after every edit.

use std::env;
use std::path::Path;

use crate::step::XtaskStep;
use crate::{
    XtaskError, agents, cargo, clickhouse, frameworks, gateway, lint, packages, python, pythons,
    tools, ui,
};

/// Number of random journals that the property tests try in `test quick`. The whole suite tries 20
/// 000.
const QUICK_CASES: &str = "600";

/// Number of faults that happen to member processes and their PostgreSQL in `test cluster`. The whole suite has four.
const CLUSTER_FAULTS: &str = "30";

/// Crates that `test quick` tests: the core, the journal, the oracle and the async runtime.
const QUICK_CRATES: [&str; 4] =
    ["fairgate-core", "fairgate-journal", "fairgate-testkit", "fairgate-runtime"];

/// Modules of [`QUICK_CRATES`]' integration tests that only the whole suite runs. They try millions
/// of damaged inputs, or restart many times. `test quick` also leaves out the runtime's
/// `tests/model.rs`, which tries thousands of schedules.
const SLOW_TESTS: [&str; 4] = ["hostile::", "restart::", "stress::", "tampered::"];

/// Names of integration tests other than `it`, which almost every crate has.
const OTHER_TEST_PROGRAMS: [&str; 3] = ["cli", "model", "soak"];

pub(crate) fn steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    match args {
        [] => all(root),
        ["quick"] => Ok(quick()),
        ["python"] => python::steps_alone(root),
        ["pythons"] => pythons::steps(root),
        ["sdk"] => gateway::sdk_steps_alone(root),
        ["ui"] => ui::ui_steps_alone(root),
        ["backends"] => gateway::backend_steps_alone(root),
        ["frameworks", rest @ ..] => frameworks::steps(root, rest),
        ["agents", rest @ ..] => agents::steps(root, rest),
        ["packages", rest @ ..] => packages::steps(root, rest),
        ["clickhouse", rest @ ..] => clickhouse::steps(root, rest),
        ["cluster"] => Ok(cluster()),
        ["soak"] => Ok(gateway::short_soak_steps_alone(root)),
        ["long"] => Ok(vec![long()]),
        other => {
            let other = other.join(" ");
            let there_are = "there are `quick`, `python`, `pythons`, `sdk`, `backends`, `ui`, `soak`, `frameworks`, `agents`, `packages`, `clickhouse` and `cluster`, and none for everything";
            Err(XtaskError(format!("no such tests: `{other}`; {there_are}")))
        }
    }
}

fn all(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = lint::steps();
    steps.extend(tools::need_postgresql());
    // The examples of README.md and of the pages call the gateway with curl and jq, and their
    // agents work in git repositories. `fairgate top` is tested in tmux.
    for program in ["curl", "jq", "git", "tmux"] {
        steps.extend(tools::need_debian(program, program));
    }
    steps.extend(workspace_tests());
    steps.extend(packages::quick_steps(root)?);
    steps.extend(gateway::sdk_steps(root)?);
    steps.extend(gateway::backend_steps(root)?);
    steps.extend(ui::ui_steps(root)?);
    steps.extend(python::steps(root)?);
    steps.extend(gateway::short_soak_steps(root));
    Ok(steps)
}

/// Returns the steps that build and run all tests of the workspace. Each command selects the whole
/// workspace, because other selections of packages would build the libraries again, with other
/// features.
fn workspace_tests() -> [XtaskStep; 2] {
    let test = |which: &[&str]| {
        cargo("tests", &[&["test", "--workspace", "--no-fail-fast"], which].concat())
    };
    let named: Vec<&str> = OTHER_TEST_PROGRAMS.iter().flat_map(|name| ["--test", name]).collect();
    let groups = vec![
        test(&["--test", "it"]),
        test(&[&["--lib", "--bins", "--examples"], &named[..]].concat()),
        test(&["--doc"]),
    ];
    let build = cargo("build of the tests", &["test", "--workspace", "--no-run"]);
    [build, XtaskStep::tests_at_once("tests", groups)]
}

/// Returns the steps of `test cluster`: all tests of clusters, with [`CLUSTER_FAULTS`] faults instead of four.
fn cluster() -> Vec<XtaskStep> {
    let tests = ["test", "--package", "fairgate-cluster", "--package", "fairgate-replica"];
    let tests = cargo("tests", &[&tests[..], &["--", "--nocapture"]].concat());
    let faults = env::var("FAIRGATE_CLUSTER_FAULTS").unwrap_or_else(|_| CLUSTER_FAULTS.into());
    let mut steps = tools::need_postgresql();
    steps.push(tests.env("FAIRGATE_CLUSTER_FAULTS", &faults));
    steps
}

/// Returns the steps of `test quick`: clippy and the tests of [`QUICK_CRATES`]. The other crates
/// take most of the build time, and have few tests that a change of a scheduling rule could break.
fn quick() -> Vec<XtaskStep> {
    let crates: Vec<&str> = QUICK_CRATES.iter().flat_map(|name| ["--package", name]).collect();
    let clippy = [&["clippy"], &crates[..], &["--all-targets", "--", "-Dwarnings"]].concat();
    let slow: Vec<&str> = SLOW_TESTS.iter().flat_map(|name| ["--skip", name]).collect();
    let which = ["--no-fail-fast", "--lib", "--test", "it", "--"];
    let tests = [&["test"], &crates[..], &which, &slow].concat();
    let cases = env::var("FAIRGATE_CASES").unwrap_or_else(|_| QUICK_CASES.into());
    let tests = cargo("tests", &tests).env("FAIRGATE_CASES", &cases);
    vec![lint::format(), cargo("clippy", &clippy), tests]
}

/// Returns the step that runs tests of the gateway that take minutes. The whole suite has shorter runs of the same.
fn long() -> XtaskStep {
    let test = ["test", "--workspace", "--test", "it", "--", "--ignored", "--nocapture"];
    cargo("long tests", &[&test[..], &["equal_parts_of_the_engine_for_a_minute"]].concat())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
    }

    #[test]
    fn only_what_is_there_is_run() {
        assert_eq!(steps(root(), &["quick"]).map(|steps| steps.len()), Ok(3));
        let cluster = format!("{:?}", steps(root(), &["cluster"]));
        assert!(cluster.contains("FAIRGATE_CLUSTER_FAULTS"), "{cluster}");
        for bad in [&["fast"][..], &["quick", "quick"], &["--quick"]] {
            assert!(steps(root(), bad).is_err(), "{bad:?}");
        }
    }

    /// A test program with another name would never run.
    #[test]
    fn every_test_program_is_in_a_group() {
        for entry in fs::read_dir(root().join("crates")).expect("there are crates").flatten() {
            let Ok(tests) = fs::read_dir(entry.path().join("tests")) else { continue };
            for test in tests.flatten().map(|test| test.path()) {
                let is_program = test.is_dir() && test.join("main.rs").is_file()
                    || test.extension().is_some_and(|extension| extension == "rs");
                let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let is_known = name == "it" || OTHER_TEST_PROGRAMS.contains(&name.as_str());
                assert!(!is_program || is_known, "{}", test.display());
            }
        }
    }

    /// A crate without integration tests, or with another name for them, would be skipped without a
    /// message.
    #[test]
    fn a_quick_run_has_the_tests_of_what_decides() {
        let crates = root().join("crates");
        for name in ["fairgate-journal", "fairgate-runtime", "fairgate-testkit"] {
            assert!(QUICK_CRATES.contains(&name), "{name}");
            assert!(crates.join(name).join("tests/it/main.rs").is_file(), "{name}");
        }
        let there = |module: &str| {
            let file = format!("tests/it/{}.rs", module.trim_end_matches("::"));
            QUICK_CRATES.iter().any(|name| crates.join(name).join(&file).is_file())
        };
        assert!(SLOW_TESTS.into_iter().all(there), "{SLOW_TESTS:?} are names of files");
    }
}
