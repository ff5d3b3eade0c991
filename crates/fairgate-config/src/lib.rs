//! The configuration of `fairgate serve`. A YAML file is parsed into a tree that remembers line numbers, and then into
//! one checked [`Config`] that the rest of the program trusts. All defaults are defined here.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::path::Path;
//!
//! use fairgate_config::Config;
//!
//! let file = Path::new("fairgate.yaml");
//! let text = "
//! upstreams:
//!   - { name: vllm-a, url: http://10.0.0.5:8000, slots: 16 }
//! pools:
//!   - { name: llama, models: [llama-3.1-8b], workers: [vlm-a] }
//! ";
//! let environment = BTreeMap::new();
//! let errors = Config::parse(text, file, &environment).unwrap_err();
//! assert_eq!(
//!     errors.to_string(),
//!     r#"fairgate.yaml:5:54: pools[0].workers[0]: no upstream is called "vlm-a"; did you mean "vllm-a"?"#,
//! );
//! let config = Config::parse(&text.replace("vlm-a", "vllm-a"), file, &environment)?;
//! assert_eq!(config.pools[0].capacity, 16);
//! # Ok::<(), fairgate_config::ConfigErrors>(())
//! ```

mod address_range;
mod classes;
mod config;
mod declared;
mod defaults;
mod document;
mod embedded;
mod environment;
mod error;
mod field;
mod field_rules;
mod json;
mod policy_file;
mod read;
mod reload;
mod suggest;
mod values;
mod warnings;
mod yaml;

pub use address_range::AddressRange;
pub use classes::{
    ClassArbiter, ClassBucket, ClassCell, ClassFamily, ClassInside, ClassReason, ClassResolution,
    PolicyClass, PolicyClassName, PolicyClasses,
};
pub use config::{
    AdminConfig, AutoSlots, BreakerConfig, BrownoutConfig, ClickHouseConfig, Config, CostConfig,
    CostUnit, DiscoverConfig, FileCostConfig, FleetConfig, FleetCreditUnit, FleetEventKind,
    FleetShareLevel, HealthConfig, HostedBudget, HostedOverBudget, JournalConfig, LeasesConfig,
    LimitsConfig, MetricsConfig, ModelConfig, OnStoreFailure, OverloadConfig, PoolConfig,
    PrefixIndexConfig, PrefixScope, QuotaConfig, Secret, StoreConfig, TlsConfig, Tokenizer,
    UpstreamConfig, UpstreamCredential, UpstreamDialects, UpstreamTimeouts, WebhookConfig,
};
pub use declared::{
    DeclaredBudget, DeclaredDirectory, DeclaredGroup, DeclaredKey, DeclaredKeyHash, DeclaredLimits,
    DeclaredRights, DeclaredTenant,
};
pub use document::YamlDocument;
pub use environment::{Environment, ProcessEnvironment};
pub use error::{ConfigError, ConfigErrors, FilePosition};
pub use field_rules::{FieldRule, FieldRules, REFUSED_FIELDS, STRIPPED_FIELDS, STRIPPED_HEADERS};
pub use policy_file::PolicyFile;
pub use read::{check_name, parse_base_url};
pub use reload::{
    ChangedNames, ConfigReload, EffectiveSetting, EffectiveValue, ReloadPlan, SettingChange,
    effective_settings,
};
pub use values::{DEADLINE_FORMS, format_thousandths, parse_deadline, parse_thousandths};
pub use warnings::{EQUAL_WEIGHTS_WARNING, PolicyWarning};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
