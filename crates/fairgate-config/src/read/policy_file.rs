//! Reads policy files. Errors point into the policy file. Only errors that concern the pool as a whole (the choice of a
//! profile for its models) point at the line of the configuration that names the file.

mod buckets;
mod class;
mod editions;
mod profile;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use self::editions::{UNSUPPORTED, is_unsupported};
pub(crate) use self::profile::PolicyProfile;
use self::profile::{PROFILE, profile};
use crate::classes::PolicyClasses;
use crate::error::{ConfigError, ConfigErrors};
use crate::field::{ConfigField, ConfigReadContext};
use crate::read::load;
use crate::yaml::{self, FieldError, YamlNode, YamlValue};

const ROOT: &[&str] =
    &["default_policy_family", "uncached_isl_buckets", "policy_classes", "arbiter", "models"];

pub(crate) struct PolicyProfiles<'a> {
    pub(crate) root: Option<PolicyProfile<'a>>,
    pub(crate) models: BTreeMap<String, PolicyProfile<'a>>,
}

/// Properties of a pool that some class settings depend on.
pub(super) struct ClassPoolFeatures {
    /// True if some worker of the pool states its `batch_tokens`.
    pub(super) states_batch: bool,
    /// True if the pool has a `prefix_index`.
    pub(super) has_index: bool,
}

/// Reads the file that `field` names, for a pool with these models. Returns `None` after recording an error.
pub(super) fn for_pool(
    field: ConfigField<'_>,
    models: &[&str],
    around: &ClassPoolFeatures,
) -> Option<PolicyClasses> {
    let file = field.clone().file()?;
    let read = load(&file).and_then(|text| {
        profiles(&text, &file, |profiles| {
            let profile = profiles.choose(models, &field)?;
            profile.check(around);
            Some(profile.classes.clone())
        })
    });
    match read {
        Ok(classes) => classes,
        Err(errors) => field.wrong_in_other_file(errors),
    }
}

/// Reads the profiles of a text and passes them to `use_them`, which may record more errors.
pub(crate) fn profiles<T>(
    text: &str,
    file: &Path,
    use_them: impl FnOnce(PolicyProfiles<'_>) -> T,
) -> Result<T, ConfigErrors> {
    let located = |flaw: FieldError| ConfigError {
        file: Some(file.to_owned()),
        place: Some(flaw.place),
        field: flaw.field,
        message: flaw.message,
    };
    let mut flaws = Vec::new();
    let empty =
        "is empty: a policy file has at least policy_classes, or models with a profile each";
    let root = yaml::parse(text, empty, &mut flaws).map_err(located)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    // A policy file holds no secrets, so it needs no environment variables.
    let environment = BTreeMap::new();
    let context = ConfigReadContext {
        file,
        folder,
        environment: &environment,
        flaws: RefCell::new(flaws),
        other_files: RefCell::default(),
    };
    let used = read(ConfigField::root(&context, &root), file).map(use_them);
    let flaws = context.flaws.into_inner();
    match (ConfigErrors::new(flaws.into_iter().map(located).collect()), used) {
        (None, Some(used)) => Ok(used),
        (Some(errors), _) => Err(errors),
        (None, None) => unreachable!("who gives nothing has said why"),
    }
}

pub(crate) fn has_fields(text: &str) -> bool {
    let root = yaml::parse(text, "", &mut Vec::new());
    let Ok(YamlNode { value: YamlValue::Map(entries), .. }) = root else { return false };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let is_known = |name: &str| ROOT.contains(&name) || is_unsupported(name);
    entries.iter().any(|entry| is_known(&entry.name)) && !has("upstreams") && !has("pools")
}

fn read<'a>(root: ConfigField<'a>, file: &Path) -> Option<PolicyProfiles<'a>> {
    let entries = root.entries().unwrap_or_default();
    let is_of_other_edition = entries.iter().any(|(entry, _)| is_unsupported(&entry.name));
    let section = root.section_without(ROOT, UNSUPPORTED)?;
    let models = section.or("models", BTreeMap::new(), |field| models(field, file));
    if !PROFILE.iter().any(|name| section.has(name)) {
        return match section.has("models") {
            true => Some(PolicyProfiles { root: None, models: models? }),
            // The error about the unsupported field was recorded already.
            false if is_of_other_edition => None,
            false => section.field.wrong(
                "has no profile: state default_policy_family, uncached_isl_buckets and policy_classes, for all models or \
                 for single ones under models",
            ),
        };
    }
    let root = profile(&section, file);
    Some(PolicyProfiles { root: Some(root?), models: models? })
}

fn models<'a>(field: ConfigField<'a>, file: &Path) -> Option<BTreeMap<String, PolicyProfile<'a>>> {
    let Some(entries) = field.entries() else {
        return field.wrong("must be a mapping from names of models to a profile each");
    };
    if entries.is_empty() {
        return field.wrong("names no model: give one a profile, or remove it");
    }
    let read =
        |field: ConfigField<'a>| profile(&field.section_without(PROFILE, UNSUPPORTED)?, file);
    let all: Vec<_> = entries
        .into_iter()
        .map(|(entry, field)| {
            let named = match entry.name.is_empty() {
                true => field.wrong("must have the name of a model"),
                false => Some(entry.name.clone()),
            };
            let profile = read(field);
            Some((named?, profile?))
        })
        .collect();
    all.into_iter().collect()
}

impl<'a> PolicyProfiles<'a> {
    /// Returns the profile that all models of a pool have in common. Records an error if they have different profiles.
    /// Errors point at `field`, the line of the configuration that names the file.
    fn choose(&self, models: &[&str], field: &ConfigField<'_>) -> Option<&PolicyProfile<'a>> {
        let mut first: Option<(&str, &PolicyProfile<'a>)> = None;
        for model in models {
            let Some(found) = self.models.get(*model).or(self.root.as_ref()) else {
                return field.wrong(format!(
                    "has no profile for the model {model:?}: add one under models, or one at the top for all models"
                ));
            };
            match first {
                None => first = Some((model, found)),
                Some((other, profile)) if profile.classes != found.classes => {
                    return field.wrong(format!(
                        "the models {other:?} and {model:?} have different profiles in this file, and a pool has one: put \
                         them into separate pools (a model's profile replaces the one at the top, they are not merged)"
                    ));
                }
                Some(_) => {}
            }
        }
        // An error for a pool without models was recorded before.
        first.map(|(_, profile)| profile)
    }
}
