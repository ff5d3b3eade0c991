//! Reload of the configuration file.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Result of a successful reload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Reloaded)]
pub struct ReloadedBody {
    /// Every change in words, such as `pools.llama.capacity: 32 → 48`; empty if the file equals the running
    /// configuration.
    pub changes: Vec<String>,
}
