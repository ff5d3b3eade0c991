//! Steps, which are named commands that run one after another until one fails.
//!
//! Installations mostly wait for the network. They therefore run at the same time as the other steps, one after another
//! in the order of the list. Another step begins when all installations before it in the list have ended.
//!
//! Steps whose tests depend on the load of the machine may have a second run ([`crate::cargo_tests`]). The table of all
//! steps shows which steps needed it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{env, fmt, thread};

use crate::XtaskError;
use crate::cargo_tests::{CargoTestOutcome, run_cargo_tests};

/// The rule by which a step that has failed is run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondRun {
    Never,
    /// The tests that failed are run again, alone. The step must consist of `cargo test` commands.
    FailedTests,
    /// The whole step is run again.
    WholeStep,
}

/// One command of a chore. The command runs in the workspace's root, and its output is shown while
/// it runs.
#[derive(Debug)]
pub(crate) struct XtaskStep {
    name: String,
    command: Command,
    is_installation: bool,
    second_run: SecondRun,
    /// Commands that run at the same time as `command`.
    beside: Vec<Command>,
}

impl XtaskStep {
    /// Creates a step that runs `program` with `args`.
    pub(crate) fn new(name: &str, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self {
            name: name.into(),
            command,
            is_installation: false,
            second_run: SecondRun::Never,
            beside: Vec::new(),
        }
    }

    /// Marks the step as an installation, which runs at the same time as the other steps. Its output is shown when it
    /// has ended.
    pub(crate) fn in_background(mut self) -> Self {
        self.is_installation = true;
        self
    }

    /// Creates one step from several `cargo test --no-fail-fast` commands, which run at once. Tests that fail are run
    /// once more, alone. The output of the first command is shown while it runs.
    pub(crate) fn tests_at_once(name: &str, commands: Vec<Self>) -> Self {
        let mut commands = commands.into_iter().map(|step| step.command);
        let command = commands.next().unwrap_or_else(|| Command::new("cargo"));
        Self {
            name: name.into(),
            command,
            is_installation: false,
            second_run: SecondRun::FailedTests,
            beside: commands.collect(),
        }
    }

    /// Runs the whole step once more if it fails.
    pub(crate) fn with_second_run(mut self) -> Self {
        self.second_run = SecondRun::WholeStep;
        self
    }

    /// Sets an environment variable of the step's command.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self
    }

    /// Removes an environment variable from the step's command.
    pub(crate) fn without_env(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    fn run(&mut self, root: &Path) -> StepOutcome {
        println!("\n==> {}: {}", self.name, DisplayCommand(&self.command));
        for beside in &self.beside {
            println!("    beside: {}", DisplayCommand(beside));
        }
        let start = Instant::now();
        let (status, again) = match self.second_run {
            SecondRun::FailedTests => match self.run_tests(root) {
                Ok(outcome) => (Ok(outcome.status), outcome.passed_alone),
                Err(error) => (Err(error), Vec::new()),
            },
            SecondRun::Never => (self.prepared(root).status(), Vec::new()),
            SecondRun::WholeStep => match self.prepared(root).status() {
                Ok(status) if !status.success() => {
                    println!("\n==> {}: {status}; once more", self.name);
                    (self.prepared(root).status(), vec!["the whole step".into()])
                }
                first => (first, Vec::new()),
            },
        };
        let outcome = self.ended(start, status.map(|status| (status, Vec::new())));
        StepOutcome { again, ..outcome }
    }

    fn run_tests(&mut self, root: &Path) -> std::io::Result<CargoTestOutcome> {
        self.prepared(root);
        let first = std::mem::replace(&mut self.command, Command::new("cargo"));
        let mut commands = vec![first];
        for mut command in std::mem::take(&mut self.beside) {
            about_this_package().for_each(|name| _ = command.env_remove(name));
            command.current_dir(root);
            commands.push(command);
        }
        let outcome = run_cargo_tests(&mut commands);
        self.beside = commands.split_off(1);
        self.command = commands.remove(0);
        outcome
    }

    /// Runs the command, and prints its output after it has ended.
    fn run_quietly(&mut self, root: &Path) -> StepOutcome {
        let start = Instant::now();
        let output = self.prepared(root).output().map(|mut output| {
            output.stdout.append(&mut output.stderr);
            (output.status, output.stdout)
        });
        self.ended(start, output)
    }

    fn prepared(&mut self, root: &Path) -> &mut Command {
        about_this_package().for_each(|name| _ = self.command.env_remove(name));
        self.command.current_dir(root)
    }

    /// Prints the command's output and result, and returns the result.
    fn ended(
        &self,
        start: Instant,
        ended: std::io::Result<(std::process::ExitStatus, Vec<u8>)>,
    ) -> StepOutcome {
        let took = start.elapsed();
        let (fault, output) = match ended {
            Ok((status, output)) if status.success() => (None, output),
            Ok((status, output)) => (Some(status.to_string()), output),
            Err(error) => (Some(format!("could not start: {error}")), Vec::new()),
        };
        let verdict = fault.as_deref().unwrap_or("ok");
        let mut text = String::from_utf8_lossy(&output).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        // One call prints all lines, so that the lines of two steps do not mix.
        println!("{text}<== {}: {verdict}, {}", self.name, DisplaySeconds(took));
        StepOutcome { fault, took, again: Vec::new() }
    }
}

