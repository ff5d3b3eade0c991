//! The weights and caps that the directory gives to a policy's flows.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{FlowInside, Policy, PolicyNode};
use fairgate_core::units::Weight;
use fairgate_store::Directory;

/// A project's id, with the weight that policies use for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectWeight {
    pub(crate) id: String,
    pub(crate) weight: u64,
}

/// Weight and cap of one flow in the directory, and its weight and cap in the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectorySettings<'a> {
    pub(super) by: Attribute,
    pub(super) flow: &'a str,
    /// Weight in the directory. `None` if every share node by this attribute lists its classes, and so sets their
    /// weights itself.
    pub(super) weight: Option<Weight>,
    /// Maximum number of requests in flight; `None` if the directory sets no cap.
    pub(super) cap: Option<u64>,
    /// Weight that the policy gives the flow; `None` if the policy gives none, or if its nodes give different weights.
    pub(super) policy_weight: Option<Weight>,
    /// Cap that the policy gives the flow in the innermost node by this attribute; `None` if it gives none.
    pub(super) policy_cap: Option<u64>,
}

/// Returns the settings of all groups, tenants, keys and projects. Leaves out revoked keys, and attributes by which the
/// policy has no share or bands node.
pub(super) fn directory_settings<'a>(
    directory: &'a Directory,
    projects: &'a [ProjectWeight],
    policy: &Policy,
) -> Vec<DirectorySettings<'a>> {
    let mut nodes = Vec::new();
    capping_nodes(policy.root(), &mut nodes);
    let groups = directory.groups.iter();
    let groups = groups.map(|group| (Attribute::Group, group.name.as_str(), group.weight, None));
    let tenants = directory.tenants.iter();
    let tenants = tenants
        .map(|each| (Attribute::Tenant, each.name.as_str(), each.weight, each.limits.in_flight));
    let keys = directory.keys.iter().filter(|key| key.revoked_at.is_none());
    let keys = keys.map(|key| (Attribute::Key, key.id.as_str(), key.weight, key.limits.in_flight));
    let projects = projects.iter().map(|it| (Attribute::Project, it.id.as_str(), it.weight, None));
    let wanted_settings = |(by, flow, weight, cap)| {
        let of_it = || nodes.iter().filter(move |node| node.by() == by);
        let first = of_it().next()?;
        // The classes of a bands node have caps but no weights.
        let sharing = || of_it().filter(|node| matches!(node, PolicyNode::Share(_)));
        let policy_weight = sharing().next().and_then(|node| node.weight_of(flow));
        let agreed = sharing().all(|node| node.weight_of(flow) == policy_weight);
        let is_weighed = sharing().any(|node| node.default_class().is_none());
        Some(DirectorySettings {
            by,
            flow,
            weight: Weight::new(weight).ok().filter(|_| is_weighed),
            cap,
            policy_weight: policy_weight.filter(|_| agreed),
            policy_cap: first.cap_of(flow),
        })
    };
    groups.chain(tenants).chain(keys).chain(projects).filter_map(wanted_settings).collect()
}

/// Returns one tenant and one key whose in-flight caps this policy cannot enforce, if there are
/// any. A cap cannot be enforced if some requests of the tenant or key pass no share or bands node
/// by that attribute. The same is true if they share a class with other tenants or keys in such a
/// node.
pub(super) fn unenforced_caps<'a>(
    directory: &'a Directory,
    policy: &Policy,
) -> Vec<(Attribute, &'a str)> {
    let root = policy.root();
    let tenant = directory.tenants.iter().find(|each| {
        each.limits.in_flight.is_some() && !is_enforced(root, Attribute::Tenant, &each.name)
    });
    let key = directory.keys.iter().find(|key| {
        key.revoked_at.is_none()
            && key.limits.in_flight.is_some()
            && !is_enforced(root, Attribute::Key, &key.id)
    });
    let tenant = tenant.map(|tenant| (Attribute::Tenant, tenant.name.as_str()));
    let key = key.map(|key| (Attribute::Key, key.id.as_str()));
    tenant.into_iter().chain(key).collect()
}

/// Returns true if every path down the tree passes a share or bands node in which this name has a flow of its own. The
/// core counts all these flows together.
fn is_enforced(node: &PolicyNode, by: Attribute, flow: &str) -> bool {
    if let PolicyNode::Share(_) | PolicyNode::Bands(_) = node
        && node.by() == by
    {
        return node.inside_of(flow).is_some() && node.default_class() != Some(flow);
    }
    node.insides().into_iter().all(|inside| match inside {
        FlowInside::Queue(_) => false,
        FlowInside::Node(node) => is_enforced(node, by, flow),
    })
}

/// Collects the nodes whose flows may have caps. A node comes after the nodes inside it.
fn capping_nodes<'p>(node: &'p PolicyNode, found: &mut Vec<&'p PolicyNode>) {
    node.nodes_inside().for_each(|inside| capping_nodes(inside, found));
    if let PolicyNode::Share(_) | PolicyNode::Bands(_) = node {
        found.push(node);
    }
}
