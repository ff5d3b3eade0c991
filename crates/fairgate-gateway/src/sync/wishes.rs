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

/// Tenants or keys that have an in-flight cap which this policy does not hold in all, with one of them: the core counts
/// in each share node by itself, and there is none, or there are several that one flow can be in.
pub(super) fn unheld<'a>(directory: &'a Directory, policy: &Policy) -> Vec<(Attribute, &'a str)> {
    let capped_tenant = directory.tenants.iter().find(|each| each.limits.in_flight.is_some());
    let capped_key = directory
        .keys
        .iter()
        .find(|key| key.revoked_at.is_none() && key.limits.in_flight.is_some());
    let capped = [
        (Attribute::Tenant, capped_tenant.map(|tenant| tenant.name.as_str())),
        (Attribute::Key, capped_key.map(|key| key.id.as_str())),
    ];
    let unheld = |(by, flow): (Attribute, Option<&'a str>)| {
        flow.filter(|_| !counts_once(policy.root(), by)).map(|flow| (by, flow))
    };
    capped.into_iter().filter_map(unheld).collect()
}

/// Whether all that a flow has in flight is counted in one share node, whichever way it goes down the tree.
fn counts_once(node: &Node, by: Attribute) -> bool {
    if node.by() == by {
        return matches!(node, Node::Share(_));
    }
    // A tenant is in one group, and a key in one tenant: such a node above splits nobody.
    let whole = match node.by() {
        Attribute::Group => true,
        Attribute::Tenant => by == Attribute::Key,
        _ => false,
    };
    let within = |inside: &Inside| match inside {
        Inside::Queue(_) => false,
        Inside::Node(node) => counts_once(node, by),
    };
    match node {
        Node::Drr(drr) => {
            (whole || drr.classes.len() == 1)
                && drr.classes.iter().all(|class| within(&class.inside))
        }
        Node::Share(share) => whole && within(&share.inside),
        Node::Load(load) => whole && within(&load.inside),
    }
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
