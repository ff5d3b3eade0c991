//! Current weight, cap and hold of a flow: those of the policy, unless an operator or the directory
//! has set others.

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::PolicyNode;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Weight;

/// Settings of one flow in one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowSettings {
    /// Weight or, in a drr node, the quantum in the unit of the pool; `None` if the node has no weights.
    pub(super) weight: Option<u64>,
    /// Maximum number of requests in flight; `None` for no maximum.
    pub(super) cap: Option<u64>,
    /// True if the flow is held.
    pub(super) held: bool,
}

impl FlowSettings {
    /// Returns the settings of a flow in the first node by this attribute, from the root down.
    pub(super) fn of_flow(snapshot: &Snapshot, by: Attribute, flow: &str) -> Self {
        match first_node(snapshot.policy.root(), by) {
            Some(node) => Self::in_node(snapshot, node, flow),
            None => Self { held: is_held(snapshot, by, flow), ..Self::default() },
        }
    }

    /// Returns the settings of a flow in this node.
    pub(super) fn in_node(snapshot: &Snapshot, node: &PolicyNode, flow: &str) -> Self {
        let by = node.by();
        let weight = node.weight_of(flow).map(Weight::get);
        let set_weight = snapshot.weights.iter().find(|(of, name, _)| *of == by && **name == *flow);
        let set_cap = snapshot.caps.iter().find(|cap| cap.by == by && *cap.flow == *flow);
        Self {
            weight: weight.map(|weight| set_weight.map_or(weight, |(_, _, set)| set.get())),
            cap: set_cap.map_or_else(|| node.cap_of(flow), |set| set.slots),
            held: is_held(snapshot, by, flow),
        }
    }
}

fn is_held(snapshot: &Snapshot, by: Attribute, flow: &str) -> bool {
    snapshot.holds.iter().any(|(of, name)| *of == by && **name == *flow)
}

fn first_node(node: &PolicyNode, by: Attribute) -> Option<&PolicyNode> {
    if node.by() == by {
        return Some(node);
    }
    node.nodes_inside().find_map(|inside| first_node(inside, by))
}

#[cfg(test)]
mod tests {
    use fairgate_core::Pool;
    use fairgate_core::event::{Event, PoolConfig};
    use fairgate_core::units::Micros;
    use fairgate_journal::parse_policy;

    use super::*;

    #[test]
    fn what_events_set_comes_before_what_the_policy_says() {
        let policy = parse_policy(
            r#"{"share":{"by":"group","weights":{"a":300},"default_weight":50,"caps":{"a":4},"inside":
            {"share":{"by":"tenant"}}}}"#,
        );
        let mut pool = Pool::new(PoolConfig::new(1, policy.unwrap()));
        let of = |pool: &Pool, by, flow| FlowSettings::of_flow(&pool.snapshot(), by, flow);
        let plain = FlowSettings { weight: Some(300), cap: Some(4), held: false };
        assert_eq!(of(&pool, Attribute::Group, "a"), plain);
        let other = FlowSettings { weight: Some(50), cap: None, held: false };
        assert_eq!(of(&pool, Attribute::Group, "b"), other);
        assert_eq!(of(&pool, Attribute::Tenant, "x").weight, Some(100));
        assert_eq!(of(&pool, Attribute::Agent, "x"), FlowSettings::default());
        let (by, flow) = (Attribute::Group, Box::<str>::from("a"));
        for event in [
            Event::Weight { by, flow: flow.clone(), weight: Weight::new(7).unwrap() },
            Event::Cap { by, flow: flow.clone(), slots: None },
            Event::Hold { by, flow },
        ] {
            pool.apply(Micros(0), event, &mut Vec::new()).unwrap();
        }
        let set = FlowSettings { weight: Some(7), cap: None, held: true };
        assert_eq!(of(&pool, Attribute::Group, "a"), set);
    }
}
