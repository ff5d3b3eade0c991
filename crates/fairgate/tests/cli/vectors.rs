//! The conformance vectors, through the commands.

use std::fs;
use std::path::Path;

use crate::run::{compared, fairgate, file, shared_files, vectors};

fn expected(journal: &Path) -> Vec<serde_json::Value> {
    let path = journal.to_string_lossy().replace(".journal.", ".decisions.");
    compared(&fs::read_to_string(path).expect("a vector has decisions"))
}

#[test]
fn replay_gives_the_decisions_of_every_vector() {
    for journal in vectors() {
        let path = journal.display().to_string();
        let decisions = fairgate(&["replay", &path]).decisions();
        assert_eq!(decisions, expected(&journal), "{path}");
    }
}

/// A recording under its own policy decides as it did, unless the recording changed its policy on the way.
#[test]
fn what_if_nothing_changed_nothing_changes() {
    let mut tried = 0;
    for journal in vectors() {
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
    for snapshot in shared_files(".snapshot.json") {
        let path = snapshot.display().to_string();
        let given: serde_json::Value =
            serde_json::from_str(&fairgate(&["schedule", &path]).ok()).expect("it is JSON");
        let expected = fs::read_to_string(path.replace(".snapshot.", ".assignments."));
        let expected: serde_json::Value =
            serde_json::from_str(&expected.expect("a snapshot has assignments")).expect("JSON");
        assert_eq!(given, expected, "{path}");
    }
}
