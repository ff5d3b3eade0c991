//! The meter where flows come late, leave and come again: what each gets stays within the bound that is reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::fairness::FlowFairness;
use fairgate_core::meter::{FlowMeter, FlowPresence, NodeMeter};
use fairgate_core::units::{Micros, Tokens, Weight};
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::seeds;
use crate::closed_loop::world::{policy, worker};

const BY: Attribute = Attribute::Tenant;

/// Kinds of events that a run has beside requests that come and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// Nothing: every flow has requests waiting all the time.
    Nothing,
    /// Flows come late, run out of requests and come again.
    Come,
    /// Flows are also held and resumed.
    Hold,
    /// Some flows also have caps.
    Cap,
    /// Flows also run on workers of their own, which fill up.
    Workers,
    /// The weights of flows also change.
    Weigh,
}

const CHANGES: [Change; 6] =
    [Change::Nothing, Change::Come, Change::Hold, Change::Cap, Change::Workers, Change::Weigh];

const WEIGHTS: [u64; 6] = [1, 3, 10, 30, 100, 1000];

/// A flow as its clients see it.
struct Client {
    name: String,
    allow: Option<Vec<Box<str>>>,
    sends: bool,
    held: bool,
    waiting: u64,
    /// Most requests that wait, largest cost, and largest use in percent of the cost.
    most: u64,
    cost: u64,
    used: u64,
    weight: Weight,
    /// Service that the flow got and was due, metered from the decisions as if it were always ready.
    meter: FlowMeter,
}

struct Driver {
    pool: Pool,
    node: NodeMeter,
    rng: SeededRng,
    clients: Vec<Client>,
    waiting: BTreeMap<Arc<str>, (usize, u64)>,
    flights: Vec<(Arc<str>, usize, u64)>,
    sent: u64,
}

