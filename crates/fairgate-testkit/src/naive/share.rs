//! The `share` node, which picks the flow with the lowest score.

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::policy::{BusyThresholds, ShareClass, SharePolicy};

use super::apportion::apportion;
use super::branches::RuleBranch;
use super::request::NaiveRequest;
use super::state::NaiveState;
use super::tree::{ClassSettings, NaiveFlow, NaivePick, NodeChange, NodeChoice, NodeRule};

/// Scale of scores, which are counted in units of 2^-32 tokens per weight.
const SCALE: i128 = 1 << 32;

#[derive(Clone, Debug)]
pub(super) struct NaiveShareNode {
    policy: SharePolicy,
    flows: Vec<NaiveShareFlow>,
    virtual_time: i128,
    /// Sequence number of the node's last moment, from 1. A grant is a moment, and so is the time at which a flow
    /// becomes new. Ties between flows go to the earlier moment.
    moments: u64,
}

#[derive(Clone, Debug)]
struct NaiveShareFlow {
    flow: NaiveFlow,
    base: i128,
    /// Tokens used by the flow's ended requests since this counter was last reset.
    served: i128,
    /// Sum of the costs of the flow's requests in flight.
    pending: i128,
    generation: u64,
    is_new: bool,
    moment: u64,
    /// True if the flow had requests queued at the last look.
    waited: bool,
    /// Virtual time at which the flow stopped being ready or, if it has not been ready since it began to wait, at which
    /// it began to wait. `None` if the flow was ready or had no requests queued at the last look.
    stopped_at: Option<i128>,
}

impl NaiveShareNode {
    pub(super) fn new(policy: &SharePolicy) -> Self {
        Self { policy: policy.clone(), flows: Vec::new(), virtual_time: 0, moments: 0 }
    }

    fn listed(&self, name: &str) -> Option<&ShareClass> {
        self.policy.classes.iter().find(|class| *class.name == *name)
    }

    fn weight(&self, flow: &NaiveShareFlow, world: &NaiveState) -> i128 {
        let name = &flow.flow.name;
        let class = self.listed(name).map(|class| &class.weight);
        let stated = class.or(self.policy.weights.get(name)).unwrap_or(&self.policy.default_weight);
        i128::from(world.weight_event(self.policy.by, name).unwrap_or(stated.get()))
    }

    /// Returns whether a flow has as many requests in flight as its cap. Such a flow is not ready. The cap is that of
    /// an event, else `cap` of the flow's class, else its entry in `caps`, else `default_cap`. An event's cap is
    /// compared with the requests in flight in the whole pool, and a policy's cap with those in this node's flow.
    fn is_at_cap(&self, flow: &NaiveShareFlow, world: &NaiveState) -> bool {
        let name = &flow.flow.name;
        if let Some(cap) = world.cap_event(self.policy.by, name) {
            return cap.is_some_and(|cap| world.in_flight_of(self.policy.by, name) >= cap);
        }
        let class = self.listed(name).and_then(|class| class.cap);
        let cap = class.or(self.policy.caps.get(name).copied()).or(self.policy.default_cap);
        cap.is_some_and(|cap| flow.in_flight() >= cap)
    }

    /// Returns settled = base + floor(served × 2^32 / weight).
    fn settled(&self, flow: &NaiveShareFlow, world: &NaiveState) -> i128 {
        flow.base + (flow.served * SCALE).div_euclid(self.weight(flow, world))
    }

    /// Returns score = base + floor((served + pending) × 2^32 / weight).
    fn score(&self, flow: &NaiveShareFlow, world: &NaiveState) -> i128 {
        let tokens = flow.served + flow.pending;
        flow.base + (tokens * SCALE).div_euclid(self.weight(flow, world))
    }

    /// Returns the request that a flow would dispatch next; `None` if the flow is not ready.
    fn pick_in_flow(
        &self,
        flow: &NaiveShareFlow,
        world: &NaiveState,
        busy: BusyThresholds,
    ) -> Option<NaivePick> {
        if !flow.waits() || self.is_at_cap(flow, world) {
            return None;
        }
        let class = self.listed(&flow.flow.name).map(|class| class.busy);
        let busy = class.filter(BusyThresholds::is_stated).unwrap_or(busy);
        flow.flow.pick(self.policy.by, world, busy)
    }

    /// Returns the ready flows, each with its index and the request that it would dispatch next.
    fn ready(
        &self,
        world: &NaiveState,
        busy: BusyThresholds,
    ) -> Vec<(usize, &NaiveShareFlow, NaivePick)> {
        let flows = self.flows.iter().enumerate();
        let ready = flows
            .filter_map(|(index, flow)| Some((index, flow, self.pick_in_flow(flow, world, busy)?)));
        ready.collect()
    }

