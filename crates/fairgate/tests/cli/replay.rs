//! Tests of a plain replay: its output, its errors and its exit status.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::run::{command, example, fairgate, fairgate_with_stdin, file, journal_text};

const POOL: &str = r#""capacity":1,"policy":{"share":{"by":"tenant"}}"#;
const TWO: [&str; 2] =
    [r#""at":0,"event":"submit","id":"a""#, r#""at":5,"event":"submit","id":"a""#];
const TWO_DECISIONS: &str = "\
{\"at\":0,\"decision\":\"grant\",\"id\":\"a\",\"waited_us\":0}
{\"at\":5,\"decision\":\"reject\",\"id\":\"a\",\"reason\":\"duplicate\"}
";

#[test]
fn decisions_are_json_lines() {
    let journal = file(&journal_text(POOL, &TWO));
    assert_eq!(fairgate(&["replay", &journal]).ok(), TWO_DECISIONS);
}

#[test]
fn a_dash_is_standard_input() {
    let run = fairgate_with_stdin(&["replay", "-"], &journal_text(POOL, &TWO));
    assert_eq!(run.ok(), TWO_DECISIONS);
}

#[test]
fn a_bad_line_ends_the_replay_after_the_decisions_before_it() {
    let bad = [
        (r#""at":9,"event":"jump""#, "field \"event\": must be one of"),
        (r#""at":4,"event":"tick""#, "field \"at\": time goes back"),
        (r#""at":9,"event":"submit","id":"b","cost":-1"#, "field \"cost\": "),
        (r#""at":9,"event":"submit","id":"b","colour":"red""#, "field \"colour\": "),
        (r#""at":9,"event":"weight","by":"tenant","flow":"x","weight":0"#, "field \"weight\": "),
        (r#""at":9,"event":"#, "malformed JSON"),
    ];
    for (line, problem) in bad {
        let text = journal_text(POOL, &[TWO[0], TWO[1], line, r#""at":10,"event":"tick""#]);
        let name = file(&text);
        for (run, name) in [
            (fairgate(&["replay", &name]), name.as_str()),
            (fairgate_with_stdin(&["replay", "-"], &text), "standard input"),
        ] {
            assert_eq!(run.status, 1, "{line}");
            assert_eq!(run.stdout, TWO_DECISIONS, "{line}");
            let prefix = format!("fairgate: {name}: line 4: ");
            assert!(run.stderr.starts_with(&prefix), "{}", run.stderr);
            assert!(run.stderr.contains(problem), "{}", run.stderr);
            assert_eq!(run.stderr.lines().count(), 1);
        }
    }
}

#[test]
fn what_is_no_journal_is_said_to_be_none() {
    let missing = fairgate(&["replay", "no/such/file"]);
    assert_eq!(missing.status, 1);
    assert!(missing.stderr.starts_with("fairgate: no/such/file: "), "{}", missing.stderr);
    let empty = fairgate(&["replay", &file("")]);
    assert_eq!(empty.status, 1);
    assert!(empty.stderr.contains(": line 1: the journal is empty"), "{}", empty.stderr);
    let other = fairgate(&["replay", &file("{}\n")]);
    assert_eq!(other.status, 1);
    assert!(other.stderr.contains(": line 1: field \"fairgate_journal\": "), "{}", other.stderr);
}

#[test]
fn wrong_usage_exits_with_2() {
    let journal = example("noisy-neighbour.jsonl");
    let policy = example("share-policy.json");
    let wrong: [&[&str]; 8] = [
        &[],
        &["replay"],
        &["replay", &journal, "--no-such-option"],
        &["replay", &journal, "--diff"],
        &["replay", &journal, "--json"],
        &["replay", &journal, "--policy", &policy, "--by", "tenant"],
        &["replay", &journal, "--policy", &policy, "--diff", "--by", "colour"],
        &["replay", "-", "--policy", &policy],
    ];
    for args in wrong {
        let run = fairgate(args);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
        assert!(!run.stderr.is_empty());
    }
    let help = fairgate(&["replay", "--help"]).ok();
    assert!(help.contains("Examples:"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut text = journal_text(r#""capacity":1000000,"policy":{"share":{"by":"tenant"}}"#, &[]);
    for i in 0..20_000 {
        text.push_str(&format!("{{\"at\":{i},\"event\":\"submit\",\"id\":\"r{i}\"}}\n"));
    }
    let journal = file(&text);
    let mut child = command(&["replay", &journal]).spawn().expect("the command runs");
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it was piped"));
    stdout.read_line(&mut first).expect("a line");
    drop(stdout);
    assert_eq!(first, "{\"at\":0,\"decision\":\"grant\",\"id\":\"r0\",\"waited_us\":0}\n");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// A program that follows a live journal gets each decision when it is made, not when a buffer is
/// full.
#[test]
fn decisions_do_not_wait_for_the_end_of_the_input() {
    let mut child = command(&["replay", "-"]).stdin(Stdio::piped()).spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("it was piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("it was piped"));
    let mut line = String::new();
    stdin.write_all(journal_text(POOL, &TWO[..1]).as_bytes()).expect("it reads");
    stdout.read_line(&mut line).expect("a decision");
    assert_eq!(line, TWO_DECISIONS.lines().next().expect("two").to_owned() + "\n");
    drop(stdin);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn the_example_shows_a_loud_tenant_locking_a_quiet_one_out() {
    let decisions = fairgate(&["replay", &example("noisy-neighbour.jsonl")]).brief();
    assert_eq!(decisions.len(), 21);
    assert_eq!(decisions[2], "20000 reject quiet-1");
    assert_eq!(decisions[13], "586300 grant quiet-2");
}

#[test]
fn a_journal_of_another_edition_is_replayed_and_said_to_be_one() {
    let pool =
        r#""capacity":1,"workers":[{"name":"w","slots":1}],"policy":{"share":{"by":"tenant"}}"#;
    let header = |more: &str| format!(r#"{{"fairgate_journal":1{more},"pool":{{{pool}}}}}"#);
    let lines = "{\"at\":0,\"event\":\"submit\",\"id\":\"a\"}\n";
    let journal = |more: &str| file(&format!("{}\n{lines}", header(more)));
    let clock = r#","clock":{"at":0,"unix_us":1790000000000000}"#;
    let ours =
        [journal(""), journal(&format!(r#"{clock},"machine":3"#)), journal(r#","machine":3"#)];
    for name in &ours {
        let run = fairgate(&["replay", name]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    }
    let second = r#","machine":2"#;
    for (name, says, machine) in [
        (journal(second), "edition 2 of the rules", "2"),
        (journal(clock), "an earlier edition of the rules", "null"),
    ] {
        let run = fairgate(&["replay", &name]);
        assert_eq!(run.status, 0);
        assert!(run.stdout.contains(r#""decision":"grant""#), "{}", run.stdout);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
        let prefix = format!("fairgate: {name}: its writer decided by ");
        assert!(run.stderr.starts_with(&prefix) && run.stderr.contains(says), "{}", run.stderr);
        let field = format!(r#""other_edition":{{"machine":{machine},"replayed_by":3}}"#);
        let policy = file(r#"{"share":{"by":"tenant"}}"#);
        for report in
            [vec!["--explain", "a"], vec!["--fairness"], vec!["--policy", &policy, "--diff"]]
        {
            let run = fairgate(&[&["replay", &name, "--json"], &report[..]].concat());
            assert!(run.stdout.contains(&field), "{report:?}: {}", run.stdout);
            assert_eq!(run.stderr.lines().count(), 1, "{report:?}: {}", run.stderr);
        }
    }
}

#[test]
fn a_journal_that_a_gateway_of_the_second_edition_wrote_is_one() {
    let path = "../fairgate-runtime/tests/it/fixtures/second-edition-journal.jsonl";
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let run = fairgate(&["replay", &path]);
    assert_eq!(run.status, 0);
    assert_eq!(run.stdout.matches(r#""decision":"grant""#).count(), 7, "{}", run.stdout);
    assert!(run.stderr.contains("an earlier edition of the rules"), "{}", run.stderr);
}
