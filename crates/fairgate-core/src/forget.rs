//! Forgets flows that hold no state, so that names seen once cost no memory.
//!
//! A flow is forgotten if it has no requests, its node would reset it on its return, and its inside equals a new copy.
//! A node resets every load, drr or bands flow, and a share flow whose score is 0 or below virtual time. Forgetting
//! such a flow cannot change a decision, but its meter is lost. Call a flow *listed* if the policy lists it or an event
//! gave it a weight or a cap. A flow with a used meter is kept if the flow and all flows around it are listed. There
//! are few such flows, and their meters are worth keeping. Flows of load nodes have no meter that counts here.
//!
//! The set of remembered flows follows from the events alone, so replicas agree on it and snapshots are equal.
//!
//! Three kinds of flows without requests are kept because of their state. A share flow is kept until virtual time has
//! passed its score, because the score must exist when the flow returns. A flow with a drr node inside is kept once the
//! cursor of that node has moved. A flow with an `auto_tune` load node inside is kept once that node had a request. All
//! other flows are forgotten when they are idle, unless their meters are kept as above.

use crate::queue::RequestQueue;
use crate::tree::{Discipline, FlowChild, PolicyTree, ROOT, path_hash};
use crate::workers::{DemandWatcher, PoolWorkers, WatchRole};

impl PolicyTree {
    /// Returns true if a flow may have become empty since the last [`PolicyTree::forget`].
    pub(crate) fn has_emptied(&self) -> bool {
        !self.emptied.is_empty() || !self.risen.is_empty()
    }

    /// Checks the flows that may have become empty since the last call, and forgets those without state.
    pub(crate) fn forget(&mut self, workers: &mut PoolWorkers) {
        while let Some(node) = self.risen.pop() {
            while let Some(flow) = self.pop_passed(node) {
                self.emptied.push(flow);
            }
        }
        while let Some(flow) = self.emptied.pop() {
            if self.is_remembered(flow) && self.is_empty(flow) && self.is_forgettable(flow) {
                self.forget_flow(flow, workers);
            }
        }
    }

    fn pop_passed(&mut self, node: u32) -> Option<u32> {
        let node = &mut self.nodes[node as usize];
        let Discipline::Share(share) = &mut node.discipline else { return None };
        let local = share.pop_passed()?;
        node.locals[local as usize]
    }

    /// Returns true if a flow has not been forgotten yet. The list of emptied flows may contain a flow more than once.
    fn is_remembered(&self, flow: u32) -> bool {
        let state = &self.flows[flow as usize];
        let node = &self.nodes[state.node as usize];
        node.flows.get(&state.name) == Some(&flow)
    }

    fn is_empty(&self, flow: u32) -> bool {
        let state = &self.flows[flow as usize];
        state.waiting == 0 && state.in_flight == 0
    }

    fn is_forgettable(&mut self, flow: u32) -> bool {
        let state = &self.flows[flow as usize];
        let (node, local) = (state.node as usize, state.local);
        let is_fresh = match state.child {
            FlowChild::Queue(_) => true,
            FlowChild::Node(inside) => self.is_fresh(inside),
        };
        let is_metered = match &self.nodes[node].discipline {
            Discipline::Share(share) => share.flows[local as usize].is_metered(),
            Discipline::Drr(drr) => drr.classes[local as usize].meter.is_used(),
            Discipline::Bands(bands) => bands.classes[local as usize].is_metered(),
            Discipline::Load(_) => false,
        };
        if !is_fresh || (is_metered && self.is_listed_path(flow)) {
            return false;
        }
        match &mut self.nodes[node].discipline {
            Discipline::Share(share) => share.is_forgettable(local),
            Discipline::Drr(_) | Discipline::Load(_) | Discipline::Bands(_) => true,
        }
    }

    /// Returns true if a flow and all flows around it are listed in the policy or have a weight or a cap from an event.
    fn is_listed_path(&self, flow: u32) -> bool {
        core::iter::successors(Some(flow), |flow| self.parent_flow(*flow)).all(|flow| {
            let state = &self.flows[flow as usize];
            let directive = self.names.list[state.name_number as usize].directive;
            let level = &self.nodes[state.node as usize].level;
            level.is_listed(&state.name) || directive.weight.is_some() || directive.cap.is_some()
        })
    }

    /// Returns true if a node has no flows and no other state, so that it equals a newly created one.
    fn is_fresh(&self, node: u32) -> bool {
        let state = &self.nodes[node as usize];
        state.flows.is_empty()
            && match &state.discipline {
                Discipline::Share(_) | Discipline::Bands(_) => true,
                Discipline::Load(load) => load.is_fresh(),
                Discipline::Drr(drr) => drr.is_fresh(),
            }
    }

    fn forget_flow(&mut self, flow: u32, workers: &mut PoolWorkers) {
        let hash = path_hash(&self.flows[flow as usize]);
        if let Ok(entry) = self.paths.find_entry(hash, |f| *f == flow) {
            entry.remove();
        }
        let state = &self.flows[flow as usize];
        let (named, at) = (state.name_number, state.index_in_name as usize);
        let (node, local, child, name) = (state.node, state.local, state.child, state.name.clone());
        let copies = &mut self.names.list[named as usize].flows;
        copies.swap_remove(at);
        if let Some(moved) = copies.get(at) {
            self.flows[*moved as usize].index_in_name = self.flows[flow as usize].index_in_name;
        }
        self.names.forget_if_unused(named);
        let parent = self.nodes[node as usize].parent;
        let state = &mut self.nodes[node as usize];
        state.flows.remove(&name);
        state.locals[local as usize] = None;
        match &mut state.discipline {
            Discipline::Share(share) => {
                share.unwatch(local);
                share.forget(local);
            }
            Discipline::Load(load) => load.forget(local),
            Discipline::Bands(bands) => bands.forget(local),
            Discipline::Drr(_) => {}
        }
        match child {
            FlowChild::Queue(queue) => {
                self.drop_marks(flow, Some(queue));
                let RequestQueue { watched, is_grouped, .. } = self.queues[queue as usize];
                for (role, demand) in [WatchRole::Head, WatchRole::Oldest].into_iter().zip(watched)
                {
                    let watcher = match is_grouped && role == WatchRole::Head {
                        true => DemandWatcher::Node(node),
                        false => DemandWatcher::Queue(queue, role),
                    };
                    if let Some(demand) = demand {
                        workers.unwatch(watcher, demand);
                    }
                }
                self.free.queues.push(queue);
            }
            FlowChild::Node(inside) => {
                self.drop_marks(flow, None);
                self.load_nodes.remove(&inside);
                self.drr_nodes.remove(&inside);
                self.free.nodes.push(inside);
            }
        }
        self.free.flows.push(flow);
        // The flow around the forgotten flow may now be without state as well.
        if let Some(parent) = parent.filter(|_| node != ROOT) {
            self.emptied.push(parent);
        }
    }
}
