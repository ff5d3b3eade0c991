//! Tests of the documents under `docs/`: every example in them is run, and every field is named.
//!
//! The mark after the three backticks of a fenced block states the check of the block:
//!
//! | mark | what is checked |
//! |---|---|
//! | `json policy` | it is read as a policy |
//! | `jsonl journal` | it replays without an error |
//! | `jsonl decisions` | it is what the journal before it gives, to the byte |
//! | `json snapshot` | `fairgate schedule` reads it |
//! | `console`, `console fails` | each `$ ` line is run at the top of the repository; the rest is its output |
//! | `text policy-errors`, `journal-errors`, `snapshot-errors` | each line fails with the indented line below it |
//! | `text`, `sh` | nothing: a picture, or a command for elsewhere |
//! | `rust` | nothing here: it is a doc test of the testkit |
//! | `python` | nothing here: it is an example that a test runs, such as `serve/webhooks.rs` |
//! | `yaml config`, `yaml config-fails`, `text config-errors` | nothing here: the tests of fairgate-config read them |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairgate_core::decision::RejectionReason;
use fairgate_journal::{JournalReader, JournalWriter, parse_policy};

use crate::run::{Run, fairgate_with_stdin};

const HEADER: &str =
    r#"{"fairgate_journal":1,"pool":{"capacity":1,"policy":{"share":{"by":"tenant"}}}}"#;

/// A fenced block of a document.
struct Block {
    /// The file, and the line of the block's first backtick.
    place: String,
    info: String,
    body: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn documents() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("docs")).expect("there are documents");
    let paths =
        entries.map(|entry| entry.expect("an entry").path()).chain([root().join("README.md")]);
    let mut documents: Vec<(PathBuf, String)> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| (path.clone(), fs::read_to_string(&path).expect("it is text")))
        .collect();
    documents.sort();
    documents
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("it is there")
}

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (path, text) in documents() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut open: Option<Block> = None;
        for (i, line) in text.lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(info), None) => {
                    let place = format!("docs/{name}:{}", i + 1);
                    open = Some(Block { place, info: info.to_owned(), body: String::new() });
                }
                (None, Some(block)) => {
                    block.body.push_str(line);
                    block.body.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{name}: a block without an end");
    }
    assert!(blocks.len() > 30, "the documents were found");
    blocks
}

fn marked(mark: &str) -> Vec<Block> {
    let blocks: Vec<Block> = blocks().into_iter().filter(|block| block.info == mark).collect();
    assert!(!blocks.is_empty(), "some block is marked {mark:?}");
    blocks
}

/// Returns the lines of a block that must fail, each with the message below it.
fn failures(block: &Block) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = block.body.lines().filter(|line| !line.is_empty()).collect();
    let pairs = lines.chunks(2).map(|pair| match pair {
        [wrong, message] if message.starts_with("    ") => (*wrong, message.trim_start()),
        _ => panic!("{}: expected a line and its message: {pair:?}", block.place),
    });
    pairs.collect()
}

fn assert_fails(place: &str, wrong: &str, message: &str, run: &Run) {
    let ending = format!(": {message}\n");
    assert_eq!(run.status, 1, "{place}: {wrong}");
    assert!(run.stderr.ends_with(&ending), "{place}: {wrong}\nsays: {}", run.stderr);
}

#[test]
fn every_block_has_a_mark_that_is_known() {
    const MARKS: [&str; 16] = [
        "json policy",
        "jsonl journal",
        "jsonl decisions",
        "json snapshot",
        "console",
        "console fails",
        "text policy-errors",
        "text journal-errors",
        "text snapshot-errors",
        "text",
        "sh",
        "rust",
        "python",
        "yaml config",
        "yaml config-fails",
        "text config-errors",
    ];
    for Block { place, info, .. } in blocks() {
        assert!(MARKS.contains(&&*info), "{place}: {info:?} is no mark");
    }
}

