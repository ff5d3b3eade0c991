//! Entries of the audit trail, one for each change.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One audited change with its actor.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditBody {
    /// Sequence number of the entry; newer entries have higher numbers.
    pub id: i64,
    /// Time of the change, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub at: String,
    /// Author of the change: `admin`, `admin:NAME`, `agent:NAME`, `config` or `first-start`.
    pub actor: String,
    /// Kind of the change, such as `tenant.patch`.
    pub action: String,
    /// Name of the changed object, such as `chat`.
    pub subject: String,
    /// State before the change; null if the object did not exist.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// State after the change; null if the object was removed.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
    /// True if changes of this kind can be undone. The undo is refused if somebody has changed the
    /// object again.
    pub undo: bool,
}

/// A page of the audit trail, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditPage)]
pub struct AuditPage {
    /// The entries of the page.
    pub items: Vec<AuditBody>,
    /// Value for `before` to get the next page; null on the last page.
    pub next: Option<i64>,
}
