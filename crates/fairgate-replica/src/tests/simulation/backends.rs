//! Backends that count the requests that really run on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Name of a pool and of a worker.
pub(super) type WorkerName = (Arc<str>, Arc<str>);

/// All backends of a cluster.
#[derive(Debug, Default)]
pub(super) struct Backends {
    running: BTreeMap<WorkerName, BTreeSet<Arc<str>>>,
    /// Running requests that the cluster need not count: they were granted in an end of the log
    /// that was lost, or belong to a member that was paused for too long.
    excused: BTreeSet<Arc<str>>,
}

impl Backends {
    pub(super) fn begin(&mut self, worker: WorkerName, id: &Arc<str>) {
        let is_new = self.running.entry(worker).or_default().insert(id.clone());
        assert!(is_new, "{id} runs twice");
    }

    pub(super) fn end(&mut self, worker: &WorkerName, id: &Arc<str>) {
        let was_there = self.running.get_mut(worker).is_some_and(|ids| ids.remove(id));
        assert!(was_there, "{id} does not run on {worker:?}");
        self.excused.remove(id);
    }

    /// Excuses a request. Returns true if it was not excused before.
    pub(super) fn excuse(&mut self, id: &Arc<str>) -> bool {
        self.excused.insert(id.clone())
    }

    /// Counts a request again. Returns true if it was excused.
    pub(super) fn count_again(&mut self, id: &Arc<str>) -> bool {
        self.excused.remove(id)
    }

    pub(super) fn is_excused(&self, id: &Arc<str>) -> bool {
        self.excused.contains(id)
    }

    /// Returns two numbers of requests that run on a worker: all of them, and the excused ones.
    pub(super) fn on(&self, worker: &WorkerName) -> (u64, u64) {
        let Some(ids) = self.running.get(worker) else { return (0, 0) };
        let excused = ids.intersection(&self.excused).count();
        (ids.len() as u64, excused as u64)
    }

    /// Returns all running requests, each with its worker.
    pub(super) fn all(&self) -> Vec<(WorkerName, Arc<str>)> {
        let running = self.running.iter();
        let pairs =
            running.flat_map(|(worker, ids)| ids.iter().map(|id| (worker.clone(), id.clone())));
        pairs.collect()
    }
}
