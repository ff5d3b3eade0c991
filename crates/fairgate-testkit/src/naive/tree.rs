//! The policy as a tree: a node shares among flows; inside each flow is another node or a queue.
//!
//! What all kinds of node have in common is here; what makes them differ is their [`Rule`].

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::decision::Reason;
use fairgate_core::policy::{self, BusyThresholds, ClassLimits, Queue};

use super::drr::DrrNode;
use super::load::LoadNode;
use super::request::Request;
use super::share::ShareNode;
use super::world::World;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Drr(DrrNode),
    Share(ShareNode),
    Load(LoadNode),
}

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) name: Box<str>,
    pub(super) inside: Inside,
    pub(super) in_flight: Vec<Flight>,
}

#[derive(Clone, Debug)]
pub(super) enum Inside {
    Queue(Queue, Vec<Arc<Request>>),
    Node(Box<Node>),
}

/// A request in flight, as one flow on its path remembers it.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    request: Arc<Request>,
    /// The flow's generation at the grant; `None` where the request was in flight when the policy came.
    generation: Option<u64>,
}

/// A request that could be dispatched, and the choice that each node on its path made.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub(super) request: Arc<Request>,
    /// From the innermost node to this one.
    pub(super) steps: Vec<Step>,
}

/// One node's choice.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The index of the chosen flow.
    pub(super) flow: usize,
    pub(super) change: Change,
}

/// What a choice changes in its node before the charge. It is worked out with the choice, from the state
/// before the grant.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The deficits of a drr node's classes.
    Deficits(Vec<i128>),
    /// A share node's virtual time.
    VirtualTime(i128),
    Nothing,
}

/// What a class, of drr or share, says about workers.
pub(super) struct ClassRules {
    pub(super) busy: BusyThresholds,
    pub(super) limits: ClassLimits,
}

/// What the kinds of node do each in their own way.
pub(super) trait Rule {
    fn by(&self) -> Attribute;

    /// The name of the flow to which a request belongs.
    fn flow_name<'a>(&'a self, request: &'a Request) -> &'a str {
        request.submit.attributes.get(self.by()).unwrap_or(DEFAULT_FLOW)
    }

    /// How many flows have come into being.
    fn flow_count(&self) -> usize;

    fn flow(&self, index: usize) -> &Flow;

    fn flow_mut(&mut self, index: usize) -> &mut Flow;

    /// Brings a flow into being, with counters at 0.
    fn create_flow(&mut self, name: &str);

    /// What the node would dispatch next. Looking changes nothing.
    fn pick(&self, world: &World, busy: BusyThresholds) -> Option<Pick>;

    /// A request of the chosen flow was dispatched; what is inside the flow has changed already.
    fn charge(&mut self, step: &Step, cost: u64, world: &World, busy: BusyThresholds);

    /// The flow's generation, where the node counts any.
    fn generation(&self, _flow: usize) -> u64 {
        0
    }

    /// A flow lost its last waiting request other than by a grant.
    fn emptied(&mut self, _flow: usize) {}

    /// A request ended that was charged here, with the flow's generation at its grant.
    fn ended(&mut self, _flow: usize, _cost: u64, _tokens: Option<u64>, _generation: u64) {}

    /// The node's own look at which flows are ready.
    fn look(&mut self, _world: &World, _busy: BusyThresholds) {}

    /// The tick counter has risen.
    fn tune(&mut self, _ticks: u64) {}

    /// A flow's weight is about to change.
    fn before_weight_change(&mut self, _flow: usize, _world: &World) {}

    /// What a class says about workers, where the node has classes.
    fn class(&self, _name: &str) -> Option<ClassRules> {
        None
    }
}

impl Node {
    pub(super) fn new(policy: &policy::Node) -> Self {
        match policy {
            policy::Node::Drr(drr) => Self::Drr(DrrNode::new(drr)),
            policy::Node::Share(share) => Self::Share(ShareNode::new(share)),
            policy::Node::Load(load) => Self::Load(LoadNode::new(load)),
        }
    }

    fn rule(&self) -> &dyn Rule {
        match self {
            Self::Drr(node) => node,
            Self::Share(node) => node,
            Self::Load(node) => node,
        }
    }

    fn rule_mut(&mut self) -> &mut dyn Rule {
        match self {
            Self::Drr(node) => node,
            Self::Share(node) => node,
            Self::Load(node) => node,
        }
    }

    fn flows(&self) -> impl Iterator<Item = &Flow> {
        (0..self.rule().flow_count()).map(|index| self.flow(index))
    }

