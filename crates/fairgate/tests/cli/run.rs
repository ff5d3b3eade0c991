//! Runs the binary, and helps with its input and output.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// Exit status and output of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Returns the output of a run that must succeed.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, 0, "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self.stdout
    }

    /// Returns the decisions of a run that must succeed, with the fields that the rules compare.
    pub(crate) fn decisions(self) -> Vec<Value> {
        compared(&self.ok())
    }

    /// Returns the decisions of a run that must succeed in short form: `at decision id`.
    pub(crate) fn brief(self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let decisions = self.decisions();
        let brief = decisions
            .iter()
            .map(|d| format!("{} {} {}", d["at"], text(&d["decision"]), text(&d["id"])));
        brief.collect()
    }
}

/// Returns the command without running it.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command.
pub(crate) fn fairgate(args: &[&str]) -> Run {
    finished(command(args).output().expect("the command runs"))
}

/// Runs the command with this text on its standard input.
pub(crate) fn fairgate_with_stdin(args: &[&str], input: &str) -> Run {
    let mut child = command(args).stdin(Stdio::piped()).spawn().expect("the command runs");
    let mut stdin = child.stdin.take().expect("it was piped");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    finished(child.wait_with_output().expect("it ends"))
}

pub(crate) fn finished(output: Output) -> Run {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().expect("an exit status");
    Run { status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Creates a file with this content for a single test, and returns its path.
pub(crate) fn file(content: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("cli-{}-{number}.json", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("a file can be written");
    path.display().to_string()
}

/// Returns the path of an example file of the repository.
pub(crate) fn example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join(name).display().to_string()
}

/// Creates a journal file from the pool's fields and the events' fields, each without braces.
pub(crate) fn journal(pool: &str, events: &[&str]) -> String {
    file(&journal_text(pool, events))
}

/// Returns a journal from the pool's fields and the events' fields, each without braces.
pub(crate) fn journal_text(pool: &str, events: &[&str]) -> String {
    let mut text = format!("{{\"fairgate_journal\":1,\"pool\":{{{pool}}}}}\n");
    for event in events {
        text.push_str(&format!("{{{event}}}\n"));
    }
    text
}

/// Returns decisions with the fields that the rules compare.
pub(crate) fn compared(decisions: &str) -> Vec<Value> {
    const COMPARED: [&str; 7] = ["at", "decision", "id", "reason", "brownout", "worker", "rank"];
    let decision = |line: &str| {
        let mut decision: Value = serde_json::from_str(line).expect("a decision is JSON");
        let fields = decision.as_object_mut().expect("a decision is an object");
        fields.retain(|name, _| COMPARED.contains(&name.as_str()));
        decision
    };
    decisions.lines().map(decision).collect()
}