    /// Returns virtual time after a grant. Two numbers are computed before the grant: the highest settled score of the
    /// ready flows, and the lowest score of the ready flows that are not new. Virtual time rises to the lesser of the
    /// two, or to the first if all ready flows are new. It never falls. In a partitioned pool it is computed in the
    /// same way.
    fn virtual_time_after(
        &self,
        ready: &[(usize, &NaiveShareFlow, NaivePick)],
        world: &NaiveState,
    ) -> i128 {
        let settled = ready.iter().map(|(_, flow, _)| self.settled(flow, world)).max();
        let not_new = ready.iter().filter(|(_, flow, _)| !flow.is_new);
        let lowest = not_new.map(|(_, flow, _)| self.score(flow, world)).min();
        let bound = [settled, lowest].into_iter().flatten().min();
        bound.map_or(self.virtual_time, |bound| bound.max(self.virtual_time))
    }

    /// Returns the slots of each flow. The pool's capacity is divided among the n flows that are ready or have requests
    /// in flight, sorted by name. Returns `None` if the node is not partitioned, or if the capacity is below n.
    fn slots(
        &self,
        ready: &[(usize, &NaiveShareFlow, NaivePick)],
        world: &NaiveState,
    ) -> Option<Vec<u64>> {
        let is_ready = |index: usize| ready.iter().any(|(ready, _, _)| *ready == index);
        let divides = |&index: &usize| is_ready(index) || self.flows[index].in_flight() > 0;
        let mut dividing: Vec<usize> = (0..self.flows.len()).filter(divides).collect();
        dividing.sort_by_key(|&index| &self.flows[index].flow.name);
        if !self.policy.partition || u128::from(world.capacity) < dividing.len() as u128 {
            return None;
        }
        let weight = |index: usize| self.weight(&self.flows[index], world);
        let weights: Vec<u64> =
            dividing.iter().map(|&i| u64::try_from(weight(i)).expect("a weight")).collect();
        let mut slots = vec![0; self.flows.len()];
        for (index, part) in dividing.into_iter().zip(apportion(world.capacity, &weights)) {
            slots[index] = part;
        }
        Some(slots)
    }

    /// Returns the next moment. "Moments are numbered one after the other."
    fn next_moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Handles a flow in which the first request starts to wait. If the flow's score is at or below virtual time, the
    /// flow is new until its next grant, and its moment is now. If the score is below: base = virtual time, served =
    /// pending = 0, generation + 1.
    fn starts_to_wait(&mut self, index: usize, world: &NaiveState) {
        let score = self.score(&self.flows[index], world);
        if score > self.virtual_time {
            return;
        }
        let moment = self.next_moment();
        let flow = &mut self.flows[index];
        flow.is_new = true;
        flow.moment = moment;
        if score < self.virtual_time {
            flow.base = self.virtual_time;
            flow.served = 0;
            flow.pending = 0;
            flow.generation += 1;
        }
    }

    /// Handles a waiting flow that becomes ready. If its score is below virtual time, base rises by the difference, but
    /// by no more than virtual time has risen since the flow stopped being ready.
    fn turns_ready(&mut self, index: usize, stopped_at: i128, world: &NaiveState) -> RuleBranch {
        let difference = self.virtual_time - self.score(&self.flows[index], world);
        let risen = self.virtual_time - stopped_at;
        self.flows[index].base += difference.min(risen).max(0);
        match () {
            () if difference <= 0 => RuleBranch::TogetherNotLifted,
            () if difference <= risen => RuleBranch::TogetherLiftedToVirtualTime,
            () => RuleBranch::TogetherLiftedByTheRise,
        }
    }

    /// Counts the branches in `turned`, one for each flow that became ready at the same look. Does nothing if fewer
    /// than two flows did.
    fn note_turned_ready(turned: &[RuleBranch], world: &NaiveState) {
        if turned.len() < 2 {
            return;
        }
        world.branches.note(RuleBranch::TurnedReadyTogether);
        if turned.len() >= 5 {
            world.branches.note(RuleBranch::FiveTurnedReadyTogether);
        }
        for branch in turned {
            world.branches.note(*branch);
        }
    }
}

impl NaiveShareFlow {
    fn waits(&self) -> bool {
        !self.flow.is_empty()
    }

    fn in_flight(&self) -> u64 {
        self.flow.in_flight.iter().map(|_| 1).sum()
    }
}

impl NodeRule for NaiveShareNode {
    fn by(&self) -> Attribute {
        self.policy.by
    }

    /// "With `classes` the flows are just those listed, as in drr": a request that names none of
    /// the listed classes goes to the class named in `default`, or else to the first listed class.
    fn flow_name<'a>(&'a self, request: &'a NaiveRequest) -> &'a str {
        let named = request.submit.attributes.get(self.policy.by);
        let Some(first) = self.policy.classes.first() else {
            return named.unwrap_or(DEFAULT_FLOW);
        };
        let listed = named.filter(|name| self.listed(name).is_some());
        listed.or(self.policy.default.as_deref()).unwrap_or(&first.name)
    }