    fn flow_index(&self, name: &str) -> Option<usize> {
        self.flows().position(|flow| *flow.name == *name)
    }

    fn flow(&self, index: usize) -> &Flow {
        self.rule().flow(index)
    }

    fn flow_mut(&mut self, index: usize) -> &mut Flow {
        self.rule_mut().flow_mut(index)
    }

    /// The index of the flow to which a request belongs, where it has come into being.
    fn flow_of(&self, request: &Request) -> Option<usize> {
        self.flow_index(self.rule().flow_name(request))
    }

    /// "Flows come into being with their first request, with counters at 0."
    fn flow_of_or_new(&mut self, request: &Request) -> usize {
        let name: Box<str> = self.rule().flow_name(request).into();
        if self.flow_index(&name).is_none() {
            self.rule_mut().create_flow(&name);
        }
        self.flow_index(&name).expect("the flow exists now")
    }

    /// All that waits in this node, in no order.
    pub(super) fn waiting(&self) -> Vec<&Arc<Request>> {
        self.flows().flat_map(Flow::waiting).collect()
    }

    pub(super) fn pick(&self, world: &World, busy: BusyThresholds) -> Option<Pick> {
        self.rule().pick(world, busy)
    }

    /// Does what a pick found: innermost first, so that each node sees what is left inside its flows.
    pub(super) fn dispatch(
        &mut self,
        request: &Arc<Request>,
        steps: &[Step],
        world: &World,
        busy: BusyThresholds,
    ) {
        let (step, inner) = steps.split_last().expect("one step for each node on the path");
        let busy_inside = self.busy_inside(step.flow, busy);
        match &mut self.flow_mut(step.flow).inside {
            Inside::Queue(_, queue) => queue.retain(|r| r.seq != request.seq),
            Inside::Node(node) => node.dispatch(request, inner, world, busy_inside),
        }
        let generation = Some(self.rule().generation(step.flow));
        let flight = Flight { request: Arc::clone(request), generation };
        self.flow_mut(step.flow).in_flight.push(flight);
        self.rule_mut().charge(step, request.cost, world, busy);
    }

    /// A request starts to wait.
    pub(super) fn enter(&mut self, request: &Arc<Request>) {
        let index = self.flow_of_or_new(request);
        match &mut self.flow_mut(index).inside {
            Inside::Queue(_, queue) => queue.push(Arc::clone(request)),
            Inside::Node(node) => node.enter(request),
        }
    }

    /// A waiting request leaves other than by a grant, uncharged.
    pub(super) fn leave(&mut self, request: &Request) {
        let index = self.flow_of(request).expect("what waits has a flow");
        match &mut self.flow_mut(index).inside {
            Inside::Queue(_, queue) => queue.retain(|r| r.seq != request.seq),
            Inside::Node(node) => node.leave(request),
        }
        if self.flow(index).is_empty() {
            self.rule_mut().emptied(index);
        }
    }

    /// A request that is in flight already counts as such in its flows here.
    pub(super) fn adopt(&mut self, request: &Arc<Request>) {
        let index = self.flow_of_or_new(request);
        let flow = self.flow_mut(index);
        flow.in_flight.push(Flight { request: Arc::clone(request), generation: None });
        if let Inside::Node(node) = &mut flow.inside {
            node.adopt(request);
        }
    }

    /// A request in flight ends.
    pub(super) fn end(&mut self, request: &Request, tokens: Option<u64>) {
        let index = self.flow_of(request).expect("what is in flight has a flow");
        let flow = self.flow_mut(index);
        if let Inside::Node(node) = &mut flow.inside {
            node.end(request, tokens);
        }
        let flight = flow.in_flight.iter().position(|f| f.request.seq == request.seq);
        let flight = flow.in_flight.remove(flight.expect("every flow on its path remembers it"));
        // What was in flight before the policy came is charged nothing when it ends.
        if let Some(generation) = flight.generation {
            self.rule_mut().ended(index, request.cost, tokens, generation);
        }
    }

    /// The flows of a request that waits or is in flight, from the root down: by which attribute, and the
    /// flow's name.
    pub(super) fn path(&self, request: &Request) -> Vec<(Attribute, Box<str>)> {
        let index = self.flow_of(request).expect("it has a flow");
        let mut path = vec![(self.rule().by(), self.flow(index).name.clone())];
        if let Inside::Node(node) = &self.flow(index).inside {
            path.extend(node.path(request));
        }
        path
    }

