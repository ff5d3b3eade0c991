//! Forgetting flows that carry nothing.
//!
//! A flow is forgotten where it has no requests, its node would set it anew on its return (a share flow below virtual
//! time, any load or drr flow) and what is inside it is as a fresh copy would be. Nothing that is forgotten could change a
//! decision; only its meter is lost. So a share or drr flow that the policy lists, or to which an event gave a weight or
//! a cap, is kept once it was served, where all flows around it are listed too: there are few of these, and their meters
//! are worth keeping. Inside a name that came once nothing is listed in this sense.
//!
//! Which flows are remembered follows from the events alone, so replicas agree on it and snapshots are equal.

use crate::tree::{Child, Discipline, ROOT, Tree, path_hash};
use crate::workers::{Role, Workers};

impl Tree {
    /// Whether a flow may have come to carry nothing.
    pub(crate) fn has_emptied(&self) -> bool {
        !self.emptied.is_empty() || !self.risen.is_empty()
    }

    /// Forgets every flow that carries nothing, of those that events have touched.
    pub(crate) fn forget(&mut self, workers: &mut Workers) {
        while let Some(node) = self.risen.pop() {
            while let Some(flow) = self.pop_passed(node) {
                self.emptied.push(flow);
            }
        }
        while let Some(flow) = self.emptied.pop() {
            if self.is_there(flow) && self.is_empty(flow) && self.is_forgettable(flow) {
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

    /// Whether a flow has not been forgotten already: it may stand among the emptied more than once.
    fn is_there(&self, flow: u32) -> bool {
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
            Child::Queue(_) => true,
            Child::Node(inside) => self.is_fresh(inside),
        };
        let is_metered = match &self.nodes[node].discipline {
            Discipline::Share(share) => share.flows[local as usize].is_metered(),
            Discipline::Drr(drr) => drr.classes[local as usize].meter.is_used(),
            Discipline::Load(_) => false,
        };
        if !is_fresh || (is_metered && self.is_lasting(flow)) {
            return false;
        }
        match &mut self.nodes[node].discipline {
            Discipline::Share(share) => share.is_forgettable(local),
            Discipline::Drr(_) | Discipline::Load(_) => true,
        }
    }

    /// Whether a flow and those around it are listed in the policy or known from events.
    fn is_lasting(&self, flow: u32) -> bool {
        core::iter::successors(Some(flow), |flow| self.around(*flow)).all(|flow| {
            let state = &self.flows[flow as usize];
            let said = self.names.list[state.named as usize].said;
            let level = &self.nodes[state.node as usize].level;
            level.is_listed(&state.name) || said.weight.is_some() || said.cap.is_some()
        })
    }

    /// Whether a node is as a new copy of it would be.
    fn is_fresh(&self, node: u32) -> bool {
        let state = &self.nodes[node as usize];
        state.flows.is_empty()
            && match &state.discipline {
                Discipline::Share(_) => true,
                Discipline::Load(load) => load.is_fresh(),
                Discipline::Drr(drr) => drr.is_fresh(),
            }
    }

    fn forget_flow(&mut self, flow: u32, workers: &mut Workers) {
        let hash = path_hash(&self.flows[flow as usize]);
        if let Ok(entry) = self.paths.find_entry(hash, |f| *f == flow) {
            entry.remove();
        }
        let state = &self.flows[flow as usize];
        let (named, at) = (state.named, state.named_at as usize);
        let (node, local, child, name) = (state.node, state.local, state.child, state.name.clone());
        let copies = &mut self.names.list[named as usize].flows;
        copies.swap_remove(at);
        if let Some(moved) = copies.get(at) {
            self.flows[*moved as usize].named_at = self.flows[flow as usize].named_at;
        }
        self.names.tidy(named);
        let parent = self.nodes[node as usize].parent;
        let state = &mut self.nodes[node as usize];
        state.flows.remove(&name);
        state.locals[local as usize] = None;
        match &mut state.discipline {
            Discipline::Share(share) => share.forget(local),
            Discipline::Load(load) => load.forget(local),
            Discipline::Drr(_) => {}
        }
        match child {
            Child::Queue(queue) => {
                self.drop_marks(flow, Some(queue));
                let watched = self.queues[queue as usize].watched;
                for (role, demand) in [Role::Head, Role::Oldest].into_iter().zip(watched) {
                    if let Some(demand) = demand {
                        workers.unwatch(queue, role, demand);
                    }
                }
                self.free.queues.push(queue);
            }
            Child::Node(inside) => {
                self.drop_marks(flow, None);
                self.load_nodes.remove(&inside);
                self.drr_nodes.remove(&inside);
                self.free.nodes.push(inside);
            }
        }
        self.free.flows.push(flow);
        // What is around it may now be without state as well.
        if let Some(parent) = parent.filter(|_| node != ROOT) {
            self.emptied.push(parent);
        }
    }
}
