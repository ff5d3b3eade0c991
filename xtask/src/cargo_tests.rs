//! Runs several `cargo test` commands at once, and then runs the tests that failed once more,
//! alone.
//!
//! Test programs mostly wait for sockets, for timers, or for programs that they have started. Running several of them
//! at once therefore saves time, even on a machine with two cores. Cargo itself runs test programs one after another.
//!
//! On a busy machine, one of some thousand tests may exceed its time limit. If the test passes alone, its first failure
//! probably does not show a fault of the program. A run that needed a second try therefore passes, and its table names
//! the tests that were tried again.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::{io, thread};

/// Greatest number of failed tests of one command that are run again. More failures than this are
/// not due to chance.
const TESTS_AT_MOST: usize = 8;

/// The result of all commands, including the second run of failed tests.
pub(crate) struct CargoTestOutcome {
    pub(crate) status: ExitStatus,
    /// Names of tests that first failed and then passed alone.
    pub(crate) passed_alone: Vec<String>,
}

/// Status and output of one command.
struct CargoTestRun {
    status: ExitStatus,
    stdout: String,
}

/// Runs several `cargo test --no-fail-fast` commands at once. Shows the output of the first command while it runs, and
/// the output of each other command when it has ended. Then runs the tests that failed once more, one after another.
pub(crate) fn run_cargo_tests(commands: &mut [Command]) -> io::Result<CargoTestOutcome> {
    let runs = run_at_once(commands)?;
    let mut passed_alone = Vec::new();
    for (first, run) in commands.iter().zip(runs) {
        if run.status.success() {
            continue;
        }
        let names = failed_tests(&run.stdout);
        let few = (1..=TESTS_AT_MOST).contains(&names.len());
        if !few || !pass_alone(first, &names)? {
            return Ok(CargoTestOutcome { status: run.status, passed_alone: Vec::new() });
        }
        passed_alone.extend(names);
    }
    Ok(CargoTestOutcome { status: ExitStatus::default(), passed_alone })
}

fn run_at_once(commands: &mut [Command]) -> io::Result<Vec<CargoTestRun>> {
    let Some((first, others)) = commands.split_first_mut() else { return Ok(Vec::new()) };
    thread::scope(|scope| {
        let others: Vec<_> =
            others.iter_mut().map(|command| scope.spawn(|| run_quietly(command))).collect();
        let mut runs = vec![run_shown(first)?];
        for other in others {
            runs.push(other.join().unwrap_or_else(|_| Err(io::Error::other("panicked")))?);
        }
        Ok(runs)
    })
}

/// Returns whether the tests pass when they are run once more, one after another.
fn pass_alone(first: &Command, names: &[String]) -> io::Result<bool> {
    println!("\n==> once more, alone: {}", names.join(", "));
    let mut again = Command::new(first.get_program());
    again.args(first.get_args()).args(["--", "--exact", "--test-threads=1"]).args(names);
    for (key, value) in first.get_envs() {
        match value {
            Some(value) => again.env(key, value),
            None => again.env_remove(key),
        };
    }
    if let Some(folder) = first.get_current_dir() {
        again.current_dir(folder);
    }
    let run = run_shown(&mut again)?;
    let is_pass = |line: &&str| line.starts_with("test ") && line.ends_with("... ok");
    // A second run that did not find all tests does not count as passed.
    Ok(run.status.success() && run.stdout.lines().filter(is_pass).count() >= names.len())
}

/// Returns the names of the failed tests that libtest lists in its output, sorted and without
/// duplicates.
fn failed_tests(stdout: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_list = false;
    for line in stdout.lines() {
        // The heading appears twice, first above the tests' output and then above the list of
        // names.
        match line.strip_prefix("    ").filter(|name| !name.starts_with(' ')) {
            Some(name) if is_list => names.push(name.trim_end().to_owned()),
            _ => is_list = line == "failures:",
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Runs a command and shows its standard output while it runs.
fn run_shown(command: &mut Command) -> io::Result<CargoTestRun> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().map(shown_lines).unwrap_or_default();
    Ok(CargoTestRun { status: child.wait()?, stdout })
}

/// Runs a command and shows its output after it has ended.
fn run_quietly(command: &mut Command) -> io::Result<CargoTestRun> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{}{stdout}", String::from_utf8_lossy(&output.stderr));
    Ok(CargoTestRun { status: output.status, stdout })
}

/// Shows lines as they are read, and returns all of them. If a read fails, the text ends there.
fn shown_lines(from: impl Read) -> String {
    let mut from = BufReader::new(from);
    let (mut all, mut line) = (String::new(), Vec::new());
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        all.push_str(&text);
        line.clear();
    }
    all
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn names_of_failed_tests_are_read() {
        assert_eq!(failed_tests(STDOUT), ["it::also", "waits"]);
        assert_eq!(failed_tests("error: could not compile `one`\n"), [""; 0]);
    }

    /// A script that replaces cargo. It fails at first. When it is called with `--exact`, it runs the command `then`.
    struct FakeCargo {
        folder: PathBuf,
    }

    impl FakeCargo {
        fn new(stdout: &str, then: &str) -> Self {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("fairgate-xtask-second-run-{}-{number}", process::id());
            let folder = env::temp_dir().join(name);
            fs::create_dir_all(&folder).expect("a folder for the script");
            let first = format!("cat <<'END'\n{stdout}\nEND\nexit 101");
            let text = format!("case \"$*\" in *--exact*) {then};; *fine*) ;; *) {first};; esac\n");
            let script = folder.join("cargo");
            fs::write(&script, text).expect("the script is written");
            Self { folder }
        }

        /// Runs a command that passes and one that fails at first.
        fn outcome(&self) -> CargoTestOutcome {
            // The shell reads the script. A program that was just written may still be open in a process that another
            // test has forked, and cannot be run then.
            let command = |arg: &str| {
                let mut command = Command::new("sh");
                command.arg(self.folder.join("cargo")).args(["test", arg]);
                command
            };
            run_cargo_tests(&mut [command("fine"), command("it")]).expect("the script runs")
        }
    }

    impl Drop for FakeCargo {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.folder).expect("the folder is removed");
        }
    }

    #[test]
    fn what_passes_alone_is_named() {
        let cargo = FakeCargo::new(STDOUT, "echo 'test waits ... ok'; echo 'test it::also ... ok'");
        let outcome = cargo.outcome();
        assert!(outcome.status.success());
        assert_eq!(outcome.passed_alone, ["it::also", "waits"]);
    }

    #[test]
    fn what_fails_again_has_failed() {
        let outcome = FakeCargo::new(STDOUT, "exit 101").outcome();
        assert!(!outcome.status.success());
        assert_eq!(outcome.passed_alone, [""; 0]);
    }

    #[test]
    fn a_second_run_without_the_tests_shows_nothing() {
        assert!(!FakeCargo::new(STDOUT, "echo 'test waits ... ok'").outcome().status.success());
    }

    #[test]
    fn what_fails_by_the_dozen_is_not_run_again() {
        let names: String = (0..=TESTS_AT_MOST).map(|test| format!("    test{test}\n")).collect();
        let passes = "for i in 0 1 2 3 4 5 6 7 8 9; do echo 'test x ... ok'; done";
        let cargo = FakeCargo::new(&format!("failures:\n{names}"), passes);
        assert!(!cargo.outcome().status.success());
        let few = FakeCargo::new("failures:\n    test1", passes);
        assert!(few.outcome().status.success());
    }
}
