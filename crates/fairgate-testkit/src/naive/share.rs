//! share — share score.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{BusyThresholds, Share};

use super::apportion::apportion;
use super::tree::{Flow, Pick, Rule, Step};
use super::world::World;

/// Scores are in parts of 2^-32.
const SCALE: i128 = 1 << 32;

#[derive(Clone, Debug)]
pub(super) struct ShareNode {
    policy: Share,
    flows: Vec<ShareFlow>,
    virtual_time: i128,
}

#[derive(Clone, Debug)]
struct ShareFlow {
    flow: Flow,
    base: i128,
    /// Tokens of ended requests.
    served: i128,
    /// Costs of flying ones.
    pending: i128,
    generation: u64,
    /// While something waits in it and it is not ready: the virtual time at which that began.
    stopped_at: Option<i128>,
}

impl ShareNode {
    pub(super) fn new(policy: &Share) -> Self {
        Self { policy: policy.clone(), flows: Vec::new(), virtual_time: 0 }
    }

    fn weight(&self, flow: &ShareFlow, world: &World) -> u64 {
        let name = &flow.flow.name;
        let listed = self.policy.weights.get(name).unwrap_or(&self.policy.default_weight);
        world.weight_event(self.policy.by, name).unwrap_or(listed.get())
    }

    fn cap(&self, flow: &ShareFlow, world: &World) -> Option<u64> {
        let name = &flow.flow.name;
        let listed = self.policy.caps.get(name).copied().or(self.policy.default_cap);
        world.cap_event(self.policy.by, name).unwrap_or(listed)
    }

    /// settled = base + floor(served × 2^32 / weight).
    fn settled(&self, flow: &ShareFlow, world: &World) -> i128 {
        flow.base + (flow.served * SCALE).div_euclid(i128::from(self.weight(flow, world)))
    }

    /// score = base + floor((served + pending) × 2^32 / weight).
    fn score(&self, flow: &ShareFlow, world: &World) -> i128 {
        let tokens = flow.served + flow.pending;
        flow.base + (tokens * SCALE).div_euclid(i128::from(self.weight(flow, world)))
    }

    /// What a flow would dispatch next, where it is ready: "a flow with as many flying as its cap is
    /// not ready".
    fn pick_in_flow(&self, flow: &ShareFlow, world: &World, busy: BusyThresholds) -> Option<Pick> {
        let at_cap = self.cap(flow, world).is_some_and(|cap| flow.flying() >= cap);
        if at_cap { None } else { flow.flow.pick(self.policy.by, world, busy) }
    }

    /// The slots of each flow, where the pool is partitioned and its capacity suffices: "divides the
    /// pool's capacity among the n flows that wait or fly, sorted by name".
    fn slots(&self, world: &World) -> Option<Vec<u64>> {
        let waits_or_flies = |flow: &ShareFlow| flow.waits() || flow.flying() > 0;
        let mut dividing: Vec<usize> =
            (0..self.flows.len()).filter(|&i| waits_or_flies(&self.flows[i])).collect();
        dividing.sort_by_key(|&i| &self.flows[i].flow.name);
        if !self.policy.partition || u128::from(world.capacity) < dividing.len() as u128 {
            return None;
        }
        let weights: Vec<u64> =
            dividing.iter().map(|&i| self.weight(&self.flows[i], world)).collect();
        let mut slots = vec![0; self.flows.len()];
        for (i, part) in dividing.into_iter().zip(apportion(world.capacity, &weights)) {
            slots[i] = part;
        }
        Some(slots)
    }
}

impl ShareFlow {
    fn waits(&self) -> bool {
        !self.flow.waiting().is_empty()
    }

    fn flying(&self) -> u64 {
        self.flow.flying.iter().map(|_| 1).sum()
    }
}

impl Rule for ShareNode {
    fn by(&self) -> Attribute {
        self.policy.by
    }

    fn flow_count(&self) -> usize {
        self.flows.len()
    }

    fn flow(&self, index: usize) -> &Flow {
        &self.flows[index].flow
    }

    fn flow_mut(&mut self, index: usize) -> &mut Flow {
        &mut self.flows[index].flow
    }

    fn create_flow(&mut self, name: &str) {
        self.flows.push(ShareFlow {
            flow: Flow::new(name, &self.policy.inside),
            base: 0,
            served: 0,
            pending: 0,
            generation: 0,
            stopped_at: None,
        });
    }

    /// "Pick the ready flow with the lowest score; ties go to the lower seq of the heads." In a
    /// partitioned pool "a ready flow with fewer flying than its slots goes before any other".
    fn pick(&self, world: &World, busy: BusyThresholds) -> Option<Pick> {
        let slots = self.slots(world);
        let ready =
            self.flows.iter().enumerate().filter_map(|(index, flow)| {
                Some((index, flow, self.pick_in_flow(flow, world, busy)?))
            });
        let (index, _, pick) = ready.min_by_key(|(index, flow, pick)| {
            let below_slots = slots.as_ref().is_some_and(|slots| flow.flying() < slots[*index]);
            (!below_slots, self.score(flow, world), pick.request.seq)
        })?;
        Some(pick.through(index, Vec::new()))
    }

    /// "virtual time = max(virtual time, its settled) first, then pending += cost".
    fn charge(&mut self, step: &Step, cost: u64, world: &World, _busy: BusyThresholds) {
        let settled = self.settled(&self.flows[step.flow], world);
        self.virtual_time = self.virtual_time.max(settled);
        self.flows[step.flow].pending += i128::from(cost);
    }

    fn generation(&self, index: usize) -> u64 {
        self.flows[index].generation
    }

    /// "and its score is below virtual time: base = virtual time, served = pending = 0, generation + 1."
    fn starts_to_wait(&mut self, index: usize, world: &World) {
        if self.score(&self.flows[index], world) < self.virtual_time {
            let flow = &mut self.flows[index];
            flow.base = self.virtual_time;
            flow.served = 0;
            flow.pending = 0;
            flow.generation += 1;
        }
    }

    /// "used = its tokens (no tokens, or a cancel: its cost). Same generation: pending −= cost, served
    /// += used. Else served += max(0, used − cost)."
    fn ended(&mut self, index: usize, cost: u64, tokens: Option<u64>, generation: u64) {
        let flow = &mut self.flows[index];
        let cost = i128::from(cost);
        let used = tokens.map_or(cost, i128::from);
        if flow.generation == generation {
            flow.pending -= cost;
            flow.served += used;
        } else {
            flow.served += (used - cost).max(0);
        }
    }

    /// "While something waits in a flow that is not ready, its lag stands still: when it turns ready,
    /// base += virtual time now − virtual time when it stopped being ready."
    fn look(&mut self, world: &World, busy: BusyThresholds) {
        for index in 0..self.flows.len() {
            let waits = self.flows[index].waits();
            let ready = self.pick_in_flow(&self.flows[index], world, busy).is_some();
            let flow = &mut self.flows[index];
            flow.stopped_at = match flow.stopped_at {
                _ if !waits => None,
                None if ready => None,
                None => Some(self.virtual_time),
                Some(stopped_at) if ready => {
                    flow.base += self.virtual_time - stopped_at;
                    None
                }
                still => still,
            };
        }
    }

    /// "A share flow keeps its settled score (base becomes it, served 0, before the change)."
    fn before_weight_change(&mut self, index: usize, world: &World) {
        let settled = self.settled(&self.flows[index], world);
        self.flows[index].base = settled;
        self.flows[index].served = 0;
    }
}
