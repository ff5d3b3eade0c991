//! The test harness of the cases.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::{Decision, DecisionSink, Grant, RejectedRequest};
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::explain::{FlowStanding, GrantExplanation, RequestLocation, WaitingRequest};
use fairgate_core::fairness::{FlowFairness, LagWithBound};
use fairgate_core::snapshot::NodeCounters;
use fairgate_core::units::{Alpha, Micros, Tokens, Weight};
use fairgate_journal::parse_policy;
use fairgate_testkit::naive::{ComparedDecision, NaivePool};

/// A pool with the record of its decisions, for one case.
///
/// The method for an event returns the decisions as text: `a1` is a grant, `a1:queue_full` a
/// refusal and `a1:expired` an expiry. A request's letter is the first letter of its id. An order
/// of grants is a text of these letters.
pub(crate) struct Scene {
    pub(crate) pool: Pool,
    oracle: Option<NaivePool>,
    now: Micros,
    explaining: bool,
    decisions: Vec<Decision>,
    granted: Vec<Arc<str>>,
    /// Ids of the requests in flight, in the order of the grants.
    in_flight: VecDeque<Arc<str>>,
    who: BTreeMap<Arc<str>, String>,
}

impl Scene {
    /// Creates a pool with this capacity and policy, without limits.
    pub(crate) fn new(capacity: u64, policy: &str) -> Self {
        Self::with(capacity, policy, |_| {})
    }

    /// Creates a pool with this capacity and policy. `state` may change the configuration.
    pub(crate) fn with(capacity: u64, policy: &str, state: impl FnOnce(&mut PoolConfig)) -> Self {
        let policy = parse_policy(policy).expect("a good policy");
        let mut config = PoolConfig::new(capacity, policy);
        state(&mut config);
        Self {
            pool: Pool::new(config.clone()),
            oracle: Some(NaivePool::new(config)),
            now: Micros(0),
            explaining: false,
            decisions: Vec::new(),
            granted: Vec::new(),
            in_flight: VecDeque::new(),
            who: BTreeMap::new(),
        }
    }

    /// Turns the comparison with the naive scheduler off, which is too slow for many thousand
    /// events.
    pub(crate) fn without_oracle(mut self) -> Self {
        self.oracle = None;
        self
    }

    /// Makes the pool explain every grant.
    pub(crate) fn explaining(mut self) -> Self {
        self.explaining = true;
        self
    }

    /// Sets the time of the next events, in microseconds.
    pub(crate) fn at(&mut self, micros: u64) -> &mut Self {
        self.now = Micros(micros);
        self
    }

    /// Applies one event, checks the pool, and returns the decisions as text.
    pub(crate) fn apply(&mut self, event: Event) -> String {
        let in_flight_before = self.pool.in_flight();
        let mut heard = Heard { decisions: Vec::new(), explaining: self.explaining };
        self.pool.apply(self.now, event.clone(), &mut heard).expect("time goes on");
        let decisions = heard.decisions;
        if let Some(oracle) = &mut self.oracle {
            let decided: Vec<ComparedDecision> =
                decisions.iter().map(ComparedDecision::from).collect();
            assert_eq!(decided, oracle.apply(self.now, &event), "the oracle's, after {event:?}");
        }
        let most = self.pool.capacity().max(in_flight_before);
        assert!(self.pool.in_flight() <= most, "more are in flight than may be, after {event:?}");
        assert_eq!(lag_out_of_bound(&self.pool), None, "after {event:?}");
        if let Event::Release { id, .. } | Event::Cancel { id } = &event {
            self.in_flight.retain(|in_flight| in_flight != id);
        }
        let told: Vec<String> = decisions.iter().map(told).collect();
        for decision in &decisions {
            if let Decision::Grant(grant) = decision {
                self.granted.push(grant.id.clone());
                self.in_flight.push_back(grant.id.clone());
            }
        }
        self.decisions.extend(decisions);
        told.join(" ")
    }

    /// Submits a request of this cost. `who` lists its attributes, such as `tenant:chat
    /// group:prod`.
    pub(crate) fn ask(&mut self, id: &str, who: &str, cost: u64) -> String {
        self.submit(Submit { cost: Some(Tokens(cost)), ..request(id, who) })
    }

