//! Tests of the form of explanations: of a grant, of a request's location, and of flows' distances
//! from their shares.

use fairgate_core::decision::{Decision, DecisionSink, Grant};
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::explain::{
    FlowChoice, FlowStanding, GrantExplanation, MeteredService, PickRule, RequestLocation,
};
use fairgate_core::fairness::{CapUse, DueService, FlowFairness, LagWithBound, NodeFairness};
use fairgate_core::units::{Alpha, Micros, PerWeight, Ticks, Tokens, Weight};
use fairgate_core::{Pool, RequestHandle};
use fairgate_journal::{
    JournalReader, JournalWriter, parse_policy, write_fairness, write_request_location,
};
use fairgate_testkit::workload::{WorkloadShape, generate_answered};

/// Sink that collects decisions, and requests the explanation of every grant.
#[derive(Default)]
struct Curious(Vec<Decision>);

impl DecisionSink for Curious {
    fn decided(&mut self, decision: Decision) {
        self.0.push(decision);
    }

    fn wants_why(&self, _id: &str) -> bool {
        true
    }
}

/// Returns the pool after a journal, and the lines of its decisions.
fn replay(journal: &str) -> (Pool, Vec<String>) {
    let (start, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
    let mut pool = start.into_pool().unwrap();
    let mut lines = Vec::new();
    while let Some((at, event)) = reader.next_event().unwrap() {
        let mut sink = Curious::default();
        pool.apply(at, event, &mut sink).unwrap();
        lines.extend(sink.0.iter().map(|decision| line(at, decision)));
    }
    (pool, lines)
}

fn line(at: Micros, decision: &Decision) -> String {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_decision(at, decision).unwrap();
    String::from_utf8(writer.into_inner()).unwrap().trim_end().into()
}

const JOURNAL: &str = r#"{"fairgate_journal":1,"pool":{"capacity":1,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"chat":500},"caps":{"chat":4},"inside":{"load":{"by":"agent"}}}}}]}},"workers":[{"name":"w0"}]}}
{"at":1,"event":"submit","id":"r1","class":"cached","cost":700}
{"at":2,"event":"submit","id":"r2","class":"batch","tenant":"chat","cost":1000}
{"at":3,"event":"submit","id":"r3","class":"batch","tenant":"api","agent":"a","cost":1200,"weight":1.25}
{"at":4,"event":"submit","id":"r4","class":"batch","tenant":"api","agent":"b","cost":5}
{"at":5,"event":"release","id":"r1","tokens":812}
"#;

#[test]
fn a_grant_says_why() {
    let (_, lines) = replay(JOURNAL);
    assert_eq!(lines, EXPECTED_DECISIONS.lines().collect::<Vec<_>>());
}

#[test]
fn a_request_is_somewhere() {
    let (pool, _) = replay(JOURNAL);
    let of = |id: &str| write_request_location(&pool.request_location(id).unwrap());
    assert_eq!(of("r2"), EXPECTED_IN_FLIGHT);
    assert_eq!(of("r4"), EXPECTED_WAITING);
    let nowhere = RequestLocation::InFlight { granted_at: Micros(7), place: None };
    assert_eq!(write_request_location(&nowhere), r#"{"state":"in_flight","granted_at_us":7}"#);
}

#[test]
fn lags_have_bounds() {
    let (pool, _) = replay(JOURNAL);
    assert_eq!(write_fairness(&pool.fairness()), EXPECTED_FAIRNESS);
    assert_eq!(write_fairness(&[]), "[]");
}

/// A band explains its place in the order. Nodes inside a band still have due service and bounds.
#[test]
fn bands_explain_their_order() {
    let journal = r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"bands":{"by":"class","classes":[{"name":"chat","cap":1},{"name":"batch","inside":{"share":{"by":"tenant"}}},{"name":"rest"}],"default":"rest"}}}}
{"at":1,"event":"submit","id":"r1","class":"chat","cost":5}
{"at":1,"event":"submit","id":"r2","class":"chat","cost":6}
{"at":2,"event":"submit","id":"r3","class":"batch","tenant":"a","cost":7}
{"at":3,"event":"submit","id":"r4","cost":8}
{"at":4,"event":"release","id":"r1","tokens":9}
"#;
    let (pool, lines) = replay(journal);
    assert_eq!(lines, EXPECTED_BANDS.lines().collect::<Vec<_>>());
    assert_eq!(write_fairness(&pool.fairness()), EXPECTED_BANDS_FAIRNESS);
    assert_eq!(
        write_request_location(&pool.request_location("r4").unwrap()),
        EXPECTED_IN_LAST_BAND
    );
}

