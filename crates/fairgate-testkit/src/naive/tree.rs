//! The policy as a tree. A node shares among flows, and inside each flow is another node or a
//! queue.
//!
//! This module has the code that all kinds of node have in common; each kind implements
//! [`NodeRule`].

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::decision::RejectionReason;
use fairgate_core::policy::{self, BusyThresholds, ClassLimits, QueueOrder, QueuePolicy};

use super::bands::NaiveBandsNode;
use super::branches::RuleBranch;
use super::drr::NaiveDrrNode;
use super::load::NaiveLoadNode;
use super::request::NaiveRequest;
use super::share::NaiveShareNode;
use super::state::NaiveState;

#[derive(Clone, Debug)]
pub(super) enum NaiveNode {
    Drr(NaiveDrrNode),
    Share(NaiveShareNode),
    Load(NaiveLoadNode),
    Bands(NaiveBandsNode),
}

#[derive(Clone, Debug)]
pub(super) struct NaiveFlow {
    pub(super) name: Box<str>,
    pub(super) inside: NaiveInside,
    pub(super) in_flight: Vec<FlowInFlight>,
}

#[derive(Clone, Debug)]
pub(super) enum NaiveInside {
    Queue(QueuePolicy, Vec<Arc<NaiveRequest>>),
    Node(Box<NaiveNode>),
}

/// A request in flight, as each flow on the request's path stores it.
#[derive(Clone, Debug)]
pub(super) struct FlowInFlight {
    request: Arc<NaiveRequest>,
    /// Generation of the flow at the grant; `None` if the request was granted under an earlier
    /// policy.
    generation: Option<u64>,
}

/// A request that could be dispatched next, with the choices of the nodes on its path.
#[derive(Clone, Debug)]
pub(super) struct NaivePick {
    pub(super) request: Arc<NaiveRequest>,
    /// Choices of the nodes on the path, from the innermost node to the node that returns the pick.
    pub(super) steps: Vec<NodeChoice>,
}

/// The choice of one node on the path of a pick: the flow that it chose, and the change of the
/// node's state if the request is granted.
#[derive(Clone, Debug)]
pub(super) struct NodeChoice {
    /// Index of the flow that the node chose.
    pub(super) flow: usize,
    pub(super) change: NodeChange,
}

/// The change of a node's state at a grant, before the grant is charged. The change is computed
/// together with the choice, from the state before the grant.
#[derive(Clone, Debug)]
pub(super) enum NodeChange {
    /// New deficits of a drr node's classes.
    Deficits(Vec<i128>),
    /// New virtual time of a share node.
    VirtualTime(i128),
    Nothing,
}

/// Busy thresholds and limits of a class (of drr, share or bands).
pub(super) struct ClassSettings {
    pub(super) busy: BusyThresholds,
    pub(super) limits: ClassLimits,
}

/// The methods that differ between the kinds of node.
pub(super) trait NodeRule {
    fn by(&self) -> Attribute;

    /// Returns the name of the flow to which a request belongs.
    fn flow_name<'a>(&'a self, request: &'a NaiveRequest) -> &'a str {
        request.submit.attributes.get(self.by()).unwrap_or(DEFAULT_FLOW)
    }

    /// Returns the number of flows that the node has created so far.
    fn flow_count(&self) -> usize;

    fn flow(&self, index: usize) -> &NaiveFlow;

    fn flow_mut(&mut self, index: usize) -> &mut NaiveFlow;

    /// Creates a flow of that name, with counters at 0.
    fn create_flow(&mut self, name: &str);

    /// Returns the request that the node would dispatch next, without changing anything.
    fn pick(&self, world: &NaiveState, busy: BusyThresholds) -> Option<NaivePick>;

    /// Charges a dispatched request to the chosen flow. The request has already been removed from
    /// the nodes and queues inside the flow.
    fn charge(&mut self, step: &NodeChoice, cost: u64, world: &NaiveState, busy: BusyThresholds);

    /// Returns the flow's generation; 0 for kinds of node that have no generations.
    fn generation(&self, _flow: usize) -> u64 {
        0
    }

    /// Handles the loss of a flow's last queued request for a reason other than a grant.
    fn emptied(&mut self, _flow: usize) {}

    /// Handles the end of a request that this node charged. `_generation` is the flow's generation
    /// at the grant.
    fn ended(&mut self, _flow: usize, _cost: u64, _tokens: Option<u64>, _generation: u64) {}

