//! Two-phase reload: everything is read, checked and compared with the current configuration before anything is
//! applied.

mod declared_settings;
mod effective;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

pub use self::effective::{EffectiveSetting, EffectiveValue, effective_settings};
use self::settings::{Setting, SettingKey, SettingOwner, SettingValue, settings};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::{ConfigError, ConfigErrors, FilePosition};
use crate::read::{load, parse};

/// A configuration that can replace the current one without a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigReload {
    /// The new configuration, already checked.
    pub next: Config,
    /// Differences from the current configuration.
    pub plan: ReloadPlan,
}

/// Differences between two configurations. None of the differences needs a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadPlan {
    /// Description of every change for the log, such as `pools.llama.capacity: 32 → 48`. Contains no secret.
    pub changes: Vec<SettingChange>,
    /// Names of the upstreams that change.
    pub upstreams: ChangedNames,
    /// Names of the pools that change.
    pub pools: ChangedNames,
}

/// One changed field of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// Path of the field, with upstreams and pools by name: `pools.llama.capacity`.
    pub field: String,
    /// Description of the change: `32 → 48`, `added`, `removed`.
    pub description: String,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.description)
    }
}

/// Names of upstreams or pools that are added, removed or changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedNames {
    /// Names that are in both configurations, with different settings.
    pub changed: BTreeSet<String>,
    /// Names that are only in the new configuration.
    pub added: BTreeSet<String>,
    /// Names that are only in the current configuration.
    pub removed: BTreeSet<String>,
}

impl ReloadPlan {
    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl ConfigReload {
    /// Reads a file that should replace `current`, and returns the new configuration and the differences. Fails with
    /// all errors of the file, or with an error for each field whose change needs a restart. Applies nothing.
    pub fn from_file(
        current: &Config,
        path: &Path,
        environment: &dyn Environment,
    ) -> Result<Self, ConfigErrors> {
        Self::parse(current, &load(path)?, path, environment)
    }

    /// Parses a text as [`ConfigReload::from_file`] reads a file. `file` is the path that errors show. The file need
    /// not exist.
    pub fn parse(
        current: &Config,
        text: &str,
        file: &Path,
        environment: &dyn Environment,
    ) -> Result<Self, ConfigErrors> {
        let (next, tree) = parse(text, file, environment)?;
        let located = |error: ConfigError| ConfigError {
            file: Some(file.to_owned()),
            place: Some(tree.locate(&error.field).unwrap_or(FilePosition::TOP)),
            ..error
        };
        match Self::plan(current, &next) {
            Ok(plan) => Ok(Self { next, plan }),
            Err(errors) => Err(errors.map(located)),
        }
    }

    /// Compares two configurations. If fields changed that need a restart, returns an error for
    /// each of these fields instead of a plan, so that no reload is applied in part.
    pub fn plan(current: &Config, next: &Config) -> Result<ReloadPlan, ConfigErrors> {
        let before = settings(current);
        let after = settings(next);
        let (old_owners, new_owners) = (owners(&before), owners(&after));
        let mut plan = ReloadPlan::default();
        let mut errors = Vec::new();
        for owner in new_owners.difference(&old_owners) {
            plan.add(owner, "", "added".to_owned());
        }
        for owner in old_owners.difference(&new_owners) {
            plan.add(owner, "", "removed".to_owned());
        }
        let stays =
            |key: &&SettingKey| old_owners.contains(&key.owner) && new_owners.contains(&key.owner);
        let keys: BTreeSet<&SettingKey> = before.keys().chain(after.keys()).filter(stays).collect();
        for key in keys {
            let (old, new) = (before.get(key), after.get(key));
            if old.map(|setting| &setting.value) == new.map(|setting| &setting.value) {
                continue;
            }
            let words = words(old, new);
            match new.or(old) {
                Some(setting) if setting.fixed => errors.push(needs_restart(setting, &words)),
                _ => plan.add(&key.owner, &key.name, words),
            }
        }
        match ConfigErrors::new(errors) {
            None => Ok(plan),
            Some(errors) => Err(errors),
        }
    }
}

fn owners(settings: &BTreeMap<SettingKey, Setting>) -> BTreeSet<SettingOwner> {
    settings.keys().map(|key| key.owner.clone()).collect()
}

fn words(old: Option<&Setting>, new: Option<&Setting>) -> String {
    let shown = |setting: Option<&Setting>| match setting.map(|setting| &setting.value) {
        None | Some(SettingValue::None) => "none".to_owned(),
        Some(SettingValue::Shown(text)) => text.clone(),
        Some(SettingValue::Hidden { .. }) => "a secret".to_owned(),
    };
    match (shown(old), shown(new)) {
        (old, new) if old == new => "changed".to_owned(),
        (old, new) => format!("{old} → {new}"),
    }
}

fn needs_restart(setting: &Setting, words: &str) -> ConfigError {
    let message = format!(
        "{words}: cannot be applied while the gateway runs; restart it, or set the old value back (nothing was \
         changed)"
    );
    ConfigError { file: None, place: None, field: setting.file_field.clone(), message }
}

impl ReloadPlan {
    fn add(&mut self, owner: &SettingOwner, field: &str, words: String) {
        let (prefix, concerned) = match owner {
            SettingOwner::Gateway => (String::new(), None),
            SettingOwner::Upstream(name) => {
                (format!("upstreams.{name}"), Some((&mut self.upstreams, name)))
            }
            SettingOwner::Pool(name) => (format!("pools.{name}"), Some((&mut self.pools, name))),
        };
        if let Some((concerned, name)) = concerned {
            let names = match words.as_str() {
                "added" if field.is_empty() => &mut concerned.added,
                "removed" if field.is_empty() => &mut concerned.removed,
                _ => &mut concerned.changed,
            };
            names.insert(name.clone());
        }
        let dot = if prefix.is_empty() || field.is_empty() { "" } else { "." };
        self.changes
            .push(SettingChange { field: format!("{prefix}{dot}{field}"), description: words });
    }
}
