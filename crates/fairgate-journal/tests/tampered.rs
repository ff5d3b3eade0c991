//! Snapshots that somebody changed: refused with an error, or a pool that works on. Nothing panics.
#![allow(clippy::unwrap_used)]

mod seeds;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fairgate_core::Pool;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::{Reader, Writer};
use fairgate_testkit::workload::{Rng, Shape, generate_answered};

use crate::seeds::seeds;

/// Numbers at the edges of what fits.
const EDGES: &[&str] = &[
    "0",
    "1",
    "2",
    "4294967295",
    "17592186044415",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
    "-9223372036854775808",
];
/// The same for counters of 128 bits: up to 2^88, 2^96 and 2^120, less one.
const WIDE_EDGES: &[&str] = &[
    "0",
    "1",
    "18446744073709551615",
    "309485009821345068724781055",
    "79228162514264337593543950335",
    "-79228162514264337593543950335",
    "1329227995784915872903807060280344575",
    "-1329227995784915872903807060280344575",
];

/// The numbers of a JSON text, those in quotes included, that stand where a value may.
fn numbers(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut numbers = Vec::new();
    let mut i = 0;
    while i < bytes.len() {
        let starts = bytes[i] == b'-' || bytes[i].is_ascii_digit();
        let before = bytes[..i].last().copied().unwrap_or(b' ');
        let end = i + bytes[i..].iter().take_while(|b| b"-.0123456789".contains(b)).count();
        let after = bytes.get(end).copied().unwrap_or(b' ');
        let is_value = match before {
            b'"' => after == b'"' && bytes.get(end + 1) != Some(&b':'),
            _ => b":[,".contains(&before),
        };
        if starts && is_value {
            numbers.push(i..end);
        }
        i = end.max(i + 1);
    }
    numbers
}

/// The text with a few of its numbers replaced.
fn tampered(text: &str, rng: &mut Rng) -> String {
    let mut numbers = numbers(text);
    let mut changed = text.to_string();
    let mut picked: Vec<Range<usize>> = Vec::new();
    for _ in 0..1 + rng.index(3) {
        picked.push(numbers.swap_remove(rng.index(numbers.len())));
    }
    picked.sort_by_key(|range| std::cmp::Reverse(range.start));
    for range in picked {
        let quoted = text.as_bytes()[range.start - 1] == b'"';
        let edges = if quoted { WIDE_EDGES } else { EDGES };
        changed.replace_range(range, edges[rng.index(edges.len())]);
    }
    changed
}

/// Lets a pool live on, and asks it all it may be asked. Gives whether the snapshot was accepted.
fn live_on(line: &str, events: &[(Micros, Event)]) -> bool {
    let Ok((start, _)) = Reader::open(line.as_bytes()) else { return false };
    let Ok(mut pool) = start.into_pool() else { return false };
    ask(&pool);
    for (at, event) in events {
        let at = (*at).max(pool.now());
        pool.apply(at, event.clone(), &mut Vec::new()).unwrap();
    }
    ask(&pool);
    true
}

fn ask(pool: &Pool) {
    pool.fairness();
    let snapshot = pool.snapshot();
    for request in snapshot.requests.iter().take(2) {
        pool.whereabouts(&request.id).unwrap();
    }
    // One that began at the edge may have gone over it.
    let _ = Pool::restore(snapshot);
}

/// How often snapshots of this shape were accepted, of all that were tried.
fn tamper(name: &str, shape: &Shape, seed: u64) -> (usize, usize) {
    let (config, events) = generate_answered(shape, seed);
    let mut rng = Rng::new(seed);
    let (first, rest) = events.split_at(rng.index(events.len() - 20));
    let mut pool = Pool::new(config);
    for (at, event) in first {
        pool.apply(*at, event.clone(), &mut Vec::new()).unwrap();
    }
    let mut writer = Writer::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).unwrap();
    let text = String::from_utf8(writer.into_inner()).unwrap();
    let mut accepted = 0;
    for _ in 0..TRIES {
        let line = tampered(&text, &mut rng);
        let rest = &rest[..rest.len().min(40)];
        match catch_unwind(AssertUnwindSafe(|| live_on(&line, rest))) {
            Ok(lived) => accepted += usize::from(lived),
            Err(_) => panic!("shape {name}, seed {seed}: the pool of this snapshot\n{line}"),
        }
    }
    (accepted, TRIES)
}

const TRIES: usize = 12;

#[test]
fn tampered_snapshots_never_panic() {
    let seeds = seeds(0..20);
    let (mut accepted, mut tried) = (0, 0);
    for (name, shape) in Shape::quick() {
        println!("shape {name}: seeds {seeds:?}");
        for seed in seeds.clone() {
            let (yes, all) = tamper(name, &shape, seed);
            accepted += yes;
            tried += all;
        }
    }
    println!("{accepted} of {tried} accepted");
    assert!(accepted > tried / 10 && accepted < tried, "{accepted} of {tried} accepted");
}

/// What restoring checks holds in every pool, after every event.
#[test]
fn untouched_snapshots_are_accepted() {
    for (name, shape) in Shape::quick() {
        for seed in seeds(0..20) {
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = Pool::new(config);
            for (line, (at, event)) in events.into_iter().enumerate() {
                pool.apply(at, event, &mut Vec::new()).unwrap();
                if let Err(error) = Pool::restore(pool.snapshot()) {
                    panic!("shape {name}, seed {seed}, event {line}: {error}");
                }
            }
        }
    }
}