    /// Updates which flows of the node wait and which are ready.
    fn look(&mut self, _world: &NaiveState, _busy: BusyThresholds) {}

    /// Handles a rise of the tick counter to `_ticks`.
    fn tune(&mut self, _ticks: u64) {}

    /// Prepares a flow for a change of its weight, before the change.
    fn before_weight_change(&mut self, _flow: usize, _world: &NaiveState) {}

    /// Returns the busy thresholds and limits of a class; `None` if the node has no such class.
    fn class(&self, _name: &str) -> Option<ClassSettings> {
        None
    }
}

impl NaiveNode {
    pub(super) fn new(policy: &policy::PolicyNode) -> Self {
        match policy {
            policy::PolicyNode::Drr(drr) => Self::Drr(NaiveDrrNode::new(drr)),
            policy::PolicyNode::Share(share) => Self::Share(NaiveShareNode::new(share)),
            policy::PolicyNode::Load(load) => Self::Load(NaiveLoadNode::new(load)),
            policy::PolicyNode::Bands(bands) => Self::Bands(NaiveBandsNode::new(bands)),
        }
    }

    fn rule(&self) -> &dyn NodeRule {
        match self {
            Self::Drr(node) => node,
            Self::Share(node) => node,
            Self::Load(node) => node,
            Self::Bands(node) => node,
        }
    }

    fn rule_mut(&mut self) -> &mut dyn NodeRule {
        match self {
            Self::Drr(node) => node,
            Self::Share(node) => node,
            Self::Load(node) => node,
            Self::Bands(node) => node,
        }
    }

    fn flows(&self) -> impl Iterator<Item = &NaiveFlow> {
        (0..self.rule().flow_count()).map(|index| self.flow(index))
    }

    fn flow_index(&self, name: &str) -> Option<usize> {
        self.flows().position(|flow| *flow.name == *name)
    }

    fn flow(&self, index: usize) -> &NaiveFlow {
        self.rule().flow(index)
    }

    fn flow_mut(&mut self, index: usize) -> &mut NaiveFlow {
        self.rule_mut().flow_mut(index)
    }

    /// Returns the index of a request's flow; `None` if the flow does not exist.
    fn flow_of(&self, request: &NaiveRequest) -> Option<usize> {
        self.flow_index(self.rule().flow_name(request))
    }

    /// Returns the index of a request's flow, and creates the flow if it does not exist: "Flows
    /// come into being with their first request, with counters at 0."
    fn flow_of_or_new(&mut self, request: &NaiveRequest) -> usize {
        let name: Box<str> = self.rule().flow_name(request).into();
        if self.flow_index(&name).is_none() {
            self.rule_mut().create_flow(&name);
        }
        self.flow_index(&name).expect("the flow exists now")
    }

    /// Returns all queued requests below this node, in no particular order.
    pub(super) fn waiting(&self) -> Vec<&Arc<NaiveRequest>> {
        self.flows().flat_map(NaiveFlow::waiting).collect()
    }

    pub(super) fn pick(&self, world: &NaiveState, busy: BusyThresholds) -> Option<NaivePick> {
        self.rule().pick(world, busy)
    }

    /// Applies a pick, innermost node first, so that each node sees the requests that are left
    /// inside its flows.
    pub(super) fn dispatch(
        &mut self,
        request: &Arc<NaiveRequest>,
        steps: &[NodeChoice],
        world: &NaiveState,
        busy: BusyThresholds,
    ) {
        let (step, inner) = steps.split_last().expect("one step for each node on the path");
        let busy_inside = self.busy_inside(step.flow, busy);
        match &mut self.flow_mut(step.flow).inside {
            NaiveInside::Queue(policy, queue) => {
                note_order(policy.order, queue, request, world);
                queue.retain(|r| r.seq != request.seq);
            }
            NaiveInside::Node(node) => node.dispatch(request, inner, world, busy_inside),
        }
        let generation = Some(self.rule().generation(step.flow));
        let flight = FlowInFlight { request: Arc::clone(request), generation };
        self.flow_mut(step.flow).in_flight.push(flight);
        self.rule_mut().charge(step, request.cost, world, busy);
    }

