//! The policy tree at work: nodes, flows and queues, and the one way in which they tell each other.
//!
//! Every node keeps its *head*, what it would dispatch next. An event marks the flows that it touches; a *look* then
//! goes through the marks from the deepest level up: a marked flow shows its node what is inside it, and a node whose
//! head thereby changed marks the flow around it. Readiness is noticed only here, after a step is complete, as SPEC.md
//! has it. Each step costs one update of a ranking per level. The root is asked for its head only when a slot is free.
//!
//! Flows come into being with their first request and are forgotten when they carry nothing that their return would not
//! set anew (`forget.rs`), so places in the lists here are used again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::arbiter::{Arbiter, Context, Ended, Head, Local, Oldest, Pick, Touched, View};
use crate::attribute::{Attribute, Attributes};
use crate::drr::Drr;
use crate::level::{InsideLevel, Level};
use crate::load::Load;
use crate::meter::CapLoad;
use crate::names::{Names, hash_text};
use crate::policy::{BusyThresholds, Node, Policy};
use crate::queue::{Ageing, Queue};
use crate::ranking::Tournament;
use crate::requests::{Flight, Handle, Request, Requests, Seq};
use crate::share::Share;
use crate::units::{Micros, Ticks, Tokens, Weight};
use crate::workers::{Role, Workers};

/// A node's discipline with its state. It is asked which one it is at every step, so the tag is one that is simply read.
#[derive(Clone, Debug)]
#[repr(u8)]
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
    /// By name.
    pub(crate) flows: BTreeMap<Arc<str>, u32>,
    /// The flows by their number within the node; a drr class has none before its first request.
    pub(crate) locals: Vec<Option<u32>>,
    /// The flow in which the most wait, where the pool's queue is bounded.
    crowd: Tournament,
    /// Whether any class limits what may wait in it.
    pub(crate) has_limits: bool,
    by: Attribute,
    head: Option<Head>,
    /// Whether the head must be asked for again; only the root's is not asked for at once.
    stale: bool,
    marked: bool,
}

/// A flow of a node.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) name: Arc<str>,
    /// Its name's number, and its place in the list of flows of that name.
    pub(crate) named: u32,
    pub(crate) named_at: u32,
    pub(crate) node: u32,
    pub(crate) local: Local,
    pub(crate) child: Child,
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
    pub(crate) head: Option<Head>,
    marked: bool,
    /// Whether an operator holds it, and whether an event has set its cap: as its name says.
    pub(crate) held: bool,
    pub(crate) capped: bool,
    /// What its waiting requests add up to, where its class may limit it.
    pub(crate) input: u128,
    pub(crate) cached: u128,
    /// Its waiting requests in order of arrival, where a load node must know the oldest and no queue does.
    arrivals: Option<BTreeSet<(Seq, Handle)>>,
}

/// What is inside a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Child {
    Queue(u32),
    Node(u32),
}

/// A policy tree with everything that is in it.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<NodeState>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) free: Free,
    /// The flows by node and name.
    pub(crate) paths: HashTable<u32>,
    pub(crate) names: Names,
    pub(crate) load_nodes: BTreeSet<u32>,
    pub(crate) drr_nodes: BTreeSet<u32>,
    marked_flows: Vec<Vec<u32>>,
    marked_nodes: Vec<Vec<u32>>,
    /// Whether anything is marked.
    marked: bool,
    /// The flows that were looked at while no worker took anything, as not ready whatever they were told.
    looked_at_blocked: BTreeSet<u32>,
    /// When queues with a longest wait have another late request.
    timers: BTreeSet<(Micros, u32)>,
    /// Flows without requests, to be looked at by `forget.rs`, and nodes whose virtual time has risen.
    pub(crate) emptied: Vec<u32>,
    pub(crate) risen: Vec<u32>,
    /// Whether a path may have two flows of one name.
    repeats: bool,
    bounded: bool,
}

/// Places in the lists that may be used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Free {
    pub(crate) nodes: Vec<u32>,
    pub(crate) flows: Vec<u32>,
    pub(crate) queues: Vec<u32>,
}

pub(crate) const ROOT: u32 = 0;

/// Puts a value where one was forgotten, else at the end.
fn place<T>(list: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    match free.pop() {
        Some(index) => {
            list[index as usize] = value;
            index
        }
        None => {
            list.push(value);
            u32::try_from(list.len() - 1).expect("fewer than 2^32 nodes, flows and queues")
        }
    }
}