#[test]
fn policies_are_read() {
    for Block { place, body, .. } in marked("json policy") {
        if let Err(error) = parse_policy(&body) {
            panic!("{place}: {error}");
        }
    }
}

#[test]
fn wrong_policies_are_refused_as_shown() {
    for block in marked("text policy-errors") {
        for (wrong, message) in failures(&block) {
            match parse_policy(wrong) {
                Ok(_) => panic!("{}: {wrong} is a policy", block.place),
                Err(error) => assert_eq!(error.to_string(), message, "{}: {wrong}", block.place),
            }
        }
    }
}

#[test]
fn journals_replay() {
    let blocks = blocks();
    let mut decisions = 0;
    for (i, Block { place, info, body }) in blocks.iter().enumerate() {
        if info != "jsonl journal" {
            continue;
        }
        let run = fairgate_with_stdin(&["replay", "-"], body);
        assert_eq!((run.status, &*run.stderr), (0, ""), "{place}");
        if let Some(next) = blocks.get(i + 1).filter(|next| next.info == "jsonl decisions") {
            assert_eq!(run.stdout, next.body, "{}", next.place);
            decisions += 1;
        }
    }
    assert_eq!(decisions, marked("jsonl decisions").len(), "each stands below its journal");
}

#[test]
fn a_snapshot_is_what_the_journal_before_it_comes_to() {
    let journals = marked("jsonl journal");
    let goes_on = |block: &Block| block.body.starts_with(r#"{"fairgate_journal":1,"snapshot""#);
    let second = journals.iter().position(goes_on).expect("one journal goes on from another");
    let (start, mut reader) =
        JournalReader::open(journals[second - 1].body.as_bytes()).expect("a start");
    let mut pool = start.into_pool().expect("a pool");
    while let Some((at, event)) = reader.next_event().expect("an event") {
        pool.apply(at, event, &mut Vec::new()).expect("in time");
    }
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).expect("it can be written");
    let line = String::from_utf8(writer.into_inner()).expect("text");
    assert_eq!(journals[second].body.lines().next(), Some(line.trim_end()));
}

#[test]
fn wrong_lines_are_refused_as_shown() {
    for block in marked("text journal-errors") {
        for (wrong, message) in failures(&block) {
            let journal = match wrong.starts_with(r#"{"fairgate_journal""#) {
                true => format!("{wrong}\n"),
                false => format!("{HEADER}\n{wrong}\n"),
            };
            let run = fairgate_with_stdin(&["replay", "-"], &journal);
            assert_fails(&block.place, wrong, message, &run);
        }
    }
}

#[test]
fn snapshots_are_scheduled() {
    for Block { place, body, .. } in marked("json snapshot") {
        let run = fairgate_with_stdin(&["schedule", "-"], &body);
        assert_eq!((run.status, &*run.stderr), (0, ""), "{place}");
    }
}

#[test]
fn wrong_snapshots_are_refused_as_shown() {
    for block in marked("text snapshot-errors") {
        for (wrong, message) in failures(&block) {
            let run = fairgate_with_stdin(&["schedule", "-"], wrong);
            assert_fails(&block.place, wrong, message, &run);
        }
    }
}

#[test]
fn commands_print_what_stands_below_them() {
    for (mark, status) in [("console", 0), ("console fails", 1)] {
        for Block { place, body, .. } in marked(mark) {
            let mut lines = body.lines().peekable();
            while let Some(line) = lines.next() {
                let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("{place}: {line}"));
                let mut expected = String::new();
                while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                    expected.push_str(line);
                    expected.push('\n');
                }
                let (code, printed) = shell(command);
                assert_eq!(printed, expected, "{place}: {command}");
                assert_eq!(code, Some(status), "{place}: {command}");
            }
        }
    }
}

