//! Runs the fuzz targets with all stored inputs.

use std::fs;
use std::path::Path;

use fairgate_dialect::fuzz::{ask, limits, meter};

fn replayed(target: &str, check: fn(&[u8])) -> usize {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    files
        .map(|file| {
            let path = file.unwrap().path();
            eprintln!("{}", path.display());
            check(&fs::read(path).unwrap());
        })
        .count()
}

#[test]
fn the_kept_requests_are_read_or_refused() {
    assert!(replayed("ask", ask) > 0);
}

#[test]
fn the_kept_answers_are_measured() {
    assert!(replayed("meter", meter) > 0);
}

#[test]
fn the_kept_errors_stay_within_bounds() {
    assert!(replayed("limits", limits) > 0);
}
