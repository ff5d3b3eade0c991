//! Objects that the configuration file declares.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Place in a configuration file that declares a group, tenant or key. The admin API refuses to
/// change an object that a file declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeclaredIn)]
pub struct DeclaredInBody {
    /// Path of the file, as the gateway that applied it knows it.
    pub file: String,
    /// Line of the file.
    pub line: u64,
}