    fn flow_count(&self) -> usize {
        self.flows.len()
    }

    fn flow(&self, index: usize) -> &NaiveFlow {
        &self.flows[index].flow
    }

    fn flow_mut(&mut self, index: usize) -> &mut NaiveFlow {
        &mut self.flows[index].flow
    }

    fn create_flow(&mut self, name: &str) {
        let inside = self.listed(name).map_or(&self.policy.inside, |class| &class.inside);
        self.flows.push(NaiveShareFlow {
            flow: NaiveFlow::new(name, inside),
            base: 0,
            served: 0,
            pending: 0,
            generation: 0,
            is_new: false,
            moment: 0,
            waited: false,
            stopped_at: None,
        });
    }

    /// Picks the ready flow with the lowest score; ties go to the earlier moment, then to the lower seq of the heads.
    /// In a partitioned pool, a ready flow with fewer requests in flight than its slots goes before any other. If there
    /// is none, the free slot is lent to the flow with the lowest score.
    fn pick(&self, world: &NaiveState, busy: BusyThresholds) -> Option<NaivePick> {
        let ready = self.ready(world, busy);
        let slots = self.slots(&ready, world);
        let virtual_time = self.virtual_time_after(&ready, world);
        let (index, _, pick) = ready.into_iter().min_by_key(|(index, flow, pick)| {
            let below_slots = slots.as_ref().is_some_and(|slots| flow.in_flight() < slots[*index]);
            (!below_slots, self.score(flow, world), flow.moment, pick.request.seq)
        })?;
        Some(pick.through(index, NodeChange::VirtualTime(virtual_time)))
    }

    /// Charges a grant. Virtual time is updated first. Then pending += cost, the flow's moment is now, the flow is no
    /// longer new, and the request remembers the flow's generation.
    fn charge(&mut self, step: &NodeChoice, cost: u64, _world: &NaiveState, _busy: BusyThresholds) {
        if let NodeChange::VirtualTime(virtual_time) = step.change {
            self.virtual_time = virtual_time;
        }
        let moment = self.next_moment();
        let flow = &mut self.flows[step.flow];
        flow.pending += i128::from(cost);
        flow.moment = moment;
        flow.is_new = false;
    }

    fn generation(&self, index: usize) -> u64 {
        self.flows[index].generation
    }

    /// Settles an ended request. The used tokens are the reported tokens, at least 1, or the cost if none were
    /// reported. If the flow's generation has not changed since the grant: pending −= cost, served += used. Otherwise:
    /// served += max(0, used − cost).
    fn ended(&mut self, index: usize, cost: u64, tokens: Option<u64>, generation: u64) {
        let flow = &mut self.flows[index];
        let cost = i128::from(cost);
        let used = tokens.map_or(cost, |tokens| i128::from(tokens).max(1));
        if flow.generation == generation {
            flow.pending -= cost;
            flow.served += used;
        } else {
            flow.served += (used - cost).max(0);
        }
    }

    /// Updates which flows wait and which are ready, in the order of the seq of their oldest waiting requests.
    fn look(&mut self, world: &NaiveState, busy: BusyThresholds) {
        let mut order: Vec<usize> = (0..self.flows.len()).collect();
        order.sort_by_cached_key(|&index| self.flows[index].flow.oldest().map(|oldest| oldest.seq));
        let mut turned = Vec::new();
        for index in order {
            let waits = self.flows[index].waits();
            let ready = self.pick_in_flow(&self.flows[index], world, busy).is_some();
            let stopped_at = self.flows[index].stopped_at;
            if waits && !self.flows[index].waited {
                self.starts_to_wait(index, world);
            } else if ready && let Some(stopped_at) = stopped_at {
                turned.push(self.turns_ready(index, stopped_at, world));
            }
            let virtual_time = self.virtual_time;
            let flow = &mut self.flows[index];
            flow.waited = waits;
            flow.stopped_at = (waits && !ready).then(|| stopped_at.unwrap_or(virtual_time));
        }
        Self::note_turned_ready(&turned, world);
    }

    /// Keeps the settled score over a change of the weight: base becomes the settled score, and served becomes 0.
    fn before_weight_change(&mut self, index: usize, world: &NaiveState) {
        let settled = self.settled(&self.flows[index], world);
        self.flows[index].base = settled;
        self.flows[index].served = 0;
    }

    fn class(&self, name: &str) -> Option<ClassSettings> {
        self.listed(name).map(|class| ClassSettings { busy: class.busy, limits: class.limits })
    }
}
