//! The configuration of `fairgate serve`: a YAML file becomes a tree that remembers its lines, and that becomes one
//! checked [`Config`] which the rest of the program trusts. Every default has its home here.
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

mod classes;
mod config;
mod defaults;
mod document;
mod embedded;
mod environment;
mod error;
mod field;
mod json;
mod read;
mod reload;
mod rules;
mod suggest;
mod values;
mod yaml;

pub use classes::{
    Arbiter, Bucket, Cell, ClassInside, ClassName, Classes, Family, PolicyClass, PolicyFile,
    Resolution, Why,
};
pub use config::{
    AdminConfig, AutoSlots, BreakerConfig, BrownoutConfig, Config, CostConfig, Credential,
    Dialects, DiscoverConfig, FleetConfig, HealthConfig, HostedBudget, HostedOverBudget,
    JournalConfig, LeasesConfig, LimitsConfig, MetricsConfig, ModelConfig, OnStoreFailure,
    OverloadConfig, PoolConfig, PrefixIndexConfig, PrefixScope, QuotaConfig, Secret, StoreConfig,
    TlsConfig, Tokenizer, UpstreamConfig, UpstreamTimeouts,
};
pub use document::Document;
pub use environment::{Environment, ProcessEnvironment};
pub use error::{ConfigError, ConfigErrors, Place};
pub use read::{check_name, parse_base_url};
pub use reload::{Change, Concerned, Plan, Reload};
pub use rules::{REFUSED_FIELDS, Rule, Rules, STRIPPED_FIELDS, STRIPPED_HEADERS};
