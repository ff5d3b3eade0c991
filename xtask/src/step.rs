//! Steps: named commands that run one after another until one fails.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fmt};

use crate::XtaskError;

/// One command of a chore. It runs in the workspace's root, and its output is shown while it runs.
#[derive(Debug)]
pub(crate) struct XtaskStep {
    name: String,
    command: Command,
}

impl XtaskStep {
    /// Creates a step that runs `program` with `args`.
    pub(crate) fn new(name: &str, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args);
        Self { name: name.into(), command }
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
        let start = Instant::now();
        about_this_package().for_each(|name| _ = self.command.env_remove(name));
        let status = self.command.current_dir(root).status();
        let took = start.elapsed();
        let fault = match status {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(error) => Some(format!("could not start: {error}")),
        };
        let verdict = fault.as_deref().unwrap_or("ok");
        println!("<== {}: {verdict}, {}", self.name, DisplaySeconds(took));
        StepOutcome { fault, took }
    }
}

/// Iterates over the variables in which cargo describes this program's own package. Steps run
/// without them. Some build scripts (such as ring's) watch these variables, so every switch between
/// `cargo` and `cargo xtask` would rebuild half of all crates.
fn about_this_package() -> impl Iterator<Item = OsString> {
    env::vars_os().map(|(name, _)| name).filter(|name| is_about_a_package(&name.to_string_lossy()))
}

fn is_about_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

struct StepOutcome {
    fault: Option<String>,
    took: Duration,
}

/// Runs the steps in order until one fails, and prints a table of all of them at the end.
pub(crate) fn run_all(root: &Path, mut steps: Vec<XtaskStep>) -> Result<(), XtaskError> {
    let start = Instant::now();
    let mut outcomes = Vec::new();
    for step in &mut steps {
        let outcome = step.run(root);
        let failed = outcome.fault.is_some();
        outcomes.push(outcome);
        if failed {
            break;
        }
    }
    print!("\n{}", table(&steps, &outcomes, start.elapsed()));
    match outcomes.pop() {
        Some(StepOutcome { fault: Some(fault), .. }) => {
            let step = &steps[outcomes.len()];
            let (name, command) = (&step.name, DisplayCommand(&step.command));
            Err(XtaskError(format!("step `{name}` failed ({fault}): {command}")))
        }
        _ => Ok(()),
    }
}

fn table(steps: &[XtaskStep], outcomes: &[StepOutcome], total: Duration) -> String {
    let width = steps.iter().map(|s| s.name.len()).max().unwrap_or(0).max("total".len());
    let mut rows = String::new();
    for (i, XtaskStep { name, .. }) in steps.iter().enumerate() {
        let (verdict, took) = match outcomes.get(i) {
            Some(StepOutcome { fault: None, took }) => ("ok", DisplaySeconds(*took).to_string()),
            Some(StepOutcome { took, .. }) => ("FAILED", DisplaySeconds(*took).to_string()),
            None => ("not run", String::new()),
        };
        let row = format!("{name:width$}  {verdict:7}  {took:>8}");
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

/// Displays a command as a user would type it: changed variables, the program's name, and the
/// arguments.
struct DisplayCommand<'a>(&'a Command);

impl fmt::Display for DisplayCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in self.0.get_envs() {
            let key = key.to_string_lossy();
            match value {
                Some(value) => write!(f, "{key}={} ", value.to_string_lossy())?,
                // A shell does not have these variables.
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
    fn steps_that_pass_pass() {
        assert_eq!(run_all(Path::new("."), vec![sh("one", "test $A = b").env("A", "b")]), Ok(()));
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
            StepOutcome { fault: None, took: Duration::from_millis(1234) },
            StepOutcome { fault: Some("exit status: 1".into()), took: Duration::from_secs(75) },
        ];
        let expected = "\
format  ok          1.2 s
clippy  FAILED     1m 15s
tests   not run
total              1m 16s
";
        assert_eq!(table(&steps, &outcomes, Duration::from_millis(76_234)), expected);
    }
}
