//! Reads the rules by which a pool is shared: a policy file, a policy, or the default tree.

use std::collections::BTreeMap;
use std::time::Duration;

use fairgate_core::policy::Policy;

use crate::classes::{PolicyClass, PolicyClasses};
use crate::config::ModelConfig;
use crate::field::ConfigSection;
use crate::read::policy::{default_policy, policy_with_deadlines};
use crate::read::policy_file::{ClassPoolFeatures, for_pool};
use crate::read::upstream::UpstreamDraft;

/// Policy of a pool, with its classes and deadlines.
pub(super) struct PoolPolicy {
    pub(super) policy: Policy,
    /// Classes of the policy file; `None` if the pool names no such file.
    pub(super) classes: Option<PolicyClasses>,
    /// Deadlines of classes, by class name.
    pub(super) class_deadlines: BTreeMap<String, Duration>,
}

/// Reads the policy of a pool: from a policy file, from `policy`, or the default.
pub(super) fn pool_policy(
    section: &ConfigSection<'_>,
    models: Option<&[ModelConfig]>,
    workers: Option<&[String]>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) -> Option<PoolPolicy> {
    let partition = section.optional("partition", |field| {
        let partition = field.clone().boolean()?;
        match ["policy", "policy_file"].into_iter().find(|name| section.has(name)) {
            Some("policy") => field.wrong(
                "is for the default policy: set partition in the root node of policy instead",
            ),
            Some(_) => field.wrong(
                "is for the default policy, and policy_file takes its place: remove one of them",
            ),
            None => Some(partition),
        }
    });
    let classes = section.optional("policy_file", |field| {
        if section.has("policy") {
            return field.wrong("takes the place of policy: remove one of them");
        }
        let names: Vec<&str> = models?.iter().map(|model| &*model.name).collect();
        let around = ClassPoolFeatures {
            states_batch: states_batch(workers, upstreams),
            has_index: section.has("prefix_index"),
        };
        for_pool(field, &names, &around)
    });
    let policy = section.optional("policy", policy_with_deadlines);
    let (partition, policy, classes) = (partition?.unwrap_or(false), policy?, classes?);
    if let Some(classes) = classes {
        let of_class = |class: &PolicyClass| Some((class.name.to_string(), class.deadline?));
        let class_deadlines = classes.all().iter().filter_map(of_class).collect();
        return Some(PoolPolicy {
            policy: classes.policy(),
            classes: Some(classes),
            class_deadlines,
        });
    }
    let (policy, class_deadlines) =
        policy.unwrap_or_else(|| (default_policy(partition), BTreeMap::new()));
    Some(PoolPolicy { policy, classes: None, class_deadlines })
}

/// Returns true if some worker states the size of its batch. Also returns true if workers or
/// upstreams could not be read, because an error was recorded then.
fn states_batch(workers: Option<&[String]>, upstreams: Option<&[UpstreamDraft<'_>]>) -> bool {
    let (Some(workers), Some(upstreams)) = (workers, upstreams) else { return true };
    let works_here = |upstream: &&UpstreamDraft<'_>| {
        upstream.name.as_ref().is_none_or(|name| workers.contains(name))
    };
    upstreams.iter().filter(works_here).any(|upstream| upstream.states_batch)
}
