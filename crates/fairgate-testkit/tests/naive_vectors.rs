//! The naive scheduler against the conformance vectors: every journal must give exactly its decisions.
//!
//! The reader here is private and lenient; it trusts the vectors to be well formed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Reason;
use fairgate_core::event::{Event, Pin, PoolConfig, Submit, WorkerChange, WorkerState};
use fairgate_core::policy::{
    BusyThresholds, Class, ClassLimits, DEFAULT_WEIGHT, Drr, Inside, Load, Node, Order, Policy,
    Share,
};
use fairgate_core::units::{Alpha, Fraction, Micros, TaskWeight, Tokens, Weight};
use fairgate_testkit::naive::{Decided, NaivePool};
use serde_json::Value;

const FAMILIES: [&str; 9] =
    ["bursts", "deep", "drr", "hierarchical", "load", "placed", "share", "tree", "workers"];

#[test]
fn every_journal_gives_its_decisions() {
    let Some(vectors) = vectors() else { return };
    let mut failures = Vec::new();
    let mut replayed: BTreeMap<&str, usize> = BTreeMap::new();
    for (family, journal) in journals(&vectors) {
        *replayed.entry(family).or_default() += 1;
        if let Err(difference) = replay(&journal) {
            failures.push(format!("{}: {difference}", journal.display()));
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(replayed.len(), FAMILIES.len(), "some family has no vectors: {replayed:?}");
}

/// The folder of vectors, or nothing, with a note, where the shared files are not there.
fn vectors() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FAIRGATE_SHARED").map_or(beside, PathBuf::from);
    let vectors = shared.join("conformance/vectors");
    if !vectors.is_dir() {
        eprintln!("skipped: no vectors in {}", vectors.display());
        return None;
    }
    Some(vectors)
}

fn journals(vectors: &Path) -> Vec<(&'static str, PathBuf)> {
    let entries = std::fs::read_dir(vectors).expect("vectors can be listed");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let family = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.ends_with(".journal.jsonl").then_some(())?;
        FAMILIES.into_iter().find(|family| name.starts_with(&format!("{family}-")))
    };
    paths.into_iter().filter_map(|path| Some((family(&path)?, path))).collect()
}

/// Replays one journal; the first difference from its decisions.
fn replay(journal: &Path) -> Result<(), String> {
    let mut lines = read_lines(journal).into_iter();
    let header = lines.next().expect("a journal has a header");
    let mut pool = NaivePool::new(pool_config(&header["pool"]));
    let mut given = Vec::new();
    for line in lines {
        let at = u64_of(&line["at"]);
        let decided = pool.apply(Micros(at), &event(&line));
        given.extend(decided.into_iter().map(|d| (at, d)));
    }
    let decisions = journal.to_str().expect("a text path").replace(".journal.", ".decisions.");
    let expected = read_lines(Path::new(&decisions)).into_iter();
    let expected: Vec<_> = expected.map(|line| (u64_of(&line["at"]), decided(&line))).collect();
    let same = given.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    if same == given.len() && same == expected.len() {
        return Ok(());
    }
    let (given, expected) = (given.get(same), expected.get(same));
    Err(format!("decision {}: {given:?} instead of {expected:?}", same + 1))
}

fn read_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a vector can be read");
    text.lines().map(|line| serde_json::from_str(line).expect("a vector is JSON")).collect()
}

fn u64_of(value: &Value) -> u64 {
    value.as_u64().expect("an integer of 0 or more")
}

fn u32_of(value: &Value) -> u32 {
    u32::try_from(u64_of(value)).expect("an integer of 32 bits")
}

fn str_of(value: &Value) -> Box<str> {
    value.as_str().expect("a text").into()
}

fn strs_of(value: &Value) -> Vec<Box<str>> {
    value.as_array().expect("a list").iter().map(str_of).collect()
}

fn tokens_of(value: &Value) -> Tokens {
    Tokens(u64_of(value))
}

/// A decimal as an integer of its last allowed place: 0.25 with 6 places is 250 000.
fn decimal_of(value: &Value, places: usize) -> u64 {
    let text = value.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    assert!(fraction.len() <= places, "{text} has more than {places} decimals");
    format!("{whole}{fraction:0<places$}").parse().expect("a plain decimal")
}

