//! The audit trail.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_store::{AuditEntry, AuditQuery, UnixMicros};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment;
use super::page::page_length;
use super::query::Params;
use crate::app::App;

/// One change, and who made it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct AuditBody {
    /// Its number; rises.
    id: i64,
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Who: `admin`, `admin:NAME`, `config`, `first-start`.
    actor: String,
    /// What, such as `tenant.patch`.
    action: String,
    /// To which, such as `chat`.
    subject: String,
    /// What it was before; null where it was not.
    #[schema(value_type = Option<Object>)]
    before: Option<Value>,
    /// What it was after; null where it is gone.
    #[schema(value_type = Option<Object>)]
    after: Option<Value>,
}

impl From<AuditEntry> for AuditBody {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: moment::shown(entry.at),
            actor: entry.actor,
            action: entry.action,
            subject: entry.subject,
            before: entry.before.map(with_moments),
            after: entry.after.map(with_moments),
        }
    }
}

/// Moments inside an entry as text, like everywhere in this API.
fn with_moments(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        let moments = fields.iter_mut().filter(|(name, _)| name.ends_with("_at"));
        for (_, field) in moments {
            if let Some(micros) = field.as_i64() {
                *field = moment::shown(UnixMicros(micros)).into();
            }
        }
    }
    value
}

/// Changes, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub(super) struct AuditPage {
    /// The changes.
    items: Vec<AuditBody>,
    /// What to give as `before` for the next page; null where this is the last.
    next: Option<i64>,
}

/// Which changes.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    /// Only those before this id: a page's `next`.
    #[param(minimum = 0, maximum = 9_223_372_036_854_775_807_i64, nullable = false)]
    before: Option<u64>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Lists every change of the directory, newest first.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "directory", params(Query),
    responses((status = 200, description = "A page of changes", body = AuditPage)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<Query>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = page_length(query.limit)?;
    let before = query.before.map(i64::try_from).transpose().map_err(|_| {
        ApiError::bad_request("invalid_query", "before is larger than any id").in_field("before")
    })?;
    let entries = app.store.audit(AuditQuery { before, limit }).await?;
    let full = entries.len() >= limit as usize;
    let next = entries.last().filter(|_| full).map(|entry| entry.id);
    Ok(Json(AuditPage { items: entries.into_iter().map(AuditBody::from).collect(), next }))
}
