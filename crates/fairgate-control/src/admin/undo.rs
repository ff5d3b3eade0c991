//! Undoes a change by making the inverse change, from the states before and after it in the audit
//! trail.
//!
//! Only the fields that the change set are set back, and only if they are still as the change left
//! them. Later changes of other fields or objects stay. The store compares and changes the
//! directory in one transaction. Pools are changed one at a time (`ControlPlane::pool_changes`), so
//! no other change comes between the comparison and the change of a pool.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::FlowAttribute;
use fairgate_core::units::Weight;
use fairgate_proxy::pools::{AddedWorker, ChangeEffect, OverloadThresholds};
use fairgate_runtime::GateChangeError;
use fairgate_store::{AuditEntry, AuditQuery, DirectoryChange};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::change::change;
use super::path::PathName;
use super::pools::{note_change, pool_by_name, refused, settings_now};
use super::workers::{self, set_drained_again};
use crate::control_plane::ControlPlane;

/// A change that was undone.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = UndoneChange)]
pub(super) struct UndoneBody {
    /// Id of the audit entry of the change that was undone.
    undone: i64,
    /// Kind of the change, such as `tenant.patch`. The inverse change has an audit entry of its own.
    action: String,
    /// Name of the changed object.
    subject: String,
}

/// A flow in the audit entry of a pool's change, with the setting that was changed.
#[derive(Debug, Deserialize)]
struct FlowEntry {
    by: FlowAttribute,
    flow: String,
    #[serde(default)]
    weight: Option<u64>,
    #[serde(default)]
    slots: Option<u64>,
    #[serde(default)]
    held: bool,
}

/// A worker in the audit entry of a drain.
#[derive(Debug, Deserialize)]
struct DrainEntry {
    worker: String,
    drained: bool,
}

/// Thresholds of a worker's engine in the audit entry of their change.
#[derive(Debug, Deserialize)]
struct OverloadEntry {
    worker: String,
    overload: Option<OverloadThresholds>,
}

/// Returns true if changes of this kind can be undone. Entries of an earlier version may lack the state before.
pub(super) fn is_undoable(entry: &AuditEntry) -> bool {
    let kinds = [
        "group.patch",
        "tenant.patch",
        "key.patch",
        "hosted.set",
        "pool.weight",
        "pool.cap",
        "pool.hold",
        "pool.resume",
        "worker.drain",
        "worker.undrain",
        "worker.overload",
        "project.patch",
        "task.pause",
        "task.resume",
    ];
    if entry.action == "worker.add" {
        return entry.after.is_some();
    }
    let has_weight = |state: &Value| entry.action != "pool.weight" || state["weight"].is_u64();
    kinds.contains(&entry.action.as_str())
        && entry.before.as_ref().is_some_and(has_weight)
        && entry.after.is_some()
}

/// Undoes a change by setting back the fields that it had changed.
///
/// Refused if somebody has changed these fields since. The inverse change is audited as a change of
/// its own.
#[utoipa::path(
    post, path = "/api/v1/audit/{id}/undo", tag = "directory",
    params(("id" = String, Path, description = "The id of the change's audit entry", pattern = "^[0-9]{1,18}$")),
    responses(
        (status = 200, description = "It is undone", body = UndoneBody),
        (status = 409, description = "Somebody has changed the same since, or changes of this kind cannot be undone", body = super::ErrorBody),
    ),
)]
pub(super) async fn undo(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(id): PathName,
) -> Result<Json<UndoneBody>, ApiError> {
    let number = id.parse::<i64>().ok();
    let query = AuditQuery { id: number, limit: 1, ..AuditQuery::default() };
    let entry = match number {
        Some(_) => app.data.store.audit(query).await?.pop(),
        None => None,
    };
    let entry = entry.ok_or_else(|| ApiError::not_found("change", &id))?;
    if !is_undoable(&entry) {
        let message = format!("a change of the kind {:?} cannot be undone", entry.action);
        return Err(ApiError::new(StatusCode::CONFLICT, "not_undoable", message));
    }
    match entry.action.as_str() {
        "worker.drain" | "worker.undrain" => undo_drain(&app, &admin, &entry).await?,
        "worker.add" | "worker.overload" => undo_worker(&app, &admin, &entry).await?,
        "project.patch" | "task.pause" | "task.resume" => {
            app.fleet.undo(&admin.actor, entry.clone()).await?;
        }
        action if action.starts_with("pool.") => undo_flow(&app, &admin, &entry).await?,
        _ => {
            let entry = Box::new(entry.clone());
            change(&app, &admin, DirectoryChange::Undo { entry }).await?;
        }
    }
    let AuditEntry { id, action, subject, .. } = entry;
    tracing::info!(actor = admin.actor, id, action, subject, "a change was undone");
    Ok(Json(UndoneBody { undone: id, action, subject }))
}

fn changed_since(entry: &AuditEntry) -> ApiError {
    let message = format!(
        "{:?} is not as change {} left it: somebody has changed it since; look at the audit trail and set it by hand",
        entry.subject, entry.id
    );
    ApiError::new(StatusCode::CONFLICT, "changed_since", message)
}

