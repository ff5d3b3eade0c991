//! Tests of the conformance vectors, through the commands.

use std::fs;
use std::path::Path;

use fairgate_testkit::test_data;

use crate::run::{compared, fairgate, file};

fn expected(journal: &Path) -> Vec<serde_json::Value> {
    let path = journal.to_string_lossy().replace(".journal.", ".decisions.");
    compared(&fs::read_to_string(path).expect("a vector has decisions"))
}

#[test]
fn replay_gives_the_decisions_of_every_vector() {
    for journal in test_data::vectors(".journal.jsonl") {
        let path = journal.display().to_string();
        let decisions = fairgate(&["replay", &path]).decisions();
        assert_eq!(decisions, expected(&journal), "{path}");
    }
}

/// A recording under its own policy gives its own decisions, unless the recording changed its
/// policy.
#[test]
fn what_if_nothing_changed_nothing_changes() {
    let mut tried = 0;
    for journal in test_data::vectors(".journal.jsonl") {
        let text = fs::read_to_string(&journal).expect("a journal is text");
        if text.contains("\"event\": \"policy\"") {
            continue;
        }
        tried += 1;
        let own = file(text.lines().next().expect("a journal has a first line"));
        let path = journal.display().to_string();
        let decisions = fairgate(&["replay", &path, "--policy", &own]).decisions();
        assert_eq!(decisions, expected(&journal), "{path}");
    }
    assert!(tried == 0 || tried > 50, "only {tried} vectors have one policy throughout");
}

#[test]
fn schedule_gives_the_assignments_of_every_snapshot() {
    for snapshot in test_data::vectors(".snapshot.json") {
        let path = snapshot.display().to_string();
        let given: serde_json::Value =
            serde_json::from_str(&fairgate(&["schedule", &path]).ok()).expect("it is JSON");
        let expected = fs::read_to_string(path.replace(".snapshot.", ".assignments."));
        let expected: serde_json::Value =
            serde_json::from_str(&expected.expect("a snapshot has assignments")).expect("JSON");
        assert_eq!(given, expected, "{path}");
    }
}

/// A fleet's journal is repeated, and a line with another result is named.
#[test]
fn schedule_decides_a_journal_again() {
    let snapshot = r#"{"mode":"strict","projects":[{"id":"p"}],"tasks":[{"id":"t","project_id":"p","status":"READY"}],"agents":[{"id":"a","state":"IDLE"}]}"#;
    let line = |assignments: &str| {
        format!("{{\"at\":1,\"snapshot\":{snapshot},\"assignments\":[{assignments}]}}\n")
    };
    let right = line(r#"{"agent_id":"a","task_id":"t","project_id":"p"}"#);
    // The last line is cut off, as a killed process leaves it.
    let journal = file(&format!("{right}{right}{{\"at\":2"));
    let said = fairgate(&["schedule", "--journal", &journal]).ok();
    assert_eq!(said, "2 of 2 rounds gave the same assignments\n");
    let other = file(&format!("{right}{}{right}", line("")));
    let run = fairgate(&["schedule", "--journal", &journal, &other]);
    assert_eq!(run.status, 1);
    let expected =
        format!("4 of 5 rounds gave the same assignments; the first that did not: {other}:2");
    assert!(run.stderr.contains(&expected), "{}", run.stderr);
}
