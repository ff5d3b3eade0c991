//! A policy file with all of its profiles, independent of any pool.

use std::collections::BTreeMap;
use std::path::Path;

use crate::classes::PolicyClasses;
use crate::error::ConfigErrors;
use crate::read::load;
use crate::read::policy_file::{self, PolicyProfile};

/// A policy file, with one profile for all models and profiles for single models. The profile of a model replaces the
/// general profile completely.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFile {
    /// The profile of models without a profile of their own; `None` if the file has no general
    /// profile.
    pub root: Option<PolicyClasses>,
    /// Profiles of single models, by exact model name.
    pub models: BTreeMap<String, PolicyClasses>,
}

impl PolicyFile {
    /// Reads and checks a policy file without a pool. Settings that only work in some pools are not checked.
    pub fn from_file(path: &Path) -> Result<Self, ConfigErrors> {
        Self::parse(&load(path)?, path)
    }

    /// Parses and checks a text. `file` is the path that errors show and that relative paths start from; it need not
    /// exist.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigErrors> {
        let classes = |profile: PolicyProfile<'_>| profile.classes;
        policy_file::profiles(text, file, |profiles| {
            let models = profiles.models.into_iter();
            Self {
                root: profiles.root.map(classes),
                models: models.map(|(name, profile)| (name, classes(profile))).collect(),
            }
        })
    }

    /// Returns true if the top level of a text has at least one field of a policy file, and neither `upstreams` nor
    /// `pools`. Returns false for invalid YAML.
    pub fn is_policy_file(text: &str) -> bool {
        policy_file::has_fields(text)
    }

    /// Returns the profile for a model, which is the model's own profile or else the general one; `None` if there is
    /// neither.
    pub fn profile(&self, model: &str) -> Option<&PolicyClasses> {
        self.models.get(model).or(self.root.as_ref())
    }
}