impl Tree {
    /// An empty tree. `bounded`: the pool's queue is, so the fullest flows must be known.
    pub(crate) fn new(policy: &Policy, busy: BusyThresholds, names: Names, bounded: bool) -> Self {
        let level = Level::new(policy.root());
        let depth = level.height();
        let mut tree = Self {
            nodes: Vec::new(),
            flows: Vec::new(),
            queues: Vec::new(),
            free: Free::default(),
            paths: HashTable::new(),
            names,
            load_nodes: BTreeSet::new(),
            drr_nodes: BTreeSet::new(),
            marked_flows: vec![Vec::new(); depth],
            marked_nodes: vec![Vec::new(); depth],
            marked: false,
            looked_at_blocked: BTreeSet::new(),
            timers: BTreeSet::new(),
            emptied: Vec::new(),
            risen: Vec::new(),
            repeats: level.repeats(&mut Vec::new()),
            bounded,
        };
        tree.add_node(level, None, 0, busy);
        tree
    }

    fn add_node(
        &mut self,
        level: Arc<Level>,
        parent: Option<u32>,
        depth: usize,
        busy: BusyThresholds,
    ) -> u32 {
        let by = level.node.by();
        let mut locals = Vec::new();
        let discipline = match &*level.node {
            Node::Share(share) => Discipline::Share(Share::new(share.partition)),
            Node::Load(load) => {
                Discipline::Load(Load::new(load.alpha, load.auto_tune, load.max_wait_ticks))
            }
            Node::Drr(drr) => {
                let said = |name: &str| {
                    self.names.find(by, name).and_then(|n| self.names.list[n as usize].said.weight)
                };
                let quanta =
                    drr.classes.iter().map(|class| said(&class.name).unwrap_or(class.quantum));
                locals.resize(drr.classes.len(), None);
                Discipline::Drr(Drr::new(quanta))
            }
        };
        let node = NodeState {
            has_limits: level.has_limits,
            by,
            level,
            discipline,
            parent,
            depth,
            busy,
            flows: BTreeMap::new(),
            locals,
            crowd: Tournament::default(),
            head: None,
            stale: false,
            marked: false,
        };
        let index = place(&mut self.nodes, &mut self.free.nodes, node);
        match self.nodes[index as usize].discipline {
            Discipline::Load(_) => self.load_nodes.insert(index),
            Discipline::Drr(_) => self.drr_nodes.insert(index),
            Discipline::Share(_) => false,
        };
        index
    }

    /// The flow of that name in a node, made where it is not there yet.
    pub(crate) fn flow(&mut self, node: u32, name: &str) -> u32 {
        let hash = hash_text(u64::from(node), name);
        match self.find_flow(node, name, hash) {
            Some(flow) => flow,
            None => self.add_flow(node, name, hash),
        }
    }

    fn find_flow(&self, node: u32, name: &str, hash: u64) -> Option<u32> {
        let is_it = |flow: &u32| {
            let flow = &self.flows[*flow as usize];
            flow.node == node && *flow.name == *name
        };
        self.paths.find(hash, is_it).copied()
    }

    fn add_flow(&mut self, node: u32, name: &str, hash: u64) -> u32 {
        let level = self.nodes[node as usize].level.clone();
        let named = self.names.intern(level.node.by(), name);
        let said = self.names.list[named as usize].said;
        let name = self.names.list[named as usize].text.clone();
        let state = &mut self.nodes[node as usize];
        let local = match &mut state.discipline {
            Discipline::Share(share) => {
                let (weight, cap) = level.share_of(&name).expect("a share node has weights");
                // What an event said of the cap counts over the whole pool; see `Name::at_cap`.
                let cap = if said.cap.is_some() { None } else { cap };
                share.add(&name, said.weight.unwrap_or(weight), cap)
            }
            Discipline::Load(load) => load.add(),
            Discipline::Drr(_) => level.class(&name).expect("a drr flow is one of the classes"),
        };
        let (depth, busy) = (state.depth + 1, level.busy(&name, state.busy));
        let is_load = matches!(state.discipline, Discipline::Load(_));
        let inside = level.inside(&name);
        let keeps_arrivals = is_load && matches!(inside, InsideLevel::Level(_));
        let flow = Flow {
            name: name.clone(),
            named,
            named_at: u32::try_from(self.names.list[named as usize].flows.len())
                .expect("fewer than 2^32 flows"),
            node,
            local,
            child: Child::Queue(0),
            waiting: 0,
            in_flight: 0,
            head: None,
            marked: false,
            held: said.held,
            capped: said.cap.is_some(),
            input: 0,
            cached: 0,
            arrivals: keeps_arrivals.then(BTreeSet::new),
        };
        let index = place(&mut self.flows, &mut self.free.flows, flow);
        self.flows[index as usize].child = match inside {
            InsideLevel::Queue(queue) => {
                let queue = Queue::new(*queue, busy, index);
                Child::Queue(place(&mut self.queues, &mut self.free.queues, queue))
            }
            InsideLevel::Level(inside) => {
                Child::Node(self.add_node(inside.clone(), Some(index), depth, busy))
            }
        };
        let state = &mut self.nodes[node as usize];
        if state.locals.len() <= local as usize {
            state.locals.resize(local as usize + 1, None);
        }
        state.locals[local as usize] = Some(index);
        state.flows.insert(name, index);
        self.names.list[named as usize].flows.push(index);
        let flows = &self.flows;
        self.paths.insert_unique(hash, index, |flow| path_hash(&flows[*flow as usize]));
        index
    }

