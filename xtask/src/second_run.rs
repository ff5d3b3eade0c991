//! Second runs: what failed beside everything else is run once more, alone.
//!
//! Many tests start programs and talk over sockets. On a machine that is busy with something else, one of some thousand
//! may run out of time. A test that passes alone has not shown a fault of the program, but may have: so a run that
//! needed this passes, and its table says which tests were run again.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::{io, thread};

/// More failed tests than this are no accident, and are not run again.
const TESTS_AT_MOST: usize = 8;

/// Tests that have failed in a run of `cargo test --no-fail-fast`, by what cargo and libtest printed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FailedTests {
    /// Names of the tests, as libtest lists them.
    names: Vec<String>,
    /// Arguments of cargo that choose the test programs with failed tests, such as `-p fairgate-store --test it`.
    targets: Vec<Vec<String>>,
}

impl FailedTests {
    /// Reads what `cargo test --no-fail-fast` has printed.
    fn read(stdout: &str, stderr: &str) -> Self {
        let mut names = Vec::new();
        let mut is_list = false;
        for line in stdout.lines() {
            // The heading stands twice: first over the tests' output, then over the list of names.
            match line.strip_prefix("    ").filter(|name| !name.starts_with(' ')) {
                Some(name) if is_list => names.push(name.trim_end().to_owned()),
                _ => {
                    is_list =
                        line == "failures:" || (is_list && line.is_empty() && names.is_empty())
                }
            }
        }
        names.sort();
        names.dedup();
        let targets = stderr.lines().filter_map(target_of_line).collect();
        Self { names, targets }
    }

    /// Returns the names of the tests if it makes sense to run them again.
    fn worth_a_second_run(&self) -> Option<&[String]> {
        let few = (1..=TESTS_AT_MOST).contains(&self.names.len());
        (few && !self.targets.is_empty()).then_some(&self.names)
    }
}

/// Returns the arguments in a line such as ``    `-p fairgate-store --test it` ``, with which cargo lists the programs
/// that failed.
fn target_of_line(line: &str) -> Option<Vec<String>> {
    let words = line.strip_prefix("    `-p ")?.strip_suffix('`')?;
    Some(["-p"].into_iter().chain(words.split(' ')).map(str::to_owned).collect())
}

/// Result of a run of `cargo test`, and of the second run if there was one.
pub(crate) struct CargoTestOutcome {
    pub(crate) status: ExitStatus,
    /// Names of tests that failed at first and passed alone.
    pub(crate) passed_alone: Vec<String>,
}

/// Runs `cargo test`, and what failed once more: alone, one test after another.
pub(crate) fn run_cargo_test(first: &mut Command) -> io::Result<CargoTestOutcome> {
    let (status, stdout, stderr) = shown_and_kept(first)?;
    let failed = FailedTests::read(&stdout, &stderr);
    let Some(names) = failed.worth_a_second_run().filter(|_| !status.success()) else {
        return Ok(CargoTestOutcome { status, passed_alone: Vec::new() });
    };
    println!("\n==> once more, alone: {}", names.join(", "));
    let mut passed = 0;
    for target in &failed.targets {
        let mut again = Command::new(first.get_program());
        again.arg("test").args(target).args(["--", "--exact", "--test-threads=1"]).args(names);
        for (key, value) in first.get_envs() {
            match value {
                Some(value) => again.env(key, value),
                None => again.env_remove(key),
            };
        }
        if let Some(folder) = first.get_current_dir() {
            again.current_dir(folder);
        }
        let (status, stdout, _) = shown_and_kept(&mut again)?;
        if !status.success() {
            return Ok(CargoTestOutcome { status, passed_alone: Vec::new() });
        }
        passed += stdout
            .lines()
            .filter(|line| line.starts_with("test ") && line.ends_with("... ok"))
            .count();
    }
    // A program that ended before it could name its tests has shown nothing by a second run without tests.
    if passed < names.len() {
        return Ok(CargoTestOutcome { status, passed_alone: Vec::new() });
    }
    Ok(CargoTestOutcome { status: ExitStatus::default(), passed_alone: names.to_vec() })
}

