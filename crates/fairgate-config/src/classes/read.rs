//! Reads policy files. Errors name their place in the policy file; only what concerns the pool as a whole (which profile
//! its models have) is told where the configuration names the file.

mod buckets;
mod class;
mod profile;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) use self::profile::Profile;
use self::profile::{PROFILE, profile};
use super::Classes;
use crate::error::{ConfigError, ConfigErrors};
use crate::field::{Context, Field};
use crate::read::load;
use crate::yaml::{self, Flaw, Node, Value};

const ROOT: &[&str] =
    &["default_policy_family", "uncached_isl_buckets", "policy_classes", "arbiter", "models"];

pub(super) struct Profiles<'a> {
    pub(super) root: Option<Profile<'a>>,
    pub(super) models: BTreeMap<String, Profile<'a>>,
}

/// What a pool has that some settings need.
pub(crate) struct Surroundings {
    /// Whether some worker states its `batch_tokens`.
    pub(crate) states_batch: bool,
    /// Whether the pool has a `prefix_index`.
    pub(crate) has_index: bool,
}

/// Reads the file that `field` names, for a pool with these models.
pub(crate) fn for_pool(
    field: Field<'_>,
    models: &[&str],
    around: &Surroundings,
) -> Option<Classes> {
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
        Err(errors) => field.wrong_elsewhere(errors),
    }
}

/// Reads the profiles of a text, and gives them to `use_them`, which may say more about what is wrong with them.
pub(super) fn profiles<T>(
    text: &str,
    file: &Path,
    use_them: impl FnOnce(Profiles<'_>) -> T,
) -> Result<T, ConfigErrors> {
    let located = |flaw: Flaw| ConfigError {
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
    // A policy file holds no secrets.
    let environment = BTreeMap::new();
    let context = Context {
        folder,
        environment: &environment,
        flaws: RefCell::new(flaws),
        elsewhere: RefCell::default(),
    };
    let used = read(Field::root(&context, &root), file).map(use_them);
    let flaws = context.flaws.into_inner();
    match (ConfigErrors::new(flaws.into_iter().map(located).collect()), used) {
        (None, Some(used)) => Ok(used),
        (Some(errors), _) => Err(errors),
        (None, None) => unreachable!("who gives nothing has said why"),
    }
}

pub(super) fn has_fields(text: &str) -> bool {
    let root = yaml::parse(text, "", &mut Vec::new());
    let Ok(Node { value: Value::Map(entries), .. }) = root else { return false };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    ROOT.iter().any(|name| has(name)) && !has("upstreams") && !has("pools")
}

fn read<'a>(root: Field<'a>, file: &Path) -> Option<Profiles<'a>> {
    let section = root.section(ROOT)?;
    let models = section.or("models", BTreeMap::new(), |field| models(field, file));
    if !PROFILE.iter().any(|name| section.has(name)) {
        return match section.has("models") {
            true => Some(Profiles { root: None, models: models? }),
            false => section.field.wrong(
                "has no profile: state default_policy_family, uncached_isl_buckets and policy_classes, for all models or \
                 for single ones under models",
            ),
        };
    }
    let root = profile(&section, file);
    Some(Profiles { root: Some(root?), models: models? })
}

fn models<'a>(field: Field<'a>, file: &Path) -> Option<BTreeMap<String, Profile<'a>>> {
    let Some(entries) = field.entries() else {
        return field.wrong("must be a mapping from names of models to a profile each");
    };
    if entries.is_empty() {
        return field.wrong("names no model: give one a profile, or remove it");
    }
    let read = |field: Field<'a>| profile(&field.section(PROFILE)?, file);
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

impl<'a> Profiles<'a> {
    /// The one profile that all models of a pool have. `field` is where the configuration names the file.
    fn choose(&self, models: &[&str], field: &Field<'_>) -> Option<&Profile<'a>> {
        let mut first: Option<(&str, &Profile<'a>)> = None;
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
        // A pool without models has been told so.
        first.map(|(_, profile)| profile)
    }
}