/// Returns the error for an audit entry that does not have the form of its kind.
fn unreadable(entry: &AuditEntry) -> ApiError {
    let message =
        format!("change {} was written by another version and cannot be undone", entry.id);
    ApiError::new(StatusCode::CONFLICT, "not_undoable", message)
}

fn read<T: serde::de::DeserializeOwned>(
    entry: &AuditEntry,
    state: Option<&Value>,
) -> Result<T, ApiError> {
    let state = state.cloned().ok_or_else(|| unreadable(entry))?;
    serde_json::from_value(state).map_err(|_| unreadable(entry))
}

/// Undoes a change of a flow's weight, cap or hold.
async fn undo_flow(
    app: &ControlPlane,
    admin: &AdminCaller,
    entry: &AuditEntry,
) -> Result<(), ApiError> {
    let (before, after): (FlowEntry, FlowEntry) =
        (read(entry, entry.before.as_ref())?, read(entry, entry.after.as_ref())?);
    let pool = pool_by_name(app, &entry.subject)?;
    let (by, flow) = (before.by, before.flow.as_str());
    let _one_at_a_time = app.pool_changes.lock().await;
    let now = settings_now(app, &pool, by, flow).await?;
    let (is_as_left, action) = match entry.action.as_str() {
        "pool.weight" => (now.weight == after.weight, "pool.weight"),
        "pool.cap" => (now.cap == after.slots, "pool.cap"),
        _ => (now.held == after.held, if before.held { "pool.hold" } else { "pool.resume" }),
    };
    if !is_as_left {
        return Err(changed_since(entry));
    }
    let states = [entry.after.clone(), entry.before.clone()].map(Option::unwrap_or_default);
    note_change(app, admin, action, &entry.subject, states).await?;
    let gate = &pool.gate;
    let done: Result<(), GateChangeError> = match action {
        "pool.weight" => match before.weight.and_then(|weight| Weight::new(weight).ok()) {
            Some(weight) => gate.set_weight(by.into(), flow, weight).await,
            None => return Err(unreadable(entry)),
        },
        "pool.cap" => gate.set_cap(by.into(), flow, before.slots).await,
        "pool.hold" => gate.hold(by.into(), flow).await,
        _ => gate.resume(by.into(), flow).await,
    };
    done.map_err(|error| refused(&pool, error))
}

/// Undoes the drain of a worker, or the end of a drain.
async fn undo_drain(
    app: &ControlPlane,
    admin: &AdminCaller,
    entry: &AuditEntry,
) -> Result<(), ApiError> {
    let before: DrainEntry = read(entry, entry.before.as_ref())?;
    let _one_at_a_time = app.pool_changes.lock().await;
    match set_drained_again(app, admin, &entry.subject, &before.worker, before.drained).await? {
        true => Ok(()),
        // The worker was in this state already.
        false => Err(changed_since(entry)),
    }
}

/// Removes a worker that was added, or sets back its thresholds.
async fn undo_worker(
    app: &ControlPlane,
    admin: &AdminCaller,
    entry: &AuditEntry,
) -> Result<(), ApiError> {
    let (pools, audit) = (&app.data.pools, workers::audit(app, admin));
    let _one_at_a_time = app.pool_changes.lock().await;
    let changed = if entry.action == "worker.add" {
        let added: AddedWorker = read(entry, entry.after.as_ref())?;
        pools.remove_added_worker(&added, audit).await?
    } else {
        let (before, after): (OverloadEntry, OverloadEntry) =
            (read(entry, entry.before.as_ref())?, read(entry, entry.after.as_ref())?);
        if pools.overload_of(&after.worker).await != after.overload {
            return Err(changed_since(entry));
        }
        pools.set_overload(&entry.subject, &after.worker, before.overload, audit).await?
    };
    match changed {
        ChangeEffect::Yes => Ok(()),
        ChangeEffect::No => Err(changed_since(entry)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(before: Value, after: Value) -> AuditEntry {
        serde_json::from_value(json!({
            "id": 7, "at": 0, "actor": "admin", "action": "tenant.patch", "subject": "chat", "before": before,
            "after": after,
        }))
        .unwrap()
    }

    #[test]
    fn entries_without_the_state_before_cannot_be_undone() {
        let old = AuditEntry { action: "pool.cap".into(), ..entry(json!({}), json!({})) };
        assert!(is_undoable(&old));
        assert!(!is_undoable(&AuditEntry { before: None, ..old.clone() }));
        let unknown = AuditEntry { action: "pool.weight".into(), ..old.clone() };
        assert!(!is_undoable(&unknown), "the weight before is not known");
        let added = AuditEntry { action: "worker.add".into(), before: None, ..old.clone() };
        assert!(is_undoable(&added), "there was no worker before");
        assert!(!is_undoable(&AuditEntry { action: "key.revoke".into(), ..old }));
    }
}
