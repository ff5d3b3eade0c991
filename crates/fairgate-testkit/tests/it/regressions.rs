//! Tests with journals on which the fast scheduler once made other decisions than the naive one. The name of each test
//! describes the former fault.

use std::fs;
use std::path::Path;

use fairgate_core::Pool;
use fairgate_journal::{JournalReader, JournalStart};
use fairgate_testkit::naive::{ComparedDecision, NaivePool};

#[test]
fn every_kept_journal_is_decided_as_the_naive_scheduler_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the journals are checked in") {
        let path = entry.expect("an entry").path();
        let text = fs::read(&path).expect("a readable journal");
        let (start, mut reader) = JournalReader::open(&text[..]).expect("a good header");
        let JournalStart::Fresh(config) = start else { panic!("begins with an empty pool") };
        let (mut pool, mut naive) = (Pool::new(config.clone()), NaivePool::new(config));
        while let Some((at, event)) = reader.next_event().expect("a good line") {
            let mut decisions = Vec::new();
            pool.apply(at, event.clone(), &mut decisions).expect("time goes on");
            let decided: Vec<_> = decisions.iter().map(ComparedDecision::from).collect();
            assert_eq!(decided, naive.apply(at, &event), "{} {event:?}", path.display());
        }
        count += 1;
    }
    assert!(count > 0);
}
