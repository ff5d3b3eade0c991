//! The policy tree at work: nodes, flows and queues, and the propagation of changes between them.
//!
//! Every node keeps its *head*, the request that it would dispatch next. An event marks the flows that it touches. A
//! *look* then goes through the marks from the deepest level up: a marked flow reports its inside to its node, and a
//! node whose head changed marks the flow around it. Readiness changes only in a look, after a step is complete, as the
//! specification requires. Each step costs one update of a ranking per level. The root computes its head only when a
//! slot is free.
//!
//! Flows are created with their first request. A flow is forgotten when all its state would be reset on its return
//! (`forget.rs`), and its index in the lists here is reused.
//!
//! After a look, the head of every node is the request that its discipline would dispatch. There is one exception:
//! while no head in the whole pool has an open worker, the closing of demands is not reported, because nothing can be
//! granted. So the two readers of heads (granting and explaining) call `PoolWorkers::all_blocked` first. Trees are at
//! most 64 levels deep.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::arbiter::{
    Arbiter, ArbiterContext, EndedRequest, FlowHead, FlowPick, FlowUpdate, LocalFlow,
    OldestRequest, SettleEffect,
};
use crate::attribute::{Attribute, Attributes};
use crate::bands::BandsState;
use crate::drr::DrrState;
use crate::flow_names::{FlowNames, hash_text};
use crate::load::LoadState;
use crate::meter::CapLoad;
use crate::policy::{BandClass, BusyThresholds, Policy, PolicyNode};
use crate::policy_level::{InsideLevel, PolicyLevel};
use crate::queue::{MaxWaitState, RequestQueue};
use crate::ranking::TournamentTree;
use crate::requests::{InFlightState, PoolRequestState, RequestHandle, RequestTable, SubmitSeq};
use crate::share::ShareState;
use crate::units::{Micros, Ticks, Tokens, Weight};
use crate::workers::{ChangedDemand, DemandWatcher, PoolWorkers, WatchRole};

/// The discipline of a node with its state. Every step matches on the kind of discipline, so the tag is stored plainly
/// (`repr(u8)`), which makes the match a simple read.
#[derive(Clone, Debug)]
#[repr(u8)]
pub(crate) enum Discipline {
    Drr(DrrState),
    Share(ShareState),
    Load(LoadState),
    Bands(BandsState),
}

/// A node of the policy tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeNode {
    pub(crate) level: Arc<PolicyLevel>,
    pub(crate) discipline: Discipline,
    /// The flow that the node is inside of; `None` for the root.
    pub(crate) parent: Option<u32>,
    depth: usize,
    busy: BusyThresholds,
    /// The node's flows, by name.
    pub(crate) flows: BTreeMap<Arc<str>, u32>,
    /// The index of each flow in the tree, by the flow's index within the node. `None` if the flow was forgotten, and
    /// for a drr or bands class before its first request.
    pub(crate) locals: Vec<Option<u32>>,
    /// Finds the flow with the most waiting requests. Only kept up to date if the pool's queue is bounded.
    fullest_flow: TournamentTree,
    /// True if any class limits the requests or tokens that may wait in it.
    pub(crate) has_limits: bool,
    by: Attribute,
    head: Option<FlowHead>,
    /// True if the head must be computed again. Only the root delays this until a slot is free.
    stale: bool,
    marked: bool,
}

/// A flow of a node, with its counters and its head.
#[derive(Clone, Debug)]
pub(crate) struct TreeFlow {
    pub(crate) name: Arc<str>,
    /// Number of the flow's name in [`PolicyTree::names`].
    pub(crate) name_number: u32,
    /// Index of the flow in its name's list of flows.
    pub(crate) index_in_name: u32,
    pub(crate) node: u32,
    pub(crate) local: LocalFlow,
    pub(crate) child: FlowChild,
    pub(crate) waiting: u32,
    pub(crate) in_flight: u32,
    pub(crate) head: Option<FlowHead>,
    marked: bool,
    /// True if an operator holds all flows with this flow's name.
    pub(crate) held: bool,
    /// True if an event has set the cap of all flows with this flow's name.
    pub(crate) capped: bool,
    /// Summed input tokens of the flow's waiting requests. Only kept if a class of the node has limits.
    pub(crate) input: u128,
    /// Summed cached tokens of the flow's waiting requests. Only kept if a class of the node has limits.
    pub(crate) cached: u128,
    /// The flow's waiting requests in order of arrival. Only kept if the flow's node is a load node, which must know
    /// the oldest request, and another node is inside the flow, so that no single queue has all its requests.
    arrivals: Option<BTreeSet<(SubmitSeq, RequestHandle)>>,
}

/// The inside of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowChild {
    Queue(u32),
    Node(u32),
}

/// A policy tree with all its requests.
#[derive(Clone, Debug)]
pub(crate) struct PolicyTree {
    pub(crate) nodes: Vec<TreeNode>,
    pub(crate) flows: Vec<TreeFlow>,
    pub(crate) queues: Vec<RequestQueue>,
    pub(crate) free: FreeIndexes,
    /// The flows, found by their node and name.
    pub(crate) paths: HashTable<u32>,
    pub(crate) names: FlowNames,
    pub(crate) load_nodes: BTreeSet<u32>,
    pub(crate) drr_nodes: BTreeSet<u32>,
    marks: Marks,
    /// The flows that were looked at while no queue's head in the pool had an open worker. These flows counted as not
    /// ready, whatever was last reported about their demands.
    looked_at_blocked: BTreeSet<u32>,
    /// The times at which another request becomes late in a queue with a longest wait, each with the queue.
    timers: BTreeSet<(Micros, u32)>,
    /// Flows that may have no requests left, for `forget.rs` to check.
    pub(crate) emptied: Vec<u32>,
    /// Nodes whose virtual time has risen, for `forget.rs` to check.
    pub(crate) risen: Vec<u32>,
    /// True if two flows on one path may have the same name, because two levels divide service by the same attribute.
    repeats: bool,
    bounded: bool,
}

