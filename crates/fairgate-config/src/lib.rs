//! The configuration of `fairgate serve`: a YAML file becomes a raw form that remembers its lines, and that becomes one
//! checked [`Config`] which the rest of the program trusts. Every default has its home here.

mod config;

pub use config::{
    AdminConfig, BreakerConfig, BrownoutConfig, Config, CostConfig, Credential, Dialects,
    HealthConfig, JournalConfig, LimitsConfig, ModelConfig, PoolConfig, Secret, StoreConfig,
    TlsConfig, Tokenizer, UpstreamConfig, UpstreamTimeouts,
};