    /// Adds a request to the queue at the end of its path, and creates missing flows.
    pub(super) fn enter(&mut self, request: &Arc<NaiveRequest>) {
        let index = self.flow_of_or_new(request);
        match &mut self.flow_mut(index).inside {
            NaiveInside::Queue(_, queue) => queue.push(Arc::clone(request)),
            NaiveInside::Node(node) => node.enter(request),
        }
    }

    /// Removes a queued request for a reason other than a grant, without a charge.
    pub(super) fn leave(&mut self, request: &NaiveRequest) {
        let index = self.flow_of(request).expect("what waits has a flow");
        match &mut self.flow_mut(index).inside {
            NaiveInside::Queue(_, queue) => queue.retain(|r| r.seq != request.seq),
            NaiveInside::Node(node) => node.leave(request),
        }
        if self.flow(index).is_empty() {
            self.rule_mut().emptied(index);
        }
    }

    /// Counts a request that was granted under an earlier policy as in flight in its flows of this
    /// tree.
    pub(super) fn adopt(&mut self, request: &Arc<NaiveRequest>) {
        let index = self.flow_of_or_new(request);
        let flow = self.flow_mut(index);
        flow.in_flight.push(FlowInFlight { request: Arc::clone(request), generation: None });
        if let NaiveInside::Node(node) = &mut flow.inside {
            node.adopt(request);
        }
    }

    /// Ends a request in flight in all flows of its path.
    pub(super) fn end(&mut self, request: &NaiveRequest, tokens: Option<u64>) {
        let index = self.flow_of(request).expect("what is in flight has a flow");
        let flow = self.flow_mut(index);
        if let NaiveInside::Node(node) = &mut flow.inside {
            node.end(request, tokens);
        }
        let flight = flow.in_flight.iter().position(|f| f.request.seq == request.seq);
        let flight = flow.in_flight.remove(flight.expect("every flow on its path remembers it"));
        // A request that was in flight before the policy changed is charged nothing when it ends.
        if let Some(generation) = flight.generation {
            self.rule_mut().ended(index, request.cost, tokens, generation);
        }
    }

    /// Returns the flows on the path of a request that is queued or in flight, from the root down.
    /// Each flow is given by its attribute and its name.
    pub(super) fn path(&self, request: &NaiveRequest) -> Vec<(Attribute, Box<str>)> {
        let index = self.flow_of(request).expect("it has a flow");
        let mut path = vec![(self.rule().by(), self.flow(index).name.clone())];
        if let NaiveInside::Node(node) = &self.flow(index).inside {
            path.extend(node.path(request));
        }
        path
    }

    /// Updates in each node which flows wait and which are ready, "innermost nodes first".
    pub(super) fn look(&mut self, world: &NaiveState, busy: BusyThresholds) {
        for index in 0..self.rule().flow_count() {
            if matches!(self.flow(index).inside, NaiveInside::Queue(..)) {
                continue;
            }
            let busy_inside = self.busy_inside(index, busy);
            if let NaiveInside::Node(node) = &mut self.flow_mut(index).inside {
                node.look(world, busy_inside);
            }
        }
        self.rule_mut().look(world, busy);
    }

    /// Tells each node of the tree that the tick counter has risen to `ticks`.
    pub(super) fn tune(&mut self, ticks: u64) {
        self.rule_mut().tune(ticks);
        for index in 0..self.rule().flow_count() {
            if let NaiveInside::Node(node) = &mut self.flow_mut(index).inside {
                node.tune(ticks);
            }
        }
    }

    /// Prepares the flow `name`, in every node that shares by the attribute, for a change of the
    /// flow's weight.
    pub(super) fn before_weight_change(&mut self, by: Attribute, name: &str, world: &NaiveState) {
        if self.rule().by() == by
            && let Some(index) = self.flow_index(name)
        {
            self.rule_mut().before_weight_change(index, world);
        }
        for index in 0..self.rule().flow_count() {
            if let NaiveInside::Node(node) = &mut self.flow_mut(index).inside {
                node.before_weight_change(by, name, world);
            }
        }
    }

