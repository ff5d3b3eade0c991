//! What the tests have in common.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{JournalReader, parse_policy};
use fairgate_runtime::{Gate, GateOptions, GateStatus, start};
use fairgate_testkit::workload::SeededRng;

pub(crate) type Decisions = Vec<(Micros, Decision)>;

/// A pool shared by tenant, in which a hundred thousand may wait.
pub(crate) fn config(capacity: u64) -> PoolConfig {
    let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
    PoolConfig { max_queue: Some(100_000), ..PoolConfig::new(capacity, policy) }
}

pub(crate) fn gate(capacity: u64) -> Gate {
    start(config(capacity), GateOptions::default()).unwrap()
}

pub(crate) fn submit(id: &str, tenant: &str, cost: u64) -> Submit {
    let attributes = Attributes::none().with(Attribute::Tenant, tenant);
    Submit { attributes, cost: Some(Tokens(cost)), ..Submit::new(id) }
}

pub(crate) async fn live(gate: &Gate) -> GateStatus {
    gate.status().await.unwrap()
}

/// How many are in flight and how many wait.
pub(crate) async fn load(gate: &Gate) -> (u64, u64) {
    let live = live(gate).await;
    (live.in_flight, live.waiting)
}

/// What a tenant has been charged for ended requests; 0 where the pool keeps nothing of it.
pub(crate) async fn served(gate: &Gate, tenant: &str) -> u128 {
    let root = gate.snapshot().await.unwrap().root;
    let flow = root.flows.into_iter().find(|flow| *flow.name == *tenant);
    flow.map_or(0, |flow| flow.share.unwrap().served)
}

/// Starts an admission that waits, and waits until it does.
pub(crate) async fn waiting(
    gate: &Gate,
    submit: Submit,
) -> tokio::task::JoinHandle<Result<fairgate_runtime::Permit, fairgate_runtime::AdmitError>> {
    let before = live(gate).await.waiting;
    let asking = gate.clone();
    let admission = tokio::spawn(async move { asking.admit(submit).await });
    while live(gate).await.waiting == before {
        tokio::task::yield_now().await;
    }
    admission
}

/// A random number below `end`.
pub(crate) fn below(rng: &mut SeededRng, end: u64) -> u64 {
    rng.range(0..=end - 1)
}

/// An empty folder for a test.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

/// Options that note the decisions.
pub(crate) fn noting(options: GateOptions) -> (GateOptions, Arc<Mutex<Decisions>>) {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let notes = noted.clone();
    let watch = move |at, decision: &Decision| notes.lock().unwrap().push((at, decision.clone()));
    (options.with_observer(watch), noted)
}

/// Replays a file by itself: its decisions, and the pool in the end.
pub(crate) fn replay(file: &Path) -> (Decisions, Pool) {
    let text = fs::read(file).unwrap();
    let (start, mut reader) = JournalReader::open(&text[..]).unwrap();
    let mut pool = start.into_pool().unwrap();
    let mut decisions = Vec::new();
    while let Some((at, event)) = reader.next_event().unwrap() {
        let mut decided = Vec::new();
        pool.apply(at, event, &mut decided).unwrap();
        decisions.extend(decided.into_iter().map(|decision| (at, decision)));
    }
    (decisions, pool)
}
