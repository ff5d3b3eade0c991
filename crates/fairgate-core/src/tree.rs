//! The policy tree at work: nodes, flows and queues, and the one way in which they tell each other.
//!
//! Every node keeps its *head*, what it would dispatch next, so that a pick is one look at the root. An event
//! marks the flows that it touches; a *look* then goes through the marks from the deepest level up: a marked
//! flow shows its node what is inside it, and a node whose head thereby changed marks the flow around it.
//! Readiness is noticed only here, after a step is complete, as SPEC.md has it. Each step costs one ordered-set
//! operation per level.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arbiter::{Arbiter, Context, Ended, Head, Local, View};
use crate::attribute::{Attribute, Attributes};
use crate::drr::Drr;
use crate::level::{InsideLevel, Level};
use crate::load::Load;
use crate::policy::{BusyThresholds, Node, Policy};
use crate::queue::Queue;
use crate::requests::{Request, Requests, Slot};
use crate::share::Share;
use crate::units::{Ticks, Tokens, Weight};
use crate::workers::{Role, Workers};

/// A node's discipline with its state.
#[derive(Clone, Debug)]
pub(crate) enum Discipline {
    Drr(Drr),
    Share(Share),
    Load(Load),
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) level: Arc<Level>,
    pub(crate) discipline: Discipline,
    /// The flow around it.
    pub(crate) parent: Option<u32>,
    depth: usize,
    busy: BusyThresholds,
    pub(crate) flows: BTreeMap<Arc<str>, u32>,
    /// The flows by their number within the node; a drr class has none before its first request.
    locals: Vec<Option<u32>>,
    /// The flows in which something waits, the fullest first, where the pool's queue is bounded.
    pub(crate) crowd: BTreeSet<(Reverse<u32>, Arc<str>, u32)>,
    head: Option<Head>,
    marked: bool,
}

/// A flow of a node.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) name: Arc<str>,
    pub(crate) node: u32,
    pub(crate) local: Local,
    pub(crate) child: Child,
    pub(crate) waiting: u32,
    pub(crate) flying: u32,
    pub(crate) held: bool,
    head: Option<Head>,
    marked: bool,
}

/// What is inside a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Child {
    Queue(u32),
    Node(u32),
}

/// What operators said of flows by name, whether they exist yet or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directives {
    pub(crate) held: [BTreeSet<Box<str>>; 7],
    pub(crate) weights: [BTreeMap<Box<str>, Weight>; 7],
    pub(crate) caps: [BTreeMap<Box<str>, Option<u64>>; 7],
}

/// A policy tree with everything that is in it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) directives: Directives,
    /// All flows of a name, by the attribute that names them.
    named: [BTreeMap<Arc<str>, Vec<u32>>; 7],
    load_nodes: Vec<u32>,
    drr_nodes: [Vec<u32>; 7],
    marked_flows: Vec<Vec<u32>>,
    marked_nodes: Vec<Vec<u32>>,
    /// The flows that were looked at while no worker took anything, as not ready whatever they were told.
    looked_at_blocked: BTreeSet<u32>,
    bounded: bool,
}

pub(crate) const ROOT: u32 = 0;

