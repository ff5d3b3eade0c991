//! Handlers that add, drain, change and remove workers while their pool runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::WorkerBody;
use fairgate_api::admin::{NewWorker, OverloadBody, WorkerList, WorkerPatch};
use fairgate_core::event::MAX_RANKS;
use fairgate_proxy::pools::{
    AddedWorker, ChangeEffect, OverloadThresholds, WorkerAudit, WorkerError, WorkerRemoval,
};
use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::path::PathName;
use super::pools::{pool_by_name, worker_bodies};
use super::query::QueryParams;
use crate::control_plane::ControlPlane;

/// Checks the numbers of a new worker.
fn checked_worker(new: NewWorker, pool: &str) -> Result<AddedWorker, ApiError> {
    let whole = |field, value: Option<JsonWholeNumber>, range| {
        value.map(|value| check_range(field, value.0, range)).transpose()
    };
    let small = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
    let taints = new.taints.map(|taints| taints.into_iter().map(|taint| taint.0).collect());
    Ok(AddedWorker {
        pool: pool.to_owned(),
        name: new.name,
        url: new.url,
        like: new.like,
        slots: whole("slots", new.slots, 1..=1_000_000)?,
        tier: small(whole("tier", new.tier, 0..=100)?),
        ranks: small(whole("ranks", new.ranks, 1..=MAX_RANKS.into())?),
        taints,
        batch_tokens: whole("batch_tokens", new.batch_tokens, 1..=u64::MAX)?,
    })
}

/// Options for the removal of a worker.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkerRemovalQuery {
    /// True to remove the worker at once instead of after its last request in flight. Requests in flight continue as
    /// long as the worker runs.
    #[serde(default)]
    now: bool,
}

/// The names of the pool and the worker in a path.
pub(super) struct WorkerPath {
    pool: String,
    worker: String,
}

impl<S: Send + Sync> FromRequestParts<S> for WorkerPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path((pool, worker)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|error| ApiError::bad_request("invalid_path", error.body_text()))?;
        Ok(Self { pool, worker })
    }
}

/// Lists the workers of a pool.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}/workers", tag = "operation",
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "Its workers", body = WorkerList)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(pool): PathName,
) -> Result<Json<WorkerList>, ApiError> {
    let items = worker_bodies(&app, &*pool_by_name(&app, &pool)?).await?;
    Ok(Json(WorkerList { items }))
}

/// Adds a worker. The worker gets requests at once, and is kept over restarts.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/workers", tag = "operation", request_body = NewWorker,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 201, description = "It is there", body = WorkerBody),
        (status = 200, description = "It was there already, the same", body = WorkerBody),
        (status = 409, description = "Another one is called so", body = super::ErrorBody),
    ),
)]
pub(super) async fn add(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(pool): PathName,
    JsonBody(new): JsonBody<NewWorker>,
) -> Result<(StatusCode, Json<WorkerBody>), ApiError> {
    let worker = checked_worker(new, &pool)?;
    let name = worker.name.clone();
    let _one_at_a_time = app.pool_changes.lock().await;
    let changed = app.data.pools.add_worker(worker, audit(&app, &admin)).await?;
    let status = match changed {
        ChangeEffect::Yes => StatusCode::CREATED,
        ChangeEffect::No => StatusCode::OK,
    };
    log_worker_change(&admin, &pool, &name, changed, "a worker was added");
    Ok((status, Json(worker_body(&app, &pool, &name).await?)))
}

/// Drains a worker, so that it gets no new requests.
///
/// Requests in flight continue. The worker stays drained, also over a restart, until it is undrained.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/workers/{worker}/drain", tag = "operation",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
    ),
    responses((status = 200, description = "It takes nothing new", body = WorkerBody)),
)]
pub(super) async fn drain(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    path: WorkerPath,
) -> Result<Json<WorkerBody>, ApiError> {
    set_drained(&app, &admin, &path, true).await
}

/// Lets a drained worker take requests again.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/workers/{worker}/undrain", tag = "operation",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
    ),
    responses((status = 200, description = "It takes requests", body = WorkerBody)),
)]
pub(super) async fn undrain(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    path: WorkerPath,
) -> Result<Json<WorkerBody>, ApiError> {
    set_drained(&app, &admin, &path, false).await
}

/// Changes the overload thresholds of a worker's engine. The new thresholds are kept over restarts.
#[utoipa::path(
    patch, path = "/api/v1/pools/{pool}/workers/{worker}", tag = "operation", request_body = WorkerPatch,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
    ),
    responses(
        (status = 200, description = "The worker as it is now", body = WorkerBody),
        (status = 409, description = "Its load is not read", body = super::ErrorBody),
    ),
)]
pub(super) async fn patch(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    WorkerPath { pool, worker }: WorkerPath,
    JsonBody(patch): JsonBody<WorkerPatch>,
) -> Result<Json<WorkerBody>, ApiError> {
    let overload = patch.overload.map(checked_overload).transpose()?;
    let _one_at_a_time = app.pool_changes.lock().await;
    let changed =
        app.data.pools.set_overload(&pool, &worker, overload, audit(&app, &admin)).await?;
    log_worker_change(
        &admin,
        &pool,
        &worker,
        changed,
        "a worker's overload thresholds were changed",
    );
    worker_body(&app, &pool, &worker).await.map(Json)
}

