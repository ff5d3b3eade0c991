//! The current settings, as a list that may be shown.

use super::settings::{SettingOwner, SettingValue, settings};
use crate::config::Config;

/// One setting of a configuration, with the value that applies: that of the file, or the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Path of the field, with upstreams and pools by name, such as `pools.llama.capacity`.
    pub path: String,
    /// Value that applies now.
    pub value: EffectiveValue,
    /// True if a change needs a restart.
    pub needs_restart: bool,
}

/// Value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectiveValue {
    /// The setting has no value.
    None,
    /// The value, as the configuration file spells it.
    Shown(String),
    /// The value is secret. The text is the source of the secret, such as `environment variable
    /// OPENAI_API_KEY`; `None` if the source is not known.
    Secret(Option<String>),
}

/// Lists all settings of a configuration: those of the gateway first, then those of upstreams and pools by name.
///
/// ```
/// use fairgate_config::{Config, EffectiveValue, effective_settings};
///
/// let listen = "127.0.0.1:8080".parse()?;
/// let config = Config::embedded("data".into(), listen, "http://127.0.0.1:9".parse()?);
/// let settings = effective_settings(&config);
/// let shown = settings.iter().find(|setting| setting.path == "listen").map(|setting| &setting.value);
/// assert_eq!(shown, Some(&EffectiveValue::Shown("127.0.0.1:8080".into())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn effective_settings(config: &Config) -> Vec<EffectiveSetting> {
    let settings = settings(config).into_iter().map(|(key, setting)| EffectiveSetting {
        path: match &key.owner {
            SettingOwner::Gateway => key.name.clone(),
            SettingOwner::Upstream(name) => format!("upstreams.{name}.{}", key.name),
            SettingOwner::Pool(name) => format!("pools.{name}.{}", key.name),
        },
        value: match setting.value {
            SettingValue::None => EffectiveValue::None,
            SettingValue::Shown(text) => EffectiveValue::Shown(text),
            SettingValue::Hidden { source, .. } => EffectiveValue::Secret(source),
        },
        needs_restart: setting.fixed,
    });
    settings.collect()
}
