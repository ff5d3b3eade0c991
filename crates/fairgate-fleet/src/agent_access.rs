//! Rules that decide for which projects and tasks an agent may work: labels, machines and tenants.
//!
//! A tenant, a project and a task may require labels, and only agents that have all of them get the
//! task. A workspace may be bound to a machine, and only agents with the label `machine:NAME` work
//! in it. An agent may be limited to some tenants, so that it never sees the prompts of others.
//! Operators set the labels and the tenants of an agent. An agent also has the label `type:TYPE`,
//! from its type. It cannot give itself a label.

use std::collections::BTreeSet;

use fairgate_store::StoreError;

use crate::error::FleetError;
use crate::validate::{self, invalid};

/// Prefix of the label of the machine on which an agent runs.
const MACHINE: &str = "machine:";
/// Maximum number of labels of an agent, and of labels that a tenant, project or task requires.
const LABELS_MAX: usize = 32;
/// Maximum number of tenants to which an agent may be limited.
const TENANTS_MAX: usize = 256;

/// Labels and tenants of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentAccess {
    /// Labels of the agent, including the label of its type; `None` for a hypothetical agent that
    /// matches every project.
    labels: Option<BTreeSet<String>>,
    /// Tenants for which the agent may work; `None` for all.
    tenants: Option<BTreeSet<String>>,
}

impl AgentAccess {
    pub(crate) fn new(kind: &str, labels: &[String], tenants: Option<&[String]>) -> Self {
        let own = [format!("type:{kind}")];
        Self {
            labels: Some(labels.iter().chain(&own).cloned().collect()),
            tenants: tenants.map(|tenants| tenants.iter().cloned().collect()),
        }
    }

    /// Returns whether the agent may see the tasks of this tenant.
    pub(crate) fn may_serve(&self, tenant: &str) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant))
    }

    /// Returns whether the agent may work for a project of this tenant that requires these labels.
    pub(crate) fn may_take(&self, tenant: &str, requires: &[String]) -> bool {
        self.may_serve(tenant) && self.has_all(requires)
    }

    /// Returns whether the agent has all of these labels.
    pub(crate) fn has_all(&self, labels: &[String]) -> bool {
        let has = |label| self.labels.as_ref().is_none_or(|labels| labels.contains(label));
        labels.iter().all(has)
    }

    /// Returns whether the agent runs on this machine.
    pub(crate) fn is_on(&self, machine: &str) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.contains(&machine_label(machine)))
    }
}

/// Returns the label of agents that run on a machine.
pub(crate) fn machine_label(machine: &str) -> String {
    format!("{MACHINE}{machine}")
}

/// Returns the labels of both lists, sorted and without duplicates.
pub(crate) fn union(one: &[String], other: &[String]) -> Vec<String> {
    let all: BTreeSet<&String> = one.iter().chain(other).collect();
    all.into_iter().cloned().collect()
}

/// Returns the labels that an agent must have for a task, as stored text: those that the task
/// requires, and that of the machine to which its workspace is bound.
pub(crate) fn stored_task_labels(requires: &[String], machine: Option<&str>) -> String {
    let machine: Vec<String> = machine.map(machine_label).into_iter().collect();
    stored(&union(requires, &machine))
}

/// Checks labels that a tenant requires, and returns them sorted and without duplicates.
pub fn check_required_labels(labels: Vec<String>) -> Result<Vec<String>, FleetError> {
    checked_labels("requires", labels)
}

/// Checks labels, and returns them sorted and without duplicates.
pub(crate) fn checked_labels(field: &str, labels: Vec<String>) -> Result<Vec<String>, FleetError> {
    let labels: BTreeSet<String> = labels.into_iter().collect();
    if labels.len() > LABELS_MAX {
        let problem = format!("has {} labels, and at most {LABELS_MAX} are allowed", labels.len());
        return Err(invalid(field, problem));
    }
    for label in &labels {
        // Both sides of the colon in `machine:gpu-1` must be valid names.
        let (group, name) = label.split_once(':').unwrap_or(("label", label));
        validate::check_name(field, group, validate::NAME_MAX)?;
        validate::check_name(field, name, validate::NAME_MAX)?;
    }
    Ok(labels.into_iter().collect())
}

/// Checks the labels that an operator gives an agent. `type:` is refused, because that label comes
/// from the agent's type.
pub(crate) fn checked_agent_labels(labels: Vec<String>) -> Result<Vec<String>, FleetError> {
    let labels = checked_labels("labels", labels)?;
    match labels.iter().find(|label| label.starts_with("type:")) {
        Some(label) => Err(invalid("labels", format!("{label:?} follows from the agent's type"))),
        None => Ok(labels),
    }
}

/// Checks the tenants of an agent, and returns them sorted and without duplicates.
pub(crate) fn checked_tenants(tenants: Vec<String>) -> Result<Vec<String>, FleetError> {
    let tenants: BTreeSet<String> = tenants.into_iter().collect();
    if tenants.is_empty() || tenants.len() > TENANTS_MAX {
        let problem = format!("must name 1 to {TENANTS_MAX} tenants, or be null for all");
        return Err(invalid("tenants", problem));
    }
    Ok(tenants.into_iter().collect())
}

/// Returns the list as JSON text, in the form in which it is stored.
pub(crate) fn stored(list: &[String]) -> String {
    serde_json::to_string(list).unwrap_or_default()
}

/// Reads a stored list.
pub(crate) fn read_list(text: &str) -> Result<Vec<String>, StoreError> {
    if text == "[]" {
        return Ok(Vec::new());
    }
    let wrong = |problem| StoreError::Database(format!("a list of names is {text:?}: {problem}"));
    serde_json::from_str(text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_agent_needs_every_label_and_the_tenant() {
        let agent = AgentAccess::new("claude", &list(&["docker", "machine:m1"]), None);
        for (requires, expected) in [
            (&[][..], true),
            (&["docker"], true),
            (&["type:claude", "machine:m1"], true),
            (&["docker", "gpu"], false),
            (&["type:codex"], false),
        ] {
            assert_eq!(agent.may_take("acme", &list(requires)), expected, "{requires:?}");
        }
        let limited = AgentAccess::new("claude", &[], Some(&list(&["acme"])));
        assert!(limited.may_take("acme", &[]) && !limited.may_take("rival", &[]));
        assert!(AgentAccess::default().may_take("anybody", &list(&["anything"])));
        assert!(agent.is_on("m1") && !agent.is_on("m2") && !agent.is_on("docker"));
        assert!(AgentAccess::default().is_on("m2"));
    }

    #[test]
    fn a_task_needs_its_own_labels_and_that_of_its_machine() {
        assert_eq!(stored_task_labels(&[], None), "[]");
        let labels = stored_task_labels(&list(&["docker", "machine:m1"]), Some("m1"));
        assert_eq!(labels, r#"["docker","machine:m1"]"#);
        assert_eq!(union(&list(&["b", "c"]), &list(&["a", "b"])), ["a", "b", "c"]);
    }

    #[test]
    fn labels_are_names_and_bounded() {
        assert_eq!(checked_labels("labels", list(&["b", "a", "b"])).unwrap(), ["a", "b"]);
        for bad in ["", "a b", ":x", "x:", "a:b:c", "ä"] {
            assert!(checked_labels("labels", list(&[bad])).is_err(), "{bad:?}");
        }
        let many = (0..33).map(|number| format!("l{number}")).collect();
        assert!(checked_labels("labels", many).is_err());
        assert!(checked_agent_labels(list(&["type:claude"])).is_err());
        assert!(checked_tenants(Vec::new()).is_err());
    }
}
