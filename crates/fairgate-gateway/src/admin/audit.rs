//! The audit trail of the admin API.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_store::{AuditEntry, AuditQuery, UnixMicros};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::page::page_length;
use super::query::QueryParams;
use crate::control_plane::ControlPlane;

/// One audited change with its actor.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct AuditBody {
    /// Sequence number of the entry; newer entries have higher numbers.
    id: i64,
    /// Time of the change, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    at: String,
    /// Author of the change: `admin`, `admin:NAME`, `agent:NAME`, `config` or `first-start`.
    actor: String,
    /// Kind of the change, such as `tenant.patch`.
    action: String,
    /// Name of the changed object, such as `chat`.
    subject: String,
    /// State before the change; null if the object did not exist.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// State after the change; null if the object was removed.
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
}

impl From<AuditEntry> for AuditBody {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: fairgate_time::to_rfc3339(entry.at),
            actor: entry.actor,
            action: entry.action,
            subject: entry.subject,
            before: entry.before.map(with_moments),
            after: entry.after.map(with_moments),
        }
    }
}

/// Converts the times inside an entry (all fields whose names end in `_at`) to RFC 3339, as in the rest of this API.
fn with_moments(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        let moments = fields.iter_mut().filter(|(name, _)| name.ends_with("_at"));
        for (_, field) in moments {
            if let Some(micros) = field.as_i64() {
                *field = fairgate_time::to_rfc3339(UnixMicros(micros)).into();
            }
        }
    }
    value
}

/// A page of the audit trail, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub(super) struct AuditPage {
    /// The entries of the page.
    items: Vec<AuditBody>,
    /// Value for `before` to get the next page; null on the last page.
    next: Option<i64>,
}

/// Selects a page of the audit trail.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuditPageQuery {
    /// Returns only entries before this id; pass the `next` of the previous page.
    #[param(minimum = 0, maximum = 9_223_372_036_854_775_807_i64, nullable = false)]
    before: Option<u64>,
    /// Maximum number of entries, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Lists all audited changes, newest first.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "directory", params(AuditPageQuery),
    responses((status = 200, description = "A page of changes", body = AuditPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<AuditPageQuery>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let before = query.before.map(i64::try_from).transpose().map_err(|_| {
        ApiError::bad_request("invalid_query", "before is larger than any id").in_field("before")
    })?;
    let entries = app.data.store.audit(AuditQuery { before, limit }).await?;
    let full = entries.len() >= limit as usize;
    let next = entries.last().filter(|_| full).map(|entry| entry.id);
    Ok(Json(AuditPage { items: entries.into_iter().map(AuditBody::from).collect(), next }))
}
