//! Cases of the meter with recorded decisions by the rules of the first edition (commit 27c6139), in closed loops. Each
//! recording shows a fault for which a rule was later changed. The meter alone must show this fault.
//!
//! `tests/recorded` has the journals, each event followed by the decisions that it led to. In all of them every flow has
//! four requests waiting whenever one ends; sizes are from a public trace, except where all cost 300 tokens.

use std::collections::BTreeMap;

use fairgate_core::meter::{CapLoad, CapMeter, FlowMeter, FlowPresence, NodeMeter};
use fairgate_core::units::{Micros, Weight};
use serde_json::Value;

/// A recording, with the counts that the meter would have.
struct Recorded {
    by: &'static str,
    /// Number of slots of the only worker; `None` without a worker.
    slots: Option<u64>,
    node: NodeMeter,
    flows: BTreeMap<String, Flow>,
    /// Flow and cost of each request, by the request's id.
    requests: BTreeMap<String, (String, u64)>,
    now: Micros,
}

struct Flow {
    number: u32,
    weight: Weight,
    /// Quantum of a drr class, by which the class's `got` may deviate within a round.
    round: u64,
    cap: Option<u64>,
    waiting: u64,
    in_flight: u64,
    meter: FlowMeter,
    cap_meter: CapMeter,
}

impl Flow {
    fn new(number: usize, weight: u64) -> Self {
        Self {
            number: u32::try_from(number).expect("a few"),
            weight: Weight::new(weight).expect("above 0"),
            round: 0,
            cap: None,
            waiting: 0,
            in_flight: 0,
            meter: FlowMeter::default(),
            cap_meter: CapMeter::default(),
        }
    }
}

impl Recorded {
    fn read(text: &str) -> Self {
        let mut lines = text.lines();
        let header: Value = serde_json::from_str(lines.next().expect("a header")).expect("JSON");
        let pool = &header["pool"];
        let mut flows = BTreeMap::new();
        let by = if let Some(classes) = pool["policy"]["drr"]["classes"].as_array() {
            for (i, class) in classes.iter().enumerate() {
                let quantum = class["quantum"].as_u64().expect("a quantum");
                flows.insert(
                    text_of(class, "name"),
                    Flow { round: quantum, ..Flow::new(i, quantum) },
                );
            }
            "class"
        } else {
            for (i, name) in ["capped", "a", "b", "c", "d", "e", "f", "g"].into_iter().enumerate() {
                let cap = pool["policy"]["share"]["caps"][name].as_u64();
                flows.insert(name.to_owned(), Flow { cap, ..Flow::new(i, 100) });
            }
            "tenant"
        };
        let slots = pool["workers"][0]["slots"].as_u64();
        let node = NodeMeter::default();
        let mut recorded =
            Self { by, slots, node, flows, requests: BTreeMap::new(), now: Micros(0) };
        for line in lines {
            recorded.follow(&serde_json::from_str(line).expect("JSON"));
        }
        recorded
    }

    fn follow(&mut self, line: &Value) {
        let id = text_of(line, "id");
        match (line["event"].as_str(), line["decision"].as_str()) {
            (Some("submit"), _) => {
                let (name, cost) = (text_of(line, self.by), number(line, "cost"));
                self.flows.get_mut(&name).expect("a known flow").waiting += 1;
                self.requests.insert(id, (name, cost));
            }
            (_, Some("grant")) => {
                let (name, cost) = &self.requests[&id];
                let flow = self.flows.get_mut(name).expect("a known flow");
                flow.waiting -= 1;
                flow.in_flight += 1;
                self.node.grant(&mut flow.meter, flow.weight, *cost, flow.round);
            }
            (Some("release"), _) => {
                let (name, cost) = &self.requests[&id];
                let flow = self.flows.get_mut(name).expect("a known flow");
                flow.in_flight -= 1;
                let used = line["tokens"].as_u64().unwrap_or(*cost);
                let error = i128::from(used) - i128::from(*cost);
                self.node.settle(flow.number, &mut flow.meter, flow.weight, error);
            }
            _ => panic!("an unknown line: {line}"),
        }
        self.now = Micros(number(line, "at"));
        self.look();
    }

    fn look(&mut self) {
        let in_flight: u64 = self.flows.values().map(|flow| flow.in_flight).sum();
        let is_open = self.slots.is_none_or(|slots| in_flight < slots);
        for flow in self.flows.values_mut() {
            let waits = flow.waiting > 0;
            let is_at_cap = flow.cap.is_some_and(|cap| flow.in_flight >= cap);
            let presence = FlowPresence::of(waits, waits && is_open && !is_at_cap);
            self.node.set_presence(flow.number, &mut flow.meter, flow.weight, presence);
            let load = CapLoad { in_flight: flow.in_flight, cap: flow.cap, waits };
            flow.cap_meter.observe(self.now, load);
        }
    }

    /// Returns the tokens that a flow got, the tokens that it was due, and the bound.
    fn numbers(&self, name: &str) -> (i128, i128, u128) {
        let Flow { meter, weight, .. } = &self.flows[name];
        (meter.got(), meter.due(&self.node, *weight), meter.bound(&self.node, *weight))
    }
}

fn text_of(line: &Value, field: &str) -> String {
    line[field].as_str().expect("a text").to_owned()
}

fn number(line: &Value, field: &str) -> u64 {
    line[field].as_u64().expect("a number")
}

/// Quanta of 4096 (wspt) and 1024 with `settle`, exact costs and eight requests in flight. The
/// documentation promised 4 : 1.
#[test]
fn quanta_that_were_promised_as_shares_leave_the_bound() {
    let recorded = Recorded::read(include_str!("../../recorded/quanta-as-shares.jsonl"));
    let (got, due, bound) = recorded.numbers("interactive");
    assert_eq!((got, due), (304_581, 412_905));
    assert!(got.abs_diff(due) > 2 * bound, "{got} {due} {bound}");
    let (got, due, bound) = recorded.numbers("batch");
    assert_eq!((got, due), (216_976, 108_652));
    assert!(got.abs_diff(due) > bound, "{got} {due} {bound}");
}

/// Quanta of 2048 and 512 at a cost of 300, on a worker with four slots. A grant that filled the worker ended the
/// class's turn, so the two classes alternated.
#[test]
fn turns_that_end_when_the_worker_is_full_leave_the_bound() {
    let recorded = Recorded::read(include_str!("../../recorded/a-full-worker-ends-the-turn.jsonl"));
    let (got, due, bound) = recorded.numbers("large");
    assert_eq!((got, due), (30_000, 47_640));
    assert!(got.abs_diff(due) > 2 * bound, "{got} {due} {bound}");
}

/// Eight slots, a tenant with a cap of one, and seven other tenants. The capped tenant was charged its own tokens, and
/// also the rise of virtual time while it was at its cap. It used 61 % of what its cap allows. Under the present rule
/// it must use at least 70 % (`closed_loop/caps.rs`).
#[test]
fn a_capped_flow_that_pays_twice_leaves_its_cap_unused() {
    let recorded = Recorded::read(include_str!("../../recorded/a-capped-flow-pays-twice.jsonl"));
    let (used, allowed) = recorded.flows["capped"].cap_meter.read(recorded.now);
    assert_eq!(used * 1000 / allowed, 608);
}
