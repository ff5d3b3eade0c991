//! What the directory wants of a policy's flows.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{Inside, Node, Policy, Share};
use fairgate_core::units::Weight;
use fairgate_store::Directory;

/// What one flow is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish<'a> {
    pub(super) by: Attribute,
    pub(super) flow: &'a str,
    pub(super) weight: Weight,
    /// How many may fly, where the directory says.
    pub(super) cap: Option<u64>,
    /// The weight that the policy gives it; none where its nodes differ.
    pub(super) policy_weight: Option<Weight>,
    /// The cap that the policy gives it.
    pub(super) policy_cap: Option<u64>,
}

/// Everything that the directory wants and this policy has a share node for. Revoked keys have no more wishes.
pub(super) fn wishes<'a>(directory: &'a Directory, policy: &Policy) -> Vec<Wish<'a>> {
    let mut nodes = Vec::new();
    share_nodes(policy.root(), &mut nodes);
    let groups = directory.groups.iter();
    let groups = groups.map(|group| (Attribute::Group, group.name.as_str(), group.weight, None));
    let tenants = directory.tenants.iter();
    let tenants = tenants
        .map(|each| (Attribute::Tenant, each.name.as_str(), each.weight, each.limits.in_flight));
    let keys = directory.keys.iter().filter(|key| key.revoked_at.is_none());
    let keys = keys.map(|key| (Attribute::Key, key.id.as_str(), key.weight, key.limits.in_flight));
    let wish = |(by, flow, weight, cap)| {
        let of_it = || nodes.iter().filter(move |node| node.by == by);
        let first = of_it().next()?;
        let weight_in = |node: &Share| *node.weights.get(flow).unwrap_or(&node.default_weight);
        let policy_weight = weight_in(first);
        Some(Wish {
            by,
            flow,
            weight: Weight::new(weight).ok()?,
            cap,
            policy_weight: of_it()
                .all(|node| weight_in(node) == policy_weight)
                .then_some(policy_weight),
            policy_cap: first.caps.get(flow).copied().or(first.default_cap),
        })
    };
    groups.chain(tenants).chain(keys).filter_map(wish).collect()
}

fn share_nodes<'p>(node: &'p Node, found: &mut Vec<&'p Share>) {
    let mut inside = |inside: &'p Inside| {
        if let Inside::Node(node) = inside {
            share_nodes(node, found);
        }
    };
    match node {
        Node::Drr(drr) => drr.classes.iter().for_each(|class| inside(&class.inside)),
        Node::Load(load) => inside(&load.inside),
        Node::Share(share) => {
            inside(&share.inside);
            found.push(share);
        }
    }
}
