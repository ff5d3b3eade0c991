//! Tests of the core and the naive scheduler with the conformance vectors, and with journals for
//! single rules. The production reader reads all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fairgate_core::Pool;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::units::Micros;
use fairgate_journal::{JournalReader, JournalStart};
use fairgate_testkit::naive::{ComparedDecision, NaivePool};
use fairgate_testkit::test_data;
use serde_json::Value;

/// End of the names of journals.
const JOURNAL: &str = ".journal.jsonl";

/// Families of vectors that must exist. Other families are replayed too.
const FAMILIES: [&str; 16] = [
    "bands",
    "bursts",
    "crowd",
    "deadlines",
    "deep",
    "drr",
    "hierarchical",
    "load",
    "placed",
    "rates",
    "share",
    "ties",
    "tree",
    "turns",
    "wild",
    "workers",
];

#[test]
fn the_core_gives_the_decisions_of_every_vector() {
    for_each_vector(by_the_core);
}

#[test]
fn the_naive_scheduler_gives_the_decisions_of_every_vector() {
    for_each_vector(by_the_naive_scheduler);
}

/// Rules that no vector settles and random journals rarely reach, each by a journal made for it.
#[test]
fn the_core_gives_the_decisions_of_every_rule() {
    replay_all(rules(), by_the_core);
}

#[test]
fn the_naive_scheduler_gives_the_decisions_of_every_rule() {
    replay_all(rules(), by_the_naive_scheduler);
}

/// Whatever a rule keeps from one event to the next is in a snapshot too.
#[test]
fn a_core_that_is_restored_before_each_event_gives_the_decisions_of_every_rule() {
    replay_all(rules(), by_restored_cores);
}

type Given = Vec<(Micros, ComparedDecision)>;
type Replay = fn(PoolConfig, &[(Micros, Event)]) -> Given;

fn by_the_core(config: PoolConfig, events: &[(Micros, Event)]) -> Given {
    let mut pool = Pool::new(config);
    let mut given = Vec::new();
    for (at, event) in events {
        let mut decisions = Vec::new();
        pool.apply(*at, event.clone(), &mut decisions).expect("time goes on");
        given.extend(decisions.iter().map(|d| (*at, ComparedDecision::from(d))));
    }
    given
}

fn by_restored_cores(config: PoolConfig, events: &[(Micros, Event)]) -> Given {
    let mut pool = Pool::new(config);
    let mut given = Vec::new();
    for (at, event) in events {
        pool = Pool::restore(pool.snapshot()).expect("its own snapshot restores");
        let mut decisions = Vec::new();
        pool.apply(*at, event.clone(), &mut decisions).expect("time goes on");
        given.extend(decisions.iter().map(|d| (*at, ComparedDecision::from(d))));
    }
    given
}

fn by_the_naive_scheduler(config: PoolConfig, events: &[(Micros, Event)]) -> Given {
    let mut pool = NaivePool::new(config);
    let decide = |(at, event): &(Micros, Event)| {
        let decided = pool.apply(*at, event);
        decided.into_iter().map(|d| (*at, d)).collect::<Vec<_>>()
    };
    events.iter().flat_map(decide).collect()
}

fn for_each_vector(replay: Replay) {
    let replayed = replay_all(test_data::vectors(JOURNAL), replay);
    let missing: Vec<_> = FAMILIES.iter().filter(|family| !replayed.contains(**family)).collect();
    assert!(missing.is_empty(), "no vectors of {missing:?}");
}

/// Replays every journal, compares the decisions, and returns the families of the journals.
fn replay_all(journals: Vec<PathBuf>, replay: Replay) -> BTreeSet<String> {
    let mut failures = Vec::new();
    let mut replayed = BTreeSet::new();
    for journal in journals {
        replayed.extend(family(&journal));
        let (config, events) = read_journal(&journal);
        let given = replay(config, &events);
        if let Some(difference) = difference(&given, &read_decisions(&journal)) {
            failures.push(format!("{}: {difference}", journal.display()));
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert!(!replayed.is_empty(), "no journals were replayed");
    replayed
}

/// Returns the journals that were made for single rules.
fn rules() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    let entries = fs::read_dir(folder).expect("the folder can be listed");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut journals: Vec<PathBuf> = paths.filter(|path| family(path).is_some()).collect();
    journals.sort();
    journals
}

/// Returns the family of a journal: its name without the number.
fn family(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(JOURNAL)?;
    Some(name.rsplit_once('-')?.0.to_owned())
}

fn read_journal(path: &Path) -> (PoolConfig, Vec<(Micros, Event)>) {
    let text = fs::read(path).expect("a readable vector");
    let (start, mut reader) = JournalReader::open(&text[..]).expect("a good header");
    let JournalStart::Fresh(config) = start else { panic!("vectors begin with an empty pool") };
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().expect("a good line") {
        events.push(event);
    }
    (config, events)
}

fn read_decisions(journal: &Path) -> Given {
    let path = journal.to_str().expect("a text path").replace(".journal.", ".decisions.");
    let text = fs::read_to_string(path).expect("decisions beside the journal");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    lines.map(|line: Value| (Micros(line["at"].as_u64().expect("at")), decided(&line))).collect()
}

fn decided(line: &Value) -> ComparedDecision {
    let id = line["id"].as_str().expect("id").into();
    let reasons = fairgate_core::decision::RejectionReason::ALL;
    match line["decision"].as_str().expect("decision") {
        "grant" => ComparedDecision::Grant {
            id,
            brownout: line.get("brownout").map(|b| b.as_bool().expect("brownout")),
            place: line.get("worker").map(|worker| {
                let rank = line["rank"].as_u64().expect("rank");
                (worker.as_str().expect("worker").into(), u32::try_from(rank).expect("rank"))
            }),
        },
        "expire" => ComparedDecision::Expire { id },
        _ => {
            let code = line["reason"].as_str().expect("reason");
            let reason = reasons.into_iter().find(|r| r.code() == code).expect("a known reason");
            ComparedDecision::Reject { id, reason }
        }
    }
}

fn difference(given: &Given, expected: &Given) -> Option<String> {
    let same = given.iter().zip(expected).take_while(|(a, b)| a == b).count();
    if same == given.len() && same == expected.len() {
        return None;
    }
    let (given, expected) = (given.get(same), expected.get(same));
    Some(format!("decision {same}: given {given:?}, expected {expected:?}"))
}
