//! Tests of changed snapshots: each is refused with an error, or gives a working pool. Nothing
//! panics or loops.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fairgate_core::Pool;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalReader, JournalWriter};
use fairgate_testkit::seeds::for_each_seed;
use fairgate_testkit::workload::{SeededRng, WorkloadShape, generate_answered};

use crate::seeds::journals;

/// Numbers at the edges of the integer types.
const EDGES: &[&str] = &[
    "0",
    "1",
    "2",
    "67108863",
    "2147483647",
    "4294967295",
    "17592186044415",
    "9223372036854775807",
    "18446744073709551614",
    "18446744073709551615",
    "-1",
    "-9223372036854775808",
];
/// Numbers at the edges for counters of 128 bits: up to 2^65, 2^88, 2^96, 2^120 and 2^127, less
/// one.
const WIDE_EDGES: &[&str] = &[
    "0",
    "1",
    "-1",
    "18446744073709551615",
    "36893488147419103231",
    "309485009821345068724781055",
    "79228162514264337593543950335",
    "-79228162514264337593543950335",
    "1329227995784915872903807060280344575",
    "-1329227995784915872903807060280344575",
    "170141183460469231731687303715884105727",
    "-170141183460469231731687303715884105728",
];

/// Parts of a text that can be replaced by similar parts: JSON values, and names.
#[derive(Default)]
struct Pieces {
    numbers: Vec<Range<usize>>,
    wide_numbers: Vec<Range<usize>>,
    texts: Vec<Range<usize>>,
    flags: Vec<Range<usize>>,
}

impl Pieces {
    fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut pieces = Self::default();
        let mut i = 0;
        while i < bytes.len() {
            let run = |from: usize, of: fn(&u8) -> bool| {
                from + bytes[from..].iter().take_while(|b| of(b)).count()
            };
            let end = match bytes[i] {
                b'"' => {
                    let end = run(i + 1, |b| *b != b'"');
                    match text[i + 1..end].parse::<i128>() {
                        Ok(_) => pieces.wide_numbers.push(i + 1..end),
                        Err(_) => pieces.texts.push(i + 1..end),
                    }
                    end + 1
                }
                b'-' | b'0'..=b'9' => {
                    let end = run(i, |b| b"-.0123456789".contains(b));
                    pieces.numbers.push(i..end);
                    end
                }
                b't' | b'f' => {
                    let end = run(i, u8::is_ascii_alphabetic);
                    pieces.flags.push(i..end);
                    end
                }
                _ => i + 1,
            };
            i = end;
        }
        pieces
    }

    /// Chooses a part and its replacement: a value at the edge, or another part of the same kind.
    fn change<'a>(&self, text: &'a str, rng: &mut SeededRng) -> (Range<usize>, &'a str) {
        let (kind, edges) = match rng.index(12) {
            0..6 => (&self.numbers, EDGES),
            6..10 => (&self.wide_numbers, WIDE_EDGES),
            10 => (&self.texts, &[][..]),
            _ => (&self.flags, &["true", "false"][..]),
        };
        let Some(piece) = (!kind.is_empty()).then(|| kind[rng.index(kind.len())].clone()) else {
            return (0..0, "");
        };
        let other = rng.index(edges.len() + kind.len().min(edges.len().max(1)));
        let value = edges.get(other).copied().unwrap_or_else(|| {
            let other = kind[rng.index(kind.len())].clone();
            &text[other]
        });
        (piece, value)
    }
}

/// Returns the text with a few of its values replaced.
fn tampered(text: &str, pieces: &Pieces, rng: &mut SeededRng) -> String {
    let mut changes: Vec<_> = (0..1 + rng.index(3)).map(|_| pieces.change(text, rng)).collect();
    changes.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    changes.dedup_by_key(|(range, _)| range.start);
    let mut changed = text.to_string();
    for (range, value) in changes {
        changed.replace_range(range, value);
    }
    changed
}

