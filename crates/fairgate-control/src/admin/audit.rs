//! The audit trail of the admin API.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{AuditBody, AuditPage};
use fairgate_store::{AuditEntry, AuditQuery, UnixMicros};
use fairgate_time::wall_clock;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::moment::TypedTime;
use super::page::page_length;
use super::query::{NameFilter, QueryParams};
use super::undo;
use crate::control_plane::ControlPlane;

/// Returns an entry as the API shows it.
pub(super) fn audit_body(entry: AuditEntry) -> AuditBody {
    AuditBody {
        undo: undo::is_undoable(&entry),
        id: entry.id,
        at: fairgate_time::to_rfc3339(entry.at),
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
        before: entry.before.map(with_moments),
        after: entry.after.map(with_moments),
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

/// Selects a page of the audit trail.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuditPageQuery {
    /// Returns only entries before this id; pass the `next` of the previous page.
    #[param(minimum = 0, maximum = 9_223_372_036_854_775_807_i64, nullable = false)]
    before: Option<u64>,
    /// Returns only the changes of this actor, such as `admin:oncall`. `admin` also returns those of each `admin:NAME`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    actor: Option<NameFilter>,
    /// Returns only changes of this kind, such as `tenant.patch`. `tenant` also returns those of each `tenant.KIND`.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    action: Option<NameFilter>,
    /// Returns only changes of this object.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    subject: Option<NameFilter>,
    /// Earliest change, inclusive: RFC 3339, seconds since 1970, or an age such as `24h`.
    #[param(value_type = Option<String>, nullable = false)]
    since: Option<TypedTime>,
    /// Latest change, exclusive, in the same formats as `since`.
    #[param(value_type = Option<String>, nullable = false)]
    until: Option<TypedTime>,
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
    let now = wall_clock::now();
    let name = |filter: Option<NameFilter>| filter.map(|name| name.0);
    let entries = app.data.store.audit(AuditQuery {
        before,
        id: None,
        actor: name(query.actor),
        action: name(query.action),
        subject: name(query.subject),
        since: query.since.map(|since| since.at(now)),
        until: query.until.map(|until| until.at(now)),
        limit,
    });
    let entries = entries.await?;
    let full = entries.len() >= limit as usize;
    let next = entries.last().filter(|_| full).map(|entry| entry.id);
    Ok(Json(AuditPage { items: entries.into_iter().map(audit_body).collect(), next }))
}