/// Runs a command at the top of the repository, as a reader would. Returns its exit status and its
/// whole output.
fn shell(command: &str) -> (Option<i32>, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_fairgate"));
    let here = binary.parent().expect("it is in a directory").to_path_buf();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([here].into_iter().chain(std::env::split_paths(&others)));
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .env("PATH", path.expect("a path"))
        .current_dir(root())
        .stdin(Stdio::null())
        .output()
        .expect("a shell runs");
    (output.status.code(), String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn links_lead_somewhere() {
    for (path, text) in documents() {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                _ => path.parent().expect("a directory").join(file),
            };
            assert!(target.exists(), "{}: {link}", path.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("it is text");
                let found = text.lines().any(|line| line.starts_with('#') && slug(line) == anchor);
                assert!(found, "{}: {link}", path.display());
            }
        }
    }
}

/// Returns the anchor of a heading, as links name it.
fn slug(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the field names that the error for an unknown field lists.
fn known_fields(error: &str) -> Vec<String> {
    let marks = ["known here: ", "known are "];
    let list = marks.iter().find_map(|mark| error.split_once(mark)).expect("it lists them").1;
    list.trim_end().split(", ").map(str::to_owned).collect()
}

fn assert_named(document_name: &str, fields: &[String]) {
    let text = document(document_name);
    for field in fields {
        assert!(text.contains(&format!("`{field}`")), "docs/{document_name} lacks `{field}`");
    }
}

#[test]
fn every_field_of_a_policy_is_named() {
    let policies = [
        r#"{"?":0}"#,
        r#"{"drr":{"?":0}}"#,
        r#"{"drr":{"by":"class","classes":[{"?":0}]}}"#,
        r#"{"share":{"?":0}}"#,
        r#"{"load":{"?":0}}"#,
    ];
    for policy in policies {
        let error = parse_policy(policy).expect_err("it has an unknown field").to_string();
        assert_named("policy.md", &known_fields(&error));
    }
}

#[test]
fn every_field_of_a_journal_is_named() {
    let names =
        "submit release cancel first_token tick hold resume capacity weight cap policy worker";
    let mut journals = vec![
        r#"{"fairgate_journal":1,"?":0}"#.to_owned(),
        r#"{"fairgate_journal":1,"pool":{"?":0}}"#.to_owned(),
        r#"{"fairgate_journal":1,"snapshot":{"?":0}}"#.to_owned(),
        format!(r#"{HEADER}{}{{"at":0,"event":"submit","pin":{{"?":0}}}}"#, "\n"),
    ];
    for name in names.split(' ') {
        journals.push(format!(r#"{HEADER}{}{{"at":0,"event":"{name}","?":0}}"#, "\n"));
    }
    for journal in journals {
        let run = fairgate_with_stdin(&["replay", "-"], &journal);
        assert_named("journal.md", &known_fields(&run.stderr));
    }
    let unknown = format!(r#"{HEADER}{}{{"at":0,"event":"?"}}"#, "\n");
    let error = fairgate_with_stdin(&["replay", "-"], &unknown).stderr;
    let listed = error.split_once("one of ").and_then(|(_, rest)| rest.split_once(", not "));
    let events: Vec<&str> = listed.expect("it lists the events").0.split(", ").collect();
    assert_eq!(events.len(), names.split(' ').count(), "{events:?}");
    assert!(names.split(' ').all(|name| events.contains(&name)), "{events:?}");
    let reasons = RejectionReason::ALL.map(|reason| reason.code().to_owned());
    assert_named("journal.md", &reasons);
}

#[test]
fn every_field_of_a_snapshot_is_named() {
    let snapshots = [
        r#"{"?":0}"#,
        r#"{"projects":[{"?":0}]}"#,
        r#"{"projects":[],"tasks":[{"?":0}]}"#,
        r#"{"projects":[],"tasks":[],"agents":[{"?":0}]}"#,
    ];
    for snapshot in snapshots {
        let run = fairgate_with_stdin(&["schedule", "-"], snapshot);
        assert_named("schedule.md", &known_fields(&run.stderr));
    }
}