    /// Returns the request that must leave a full queue: "from the root down, take the flow in
    /// which the most requests wait (ties: the newcomer's flow, else the first by name, also in drr
    /// and in bands), and in the queue at the bottom the last in its order." The newcomer is
    /// counted as if it were queued. Nothing is changed.
    pub(super) fn victim(&self, newcomer: Option<&Arc<NaiveRequest>>) -> Arc<NaiveRequest> {
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
            Some(NaiveInside::Node(node)) => node.victim(newcomer),
            Some(NaiveInside::Queue(policy, queue)) => {
                let order = policy.order;
                let last = queue.iter().chain(newcomer).max_by(|a, b| a.compare(b, order));
                Arc::clone(last.expect("somebody waits"))
            }
            // The newcomer would be the first request of its flow.
            None => Arc::clone(newcomer.expect("only the newcomer's flow may be missing")),
        }
    }

    /// Returns the reason to reject a newcomer because of a class limit; `None` if no limit is
    /// reached. Checks each class on the newcomer's path from the root. For each class, checks the
    /// limits of requests, input tokens and cached tokens, in this order.
    pub(super) fn limit_reached(
        &self,
        newcomer: &NaiveRequest,
        workers: u64,
    ) -> Option<RejectionReason> {
        let name = self.rule().flow_name(newcomer);
        let flow = self.flow_index(name).map(|index| self.flow(index));
        let here = self.rule().class(name).and_then(|class| {
            let waiting = flow.map(NaiveFlow::waiting).unwrap_or_default();
            class_limit_reached(&class.limits, &waiting, workers)
        });
        let inside = flow.map(|flow| &flow.inside);
        here.or_else(|| match inside {
            Some(NaiveInside::Node(node)) => node.limit_reached(newcomer, workers),
            Some(NaiveInside::Queue(..)) => None,
            None => self.new_node_inside(name)?.limit_reached(newcomer, workers),
        })
    }

    /// Returns the node inside a flow that does not exist yet, as it would be created; `None` if
    /// the flow would have a queue inside.
    fn new_node_inside(&self, name: &str) -> Option<Self> {
        let mut with_flow = self.clone();
        with_flow.rule_mut().create_flow(name);
        let index = with_flow.flow_index(name)?;
        match &with_flow.flow(index).inside {
            NaiveInside::Node(node) => Some(node.as_ref().clone()),
            NaiveInside::Queue(..) => None,
        }
    }

    /// Returns the busy thresholds for a queued request: "those of the innermost class (of drr,
    /// share or bands) on the request's path that states either of them, else the pool's, else
    /// none".
    pub(super) fn busy_of(&self, request: &NaiveRequest, outer: BusyThresholds) -> BusyThresholds {
        let index = self.flow_of(request).expect("what waits has a flow");
        let busy = self.busy_inside(index, outer);
        match &self.flow(index).inside {
            NaiveInside::Node(node) => node.busy_of(request, busy),
            NaiveInside::Queue(..) => busy,
        }
    }

    fn busy_inside(&self, index: usize, outer: BusyThresholds) -> BusyThresholds {
        let class = self.rule().class(&self.flow(index).name);
        class.map(|class| class.busy).filter(BusyThresholds::is_stated).unwrap_or(outer)
    }
}

/// Returns the reason for a rejection if a limit of the class is reached, otherwise `None`. Limits
/// are "each times the number of workers that are up or overloaded, compared with what already
/// waits in the class".
fn class_limit_reached(
    limits: &ClassLimits,
    waiting: &[&Arc<NaiveRequest>],
    workers: u64,
) -> Option<RejectionReason> {
    let requests: u128 = waiting.iter().map(|_| 1).sum();
    let input: u128 = waiting.iter().map(|r| u128::from(r.input)).sum();
    let cached: u128 = waiting.iter().map(|r| u128::from(r.cached)).sum();
    let reached = |waits: u128, per_worker: Option<u64>| {
        per_worker.is_some_and(|limit| waits >= u128::from(limit) * u128::from(workers))
    };
    if reached(requests, limits.requests_per_worker) {
        return Some(RejectionReason::ClassRequests);
    }
    if reached(input, limits.input_tokens_per_worker.map(|tokens| tokens.0)) {
        return Some(RejectionReason::ClassInputTokens);
    }
    if reached(cached, limits.cached_tokens_per_worker.map(|tokens| tokens.0)) {
        return Some(RejectionReason::ClassCachedTokens);
    }
    None
}

impl NaiveFlow {
    pub(super) fn new(name: &str, inside: &policy::FlowInside) -> Self {
        let inside = match inside {
            policy::FlowInside::Queue(queue) => NaiveInside::Queue(*queue, Vec::new()),
            policy::FlowInside::Node(node) => NaiveInside::Node(Box::new(NaiveNode::new(node))),
        };
        Self { name: name.into(), inside, in_flight: Vec::new() }
    }