    /// The queue that a request belongs to, with every flow on the way made.
    pub(crate) fn queue_for(&mut self, attributes: &Attributes) -> u32 {
        let mut node = ROOT;
        loop {
            // A flow of the name that the request states is there most often; only else the level is asked.
            let stated = attributes.get(self.nodes[node as usize].by);
            let known = stated
                .and_then(|name| self.find_flow(node, name, hash_text(u64::from(node), name)));
            let flow = match known {
                Some(flow) => flow,
                None => {
                    let level = self.nodes[node as usize].level.clone();
                    self.flow(node, level.flow_name(attributes))
                }
            };
            match self.flows[flow as usize].child {
                Child::Queue(queue) => return queue,
                Child::Node(inside) => node = inside,
            }
        }
    }

    /// The flow around another; none around the root's.
    pub(crate) fn around(&self, flow: u32) -> Option<u32> {
        self.nodes[self.flows[flow as usize].node as usize].parent
    }

    /// The flows around a queue, from the innermost to the root's.
    pub(crate) fn flows_around(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        let innermost = Some(self.queues[queue as usize].flow);
        core::iter::successors(innermost, |flow| self.around(*flow))
    }

    /// The names of a flow and those around it, from the root down.
    pub(crate) fn path(&self, flow: Option<u32>) -> Vec<Arc<str>> {
        let flows = core::iter::successors(flow, |flow| self.around(*flow));
        let mut path: Vec<_> = flows.map(|f| self.flows[f as usize].name.clone()).collect();
        path.reverse();
        path
    }

    /// A request starts to wait in its queue, the one that its path leads to.
    pub(crate) fn enter(
        &mut self,
        handle: Handle,
        queue: u32,
        requests: &mut Requests,
        now: Micros,
    ) {
        let state = &mut self.queues[queue as usize];
        state.push(handle, requests);
        let request = requests.get(handle);
        let innermost = state.flow;
        if state.ageing.is_some() || state.head() == Some(handle) {
            self.mark_flow(innermost);
        }
        let mut next = Some(innermost);
        while let Some(index) = next {
            let flow = &mut self.flows[index as usize];
            let before = flow.waiting;
            flow.waiting += 1;
            if let Some(arrivals) = &mut flow.arrivals {
                arrivals.insert((request.seq, handle));
            }
            let node = &mut self.nodes[flow.node as usize];
            if node.has_limits {
                flow.input += u128::from(request.input.0);
                flow.cached += u128::from(request.cached_best.0);
            }
            let needed = node.discipline.arrived(flow.local, request);
            next = node.parent;
            if needed || before == 0 {
                self.mark_flow(index);
            }
            if before == 0 {
                self.starts_to_wait(index, now);
            }
            if self.bounded {
                self.recount_crowd(index);
            }
        }
    }

    /// Something waits in a flow where nothing did, which is rare enough to be kept apart.
    #[inline(never)]
    fn starts_to_wait(&mut self, index: u32, now: Micros) {
        let Flow { named, in_flight, capped, .. } = self.flows[index as usize];
        self.names.list[named as usize].backlogged += 1;
        if capped {
            self.observe_cap(named, now);
        }
        if in_flight == 0 {
            self.wake(index);
        }
    }

    /// Nothing waits in a flow any more, which is rare enough to be kept apart.
    #[inline(never)]
    fn stops_waiting(&mut self, index: u32, now: Micros) {
        let Flow { named, in_flight, capped, .. } = self.flows[index as usize];
        self.names.list[named as usize].backlogged -= 1;
        if capped {
            self.observe_cap(named, now);
        }
        if in_flight == 0 {
            self.emptied.push(index);
        }
    }

