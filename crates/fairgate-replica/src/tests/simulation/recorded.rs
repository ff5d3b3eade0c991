//! Recorded logs, one for each version of the rules, with the expected hash after each record.
//!
//! A change of any decision, including those of the core, gives other hashes, and is a new version
//! of the rules. Raise [`MACHINE_VERSIONS`], keep the old rules for clusters in which the old
//! version is in force, and record a log of the new version with
//! `FAIRGATE_RECORD=1 cargo test -p fairgate-replica recorded`. A released log is never recorded
//! again.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::world::SimulatedCluster;
use crate::decision::ClusterEffects;
use crate::machine::{ClusterMachine, LogEntry, MACHINE_VERSIONS};
use crate::replica::Replica;
use crate::units::{EngineStamp, LogPosition, ShortHash};

/// Name of the cluster in the recorded logs; the same as in the simulation.
const CLUSTER: &str = "simulated";

/// Number of records in a recorded log.
const RECORDS: usize = 400;

fn path(version: u32) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recorded");
    folder.join(format!("machine-{version}.log"))
}

/// Applies records to the machine of a new cluster, and returns the hash after each.
fn hashes<'a>(
    version: u32,
    records: impl IntoIterator<Item = (EngineStamp, &'a [u8])>,
) -> Vec<ShortHash> {
    let mut replica = Replica::new(ClusterMachine::new(CLUSTER, version));
    let mut effects = ClusterEffects::default();
    let mut hashes = Vec::new();
    for (position, (stamp, record)) in (1..).zip(records) {
        let entry = LogEntry { position: LogPosition(position), stamp, record };
        replica.apply(&entry, &mut effects).expect("a recorded log can be applied");
        hashes.push(replica.machine().hash());
    }
    hashes
}

/// Writes the log of the first simulated cluster that kept one generation and one version to its
/// end.
fn record(version: u32) -> String {
    let records = (1..).find_map(|seed| {
        let mut cluster = SimulatedCluster::new(seed, None);
        cluster.run_until_quiet();
        let machine = cluster.order.machine();
        let is_fit = machine.generation() == 1
            && machine.version() == version
            && cluster.order.records().len() > RECORDS
            && cluster.report.faults.len() > 4;
        is_fit.then(|| cluster.order.records()[..RECORDS].to_vec())
    });
    let records = records.expect("some seed is fit");
    let hashes = hashes(version, records.iter().map(|(stamp, record)| (*stamp, &**record)));
    let mut text = String::new();
    for ((stamp, record), hash) in records.iter().zip(hashes) {
        let record = std::str::from_utf8(record).expect("records are text");
        writeln!(text, "{} {hash} {}", stamp.0, record.len()).expect("memory");
        text.push_str(record);
    }
    text
}

/// Parses one record of a recorded log: its timestamp, its hash and its bytes. Also returns the
/// text after it.
fn next_record(text: &str) -> Option<(EngineStamp, ShortHash, &[u8], &str)> {
    let (line, rest) = text.split_once('\n')?;
    let mut fields = line.split(' ');
    let stamp = EngineStamp(fields.next()?.parse().ok()?);
    let hash = ShortHash::parse(fields.next()?)?;
    let length: usize = fields.next()?.parse().ok()?;
    Some((stamp, hash, rest.get(..length)?.as_bytes(), rest.get(length..)?))
}

#[test]
fn every_version_decides_as_it_was_recorded() {
    for version in MACHINE_VERSIONS.0..=MACHINE_VERSIONS.1 {
        if super::number_from("FAIRGATE_RECORD").is_some() {
            std::fs::write(path(version), record(version)).expect("the folder is there");
        }
        let text = std::fs::read_to_string(path(version)).expect("each version has its log");
        let (mut rest, mut records, mut expected) = (&*text, Vec::new(), Vec::new());
        while let Some((stamp, hash, record, after)) = next_record(rest) {
            records.push((stamp, record));
            expected.push(hash);
            rest = after;
        }
        assert_eq!((records.len(), rest), (RECORDS, ""), "version {version}");
        let found = hashes(version, records);
        let differs = expected.iter().zip(&found).position(|(one, other)| one != other);
        assert_eq!(
            differs, None,
            "version {version} of the rules decides otherwise from this record on; a change of \
             decisions needs a new version"
        );
    }
}