/// Returns the first handle that a pool gives.
fn handle() -> RequestHandle {
    let config = PoolConfig::new(1, parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap());
    let mut sink = Curious::default();
    let submit = Event::Submit(Box::new(Submit::new("r1")));
    Pool::new(config).apply(Micros(0), submit, &mut sink).unwrap();
    match &sink.0[..] {
        [Decision::Grant(grant)] => grant.request,
        other => panic!("{other:?}"),
    }
}

/// Checks the rules and numbers that do not occur in the small pool above.
#[test]
fn every_rule_and_number_has_its_name() {
    let weight = Weight::new(7).unwrap();
    let due = DueService { tokens: -3, bound: u128::MAX };
    let meter = MeteredService { got: -4, due };
    let drr = FlowStanding::Drr {
        deficit: 5,
        quantum: weight,
        head_cost: None,
        rounds_needed: None,
        meter,
    };
    let share = FlowStanding::Share {
        score: PerWeight(3 << 31),
        settled: PerWeight(0),
        virtual_time: PerWeight(-1 << 30),
        weight,
        pending: u128::MAX,
        slots: Some(2),
        cap: None,
        new: true,
        meter,
    };
    let load = FlowStanding::Load {
        depth_thousandths: 1250,
        age: Ticks(3),
        load_millionths: None,
        alpha: Alpha::LATENCY,
    };
    let bands = FlowStanding::Bands {
        comes_after: vec!["\"".into(), "b".into()],
        goes_before: vec![],
        cap: Some(7),
        got: -4,
    };
    let by = fairgate_core::attribute::Attribute::Key;
    let level =
        |rule, standing| FlowChoice { by, flow: "\"".into(), rule, standing, runner_up: None };
    let levels = vec![
        level(PickRule::Stayed, drr.clone()),
        level(PickRule::Bulk { rounds: u64::MAX }, drr),
        level(PickRule::BelowItsSlots, share),
        level(PickRule::Late, load),
        level(PickRule::FirstBand, bands),
    ];
    let why = Some(Box::new(GrantExplanation { cost: Tokens(u64::MAX), levels }));
    let grant = Grant {
        request: handle(),
        id: "r".into(),
        cost: Tokens(1),
        waited: Micros(0),
        brownout: None,
        place: None,
        why,
    };
    assert_eq!(line(Micros(1), &Decision::Grant(grant)), EXPECTED_NAMES);
    let bare = FlowFairness {
        name: "b".into(),
        weight: None,
        waiting: 1,
        in_flight: 2,
        oldest: None,
        got: 7,
        due: None,
        cap_use: None,
        lag: None,
        goes_before: None,
    };
    let flow = FlowFairness {
        name: "a".into(),
        weight: Some(weight),
        due: Some(DueService { tokens: 9, bound: 1 }),
        cap_use: Some(CapUse { used: 7, allowed: 6 }),
        lag: Some(LagWithBound { lag: PerWeight(-3 << 32), bound: None }),
        ..bare.clone()
    };
    let path = vec!["x".into(), "y".into()];
    let goes_before = Some(vec!["\"".into(), "d".into()]);
    let band = FlowFairness { name: "c".into(), goes_before, ..bare.clone() };
    let last_band = FlowFairness { goes_before: Some(vec![]), ..band.clone() };
    let band = NodeFairness { path: vec![], kind: "bands", by, flows: vec![band, last_band] };
    assert_eq!(
        write_fairness(&[band]),
        r#"[{"path":[],"kind":"bands","by":"key","flows":[{"flow":"c","waiting":1,"in_flight":2,"got_tokens":7,"goes_before":["\"","d"]},{"flow":"c","waiting":1,"in_flight":2,"got_tokens":7,"goes_before":[]}]}]"#
    );
    let node = NodeFairness { path, kind: "share", by, flows: vec![flow, bare] };
    assert_eq!(
        write_fairness(&[node.clone(), NodeFairness { path: vec![], flows: vec![], ..node }]),
        r#"[{"path":["x","y"],"kind":"share","by":"key","flows":[{"flow":"a","weight":7,"waiting":1,"in_flight":2,"got_tokens":7,"due_tokens":9,"difference_tokens":-2,"bound_tokens":1,"within_bound":false,"cap_use":1.166,"lag_tokens_per_weight":"-3.000"},{"flow":"b","waiting":1,"in_flight":2,"got_tokens":7}]},{"path":[],"kind":"share","by":"key","flows":[]}]"#
    );
}

/// Checks that explanations of random pools are JSON.
#[test]
fn it_is_always_json() {
    for (name, shape) in WorkloadShape::quick() {
        for seed in 0..4 {
            println!("shape {name}: seed {seed}");
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = Pool::new(config);
            for (at, event) in events.into_iter().take(150) {
                let mut sink = Curious::default();
                pool.apply(at, event, &mut sink).unwrap();
                for decision in &sink.0 {
                    is_json(&line(at, decision));
                }
            }
            is_json(&write_fairness(&pool.fairness()));
            for request in &pool.snapshot().requests {
                is_json(&write_request_location(&pool.request_location(&request.id).unwrap()));
            }
        }
    }
}

