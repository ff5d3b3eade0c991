//! Two-phase reload: first everything is read, checked and compared with what is in force; only then may anybody apply
//! anything.

mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use self::settings::{Key, Owner, Setting, Value, settings};
use crate::config::Config;
use crate::environment::Environment;
use crate::error::{ConfigError, ConfigErrors, Place};
use crate::read::{load, parse};

/// A configuration that can take the place of the one in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// What is to be in force.
    pub next: Config,
    /// What that changes.
    pub plan: Plan,
}

/// What a reload changes. Nothing in it needs a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Every change in words, for the log: `pools.llama.capacity: 32 → 48`. No secret is in them.
    pub changes: Vec<Change>,
    /// Which upstreams these concern.
    pub upstreams: Concerned,
    /// Which pools these concern.
    pub pools: Concerned,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The field, with upstreams and pools by their names: `pools.llama.capacity`.
    pub field: String,
    /// What happens to it: `32 → 48`, `added`, `removed`.
    pub words: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.words)
    }
}

/// The names of what comes, goes or becomes different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// There before and after, but not the same.
    pub changed: BTreeSet<String>,
    /// New.
    pub added: BTreeSet<String>,
    /// Gone.
    pub removed: BTreeSet<String>,
}

impl Plan {
    /// Whether nothing changes at all.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Reload {
    /// Reads a file that is to take the place of `current`. Gives what would change; or all that is wrong with the
    /// file, with lines; or the fields whose change needs a restart, with lines. Nothing is applied by this.
    pub fn from_file(
        current: &Config,
        path: &Path,
        environment: &dyn Environment,
    ) -> Result<Self, ConfigErrors> {
        Self::parse(current, &load(path)?, path, environment)
    }

    /// The same for a text that is, or could be, in the file `file`.
    pub fn parse(
        current: &Config,
        text: &str,
        file: &Path,
        environment: &dyn Environment,
    ) -> Result<Self, ConfigErrors> {
        let (next, tree) = parse(text, file, environment)?;
        let located = |error: ConfigError| ConfigError {
            file: Some(file.to_owned()),
            place: Some(tree.locate(&error.field).unwrap_or(Place::TOP)),
            ..error
        };
        match Self::plan(current, &next) {
            Ok(plan) => Ok(Self { next, plan }),
            Err(errors) => Err(errors.map(located)),
        }
    }

    /// Compares two configurations. Where a field has changed that is fixed while the gateway runs, gives an error for
    /// each such field instead of a plan, so that nothing is applied half.
    pub fn plan(current: &Config, next: &Config) -> Result<Plan, ConfigErrors> {
        let before = settings(current);
        let after = settings(next);
        let (old_owners, new_owners) = (owners(&before), owners(&after));
        let mut plan = Plan::default();
        let mut errors = Vec::new();
        for owner in new_owners.difference(&old_owners) {
            plan.add(owner, "", "added".to_owned());
        }
        for owner in old_owners.difference(&new_owners) {
            plan.add(owner, "", "removed".to_owned());
        }
        let stays = |key: &&Key| old_owners.contains(&key.owner) && new_owners.contains(&key.owner);
        let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).filter(stays).collect();
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

fn owners(settings: &BTreeMap<Key, Setting>) -> BTreeSet<Owner> {
    settings.keys().map(|key| key.owner.clone()).collect()
}

fn words(old: Option<&Setting>, new: Option<&Setting>) -> String {
    let shown = |setting: Option<&Setting>| match setting.map(|setting| &setting.value) {
        None | Some(Value::None) => "none".to_owned(),
        Some(Value::Shown(text)) => text.clone(),
        Some(Value::Hidden(_)) => "a secret".to_owned(),
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

impl Plan {
    fn add(&mut self, owner: &Owner, field: &str, words: String) {
        let (prefix, concerned) = match owner {
            Owner::Gateway => (String::new(), None),
            Owner::Upstream(name) => {
                (format!("upstreams.{name}"), Some((&mut self.upstreams, name)))
            }
            Owner::Pool(name) => (format!("pools.{name}"), Some((&mut self.pools, name))),
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
        self.changes.push(Change { field: format!("{prefix}{dot}{field}"), words });
    }
}