/// Restores a pool, runs it to the end of time, and calls all its queries. Returns whether the
/// snapshot was accepted.
fn live_on(line: &str, events: &[(Micros, Event)]) -> bool {
    let Ok((start, _)) = JournalReader::open(line.as_bytes()) else { return false };
    let Ok(mut pool) = start.into_pool() else { return false };
    ask(&pool);
    for (at, event) in events {
        let at = (*at).max(pool.now());
        pool.apply(at, event.clone(), &mut Vec::new()).unwrap();
    }
    ask(&pool);
    for (_, event) in events.iter().take(5) {
        pool.apply(Micros(u64::MAX), event.clone(), &mut Vec::new()).unwrap();
    }
    ask(&pool);
    true
}

fn ask(pool: &Pool) {
    pool.fairness();
    pool.next_change();
    let snapshot = pool.snapshot();
    for request in snapshot.requests.iter().take(2) {
        pool.request_location(&request.id).unwrap();
    }
    // One that began at the edge may have gone over it.
    let _ = Pool::restore(snapshot);
}

/// Ends the tests if a case does not end.
struct Watchdog(mpsc::Sender<()>);

impl Watchdog {
    fn new(line: Arc<str>) -> Self {
        let (ended, wait) = mpsc::channel();
        std::thread::spawn(move || {
            if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(PATIENCE) {
                eprintln!("the pool of this snapshot does not come to an end\n{line}");
                std::process::abort();
            }
        });
        Self(ended)
    }
}

const PATIENCE: Duration = Duration::from_secs(120);
const TRIES: usize = 12;

/// Returns the number of accepted snapshots of this shape, and the number of all tried ones.
fn tamper(name: &str, shape: &WorkloadShape, seed: u64) -> (usize, usize) {
    let (config, events) = generate_answered(shape, seed);
    let mut rng = SeededRng::new(seed);
    let (first, rest) = events.split_at(rng.index(events.len() - 20));
    let mut pool = Pool::new(config);
    for (at, event) in first {
        pool.apply(*at, event.clone(), &mut Vec::new()).unwrap();
    }
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).unwrap();
    let text = String::from_utf8(writer.into_inner()).unwrap();
    let pieces = Pieces::of(&text);
    let mut accepted = 0;
    for _ in 0..TRIES {
        let line: Arc<str> = tampered(&text, &pieces, &mut rng).into();
        let rest = &rest[..rest.len().min(40)];
        let watchdog = Watchdog::new(line.clone());
        match catch_unwind(AssertUnwindSafe(|| live_on(&line, rest))) {
            Ok(lived) => accepted += usize::from(lived),
            Err(_) => panic!("shape {name}, seed {seed}: the pool of this snapshot\n{line}"),
        }
        drop(watchdog.0);
    }
    (accepted, TRIES)
}

#[test]
fn tampered_snapshots_never_panic() {
    let (accepted, tried) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for (name, shape) in WorkloadShape::quick() {
        for_each_seed(name, journals(20), |seed| {
            let (yes, all) = tamper(name, &shape, seed);
            accepted.fetch_add(yes, Ordering::Relaxed);
            tried.fetch_add(all, Ordering::Relaxed);
        });
    }
    let (accepted, tried) = (accepted.into_inner(), tried.into_inner());
    println!("{accepted} of {tried} accepted");
    assert!(accepted > tried / 10 && accepted < tried, "{accepted} of {tried} accepted");
}

/// The conditions that restoring checks hold in every pool after every event.
#[test]
fn untouched_snapshots_are_accepted() {
    for (name, shape) in WorkloadShape::quick() {
        for_each_seed(name, journals(20), |seed| {
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = Pool::new(config);
            for (line, (at, event)) in events.into_iter().enumerate() {
                pool.apply(at, event, &mut Vec::new()).unwrap();
                if let Err(error) = Pool::restore(pool.snapshot()) {
                    panic!("shape {name}, seed {seed}, event {line}: {error}");
                }
            }
        });
    }
}