/// Checks that a text is JSON without repeated names.
fn is_json(text: &str) {
    assert!(!text.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(count_fields(&value), text.matches("\":").count(), "{text}");
}

fn count_fields(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Object(fields) => {
            fields.len() + fields.values().map(count_fields).sum::<usize>()
        }
        serde_json::Value::Array(elements) => elements.iter().map(count_fields).sum(),
        _ => 0,
    }
}

const EXPECTED_DECISIONS: &str = r#"{"at":1,"decision":"grant","id":"r1","waited_us":0,"worker":"w0","rank":0,"why":{"cost":700,"levels":[{"by":"class","flow":"cached","rule":"visited","standing":{"kind":"drr","deficit_tokens":0,"quantum_tokens":2048,"head_cost_tokens":700,"rounds_needed":1,"got_tokens":0,"due_tokens":0,"bound_tokens":1}}]}}
{"at":5,"decision":"grant","id":"r2","waited_us":3,"worker":"w0","rank":0,"why":{"cost":1000,"levels":[{"by":"class","flow":"batch","rule":"bulk","bulk_rounds":2,"standing":{"kind":"drr","deficit_tokens":0,"quantum_tokens":512,"head_cost_tokens":1000,"rounds_needed":2,"got_tokens":0,"due_tokens":0,"bound_tokens":828}},{"by":"tenant","flow":"chat","rule":"lowest_score","standing":{"kind":"share","score_tokens_per_weight":"0.000","settled_tokens_per_weight":"0.000","virtual_time_tokens_per_weight":"0.000","weight":500,"pending_tokens":0,"cap":4,"new":true,"got_tokens":0,"due_tokens":0,"bound_tokens":1},"runner_up":{"flow":"api","standing":{"kind":"share","score_tokens_per_weight":"0.000","settled_tokens_per_weight":"0.000","virtual_time_tokens_per_weight":"0.000","weight":100,"pending_tokens":0,"new":true,"got_tokens":0,"due_tokens":0,"bound_tokens":1}}},{"by":"agent","flow":"default","rule":"largest_load","standing":{"kind":"load","depth_thousandths":1000,"age_ticks":1,"load_millionths":1000000,"alpha":0.25}}]}}"#;
const EXPECTED_IN_FLIGHT: &str =
    r#"{"state":"in_flight","granted_at_us":5,"worker":"w0","rank":0}"#;
