//! Tests of journals that begin with a snapshot: its waiting requests and requests in flight are
//! part of every report.

use std::fs;

use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalReader, JournalWriter, format_policy};

use crate::run::{example, fairgate, file};

/// Cuts the example before an event. Returns the journal that continues from there, and its policy.
fn cut(before: usize) -> (String, String) {
    let text = fs::read(example("noisy-neighbour.jsonl")).expect("the example is there");
    let (start, mut reader) = JournalReader::open(&text[..]).expect("it is a journal");
    let mut pool = start.into_pool().expect("it has a pool");
    let mut rest: Vec<(Micros, Event)> = Vec::new();
    let mut count = 0;
    while let Some((at, event)) = reader.next_event().expect("it is a journal") {
        match count < before {
            true => pool.apply(at, event, &mut Vec::new()).expect("time goes on"),
            false => rest.push((at, event)),
        }
        count += 1;
    }
    let mut writer = JournalWriter::new(Vec::new());
    let snapshot = pool.snapshot();
    writer.write_snapshot(&snapshot).expect("a snapshot can be written");
    for (at, event) in &rest {
        writer.write_event(*at, event).expect("an event can be written");
    }
    let journal = file(&String::from_utf8(writer.into_inner()).expect("text"));
    (journal, file(&format_policy(&snapshot.policy)))
}

#[test]
fn it_decides_what_the_whole_journal_decides_from_there() {
    let whole = fairgate(&["replay", &example("noisy-neighbour.jsonl")]).ok();
    for before in 0..42 {
        let (journal, own) = cut(before);
        let rest = fairgate(&["replay", &journal]).ok();
        assert!(whole.ends_with(&rest), "cut before event {before}:\n{rest}");
        let what_if = fairgate(&["replay", &journal, "--policy", &own]).ok();
        assert_eq!(what_if, rest, "cut before event {before}, under its own policy");
    }
}

#[test]
fn another_policy_takes_over_what_waits_and_what_is_in_flight() {
    // loud-1 and loud-2 are in flight, loud-3 to loud-12 wait; quiet-1 comes next. What was in flight is not charged in the new tree, so
    // loud still has one turn before it.
    let (journal, _) = cut(12);
    let policy = example("share-policy.json");
    let decisions = fairgate(&["replay", &journal, "--policy", &policy]).brief();
    let first = ["20000 reject loud-12", "94700 grant loud-3", "99400 grant quiet-1"];
    assert_eq!(decisions[..3], first);
    let args = ["replay", &journal, "--policy", &policy, "--diff", "--by", "tenant"];
    let table = fairgate(&args).ok();
    let loud: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().take(5).collect();
    assert_eq!(loud, ["loud", "16", "14", "→", "13"], "two were in flight from the start");
}

#[test]
fn a_request_from_before_has_its_story() {
    let (journal, _) = cut(12);
    let story = fairgate(&["replay", &journal, "--explain", "loud-5"]).ok();
    let expected = "\
request loud-5

at 5000 µs: submitted, before this journal begins, with a cost of 1000 tokens, for tenant loud
    its path: class all
    class all had got 2000 tokens and was due 2000: no difference, within its bound of 4001 tokens
    it waits; if nothing else came, 2 grants would come before its own: 2 requests of all (2000 tokens)
at 195800 µs, line 6: granted after 190.8 ms
";
    assert!(story.starts_with(expected), "{story}");
    let story = fairgate(&["replay", &journal, "--explain", "loud-1"]).ok();
    let expected = "\
request loud-1

at 1000 µs: submitted, before this journal begins, with a cost of 1000 tokens, for tenant loud
    its path: class all
at 1000 µs: granted at once
at 94700 µs, line 3: ended after 93.7 ms with 937 tokens, 63 fewer than its cost of 1000
";
    assert!(story.starts_with(expected), "{story}");
}

#[test]
fn a_snapshot_that_is_none_is_named() {
    let run = fairgate(&["replay", &file("{\"fairgate_journal\":1,\"snapshot\":{}}\n")]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains(": line 1: field \"snapshot."), "{}", run.stderr);
}