/// Iterates over the environment variables in which cargo describes this program's own package.
/// Steps run without these variables. Some build scripts (such as ring's) watch them, so every
/// switch between `cargo` and `cargo xtask` would rebuild half of all crates.
fn about_this_package() -> impl Iterator<Item = OsString> {
    env::vars_os().map(|(name, _)| name).filter(|name| is_about_a_package(&name.to_string_lossy()))
}

fn is_about_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

struct StepOutcome {
    fault: Option<String>,
    took: Duration,
    /// Names of the tests that failed at first and were run again, or `the whole step`.
    again: Vec<String>,
}

/// Runs the steps in order until one fails, and prints a table of all of them at the end.
pub(crate) fn run_all(root: &Path, mut steps: Vec<XtaskStep>) -> Result<(), XtaskError> {
    let start = Instant::now();
    let mut outcomes: Vec<Option<StepOutcome>> = steps.iter().map(|_| None).collect();
    let has_failed = |outcomes: &[Option<StepOutcome>]| {
        outcomes.iter().flatten().any(|outcome| outcome.fault.is_some())
    };
    thread::scope(|scope| {
        let (done, installed) = mpsc::channel();
        let (installations, others): (Vec<_>, Vec<_>) =
            steps.iter_mut().enumerate().partition(|(_, step)| step.is_installation);
        let mut missing: Vec<usize> = installations.iter().map(|(index, _)| *index).collect();
        scope.spawn(move || {
            for (index, step) in installations {
                let outcome = step.run_quietly(root);
                let failed = outcome.fault.is_some();
                // The receiver is gone if another step has failed.
                if done.send((index, outcome)).is_err() || failed {
                    return;
                }
            }
        });
        let mut install_until = |end: usize, outcomes: &mut Vec<Option<StepOutcome>>| {
            while missing.first().is_some_and(|first| *first < end) {
                let Ok((index, outcome)) = installed.recv() else { return };
                outcomes[index] = Some(outcome);
                missing.remove(0);
            }
        };
        for (index, step) in others {
            install_until(index, &mut outcomes);
            if has_failed(&outcomes) {
                return;
            }
            outcomes[index] = Some(step.run(root));
            if has_failed(&outcomes) {
                return;
            }
        }
        install_until(usize::MAX, &mut outcomes);
    });
    print!("\n{}", table(&steps, &outcomes, start.elapsed()));
    let failed =
        steps.iter().zip(outcomes).find_map(|(step, outcome)| Some((step, outcome?.fault?)));
    match failed {
        Some((step, fault)) => {
            let (name, command) = (&step.name, DisplayCommand(&step.command));
            Err(XtaskError(format!("step `{name}` failed ({fault}): {command}")))
        }
        None => Ok(()),
    }
}

fn table(steps: &[XtaskStep], outcomes: &[Option<StepOutcome>], total: Duration) -> String {
    let width = steps.iter().map(|s| s.name.len()).max().unwrap_or(0).max("total".len());
    let mut rows = String::new();
    for (XtaskStep { name, is_installation, .. }, outcome) in steps.iter().zip(outcomes) {
        let beside = if *is_installation && outcome.is_some() { "  beside" } else { "" };
        let (verdict, took) = match outcome {
            Some(StepOutcome { fault: None, took, .. }) => {
                ("ok", DisplaySeconds(*took).to_string())
            }
            Some(StepOutcome { took, .. }) => ("FAILED", DisplaySeconds(*took).to_string()),
            None => ("not run", String::new()),
        };
        let again = match outcome {
            Some(StepOutcome { again, .. }) if !again.is_empty() => {
                format!("  failed at first, run again: {}", again.join(", "))
            }
            _ => String::new(),
        };
        let row = format!("{name:width$}  {verdict:7}  {took:>8}{beside}{again}");
        rows += row.trim_end();
        rows.push('\n');
    }
    let total = DisplaySeconds(total).to_string();
    rows + &format!("{:width$}  {:7}  {total:>8}\n", "total", "")
}

/// Displays a span of time for people: `12.3 s` or `2m 03s`.
struct DisplaySeconds(Duration);

impl fmt::Display for DisplaySeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0..60 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            s => write!(f, "{}m {:02}s", s / 60, s % 60),
        }
    }
}

/// Displays a command as a user would type it, with its changed environment variables, the
/// program's name and the arguments.
struct DisplayCommand<'a>(&'a Command);

