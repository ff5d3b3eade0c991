//! The conformance vectors, through the command.

use std::fs;
use std::path::Path;

use crate::run::{compared, fairgate, file, vectors};

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
