use std::path::PathBuf;

use super::*;
use crate::ledger::Reservation;

pub(super) fn row(request: &str) -> Box<AttemptRow> {
    let held = Reservation {
        request: request.into(),
        group: "g".into(),
        tenant: "t".into(),
        key: "k".into(),
        model: "m \"1\"\n".into(),
        tokens: 7,
        provider_tokens: 0,
        money: fairgate_money::MicroUnits::ZERO,
        hosted: None,
        model_budgets: Vec::new(),
        claim: None,
        has_files: false,
        terms: Default::default(),
        at: fairgate_time::UnixMicros(5),
    };
    Box::new(held.to_lost_row(0))
}

/// A spool in a folder of its own.
pub(super) struct Place {
    folder: tempfile::TempDir,
    bounds: SpoolBounds,
}

impl Place {
    pub(super) fn new() -> Self {
        let bounds = SpoolBounds { memory_rows: 100_000, bytes_max: 1 << 30 };
        Self { folder: tempfile::tempdir().unwrap(), bounds }
    }

    pub(super) fn bounded(memory_rows: usize, bytes_max: u64) -> Self {
        Self { bounds: SpoolBounds { memory_rows, bytes_max }, ..Self::new() }
    }

    fn try_open(&self) -> io::Result<Spool> {
        Spool::open(SpoolFiles::beside(&self.folder.path().join("db")), self.bounds, None)
    }

    pub(super) fn open(&self) -> Spool {
        self.try_open().unwrap()
    }

    /// Returns the rows that an earlier process left.
    pub(super) fn left(&self) -> Vec<String> {
        requests(&taken(&self.open(), usize::MAX))
    }

    fn path(&self, end: &str) -> PathBuf {
        self.folder.path().join(format!("db-rows-{end}"))
    }

    /// Returns the names of all files without their common prefix, each with its length.
    fn files(&self) -> BTreeMap<String, u64> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().map(Result::unwrap);
        let name = |name: std::ffi::OsString| name.to_str().unwrap()["db-rows-".len()..].to_owned();
        entries.map(|entry| (name(entry.file_name()), entry.metadata().unwrap().len())).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files().values().sum()
    }
}

/// Puts rows with one call. Returns a result for each, and true if the writer should be woken.
fn try_put(spool: &Spool, requests: &[String]) -> (Vec<PutResult>, bool) {
    let rows: Vec<_> = requests.iter().map(|request| row(request)).collect();
    let mut results = Vec::new();
    let must_wake = spool.put(rows, &mut SpoolLines::default(), &mut results);
    assert_eq!(results.len(), requests.len());
    (results, must_wake)
}

fn put_all(spool: &Spool, requests: &[String]) -> bool {
    let (results, must_wake) = try_put(spool, requests);
    results.into_iter().for_each(Result::unwrap);
    must_wake
}

fn put(spool: &Spool, request: &str) -> bool {
    put_all(spool, &[request.to_owned()])
}

fn taken(spool: &Spool, max: usize) -> Vec<SpooledRow> {
    let mut rows = Vec::new();
    spool.take(&mut rows, max).unwrap();
    rows
}

fn requests(rows: &[SpooledRow]) -> Vec<String> {
    rows.iter().map(|row| row.attempt.request.clone()).collect()
}

#[test]
fn what_was_put_is_there_for_the_next_process() {
    let place = Place::new();
    let spool = place.open();
    // The writer is woken for the first row, not for the next.
    assert!(put(&spool, "a"));
    assert!(!put(&spool, "b"));
    assert_eq!((spool.pending_rows(), spool.waiting()), (2, 2));
    drop(spool);
    let spool = place.open();
    assert_eq!((spool.pending_rows(), spool.waiting()), (2, 2));
    // Those that come now come after those that were left.
    put(&spool, "c");
    let rows = taken(&spool, 10);
    assert_eq!(requests(&rows), ["a", "b", "c"]);
    spool.mark_written(rows);
    drop(spool);
    assert!(place.left().is_empty());
}