    /// Lets each node of the tree look at which of its flows wait and are ready, "innermost nodes first".
    pub(super) fn look(&mut self, world: &World, busy: BusyThresholds) {
        for index in 0..self.rule().flow_count() {
            if matches!(self.flow(index).inside, Inside::Queue(..)) {
                continue;
            }
            let busy_inside = self.busy_inside(index, busy);
            if let Inside::Node(node) = &mut self.flow_mut(index).inside {
                node.look(world, busy_inside);
            }
        }
        self.rule_mut().look(world, busy);
    }

    /// Lets each node of the tree see a rise of the tick counter.
    pub(super) fn tune(&mut self, ticks: u64) {
        self.rule_mut().tune(ticks);
        for index in 0..self.rule().flow_count() {
            if let Inside::Node(node) = &mut self.flow_mut(index).inside {
                node.tune(ticks);
            }
        }
    }

    /// Tells every node that shares by the attribute that the flow's weight is about to change.
    pub(super) fn before_weight_change(&mut self, by: Attribute, name: &str, world: &World) {
        if self.rule().by() == by
            && let Some(index) = self.flow_index(name)
        {
            self.rule_mut().before_weight_change(index, world);
        }
        for index in 0..self.rule().flow_count() {
            if let Inside::Node(node) = &mut self.flow_mut(index).inside {
                node.before_weight_change(by, name, world);
            }
        }
    }

    /// Who must go from a full queue: "from the root down, take the flow in which the most requests wait
    /// (ties: the newcomer's flow, else the first by name, also in drr), and in the queue at the bottom
    /// the last in its order." The newcomer is counted in, and nothing is changed.
    pub(super) fn victim(&self, newcomer: Option<&Arc<Request>>) -> Arc<Request> {
        let home = newcomer.map(|request| self.rule().flow_name(request));
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        for flow in self.flows() {
            waiting.insert(&flow.name, flow.waiting().len());
        }
        if let Some(home) = home {
            *waiting.entry(home).or_default() += 1;
        }
        let most = *waiting.values().max().expect("somebody waits");
        let first = waiting.iter().find(|(_, count)| **count == most).map(|(name, _)| *name);
        let name = home.filter(|home| waiting[home] == most).or(first).expect("somebody waits");

        let newcomer = newcomer.filter(|_| home == Some(name));
        match self.flow_index(name).map(|index| &self.flow(index).inside) {
            Some(Inside::Node(node)) => node.victim(newcomer),
            Some(Inside::Queue(policy, queue)) => {
                let order = policy.order;
                let last = queue.iter().chain(newcomer).max_by(|a, b| a.compare(b, order));
                Arc::clone(last.expect("somebody waits"))
            }
            // Its flow would begin with the newcomer.
            None => Arc::clone(newcomer.expect("only the newcomer's flow may be missing")),
        }
    }

    /// The limit that a newcomer finds reached: for each class on its path from the root, requests,
    /// input tokens and cached tokens in order.
    pub(super) fn limit_reached(&self, newcomer: &Request, workers: u64) -> Option<Reason> {
        let name = self.rule().flow_name(newcomer);
        let flow = self.flow_index(name).map(|index| self.flow(index));
        let here = self.rule().class(name).and_then(|class| {
            let waiting = flow.map(Flow::waiting).unwrap_or_default();
            class_limit_reached(&class.limits, &waiting, workers)
        });
        let inside = flow.map(|flow| &flow.inside);
        here.or_else(|| match inside {
            Some(Inside::Node(node)) => node.limit_reached(newcomer, workers),
            Some(Inside::Queue(..)) => None,
            None => self.new_node_inside(name)?.limit_reached(newcomer, workers),
        })
    }

    /// The node that would be inside a flow that has not come into being.
    fn new_node_inside(&self, name: &str) -> Option<Self> {
        let mut with_flow = self.clone();
        with_flow.rule_mut().create_flow(name);
        let index = with_flow.flow_index(name)?;
        match &with_flow.flow(index).inside {
            Inside::Node(node) => Some(node.as_ref().clone()),
            Inside::Queue(..) => None,
        }
    }

    /// The busy thresholds for a waiting request: "those of the innermost class (of drr or share)
    /// on the request's path that states either of them, else the pool's, else none".
    pub(super) fn busy_of(&self, request: &Request, outer: BusyThresholds) -> BusyThresholds {
        let index = self.flow_of(request).expect("what waits has a flow");
        let busy = self.busy_inside(index, outer);
        match &self.flow(index).inside {
            Inside::Node(node) => node.busy_of(request, busy),
            Inside::Queue(..) => busy,
        }
    }

