//! The policy of a pool: the same tree as in a journal, and the rules that a gateway adds to it.

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{Inside, Node as PolicyNode, Policy, Queue, Share};
use fairgate_journal::{JournalError, parse_policy};

use crate::field::Field;
use crate::json::write_json;
use crate::suggest::did_you_mean;

const NODES: [&str; 3] = ["drr", "share", "load"];

/// Share by group, then tenant, then key, first come first served.
pub(crate) fn default_policy(partition: bool) -> Policy {
    let tree = owners_tree(partition, Queue::default());
    Policy::new(tree).expect("three shares in each other are a policy")
}

/// Share by group, then tenant, then key, with such a queue for each key.
pub(crate) fn owners_tree(partition: bool, queue: Queue) -> PolicyNode {
    let share =
        |by, partition, inside| PolicyNode::Share(Share { partition, inside, ..Share::new(by) });
    let keys = share(Attribute::Key, false, Inside::Queue(queue));
    let tenants = share(Attribute::Tenant, false, Inside::Node(Arc::new(keys)));
    share(Attribute::Group, partition, Inside::Node(Arc::new(tenants)))
}

pub(crate) fn policy(field: Field<'_>) -> Option<Policy> {
    let Some(entries) = field.entries() else {
        return field.wrong("must be a node: a mapping with share, drr or load");
    };
    // A journal's policy may also stand inside a pool or a header; here it may not.
    for (entry, inner) in &entries {
        if !NODES.contains(&&*entry.name) {
            let guess = did_you_mean(&entry.name, NODES);
            let message = format!("unknown: a node is one of share, drr, load{guess}");
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

/// Checks that nobody gains by the names that he chooses. `owned` is whether all requests in the node are of one tenant
/// or key: it lies below a node that shares by tenant or key, and not in that node's default class.
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
    // Projects are no owners: requests without one meet in one flow.
    let owns = matches!(by, Attribute::Tenant | Attribute::Key);
    let below = |inside: &Inside, path: &str, owned: bool| match inside {
        Inside::Queue(_) => Ok(()),
        Inside::Node(node) => check(node, &format!("{path}.inside.{}", node.kind()), owned),
    };
    let default_class = |default: &Option<Box<str>>, i: usize, name: &str| match default {
        Some(default) => **default == *name,
        None => i == 0,
    };
    match node {
        PolicyNode::Load(load) => below(&load.inside, path, owned || owns),
        PolicyNode::Share(share) if share.classes.is_empty() => {
            below(&share.inside, path, owned || owns)
        }
        PolicyNode::Share(share) => share.classes.iter().enumerate().try_for_each(|(i, class)| {
            let meets = default_class(&share.default, i, &class.name);
            let at = match is_the_nodes(&class.inside, &share.inside) {
                true => path.to_owned(),
                false => format!("{path}.classes[{i}]"),
            };
            below(&class.inside, &at, owned || owns && !meets)
        }),
        PolicyNode::Drr(drr) => drr.classes.iter().enumerate().try_for_each(|(i, class)| {
            let meets = default_class(&drr.default, i, &class.name);
            below(&class.inside, &format!("{path}.classes[{i}]"), owned || owns && !meets)
        }),
    }
}

/// Whether a class has inside what its node says, not something of its own.
fn is_the_nodes(class: &Inside, node: &Inside) -> bool {
    matches!((class, node), (Inside::Node(class), Inside::Node(node)) if Arc::ptr_eq(class, node))
}
