//! Deadlines of classes, which are written in a pool's policy next to the settings that the core knows.
//!
//! The core's policies, which journals contain, have no deadlines, because each submit event states its own deadline.
//! So the deadlines are taken out of the policy before the core reads it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::field::ConfigField;
use crate::read::TIMEOUT;
use crate::yaml::{YamlNode, YamlValue};

/// Name of the field in a class.
const DEADLINE: &str = "deadline";

/// Returns a copy of the policy's tree without deadlines, and the deadlines by class name.
pub(super) fn extract_deadlines(
    policy: &ConfigField<'_>,
) -> Option<(YamlNode, BTreeMap<String, Duration>)> {
    let mut deadlines = BTreeMap::new();
    let read = collect(policy, &mut deadlines);
    let mut node = policy.node.clone();
    strip(&mut node);
    read.map(|()| (node, deadlines))
}

/// Reads the deadlines in a node and in all nodes inside it.
fn collect(node: &ConfigField<'_>, deadlines: &mut BTreeMap<String, Duration>) -> Option<()> {
    let mut all_read = Some(());
    for (_, kind) in node.entries().into_iter().flatten() {
        let by = entry(&kind, "by").and_then(|by| by.scalar());
        let classes = entry(&kind, "classes").map(|classes| classes.elements());
        for class in classes.into_iter().flatten() {
            if let Some(deadline) = entry(&class, DEADLINE) {
                all_read = all_read.and(of_class(&class, deadline, by, deadlines));
            }
            if let Some(inside) = entry(&class, "inside") {
                all_read = all_read.and(collect(&inside, deadlines));
            }
        }
        if let Some(inside) = entry(&kind, "inside") {
            all_read = all_read.and(collect(&inside, deadlines));
        }
    }
    all_read
}

/// Reads the deadline of one class. Records an error if the node is not `by: class`, or if the class occurs twice with
/// different deadlines.
fn of_class(
    class: &ConfigField<'_>,
    deadline: ConfigField<'_>,
    by: Option<&str>,
    deadlines: &mut BTreeMap<String, Duration>,
) -> Option<()> {
    if by != Some("class") {
        return deadline.wrong(
            "is for the classes of a node with by: class; keys have deadlines of their own (fairgate key set --deadline)",
        );
    }
    let time = deadline.clone().duration(TIMEOUT)?;
    // A missing class name is an error when the policy is read.
    let Some(name) = entry(class, "name").and_then(|name| name.scalar()) else { return Some(()) };
    match deadlines.insert(name.to_owned(), time) {
        Some(other) if other != time => deadline.wrong(format!(
            "the class {name:?} stands in this policy twice with different deadlines: state one, or the same in both places"
        )),
        _ => Some(()),
    }
}

fn entry<'a>(field: &ConfigField<'a>, name: &str) -> Option<ConfigField<'a>> {
    let mut entries = field.entries()?.into_iter();
    entries.find(|(entry, _)| entry.name == name).map(|(_, field)| field)
}

/// Removes the deadlines from all lists of classes.
fn strip(node: &mut YamlNode) {
    match &mut node.value {
        YamlValue::Scalar { .. } => {}
        YamlValue::List(nodes) => nodes.iter_mut().for_each(strip),
        YamlValue::Map(entries) => {
            for entry in entries {
                if let ("classes", YamlValue::List(classes)) = (&*entry.name, &mut entry.node.value)
                {
                    classes.iter_mut().for_each(strip_class);
                }
                strip(&mut entry.node);
            }
        }
    }
}

fn strip_class(class: &mut YamlNode) {
    if let YamlValue::Map(fields) = &mut class.value {
        fields.retain(|field| field.name != DEADLINE);
    }
}