#[test]
fn a_line_that_is_not_whole_spoils_no_other_and_is_kept_each_time() {
    let place = Place::new();
    for (round, aside) in ["0.damaged", "0.damaged-2", "0.damaged-3"].into_iter().enumerate() {
        let spool = place.open();
        for request in ["a", "b", "c"] {
            put(&spool, &format!("{request}{round}"));
        }
        drop(spool);
        let mut bytes = std::fs::read(place.path("0")).unwrap();
        let second = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 20;
        bytes[second] ^= 1;
        bytes.truncate(bytes.len() - 5);
        std::fs::write(place.path("0"), &bytes).unwrap();
        let spool = place.open();
        let rows = taken(&spool, 10);
        assert_eq!(requests(&rows), [format!("a{round}")]);
        spool.mark_written(rows);
        assert_eq!(spool.close(), 0);
        assert_eq!(std::fs::read(place.path(aside)).unwrap(), bytes, "{aside}");
        assert_eq!(place.files().len(), round + 1);
    }
}

#[test]
fn written_rows_leave_the_files() {
    let place = Place::new();
    let spool = place.open();
    for _ in 0..3 {
        put(&spool, "a");
        put(&spool, "b");
        let rows = taken(&spool, 10);
        assert_eq!(rows.len(), 2);
        spool.mark_written(rows);
        assert_eq!((place.bytes(), spool.pending_rows()), (0, 0));
    }
    // While a row is on its way, others may come.
    put(&spool, "c");
    let rows = taken(&spool, 10);
    put(&spool, "d");
    spool.mark_written(rows);
    assert_eq!(spool.pending_rows(), 1);
    assert!(spool.has_written(7) && !spool.has_written(8));
    drop(spool);
    assert_eq!(place.left().last().unwrap(), "d");
}

#[test]
fn what_memory_does_not_hold_is_read_back_in_order() {
    for memory in [0, 1, 3, 100] {
        let place = Place::bounded(memory, 1 << 30);
        let spool = place.open();
        let (mut next_in, mut next_out) = (0_u32, 0_u32);
        // Rows come in bursts of different lengths, and are taken in batches of others.
        for step in 0..200_u32 {
            let burst: Vec<_> = (next_in..next_in + step * 7 % 11).map(|n| n.to_string()).collect();
            // Some bursts come row by row.
            burst
                .chunks(if step % 3 == 0 { 1 } else { 16 })
                .for_each(|rows| _ = put_all(&spool, rows));
            next_in += step * 7 % 11;
            assert!(spool.state().waiting.len() <= memory);
            let rows = taken(&spool, (step as usize * 5 % 7) + 1);
            for row in &rows {
                assert_eq!(row.attempt.request, next_out.to_string());
                next_out += 1;
            }
            // Those that were left are taken last.
            spool.mark_written(rows);
        }
        while next_out < next_in {
            let rows = taken(&spool, 4);
            next_out += u32::try_from(rows.len()).unwrap();
            spool.mark_written(rows);
        }
        assert_eq!((spool.pending_rows(), spool.waiting(), place.bytes()), (0, 0, 0));
        // With nothing left in the files, rows wait in memory again.
        put(&spool, "x");
        assert_eq!(spool.state().waiting.len(), memory.min(1));
    }
}

#[test]
fn files_are_small_and_go_one_by_one() {
    let place = Place::new();
    let spool = place.open();
    let mut most = 0;
    for n in 0..60_000_u32 {
        put(&spool, &format!("request-{n}"));
        if n % 100 == 99 {
            // The writer is always one row behind.
            spool.mark_written(taken(&spool, 99));
            most = most.max(place.bytes());
        }
    }
    assert!(most > SEGMENT_BYTES && most < 2 * SEGMENT_BYTES, "{most} bytes");
    assert!(place.files().len() <= 3, "{:?}", place.files());
}

