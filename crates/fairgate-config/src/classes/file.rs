//! A policy file by itself: all its profiles, whoever uses them.

use std::collections::BTreeMap;
use std::path::Path;

use super::Classes;
use super::read::{self, Profile};
use crate::error::ConfigErrors;
use crate::read::load;

/// A policy file: a profile for all models, and profiles of single models. A model's profile replaces the other as a
/// whole.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFile {
    /// The profile of models that have none of their own.
    pub root: Option<Classes>,
    /// The profiles of single models, by exact name.
    pub models: BTreeMap<String, Classes>,
}

impl PolicyFile {
    /// Reads and checks a file by itself. What depends on a pool (whether a setting can act there) is not checked.
    pub fn from_file(path: &Path) -> Result<Self, ConfigErrors> {
        Self::parse(&load(path)?, path)
    }

    /// The same for a text that is, or could be, in the file `file`.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigErrors> {
        let classes = |profile: Profile<'_>| profile.classes;
        read::profiles(text, file, |profiles| {
            let models = profiles.models.into_iter();
            Self {
                root: profiles.root.map(classes),
                models: models.map(|(name, profile)| (name, classes(profile))).collect(),
            }
        })
    }

    /// Whether a text is meant as a policy file: it has such a file's fields at its top, and none of a configuration's. What
    /// is no YAML is neither.
    pub fn is_meant(text: &str) -> bool {
        read::has_fields(text)
    }

    /// The profile of a model: its own, else the root's.
    pub fn profile(&self, model: &str) -> Option<&Classes> {
        self.models.get(model).or(self.root.as_ref())
    }
}
