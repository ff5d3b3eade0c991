//! Every journal of the conformance vectors is read to its end.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use fairgate_journal::Reader;

/// The journals of the vectors, found beside the repository or where `FAIRGATE_SHARED` says.
fn journals() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FAIRGATE_SHARED").map_or(beside, PathBuf::from);
    let Ok(vectors) = fs::read_dir(shared.join("conformance/vectors")) else {
        eprintln!("no vectors found: nothing is tested");
        return Vec::new();
    };
    let paths = vectors.map(|entry| entry.unwrap().path());
    let mut journals: Vec<_> =
        paths.filter(|p| p.to_string_lossy().ends_with(".journal.jsonl")).collect();
    journals.sort();
    assert!(!journals.is_empty(), "no journals among the vectors");
    journals
}

#[test]
fn every_journal_is_read_to_its_end() {
    for path in journals() {
        let size = fs::metadata(&path).unwrap().len();
        let lines = fs::read_to_string(&path).unwrap().lines().count() as u64;
        let (_, mut reader) = Reader::open(BufReader::new(File::open(&path).unwrap())).unwrap();
        let mut events = 0;
        while let Some(_) = reader.next_event().unwrap_or_else(|e| panic!("{path:?}: {e}")) {
            events += 1;
        }
        assert_eq!((events + 1, reader.line(), reader.bytes_read()), (lines, lines, size));
    }
}