    /// Submits `count` requests of this cost, with ids from `name1` on.
    pub(crate) fn ask_many(&mut self, name: &str, count: u64, who: &str, cost: u64) -> String {
        let told = (1..=count).map(|i| self.ask(&format!("{name}{i}"), who, cost));
        told.filter(|told| !told.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// Submits a request.
    pub(crate) fn submit(&mut self, submit: Submit) -> String {
        self.who.insert(submit.id.clone(), flow_names(&submit.attributes));
        self.apply(Event::Submit(Box::new(submit)))
    }

    /// Ends a request that used what it cost.
    pub(crate) fn release(&mut self, id: &str) -> String {
        self.apply(Event::Release { id: id.into(), tokens: None, quota: None })
    }

    /// Ends a request that really used this many tokens.
    pub(crate) fn release_using(&mut self, id: &str, tokens: u64) -> String {
        self.apply(Event::Release { id: id.into(), tokens: Some(Tokens(tokens)), quota: None })
    }

    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: &str) -> String {
        self.apply(Event::Cancel { id: id.into() })
    }

    /// Sets the number of the pool's slots.
    pub(crate) fn capacity(&mut self, slots: u64) -> String {
        self.apply(Event::Capacity { slots })
    }

    /// Holds a flow, such as `tenant:chat`.
    pub(crate) fn hold(&mut self, flow: &str) -> String {
        let (by, flow) = attribute(flow);
        self.apply(Event::Hold { by, flow })
    }

    /// Resumes a held flow.
    pub(crate) fn resume(&mut self, flow: &str) -> String {
        let (by, flow) = attribute(flow);
        self.apply(Event::Resume { by, flow })
    }

    /// Sets the weight or quantum of a flow.
    pub(crate) fn weigh(&mut self, flow: &str, weight: u64) -> String {
        let (by, flow) = attribute(flow);
        self.apply(Event::Weight { by, flow, weight: Weight::new(weight).expect("a weight") })
    }

    /// Sets the cap of a flow; `None` removes the cap.
    pub(crate) fn cap(&mut self, flow: &str, slots: Option<u64>) -> String {
        let (by, flow) = attribute(flow);
        self.apply(Event::Cap { by, flow, slots })
    }

    /// Ends the request in flight that was granted first. It used what it cost.
    pub(crate) fn release_oldest(&mut self) -> String {
        let oldest = self.in_flight.front().expect("something is in flight").clone();
        self.release(&oldest)
    }

    /// Ends the request in flight that was granted first. It used this many tokens.
    pub(crate) fn release_oldest_using(&mut self, tokens: u64) -> String {
        let oldest = self.in_flight.front().expect("something is in flight").clone();
        self.release_using(&oldest, tokens)
    }

    /// Ends this many requests in the order of their grants. Returns the letters of the requests
    /// that were granted as a result.
    pub(crate) fn run(&mut self, ends: usize) -> String {
        let before = self.granted.len();
        for _ in 0..ends {
            self.release_oldest();
        }
        self.order_from(before)
    }

    /// Ends requests in the order of their grants until no request is in flight. Returns the
    /// letters of all grants since the beginning.
    pub(crate) fn drain(&mut self) -> String {
        while !self.in_flight.is_empty() {
            self.release_oldest();
        }
        self.order()
    }

    /// Returns the letters of all grants, in their order.
    pub(crate) fn order(&self) -> String {
        self.order_from(0)
    }

    /// Returns the letters of all grants from the one with the index `first` on.
    pub(crate) fn order_from(&self, first: usize) -> String {
        self.granted[first..].iter().filter_map(|id| id.chars().next()).collect()
    }

    /// Returns the ids of all granted requests, in the order of the grants.
    pub(crate) fn granted(&self) -> &[Arc<str>] {
        &self.granted
    }

    /// Returns the ids of the requests in flight, in the order of the grants.
    pub(crate) fn in_flight(&self) -> Vec<&str> {
        self.in_flight.iter().map(|id| &**id).collect()
    }

    /// Returns the number of requests in flight of a flow, such as `tenant:chat`.
    pub(crate) fn in_flight_of(&self, flow: &str) -> usize {
        let names = self.in_flight.iter().map(|id| self.who[id].split(' '));
        names.filter(|names| names.clone().any(|name| name == flow)).count()
    }

    /// Returns the attributes of a request, as they were passed to `ask`.
    pub(crate) fn who(&self, id: &str) -> &str {
        &self.who[id]
    }

    /// Returns the last refusal of a request.
    pub(crate) fn last_refusal(&self) -> &RejectedRequest {
        let mut refusals = self.decisions.iter().rev().filter_map(|decision| match decision {
            Decision::Reject(reject) => Some(reject),
            _ => None,
        });
        refusals.next().expect("a refusal")
    }

    /// Returns the grant of a request.
    pub(crate) fn grant(&self, id: &str) -> &Grant {
        let mut grants = self.decisions.iter().rev().filter_map(|decision| match decision {
            Decision::Grant(grant) if *grant.id == *id => Some(grant),
            _ => None,
        });
        grants.next().expect("a grant")
    }

    /// Returns the explanation of a request's grant.
    pub(crate) fn why(&self, id: &str) -> &GrantExplanation {
        self.grant(id).why.as_deref().expect("an explaining scene")
    }

    /// Returns the state of a waiting request.
    pub(crate) fn waiting(&self, id: &str) -> WaitingRequest {
        match self.pool.request_location(id) {
            Some(RequestLocation::Waiting(waiting)) => *waiting,
            other => panic!("{id} does not wait: {other:?}"),
        }
    }

    /// Returns the numbers of a waiting request's flow in the root.
    pub(crate) fn standing(&self, id: &str) -> FlowStanding {
        self.waiting(id).levels[0].standing.clone()
    }

    /// Returns the deficits of a drr root, in ring order.
    pub(crate) fn deficits(&self) -> Vec<u128> {
        match self.pool.snapshot().root.state {
            NodeCounters::Drr { classes, .. } => classes.iter().map(|c| c.deficit).collect(),
            other => panic!("not a drr node: {other:?}"),
        }
    }

    /// Returns the alpha of a load root.
    pub(crate) fn alpha(&self) -> Alpha {
        match self.pool.snapshot().root.state {
            NodeCounters::Load { alpha, .. } => alpha,
            other => panic!("not a load node: {other:?}"),
        }
    }

    /// Returns the lag of a backlogged flow of the root as text, in tokens per weight with three
    /// decimals.
    pub(crate) fn lag(&self, flow: &str) -> String {
        self.fairness(flow).lag.expect("something waits").lag.to_string()
    }

    /// Returns the bound of the lag of a backlogged flow of the root as text.
    pub(crate) fn bound(&self, flow: &str) -> (String, String) {
        let lag = self.fairness(flow).lag.expect("something waits");
        let (least, most) = lag.bound.expect("a bound");
        (least.to_string(), most.to_string())
    }

    /// Returns the fairness of a flow of the root.
    pub(crate) fn fairness(&self, flow: &str) -> FlowFairness {
        let nodes = self.pool.fairness();
        let root = nodes.into_iter().find(|node| node.path.is_empty()).expect("a root");
        root.flows.into_iter().find(|f| *f.name == *flow).expect("a flow of the root")
    }
}

/// A sink that collects decisions, with explanations if `explaining` is true.
struct Heard {
    decisions: Vec<Decision>,
    explaining: bool,
}

impl DecisionSink for Heard {
    fn decided(&mut self, decision: Decision) {
        self.decisions.push(decision);
    }

