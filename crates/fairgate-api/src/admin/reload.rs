//! Reload of the configuration file, and the check of a text that may become the file.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Result of a successful reload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Reloaded)]
pub struct ReloadedBody {
    /// Every change in words, such as `pools.llama.capacity: 32 → 48`; empty if the file equals the running
    /// configuration.
    pub changes: Vec<String>,
    /// Every change of groups, tenants and keys in words, such as `tenant chat: changed, fairgate.yaml:12`.
    #[serde(default)]
    pub directory: Vec<String>,
}

/// Result of the check of a text: the changes that a reload would make.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = CheckedConfig)]
pub struct CheckedConfigBody {
    /// Every change in words, such as `pools.llama.capacity: 32 → 48`; empty if the text equals the running
    /// configuration.
    pub changes: Vec<String>,
    /// Every change of groups, tenants and keys in words, such as `tenant chat: disabled, no longer declared`.
    pub directory: Vec<String>,
    /// Number of tenants and keys that would be disabled because the text does not declare them.
    pub disabled: u64,
    /// Number of declared tenants and keys that can be used now.
    pub usable: u64,
    /// True if the reload would be refused without `yes`, because more than half would be disabled.
    pub needs_yes: bool,
}
