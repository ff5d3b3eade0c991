//! Tests of the edition of the rules that wrote a journal: stated in the first line, or concluded
//! from it.

use fairgate_core::event::{PoolConfig, WorkerChange};
use fairgate_core::units::Micros;
use fairgate_journal::{EDITION, JournalClock, JournalReader, JournalWriter, parse_policy};

const CLOCK: &str = r#""clock":{"at":0,"unix_us":1763200000000000},"#;
const WORKERS: &str = r#","workers":[{"name":"w"}]"#;

/// Returns a first line with these fields before its pool and in its pool.
fn header(before: &str, within: &str) -> String {
    format!(
        r#"{{"fairgate_journal":1,{before}"pool":{{"capacity":2,"policy":{{"share":{{"by":"tenant"}}}}{within}}}}}"#
    )
}

/// Returns the machine that a first line names, and whether the journal is of another edition.
#[track_caller]
fn edition_of(line: &str) -> (Option<u64>, bool) {
    let (_, reader) = JournalReader::open(line.as_bytes()).unwrap();
    (reader.machine(), reader.is_of_other_edition())
}

#[test]
fn a_journal_names_its_machine() {
    assert_eq!(EDITION, 3);
    for (machine, other) in [(3, false), (0, true), (2, true), (4, true), (u64::MAX, true)] {
        let stated = format!(r#""machine":{machine},"#);
        for (before, within) in [("", ""), (CLOCK, ""), ("", WORKERS), (CLOCK, WORKERS)] {
            let line = header(&format!("{before}{stated}"), within);
            assert_eq!(edition_of(&line), (Some(machine), other), "{line}");
        }
    }
    // Behind the pool it says the same.
    let line = header("", "").replace("}}}}", r#"}}},"machine":2}"#);
    assert_eq!(edition_of(&line), (Some(2), true));
}

/// Earlier gateways stated a clock and no machine. The editions differ in the choice of workers.
#[test]
fn a_journal_with_a_clock_and_workers_and_no_machine_is_of_another_edition() {
    assert_eq!(edition_of(&header("", "")), (None, false));
    assert_eq!(edition_of(&header(CLOCK, "")), (None, false));
    assert_eq!(edition_of(&header("", WORKERS)), (None, false));
    assert_eq!(edition_of(&header(CLOCK, WORKERS)), (None, true));
    assert_eq!(edition_of(&header(CLOCK, r#","workers":[]"#)), (None, false));
}

/// A journal that is written with a clock names the machine, at a pool's start and in its snapshot.
/// Without a clock it does not.
#[test]
fn written_journals_with_a_clock_name_their_machine() {
    let mut config = PoolConfig::new(1, parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap());
    config.workers = vec![WorkerChange { name: "w".into(), ..WorkerChange::default() }];
    let snapshot = fairgate_core::Pool::new(config.clone()).snapshot();
    let clock = JournalClock { at: Micros(0), unix_us: 1_763_200_000_000_000 };
    let stated = |writer: JournalWriter<Vec<u8>>| {
        let line = String::from_utf8(writer.into_inner()).unwrap();
        (edition_of(&line), line.contains(r#""machine":3"#))
    };
    let mut writer = JournalWriter::new(Vec::new()).with_clock(clock);
    writer.write_header(&config).unwrap();
    assert_eq!(stated(writer), ((Some(3), false), true));
    let mut writer = JournalWriter::new(Vec::new()).with_clock(clock);
    writer.write_snapshot(&snapshot).unwrap();
    assert_eq!(stated(writer), ((Some(3), false), true));
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_header(&config).unwrap();
    assert_eq!(stated(writer), ((None, false), false));
    // A state with workers and a clock, but without a machine, was written by an earlier edition.
    let mut writer = JournalWriter::new(Vec::new()).with_clock(clock);
    writer.write_snapshot(&snapshot).unwrap();
    let line = String::from_utf8(writer.into_inner()).unwrap();
    assert_eq!(edition_of(&line.replace(r#""machine":3,"#, "")), (None, true));
}
