//! Number of requests that are queued or in flight in each flow.

use std::collections::HashMap;
use std::time::Duration;

use fairgate_core::fairness::NodeFairness;
use fairgate_core::policy::{Policy, PolicyNode};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_core::units::Micros;
use fairgate_runtime::{FlowGrants, expected_wait};

/// Grants of a flow in the last minute, with the time over which they were counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GrantRate {
    granted: u64,
    observed: Duration,
}

impl GrantRate {
    /// Adds the grants of another flow with the same name.
    pub(super) fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.observed = self.observed.max(other.observed);
    }

    /// Returns the time until `waiting` requests are granted, in milliseconds: `waiting` ÷ grants per second. `None` if
    /// nothing was granted in the last minute.
    pub(super) fn expected_wait_ms(self, waiting: u64) -> Option<u64> {
        let wait = expected_wait(waiting, self.granted, self.observed)?;
        Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Counts of a flow's requests, including those of the flows inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowActivity<'a> {
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    /// Submission time of the request that has waited longest.
    pub(super) oldest: Option<Micros>,
    /// Number of grants in the last minute.
    granted: u64,
    observed: Duration,
    pub(super) inside: HashMap<&'a str, FlowActivity<'a>>,
}

impl<'a> FlowActivity<'a> {
    /// Counts the requests in flight and the grants of all flows of the policy tree. Waiting
    /// requests are counted from `fairness`, so `requests` may lack them.
    pub(super) fn of(
        policy: &'a Policy,
        requests: &'a [RequestSnapshot],
        fairness: &'a [NodeFairness],
        grants: &'a [FlowGrants],
    ) -> Self {
        let mut all = Self::default();
        let in_flight = requests.iter().filter(|request| request.flight.is_some());
        in_flight.for_each(|request| all.count_in_flight(policy.root(), request));
        fairness.iter().for_each(|node| all.count_waiting(node));
        // The entry with an empty path is the whole pool, and would count everything twice.
        for flow in grants.iter().filter(|flow| !flow.path.is_empty()) {
            all.count_grants(flow);
        }
        all
    }

    /// Adds the waiting requests that the flows of a node count. Together, the flows of the root
    /// count all requests of the pool.
    fn count_waiting(&mut self, node: &'a NodeFairness) {
        let mut around = self;
        for name in &node.path {
            around = around.inside.entry(name).or_default();
        }
        for flow in node.flows.iter().filter(|flow| flow.waiting > 0) {
            if node.path.is_empty() {
                around.waiting += u64::from(flow.waiting);
                around.oldest = around.oldest.into_iter().chain(flow.oldest).min();
            }
            let activity = around.inside.entry(&flow.name).or_default();
            activity.waiting = flow.waiting.into();
            activity.oldest = flow.oldest;
        }
    }

    fn count_grants(&mut self, flow: &'a FlowGrants) {
        let mut activity = self;
        let mut names = flow.path.iter();
        loop {
            activity.granted += flow.grants;
            activity.observed = activity.observed.max(flow.observed);
            let Some(name) = names.next() else { return };
            activity = activity.inside.entry(name).or_default();
        }
    }

    /// Returns the counts of the flow on this path; `None` if the flow has no requests and no recent grants.
    pub(super) fn find<'b>(&self, path: impl Iterator<Item = &'b str>) -> Option<&Self> {
        let mut activity = self;
        for name in path {
            activity = activity.inside.get(name)?;
        }
        Some(activity)
    }

    /// Returns the flow's recent grants, from which its expected wait is computed.
    pub(super) fn rate(&self) -> GrantRate {
        GrantRate { granted: self.granted, observed: self.observed }
    }

    fn count_in_flight(&mut self, root: &'a PolicyNode, request: &'a RequestSnapshot) {
        let mut activity = self;
        let mut node = Some(root);
        loop {
            activity.in_flight += 1;
            let Some(level) = node else { return };
            let flow = level.flow_of(request.attributes.get(level.by()));
            activity = activity.inside.entry(flow).or_default();
            node = level.node_inside_of(flow);
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.in_flight + self.waiting > 0
    }
}
