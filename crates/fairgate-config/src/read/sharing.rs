//! Who goes next in a pool: a policy file, a policy, or the default tree.

use fairgate_core::policy::Policy;

use crate::classes::{Classes, Surroundings, for_pool};
use crate::config::ModelConfig;
use crate::field::Section;
use crate::read::policy::{default_policy, policy};
use crate::read::upstream::Upstream;

/// How a pool is shared: by a policy file, by a policy, or by the default.
pub(super) fn shared(
    section: &Section<'_>,
    models: Option<&[ModelConfig]>,
    workers: Option<&[String]>,
    upstreams: Option<&[Upstream<'_>]>,
) -> Option<(Policy, Option<Classes>)> {
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
        let around = Surroundings {
            states_batch: states_batch(workers, upstreams),
            has_index: section.has("prefix_index"),
        };
        for_pool(field, &names, &around)
    });
    let policy = section.optional("policy", policy);
    let (partition, policy, classes) = (partition?.unwrap_or(false), policy?, classes?);
    match classes {
        Some(classes) => Some((classes.policy(), Some(classes))),
        None => Some((policy.unwrap_or_else(|| default_policy(partition)), None)),
    }
}

/// Whether some worker states the size of its batch. Where workers or upstreams could not be read, that has been said.
fn states_batch(workers: Option<&[String]>, upstreams: Option<&[Upstream<'_>]>) -> bool {
    let (Some(workers), Some(upstreams)) = (workers, upstreams) else { return true };
    let works_here =
        |upstream: &&Upstream<'_>| upstream.name.as_ref().is_none_or(|name| workers.contains(name));
    upstreams.iter().filter(works_here).any(|upstream| upstream.states_batch)
}