/// Removes a worker that was added through this API.
///
/// The worker gets no new requests, and is removed once nothing is in flight on it. A worker of the configuration file
/// or of DNS cannot be removed here, only drained. To remove it, change the file or the DNS name.
#[utoipa::path(
    delete, path = "/api/v1/pools/{pool}/workers/{worker}", tag = "operation",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
        WorkerRemovalQuery,
    ),
    responses(
        (status = 204, description = "It takes nothing new, and goes"),
        (status = 409, description = "It is from the configuration file or from DNS", body = super::ErrorBody),
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    WorkerPath { pool, worker }: WorkerPath,
    QueryParams(WorkerRemovalQuery { now }): QueryParams<WorkerRemovalQuery>,
) -> Result<StatusCode, ApiError> {
    let _one_at_a_time = app.pool_changes.lock().await;
    let removal = if now { WorkerRemoval::Now } else { WorkerRemoval::Drained };
    let changed =
        app.data.pools.remove_worker(&pool, &worker, removal, audit(&app, &admin)).await?;
    log_worker_change(&admin, &pool, &worker, changed, "a worker was removed");
    Ok(StatusCode::NO_CONTENT)
}

async fn set_drained(
    app: &ControlPlane,
    admin: &AdminCaller,
    WorkerPath { pool, worker }: &WorkerPath,
    drained: bool,
) -> Result<Json<WorkerBody>, ApiError> {
    let _one_at_a_time = app.pool_changes.lock().await;
    let changed = app.data.pools.drain_worker(pool, worker, drained, audit(app, admin)).await?;
    let words = if drained { "a worker was drained" } else { "a worker was undrained" };
    log_worker_change(admin, pool, worker, changed, words);
    worker_body(app, pool, worker).await.map(Json)
}

/// Drains a worker, or ends its drain. Returns false if the worker was in that state already.
pub(super) async fn set_drained_again(
    app: &ControlPlane,
    admin: &AdminCaller,
    pool: &str,
    worker: &str,
    drained: bool,
) -> Result<bool, ApiError> {
    let changed = app.data.pools.drain_worker(pool, worker, drained, audit(app, admin)).await?;
    Ok(changed == ChangeEffect::Yes)
}

pub(super) fn audit<'a>(app: &'a ControlPlane, admin: &'a AdminCaller) -> WorkerAudit<'a> {
    WorkerAudit { store: &app.data.store, actor: &admin.actor }
}

fn log_worker_change(
    admin: &AdminCaller,
    pool: &str,
    worker: &str,
    changed: ChangeEffect,
    words: &str,
) {
    if changed == ChangeEffect::Yes {
        tracing::info!(actor = admin.actor, pool, worker, "{words}");
    }
}

async fn worker_body(app: &ControlPlane, pool: &str, worker: &str) -> Result<WorkerBody, ApiError> {
    let workers = worker_bodies(app, &*pool_by_name(app, pool)?).await?;
    let found = workers.into_iter().find(|body| body.name == worker);
    found.ok_or_else(|| ApiError::not_found("worker", worker))
}

fn check_range(
    field: &str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, ApiError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let message = format!("{field} must be from {} to {}", range.start(), range.end());
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message).in_field(field))
}

/// Checks the thresholds of an engine.
fn checked_overload(overload: OverloadBody) -> Result<OverloadThresholds, ApiError> {
    let cache = overload.cache_thousandths;
    let cache_milli = cache
        .map(|part| check_range("overload.cache_thousandths", part.0, 1..=1000))
        .transpose()?;
    Ok(OverloadThresholds { waiting: overload.waiting.map(|waiting| waiting.0), cache_milli })
}

impl From<WorkerError> for ApiError {
    fn from(error: WorkerError) -> Self {
        let message = error.to_string();
        match error {
            WorkerError::NoPool(pool) => Self::not_found("pool", &pool),
            WorkerError::NoWorker { worker, .. } => Self::not_found("worker", &worker),
            WorkerError::NoUpstream(name) => Self::not_found("upstream", &name).in_field("like"),
            WorkerError::Invalid { field, .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message)
                    .in_field(field)
            }
            WorkerError::NoThresholds { .. } => {
                Self::new(StatusCode::CONFLICT, "no_effect", message).in_field("overload")
            }
            WorkerError::Taken { .. } => Self::new(StatusCode::CONFLICT, "exists", message),
            WorkerError::NotOurs(_) => Self::new(StatusCode::CONFLICT, "not_added_here", message),
            WorkerError::Store(error) => error.into(),
            WorkerError::NotKept { .. } | WorkerError::Pools(_) => {
                tracing::error!(error = message, "a worker could not be changed");
                Self::unavailable("worker_unchanged", message)
            }
        }
    }
}