impl Tree {
    /// An empty tree. `bounded`: the pool's queue is, so the fullest flows must be known.
    pub(crate) fn new(
        policy: &Policy,
        busy: BusyThresholds,
        directives: Directives,
        bounded: bool,
    ) -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            flows: Vec::new(),
            queues: Vec::new(),
            directives,
            named: Default::default(),
            load_nodes: Vec::new(),
            drr_nodes: Default::default(),
            marked_flows: Vec::new(),
            marked_nodes: Vec::new(),
            looked_at_blocked: BTreeSet::new(),
            bounded,
        };
        tree.add_node(Level::new(policy.root()), None, 0, busy);
        tree
    }

    /// What the tree would dispatch next, as of the last look.
    pub(crate) fn head(&self) -> Option<Head> {
        self.nodes[ROOT as usize].head
    }

    fn add_node(
        &mut self,
        level: Arc<Level>,
        parent: Option<u32>,
        depth: usize,
        busy: BusyThresholds,
    ) -> u32 {
        let index = index_of(self.nodes.len());
        let by = level.node.by() as usize;
        let (discipline, locals) = match &*level.node {
            Node::Share(share) => (Discipline::Share(Share::new(share.partition)), Vec::new()),
            Node::Load(load) => {
                self.load_nodes.push(index);
                let load = Load::new(load.alpha, load.auto_tune, load.max_wait_ticks);
                (Discipline::Load(load), Vec::new())
            }
            Node::Drr(drr) => {
                self.drr_nodes[by].push(index);
                let said = &self.directives.weights[by];
                let quanta = drr
                    .classes
                    .iter()
                    .map(|class| said.get(&class.name).copied().unwrap_or(class.quantum));
                let locals = vec![None; drr.classes.len()];
                (Discipline::Drr(Drr::new(quanta, drr.settle)), locals)
            }
        };
        self.nodes.push(NodeState {
            level,
            discipline,
            parent,
            depth,
            busy,
            flows: BTreeMap::new(),
            locals,
            crowd: BTreeSet::new(),
            head: None,
            marked: false,
        });
        if self.marked_flows.len() <= depth {
            self.marked_flows.resize_with(depth + 1, Vec::new);
            self.marked_nodes.resize_with(depth + 1, Vec::new);
        }
        index
    }

    /// The flow of that name in a node, made where it is not there yet.
    pub(crate) fn flow(&mut self, node: u32, name: &str) -> u32 {
        match self.nodes[node as usize].flows.get(name) {
            Some(flow) => *flow,
            None => self.add_flow(node, name),
        }
    }

    fn add_flow(&mut self, node: u32, name: &str) -> u32 {
        let index = index_of(self.flows.len());
        let name: Arc<str> = name.into();
        let state = &mut self.nodes[node as usize];
        let level = state.level.clone();
        let by = level.node.by() as usize;
        let weight = self.directives.weights[by].get(&*name).copied();
        let cap = self.directives.caps[by].get(&*name).copied();
        let local = match (&mut state.discipline, &*level.node) {
            (Discipline::Share(share), Node::Share(config)) => {
                let listed = config.weights.get(&*name).copied();
                let capped = config.caps.get(&*name).copied().or(config.default_cap);
                let weight = weight.or(listed).unwrap_or(config.default_weight);
                share.add(&name, weight, cap.unwrap_or(capped))
            }
            (Discipline::Load(load), _) => load.add(),
            _ => level.class(&name).expect("a drr flow is one of the classes"),
        };
        if state.locals.len() <= local as usize {
            state.locals.resize(local as usize + 1, None);
        }
        state.locals[local as usize] = Some(index);
        state.flows.insert(name.clone(), index);
        let (depth, busy) = (state.depth + 1, level.busy(&name, state.busy));
        let child = match level.inside(&name) {
            InsideLevel::Queue(order) => {
                self.queues.push(Queue::new(*order, busy, index));
                Child::Queue(index_of(self.queues.len() - 1))
            }
            InsideLevel::Level(inside) => {
                Child::Node(self.add_node(inside.clone(), Some(index), depth, busy))
            }
        };
        let held = self.directives.held[by].contains(&*name);
        self.named[by].entry(name.clone()).or_default().push(index);
        self.flows.push(Flow {
            name,
            node,
            local,
            child,
            waiting: 0,
            flying: 0,
            held,
            head: None,
            marked: false,
        });
        index
    }

    /// The queue that a request belongs to, with every flow on the way made.
    fn queue_for(&mut self, attributes: &Attributes) -> u32 {
        let mut node = ROOT;
        loop {
            let level = self.nodes[node as usize].level.clone();
            let flow = self.flow(node, level.flow_name(attributes));
            match self.flows[flow as usize].child {
                Child::Queue(queue) => return queue,
                Child::Node(inside) => node = inside,
            }
        }
    }

    /// The flows around a queue, from the innermost to the root's.
    pub(crate) fn flows_around(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        let innermost = Some(self.queues[queue as usize].flow);
        core::iter::successors(innermost, |flow| {
            let node = self.flows[*flow as usize].node;
            self.nodes[node as usize].parent
        })
    }

    /// The names of a flow and those around it, from the root down.
    pub(crate) fn path(&self, flow: Option<u32>) -> Vec<Arc<str>> {
        let around = |flow: &u32| self.nodes[self.flows[*flow as usize].node as usize].parent;
        let names = core::iter::successors(flow, around);
        let mut path: Vec<_> = names.map(|f| self.flows[f as usize].name.clone()).collect();
        path.reverse();
        path
    }

    /// A request starts to wait: returns its queue.
    pub(crate) fn enter(&mut self, slot: Slot, attributes: &Attributes, cx: Context<'_>) -> u32 {
        let queue = self.queue_for(attributes);
        self.queues[queue as usize].push(slot, cx.requests.get(slot));
        self.for_flows_around(queue, |tree, flow| {
            let before = tree.change_waiting(flow, |waiting| waiting + 1);
            let (arbiter, local) = tree.arbiter_of(flow);
            arbiter.arrived(local, slot, before, cx);
        });
        queue
    }

    /// A request that waited leaves without being dispatched.
    pub(crate) fn leave(&mut self, slot: Slot, cx: Context<'_>) {
        let request = cx.requests.get(slot);
        self.queues[request.queue as usize].remove(request);
        self.for_flows_around(request.queue, |tree, flow| tree.take_waiting(flow, slot, cx));
    }

    /// A request is dispatched: every level is charged. Returns the generations, innermost first.
    pub(crate) fn dispatch(&mut self, slot: Slot, cx: Context<'_>) -> Vec<u64> {
        let request = cx.requests.get(slot);
        let mut generations = Vec::new();
        self.queues[request.queue as usize].remove(request);
        self.for_flows_around(request.queue, |tree, flow| {
            let (arbiter, local) = tree.arbiter_of(flow);
            generations.push(arbiter.charge(local, request.cost));
            tree.take_waiting(flow, slot, cx);
            tree.flows[flow as usize].flying += 1;
        });
        generations
    }

    /// A request that flies already enters a new tree, where it is charged nothing.
    pub(crate) fn enter_flying(&mut self, attributes: &Attributes) -> u32 {
        let queue = self.queue_for(attributes);
        self.for_flows_around(queue, |tree, flow| tree.flows[flow as usize].flying += 1);
        queue
    }

    /// A flying request has ended, with the tokens it used where they are known.
    pub(crate) fn land(&mut self, request: &Request, tokens: Option<Tokens>) {
        let flight = request.flight.as_ref();
        let generations = flight.and_then(|flight| flight.generations.as_deref());
        let mut level = 0;
        self.for_flows_around(request.queue, |tree, flow| {
            tree.flows[flow as usize].flying -= 1;
            if let Some(generations) = generations {
                let generation = generations.get(level).copied().unwrap_or_default();
                let (arbiter, local) = tree.arbiter_of(flow);
                arbiter.settle(local, Ended { cost: request.cost, tokens, generation });
            }
            level += 1;
        });
    }

    /// Does something to each flow around a queue, innermost first, and marks it.
    fn for_flows_around(&mut self, queue: u32, mut each: impl FnMut(&mut Self, u32)) {
        let mut next = Some(self.queues[queue as usize].flow);
        while let Some(flow) = next {
            each(self, flow);
            self.mark_flow(flow);
            let node = self.flows[flow as usize].node;
            next = self.nodes[node as usize].parent;
        }
    }

    fn take_waiting(&mut self, flow: u32, slot: Slot, cx: Context<'_>) {
        let remaining = self.change_waiting(flow, |waiting| waiting - 1) - 1;
        let (arbiter, local) = self.arbiter_of(flow);
        arbiter.left(local, slot, remaining, cx);
    }

    /// Changes how many wait in a flow; returns how many did.
    fn change_waiting(&mut self, flow: u32, change: impl Fn(u32) -> u32) -> u32 {
        let state = &mut self.flows[flow as usize];
        let before = state.waiting;
        state.waiting = change(before);
        if self.bounded {
            let crowd = &mut self.nodes[state.node as usize].crowd;
            if before > 0 {
                crowd.remove(&(Reverse(before), state.name.clone(), flow));
            }
            if state.waiting > 0 {
                crowd.insert((Reverse(state.waiting), state.name.clone(), flow));
            }
        }
        before
    }

    pub(crate) fn arbiter_of(&mut self, flow: u32) -> (&mut dyn Arbiter, Local) {
        let Flow { node, local, .. } = self.flows[flow as usize];
        (self.nodes[node as usize].arbiter(), local)
    }

    /// A flow will be looked at again.
    pub(crate) fn mark_flow(&mut self, flow: u32) {
        let state = &mut self.flows[flow as usize];
        if !state.marked {
            state.marked = true;
            let depth = self.nodes[state.node as usize].depth;
            self.marked_flows[depth].push(flow);
        }
    }

    fn mark_node(&mut self, node: u32) {
        let state = &mut self.nodes[node as usize];
        if !state.marked {
            state.marked = true;
            self.marked_nodes[state.depth].push(node);
        }
    }

    /// The tick counter has risen: every load node takes one step.
    pub(crate) fn tick(&mut self, ticks: Ticks) {
        for i in 0..self.load_nodes.len() {
            let node = self.load_nodes[i];
            let state = &mut self.nodes[node as usize];
            state.arbiter().tick(ticks);
            // Time alone gives nothing that is not ready a head.
            if state.has_head() {
                self.mark_node(node);
            }
        }
    }

    /// The pool's capacity has changed, by which a partitioned root divides.
    pub(crate) fn capacity_changed(&mut self) {
        self.mark_node(ROOT);
    }

    /// Every queue may have become ready or blocked.
    pub(crate) fn mark_all_queues(&mut self) {
        for i in 0..self.queues.len() {
            self.mark_flow(self.queues[i].flow);
        }
    }

    /// Holds a flow, or lets it go on, wherever it is and will be.
    pub(crate) fn set_held(&mut self, by: Attribute, name: &str, held: bool) {
        let names = &mut self.directives.held[by as usize];
        match held {
            true => names.insert(name.into()),
            false => names.remove(name),
        };
        for flow in self.flows_named(by, name) {
            self.flows[flow as usize].held = held;
            self.mark_flow(flow);
        }
    }

    /// Changes a flow's weight, wherever it is and will be.
    pub(crate) fn reweigh(&mut self, by: Attribute, name: &str, weight: Weight) {
        self.directives.weights[by as usize].insert(name.into(), weight);
        for flow in self.flows_named(by, name) {
            let (arbiter, local) = self.arbiter_of(flow);
            arbiter.reweigh(local, weight);
            self.mark_flow(flow);
        }
        // A drr class has its quantum before it has a flow.
        for node in &self.drr_nodes[by as usize] {
            let node = &mut self.nodes[*node as usize];
            let class = node.level.class(name);
            if let (Discipline::Drr(drr), Some(class)) = (&mut node.discipline, class)
                && node.locals[class as usize].is_none()
            {
                drr.reweigh(class, weight);
            }
        }
    }

    /// Changes a flow's cap, wherever it is and will be.
    pub(crate) fn recap(&mut self, by: Attribute, name: &str, cap: Option<u64>) {
        self.directives.caps[by as usize].insert(name.into(), cap);
        for flow in self.flows_named(by, name) {
            let (arbiter, local) = self.arbiter_of(flow);
            arbiter.recap(local, cap);
            self.mark_flow(flow);
        }
    }

    fn flows_named(&self, by: Attribute, name: &str) -> Vec<u32> {
        self.named[by as usize].get(name).cloned().unwrap_or_default()
    }

    /// Notices what has become ready or blocked since the last look, from the queues up.
    pub(crate) fn look(&mut self, workers: &mut Workers, cx: Context<'_>) {
        if workers.named {
            self.watch_heads(workers, cx.requests);
            for queue in workers.tell() {
                self.mark_flow(self.queues[queue as usize].flow);
            }
        }
        let blocked = workers.all_blocked();
        if !blocked {
            for flow in core::mem::take(&mut self.looked_at_blocked) {
                self.mark_flow(flow);
            }
        }
        for depth in (0..self.marked_flows.len()).rev() {
            while let Some(flow) = self.marked_flows[depth].pop() {
                self.look_at_flow(flow, blocked, workers, cx.requests);
            }
            while let Some(node) = self.marked_nodes[depth].pop() {
                self.look_at_node(node, blocked, cx);
            }
        }
    }

    /// Lets each marked queue watch what its head, and where a late flow may jump, its oldest request needs.
    fn watch_heads(&mut self, workers: &mut Workers, requests: &Requests) {
        for flow in self.marked_flows.iter().flatten() {
            let Flow { child, node, local, .. } = self.flows[*flow as usize];
            let Child::Queue(index) = child else { continue };
            let queue = &mut self.queues[index as usize];
            let oldest = match &self.nodes[node as usize].discipline {
                Discipline::Load(load) if load.bounds_wait() => load.oldest(local),
                _ => None,
            };
            for (role, slot) in [(Role::Head, queue.head()), (Role::Oldest, oldest)] {
                let want = slot.map(|slot| requests.get(slot).want);
                let watched = queue.watched[role as usize];
                if watched.map(|demand| workers.want_of(demand)) == want {
                    continue;
                }
                queue.watched[role as usize] =
                    want.map(|want| workers.watch(index, role, want, queue.busy));
                if let Some(demand) = watched {
                    workers.unwatch(index, role, demand);
                }
            }
        }
    }

    fn look_at_flow(&mut self, index: u32, blocked: bool, workers: &Workers, requests: &Requests) {
        let flow = &mut self.flows[index as usize];
        flow.marked = false;
        let mut oldest_open = true;
        flow.head = match flow.child {
            Child::Node(node) => self.nodes[node as usize].head,
            Child::Queue(queue) => {
                let queue = &self.queues[queue as usize];
                let open = |role: Role| {
                    queue.watched[role as usize].is_none_or(|demand| workers.told_open(demand))
                };
                oldest_open = open(Role::Oldest);
                queue.head().filter(|_| open(Role::Head)).map(|slot| head_of(slot, requests))
            }
        };
        let view = View {
            head: flow.head.filter(|_| !flow.held && !blocked),
            waiting: flow.waiting,
            flying: flow.flying,
            oldest_open,
        };
        if blocked && flow.head.is_some() {
            // What was told is from before; it is looked at again when a worker takes something.
            self.looked_at_blocked.insert(index);
        }
        let flow = &mut self.flows[index as usize];
        let (node, local) = (flow.node, flow.local);
        self.nodes[node as usize].arbiter().look(local, view);
        self.mark_node(node);
    }

    fn look_at_node(&mut self, index: u32, blocked: bool, cx: Context<'_>) {
        let node = &mut self.nodes[index as usize];
        node.marked = false;
        let arbiter = node.arbiter();
        arbiter.looked(blocked);
        let pick = arbiter.pick(cx);
        let head = pick.and_then(|pick| {
            let flow = node.locals[pick.flow as usize]?;
            match &node.discipline {
                Discipline::Load(load) if pick.oldest => {
                    load.oldest(pick.flow).map(|slot| head_of(slot, cx.requests))
                }
                _ => self.flows[flow as usize].head,
            }
        });
        let parent = node.parent;
        if core::mem::replace(&mut node.head, head) != head
            && let Some(parent) = parent
        {
            self.mark_flow(parent);
        }
    }
}

impl Flow {
    /// Whether what is inside had something to dispatch at the last look.
    pub(crate) fn has_head(&self) -> bool {
        self.head.is_some()
    }
}

impl NodeState {
    /// Whether the node had something to dispatch at the last look.
    pub(crate) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// The name of a flow by its number within the node.
    pub(crate) fn flow_name(&self, flow: Local, flows: &[Flow]) -> Option<Arc<str>> {
        self.locals[flow as usize].map(|flow| flows[flow as usize].name.clone())
    }

    pub(crate) fn arbiter(&mut self) -> &mut dyn Arbiter {
        match &mut self.discipline {
            Discipline::Drr(drr) => drr,
            Discipline::Share(share) => share,
            Discipline::Load(load) => load,
        }
    }
}

fn head_of(slot: Slot, requests: &Requests) -> Head {
    let request = requests.get(slot);
    Head { slot, seq: request.seq, cost: request.cost }
}

fn index_of(length: usize) -> u32 {
    u32::try_from(length).expect("fewer than 2^32 nodes, flows and queues")
}