    /// A request that waited leaves without being dispatched.
    pub(crate) fn leave(&mut self, handle: Handle, requests: &mut Requests, now: Micros) {
        let queue = &self.queues[requests.get(handle).queue as usize];
        let innermost = queue.flow;
        if queue.ageing.is_some() || queue.head() == Some(handle) {
            self.mark_flow(innermost);
        }
        self.take_out(handle, requests);
        let request = requests.get(handle);
        let mut next = Some(innermost);
        while let Some(index) = next {
            let flow = &mut self.flows[index as usize];
            let node = &mut self.nodes[flow.node as usize];
            next = node.parent;
            let needed = flow.take_waiting(node, handle, request);
            let remaining = flow.waiting;
            if needed || remaining == 0 {
                self.mark_flow(index);
            }
            self.counted_out(index, remaining, now);
        }
    }

    /// Takes a request out of its queue.
    #[inline]
    pub(crate) fn take_out(&mut self, handle: Handle, requests: &mut Requests) {
        let queue = requests.get(handle).queue;
        self.queues[queue as usize].remove(handle, requests);
    }

    /// A request that was taken out is dispatched: every level is charged. The flight gets the generations, innermost
    /// first.
    pub(crate) fn dispatch(
        &mut self,
        handle: Handle,
        request: &Request,
        flight: &mut Flight,
        now: Micros,
    ) {
        flight.charged = true;
        let mut next = Some(self.queues[request.queue as usize].flow);
        while let Some(index) = next {
            let flow = &mut self.flows[index as usize];
            flow.in_flight += 1;
            let node = &mut self.nodes[flow.node as usize];
            let before = node.discipline.virtual_time();
            flight.generations.push(node.discipline.charge(flow.local, request.cost));
            if node.discipline.virtual_time() != before && node.discipline.has_idle() {
                self.risen.push(flow.node);
            }
            next = node.parent;
            flow.take_waiting(node, handle, request);
            if !core::mem::replace(&mut flow.marked, true) {
                self.marked = true;
                self.marked_flows[node.depth].push(index);
            }
            let (remaining, capped) = (flow.waiting, flow.capped);
            if capped {
                self.count_for_name(index, request.queue, true, now);
            }
            self.counted_out(index, remaining, now);
        }
    }

    /// A request that is in flight already enters a new tree, where it is charged nothing.
    pub(crate) fn enter_in_flight(&mut self, queue: u32, now: Micros) {
        let mut next = Some(self.queues[queue as usize].flow);
        while let Some(flow) = next {
            let state = &mut self.flows[flow as usize];
            let was_empty = state.waiting == 0 && state.in_flight == 0;
            state.in_flight += 1;
            let (node, capped) = (state.node, state.capped);
            if was_empty {
                self.wake(flow);
            }
            if capped {
                self.count_for_name(flow, queue, true, now);
            }
            if let Discipline::Load(load) = &mut self.nodes[node as usize].discipline {
                load.begin();
            }
            self.mark_flow(flow);
            next = self.around(flow);
        }
    }

    /// A request in flight has ended, charged `used` tokens.
    pub(crate) fn land(&mut self, request: &Request, flight: &Flight, used: Tokens, now: Micros) {
        let mut generations = flight.generations.iter();
        let mut next = Some(self.queues[request.queue as usize].flow);
        while let Some(index) = next {
            let flow = &mut self.flows[index as usize];
            flow.in_flight -= 1;
            let node = &mut self.nodes[flow.node as usize];
            let touched = match flight.charged {
                true => {
                    let generation = generations.next().copied().unwrap_or_default();
                    let ended = Ended { cost: request.cost, used, generation };
                    node.discipline.settle(flow.local, ended)
                }
                false => Touched::Flow,
            };
            next = node.parent;
            let (node, capped) = (flow.node, flow.capped);
            if flow.waiting == 0 && flow.in_flight == 0 {
                self.emptied.push(index);
            }
            if capped {
                self.count_for_name(index, request.queue, false, now);
            }
            match touched {
                Touched::Flow => self.mark_flow(index),
                Touched::Node => self.mark_node(node),
                Touched::Nothing => {}
            }
        }
    }

    /// One request fewer waits in a flow.
    #[inline]
    fn counted_out(&mut self, index: u32, remaining: u32, now: Micros) {
        if remaining == 0 {
            self.stops_waiting(index, now);
        }
        if self.bounded {
            self.recount_crowd(index);
        }
    }

