//! Reads a profile, whose families, buckets and classes must be consistent.

use std::collections::BTreeMap;
use std::path::Path;

use super::ClassPoolFeatures;
use super::buckets::buckets;
use super::class::{class, identifier};
use super::editions::UNSUPPORTED;
use crate::classes::{
    ClassArbiter, ClassBucket, ClassCell, ClassFamily, PolicyClass, PolicyClasses, policy,
};
use crate::field::{ConfigField, ConfigSection};
use crate::suggest::did_you_mean;

pub(super) const PROFILE: &[&str] =
    &["default_policy_family", "uncached_isl_buckets", "policy_classes", "arbiter"];

const ARBITERS: [(&str, ClassArbiter); 3] =
    [("drr", ClassArbiter::Drr), ("share", ClassArbiter::Share), ("bands", ClassArbiter::Bands)];

/// Profile while its file is being read. Keeps the fields that are valid only in some pools, so that errors can point
/// at them.
pub(crate) struct PolicyProfile<'a> {
    pub(crate) classes: PolicyClasses,
    /// Field `prefill_busy_threshold_frac` of each class that states it.
    fractions: Vec<ConfigField<'a>>,
    /// Field `cached_token_queue_limit_per_worker` of each class that states it.
    cached_limits: Vec<ConfigField<'a>>,
}

impl PolicyProfile<'_> {
    /// Records an error for each setting that cannot have an effect in a pool with the features `around`.
    pub(super) fn check(&self, around: &ClassPoolFeatures) {
        if !around.states_batch {
            for field in &self.fractions {
                field.wrong::<()>(
                    "cannot act: no worker of the pool states its batch size; state batch_tokens (vLLM's \
                     --max-num-batched-tokens) in the upstreams, or use prefill_busy_threshold",
                );
            }
        }
        if !around.has_index {
            for field in &self.cached_limits {
                field.wrong::<()>(
                    "cannot act: without an index of prefixes no tokens are known to be cached; add prefix_index: {} to \
                     the pool, or remove the limit",
                );
            }
        }
    }
}

/// Class, together with its section in the policy file.
struct ClassEntry<'a> {
    section: ConfigSection<'a>,
    class: PolicyClass,
}

pub(super) fn profile<'a>(section: &ConfigSection<'a>, file: &Path) -> Option<PolicyProfile<'a>> {
    let missing = ProfileSuggestions::of(section);
    let default_family =
        section.required("default_policy_family", &missing.default_family, |field| {
            identifier(field.clone()).map(|name| (name, field))
        });
    let buckets = section.required("uncached_isl_buckets", &missing.buckets, buckets);
    let arbiter = section.or("arbiter", ClassArbiter::Drr, |field| field.one_of(&ARBITERS));
    let listed = section.required("policy_classes", "the classes, at least one", |field| {
        let listed = classes(field.clone(), buckets.as_deref(), arbiter)?;
        Some((field, listed))
    });
    let (field, listed) = listed?;
    let families = families(&field, &listed, buckets.as_deref()?)?;
    let (default_family, default_field) = default_family?;
    let Some(default) = families.iter().position(|family| family.name == default_family) else {
        let guess = did_you_mean(&default_family, families.iter().map(|family| &*family.name));
        return default_field.wrong(format!("no class is of the family {default_family:?}{guess}"));
    };
    let first_cell = families[default].cells[0];
    let stated = |name: &str| listed.iter().filter_map(|it| it.section.stated(name)).collect();
    let fractions = stated("prefill_busy_threshold_frac");
    let cached_limits = stated("cached_token_queue_limit_per_worker");
    let classes: Vec<PolicyClass> = listed.into_iter().map(|listed| listed.class).collect();
    let arbiter = arbiter?;
    let policy = match policy(arbiter, &classes, first_cell) {
        Ok(policy) => policy,
        Err(error) => {
            // The tree's path begins with `drr.classes[1]`, the file's path with `policy_classes[1]`.
            let path = error.field.split_once(".classes").map_or("", |(_, rest)| rest);
            return field.wrong_below(path, error.problem.to_string());
        }
    };
    let file = file.to_owned();
    let buckets = buckets?;
    let classes = PolicyClasses {
        file,
        arbiter,
        default_family: default,
        buckets,
        families,
        classes,
        policy,
    };
    Some(PolicyProfile { classes, fractions, cached_limits })
}