impl fmt::Display for DisplayCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in self.0.get_envs() {
            let key = key.to_string_lossy();
            match value {
                Some(value) => write!(f, "{key}={} ", value.to_string_lossy())?,
                // A shell does not have these variables, so they are not shown.
                None if is_about_a_package(&key) => {}
                None => write!(f, "env -u {key} ")?,
            }
        }
        let program = Path::new(self.0.get_program());
        write!(f, "{}", program.file_name().unwrap_or_default().to_string_lossy())?;
        self.0.get_args().try_for_each(|arg| write!(f, " {}", arg.to_string_lossy()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(name: &str, script: &str) -> XtaskStep {
        XtaskStep::new(name, "sh", &["-c", script])
    }

    #[test]
    fn a_failing_step_ends_the_run_and_is_named() {
        let steps = vec![sh("one", "true"), sh("two", "exit 3"), sh("three", "true")];
        let Err(XtaskError(words)) = run_all(Path::new("."), steps) else { panic!("it passed") };
        assert_eq!(words, "step `two` failed (exit status: 3): sh -c exit 3");
    }

    #[test]
    fn a_program_that_is_not_there_fails_its_step() {
        let steps = vec![XtaskStep::new("ghost", "no-such-program-of-ours", &[])];
        let Err(XtaskError(words)) = run_all(Path::new("."), steps) else { panic!("it passed") };
        assert!(words.starts_with("step `ghost` failed (could not start: "), "{words}");
    }

    #[test]
    fn a_step_with_a_second_run_passes_if_that_passes() {
        let file = env::temp_dir().join(format!("fairgate-xtask-again-{}", std::process::id()));
        let path = file.display();
        let script = format!("test -e {path} && exit; touch {path}; exit 3");
        assert_eq!(run_all(Path::new("."), vec![sh("one", &script).with_second_run()]), Ok(()));
        std::fs::remove_file(file).expect("the first run made it");
        let twice = vec![sh("two", "exit 3").with_second_run()];
        assert!(run_all(Path::new("."), twice).is_err());
    }

    #[test]
    fn steps_that_pass_pass() {
        assert_eq!(run_all(Path::new("."), vec![sh("one", "test $A = b").env("A", "b")]), Ok(()));
    }

    /// The first step waits, for at most ten seconds, for a file that an installation makes meanwhile.
    #[test]
    fn installations_run_beside_and_are_there_when_they_are_needed() {
        let file = env::temp_dir().join(format!("fairgate-xtask-step-{}", std::process::id()));
        let path = file.display();
        let wait =
            format!("for i in $(seq 100); do test -e {path} && exit; sleep 0.1; done; exit 6");
        let steps = vec![
            sh("waits", &wait),
            sh("first", &format!("touch {path}")).in_background(),
            sh("second", &format!("touch {path}.2")).in_background(),
            sh("needs", &format!("test -e {path}.2")),
            sh("last", &format!("sleep 0.05; touch {path}.3")).in_background(),
        ];
        assert_eq!(run_all(Path::new("."), steps), Ok(()));
        for made in ["", ".2", ".3"] {
            std::fs::remove_file(format!("{path}{made}"))
                .expect("every installation was waited for");
        }
    }

    #[test]
    fn an_installation_that_fails_ends_the_run() {
        let steps = vec![
            sh("one", "true"),
            sh("install", "exit 4").in_background(),
            sh("never installed", "true").in_background(),
            sh("never run", "exit 5"),
        ];
        let Err(XtaskError(words)) = run_all(Path::new("."), steps) else { panic!("it passed") };
        assert_eq!(words, "step `install` failed (exit status: 4): sh -c exit 4");
    }

    #[test]
    fn a_step_is_not_told_about_this_package() {
        assert!(about_this_package().count() > 1, "cargo runs this test");
        let step = sh("one", "! env | grep -E '^CARGO_(PKG|MANIFEST)_'");
        assert_eq!(run_all(Path::new("."), vec![step]), Ok(()));
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let step =
            XtaskStep::new("x", "/usr/bin/cargo", &["doc", "-v"]).env("A", "b").without_env("C");
        assert_eq!(DisplayCommand(&step.command).to_string(), "A=b env -u C cargo doc -v");
    }

    #[test]
    fn the_table_lists_what_ran_what_failed_and_what_did_not_run() {
        let steps = [sh("format", ""), sh("clippy", ""), sh("tests", "")];
        let outcomes = [
            Some(StepOutcome {
                fault: None,
                took: Duration::from_millis(1234),
                again: vec!["waits".into(), "it::also".into()],
            }),
            Some(StepOutcome {
                fault: Some("exit status: 1".into()),
                took: Duration::from_secs(75),
                again: Vec::new(),
            }),
            None,
        ];
        let expected = "\
format  ok          1.2 s  failed at first, run again: waits, it::also
clippy  FAILED     1m 15s
tests   not run
total              1m 16s
";
        assert_eq!(table(&steps, &outcomes, Duration::from_millis(76_234)), expected);
    }
}
