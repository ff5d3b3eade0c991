//! Runs the fuzz targets with all stored inputs, and with short random inputs.

use std::fs;
use std::path::Path;

use fairgate_testkit::fuzz::{journal_bytes, pool_ops};
use fairgate_testkit::workload::SeededRng;

#[test]
fn the_kept_journals_are_read_without_a_panic() {
    assert!(for_each_input("journal_reader", journal_bytes) > 0);
}

#[test]
fn the_kept_operations_are_decided_as_the_naive_scheduler_does() {
    assert!(for_each_input("pool_ops", pool_ops) > 0);
}

#[test]
fn random_operations_are_decided_as_the_naive_scheduler_does() {
    for seed in 1..=300 {
        eprintln!("seed {seed}");
        let mut rng = SeededRng::new(seed);
        let bytes: Vec<u8> = (0..1500).map(|_| byte(&mut rng)).collect();
        pool_ops(&bytes);
    }
}

/// Reads good journals in which a few bytes were changed. Most give errors, and none may panic.
#[test]
fn damaged_journals_are_read_without_a_panic() {
    let mut inputs = Vec::new();
    for_each_input("journal_reader", |bytes| inputs.push(bytes.to_vec()));
    for seed in 1..=3000 {
        eprintln!("seed {seed}");
        let mut rng = SeededRng::new(seed);
        let mut bytes = inputs[rng.index(inputs.len())].clone();
        for _ in 0..rng.range(1..=4) {
            let at = rng.index(bytes.len());
            match rng.range(0..=2) {
                0 => bytes[at] = byte(&mut rng),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, rng.one_of(b"{}[]\":,0123456789-.e\\\n")),
            }
        }
        journal_bytes(&bytes);
    }
}

fn for_each_input(target: &str, mut each: impl FnMut(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the corpus is checked in") {
        let path = entry.expect("an entry").path();
        eprintln!("{}", path.display());
        each(&fs::read(path).expect("a readable input"));
        count += 1;
    }
    count
}

fn byte(rng: &mut SeededRng) -> u8 {
    rng.next_u64().to_le_bytes()[0]
}