impl Driver {
    fn new(seed: u64, change: Change) -> Self {
        let mut rng = SeededRng::new(seed);
        let count = rng.count(2..=6);
        let weights: Vec<u64> = (0..count).map(|_| rng.one_of(&WEIGHTS)).collect();
        let named: Vec<String> =
            weights.iter().enumerate().map(|(i, weight)| format!(r#""t{i}":{weight}"#)).collect();
        let mut caps = Vec::new();
        if change >= Change::Cap {
            for i in 0..count {
                if rng.percent(30) {
                    caps.push(format!(r#""t{i}":{}"#, rng.range(1..=2)));
                }
            }
        }
        let text = format!(
            r#"{{"share":{{"by":"tenant","weights":{{{}}},"caps":{{{}}}}}}}"#,
            named.join(","),
            caps.join(",")
        );
        let slots = rng.one_of(&[1, 2, 4, 8, 16]);
        let mut config = PoolConfig::new(slots, policy(&text));
        let has_workers = change >= Change::Workers && rng.percent(70);
        if has_workers {
            config.workers = vec![worker("w0", rng.range(1..=4)), worker("w1", rng.range(1..=8))];
        }
        let late = rng.percent(80);
        let clients = (0..count)
            .map(|i| Client {
                name: format!("t{i}"),
                allow: (has_workers && rng.percent(50))
                    .then(|| vec![format!("w{}", rng.index(2)).into()]),
                sends: change == Change::Nothing || !late || rng.percent(40),
                held: false,
                waiting: 0,
                most: rng.one_of(&[1, 3, 20]),
                cost: rng.one_of(&[1, 100, 1000, 5000]),
                used: rng.one_of(&[0, 100, 200]),
                weight: Weight::new(weights[i]).expect("over 0"),
                meter: FlowMeter::default(),
            })
            .map(|client| Client {
                most: if change == Change::Nothing { 20 } else { client.most },
                ..client
            })
            .collect();
        let pool = Pool::new(PoolConfig { capacity: 0, ..config });
        let mut driver = Self {
            pool,
            node: NodeMeter::default(),
            rng,
            clients,
            waiting: BTreeMap::new(),
            flights: Vec::new(),
            sent: 0,
        };
        for (id, client) in (0..).zip(&mut driver.clients) {
            let (meter, ready) = (&mut client.meter, FlowPresence::Ready);
            driver.node.set_presence(id, meter, client.weight, ready);
        }
        driver.send();
        driver.apply(Event::Capacity { slots });
        driver
    }

    fn apply(&mut self, event: Event) {
        let mut decisions = Vec::new();
        let now = Micros(self.pool.now().0 + 1);
        self.pool.apply(now, event, &mut decisions).expect("time goes on");
        for decision in decisions {
            let Decision::Grant(grant) = decision else { panic!("{decision:?}") };
            let (client, cost) = self.waiting.remove(&grant.id).expect("it waited");
            self.flights.push((grant.id, client, cost));
            let client = &mut self.clients[client];
            client.waiting -= 1;
            self.node.grant(&mut client.meter, client.weight, cost, 0);
        }
    }

    /// Every client that sends has its requests waiting.
    fn send(&mut self) {
        for index in 0..self.clients.len() {
            while self.clients[index].sends
                && self.clients[index].waiting < self.clients[index].most
            {
                self.submit(index);
            }
        }
    }

    fn submit(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let cost = self.rng.range(1..=client.cost);
        let id: Arc<str> = format!("r{}", self.sent).into();
        self.sent += 1;
        let mut submit = Submit::new(&id);
        submit.attributes = Attributes::none().with(BY, &client.name);
        submit.cost = Some(Tokens(cost));
        submit.allow = client.allow.clone();
        client.waiting += 1;
        self.waiting.insert(id, (index, cost));
        self.apply(Event::Submit(Box::new(submit)));
    }

    fn end_one(&mut self) {
        if self.flights.is_empty() {
            return;
        }
        let flight = match self.rng.percent(50) {
            true => 0,
            false => self.rng.index(self.flights.len()),
        };
        let (id, client, cost) = self.flights.remove(flight);
        let used = match self.clients[client].used {
            0 => cost,
            most => self.rng.range(1..=cost * most / 100 + 1),
        };
        let (number, client) = (u32::try_from(client).expect("a few"), &mut self.clients[client]);
        let error = i128::from(used) - i128::from(cost);
        self.node.settle(number, &mut client.meter, client.weight, error);
        self.apply(Event::Release { id, tokens: Some(Tokens(used)), quota: None });
    }

    /// Checks the pool's meter of a flow against one that knows the decisions only. No flow comes late, so the bound
    /// does not depend on scores.
    fn check_always_ready(&self, flow: &FlowFairness) {
        let client = self.clients.iter().find(|client| *client.name == *flow.name);
        let Client { meter, weight, .. } = client.expect("a client");
        let (due, bound) = (meter.due(&self.node, *weight), meter.bound(&self.node, *weight));
        let pools = flow.due.expect("a share");
        assert_eq!((flow.got, pools.tokens), (meter.got(), due));
        // Scores are rounded, which may add one token.
        assert!(pools.bound.abs_diff(bound) <= 1, "{flow:?}, {bound} from decisions");
        assert!(flow.got.abs_diff(due) <= bound, "{flow:?}, {bound} from decisions");
    }

    fn step(&mut self, change: Change) {
        let index = self.rng.index(self.clients.len());
        let flow = self.clients[index].name.clone().into();
        let roll = self.rng.range(0..=99);
        match roll {
            0..=3 if change >= Change::Come => {
                let client = &mut self.clients[index];
                client.sends = !client.sends;
            }
            4..=5 if change >= Change::Hold => {
                let client = &mut self.clients[index];
                client.held = !client.held;
                let event = match client.held {
                    true => Event::Hold { by: BY, flow },
                    false => Event::Resume { by: BY, flow },
                };
                self.apply(event);
            }
            6..=7 if change >= Change::Weigh => {
                let weight = Weight::new(self.rng.one_of(&WEIGHTS)).expect("over 0");
                self.apply(Event::Weight { by: BY, flow, weight });
            }
            _ => self.end_one(),
        }
        self.send();
    }
}

/// Result of one run: the difference that came nearest to its bound, in thousandths of the bound, and the sums of all
/// differences and bounds.
#[derive(Clone, Copy, Default)]
struct RunResult {
    nearest: u128,
    differences: u128,
    bounds: u128,
    flows: u128,
}

fn play(seed: u64, change: Change) -> RunResult {
    let mut driver = Driver::new(seed, change);
    let mut found = RunResult::default();
    for step in 0..1500 {
        driver.step(change);
        for flow in driver.pool.fairness().iter().flat_map(|node| &node.flows) {
            let due = flow.due.expect("a share");
            if change == Change::Nothing {
                driver.check_always_ready(flow);
            }
            assert!(flow.is_within_bound(), "{change:?}, seed {seed}, step {step}: {flow:?}");
            let difference = flow.got.abs_diff(due.tokens);
            found.nearest = found.nearest.max(difference * 1000 / due.bound);
            found.differences += difference;
            found.bounds += due.bound;
            found.flows += 1;
        }
    }
    found
}

#[test]
fn flows_that_come_late_and_come_again_stay_within_the_bound() {
    for change in CHANGES {
        let all = Mutex::new(RunResult::default());
        let name = format!("the meter where what changes is {change:?}");
        seeds(&name, 60, |seed| {
            let found = play(seed, change);
            let mut all = all.lock().expect("nobody failed");
            all.nearest = all.nearest.max(found.nearest);
            all.differences += found.differences;
            all.bounds += found.bounds;
            all.flows += found.flows;
        });
        let RunResult { nearest, differences, bounds, flows } =
            all.into_inner().expect("nobody failed");
        let flows = flows.max(1);
        announce(&format!(
            "{name}: {nearest} ‰ of the bound, at most; on average a difference of {} tokens and a \
             bound of {} tokens",
            differences / flows,
            bounds / flows
        ));
    }
}