    fn busy_inside(&self, index: usize, outer: BusyThresholds) -> BusyThresholds {
        let class = self.rule().class(&self.flow(index).name);
        class.map(|class| class.busy).filter(BusyThresholds::is_stated).unwrap_or(outer)
    }
}

/// Limits "each times the number of workers that are up or overloaded, compared with what already waits
/// in the class".
fn class_limit_reached(
    limits: &ClassLimits,
    waiting: &[&Arc<Request>],
    workers: u64,
) -> Option<Reason> {
    let requests: u128 = waiting.iter().map(|_| 1).sum();
    let input: u128 = waiting.iter().map(|r| u128::from(r.input)).sum();
    let cached: u128 = waiting.iter().map(|r| u128::from(r.cached)).sum();
    let reached = |waits: u128, per_worker: Option<u64>| {
        per_worker.is_some_and(|limit| waits >= u128::from(limit) * u128::from(workers))
    };
    if reached(requests, limits.requests_per_worker) {
        return Some(Reason::ClassRequests);
    }
    if reached(input, limits.input_tokens_per_worker.map(|tokens| tokens.0)) {
        return Some(Reason::ClassInputTokens);
    }
    if reached(cached, limits.cached_tokens_per_worker.map(|tokens| tokens.0)) {
        return Some(Reason::ClassCachedTokens);
    }
    None
}

impl Flow {
    pub(super) fn new(name: &str, inside: &policy::Inside) -> Self {
        let inside = match inside {
            policy::Inside::Queue(queue) => Inside::Queue(*queue, Vec::new()),
            policy::Inside::Node(node) => Inside::Node(Box::new(Node::new(node))),
        };
        Self { name: name.into(), inside, in_flight: Vec::new() }
    }

    /// All that waits in this flow, in no order.
    pub(super) fn waiting(&self) -> Vec<&Arc<Request>> {
        match &self.inside {
            Inside::Queue(_, queue) => queue.iter().collect(),
            Inside::Node(node) => node.waiting(),
        }
    }

    /// Whether nothing waits in this flow.
    pub(super) fn is_empty(&self) -> bool {
        match &self.inside {
            Inside::Queue(_, queue) => queue.is_empty(),
            Inside::Node(node) => node.flows().all(Self::is_empty),
        }
    }

    /// The request that has waited longest in this flow.
    pub(super) fn oldest(&self) -> Option<&Arc<Request>> {
        match &self.inside {
            Inside::Queue(_, queue) => queue.iter().min_by_key(|request| request.seq),
            Inside::Node(node) => {
                node.flows().filter_map(Self::oldest).min_by_key(|request| request.seq)
            }
        }
    }

    /// What the flow would dispatch next, where it is ready: "not held, something waits in it, and what
    /// is inside it has a ready head".
    pub(super) fn pick(&self, by: Attribute, world: &World, busy: BusyThresholds) -> Option<Pick> {
        if self.is_empty() || world.is_held(by, &self.name) {
            return None;
        }
        match &self.inside {
            Inside::Queue(policy, queue) => {
                let head = head(*policy, queue, world, busy)?;
                // A queue whose head has no open place has no ready head.
                let open = world.is_open(head, busy);
                open.then(|| Pick { request: Arc::clone(head), steps: Vec::new() })
            }
            Inside::Node(node) => node.pick(world, busy),
        }
    }
}

/// The head of a queue: its first in order, but "where requests of the queue have waited `max_wait_us` or
/// longer at the event's `at` and have an open place, the oldest of these (lowest seq) is the head, whatever
/// its priority and cost".
fn head<'a>(
    policy: Queue,
    queue: &'a [Arc<Request>],
    world: &World,
    busy: BusyThresholds,
) -> Option<&'a Arc<Request>> {
    let overdue = |r: &Request| policy.max_wait.is_some_and(|most| world.now - r.at.0 >= most.0);
    let first_overdue =
        queue.iter().filter(|r| overdue(r) && world.is_open(r, busy)).min_by_key(|r| r.seq);
    first_overdue.or_else(|| queue.iter().min_by(|a, b| a.compare(b, policy.order)))
}

impl Pick {
    /// The pick of the node around this one, which chose the flow.
    pub(super) fn through(mut self, flow: usize, change: Change) -> Self {
        self.steps.push(Step { flow, change });
        self
    }
}