    /// Another number waits in a flow: another flow of its node may be the fullest. Only bounded pools ask.
    #[inline(never)]
    fn recount_crowd(&mut self, index: u32) {
        let Flow { node, local, .. } = self.flows[index as usize];
        let NodeState { crowd, locals, .. } = &mut self.nodes[node as usize];
        let flows = &self.flows;
        let of = |local: u32| {
            let flow = locals.get(local as usize).copied().flatten()?;
            Some(&flows[flow as usize]).filter(|flow| flow.waiting > 0)
        };
        crowd.changed(local, |a, b| match (of(a), of(b)) {
            (Some(left), Some(right)) => {
                let left_first = left.waiting > right.waiting
                    || (left.waiting == right.waiting && left.name <= right.name);
                Some(if left_first { a } else { b })
            }
            (Some(_), None) => Some(a),
            (None, Some(_)) => Some(b),
            (None, None) => None,
        });
    }

    /// The flow of a node in which the most wait, ties to the first by name.
    pub(crate) fn fullest(&self, node: u32) -> Option<u32> {
        let node = &self.nodes[node as usize];
        node.locals[node.crowd.first()? as usize]
    }

    /// One more or less is in flight in a flow whose cap an event has set: where that reaches or leaves the cap, all
    /// flows of its name may turn ready or stop being so.
    fn count_for_name(&mut self, flow: u32, queue: u32, more: bool, now: Micros) {
        let named = self.flows[flow as usize].named;
        if !self.is_innermost_of_name(flow, queue) {
            return;
        }
        let name = &mut self.names.list[named as usize];
        name.in_flight = if more { name.in_flight + 1 } else { name.in_flight - 1 };
        let higher = if more { name.in_flight } else { name.in_flight + 1 };
        if name.said.cap.flatten() == Some(higher) {
            self.mark_named(named);
        }
        self.observe_cap(named, now);
    }

    /// Whether this is the innermost flow of its name on a path: a request counts once for a name.
    fn is_innermost_of_name(&self, flow: u32, queue: u32) -> bool {
        let named = self.flows[flow as usize].named;
        !self.repeats
            || self.flows_around(queue).find(|f| self.flows[*f as usize].named == named)
                == Some(flow)
    }

    fn observe_cap(&mut self, named: u32, now: Micros) {
        let name = &mut self.names.list[named as usize];
        if let Some(cap) = name.said.cap {
            let waits = name.backlogged > 0;
            name.cap_meter.observe(now, CapLoad { in_flight: name.in_flight, cap, waits });
        }
    }

    /// A flow that was without requests has one again.
    fn wake(&mut self, flow: u32) {
        let Flow { node, local, .. } = self.flows[flow as usize];
        if let Discipline::Share(share) = &mut self.nodes[node as usize].discipline {
            share.wake(local);
        }
    }

    /// A flow will be looked at again.
    pub(crate) fn mark_flow(&mut self, flow: u32) {
        let state = &mut self.flows[flow as usize];
        if !state.marked {
            state.marked = true;
            self.marked = true;
            let depth = self.nodes[state.node as usize].depth;
            self.marked_flows[depth].push(flow);
        }
    }

    /// Another flow of a node may go next. The root is asked when a slot is free, and needs no mark for that.
    fn mark_node(&mut self, node: u32) {
        let state = &mut self.nodes[node as usize];
        if state.parent.is_none() {
            state.stale = true;
        } else if !state.marked {
            state.marked = true;
            self.marked = true;
            self.marked_nodes[state.depth].push(node);
        }
    }