/// The flows and nodes that the next look must visit. Flows of the root are marked most often, so they have a list of
/// their own.
#[derive(Clone, Debug)]
struct Marks {
    /// True if any flow or node is marked.
    any: bool,
    /// True if any flow or node below the root is marked.
    any_below: bool,
    root_flows: Vec<u32>,
    /// The marked flows of nodes below the root, in one list per depth. The list of depth 0, the root, stays empty.
    flows: Vec<Vec<u32>>,
    /// The marked nodes below the root, in one list per depth.
    nodes: Vec<Vec<u32>>,
}

impl Marks {
    fn new(depth: usize) -> Self {
        let lists = vec![Vec::new(); depth];
        Self {
            any: false,
            any_below: false,
            root_flows: Vec::new(),
            flows: lists.clone(),
            nodes: lists,
        }
    }

    /// Marks a flow, so that the next look visits it.
    #[inline]
    fn flow(&mut self, index: u32, flow: &mut TreeFlow, depth: usize) {
        if !core::mem::replace(&mut flow.marked, true) {
            self.any = true;
            if depth == 0 {
                self.root_flows.push(index);
            } else {
                self.any_below = true;
                self.flows[depth].push(index);
            }
        }
    }

    /// Marks a node because it may now pick another flow. The root only becomes stale, because it picks when a slot is
    /// free.
    #[inline]
    fn node(&mut self, index: u32, node: &mut TreeNode) {
        if node.parent.is_none() {
            node.stale = true;
        } else if !core::mem::replace(&mut node.marked, true) {
            self.any = true;
            self.any_below = true;
            self.nodes[node.depth].push(index);
        }
    }

    /// Returns the marked flows, from the root down.
    fn all_flows(&self) -> impl Iterator<Item = &u32> {
        self.root_flows.iter().chain(self.flows.iter().flatten())
    }
}

/// Free indexes of the lists of nodes, flows and queues, to be reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeIndexes {
    pub(crate) nodes: Vec<u32>,
    pub(crate) flows: Vec<u32>,
    pub(crate) queues: Vec<u32>,
}

pub(crate) const ROOT: u32 = 0;

/// Stores a value at a free index of a list, or at its end, and returns the index.
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

impl PolicyTree {
    /// Creates an empty tree. If `bounded` is true, the pool's queue has a limit, and nodes keep track of their fullest
    /// flows.
    pub(crate) fn new(
        policy: &Policy,
        busy: BusyThresholds,
        names: FlowNames,
        bounded: bool,
    ) -> Self {
        let level = PolicyLevel::new(policy.root());
        let depth = level.height();
        let mut tree = Self {
            nodes: Vec::new(),
            flows: Vec::new(),
            queues: Vec::new(),
            free: FreeIndexes::default(),
            paths: HashTable::new(),
            names,
            load_nodes: BTreeSet::new(),
            drr_nodes: BTreeSet::new(),
            marks: Marks::new(depth),
            looked_at_blocked: BTreeSet::new(),
            timers: BTreeSet::new(),
            emptied: Vec::new(),
            risen: Vec::new(),
            repeats: level.has_repeated_attribute(&mut Vec::new()),
            bounded,
        };
        tree.add_node(level, None, 0, busy);
        tree
    }

    fn add_node(
        &mut self,
        level: Arc<PolicyLevel>,
        parent: Option<u32>,
        depth: usize,
        busy: BusyThresholds,
    ) -> u32 {
        let by = level.node.by();
        let mut locals = Vec::new();
        let discipline = match &*level.node {
            PolicyNode::Share(share) => Discipline::Share(ShareState::new(share.partition)),
            PolicyNode::Load(load) => {
                Discipline::Load(LoadState::new(load.alpha, load.auto_tune, load.max_wait_ticks))
            }
            PolicyNode::Drr(drr) => {
                let event_weight = |name: &str| {
                    self.names
                        .find(by, name)
                        .and_then(|n| self.names.list[n as usize].directive.weight)
                };
                let quanta = drr
                    .classes
                    .iter()
                    .map(|class| event_weight(&class.name).unwrap_or(class.quantum));
                locals.resize(drr.classes.len(), None);
                Discipline::Drr(DrrState::new(quanta))
            }
            PolicyNode::Bands(bands) => {
                // A cap set by an event counts over the whole pool; see `FlowName::at_cap`.
                let is_set = |name: &str| {
                    let named = self.names.find(by, name);
                    named.is_some_and(|n| self.names.list[n as usize].directive.cap.is_some())
                };
                let own = |class: &BandClass| class.cap.filter(|_| !is_set(&class.name));
                locals.resize(bands.classes.len(), None);
                Discipline::Bands(BandsState::new(bands.classes.iter().map(own)))
            }
        };
        let node = TreeNode {
            has_limits: level.has_limits,
            by,
            level,
            discipline,
            parent,
            depth,
            busy,
            flows: BTreeMap::new(),
            locals,
            fullest_flow: TournamentTree::default(),
            head: None,
            stale: false,
            marked: false,
        };
        let index = place(&mut self.nodes, &mut self.free.nodes, node);
        match self.nodes[index as usize].discipline {
            Discipline::Load(_) => self.load_nodes.insert(index),
            Discipline::Drr(_) => self.drr_nodes.insert(index),
            Discipline::Share(_) | Discipline::Bands(_) => false,
        };
        index
    }

    /// Returns the flow with this name in a node, and creates it if there is none.
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

