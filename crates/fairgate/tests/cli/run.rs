//! Running the binary.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The output of a run that went well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, 0, "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self.stdout
    }

    /// The decisions of a run that went well, as what the rules compare.
    pub(crate) fn decisions(self) -> Vec<Value> {
        compared(&self.ok())
    }

    /// The decisions of a run that went well, short: `at decision id`.
    pub(crate) fn brief(self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let decisions = self.decisions();
        let brief = decisions
            .iter()
            .map(|d| format!("{} {} {}", d["at"], text(&d["decision"]), text(&d["id"])));
        brief.collect()
    }
}

/// The command, not yet run.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command.
pub(crate) fn fairgate(args: &[&str]) -> Run {
    finished(command(args).output().expect("the command runs"))
}

/// Runs the command with this on its standard input.
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

/// A file with this content, for one test alone.
pub(crate) fn file(content: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("cli-{}-{number}.json", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("a file can be written");
    path.display().to_string()
}

/// A file of the examples that ship with the project.
pub(crate) fn example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join(name).display().to_string()
}

/// A journal in a file: the pool's fields but for the braces, and the events but for theirs.
pub(crate) fn journal(pool: &str, events: &[&str]) -> String {
    file(&journal_text(pool, events))
}

/// A journal: the pool's fields but for the braces, and the events but for theirs.
pub(crate) fn journal_text(pool: &str, events: &[&str]) -> String {
    let mut text = format!("{{\"fairgate_journal\":1,\"pool\":{{{pool}}}}}\n");
    for event in events {
        text.push_str(&format!("{{{event}}}\n"));
    }
    text
}

/// Decisions, with the fields that the rules compare.
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
