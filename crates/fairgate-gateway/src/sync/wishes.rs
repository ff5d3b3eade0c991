//! What the directory wants of a policy's flows.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{Inside, Node, Policy};
use fairgate_core::units::Weight;
use fairgate_store::Directory;

use crate::tree::{cap_of, insides, nodes_inside, weight_of};

/// A project, and its weight as policies count it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProjectWeight {
    pub(crate) id: String,
    pub(crate) weight: u64,
}

/// What one flow is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish<'a> {
    pub(super) by: Attribute,
    pub(super) flow: &'a str,
    /// Its weight; none where every node that shares by it lists its classes, which have their own.
    pub(super) weight: Option<Weight>,
    /// How many may be in flight, where the directory says.
    pub(super) cap: Option<u64>,
    /// The weight that the policy gives it; none where its nodes differ.
    pub(super) policy_weight: Option<Weight>,
    /// The cap that the policy gives it.
    pub(super) policy_cap: Option<u64>,
}

/// Everything that the directory and the projects want and this policy has a share node for. Revoked keys have no more
/// wishes.
pub(super) fn wishes<'a>(
    directory: &'a Directory,
    projects: &'a [ProjectWeight],
    policy: &Policy,
) -> Vec<Wish<'a>> {
    let mut nodes = Vec::new();
    share_nodes(policy.root(), &mut nodes);
    let groups = directory.groups.iter();
    let groups = groups.map(|group| (Attribute::Group, group.name.as_str(), group.weight, None));
    let tenants = directory.tenants.iter();
    let tenants = tenants
        .map(|each| (Attribute::Tenant, each.name.as_str(), each.weight, each.limits.in_flight));
    let keys = directory.keys.iter().filter(|key| key.revoked_at.is_none());
    let keys = keys.map(|key| (Attribute::Key, key.id.as_str(), key.weight, key.limits.in_flight));
    let projects = projects.iter().map(|it| (Attribute::Project, it.id.as_str(), it.weight, None));
    let wish = |(by, flow, weight, cap)| {
        let of_it = || nodes.iter().filter(move |node| node.by() == by);
        let first = of_it().next()?;
        let policy_weight = weight_of(first, flow);
        let agreed = of_it().all(|node| weight_of(node, flow) == policy_weight);
        let is_weighed = of_it().any(|node| !has_classes(node));
        Some(Wish {
            by,
            flow,
            weight: Weight::new(weight).ok().filter(|_| is_weighed),
            cap,
            policy_weight: policy_weight.filter(|_| agreed),
            policy_cap: cap_of(first, flow),
        })
    };
    groups.chain(tenants).chain(keys).chain(projects).filter_map(wish).collect()
}

fn has_classes(node: &Node) -> bool {
    match node {
        Node::Drr(_) => true,
        Node::Share(share) => !share.classes.is_empty(),
        Node::Load(_) => false,
    }
}

/// Tenants or keys that have an in-flight cap which this policy does not hold, with one of each: some of their requests
/// pass no share node by that attribute, or do so in a class with others.
pub(super) fn unheld<'a>(directory: &'a Directory, policy: &Policy) -> Vec<(Attribute, &'a str)> {
    let root = policy.root();
    let tenant = directory.tenants.iter().find(|each| {
        each.limits.in_flight.is_some() && !is_held(root, Attribute::Tenant, &each.name)
    });
    let key = directory.keys.iter().find(|key| {
        key.revoked_at.is_none()
            && key.limits.in_flight.is_some()
            && !is_held(root, Attribute::Key, &key.id)
    });
    let tenant = tenant.map(|tenant| (Attribute::Tenant, tenant.name.as_str()));
    let key = key.map(|key| (Attribute::Key, key.id.as_str()));
    tenant.into_iter().chain(key).collect()
}

/// Whether every way down the tree passes a share node in which this is a flow of its own. The core counts all of them
/// together.
fn is_held(node: &Node, by: Attribute, flow: &str) -> bool {
    if let Node::Share(share) = node
        && share.by == by
    {
        let is_default = match &share.default {
            Some(default) => **default == *flow,
            None => share.classes.first().is_some_and(|class| *class.name == *flow),
        };
        let is_listed = share.classes.iter().any(|class| *class.name == *flow);
        return share.classes.is_empty() || is_listed && !is_default;
    }
    insides(node).into_iter().all(|inside| match inside {
        Inside::Queue(_) => false,
        Inside::Node(node) => is_held(node, by, flow),
    })
}

fn share_nodes<'p>(node: &'p Node, found: &mut Vec<&'p Node>) {
    nodes_inside(node).for_each(|inside| share_nodes(inside, found));
    if let Node::Share(_) = node {
        found.push(node);
    }
}