fn attribute(value: &Value) -> Attribute {
    Attribute::from_name(value.as_str().expect("a text")).expect("an attribute")
}

fn weight_of(value: &Value) -> Weight {
    Weight::new(u64_of(value)).expect("a weight")
}

fn map_of<T>(value: Option<&Value>, read: impl Fn(&Value) -> T) -> BTreeMap<Box<str>, T> {
    let object = value.map(|v| v.as_object().expect("an object"));
    object.into_iter().flatten().map(|(name, v)| (name.as_str().into(), read(v))).collect()
}

fn pool_config(pool: &Value) -> PoolConfig {
    let workers = pool.get("workers").map(|w| w.as_array().expect("a list"));
    PoolConfig {
        capacity: u64_of(&pool["capacity"]),
        policy: policy(&pool["policy"]),
        max_queue: pool.get("max_queue").map(u64_of),
        queue_timeout: pool.get("queue_timeout_us").map(u64_of).map(Micros),
        brownout_wait: pool.get("brownout_wait_us").map(u64_of).map(Micros),
        workers: workers.into_iter().flatten().map(worker).collect(),
        busy: busy(pool),
    }
}

fn busy(object: &Value) -> BusyThresholds {
    let fraction = object.get("busy_fraction").map(|v| decimal_of(v, 3));
    BusyThresholds {
        tokens: object.get("busy_tokens").map(tokens_of),
        fraction: fraction.map(|f| Fraction::from_thousandths(f).expect("a fraction")),
    }
}

fn policy(value: &Value) -> Policy {
    Policy::new(node(value)).expect("a policy that can be")
}

fn node(value: &Value) -> Node {
    let (kind, node) = value.as_object().and_then(|o| o.iter().next()).expect("one node");
    match kind.as_str() {
        "drr" => Node::Drr(drr(node)),
        "share" => Node::Share(share(node)),
        "load" => Node::Load(load(node)),
        other => panic!("unknown node {other}"),
    }
}

fn inside(value: &Value) -> Inside {
    if let Some(inner) = value.get("inside") {
        return Inside::Node(Arc::new(node(inner)));
    }
    match value.get("queue").map(|queue| queue.as_str().expect("a text")) {
        None | Some("fcfs") => Inside::Queue(Order::Fcfs),
        Some("wspt") => Inside::Queue(Order::Wspt),
        Some(other) => panic!("unknown queue {other}"),
    }
}

fn is_true(value: Option<&Value>) -> bool {
    value.is_some_and(|v| v.as_bool().expect("true or false"))
}

fn drr(value: &Value) -> Drr {
    Drr {
        by: attribute(&value["by"]),
        classes: value["classes"].as_array().expect("a list").iter().map(class).collect(),
        default: value.get("default").map(str_of),
        settle: is_true(value.get("settle")),
    }
}

fn class(value: &Value) -> Class {
    Class {
        name: str_of(&value["name"]),
        quantum: weight_of(&value["quantum"]),
        inside: inside(value),
        busy: busy(value),
        limits: ClassLimits {
            requests_per_worker: value.get("limit_requests_per_worker").map(u64_of),
            input_tokens_per_worker: value.get("limit_input_tokens_per_worker").map(tokens_of),
            cached_tokens_per_worker: value.get("limit_cached_tokens_per_worker").map(tokens_of),
        },
    }
}

fn share(value: &Value) -> Share {
    let default_weight = value.get("default_weight").map_or(DEFAULT_WEIGHT, u64_of);
    Share {
        by: attribute(&value["by"]),
        weights: map_of(value.get("weights"), weight_of),
        default_weight: Weight::new(default_weight).expect("a weight"),
        caps: map_of(value.get("caps"), u64_of),
        default_cap: value.get("default_cap").map(u64_of),
        partition: is_true(value.get("partition")),
        inside: inside(value),
    }
}