    /// The tick counter has risen: every load node takes one step.
    pub(crate) fn tick(&mut self, ticks: Ticks) {
        if self.load_nodes.is_empty() {
            return;
        }
        let mut from = 0;
        while let Some(node) = self.load_nodes.range(from..).next().copied() {
            from = node + 1;
            let state = &mut self.nodes[node as usize];
            state.arbiter().tick(ticks);
            // Time alone gives nothing that is not ready a head.
            if state.stale || state.head.is_some() {
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
        for flow in self.live_flows() {
            if matches!(self.flows[flow as usize].child, Child::Queue(_)) {
                self.mark_flow(flow);
            }
        }
    }

    /// Every flow that is there, in no order.
    pub(crate) fn live_flows(&self) -> Vec<u32> {
        let mut flows = Vec::new();
        let mut nodes = vec![ROOT];
        while let Some(node) = nodes.pop() {
            for flow in self.nodes[node as usize].flows.values() {
                flows.push(*flow);
                if let Child::Node(inside) = self.flows[*flow as usize].child {
                    nodes.push(inside);
                }
            }
        }
        flows
    }

    /// Whether a queue will have another late request.
    pub(crate) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// When a queue next has another late request.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Time goes on: queues in which a request has become late are looked at.
    pub(crate) fn advance(&mut self, now: Micros) {
        while let Some((_, queue)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            if let Some(ageing) = &mut self.queues[queue as usize].ageing {
                ageing.due = None;
            }
            self.mark_flow(self.queues[queue as usize].flow);
        }
    }

    /// A flow with a queue inside is forgotten: nothing will ask for it any more.
    pub(crate) fn drop_marks(&mut self, flow: u32, queue: Option<u32>) {
        self.looked_at_blocked.remove(&flow);
        let Some(queue) = queue else { return };
        let ageing = self.queues[queue as usize].ageing.as_mut();
        if let Some(due) = ageing.and_then(|ageing| ageing.due.take()) {
            self.timers.remove(&(due, queue));
        }
    }

    /// Holds a flow, or lets it go on, wherever it is and will be.
    pub(crate) fn set_held(&mut self, by: Attribute, name: &str, held: bool) {
        let named = self.names.intern(by, name);
        self.names.list[named as usize].said.held = held;
        for i in 0..self.names.list[named as usize].flows.len() {
            let flow = self.names.list[named as usize].flows[i];
            self.flows[flow as usize].held = held;
        }
        self.mark_named(named);
        self.names.tidy(named);
    }

    /// Changes a flow's weight, wherever it is and will be.
    pub(crate) fn reweigh(&mut self, by: Attribute, name: &str, weight: Weight) {
        let named = self.names.intern(by, name);
        self.names.list[named as usize].said.weight = Some(weight);
        for flow in self.names.list[named as usize].flows.clone() {
            let Flow { node, local, waiting, in_flight, .. } = self.flows[flow as usize];
            self.nodes[node as usize].arbiter().reweigh(local, weight);
            if waiting == 0 && in_flight == 0 {
                self.emptied.push(flow);
            }
        }
        self.mark_named(named);
        // A drr class has its quantum before it has a flow.
        let nodes: Vec<u32> = self.drr_nodes.iter().copied().collect();
        for node in nodes {
            let node = &mut self.nodes[node as usize];
            let class = node.level.class(name).filter(|_| node.level.node.by() == by);
            if let (Discipline::Drr(drr), Some(class)) = (&mut node.discipline, class)
                && node.locals[class as usize].is_none()
            {
                drr.reweigh(class, weight);
            }
        }
    }

    /// Changes a flow's cap, wherever it is and will be. From its first such event on, what is in flight is counted over
    /// all flows of the name.
    pub(crate) fn recap(
        &mut self,
        by: Attribute,
        name: &str,
        cap: Option<u64>,
        requests: &Requests,
        now: Micros,
    ) {
        let named = self.names.intern(by, name);
        if self.names.list[named as usize].said.cap.is_none() {
            let is_of_name = |handle: &Handle| {
                let mut path = self.flows_around(requests.get(*handle).queue);
                path.any(|flow| self.flows[flow as usize].named == named)
            };
            let count = requests.handles_in_flight().iter().filter(|h| is_of_name(h)).count();
            self.names.list[named as usize].in_flight = count as u64;
        }
        self.names.list[named as usize].said.cap = Some(cap);
        for i in 0..self.names.list[named as usize].flows.len() {
            let flow = self.names.list[named as usize].flows[i];
            let Flow { node, local, .. } = self.flows[flow as usize];
            self.flows[flow as usize].capped = true;
            if let Discipline::Share(share) = &mut self.nodes[node as usize].discipline {
                let state = &mut share.flows[local as usize];
                state.cap = None;
                state.cap_meter.observe(now, CapLoad::default());
            }
        }
        self.observe_cap(named, now);
        self.mark_named(named);
    }

    fn mark_named(&mut self, named: u32) {
        for i in 0..self.names.list[named as usize].flows.len() {
            self.mark_flow(self.names.list[named as usize].flows[i]);
        }
    }

    /// Whether anything is to be looked at.
    pub(crate) fn is_marked(&self, workers: &Workers) -> bool {
        if self.marked || !workers.named {
            return self.marked;
        }
        let waits_for_worker = !self.looked_at_blocked.is_empty() || workers.has_news();
        waits_for_worker && !workers.all_blocked()
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
        if !blocked && !self.looked_at_blocked.is_empty() {
            for flow in core::mem::take(&mut self.looked_at_blocked) {
                self.mark_flow(flow);
            }
        }
        for depth in (0..self.marked_flows.len()).rev() {
            // In the order of marking: flows that start to wait together were marked in the order of arrival.
            let mut i = 0;
            while let Some(flow) = self.marked_flows[depth].get(i).copied() {
                self.look_at_flow(flow, blocked, workers, cx);
                i += 1;
            }
            self.marked_flows[depth].clear();
            if depth == 0 && i > 0 {
                self.nodes[ROOT as usize].arbiter().looked(blocked);
            }
            while let Some(node) = self.marked_nodes[depth].pop() {
                self.look_at_node(node, blocked, cx);
            }
        }
        self.marked = false;
    }

    /// Lets each marked queue watch what its head needs, and what those need that may become its head by their age.
    fn watch_heads(&mut self, workers: &mut Workers, requests: &Requests) {
        for flow in self.marked_flows.iter().flatten() {
            let Flow { child, node, .. } = self.flows[*flow as usize];
            let Child::Queue(index) = child else { continue };
            let queue = &mut self.queues[index as usize];
            let oldest = match &self.nodes[node as usize].discipline {
                Discipline::Load(load) if load.bounds_wait() => queue.oldest(),
                _ => None,
            };
            for (role, handle) in [(Role::Head, queue.head()), (Role::Oldest, oldest)] {
                let want = handle.map(|handle| requests.get(handle).want);
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
            if let Some(ageing) = &mut queue.ageing {
                for want in ageing.by_want.keys() {
                    let watch = || workers.watch(index, Role::Ageing, *want, queue.busy);
                    ageing.watched.entry(*want).or_insert_with(watch);
                }
                let by_want = &ageing.by_want;
                ageing.watched.retain(|want, demand| {
                    let kept = by_want.contains_key(want);
                    if !kept {
                        workers.unwatch(index, Role::Ageing, *demand);
                    }
                    kept
                });
            }
        }
    }

    fn look_at_flow(&mut self, index: u32, blocked: bool, workers: &Workers, cx: Context<'_>) {
        let flow = &mut self.flows[index as usize];
        flow.marked = false;
        let (head, oldest_open) = match flow.child {
            Child::Node(node) => (self.nodes[node as usize].head, true),
            Child::Queue(number) => {
                let queue = &mut self.queues[number as usize];
                if let Some(ageing) = &mut queue.ageing {
                    set_timer(&mut self.timers, number, ageing, cx);
                }
                let open = |role: Role| {
                    queue.watched[role as usize].is_none_or(|demand| workers.told_open(demand))
                };
                (queue_head(queue, open(Role::Head), workers, cx), open(Role::Oldest))
            }
        };
        flow.head = head;
        if blocked && head.is_some() {
            // What queues were told is from before; they are looked at again when a worker frees up.
            self.looked_at_blocked.insert(index);
        }
        let node = &mut self.nodes[flow.node as usize];
        let Flow { local, waiting, in_flight, .. } = *flow;
        let (at_cap, oldest) = match &node.discipline {
            Discipline::Share(_) if flow.capped => {
                (self.names.list[flow.named as usize].at_cap() == Some(true), None)
            }
            Discipline::Share(share) => (share.flows[local as usize].at_cap(in_flight), None),
            Discipline::Load(_) => (false, oldest(flow, &self.queues, cx)),
            Discipline::Drr(_) => (false, None),
        };
        let head = head.filter(|_| !flow.held && !blocked && !at_cap);
        let view = View { head, waiting, in_flight, oldest, oldest_open };
        node.arbiter().look(local, view, cx);
        let node = flow.node;
        self.mark_node(node);
    }

    fn look_at_node(&mut self, index: u32, blocked: bool, cx: Context<'_>) {
        let node = &mut self.nodes[index as usize];
        node.marked = false;
        node.arbiter().looked(blocked);
        let Some(parent) = node.parent else { return };
        let head = self.ask(index, cx);
        let node = &mut self.nodes[index as usize];
        if core::mem::replace(&mut node.head, head) != head {
            self.mark_flow(parent);
        }
    }

    /// What a node would dispatch next.
    fn ask(&mut self, index: u32, cx: Context<'_>) -> Option<Head> {
        let node = &mut self.nodes[index as usize];
        let pick = node.arbiter().pick(cx)?;
        let flow = node.locals[pick.flow as usize]?;
        match pick.late {
            Some(oldest) => Some(head_of(oldest, cx.requests)),
            None => self.flows[flow as usize].head,
        }
    }

    /// What the tree would dispatch next, as of the last look.
    pub(crate) fn head(&mut self, cx: Context<'_>) -> Option<Head> {
        if core::mem::take(&mut self.nodes[ROOT as usize].stale) {
            self.nodes[ROOT as usize].head = self.ask(ROOT, cx);
        }
        self.nodes[ROOT as usize].head
    }
}

/// A queue with a longest wait is entered among the timers as it is now.
fn set_timer(
    timers: &mut BTreeSet<(Micros, u32)>,
    queue: u32,
    ageing: &mut Ageing,
    cx: Context<'_>,
) {
    let due = ageing.next_due(cx.now, cx.requests);
    let before = core::mem::replace(&mut ageing.due, due);
    if before != due {
        if let Some(before) = before {
            timers.remove(&(before, queue));
        }
        if let Some(due) = due {
            timers.insert((due, queue));
        }
    }
}

/// What a queue would dispatch: its oldest late request that has an open place, else its first where that has one.
fn queue_head(queue: &Queue, open: bool, workers: &Workers, cx: Context<'_>) -> Option<Head> {
    let late = queue.ageing.as_ref().and_then(|ageing| {
        let is_open =
            |want| ageing.watched.get(&want).is_none_or(|demand| workers.told_open(*demand));
        queue.late(cx.now, cx.requests, is_open)
    });
    let head = late.or_else(|| queue.head().filter(|_| open))?;
    Some(head_of(head, cx.requests))
}

fn oldest(flow: &Flow, queues: &[Queue], cx: Context<'_>) -> Option<Oldest> {
    let handle = match (flow.child, &flow.arrivals) {
        (Child::Queue(queue), _) => queues[queue as usize].oldest()?,
        (Child::Node(_), arrivals) => arrivals.as_ref()?.first()?.1,
    };
    let request = cx.requests.get(handle);
    Some(Oldest { request: handle, seq: request.seq, tick: request.tick })
}

impl Flow {
    /// A request no longer waits in it. Says whether it must be looked at even where its head is the same.
    #[inline]
    fn take_waiting(&mut self, node: &mut NodeState, handle: Handle, request: &Request) -> bool {
        self.waiting -= 1;
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.remove(&(request.seq, handle));
        }
        if node.has_limits {
            self.input -= u128::from(request.input.0);
            self.cached -= u128::from(request.cached_best.0);
        }
        node.discipline.left(self.local, request, self.waiting)
    }
}

/// The hash under which a flow is found.
pub(crate) fn path_hash(flow: &Flow) -> u64 {
    hash_text(u64::from(flow.node), &flow.name)
}

impl NodeState {
    /// Whether the node had something to dispatch at the last look; the root's is not asked for at once.
    pub(crate) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// The name of a flow by its number within the node.
    pub(crate) fn flow_name(&self, flow: Local, flows: &[Flow]) -> Option<Arc<str>> {
        self.locals[flow as usize].map(|flow| flows[flow as usize].name.clone())
    }

    /// The discipline, whatever it is.
    pub(crate) fn arbiter(&mut self) -> &mut Discipline {
        &mut self.discipline
    }
}

/// Calls a method of whichever discipline it is; spelled out, so that the compiler sees which one.
macro_rules! delegate {
    ($self:ident, $discipline:ident => $call:expr) => {
        match $self {
            Self::Drr($discipline) => $call,
            Self::Share($discipline) => $call,
            Self::Load($discipline) => $call,
        }
    };
}

impl Arbiter for Discipline {
    fn arrived(&mut self, flow: Local, request: &Request) -> bool {
        delegate!(self, it => it.arrived(flow, request))
    }

    fn left(&mut self, flow: Local, request: &Request, remaining: u32) -> bool {
        delegate!(self, it => it.left(flow, request, remaining))
    }

    fn look(&mut self, flow: Local, view: View, cx: Context<'_>) {
        delegate!(self, it => it.look(flow, view, cx));
    }

    fn looked(&mut self, blocked: bool) {
        delegate!(self, it => it.looked(blocked));
    }

    fn pick(&mut self, cx: Context<'_>) -> Option<Pick> {
        delegate!(self, it => it.pick(cx))
    }

    fn charge(&mut self, flow: Local, cost: Tokens) -> u64 {
        delegate!(self, it => it.charge(flow, cost))
    }

    fn settle(&mut self, flow: Local, ended: Ended) -> Touched {
        delegate!(self, it => it.settle(flow, ended))
    }

    fn tick(&mut self, ticks: Ticks) {
        delegate!(self, it => it.tick(ticks));
    }

    fn reweigh(&mut self, flow: Local, weight: Weight) {
        delegate!(self, it => it.reweigh(flow, weight));
    }
}

impl Discipline {
    fn has_idle(&self) -> bool {
        matches!(self, Self::Share(share) if share.has_idle())
    }

    fn virtual_time(&self) -> u128 {
        match self {
            Self::Share(share) => share.virtual_time,
            _ => 0,
        }
    }
}

fn head_of(handle: Handle, requests: &Requests) -> Head {
    let request = requests.get(handle);
    Head { request: handle, seq: request.seq, cost: request.cost }
}
