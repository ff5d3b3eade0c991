//! Counts the waiting requests of owners that the policy has no flow for, so that no search of the
//! queues is needed.
//!
//! The flows of the policy count their own waiting requests. If a tenant or a project is not a
//! flow, for example because the policy shares only by classes, its requests are counted here. A
//! request whose tenant and project are both flows costs nothing.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::policy::Policy;

/// An owner of requests. It consists of those names for which the policy has no flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestOwner {
    /// Name of the group; `None` if the request has none, or if the group is a flow.
    pub group: Option<Box<str>>,
    /// Names of the tenant's group and of the tenant; `None` if the request has none, or if the tenant is a flow.
    pub tenant: Option<(Box<str>, Box<str>)>,
    /// Name of the project; `None` if the request has none, or if the project is a flow.
    pub project: Option<Box<str>>,
}

/// Number of waiting requests by owner.
#[derive(Debug, Default)]
pub(crate) struct WaitingOwners(HashMap<Arc<RequestOwner>, u64>);

impl RequestOwner {
    /// Returns the owner of a request; `None` if each of its names is a flow of the policy.
    pub(crate) fn of(policy: &Policy, attributes: &Attributes) -> Option<Arc<Self>> {
        let named = |by| attributes.get(by);
        let mut is_flow = [false; 3];
        for (node, flow) in policy.path_of(named) {
            // A node that lists its classes puts all names that are not listed into one flow, which
            // has another name.
            let is_own = named(node.by()) == Some(flow);
            match node.by() {
                Attribute::Group => is_flow[0] |= is_own,
                Attribute::Tenant => is_flow[1] |= is_own,
                Attribute::Project => is_flow[2] |= is_own,
                _ => {}
            }
        }
        let unless = |is_flow: bool, by| (!is_flow).then(|| named(by)).flatten();
        let group = unless(is_flow[0], Attribute::Group);
        let tenant = unless(is_flow[1], Attribute::Tenant);
        let project = unless(is_flow[2], Attribute::Project);
        if group.is_none() && tenant.is_none() && project.is_none() {
            return None;
        }
        let around = named(Attribute::Group).unwrap_or("-");
        Some(Arc::new(Self {
            group: group.map(Into::into),
            tenant: tenant.map(|tenant| (around.into(), tenant.into())),
            project: project.map(Into::into),
        }))
    }
}

impl WaitingOwners {
    /// Adds a request that begins to wait.
    pub(crate) fn begin(&mut self, owner: &Arc<RequestOwner>) {
        match self.0.get_mut(owner) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(owner.clone(), 1)),
        }
    }

    /// Removes a request that no longer waits.
    pub(crate) fn end(&mut self, owner: &Arc<RequestOwner>) {
        let Some(count) = self.0.get_mut(owner) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.0.remove(owner);
        }
    }

    /// Forgets the counts of all owners.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns all owners with their waiting requests.
    pub(crate) fn all(&self) -> Vec<(Arc<RequestOwner>, u64)> {
        self.0.iter().map(|(owner, count)| (owner.clone(), *count)).collect()
    }
}