fn load(value: &Value) -> Load {
    let preset = value.get("optimize_for").map(|v| match v.as_str() {
        Some("latency") => Alpha::LATENCY,
        Some("balanced") => Alpha::BALANCED,
        Some("throughput") => Alpha::THROUGHPUT,
        other => panic!("unknown preset {other:?}"),
    });
    let alpha = value.get("alpha").map(|v| Alpha::from_millionths(decimal_of(v, 6)));
    Load {
        by: attribute(&value["by"]),
        alpha: alpha.map(|a| a.expect("an alpha")).or(preset).unwrap_or(Alpha::BALANCED),
        auto_tune: is_true(value.get("auto_tune")),
        max_wait_ticks: value.get("max_wait_ticks").map(u64_of),
        inside: inside(value),
    }
}

fn event(line: &Value) -> Event {
    let id = || str_of(&line["id"]);
    let by = || attribute(&line["by"]);
    let flow = || str_of(&line["flow"]);
    match line["event"].as_str().expect("a text") {
        "submit" => Event::Submit(Box::new(submit(line))),
        "release" => Event::Release { id: id(), tokens: line.get("tokens").map(tokens_of) },
        "cancel" => Event::Cancel { id: id() },
        "hold" => Event::Hold { by: by(), flow: flow() },
        "resume" => Event::Resume { by: by(), flow: flow() },
        "capacity" => Event::Capacity { slots: u64_of(&line["slots"]) },
        "tick" => Event::Tick,
        "weight" => Event::Weight { by: by(), flow: flow(), weight: weight_of(&line["weight"]) },
        "policy" => Event::Policy(policy(&line["policy"])),
        "cap" => Event::Cap { by: by(), flow: flow(), slots: line.get("slots").map(u64_of) },
        "worker" => Event::Worker(worker(line)),
        "first_token" => Event::FirstToken { id: id() },
        other => panic!("unknown event {other}"),
    }
}

fn submit(line: &Value) -> Submit {
    let mut attributes = Attributes::none();
    for attribute in Attribute::ALL {
        if let Some(value) = line.get(attribute.name()) {
            attributes.set(attribute, str_of(value));
        }
    }
    let weight = line.get("weight").map(|v| TaskWeight::from_thousandths(decimal_of(v, 3)));
    let pin = line
        .get("pin")
        .map(|pin| Pin { worker: str_of(&pin["worker"]), rank: pin.get("rank").map(u32_of) });
    Submit {
        id: str_of(&line["id"]),
        attributes,
        cost: line.get("cost").map(tokens_of),
        priority: line.get("priority").map_or(0, |v| v.as_i64().expect("an integer")),
        weight: weight.map_or(TaskWeight::ONE, |w| w.expect("a weight")),
        input: line.get("input").map(tokens_of),
        cached: map_of(line.get("cached"), tokens_of).into_iter().collect(),
        pin,
        allow: line.get("allow").map(strs_of),
        requires: line.get("requires").map(strs_of).unwrap_or_default(),
    }
}

fn worker(line: &Value) -> WorkerChange {
    let state = line.get("state").map(|v| v.as_str().expect("a text"));
    WorkerChange {
        name: str_of(&line["name"]),
        state: state.map(|state| WorkerState::from_name(state).expect("a state")),
        ranks: line.get("ranks").map(u32_of),
        slots: line.get("slots").map(u64_of),
        taints: line.get("taints").map(strs_of),
        batch_tokens: line.get("batch_tokens").map(tokens_of),
    }
}

fn decided(line: &Value) -> Decided {
    let id = str_of(&line["id"]);
    match line["decision"].as_str().expect("a text") {
        "grant" => Decided::Grant {
            id,
            brownout: line.get("brownout").map(|v| v.as_bool().expect("true or false")),
            place: line.get("worker").map(|w| (str_of(w).into(), u32_of(&line["rank"]))),
        },
        "reject" => Decided::Reject { id, reason: reason(line["reason"].as_str()) },
        "expire" => Decided::Expire { id },
        other => panic!("unknown decision {other}"),
    }
}

fn reason(code: Option<&str>) -> Reason {
    let reasons = [
        Reason::Duplicate,
        Reason::QueueFull,
        Reason::PushedOut,
        Reason::NoWorker,
        Reason::Overloaded,
        Reason::ClassRequests,
        Reason::ClassInputTokens,
        Reason::ClassCachedTokens,
    ];
    reasons.into_iter().find(|reason| Some(reason.code()) == code).expect("a reason")
}
