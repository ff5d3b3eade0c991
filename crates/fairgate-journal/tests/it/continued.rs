//! Tests that a journal that starts from a snapshot continues like the uninterrupted one, with the
//! same decisions and byte-identical later snapshots.

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalReader, JournalWriter, write_fairness, write_request_location};
use fairgate_testkit::seeds::for_each_seed;
use fairgate_testkit::workload::{Events, WorkloadShape, generate, generate_answered};
use serde_json::Value;

use crate::seeds::journals;

type Decisions = Vec<Decision>;

fn apply(pool: &mut Pool, (at, event): &(Micros, Event)) -> Decisions {
    let mut decisions = Vec::new();
    pool.apply(*at, event.clone(), &mut decisions).unwrap();
    decisions
}

/// Returns a pool's state as it is written.
fn state(pool: &Pool) -> Vec<u8> {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).unwrap();
    writer.into_inner()
}

/// Returns the pool that is read from a written state.
fn restored(state: &[u8]) -> Pool {
    let (start, mut reader) = JournalReader::open(state).unwrap();
    assert!(reader.next_event().unwrap().is_none());
    start.into_pool().unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(state)))
}

/// Returns the first differences between two states, for the message.
fn differences(ours: &[u8], theirs: &[u8]) -> String {
    let mut found = Vec::new();
    let read = |state| serde_json::from_slice::<Value>(state).unwrap();
    compare(&read(ours), &read(theirs), "", &mut found);
    found.truncate(12);
    found.join("\n")
}

fn compare(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in names {
                let of = |fields: &serde_json::Map<_, _>| fields.get(name).cloned();
                let (a, b) = (of(a).unwrap_or_default(), of(b).unwrap_or_default());
                compare(&a, &b, &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &format!("{path}[{i}]"), found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: uncut {ours}, cut {theirs}")),
    }
}

/// Answers of a pool that its state does not contain.
struct Said {
    /// Time of the next change that needs no event.
    next_change: Option<Micros>,
    fairness: String,
    /// Locations of the first and the last request.
    whereabouts: Vec<String>,
}

impl Said {
    fn by(pool: &Pool) -> Self {
        let requests = pool.snapshot().requests;
        let some = requests.first().into_iter().chain(requests.last());
        let whereabouts = some.filter_map(|request| pool.request_location(&request.id));
        Self {
            next_change: pool.next_change(),
            fairness: write_fairness(&pool.fairness()),
            whereabouts: whereabouts.map(|it| write_request_location(&it)).collect(),
        }
    }

    /// Compares these answers with those of the pool that was cut.
    fn check(&self, cut: &Self, context: &str) {
        assert_eq!(self.next_change, cut.next_change, "{context}: the next change differs");
        assert_eq!(self.whereabouts, cut.whereabouts, "{context}: whereabouts differ");
        if self.fairness != cut.fairness {
            let differences = differences(self.fairness.as_bytes(), cut.fairness.as_bytes());
            panic!("{context}: fairness differs\n{differences}");
        }
    }
}

/// Results of a journal without a cut: the decisions of each event, the state before each event,
/// and the final state.
struct Uncut {
    events: Events,
    decisions: Vec<Decisions>,
    states: Vec<Vec<u8>>,
    said: Vec<Said>,
}

impl Uncut {
    fn new(shape: &WorkloadShape, seed: u64) -> Self {
        let (config, events) = match seed % 4 {
            0 => generate(shape, seed),
            _ => generate_answered(shape, seed),
        };
        let mut pool = Pool::new(config);
        let (mut states, mut said) = (vec![state(&pool)], vec![Said::by(&pool)]);
        let mut decisions = Vec::new();
        for event in &events {
            decisions.push(apply(&mut pool, event));
            states.push(state(&pool));
            said.push(Said::by(&pool));
        }
        Self { events, decisions, states, said }
    }

    /// Applies an event to the pool that was cut, and compares the decisions.
    fn go_on(&self, pool: &mut Pool, event: usize, context: &str) {
        let decided = apply(pool, &self.events[event]);
        assert_eq!(decided, self.decisions[event], "{context}: event {event} decides otherwise");
    }

    /// Compares the state of the pool that was cut before this event.
    fn check_state(&self, pool: &Pool, event: usize, context: &str) {
        let (uncut, cut) = (&self.states[event], &state(pool));
        if uncut != cut {
            let differences = differences(uncut, cut);
            panic!("{context}: the states before event {event} differ\n{differences}");
        }
    }

    /// Compares all answers of the pool that was cut before this event.
    fn check_said(&self, pool: &Pool, event: usize, context: &str) {
        self.said[event].check(&Said::by(pool), &format!("{context}: asked before event {event}"));
    }
}

/// Cuts a journal before every `step`-th event and continues to the end. Also cuts once before each
/// event.
fn check(name: &str, shape: &WorkloadShape, seed: u64, step: usize) {
    let uncut = Uncut::new(shape, seed);
    let events = uncut.events.len();
    for cut in (0..=events).step_by(step) {
        let context = format!("shape {name}, seed {seed}, cut before event {cut}");
        let mut pool = restored(&uncut.states[cut]);
        uncut.check_state(&pool, cut, &context);
        uncut.check_said(&pool, cut, &context);
        for event in cut..events {
            uncut.go_on(&mut pool, event, &context);
            // Right after the cut, and in the end.
            if event < cut + 2 || event + 1 == events {
                uncut.check_state(&pool, event + 1, &context);
            }
        }
    }
    let context = format!("shape {name}, seed {seed}, cut before each event");
    let mut pool = restored(&uncut.states[0]);
    for event in 0..events {
        uncut.go_on(&mut pool, event, &context);
        uncut.check_state(&pool, event + 1, &context);
        pool = restored(&uncut.states[event + 1]);
    }
}

/// Checks journals of a shape. Most are short and cut before each event; some are long and cut at
/// intervals.
fn check_all(name: &str, shape: &WorkloadShape) {
    let short = WorkloadShape { events: shape.events.min(90), ..shape.clone() };
    for_each_seed(name, journals(8), |seed| match seed % 8 {
        0 => check(name, shape, seed, 1 + shape.events / 12),
        _ => check(name, &short, seed, 1),
    });
}

macro_rules! shapes {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check_all(stringify!($name), &WorkloadShape::$name());
            }
        )*

        #[test]
        fn every_quick_shape_is_tried() {
            let quick: Vec<_> = WorkloadShape::quick().into_iter().map(|(name, _)| name).collect();
            assert_eq!(quick, [$(stringify!($name)),*]);
        }
    };
}

shapes! {
    small drr share hierarchical load tree workers restless jammed copies rates paused wild
    bands deadlines ties pinned pinned_inside
}

/// Checks trees that are deeper than those of other shapes.
#[test]
fn deep() {
    let shape =
        WorkloadShape { depth: 6..=12, flows: 1..=3, controls: 30, ..WorkloadShape::wild() };
    check_all("deep", &shape);
}

/// Checks pools with many flows.
#[test]
fn crowded() {
    let shape = WorkloadShape { events: 1000, ..WorkloadShape::crowded() };
    for_each_seed("crowded", journals(2), |seed| check("crowded", &shape, seed, 211));
}