    fn wants_why(&self, _id: &str) -> bool {
        self.explaining
    }
}

/// Describes a backlogged flow that is further from its share than the discipline allows; `None` if
/// there is none.
pub(crate) fn lag_out_of_bound(pool: &Pool) -> Option<String> {
    pool.fairness().iter().find_map(|node| {
        let out = |flow: &&FlowFairness| {
            flow.lag.is_some_and(|LagWithBound { lag, bound }| {
                bound.is_some_and(|(least, most)| lag < least || most < lag)
            })
        };
        let flow = node.flows.iter().find(out)?;
        Some(format!("{flow:?} in the {} by {:?} under {:?}", node.kind, node.by, node.path))
    })
}

/// Builds a submit with these attributes, and defaults for the other fields.
pub(crate) fn request(id: &str, who: &str) -> Submit {
    let mut submit = Submit::new(id);
    for (by, flow) in who.split_whitespace().map(attribute) {
        submit.attributes.set(by, &flow);
    }
    submit
}

/// Returns the length of the longest run of one letter in an order of grants.
pub(crate) fn longest_run(order: &str, letter: char) -> usize {
    order.split(|other| other != letter).map(str::len).max().unwrap_or(0)
}

/// Returns the number of times that a letter occurs in an order of grants.
pub(crate) fn count(order: &str, letter: char) -> usize {
    order.chars().filter(|other| *other == letter).count()
}

fn told(decision: &Decision) -> String {
    match decision {
        Decision::Grant(grant) => grant.id.to_string(),
        Decision::Reject(reject) => format!("{}:{}", reject.id, reject.reason.code()),
        Decision::Expire { id, .. } => format!("{id}:expired"),
    }
}

fn attribute(flow: &str) -> (Attribute, Box<str>) {
    let (by, name) = flow.split_once(':').expect("an attribute and a name");
    (Attribute::from_name(by).expect("an attribute"), name.into())
}

fn flow_names(attributes: &Attributes) -> String {
    let named = Attribute::ALL.into_iter().filter_map(|by| Some((by, attributes.get(by)?)));
    named.map(|(by, flow)| format!("{}:{flow}", by.name())).collect::<Vec<_>>().join(" ")
}
