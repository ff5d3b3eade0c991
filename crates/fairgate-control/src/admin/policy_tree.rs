//! Builds the JSON tree of a pool's policy, with the flows of the directory.

use std::collections::BTreeMap;

use fairgate_api::admin::FlowAttribute;
use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    BandsPolicy, DrrPolicy, FlowInside, PolicyNode, QueuePolicy, SharePolicy,
};
use fairgate_core::snapshot::Snapshot;
use fairgate_store::Directory;
use serde::Serialize;
use utoipa::ToSchema;

use super::flow_settings::FlowSettings;

/// Maximum number of flows that one node shows.
const FLOWS_OF_NODE_MAX: usize = 200;
/// Maximum number of flows that a whole tree shows.
const FLOWS_OF_TREE_MAX: usize = 2_000;

/// A node of a policy, or a queue at its bottom.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PolicyNode)]
pub(super) struct PolicyNodeBody {
    /// Kind of the node: `share`, `partition` (a share of slots), `drr`, `load`, `bands` or `queue`.
    kind: &'static str,
    /// Attribute by which the node divides service; null for a queue.
    by: Option<FlowAttribute>,
    /// Order of a queue: `fcfs`, `wspt` or `edf`; null for a node.
    order: Option<&'static str>,
    /// Wait after which a request goes before all later requests of its queue, in milliseconds;
    /// null if there is no such limit.
    max_wait_ms: Option<u64>,
    /// The flows that the policy lists or the gateway knows, at most 200. Bands are in order of
    /// priority, classes in the order of the policy, and other flows in order of their names.
    #[schema(no_recursion)]
    flows: Vec<PolicyFlowBody>,
    /// Number of further flows that are not shown.
    more: u64,
    /// Settings of each flow that is not in `flows`; null if there is no such flow.
    #[schema(no_recursion)]
    others: Option<Box<PolicyFlowBody>>,
}

/// A flow of a node.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PolicyFlow)]
pub(super) struct PolicyFlowBody {
    /// Name of the flow; for a key, its id. Null in `others`.
    name: Option<String>,
    /// Name that the owner gave a key; null for other flows.
    label: Option<String>,
    /// Weight or, in a `drr` node, the quantum in the unit of the pool; null in `load` and `bands` nodes.
    weight: Option<u64>,
    /// Maximum number of requests in flight; null for no maximum.
    cap: Option<u64>,
    /// True if the flow is held.
    held: bool,
    /// Node or queue inside the flow.
    inside: PolicyNodeBody,
}

/// Group and tenant whose flows contain a node. They select the flows of the directory that can be
/// in the node.
#[derive(Clone, Copy, Default)]
struct SurroundingOwners<'a> {
    group: Option<&'a str>,
    tenant: Option<&'a str>,
}

/// Builds a tree, and counts its flows.
pub(super) struct PolicyTreeBuilder<'a> {
    snapshot: &'a Snapshot,
    directory: &'a Directory,
    flows_left: usize,
}