    #[inline(never)]
    fn add_flow(&mut self, node: u32, name: &str, hash: u64) -> u32 {
        let level = self.nodes[node as usize].level.clone();
        let named = self.names.intern(level.node.by(), name);
        let directive = self.names.list[named as usize].directive;
        let name = self.names.list[named as usize].text.clone();
        let state = &mut self.nodes[node as usize];
        let local = match &mut state.discipline {
            Discipline::Share(share) => {
                let weight = level.weight(&name).expect("a share node has weights");
                // A cap set by an event counts over the whole pool; see `FlowName::at_cap`.
                let cap = if directive.cap.is_some() { None } else { level.cap(&name) };
                share.add(&name, directive.weight.unwrap_or(weight), cap)
            }
            Discipline::Load(load) => load.add(),
            Discipline::Drr(_) => level.class(&name).expect("the flow is one of the classes"),
            Discipline::Bands(bands) => {
                let class = level.class(&name).expect("the flow is one of the classes");
                // The event may have come after the node was created and before the class had its first request.
                if directive.cap.is_some() {
                    bands.classes[class as usize].cap = None;
                }
                class
            }
        };
        let (depth, busy) = (state.depth + 1, level.busy(&name, state.busy));
        let is_load = matches!(state.discipline, Discipline::Load(_));
        let inside = level.inside(&name);
        let keeps_arrivals = is_load && matches!(inside, InsideLevel::Level(_));
        // A flow of a partitioned root is not grouped, because the division of slots depends on which flows are ready.
        let is_grouped = matches!(&*level.node, PolicyNode::Share(share) if !share.partition);
        let flow = TreeFlow {
            name: name.clone(),
            name_number: named,
            index_in_name: u32::try_from(self.names.list[named as usize].flows.len())
                .expect("fewer than 2^32 flows"),
            node,
            local,
            child: FlowChild::Queue(0),
            waiting: 0,
            in_flight: 0,
            head: None,
            marked: false,
            held: directive.held,
            capped: directive.cap.is_some(),
            input: 0,
            cached: 0,
            arrivals: keeps_arrivals.then(BTreeSet::new),
        };
        let index = place(&mut self.flows, &mut self.free.flows, flow);
        self.flows[index as usize].child = match inside {
            InsideLevel::Queue(queue) => {
                let mut queue = RequestQueue::new(*queue, busy, index);
                queue.is_grouped = is_grouped && queue.ageing.is_none();
                FlowChild::Queue(place(&mut self.queues, &mut self.free.queues, queue))
            }
            InsideLevel::Level(inside) => {
                FlowChild::Node(self.add_node(inside.clone(), Some(index), depth, busy))
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

    /// Returns the queue that a request belongs to; creates every missing flow on the path.
    pub(crate) fn queue_for(&mut self, attributes: &Attributes) -> u32 {
        let mut node = ROOT;
        loop {
            // The flow that the request names usually exists. Only if it does not, the policy level is consulted.
            let stated = attributes.get(self.nodes[node as usize].by);
            let known = stated
                .and_then(|name| self.find_flow(node, name, hash_text(u64::from(node), name)));
            let flow = match known {
                Some(flow) => flow,
                None => self.flow_of(node, attributes),
            };
            match self.flows[flow as usize].child {
                FlowChild::Queue(queue) => return queue,
                FlowChild::Node(inside) => node = inside,
            }
        }
    }

    /// Returns the flow of a node to which a request with these attributes belongs, and creates it if there is none.
    #[inline(never)]
    fn flow_of(&mut self, node: u32, attributes: &Attributes) -> u32 {
        let level = self.nodes[node as usize].level.clone();
        self.flow(node, level.flow_name(attributes))
    }

    /// Returns the flow that contains the node of another flow; `None` for a flow of the root.
    pub(crate) fn parent_flow(&self, flow: u32) -> Option<u32> {
        self.nodes[self.flows[flow as usize].node as usize].parent
    }

    /// Returns the flows around a queue, from the innermost to the root's.
    pub(crate) fn flows_around(&self, queue: u32) -> impl Iterator<Item = u32> + '_ {
        let innermost = Some(self.queues[queue as usize].flow);
        core::iter::successors(innermost, |flow| self.parent_flow(*flow))
    }

    /// Returns the names of a flow and of all flows around it, from the root down.
    pub(crate) fn path(&self, flow: Option<u32>) -> Vec<Arc<str>> {
        let flows = core::iter::successors(flow, |flow| self.parent_flow(*flow));
        let mut path: Vec<_> = flows.map(|f| self.flows[f as usize].name.clone()).collect();
        path.reverse();
        path
    }

    /// Adds a new request, which starts to wait in its queue. The request is linked to its neighbours before it is
    /// stored, so that it need not be looked up again.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        mut request: PoolRequestState,
        requests: &mut RequestTable,
        now: Micros,
    ) -> RequestHandle {
        let handle = requests.next_handle();
        let queue = &mut self.queues[request.queue as usize];
        let (last, is_filed) = queue.append(handle, request.priority, requests);
        request.queue_prev = last;
        let mut entered = requests.enter(handle, request);
        if is_filed {
            queue.file(handle, requests);
            entered = requests.get(handle);
        }
        let (flow, is_shown) = (queue.flow, queue.shows(handle));
        self.arrive(handle, entered, flow, is_shown, now);
        handle
    }

    /// Makes a request that is already in the table wait in this queue, to which its path leads.
    pub(crate) fn enter(
        &mut self,
        handle: RequestHandle,
        queue: u32,
        requests: &mut RequestTable,
        now: Micros,
    ) {
        let queue = &mut self.queues[queue as usize];
        queue.push(handle, requests);
        let (flow, is_shown) = (queue.flow, queue.shows(handle));
        self.arrive(handle, requests.get(handle), flow, is_shown, now);
    }

    /// Counts a newly arrived request in the innermost flow, whose queue it entered, and in the flows around that flow.
    #[inline]
    fn arrive(
        &mut self,
        handle: RequestHandle,
        request: &PoolRequestState,
        innermost: u32,
        is_shown: bool,
        now: Micros,
    ) {
        if is_shown {
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
                self.marks.flow(index, flow, node.depth);
            }
            if before == 0 {
                self.starts_to_wait(index, now);
            }
            if self.bounded {
                self.update_fullest_flow(index);
            }
        }
    }