    /// Returns all queued requests in this flow, in no particular order.
    pub(super) fn waiting(&self) -> Vec<&Arc<NaiveRequest>> {
        match &self.inside {
            NaiveInside::Queue(_, queue) => queue.iter().collect(),
            NaiveInside::Node(node) => node.waiting(),
        }
    }

    /// Returns whether no request is queued in this flow.
    pub(super) fn is_empty(&self) -> bool {
        match &self.inside {
            NaiveInside::Queue(_, queue) => queue.is_empty(),
            NaiveInside::Node(node) => node.flows().all(Self::is_empty),
        }
    }

    /// Returns the request that has waited longest in this flow; `None` if no request waits.
    pub(super) fn oldest(&self) -> Option<&Arc<NaiveRequest>> {
        match &self.inside {
            NaiveInside::Queue(_, queue) => queue.iter().min_by_key(|request| request.seq),
            NaiveInside::Node(node) => {
                node.flows().filter_map(Self::oldest).min_by_key(|request| request.seq)
            }
        }
    }

    /// Returns the request that the flow would dispatch next; `None` if the flow is not ready.
    /// Ready means "not held, something waits in it, and what is inside it has a ready head".
    pub(super) fn pick(
        &self,
        by: Attribute,
        world: &NaiveState,
        busy: BusyThresholds,
    ) -> Option<NaivePick> {
        if self.is_empty() || world.is_held(by, &self.name) {
            return None;
        }
        match &self.inside {
            NaiveInside::Queue(policy, queue) => {
                let head = head(*policy, queue, world, busy)?;
                // A queue whose head has no open place has no ready head.
                let open = world.is_open(head, busy);
                open.then(|| NaivePick { request: Arc::clone(head), steps: Vec::new() })
            }
            NaiveInside::Node(node) => node.pick(world, busy),
        }
    }
}

/// Returns the head of a queue. This is the first request in the queue's order, but "where requests
/// of the queue have waited `max_wait_us` or longer at the event's `at` and have an open place, the
/// oldest of these (lowest seq) is the head, whatever its priority and cost".
fn head<'a>(
    policy: QueuePolicy,
    queue: &'a [Arc<NaiveRequest>],
    world: &NaiveState,
    busy: BusyThresholds,
) -> Option<&'a Arc<NaiveRequest>> {
    let overdue =
        |r: &NaiveRequest| policy.max_wait.is_some_and(|most| world.now - r.at.0 >= most.0);
    let first_overdue =
        queue.iter().filter(|r| overdue(r) && world.is_open(r, busy)).min_by_key(|r| r.seq);
    first_overdue.or_else(|| queue.iter().min_by(|a, b| a.compare(b, policy.order)))
}

/// Counts the rule by which an `edf` queue dispatches the request `granted`. Does nothing for
/// queues of other orders.
fn note_order(
    order: QueueOrder,
    queue: &[Arc<NaiveRequest>],
    granted: &NaiveRequest,
    world: &NaiveState,
) {
    if order != QueueOrder::Edf {
        return;
    }
    let first = queue.iter().min_by(|a, b| a.compare(b, QueueOrder::Edf));
    if first.is_some_and(|first| first.seq != granted.seq) {
        world.branches.note(RuleBranch::LateBeforeEarliestDeadline);
        return;
    }
    if queue.iter().any(|r| r.compare(granted, QueueOrder::Fcfs).is_lt()) {
        world.branches.note(RuleBranch::EarliestDeadlineOvertakes);
    }
    let is_passed = |r: &Arc<NaiveRequest>| {
        let is_equal = r.submit.priority == granted.submit.priority;
        r.deadline.is_none() && is_equal && r.seq < granted.seq
    };
    if granted.deadline.is_none() {
        world.branches.note(RuleBranch::NoDeadlineGranted);
    } else if queue.iter().any(is_passed) {
        world.branches.note(RuleBranch::DeadlineBeforeNone);
    }
}

impl NaivePick {
    /// Adds the choice of the next outer node to the pick.
    pub(super) fn through(mut self, flow: usize, change: NodeChange) -> Self {
        self.steps.push(NodeChoice { flow, change });
        self
    }
}