impl<'a> PolicyTreeBuilder<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, directory: &'a Directory) -> Self {
        Self { snapshot, directory, flows_left: FLOWS_OF_TREE_MAX }
    }

    pub(super) fn root(mut self) -> PolicyNodeBody {
        let snapshot = self.snapshot;
        self.node(snapshot.policy.root(), SurroundingOwners::default())
    }

    fn inside(&mut self, inside: &'a FlowInside, owners: SurroundingOwners<'a>) -> PolicyNodeBody {
        match inside {
            FlowInside::Queue(queue) => queue_body(queue),
            FlowInside::Node(node) => self.node(node, owners),
        }
    }

    fn node(&mut self, node: &'a PolicyNode, owners: SurroundingOwners<'a>) -> PolicyNodeBody {
        let kind = match node {
            PolicyNode::Share(SharePolicy { partition: true, .. }) => "partition",
            _ => node.kind(),
        };
        let (listed, inside_others): (Vec<_>, _) = match node {
            PolicyNode::Drr(DrrPolicy { classes, .. }) => {
                (classes.iter().map(|class| (&*class.name, &class.inside)).collect(), None)
            }
            PolicyNode::Bands(BandsPolicy { classes, .. }) => {
                (classes.iter().map(|class| (&*class.name, &class.inside)).collect(), None)
            }
            PolicyNode::Share(share) if !share.classes.is_empty() => {
                (share.classes.iter().map(|class| (&*class.name, &class.inside)).collect(), None)
            }
            PolicyNode::Share(share) => (Vec::new(), Some(&share.inside)),
            PolicyNode::Load(load) => (Vec::new(), Some(&load.inside)),
        };
        let mut flows: Vec<(&'a str, Option<&'a str>, &'a FlowInside)> =
            listed.into_iter().map(|(name, inside)| (name, None, inside)).collect();
        if let Some(inside) = inside_others {
            let known = self.known_flows(node, owners);
            flows.extend(known.into_iter().map(|(name, label)| (name, label, inside)));
        }
        let shown = flows.len().min(FLOWS_OF_NODE_MAX).min(self.flows_left);
        self.flows_left -= shown;
        let more = u64::try_from(flows.len() - shown).unwrap_or(u64::MAX);
        let bodies = flows.into_iter().take(shown).map(|(name, label, inside)| {
            let FlowSettings { weight, cap, held } =
                FlowSettings::in_node(self.snapshot, node, name);
            let (name, label) = (Some(name.to_owned()), label.map(str::to_owned));
            let within = within(owners, node.by(), name.as_deref(), self.directory);
            PolicyFlowBody { weight, cap, held, inside: self.inside(inside, within), name, label }
        });
        let flows = bodies.collect();
        let others = inside_others.map(|inside| {
            // No flow has an empty name, so these are the defaults.
            let (weight, cap) = (node.weight_of("").map(|weight| weight.get()), node.cap_of(""));
            let inside = self.inside(inside, nobody(node.by(), owners));
            Box::new(PolicyFlowBody { name: None, label: None, weight, cap, held: false, inside })
        });
        let (order, max_wait_ms) = (None, None);
        PolicyNodeBody { kind, by: Some(node.by().into()), order, max_wait_ms, flows, more, others }
    }

    /// Returns the names of the flows in a node that lists no classes, sorted, with their labels. These are the flows of
    /// the directory, and those that the policy or an operator gave a weight, a cap or a hold.
    fn known_flows(
        &self,
        node: &'a PolicyNode,
        owners: SurroundingOwners<'a>,
    ) -> Vec<(&'a str, Option<&'a str>)> {
        let mut known: BTreeMap<&'a str, Option<&'a str>> = BTreeMap::new();
        let Directory { groups, tenants, keys, .. } = self.directory;
        let is = |wanted: Option<&str>, name: &str| wanted.is_none_or(|wanted| wanted == name);
        match node.by() {
            Attribute::Group => known.extend(groups.iter().map(|group| (&*group.name, None))),
            Attribute::Tenant => {
                let tenants = tenants.iter().filter(|tenant| is(owners.group, &tenant.group));
                known.extend(tenants.map(|tenant| (&*tenant.name, None)));
            }
            Attribute::Key => {
                let in_use = keys.iter().filter(|key| key.revoked_at.is_none());
                let keys = in_use.filter(|key| is(owners.tenant, &key.tenant));
                known.extend(keys.map(|key| (&*key.id, Some(&*key.name))));
            }
            by => {
                if let PolicyNode::Share(share) = node {
                    let stated = share.weights.keys().chain(share.caps.keys());
                    known.extend(stated.map(|name| (&**name, None)));
                }
                let Snapshot { holds, weights, caps, .. } = self.snapshot;
                let held = holds.iter().filter(|(of, _)| *of == by).map(|(_, name)| &**name);
                let weighed =
                    weights.iter().filter(|(of, ..)| *of == by).map(|(_, name, _)| &**name);
                let capped = caps.iter().filter(|cap| cap.by == by).map(|cap| &*cap.flow);
                known.extend(held.chain(weighed).chain(capped).map(|name| (name, None)));
            }
        }
        known.into_iter().collect()
    }
}

/// Returns the owners whose flows contain the node inside this flow.
fn within<'a>(
    owners: SurroundingOwners<'a>,
    by: Attribute,
    flow: Option<&str>,
    directory: &'a Directory,
) -> SurroundingOwners<'a> {
    let named = |name: &&'a str| Some(*name) == flow;
    match by {
        Attribute::Group => {
            let group = directory.groups.iter().map(|group| &*group.name).find(named);
            SurroundingOwners { group, ..owners }
        }
        Attribute::Tenant => {
            let tenant = directory.tenants.iter().map(|tenant| &*tenant.name).find(named);
            SurroundingOwners { tenant, ..owners }
        }
        _ => owners,
    }
}

/// Returns owners that match nobody, for the node inside a flow that the directory does not have.
fn nobody(by: Attribute, owners: SurroundingOwners<'_>) -> SurroundingOwners<'_> {
    match by {
        // No group and no tenant has an empty name.
        Attribute::Group => SurroundingOwners { group: Some(""), ..owners },
        Attribute::Tenant => SurroundingOwners { tenant: Some(""), ..owners },
        _ => owners,
    }
}

fn queue_body(queue: &QueuePolicy) -> PolicyNodeBody {
    PolicyNodeBody {
        kind: "queue",
        by: None,
        order: Some(queue.order.name()),
        max_wait_ms: queue.max_wait.map(|wait| wait.0 / 1000),
        flows: Vec::new(),
        more: 0,
        others: None,
    }
}
