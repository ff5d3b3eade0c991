//! Number of requests that are queued or in flight in each flow.

use std::collections::HashMap;
use std::time::Duration;

use fairgate_core::policy::PolicyNode;
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_core::units::Micros;
use fairgate_runtime::{FlowGrants, expected_wait};

use super::pool_snapshots::PoolSnapshot;

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
    /// Number of grants in the last minute. The field `observed` is the time over which they were counted.
    granted: u64,
    observed: Duration,
    pub(super) inside: HashMap<&'a str, FlowActivity<'a>>,
}

impl<'a> FlowActivity<'a> {
    /// Counts all requests and grants down the policy tree.
    pub(super) fn of(sight: &'a PoolSnapshot) -> Self {
        let mut all = Self::default();
        let root = sight.snapshot.policy.root();
        sight.snapshot.requests.iter().for_each(|request| all.count(root, request));
        // The entry with an empty path is the whole pool, and would count everything twice.
        for flow in sight.grants.iter().filter(|flow| !flow.path.is_empty()) {
            all.count_grants(flow);
        }
        all
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

    fn count(&mut self, root: &'a PolicyNode, request: &'a RequestSnapshot) {
        let mut activity = self;
        let mut node = Some(root);
        loop {
            match request.flight.is_some() {
                true => activity.in_flight += 1,
                false => {
                    activity.waiting += 1;
                    activity.oldest = activity.oldest.into_iter().chain([request.at]).min();
                }
            }
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
