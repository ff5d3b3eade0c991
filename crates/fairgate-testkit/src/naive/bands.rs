//! The `bands` node: strict priority between classes.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{BandClass, BandsPolicy, BusyThresholds};

use super::branches::RuleBranch;
use super::request::NaiveRequest;
use super::state::NaiveState;
use super::tree::{ClassSettings, NaiveFlow, NaivePick, NodeChange, NodeChoice, NodeRule};

#[derive(Clone, Debug)]
pub(super) struct NaiveBandsNode {
    policy: BandsPolicy,
    /// Flows of the classes, in the order in which the policy lists them.
    flows: Vec<NaiveFlow>,
}

impl NaiveBandsNode {
    pub(super) fn new(policy: &BandsPolicy) -> Self {
        let flow = |class: &BandClass| NaiveFlow::new(&class.name, &class.inside);
        let flows = policy.classes.iter().map(flow).collect();
        Self { policy: policy.clone(), flows }
    }

    fn listed(&self, name: &str) -> Option<&BandClass> {
        self.policy.classes.iter().find(|class| *class.name == *name)
    }

    /// Returns whether a class has as many requests in flight as its cap. Such a class is not
    /// ready. An event's cap is compared with the requests in flight in the whole pool, and a
    /// policy's cap with those in this node's flow.
    fn is_at_cap(&self, index: usize, world: &NaiveState) -> bool {
        let class = &self.policy.classes[index];
        if let Some(cap) = world.cap_event(self.policy.by, &class.name) {
            return cap.is_some_and(|cap| world.in_flight_of(self.policy.by, &class.name) >= cap);
        }
        let in_flight: u64 = self.flows[index].in_flight.iter().map(|_| 1).sum();
        class.cap.is_some_and(|cap| in_flight >= cap)
    }

    fn pick_in_class(
        &self,
        index: usize,
        world: &NaiveState,
        busy: BusyThresholds,
    ) -> Option<NaivePick> {
        if self.is_at_cap(index, world) {
            return None;
        }
        let class = &self.policy.classes[index];
        let busy = if class.busy.is_stated() { class.busy } else { busy };
        self.flows[index].pick(self.policy.by, world, busy)
    }
}

impl NaiveBandsNode {
    /// Counts the reason why a class with queued requests was not picked although a lower class
    /// was.
    fn note_passed(&self, index: usize, world: &NaiveState, busy: BusyThresholds) {
        let (flow, class) = (&self.flows[index], &self.policy.classes[index]);
        if flow.is_empty() {
            return;
        }
        let busy = if class.busy.is_stated() { class.busy } else { busy };
        let could_go = flow.pick(self.policy.by, world, busy).is_some();
        let by_event = world.cap_event(self.policy.by, &class.name).is_some();
        world.branches.note(match (could_go, by_event) {
            (false, _) => RuleBranch::BandBelowBlocked,
            (true, false) => RuleBranch::BandBelowCapped,
            (true, true) => RuleBranch::BandBelowCappedByEvent,
        });
    }
}

impl NodeRule for NaiveBandsNode {
    fn by(&self) -> Attribute {
        self.policy.by
    }

    /// "`default` as in drr": a request that names none of the listed classes goes to the class
    /// named in `default`, or else to the first listed class.
    fn flow_name<'a>(&'a self, request: &'a NaiveRequest) -> &'a str {
        let named = request.submit.attributes.get(self.policy.by);
        let listed = named.filter(|name| self.listed(name).is_some());
        let default = self.policy.default.as_deref();
        listed.or(default).unwrap_or(&self.policy.classes[0].name)
    }

    fn flow_count(&self) -> usize {
        self.flows.len()
    }

    fn flow(&self, index: usize) -> &NaiveFlow {
        &self.flows[index]
    }

    fn flow_mut(&mut self, index: usize) -> &mut NaiveFlow {
        &mut self.flows[index]
    }

    /// Does nothing, because all classes exist from the start.
    fn create_flow(&mut self, _name: &str) {}

    /// "The first listed class that is ready goes."
    fn pick(&self, world: &NaiveState, busy: BusyThresholds) -> Option<NaivePick> {
        (0..self.flows.len()).find_map(|index| {
            let pick = self.pick_in_class(index, world, busy)?;
            Some(pick.through(index, NodeChange::Nothing))
        })
    }

    /// "Nothing is counted and nothing is charged."
    fn charge(&mut self, step: &NodeChoice, _: u64, world: &NaiveState, busy: BusyThresholds) {
        match step.flow {
            0 => world.branches.note(RuleBranch::FirstBand),
            1 => world.branches.note(RuleBranch::SecondBand),
            2 => world.branches.note(RuleBranch::ThirdBand),
            _ => {}
        }
        for higher in 0..step.flow {
            self.note_passed(higher, world, busy);
        }
    }

    fn class(&self, name: &str) -> Option<ClassSettings> {
        self.listed(name).map(|class| ClassSettings { busy: class.busy, limits: class.limits })
    }
}
