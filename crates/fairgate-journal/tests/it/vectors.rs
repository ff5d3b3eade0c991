//! Checks that every journal of the conformance vectors is read to its end and reads the same after
//! being written again. Its decisions stay the same if the pool is written and read again at
//! intervals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalReader, JournalStart, JournalWriter};
use fairgate_testkit::test_data;
use serde_json::Value;

fn journals() -> Vec<PathBuf> {
    test_data::vectors(".journal.jsonl")
}

/// Reads a whole journal. Also returns the numbers of its lines and bytes.
fn read(journal: impl BufRead) -> (JournalStart, Vec<(Micros, Event)>, (u64, u64)) {
    let (start, mut reader) = JournalReader::open(journal).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        events.push(event);
    }
    (start, events, (reader.line(), reader.bytes_read()))
}

#[test]
fn every_journal_is_read_to_its_end() {
    for path in journals() {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        let (_, events, read) = read(BufReader::new(File::open(&path).unwrap()));
        assert_eq!(events.len() + 1, lines);
        assert_eq!(read, (lines as u64, text.len() as u64));
    }
}

#[test]
fn every_journal_reads_the_same_once_written_again() {
    for path in journals() {
        let (start, events, _) = read(BufReader::new(File::open(&path).unwrap()));
        let mut writer = JournalWriter::new(Vec::new());
        let JournalStart::Fresh(config) = &start else { panic!("a pool starts it") };
        writer.write_header(config).unwrap();
        for (at, event) in &events {
            writer.write_event(*at, event).unwrap();
        }
        let (start_again, events_again, _) = read(&writer.into_inner()[..]);
        assert_eq!((start, events), (start_again, events_again));
    }
}

/// The fields of a decision that are compared.
const COMPARED: [&str; 7] = ["at", "decision", "id", "reason", "brownout", "worker", "rank"];

fn compared(line: &[u8]) -> Vec<Value> {
    let decision: Value = serde_json::from_slice(line).unwrap();
    COMPARED.iter().map(|field| decision[field].clone()).collect()
}

fn state(pool: &Pool) -> Vec<u8> {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).unwrap();
    writer.into_inner()
}

#[test]
fn every_journal_gives_its_decisions_from_its_own_states() {
    for path in journals() {
        let (start, events, _) = read(BufReader::new(File::open(&path).unwrap()));
        let mut pool = start.into_pool().unwrap();
        let mut uncut = pool.clone();
        let mut given = Vec::new();
        for (i, (at, event)) in events.into_iter().enumerate() {
            if i % 3 == 0 {
                let cut = state(&pool);
                assert!(cut == state(&uncut), "{}: before event {i}", path.display());
                pool = JournalReader::open(&cut[..]).unwrap().0.into_pool().unwrap();
            }
            let mut decisions: Vec<Decision> = Vec::new();
            uncut.apply(at, event.clone(), &mut Vec::new()).unwrap();
            pool.apply(at, event, &mut decisions).unwrap();
            for decision in decisions {
                let mut writer = JournalWriter::new(Vec::new());
                writer.write_decision(at, &decision).unwrap();
                given.push(compared(&writer.into_inner()));
            }
        }
        assert!(state(&pool) == state(&uncut), "{}: in the end", path.display());
        let expected = path.to_string_lossy().replace(".journal.", ".decisions.");
        let expected = fs::read_to_string(expected).unwrap();
        let expected: Vec<_> = expected.lines().map(|line| compared(line.as_bytes())).collect();
        assert_eq!(given, expected, "{}", path.display());
    }
}