const EXPECTED_WAITING: &str = r#"{"state":"waiting","submitted_at_us":4,"cost":5,"levels":[{"by":"class","flow":"batch","readiness":"ready","waiting":2,"in_flight":1,"standing":{"kind":"drr","deficit_tokens":24,"quantum_tokens":512,"head_cost_tokens":1200,"rounds_needed":3,"got_tokens":1000,"due_tokens":1000,"bound_tokens":3025}},{"by":"tenant","flow":"api","readiness":"ready","waiting":2,"in_flight":0,"standing":{"kind":"share","score_tokens_per_weight":"0.000","settled_tokens_per_weight":"0.000","virtual_time_tokens_per_weight":"0.000","weight":100,"pending_tokens":0,"new":true,"got_tokens":0,"due_tokens":167,"bound_tokens":201}},{"by":"agent","flow":"b","readiness":"ready","waiting":1,"in_flight":0,"standing":{"kind":"load","depth_thousandths":1000,"age_ticks":1,"load_millionths":950000,"alpha":0.25}}],"ahead_in_queue":0,"ahead":[{"path":["batch","api","a"],"requests":1,"tokens":1200}],"grants_ahead":1}"#;
const EXPECTED_FAIRNESS: &str = r#"[{"path":[],"kind":"drr","by":"class","flows":[{"flow":"batch","weight":512,"waiting":2,"in_flight":1,"got_tokens":1000,"due_tokens":1000,"difference_tokens":0,"bound_tokens":3025,"within_bound":true,"lag_tokens_per_weight":"0.047","lag_bound_tokens_per_weight":{"least":"0.000","most":"3.342"}},{"flow":"cached","weight":2048,"waiting":0,"in_flight":0,"got_tokens":812,"due_tokens":812,"difference_tokens":0,"bound_tokens":8909,"within_bound":true}]},{"path":["batch"],"kind":"share","by":"tenant","flows":[{"flow":"api","weight":100,"waiting":2,"in_flight":0,"got_tokens":0,"due_tokens":167,"difference_tokens":-167,"bound_tokens":201,"within_bound":true,"lag_tokens_per_weight":"0.000","lag_bound_tokens_per_weight":{"least":"0.000","most":"0.000"}},{"flow":"chat","weight":500,"waiting":0,"in_flight":1,"got_tokens":1000,"due_tokens":833,"difference_tokens":167,"bound_tokens":2001,"within_bound":true,"cap_use":0.000}]},{"path":["batch","api"],"kind":"load","by":"agent","flows":[{"flow":"a","waiting":1,"in_flight":0,"got_tokens":0},{"flow":"b","waiting":1,"in_flight":0,"got_tokens":0}]},{"path":["batch","chat"],"kind":"load","by":"agent","flows":[{"flow":"default","waiting":0,"in_flight":1,"got_tokens":1000}]}]"#;
const EXPECTED_NAMES: &str = r#"{"at":1,"decision":"grant","id":"r","waited_us":0,"why":{"cost":18446744073709551615,"levels":[{"by":"key","flow":"\"","rule":"stayed","standing":{"kind":"drr","deficit_tokens":5,"quantum_tokens":7,"got_tokens":-4,"due_tokens":-3,"bound_tokens":340282366920938463463374607431768211455}},{"by":"key","flow":"\"","rule":"bulk","bulk_rounds":18446744073709551615,"standing":{"kind":"drr","deficit_tokens":5,"quantum_tokens":7,"got_tokens":-4,"due_tokens":-3,"bound_tokens":340282366920938463463374607431768211455}},{"by":"key","flow":"\"","rule":"below_its_slots","standing":{"kind":"share","score_tokens_per_weight":"1.500","settled_tokens_per_weight":"0.000","virtual_time_tokens_per_weight":"-0.250","weight":7,"pending_tokens":340282366920938463463374607431768211455,"slots":2,"new":true,"got_tokens":-4,"due_tokens":-3,"bound_tokens":340282366920938463463374607431768211455}},{"by":"key","flow":"\"","rule":"late","standing":{"kind":"load","depth_thousandths":1250,"age_ticks":3,"alpha":0.0}},{"by":"key","flow":"\"","rule":"first_band","standing":{"kind":"bands","comes_after":["\"","b"],"goes_before":[],"cap":7,"got_tokens":-4}}]}}"#;
const EXPECTED_BANDS: &str = r#"{"at":1,"decision":"grant","id":"r1","waited_us":0,"why":{"cost":5,"levels":[{"by":"class","flow":"chat","rule":"first_band","standing":{"kind":"bands","comes_after":[],"goes_before":["batch","rest"],"cap":1,"got_tokens":0}}]}}
{"at":2,"decision":"grant","id":"r3","waited_us":0,"why":{"cost":7,"levels":[{"by":"class","flow":"batch","rule":"first_band","standing":{"kind":"bands","comes_after":["chat"],"goes_before":["rest"],"got_tokens":0}},{"by":"tenant","flow":"a","rule":"lowest_score","standing":{"kind":"share","score_tokens_per_weight":"0.000","settled_tokens_per_weight":"0.000","virtual_time_tokens_per_weight":"0.000","weight":100,"pending_tokens":0,"new":true,"got_tokens":0,"due_tokens":0,"bound_tokens":1}}]}}
{"at":4,"decision":"grant","id":"r2","waited_us":3,"why":{"cost":6,"levels":[{"by":"class","flow":"chat","rule":"first_band","standing":{"kind":"bands","comes_after":[],"goes_before":["batch","rest"],"cap":1,"got_tokens":9},"runner_up":{"flow":"rest","standing":{"kind":"bands","comes_after":["chat","batch"],"goes_before":[],"got_tokens":0}}}]}}"#;
const EXPECTED_BANDS_FAIRNESS: &str = r#"[{"path":[],"kind":"bands","by":"class","flows":[{"flow":"batch","waiting":0,"in_flight":1,"got_tokens":7,"goes_before":["rest"]},{"flow":"chat","waiting":0,"in_flight":1,"got_tokens":15,"cap_use":1.000,"goes_before":["batch","rest"]},{"flow":"rest","waiting":1,"in_flight":0,"got_tokens":0,"goes_before":[]}]},{"path":["batch"],"kind":"share","by":"tenant","flows":[{"flow":"a","weight":100,"waiting":0,"in_flight":1,"got_tokens":7,"due_tokens":7,"difference_tokens":0,"bound_tokens":14,"within_bound":true}]}]"#;
const EXPECTED_IN_LAST_BAND: &str = r#"{"state":"waiting","submitted_at_us":3,"cost":8,"levels":[{"by":"class","flow":"rest","readiness":"ready","waiting":1,"in_flight":0,"standing":{"kind":"bands","comes_after":["chat","batch"],"goes_before":[],"got_tokens":0}}],"ahead_in_queue":0,"ahead":[],"grants_ahead":0}"#;
