//! Costs of queued and in-flight requests as if no part of their prompts were cached.
//!
//! The cost that the scheduler counts is lower if a worker is believed to have the prompt cached, and that belief comes
//! from the prompts of all tenants. A tenant that saw this cost could find out whether another tenant has sent a prompt.
//! Tenants are therefore shown the costs of this table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Costs by request id. The table has an entry for each request whose prompt a worker may have
/// cached. The entry exists from before the submit until the end of the request, so the table has
/// no more entries than there are requests.
#[derive(Debug, Default)]
pub struct UncachedCosts(Mutex<HashMap<Arc<str>, u64>>);

/// Keeps the entry of one request in its table.
#[derive(Debug)]
#[must_use]
pub(crate) struct UncachedCostGuard {
    costs: Arc<UncachedCosts>,
    id: Arc<str>,
}

impl UncachedCosts {
    /// Adds the cost of a request, in charged tokens, until the guard is dropped.
    pub(crate) fn add(self: &Arc<Self>, id: &str, cost: u64) -> UncachedCostGuard {
        let id: Arc<str> = id.into();
        self.table().insert(id.clone(), cost);
        UncachedCostGuard { costs: self.clone(), id }
    }

    /// Returns the cost of a request; `None` if it has ended, or no worker is believed to have its prompt cached.
    pub fn cost(&self, id: &str) -> Option<u64> {
        self.table().get(id).copied()
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Arc<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UncachedCostGuard {
    fn drop(&mut self) {
        self.costs.table().remove(&self.id);
    }
}
