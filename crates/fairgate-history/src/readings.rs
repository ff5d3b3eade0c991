//! Turns readings of a pool's counts into samples.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::policy::{Policy, PolicyNode};
use fairgate_runtime::{FlowCounts, FlowTotals};

use crate::sample::{FlowSample, PoolSample, RowName, sum};

/// The last reading of a pool, with which the next one is compared.
#[derive(Debug, Default)]
pub struct FlowReadings {
    last: Option<LastReading>,
}

#[derive(Debug)]
struct LastReading {
    step: u64,
    policy: Policy,
    pool: Option<FlowTotals>,
    leaves: HashMap<Box<[Box<str>]>, FlowTotals>,
    /// Difference of each row that has one.
    differences: HashMap<RowName, i64>,
    refusals: HashMap<RowName, u64>,
    pool_refusals: u64,
}

impl FlowReadings {
    /// Compares a reading with the one before. `refusals` are the refusals of each row since the
    /// gateway started, and `pool_refusals` those of the pool. Returns `None` for the first
    /// reading, and for a reading that is not later than the one before. The next reading is then
    /// compared with this one.
    pub fn sample(
        &mut self,
        step: u64,
        counts: &FlowCounts,
        refusals: HashMap<RowName, u64>,
        pool_refusals: u64,
    ) -> Option<PoolSample> {
        if self.last.as_ref().is_some_and(|last| last.step >= step) {
            return None;
        }
        let next = LastReading {
            step,
            policy: counts.policy.clone(),
            pool: counts.grants.iter().find(|flow| flow.path.is_empty()).map(|flow| flow.totals),
            leaves: (counts.grants.iter())
                .filter(|flow| !flow.path.is_empty())
                .map(|flow| (flow.path.clone().into_boxed_slice(), flow.totals))
                .collect(),
            differences: differences(counts),
            refusals,
            pool_refusals,
        };
        let last = self.last.replace(next)?;
        let next = self.last.as_ref()?;
        Some(next.sample_since(&last, counts))
    }
}

impl LastReading {
    fn sample_since(&self, last: &Self, counts: &FlowCounts) -> PoolSample {
        let mut rows: HashMap<RowName, FlowSample> = HashMap::new();
        for (path, totals) in &self.leaves {
            let added = totals.since_reading(last.leaves.get(path));
            for_each_level(&self.policy, path, |name| {
                let row = row_of(&mut rows, name);
                row.got = row.got.saturating_add(added.got);
                row.asked = row.asked.saturating_add(added.asked);
                row.waits.add(&added.waits);
            });
        }
        add_values(&mut rows, counts);
        // Under a new policy the meter begins again at 0, so its differences cannot be compared.
        let same_policy = self.policy == last.policy;
        for (name, row) in &mut rows {
            let before = last.differences.get(name).copied().unwrap_or(0);
            let now = row.difference.map(|(difference, _)| difference);
            row.due = now.filter(|_| same_policy).map(|now| row.got - (now - before));
        }
        // A row whose flows the meter has forgotten: its difference was settled.
        for (name, before) in last.differences.iter().filter(|_| same_policy) {
            if !self.differences.contains_key(name) {
                let row = row_of(&mut rows, name.clone());
                row.due = Some(row.got.saturating_add(*before));
            }
        }
        for (name, refused) in &self.refusals {
            let before = last.refusals.get(name).copied().unwrap_or(0);
            if *refused > before {
                row_of(&mut rows, name.clone()).refused = refused - before;
            }
        }
        let pool = self.pool.unwrap_or_default().since_reading(last.pool.as_ref());
        rows.retain(|_, row| !row.is_still() || row.difference.is_some());
        PoolSample {
            step: self.step,
            covers: self.step - last.step,
            slots: counts.capacity,
            in_flight: counts.in_flight,
            waiting: counts.waiting,
            granted: pool.granted,
            refused: self.pool_refusals.saturating_sub(last.pool_refusals),
            waits: pool.waits,
            flows: rows.into_values().collect(),
        }
    }
}

fn row_of(rows: &mut HashMap<RowName, FlowSample>, name: RowName) -> &mut FlowSample {
    rows.entry(name.clone()).or_insert_with(|| FlowSample::new(name))
}

/// Calls `visit` with the row of each level on the way to a leaf.
fn for_each_level(policy: &Policy, path: &[Box<str>], mut visit: impl FnMut(RowName)) {
    let mut node: Option<&PolicyNode> = Some(policy.root());
    for name in path {
        let Some(level) = node else { return };
        if !is_nobody(level.by(), name) {
            visit((level.by(), Arc::from(&**name)));
        }
        node = level.node_inside_of(name);
    }
}

/// Returns true for the flow of requests without a project, which is no project.
fn is_nobody(by: Attribute, name: &str) -> bool {
    by == Attribute::Project && name == DEFAULT_FLOW
}

/// Adds the values of all flows to their rows.
fn add_values(rows: &mut HashMap<RowName, FlowSample>, counts: &FlowCounts) {
    for node in &counts.fairness {
        let promised = promises_shares(&counts.policy, &node.path);
        for flow in node.flows.iter().filter(|flow| !is_nobody(node.by, &flow.name)) {
            let row = row_of(rows, (node.by, flow.name.clone()));
            row.promised &= promised;
            row.waiting += u64::from(flow.waiting);
            row.in_flight += u64::from(flow.in_flight);
            let difference = flow.difference().zip(flow.due).map(|(difference, due)| {
                (whole(difference), u64::try_from(due.bound).unwrap_or(u64::MAX))
            });
            row.difference = sum(row.difference, difference, |a, b| {
                (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
            });
        }
    }
}

fn differences(counts: &FlowCounts) -> HashMap<RowName, i64> {
    let mut all = HashMap::new();
    for node in &counts.fairness {
        for flow in &node.flows {
            if let Some(difference) = flow.difference() {
                let row: &mut i64 = all.entry((node.by, flow.name.clone())).or_default();
                *row = row.saturating_add(whole(difference));
            }
        }
    }
    all
}

/// Returns true if the node at this path promises its flows shares of the service. A partitioned
/// node promises slots, and the quanta of deficit round robin are not shares.
pub(crate) fn promises_shares(policy: &Policy, path: &[Arc<str>]) -> bool {
    let mut node: Option<&PolicyNode> = Some(policy.root());
    for name in path {
        node = node.and_then(|level| level.node_inside_of(name));
    }
    matches!(node, Some(PolicyNode::Share(share)) if !share.partition)
}

fn whole(tokens: i128) -> i64 {
    i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN / 2 } else { i64::MAX / 2 })
}
