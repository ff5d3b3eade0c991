//! Lists the settings of a configuration as texts, from its `Serialize` form. A setting is marked if it needs a
//! restart.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use super::declared_settings::declared_settings;
use crate::config::Config;
use crate::config::settings_form::{FIXED, RELOADABLE, SECRET, SECRET_SOURCE};
use crate::values::format_duration;

/// Owner of a setting. Upstreams and pools are identified by name, so their order in the file does not matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SettingOwner {
    Gateway,
    Upstream(String),
    Pool(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SettingKey {
    pub(super) owner: SettingOwner,
    /// Path of the field below its owner, such as `capacity`.
    pub(super) name: String,
}

pub(super) struct Setting {
    pub(super) value: SettingValue,
    /// Path of the field in the file, such as `pools[1].capacity`.
    pub(super) file_field: String,
    /// True if a change needs a restart.
    pub(super) fixed: bool,
}

pub(super) enum SettingValue {
    None,
    Shown(String),
    Hidden {
        hash: u64,
        /// Source of the secret; `None` if it is not known.
        source: Option<String>,
    },
}

/// Secrets are compared by their hashes, whatever their sources.
impl PartialEq for SettingValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Shown(one), Self::Shown(other)) => one == other,
            (Self::Hidden { hash, .. }, Self::Hidden { hash: other, .. }) => hash == other,
            _ => false,
        }
    }
}

/// Lists all settings of a configuration.
pub(super) fn settings(config: &Config) -> BTreeMap<SettingKey, Setting> {
    let mut settings = BTreeMap::new();
    let (owner, file_prefix) = (SettingOwner::Gateway, String::new());
    let mut of_file = SettingList { settings: &mut settings, owner, file_prefix };
    of_file.add("", form(config), false);
    declared_settings(&mut of_file, &config.declared);
    let mut add = |owner: SettingOwner, file_prefix: String, form| {
        SettingList { settings: &mut settings, owner, file_prefix }.add("", form, false);
    };
    for (i, upstream) in config.upstreams.iter().enumerate() {
        let owner = SettingOwner::Upstream(upstream.name.clone());
        add(owner, format!("upstreams[{i}]."), form(upstream));
    }
    for (i, pool) in config.pools.iter().enumerate() {
        add(SettingOwner::Pool(pool.name.clone()), format!("pools[{i}]."), form(pool));
    }
    settings
}

fn form(config: &impl Serialize) -> Value {
    serde_json::to_value(config).expect("all names are texts, and no form fails")
}

/// Collects the settings of one owner.
pub(super) struct SettingList<'a> {
    settings: &'a mut BTreeMap<SettingKey, Setting>,
    owner: SettingOwner,
    /// Path of the owner in the file, with a dot at its end; empty for the file itself.
    file_prefix: String,
}

impl SettingList<'_> {
    /// Adds a setting that a reload changes, in its `Serialize` form.
    pub(super) fn put(&mut self, path: &str, value: &impl Serialize) {
        self.add(path, form(value), false);
    }

    /// Adds a setting, or all settings of a section. `fixed` is true if they need a restart.
    fn add(&mut self, path: &str, form: Value, fixed: bool) {
        let value = match form {
            Value::Null => SettingValue::None,
            Value::Object(mut section) => {
                if let Some(marked) = section.remove(FIXED) {
                    return self.add(path, marked, true);
                }
                if let Some(marked) = section.remove(RELOADABLE) {
                    return self.add(path, marked, false);
                }
                match hidden(&section).or_else(|| duration(&section).map(SettingValue::Shown)) {
                    Some(value) => value,
                    None => {
                        for (name, form) in section {
                            self.add(&below(path, &name), form, fixed);
                        }
                        return;
                    }
                }
            }
            Value::Array(items) if items.is_empty() => SettingValue::None,
            // A list of sections is the list of their names, followed by the settings of each.
            Value::Array(items) => {
                let texts: Vec<String> = items.iter().map(text).collect();
                for (i, item) in items.into_iter().enumerate().filter(|(_, item)| item.is_object())
                {
                    self.add(&format!("{path}[{i}]"), item, fixed);
                }
                SettingValue::Shown(texts.join(", "))
            }
            single => SettingValue::Shown(text(&single)),
        };
        let key = SettingKey { owner: self.owner.clone(), name: path.to_owned() };
        let file_field = format!("{}{path}", self.file_prefix);
        self.settings.insert(key, Setting { value, file_field, fixed });
    }
}

/// Returns the path of an entry in a section. The entry without a name is the value of the section itself.
fn below(path: &str, name: &str) -> String {
    let dot = if path.is_empty() || name.is_empty() { "" } else { "." };
    format!("{path}{dot}{name}")
}

/// Returns the text of a single value, or the name of a section.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(section) => section.get("name").map(text).unwrap_or_default(),
        other => other.to_string(),
    }
}

fn hidden(section: &Map<String, Value>) -> Option<SettingValue> {
    let hash = section.get(SECRET)?.as_u64()?;
    let source = section.get(SECRET_SOURCE).and_then(Value::as_str).map(str::to_owned);
    Some(SettingValue::Hidden { hash, source })
}

/// Returns the text of a duration, which serde writes as seconds and nanoseconds.
fn duration(section: &Map<String, Value>) -> Option<String> {
    let (secs, nanos) = (section.get("secs")?.as_u64()?, section.get("nanos")?.as_u64()?);
    Some(format_duration(Duration::new(secs, u32::try_from(nanos).ok()?)))
}