#[test]
fn the_files_are_bounded() {
    let place = Place::bounded(10, 20_000);
    let spool = place.open();
    let mut count = 0;
    let message = loop {
        match try_put(&spool, &["r".to_owned()]).0.pop().unwrap() {
            Ok(()) => count += 1,
            Err(SpoolPutError::Unwritten { problem, .. }) => break problem.to_string(),
            Err(SpoolPutError::Closed) => panic!("it is open"),
        }
    };
    assert!(count > 20 && place.bytes() <= 20_000);
    assert!(
        message.starts_with(&format!("{count} rows that are not in the database")),
        "{message}"
    );
    assert!(!spool.is_writable());
    // A kill at this moment loses nothing, and what was brought in makes room.
    drop(spool);
    let spool = place.open();
    assert_eq!(spool.pending_rows(), count);
    spool.mark_written(taken(&spool, 1_000));
    assert!(spool.is_writable());
    put(&spool, "again");
}

#[test]
fn of_rows_that_do_not_all_fit_those_that_fit_are_kept() {
    let rows = |count: u32| -> Vec<String> { (0..count).map(|n| format!("r{n}")).collect() };
    let place = Place::bounded(100, 1 << 20);
    let spool = place.open();
    put_all(&spool, &rows(3));
    let bytes = place.bytes();
    drop(spool);
    let place = Place::bounded(100, bytes);
    let spool = place.open();
    let (results, must_wake) = try_put(&spool, &rows(5));
    let is_kept: Vec<_> = results.iter().map(Result::is_ok).collect();
    assert_eq!((is_kept, must_wake), (vec![true, true, true, false, false], true));
    assert_eq!((place.bytes(), spool.pending_rows()), (bytes, 3));
    assert!(!spool.is_writable());
    drop(spool);
    assert_eq!(place.left(), rows(3));
}

#[test]
fn files_that_are_done_are_removed() {
    let place = Place::new();
    let spool = place.open();
    put(&spool, "a");
    assert_eq!(spool.close(), 1);
    assert_eq!(place.files().len(), 1);
    // Nobody else's file is written to.
    assert!(matches!(try_put(&spool, &["b".to_owned()]).0[..], [Err(SpoolPutError::Closed)]));
    spool.mark_written(taken(&spool, 10));
    assert_eq!(spool.close(), 0);
    assert!(place.files().is_empty(), "{:?}", place.files());
}

#[test]
fn rows_of_another_version_are_left_alone() {
    let place = Place::new();
    let spool = place.open();
    put(&spool, "a");
    drop(spool);
    let line = std::fs::read_to_string(place.path("0")).unwrap();
    std::fs::write(place.path("0"), line.replacen('2', "3", 1)).unwrap();
    let refused = place.try_open().unwrap_err().to_string();
    assert!(refused.contains("another version"), "{refused}");
    assert_eq!(place.files()["0"], line.len() as u64);
}

#[test]
fn rows_of_the_version_before_are_taken_over() {
    let place = Place::new();
    let line = |request: &str| {
        let json = serde_json::to_string(&row(request)).unwrap();
        format!("1 {} {json}\n", &blake3::hash(json.as_bytes()).to_hex()[..8])
    };
    let whole = [line("a"), line("b")].concat();
    let torn = line("torn");
    std::fs::write(place.path("7"), whole + &torn[..torn.len() - 9]).unwrap();
    let spool = place.open();
    put(&spool, "c");
    drop(spool);
    // The new rows are in a file of their own, and both files are read after another kill too.
    assert!(place.files()["8"] > 0);
    let spool = place.open();
    let rows = taken(&spool, 10);
    assert_eq!(requests(&rows), ["a", "b", "c"]);
    assert_eq!(rows[0].attempt, row("a"));
    spool.mark_written(rows);
    assert_eq!(spool.close(), 0);
}

#[test]
fn a_refused_row_is_kept_apart() {
    let place = Place::new();
    let spool = place.open();
    for request in ["a", "b"] {
        spool.set_aside(&row(request)).unwrap();
    }
    drop(spool);
    let kept = std::fs::read(place.path("refused")).unwrap();
    assert_eq!(kept.iter().filter(|&&byte| byte == b'\n').count(), 2);
    assert!(place.left().is_empty());
}