fn classes<'a>(
    field: ConfigField<'a>,
    buckets: Option<&[ClassBucket]>,
    arbiter: Option<ClassArbiter>,
) -> Option<Vec<ClassEntry<'a>>> {
    let mut names = BTreeMap::new();
    let mut read = |field: ConfigField<'a>| {
        let line = field.node.place.line;
        let section = field.section_without(super::class::CLASS, UNSUPPORTED)?;
        let class = class(&section, buckets, arbiter)?;
        match names.insert(class.name.clone(), line) {
            None => Some(ClassEntry { section, class }),
            Some(first) => {
                let message =
                    format!("another class is called {:?}, on line {first}", class.name.as_str());
                section.stated("name")?.wrong(message)
            }
        }
    };
    let all: Vec<_> = field.list()?.into_iter().map(&mut read).collect();
    all.into_iter().collect()
}

/// Builds the families that the classes name. Records an error for each family that does not have exactly one class for
/// each bucket.
fn families(
    field: &ConfigField<'_>,
    listed: &[ClassEntry<'_>],
    buckets: &[ClassBucket],
) -> Option<Vec<ClassFamily>> {
    let mut families: Vec<(String, Vec<Option<usize>>)> = Vec::new();
    let mut fits = true;
    for (i, ClassEntry { section, class }) in listed.iter().enumerate() {
        let Some(ClassCell { family, bucket }) = &class.cell else { continue };
        let known = families.iter().position(|(name, _)| name == family);
        let at = known.unwrap_or_else(|| {
            families.push((family.clone(), vec![None; buckets.len()]));
            families.len() - 1
        });
        let column = buckets.iter().position(|known| known.name == *bucket)?;
        if let Some(first) = families[at].1[column].replace(i) {
            let ClassEntry { section: other, class } = &listed[first];
            fits = false;
            section.field.wrong::<()>(format!(
                "the class {:?} on line {} is of the family {family:?} and the bucket {bucket:?} already: name another \
                 bucket, or remove one of them",
                class.name.as_str(),
                other.field.node.place.line,
            ));
        }
    }
    for ClassEntry { section, class } in listed.iter().filter(|listed| listed.class.cell.is_none())
    {
        if families.iter().any(|(name, _)| name == class.name.as_str()) {
            fits = false;
            section.stated("name")?.wrong::<()>(format!(
                "{:?} is a family too, so that a request which names it could mean either: rename the class, or give it a \
                 policy_family and a cache_bucket",
                class.name.as_str()
            ));
        }
    }
    for (family, cells) in &families {
        for (bucket, _) in buckets.iter().zip(cells).filter(|(_, cell)| cell.is_none()) {
            fits = false;
            field.wrong::<()>(format!(
                "no class is of the family {family:?} and the bucket {0:?}: add one with policy_family: {family} and \
                 cache_bucket: {0}",
                bucket.name
            ));
        }
    }
    let whole = |(name, cells): (String, Vec<Option<usize>>)| {
        Some(ClassFamily { name, cells: cells.into_iter().collect::<Option<_>>()? })
    };
    fits.then(|| families.into_iter().map(whole).collect()).flatten()
}

/// Suggestions for a profile without a default family or without buckets. The suggestions are names that the profile's
/// classes use.
struct ProfileSuggestions {
    default_family: String,
    buckets: String,
}

impl ProfileSuggestions {
    fn of(section: &ConfigSection<'_>) -> Self {
        let classes = section.stated("policy_classes");
        let texts = |name: &str| {
            let mut texts: Vec<&str> = Vec::new();
            for class in classes.iter().flat_map(|field| field.elements()) {
                let entries = class.entries().unwrap_or_default();
                let found = entries.iter().find(|(entry, _)| entry.name == name);
                let text = found.and_then(|(_, field)| field.scalar());
                texts.extend(text.filter(|text| !texts.contains(text)));
            }
            texts
        };
        let family = texts("policy_family").first().copied().unwrap_or("standard");
        let mut names = texts("cache_bucket");
        if names.is_empty() {
            names = vec!["any"];
        }
        // In Dynamo's sample the second bucket starts at 3072 tokens.
        let bucket = |(i, name)| format!("{{min_tokens: {}, bucket: {name}}}", 3072 * i);
        let listed = names.into_iter().enumerate().map(bucket).collect::<Vec<_>>().join(", ");
        Self {
            default_family: format!(
                "the family of requests that name none; add default_policy_family: {family}"
            ),
            buckets: format!(
                "from how many uncached tokens on a request is in which bucket; add uncached_isl_buckets: [{listed}] with \
                 floors that suit you"
            ),
        }
    }
}
