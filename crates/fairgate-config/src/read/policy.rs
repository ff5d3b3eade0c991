//! Reads the policy of a pool, which has the tree format of a journal. The gateway has additional rules for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{FlowInside, Policy, PolicyNode, QueuePolicy};
use fairgate_journal::{JournalError, parse_policy};

use crate::classes::owners_tree;
use crate::field::ConfigField;
use crate::json::write_json;
use crate::read::deadlines;
use crate::suggest::did_you_mean;

const NODES: [&str; 4] = ["drr", "share", "load", "bands"];

/// Builds the default policy: shares by group, then by tenant, then by key, and serves the requests of each
/// key in order of arrival. With `partition`, the groups share slots.
pub(crate) fn default_policy(partition: bool) -> Policy {
    let tree = owners_tree(partition, QueuePolicy::default());
    Policy::new(tree).expect("three shares in each other are a policy")
}

/// Reads a policy whose classes may have deadlines. The gateway applies these deadlines, because the core has no
/// deadlines of classes.
pub(super) fn policy_with_deadlines(
    field: ConfigField<'_>,
) -> Option<(Policy, BTreeMap<String, Duration>)> {
    let (without, deadlines) = deadlines::extract_deadlines(&field)?;
    let policy = policy(field.with_value(&without))?;
    Some((policy, deadlines))
}

pub(crate) fn policy(field: ConfigField<'_>) -> Option<Policy> {
    let Some(entries) = field.entries() else {
        return field.wrong("must be a node: a mapping with share, drr, load or bands");
    };
    // A journal also accepts a policy inside a pool or a header; the configuration does not.
    for (entry, inner) in &entries {
        if !NODES.contains(&&*entry.name) {
            let guess = did_you_mean(&entry.name, NODES);
            let message = format!("unknown: a node is one of share, drr, load, bands{guess}");
            return field.wrong_at(entry.place, &inner.path, message);
        }
    }
    let mut json = String::new();
    write_json(field.node, &mut json);
    match parse_policy(&json) {
        Ok(policy) => {
            let trusted = check(policy.root(), policy.root().kind(), false);
            match trusted {
                Ok(()) => Some(policy),
                Err((at, message)) => field.wrong_below(&at, message),
            }
        }
        Err(JournalError::Bad { field: at, message, .. }) => {
            field.wrong_below(&at.unwrap_or_default(), message)
        }
        Err(error) => field.wrong(error.to_string()),
    }
}

/// Checks that clients cannot get a larger share by choosing names. `owned` is true if all requests
/// in the node belong to one tenant or key: if the node is below a node that shares by tenant or
/// key, and not in the default class of that node.
fn check(node: &PolicyNode, path: &str, owned: bool) -> Result<(), (String, String)> {
    let by = node.by();
    let name = by.name();
    if matches!(by, Attribute::Agent | Attribute::Session) && !owned {
        let message = format!(
            "{name} names are chosen by clients, so who uses many of them would gain: share by {name} only \
             inside a node that shares by tenant or key (and there not in a default class, where several meet)"
        );
        return Err((format!("{path}.by"), message));
    }
    // Projects do not count as owners: requests without a project share one flow.
    let owns = matches!(by, Attribute::Tenant | Attribute::Key);
    let below = |inside: &FlowInside, path: &str, owned: bool| match inside {
        FlowInside::Queue(_) => Ok(()),
        FlowInside::Node(node) => check(node, &format!("{path}.inside.{}", node.kind()), owned),
    };
    let of_class =
        |i: usize, name: &str, class: &FlowInside, node: &FlowInside, default: Option<&str>| {
            let meets = default.map_or(i == 0, |default| default == name);
            let at = match is_inherited(class, node) {
                true => path.to_owned(),
                false => format!("{path}.classes[{i}]"),
            };
            below(class, &at, owned || owns && !meets)
        };
    match node {
        PolicyNode::Load(load) => below(&load.inside, path, owned || owns),
        PolicyNode::Share(share) if share.classes.is_empty() => {
            below(&share.inside, path, owned || owns)
        }
        PolicyNode::Share(share) => share.classes.iter().enumerate().try_for_each(|(i, class)| {
            of_class(i, &class.name, &class.inside, &share.inside, share.default.as_deref())
        }),
        PolicyNode::Bands(bands) => bands.classes.iter().enumerate().try_for_each(|(i, class)| {
            of_class(i, &class.name, &class.inside, &bands.inside, bands.default.as_deref())
        }),
        PolicyNode::Drr(drr) => drr.classes.iter().enumerate().try_for_each(|(i, class)| {
            of_class(i, &class.name, &class.inside, &drr.inside, drr.default.as_deref())
        }),
    }
}

/// Returns true if a class uses the `inside` of its node and has none of its own.
fn is_inherited(class: &FlowInside, node: &FlowInside) -> bool {
    matches!((class, node), (FlowInside::Node(class), FlowInside::Node(node)) if Arc::ptr_eq(class, node))
}
