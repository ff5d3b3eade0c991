//! The core and the naive scheduler against the conformance vectors, read by the real reader.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fairgate_core::Pool;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::units::Micros;
use fairgate_journal::{Reader, Start};
use fairgate_testkit::naive::{Decided, NaivePool};
use serde_json::Value;

const FAMILIES: [&str; 9] =
    ["bursts", "deep", "drr", "hierarchical", "load", "placed", "share", "tree", "workers"];

#[test]
fn the_core_gives_the_decisions_of_every_vector() {
    for_each_vector(|config, events| {
        let mut pool = Pool::new(config);
        let mut given = Vec::new();
        for (at, event) in events {
            let mut decisions = Vec::new();
            pool.apply(*at, event.clone(), &mut decisions).expect("time goes on");
            given.extend(decisions.iter().map(|d| (*at, Decided::from(d))));
        }
        given
    });
}

#[test]
fn the_naive_scheduler_gives_the_decisions_of_every_vector() {
    for_each_vector(|config, events| {
        let mut pool = NaivePool::new(config);
        let decide = |(at, event): &(Micros, Event)| {
            let decided = pool.apply(*at, event);
            decided.into_iter().map(|d| (*at, d)).collect::<Vec<_>>()
        };
        events.iter().flat_map(decide).collect()
    });
}

type Given = Vec<(Micros, Decided)>;

fn for_each_vector(mut replay: impl FnMut(PoolConfig, &[(Micros, Event)]) -> Given) {
    let Some(vectors) = vectors() else { return };
    let mut failures = Vec::new();
    let mut replayed: BTreeMap<&str, usize> = BTreeMap::new();
    for (family, journal) in journals(&vectors) {
        *replayed.entry(family).or_default() += 1;
        let (config, events) = read_journal(&journal);
        let given = replay(config, &events);
        if let Some(difference) = difference(&given, &read_decisions(&journal)) {
            failures.push(format!("{}: {difference}", journal.display()));
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(replayed.len(), FAMILIES.len(), "some family has no vectors: {replayed:?}");
}

/// The folder of vectors, or nothing, with a note, where the shared files are not there.
fn vectors() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FAIRGATE_SHARED").map_or(beside, PathBuf::from);
    let vectors = shared.join("conformance/vectors");
    if !vectors.is_dir() {
        eprintln!("skipped: no vectors in {}", vectors.display());
        return None;
    }
    Some(vectors)
}

fn journals(vectors: &Path) -> Vec<(&'static str, PathBuf)> {
    let entries = fs::read_dir(vectors).expect("vectors can be listed");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let family = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.ends_with(".journal.jsonl").then_some(())?;
        FAMILIES.into_iter().find(|family| name.starts_with(&format!("{family}-")))
    };
    paths.into_iter().filter_map(|path| Some((family(&path)?, path))).collect()
}

fn read_journal(path: &Path) -> (PoolConfig, Vec<(Micros, Event)>) {
    let text = fs::read(path).expect("a readable vector");
    let (start, mut reader) = Reader::open(&text[..]).expect("a good header");
    let Start::Fresh(config) = start else { panic!("vectors begin with an empty pool") };
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

fn decided(line: &Value) -> Decided {
    let id = line["id"].as_str().expect("id").into();
    let reasons = fairgate_core::decision::Reason::ALL;
    match line["decision"].as_str().expect("decision") {
        "grant" => Decided::Grant {
            id,
            brownout: line.get("brownout").map(|b| b.as_bool().expect("brownout")),
            place: line.get("worker").map(|worker| {
                let rank = line["rank"].as_u64().expect("rank");
                (worker.as_str().expect("worker").into(), u32::try_from(rank).expect("rank"))
            }),
        },
        "expire" => Decided::Expire { id },
        _ => {
            let code = line["reason"].as_str().expect("reason");
            let reason = reasons.into_iter().find(|r| r.code() == code).expect("a known reason");
            Decided::Reject { id, reason }
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
