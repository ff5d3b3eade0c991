//! One sample of a pool.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_runtime::WaitCounts;

/// Name of a row: all flows of this name in all nodes that divide by this attribute.
pub type RowName = (Attribute, Arc<str>);

/// Amounts that were added to a pool since the previous sample, and its values now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSample {
    /// The step that this sample ends.
    pub step: u64,
    /// Number of steps that the amounts cover; 1 if the previous sample was of the step before.
    pub covers: u64,
    /// Requests that may be in flight at once.
    pub slots: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Number of requests that wait.
    pub waiting: u64,
    /// Grants since the previous sample.
    pub granted: u64,
    /// Refusals since the previous sample.
    pub refused: u64,
    /// Waits of the grants since the previous sample.
    pub waits: WaitCounts,
    /// The rows that were active, have requests, or have a difference.
    pub flows: Vec<FlowSample>,
}

/// Amounts that were added to a row since the previous sample, and its values now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSample {
    /// Name of the row.
    pub name: RowName,
    /// True if the policy promises the row's flows their shares of the service.
    pub promised: bool,
    /// Service got, in the unit of the pool; below 0 if refunds of estimates were more than new
    /// grants.
    pub got: i64,
    /// Service due, in the unit of the pool; `None` if the policy has no due service for the row,
    /// or if it is not known for this step.
    pub due: Option<i64>,
    /// Service that was asked for, in the unit of the pool.
    pub asked: u64,
    /// Number of refusals since the previous sample.
    pub refused: u64,
    /// Difference of got and due since the meter began, and the bound of that difference; `None` without due service.
    pub difference: Option<(i64, u64)>,
    /// Number of requests that wait.
    pub waiting: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Waits of the grants since the previous sample.
    pub waits: WaitCounts,
}

impl FlowSample {
    pub(crate) fn new(name: RowName) -> Self {
        Self {
            name,
            promised: true,
            got: 0,
            due: None,
            asked: 0,
            refused: 0,
            difference: None,
            waiting: 0,
            in_flight: 0,
            waits: WaitCounts::default(),
        }
    }

    /// Returns true if the row had no activity since the previous sample, and has no requests in
    /// the pool.
    pub(crate) fn is_still(&self) -> bool {
        self.got == 0
            && self.due.unwrap_or(0) == 0
            && self.asked == 0
            && self.refused == 0
            && self.waiting == 0
            && self.in_flight == 0
    }

    /// Adds another row to this one, for the sum of others.
    pub(crate) fn add(&mut self, other: &Self) {
        self.promised &= other.promised;
        self.got = self.got.saturating_add(other.got);
        self.due = sum(self.due, other.due, i64::saturating_add);
        self.asked = self.asked.saturating_add(other.asked);
        self.refused = self.refused.saturating_add(other.refused);
        let both =
            |a: (i64, u64), b: (i64, u64)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        self.difference = sum(self.difference, other.difference, both);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
        self.waits.add(&other.waits);
    }
}

/// Adds two numbers, of which each may be unknown.
pub(crate) fn sum<T>(a: Option<T>, b: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (a, b) => a.or(b),
    }
}
