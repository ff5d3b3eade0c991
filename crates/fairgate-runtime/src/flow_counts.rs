//! The state of a pool for observers: its flows, and the requests in flight. Waiting requests are
//! counted but not copied, so reading the state costs the same with ten waiting requests as with
//! ten thousand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::fairness::NodeFairness;
use fairgate_core::policy::Policy;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;

use crate::expected_wait::FlowGrants;
use crate::pool_task::PoolTask;
use crate::waiting_owners::RequestOwner;

/// Counts of the flows of a pool at one moment.
#[derive(Clone, Debug)]
pub struct FlowCounts {
    /// The policy in force.
    pub policy: Policy,
    /// Fairness of each flow, with its waiting requests and its requests in flight.
    pub fairness: Vec<NodeFairness>,
    /// Recent grants and totals of each leaf flow; the entry with an empty path is the whole pool.
    pub grants: Vec<FlowGrants>,
    /// Maximum number of requests in flight at once.
    pub capacity: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Number of requests that wait.
    pub waiting: u64,
    /// Time on the pool's clock.
    pub now: Micros,
    /// Time for which the pool's task was busy with computing this.
    pub took: Duration,
}

/// State of a pool without its waiting requests.
#[derive(Clone, Debug)]
pub struct PoolFlows {
    /// State of the pool. Of the requests, it contains only those in flight.
    pub state: Snapshot,
    /// Counts of the flows.
    pub counts: FlowCounts,
    /// Owners that the policy has no flow for, with the number of their waiting requests.
    pub owners: Vec<(Arc<RequestOwner>, u64)>,
}

impl FlowCounts {
    pub(crate) fn of(pool_task: &mut PoolTask, at: Micros) -> Self {
        let begun = Instant::now();
        let pool = pool_task.pool();
        Self {
            policy: pool.policy().clone(),
            capacity: pool.capacity(),
            in_flight: pool.in_flight(),
            waiting: pool.waiting(),
            now: at.max(pool.now()),
            fairness: pool_task.fairness(),
            grants: pool_task.recent_grants(at),
            took: begun.elapsed(),
        }
    }
}

impl PoolFlows {
    pub(crate) fn of(pool_task: &mut PoolTask, at: Micros) -> Self {
        let begun = Instant::now();
        let counts = FlowCounts::of(pool_task, at);
        let mut flows = Self {
            state: pool_task.pool().snapshot_without_queues(),
            owners: pool_task.waiting_owners(),
            counts,
        };
        flows.counts.took = begun.elapsed();
        flows
    }
}