/// Runs a command, shows what it prints while it runs, and returns it.
fn shown_and_kept(command: &mut Command) -> io::Result<(ExitStatus, String, String)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take();
    let errors =
        thread::spawn(move || stderr.map(|from| kept_lines(from, |line| eprint!("{line}"))));
    let stdout = child.stdout.take().map(|from| kept_lines(from, |line| print!("{line}")));
    let stderr = errors.join().unwrap_or_default();
    let status = child.wait()?;
    Ok((status, stdout.unwrap_or_default(), stderr.unwrap_or_default()))
}

/// Shows lines as they come, and returns all of them. A reader that fails ends the text there.
fn kept_lines(from: impl Read, show: impl Fn(&str)) -> String {
    let mut from = BufReader::new(from);
    let (mut all, mut line) = (String::new(), Vec::new());
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        show(&text);
        all.push_str(&text);
        line.clear();
    }
    all
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::{env, fs, process};

    use super::*;

    const STDOUT: &str = "
running 3 tests
test waits ... FAILED
test it::passes ... ok

failures:

---- waits stdout ----
thread 'waits' panicked: nobody came
    at some place
    at another

failures:
    it::also
    waits

test result: FAILED. 1 passed; 2 failed
";
    const STDERR: &str = "
error: test failed, to rerun pass `-p one --test it`
error: 2 targets failed:
    `-p one --test it`
    `-p two --lib`
";

    #[test]
    fn names_and_programs_are_read() {
        let failed = FailedTests::read(STDOUT, STDERR);
        assert_eq!(failed.names, ["it::also", "waits"]);
        assert_eq!(failed.targets, [&["-p", "one", "--test", "it"][..], &["-p", "two", "--lib"]]);
        assert!(failed.worth_a_second_run().is_some());
    }

    #[test]
    fn what_does_not_compile_or_fails_by_the_dozen_is_not_run_again() {
        let nothing = FailedTests::read("", "error: could not compile `one`\n");
        assert_eq!(nothing.worth_a_second_run(), None);
        let names = (0..=TESTS_AT_MOST).map(|test| test.to_string()).collect();
        let many = FailedTests { names, ..FailedTests::read(STDOUT, STDERR) };
        assert_eq!(many.worth_a_second_run(), None);
    }

    /// A script stands in for cargo: it fails at first, and what it does then is the test's.
    fn cargo_that(then: &str) -> (Command, PathBuf) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            env::temp_dir().join(format!("fairgate-xtask-second-run-{}-{number}", process::id()));
        fs::create_dir_all(&folder).expect("a folder for the script");
        let script = folder.join("cargo");
        let first = format!("cat <<'END'\n{STDOUT}\nEND\ncat >&2 <<'END'\n{STDERR}\nEND\nexit 101");
        let text = format!("#!/bin/sh\ncase \"$*\" in *--exact*) {then};; *) {first};; esac\n");
        fs::write(&script, text).expect("the script is written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
            .expect("the script can be run");
        let mut command = Command::new(&script);
        command.arg("test");
        (command, folder)
    }

    fn outcome_of(then: &str) -> CargoTestOutcome {
        let (mut command, folder) = cargo_that(then);
        let outcome = run_cargo_test(&mut command).expect("the script runs");
        fs::remove_dir_all(folder).expect("the folder is removed");
        outcome
    }

    #[test]
    fn what_passes_alone_is_named() {
        let then = "echo 'test waits ... ok'";
        let outcome = outcome_of(then);
        assert!(outcome.status.success());
        assert_eq!(outcome.passed_alone, ["it::also", "waits"]);
    }

    #[test]
    fn what_fails_again_has_failed() {
        let outcome = outcome_of("exit 101");
        assert!(!outcome.status.success());
        assert_eq!(outcome.passed_alone, [""; 0]);
    }

    #[test]
    fn a_second_run_without_the_tests_shows_nothing() {
        assert!(!outcome_of("true").status.success());
    }
}
