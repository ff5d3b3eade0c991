//! The pools and their upstreams, by model.

use std::sync::Arc;

use fairgate_runtime::Gate;

/// One pool at work.
pub struct PoolHandle {
    /// Its name.
    pub name: Arc<str>,
    /// The way into it.
    pub gate: Gate,
    // data plane: its configuration (ArcSwap), estimator, workers
}

/// How a worker stands, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Its name.
    pub name: String,
    /// `up`, `unhealthy` (health checks fail), `broken` (requests fail on it), `draining`.
    pub state: &'static str,
    /// How many requests fly on it.
    pub in_flight: u64,
    /// How many it takes; any number where absent.
    pub slots: Option<u64>,
}

/// All pools. What is served changes as a whole, on reload.
pub struct Pools {/* data plane */}

#[allow(clippy::todo, unused_variables, missing_docs)]
impl Pools {
    /// All pools, sorted by name.
    pub fn all(&self) -> Vec<Arc<PoolHandle>> {
        todo!()
    }

    /// The pool that serves a model.
    pub fn serving(&self, model: &str) -> Option<Arc<PoolHandle>> {
        todo!()
    }

    /// The names of all models, sorted.
    pub fn models(&self) -> Vec<String> {
        todo!()
    }
}

#[allow(clippy::todo, missing_docs)]
impl PoolHandle {
    pub fn workers(&self) -> Vec<WorkerView> {
        todo!()
    }
}
