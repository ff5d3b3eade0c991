//! Measures the time to read and to write one line: `cargo bench -p fairgate-journal`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use fairgate_journal::{JournalReader, JournalWriter};

const HEADER: &str =
    r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant"}}}}"#;
const LINES: [(&str, &str); 7] = [
    (
        "submit, all of the first example",
        r#"{"at":0,"event":"submit","id":"r1234567","tenant":"chat","group":"prod","class":"cached","agent":"analyst","cost":700,"priority":0,"weight":1.0}"#,
    ),
    (
        "submit, spaced",
        r#"{"at": 100, "event": "submit", "id": "r0", "class": "c4", "tenant": "t3", "group": "g1", "agent": "a1", "cost": 7, "priority": 2}"#,
    ),
    (
        "submit, placed",
        r#"{"at":0,"event":"submit","id":"r1","class":"cached","input":3000,"cached":{"w0":512,"w1":2048},"pin":{"worker":"w1","rank":0},"allow":["w0","w1"],"requires":["zone-a"]}"#,
    ),
    ("release", r#"{"at":9,"event":"release","id":"r1234567","tokens":812}"#),
    ("cancel", r#"{"at":9,"event":"cancel","id":"r1234567"}"#),
    ("first_token", r#"{"at":9,"event":"first_token","id":"r1234567"}"#),
    ("tick", r#"{"at":9,"event":"tick"}"#),
];
const COPIES: usize = 100_000;
const ROUNDS: usize = 5;

/// Returns the shortest time per line of a few rounds, in nanoseconds.
fn best(mut round: impl FnMut() -> Duration) -> f64 {
    let best = (0..ROUNDS).map(|_| round()).min().unwrap();
    best.as_secs_f64() * 1e9 / COPIES as f64
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // Built and started as one of the tests: there is nothing to test.
    }
    for (name, line) in LINES {
        let journal = format!("{HEADER}\n{}", format!("{line}\n").repeat(COPIES));
        let reading = best(|| {
            let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
            let start = Instant::now();
            while let Some(event) = reader.next_event().unwrap() {
                black_box(event);
            }
            start.elapsed()
        });
        let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
        let (at, event) = reader.next_event().unwrap().unwrap();
        let writing = best(|| {
            let mut writer = JournalWriter::new(std::io::sink());
            let start = Instant::now();
            for _ in 0..COPIES {
                writer.write_event(at, black_box(&event)).unwrap();
            }
            start.elapsed()
        });
        println!("{name:34} read {reading:6.0} ns   written {writing:6.0} ns");
    }
}