    /// Updates counters when the first request starts to wait in a flow. This is rare enough to be a separate function.
    #[inline(never)]
    fn starts_to_wait(&mut self, index: u32, now: Micros) {
        let TreeFlow { name_number: named, in_flight, capped, .. } = self.flows[index as usize];
        self.names.list[named as usize].backlogged += 1;
        if capped {
            self.observe_cap(named, now);
        }
        if in_flight == 0 {
            self.wake(index);
        }
    }

    /// Updates counters when the last waiting request of a flow has left. This is rare enough to be a separate
    /// function.
    #[inline(never)]
    fn stops_waiting(&mut self, index: u32, now: Micros) {
        let TreeFlow { name_number: named, in_flight, capped, .. } = self.flows[index as usize];
        self.names.list[named as usize].backlogged -= 1;
        if capped {
            self.observe_cap(named, now);
        }
        if in_flight == 0 {
            self.emptied.push(index);
        }
    }

    /// Removes a waiting request that is cancelled, expired or rejected.
    pub(crate) fn leave(
        &mut self,
        handle: RequestHandle,
        requests: &mut RequestTable,
        now: Micros,
    ) {
        let queue = &self.queues[requests.get(handle).queue as usize];
        let innermost = queue.flow;
        if queue.shows(handle) {
            self.mark_flow(innermost);
        }
        let links = requests.get(handle).links();
        self.queues[links.queue as usize].remove(handle, links, requests);
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
            self.after_request_left(index, remaining, now);
        }
    }

    /// Dispatches a waiting request, which leaves its queue and is charged at every level. Stores the generations of
    /// its flows, innermost first, in the state of the request in flight.
    #[inline]
    pub(crate) fn dispatch<'a>(
        &mut self,
        handle: RequestHandle,
        requests: &'a mut RequestTable,
        now: Micros,
    ) -> (&'a PoolRequestState, &'a mut InFlightState) {
        let links = requests.get(handle).links();
        let queue = &mut self.queues[links.queue as usize];
        let mut next = Some(queue.flow);
        queue.remove(handle, links, requests);
        requests.unlink(handle, links);
        let (request, flight) = requests.put_in_flight(handle);
        flight.charged = true;
        while let Some(index) = next {
            let flow = &mut self.flows[index as usize];
            flow.in_flight += 1;
            let node = &mut self.nodes[flow.node as usize];
            let (generation, has_risen) = node.discipline.charge_at(flow.local, request.cost);
            flight.generations.push(generation);
            if has_risen {
                self.risen.push(flow.node);
            }
            next = node.parent;
            flow.take_waiting(node, handle, request);
            self.marks.flow(index, flow, node.depth);
            let (remaining, capped) = (flow.waiting, flow.capped);
            if capped {
                self.count_for_name(index, links.queue, true, now);
            }
            self.after_request_left(index, remaining, now);
        }
        (request, flight)
    }

    /// Adds a request in flight to a new tree, which does not charge it.
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
                load.mark_begun();
            }
            self.mark_flow(flow);
            next = self.parent_flow(flow);
        }
    }

    /// Ends a request in flight, whose final charge is `used` tokens.
    pub(crate) fn end_request(
        &mut self,
        request: &PoolRequestState,
        flight: &InFlightState,
        used: Tokens,
        now: Micros,
    ) {
        let mut generations = flight.generations.iter();
        let mut next = Some(self.queues[request.queue as usize].flow);
        while let Some(index) = next {
            let flow = &mut self.flows[index as usize];
            flow.in_flight -= 1;
            let node = &mut self.nodes[flow.node as usize];
            let touched = match flight.charged {
                true => {
                    let generation = generations.next().copied().unwrap_or_default();
                    let ended = EndedRequest { cost: request.cost, used, generation };
                    node.discipline.settle(flow.local, ended)
                }
                false => SettleEffect::Flow,
            };
            next = node.parent;
            if flow.waiting == 0 && flow.in_flight == 0 {
                self.emptied.push(index);
            }
            if flow.capped {
                self.count_for_name(index, request.queue, false, now);
                self.mark_touched(index, touched);
                continue;
            }
            match touched {
                SettleEffect::Flow => self.marks.flow(index, flow, node.depth),
                SettleEffect::Node => self.marks.node(flow.node, node),
                SettleEffect::Nothing => {}
            }
        }
    }

    fn mark_touched(&mut self, flow: u32, touched: SettleEffect) {
        match touched {
            SettleEffect::Flow => self.mark_flow(flow),
            SettleEffect::Node => self.mark_node(self.flows[flow as usize].node),
            SettleEffect::Nothing => {}
        }
    }

    /// Updates counters after a request has stopped waiting in a flow, in which `remaining` requests still wait.
    #[inline]
    fn after_request_left(&mut self, index: u32, remaining: u32, now: Micros) {
        if remaining == 0 {
            self.stops_waiting(index, now);
        }
        if self.bounded {
            self.update_fullest_flow(index);
        }
    }

    /// Updates the fullest flow of a node after the number of waiting requests of one of its flows changed. Only
    /// bounded pools need this.
    #[inline(never)]
    fn update_fullest_flow(&mut self, index: u32) {
        let TreeFlow { node, local, .. } = self.flows[index as usize];
        let TreeNode { fullest_flow, locals, .. } = &mut self.nodes[node as usize];
        let flows = &self.flows;
        let of = |local: u32| {
            let flow = locals.get(local as usize).copied().flatten()?;
            Some(&flows[flow as usize]).filter(|flow| flow.waiting > 0)
        };
        fullest_flow.changed(local, |a, b| match (of(a), of(b)) {
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

    /// Returns the flow of a node with the most waiting requests; ties go to the first flow by name.
    pub(crate) fn fullest(&self, node: u32) -> Option<u32> {
        let node = &self.nodes[node as usize];
        node.locals[node.fullest_flow.first()? as usize]
    }

    /// Counts one request more or less in flight for a flow name whose cap an event has set. If the count thereby
    /// reaches or leaves the cap, marks all flows with the name, because they may become ready or stop being ready.
    fn count_for_name(&mut self, flow: u32, queue: u32, more: bool, now: Micros) {
        let named = self.flows[flow as usize].name_number;
        if !self.is_innermost_of_name(flow, queue) {
            return;
        }
        let name = &mut self.names.list[named as usize];
        name.in_flight = if more { name.in_flight + 1 } else { name.in_flight - 1 };
        let higher = if more { name.in_flight } else { name.in_flight + 1 };
        if name.directive.cap.flatten() == Some(higher) {
            self.mark_named(named);
        }
        self.observe_cap(named, now);
    }

    /// Returns true if this is the innermost flow with its name on the path to a queue. Only that flow counts a request
    /// for the name, so that each request counts once.
    fn is_innermost_of_name(&self, flow: u32, queue: u32) -> bool {
        let named = self.flows[flow as usize].name_number;
        !self.repeats
            || self.flows_around(queue).find(|f| self.flows[*f as usize].name_number == named)
                == Some(flow)
    }

    fn observe_cap(&mut self, named: u32, now: Micros) {
        let name = &mut self.names.list[named as usize];
        if let Some(cap) = name.directive.cap {
            let waits = name.backlogged > 0;
            name.cap_meter.observe(now, CapLoad { in_flight: name.in_flight, cap, waits });
        }
    }

    /// Marks a flow as no longer idle, because it has a request again.
    fn wake(&mut self, flow: u32) {
        let TreeFlow { node, local, .. } = self.flows[flow as usize];
        if let Discipline::Share(share) = &mut self.nodes[node as usize].discipline {
            share.wake(local);
        }
    }

    /// Marks a flow, so that the next look visits it.
    pub(crate) fn mark_flow(&mut self, flow: u32) {
        let state = &mut self.flows[flow as usize];
        self.marks.flow(flow, state, self.nodes[state.node as usize].depth);
    }

    /// Marks a node, because it may now pick another flow.
    fn mark_node(&mut self, node: u32) {
        self.marks.node(node, &mut self.nodes[node as usize]);
    }

    /// Reports a new tick count to every load node. Marks each node that has a ready flow, because it may now pick
    /// another flow.
    pub(crate) fn tick(&mut self, ticks: Ticks) {
        if self.load_nodes.is_empty() {
            return;
        }
        let mut from = 0;
        while let Some(node) = self.load_nodes.range(from..).next().copied() {
            from = node + 1;
            let state = &mut self.nodes[node as usize];
            state.arbiter().tick(ticks);
            // The passing of ticks cannot give a head to a node without ready flows.
            if state.stale || state.head.is_some() {
                self.mark_node(node);
            }
        }
    }

    /// Marks the root after the pool's capacity changed, because a partitioned root divides the capacity among its
    /// flows.
    pub(crate) fn capacity_changed(&mut self) {
        self.mark_node(ROOT);
    }

    /// Marks every queue, because each may have become ready or blocked.
    pub(crate) fn mark_all_queues(&mut self) {
        for flow in self.live_flows() {
            if matches!(self.flows[flow as usize].child, FlowChild::Queue(_)) {
                self.mark_flow(flow);
            }
        }
    }

    /// Returns every flow that exists. Callers must not depend on the order.
    pub(crate) fn live_flows(&self) -> Vec<u32> {
        let mut flows = Vec::new();
        let mut nodes = vec![ROOT];
        while let Some(node) = nodes.pop() {
            for flow in self.nodes[node as usize].flows.values() {
                flows.push(*flow);
                if let FlowChild::Node(inside) = self.flows[*flow as usize].child {
                    nodes.push(inside);
                }
            }
        }
        flows
    }

    /// Returns true if a waiting request will become late in a queue with a longest wait.
    pub(crate) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Returns the next time at which a request becomes late in a queue with a longest wait; `None` if no request will.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Advances the time, and marks the queues in which a request has become late.
    pub(crate) fn advance(&mut self, now: Micros) {
        while let Some((_, queue)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            if let Some(ageing) = &mut self.queues[queue as usize].ageing {
                ageing.due = None;
            }
            self.mark_flow(self.queues[queue as usize].flow);
        }
    }

    /// Removes a forgotten flow from the list of flows looked at while blocked. Also removes the timer of its queue, if
    /// `queue` names one.
    pub(crate) fn drop_marks(&mut self, flow: u32, queue: Option<u32>) {
        self.looked_at_blocked.remove(&flow);
        let Some(queue) = queue else { return };
        let ageing = self.queues[queue as usize].ageing.as_mut();
        if let Some(due) = ageing.and_then(|ageing| ageing.due.take()) {
            self.timers.remove(&(due, queue));
        }
    }

    /// Holds a flow, or lets it continue. This applies to all present and future flows with the name.
    pub(crate) fn set_held(&mut self, by: Attribute, name: &str, held: bool) {
        let named = self.names.intern(by, name);
        self.names.list[named as usize].directive.held = held;
        for i in 0..self.names.list[named as usize].flows.len() {
            let flow = self.names.list[named as usize].flows[i];
            self.flows[flow as usize].held = held;
        }
        self.mark_named(named);
        self.names.forget_if_unused(named);
    }

    /// Changes the weight of a flow. This applies to all present and future flows with the name.
    pub(crate) fn set_weight(&mut self, by: Attribute, name: &str, weight: Weight) {
        let named = self.names.intern(by, name);
        self.names.list[named as usize].directive.weight = Some(weight);
        for flow in self.names.list[named as usize].flows.clone() {
            let TreeFlow { node, local, waiting, in_flight, .. } = self.flows[flow as usize];
            self.nodes[node as usize].arbiter().set_weight(local, weight);
            if waiting == 0 && in_flight == 0 {
                self.emptied.push(flow);
            }
        }
        self.mark_named(named);
        // A drr class has its quantum even before its flow exists.
        let nodes: Vec<u32> = self.drr_nodes.iter().copied().collect();
        for node in nodes {
            let node = &mut self.nodes[node as usize];
            let class = node.level.class(name).filter(|_| node.level.node.by() == by);
            if let (Discipline::Drr(drr), Some(class)) = (&mut node.discipline, class)
                && node.locals[class as usize].is_none()
            {
                drr.set_weight(class, weight);
            }
        }
    }

    /// Changes the cap of a flow. This applies to all present and future flows with the name. From the first such event
    /// on, requests in flight are counted over all flows with the name.
    pub(crate) fn set_cap(
        &mut self,
        by: Attribute,
        name: &str,
        cap: Option<u64>,
        requests: &RequestTable,
        now: Micros,
    ) {
        let named = self.names.intern(by, name);
        if self.names.list[named as usize].directive.cap.is_none() {
            let is_of_name = |handle: &RequestHandle| {
                let mut path = self.flows_around(requests.get(*handle).queue);
                path.any(|flow| self.flows[flow as usize].name_number == named)
            };
            let count = requests.handles_in_flight().iter().filter(|h| is_of_name(h)).count();
            self.names.list[named as usize].in_flight = count as u64;
        }
        self.names.list[named as usize].directive.cap = Some(cap);
        for i in 0..self.names.list[named as usize].flows.len() {
            let flow = self.names.list[named as usize].flows[i];
            let TreeFlow { node, local, .. } = self.flows[flow as usize];
            self.flows[flow as usize].capped = true;
            let (cap, meter) = match &mut self.nodes[node as usize].discipline {
                Discipline::Share(share) => {
                    let state = &mut share.flows[local as usize];
                    (&mut state.cap, &mut state.cap_meter)
                }
                Discipline::Bands(bands) => {
                    let state = &mut bands.classes[local as usize];
                    (&mut state.cap, &mut state.cap_meter)
                }
                Discipline::Drr(_) | Discipline::Load(_) => continue,
            };
            *cap = None;
            meter.observe(now, CapLoad::default());
        }
        self.observe_cap(named, now);
        self.mark_named(named);
    }

    fn mark_named(&mut self, named: u32) {
        for i in 0..self.names.list[named as usize].flows.len() {
            self.mark_flow(self.names.list[named as usize].flows[i]);
        }
    }

    /// Returns true if a look is needed, because a flow or node is marked or a demand has opened or closed.
    pub(crate) fn is_marked(&self, workers: &PoolWorkers) -> bool {
        if self.marks.any || !workers.has_workers {
            return self.marks.any;
        }
        let waits_for_worker =
            !self.looked_at_blocked.is_empty() || workers.has_unreported_demands();
        waits_for_worker && !workers.all_blocked()
    }

    /// Brings heads and readiness up to date with everything that has changed since the last look, from the queues up.
    #[inline(never)]
    pub(crate) fn look(&mut self, workers: &mut PoolWorkers, cx: ArbiterContext<'_>) {
        if workers.has_workers {
            self.update_watched_demands(workers, cx.requests);
        }
        let blocked = workers.all_blocked();
        if self.marks.any_below {
            self.look_below(blocked, workers, cx);
        }
        // Visits flows in the order of marking, because flows that start to wait together were marked in order of
        // arrival.
        let mut i = 0;
        while let Some(flow) = self.marks.root_flows.get(i).copied() {
            self.look_at_flow(flow, blocked, workers, cx);
            i += 1;
        }
        if i > 0 {
            self.nodes[ROOT as usize].arbiter().looked(blocked);
        }
        self.marks.root_flows.clear();
        self.marks.any = false;
    }

    /// Visits the marked flows and nodes below the root, the deepest first.
    #[inline(never)]
    fn look_below(&mut self, blocked: bool, workers: &PoolWorkers, cx: ArbiterContext<'_>) {
        for depth in (1..self.marks.flows.len()).rev() {
            let mut i = 0;
            while let Some(flow) = self.marks.flows[depth].get(i).copied() {
                self.look_at_flow(flow, blocked, workers, cx);
                i += 1;
            }
            self.marks.flows[depth].clear();
            while let Some(node) = self.marks.nodes[depth].pop() {
                self.look_at_node(node, blocked, cx);
            }
        }
        self.marks.any_below = false;
    }

    /// Updates the demands that queues watch, and marks the queues whose demand has opened or closed. Only needed in a
    /// pool with workers.
    #[inline(never)]
    fn update_watched_demands(&mut self, workers: &mut PoolWorkers, requests: &RequestTable) {
        self.watch_heads(workers, requests);
        for changed in workers.take_changed_demands() {
            self.apply_changed_demand(changed);
        }
        if !workers.all_blocked() {
            for flow in core::mem::take(&mut self.looked_at_blocked) {
                self.mark_flow(flow);
            }
        }
    }

    /// Applies the opening or closing of a demand. Marks the queues that watch the demand. Nodes that watch the demand
    /// for queues inside them update the flows of these queues.
    fn apply_changed_demand(&mut self, changed: ChangedDemand) {
        for queue in changed.queues {
            self.mark_flow(self.queues[queue as usize].flow);
        }
        for node in changed.nodes {
            let state = &mut self.nodes[node as usize];
            let Discipline::Share(share) = &mut state.discipline else { continue };
            for local in share.change_demand(changed.demand, changed.is_open) {
                if let Some(flow) = self.nodes[node as usize].locals[local as usize] {
                    self.mark_flow(flow);
                }
            }
            self.mark_node(node);
        }
    }

    /// Makes each marked queue watch the demand of its head, and the demands of requests that may go first because of
    /// their age.
    fn watch_heads(&mut self, workers: &mut PoolWorkers, requests: &RequestTable) {
        for flow in self.marks.all_flows() {
            let TreeFlow { child, node, local, .. } = self.flows[*flow as usize];
            let FlowChild::Queue(index) = child else { continue };
            let queue = &mut self.queues[index as usize];
            let discipline = &mut self.nodes[node as usize].discipline;
            let oldest = match discipline {
                Discipline::Load(load) if load.has_max_wait() => queue.oldest(),
                _ => None,
            };
            for (role, handle) in [(WatchRole::Head, queue.head()), (WatchRole::Oldest, oldest)] {
                let want = handle.map(|handle| requests.get(handle).want);
                let watched = queue.watched[role as usize];
                if watched.map(|demand| workers.want_of(demand)) == want {
                    continue;
                }
                let group = match discipline {
                    Discipline::Share(share) if queue.is_grouped => Some(share),
                    _ => None,
                };
                let watcher = match group {
                    Some(_) => DemandWatcher::Node(node),
                    None => DemandWatcher::Queue(index, role),
                };
                let demand = want.map(|want| workers.watch(watcher, want, queue.busy));
                queue.watched[role as usize] = demand;
                if let Some(share) = group {
                    share.unwatch(local);
                    if let Some(demand) = demand {
                        share.watch(local, demand, workers.is_reported_open(demand));
                    }
                }
                if let Some(demand) = watched {
                    workers.unwatch(watcher, demand);
                }
            }
            if let Some(ageing) = &mut queue.ageing {
                for want in ageing.by_want.keys() {
                    let watcher = DemandWatcher::Queue(index, WatchRole::Ageing);
                    let watch = || workers.watch(watcher, *want, queue.busy);
                    ageing.watched.entry(*want).or_insert_with(watch);
                }
                let by_want = &ageing.by_want;
                ageing.watched.retain(|want, demand| {
                    let kept = by_want.contains_key(want);
                    if !kept {
                        workers.unwatch(DemandWatcher::Queue(index, WatchRole::Ageing), *demand);
                    }
                    kept
                });
            }
        }
    }

    #[inline(always)]
    fn look_at_flow(
        &mut self,
        index: u32,
        blocked: bool,
        workers: &PoolWorkers,
        cx: ArbiterContext<'_>,
    ) {
        let flow = &mut self.flows[index as usize];
        flow.marked = false;
        // Without workers and without a longest wait, the first request of a queue is its head and every demand is
        // open.
        let mut facts = QueueWorkerFacts { oldest_open: true, may_join: false };
        match flow.child {
            FlowChild::Node(node) => flow.head = self.nodes[node as usize].head,
            FlowChild::Queue(number) => {
                let queue = &mut self.queues[number as usize];
                if workers.has_workers || queue.ageing.is_some() {
                    facts = look_into(queue, number, flow, &mut self.timers, workers, cx);
                } else {
                    flow.head = queue.head().map(|head| head_of(head, cx.requests));
                }
            }
        }
        let QueueWorkerFacts { oldest_open, may_join } = facts;
        let flow = &*flow;
        if blocked && flow.head.is_some() {
            // The demand's last report to the queue may be outdated, so the flow is looked at again when a worker frees
            // up.
            self.looked_at_blocked.insert(index);
        }
        let node = &mut self.nodes[flow.node as usize];
        let TreeFlow { local, waiting, in_flight, .. } = *flow;
        let view = |at_cap: bool, oldest: Option<OldestRequest>| {
            let is_kept = flow.held || at_cap;
            let head = flow.head.filter(|_| !blocked && !is_kept);
            FlowUpdate { head, waiting, in_flight, oldest, oldest_open, is_kept, may_join }
        };
        let capped_name = flow.capped.then_some(flow.name_number);
        match &mut node.discipline {
            Discipline::Bands(bands) => {
                let at_cap = match capped_name {
                    Some(named) => self.names.list[named as usize].at_cap() == Some(true),
                    None => bands.classes[local as usize].at_cap(in_flight),
                };
                bands.look(local, view(at_cap, None), cx);
            }
            Discipline::Share(share) => {
                let at_cap = match capped_name {
                    Some(named) => self.names.list[named as usize].at_cap() == Some(true),
                    None => share.flows[local as usize].at_cap(in_flight),
                };
                share.look(local, view(at_cap, None), cx);
            }
            Discipline::Load(load) => {
                load.look(local, view(false, oldest(flow, &self.queues, cx)), cx);
            }
            Discipline::Drr(drr) => drr.look(local, view(false, None), cx),
        }
        self.marks.node(flow.node, node);
    }

    fn look_at_node(&mut self, index: u32, blocked: bool, cx: ArbiterContext<'_>) {
        let node = &mut self.nodes[index as usize];
        node.marked = false;
        node.arbiter().looked(blocked);
        let Some(parent) = node.parent else { return };
        let head = self.compute_head(index, cx);
        let node = &mut self.nodes[index as usize];
        if core::mem::replace(&mut node.head, head) != head {
            self.mark_flow(parent);
        }
    }

    /// Computes the request that a node would dispatch next; `None` if none of its flows is ready.
    fn compute_head(&mut self, index: u32, cx: ArbiterContext<'_>) -> Option<FlowHead> {
        let node = &mut self.nodes[index as usize];
        let pick = node.arbiter().pick(cx)?;
        let flow = node.locals[pick.flow as usize]?;
        match pick.late {
            Some(oldest) => Some(head_of(oldest, cx.requests)),
            None => self.flows[flow as usize].head,
        }
    }

    /// Returns the request that the tree would dispatch next, as of the last look; `None` if no flow of the root is
    /// ready.
    pub(crate) fn head(&mut self, cx: ArbiterContext<'_>) -> Option<FlowHead> {
        if core::mem::take(&mut self.nodes[ROOT as usize].stale) {
            self.nodes[ROOT as usize].head = self.compute_head(ROOT, cx);
        }
        self.nodes[ROOT as usize].head
    }
}

/// The facts about workers that a look finds out for a queue.
struct QueueWorkerFacts {
    oldest_open: bool,
    may_join: bool,
}

/// Computes the head of a flow from the queue inside it. Used only if the queue's requests need workers or may become
/// late.
#[inline(never)]
fn look_into(
    queue: &mut RequestQueue,
    number: u32,
    flow: &mut TreeFlow,
    timers: &mut BTreeSet<(Micros, u32)>,
    workers: &PoolWorkers,
    cx: ArbiterContext<'_>,
) -> QueueWorkerFacts {
    if let Some(ageing) = &mut queue.ageing {
        set_timer(timers, number, ageing, cx);
    }
    let open = |role: WatchRole| {
        queue.watched[role as usize].is_none_or(|demand| workers.is_reported_open(demand))
    };
    flow.head = queue_head(queue, open(WatchRole::Head), workers, cx);
    QueueWorkerFacts {
        oldest_open: open(WatchRole::Oldest),
        may_join: queue.is_grouped && workers.has_several_demands(),
    }
}

/// Updates the timer of a queue with a longest wait.
fn set_timer(
    timers: &mut BTreeSet<(Micros, u32)>,
    queue: u32,
    ageing: &mut MaxWaitState,
    cx: ArbiterContext<'_>,
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

/// Returns the request that a queue would dispatch: its oldest late request with an open worker, otherwise the first in
/// the queue's order if that request has an open worker, otherwise `None`.
fn queue_head(
    queue: &RequestQueue,
    open: bool,
    workers: &PoolWorkers,
    cx: ArbiterContext<'_>,
) -> Option<FlowHead> {
    let late = queue.ageing.as_ref().and_then(|ageing| {
        let is_open =
            |want| ageing.watched.get(&want).is_none_or(|demand| workers.is_reported_open(*demand));
        queue.late(cx.now, cx.requests, is_open)
    });
    let head = late.or_else(|| queue.head().filter(|_| open))?;
    Some(head_of(head, cx.requests))
}

fn oldest(
    flow: &TreeFlow,
    queues: &[RequestQueue],
    cx: ArbiterContext<'_>,
) -> Option<OldestRequest> {
    let handle = match (flow.child, &flow.arrivals) {
        (FlowChild::Queue(queue), _) => queues[queue as usize].oldest()?,
        (FlowChild::Node(_), arrivals) => arrivals.as_ref()?.first()?.1,
    };
    let request = cx.requests.get(handle);
    Some(OldestRequest { request: handle, seq: request.seq, tick: request.tick })
}

impl TreeFlow {
    /// Subtracts a request that no longer waits from the counters of the flow. Returns true if the flow must be looked
    /// at even if its head stays the same.
    #[inline]
    fn take_waiting(
        &mut self,
        node: &mut TreeNode,
        handle: RequestHandle,
        request: &PoolRequestState,
    ) -> bool {
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

/// Returns the hash under which `PolicyTree::paths` stores a flow.
pub(crate) fn path_hash(flow: &TreeFlow) -> u64 {
    hash_text(u64::from(flow.node), &flow.name)
}

impl TreeNode {
    /// Returns true if the node had a request to dispatch at the last look. The root's answer may be outdated.
    pub(crate) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Returns the name of a flow, given its index within the node.
    pub(crate) fn flow_name(&self, flow: LocalFlow, flows: &[TreeFlow]) -> Option<Arc<str>> {
        self.locals[flow as usize].map(|flow| flows[flow as usize].name.clone())
    }

    /// Returns the names of the classes that go after this class; `None` outside of bands nodes.
    pub(crate) fn goes_before(&self, class: LocalFlow) -> Option<Vec<Arc<str>>> {
        let Discipline::Bands(_) = self.discipline else { return None };
        Some(self.level.class_names().skip(class as usize + 1).map(Arc::from).collect())
    }

    /// Returns the discipline, on which the methods of [`Arbiter`] are called.
    pub(crate) fn arbiter(&mut self) -> &mut Discipline {
        &mut self.discipline
    }
}

/// Calls a method of the discipline. The macro matches on the kind of discipline, so that the compiler knows the
/// concrete type.
macro_rules! delegate {
    ($self:ident, $discipline:ident => $call:expr) => {
        match $self {
            Self::Drr($discipline) => $call,
            Self::Share($discipline) => $call,
            Self::Load($discipline) => $call,
            Self::Bands($discipline) => $call,
        }
    };
}

impl Arbiter for Discipline {
    #[inline]
    fn arrived(&mut self, flow: LocalFlow, request: &PoolRequestState) -> bool {
        delegate!(self, it => it.arrived(flow, request))
    }

    #[inline]
    fn left(&mut self, flow: LocalFlow, request: &PoolRequestState, remaining: u32) -> bool {
        delegate!(self, it => it.left(flow, request, remaining))
    }

    fn look(&mut self, flow: LocalFlow, view: FlowUpdate, cx: ArbiterContext<'_>) {
        delegate!(self, it => it.look(flow, view, cx));
    }

    fn looked(&mut self, blocked: bool) {
        delegate!(self, it => it.looked(blocked));
    }

    fn pick(&mut self, cx: ArbiterContext<'_>) -> Option<FlowPick> {
        delegate!(self, it => it.pick(cx))
    }

    fn charge(&mut self, flow: LocalFlow, cost: Tokens) -> u64 {
        delegate!(self, it => it.charge(flow, cost))
    }

    fn settle(&mut self, flow: LocalFlow, ended: EndedRequest) -> SettleEffect {
        delegate!(self, it => it.settle(flow, ended))
    }

    fn tick(&mut self, ticks: Ticks) {
        delegate!(self, it => it.tick(ticks));
    }

    fn set_weight(&mut self, flow: LocalFlow, weight: Weight) {
        delegate!(self, it => it.set_weight(flow, weight));
    }
}

impl Discipline {
    /// Charges a flow for a grant. Returns the flow's generation. Also returns true if virtual time has risen and the
    /// node remembers idle flows.
    #[inline]
    fn charge_at(&mut self, flow: LocalFlow, cost: Tokens) -> (u64, bool) {
        match self {
            Self::Share(share) => {
                let before = share.virtual_time;
                let generation = share.charge(flow, cost);
                (generation, share.virtual_time != before && share.has_idle())
            }
            Self::Drr(drr) => (drr.charge(flow, cost), false),
            Self::Load(load) => (load.charge(flow, cost), false),
            Self::Bands(bands) => (bands.charge(flow, cost), false),
        }
    }
}

fn head_of(handle: RequestHandle, requests: &RequestTable) -> FlowHead {
    let request = requests.get(handle);
    FlowHead { request: handle, seq: request.seq, cost: request.cost }
}
