//! Workers of a pool: added, drained and removed while it runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use fairgate_core::event::MAX_RANKS;
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::body::Body;
use super::keys::TaintName;
use super::name::{Whole, Word, given};
use super::path::Named;
use super::pools::{named, worker_bodies};
use super::query::Params;
use crate::app::App;
use crate::live::WorkerBody;
use crate::pools::{AddedWorker, Changed, Overload, Removal, WorkerAudit, WorkerError};

/// A new worker.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewWorker)]
pub(super) struct NewWorker {
    /// Its name: 1 to 64 letters, digits and `- _ .`; no upstream of the configuration file and no other worker has it.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    name: String,
    /// Its base, such as `http://10.0.0.7:8000`.
    url: String,
    /// The upstream of the configuration file whose settings it takes over: its credential, timeouts, health check, metrics and
    /// whatever is not said here.
    like: String,
    /// How many requests it takes at once, each of its ranks; as in `like` where absent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1_000_000)]
    slots: Option<Whole>,
    /// Its tier; as in `like` where absent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = u32, required = false, maximum = 100)]
    tier: Option<Whole>,
    /// Its data-parallel ranks; as in `like` where absent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = u32, required = false, minimum = 1, maximum = 65_536)]
    ranks: Option<Whole>,
    /// What requests may require of it; as in `like` where absent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Vec<TaintName>, required = false)]
    taints: Option<Vec<Word<128>>>,
    /// The tokens of one batch; as in `like` where absent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = u64, required = false, minimum = 1)]
    batch_tokens: Option<Whole>,
}

impl NewWorker {
    fn checked(self, pool: &str) -> Result<AddedWorker, ApiError> {
        let whole = |field, value: Option<Whole>, range| {
            value.map(|value| within(field, value.0, range)).transpose()
        };
        let small = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
        let taints = self.taints.map(|taints| taints.into_iter().map(|taint| taint.0).collect());
        Ok(AddedWorker {
            pool: pool.to_owned(),
            name: self.name,
            url: self.url,
            like: self.like,
            slots: whole("slots", self.slots, 1..=1_000_000)?,
            tier: small(whole("tier", self.tier, 0..=100)?),
            ranks: small(whole("ranks", self.ranks, 1..=MAX_RANKS.into())?),
            taints,
            batch_tokens: whole("batch_tokens", self.batch_tokens, 1..=u64::MAX)?,
        })
    }
}

/// When a worker's engine counts as overloaded. It then takes nothing new.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WorkerPatch)]
pub(super) struct PatchWorker {
    /// The thresholds; null puts those of the configuration file back.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required = true)]
    overload: Option<OverloadBody>,
}

/// Thresholds on what an engine's metrics say.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Overload)]
pub(super) struct OverloadBody {
    /// Overloaded where more requests than this wait in the engine's own queue; never where absent.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    waiting: Option<Whole>,
    /// Overloaded where more than this part of the engine's cache is in use, in thousandths; never where absent.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 1000)]
    cache_thousandths: Option<Whole>,
}

/// How a worker is removed.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemovalParams {
    /// Forget it at once instead of once nothing is in flight on it. What is in flight on it goes on as long as the worker does.
    #[serde(default)]
    now: bool,
}

/// The workers of a pool.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WorkerList)]
pub(super) struct WorkerList {
    /// The workers: those of the configuration file and of DNS in the file's order, then those that were added.
    items: Vec<WorkerBody>,
}

/// The names of a pool and of a worker in a path.
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
    State(app): State<Arc<App>>,
    _: Admin,
    Named(pool): Named,
) -> Result<Json<WorkerList>, ApiError> {
    let items = worker_bodies(&app, &*named(&app, &pool)?).await?;
    Ok(Json(WorkerList { items }))
}

/// Adds a worker. It takes requests at once, and is still there after a restart.
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
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(pool): Named,
    Body(new): Body<NewWorker>,
) -> Result<(StatusCode, Json<WorkerBody>), ApiError> {
    let worker = new.checked(&pool)?;
    let name = worker.name.clone();
    let changed = app.pools.add_worker(worker, audit(&app, &admin)).await?;
    let status = match changed {
        Changed::Yes => StatusCode::CREATED,
        Changed::No => StatusCode::OK,
    };
    said(&admin, &pool, &name, changed, "a worker was added");
    Ok((status, Json(one(&app, &pool, &name).await?)))
}

/// Has a worker take nothing new. What is in flight on it goes on. It stays so over a restart, until it is undrained.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/workers/{worker}/drain", tag = "operation",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
    ),
    responses((status = 200, description = "It takes nothing new", body = WorkerBody)),
)]
pub(super) async fn drain(
    State(app): State<Arc<App>>,
    admin: Admin,
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
    State(app): State<Arc<App>>,
    admin: Admin,
    path: WorkerPath,
) -> Result<Json<WorkerBody>, ApiError> {
    set_drained(&app, &admin, &path, false).await
}

/// Changes when a worker's engine counts as overloaded. It stays so over a restart.
#[utoipa::path(
    patch, path = "/api/v1/pools/{pool}/workers/{worker}", tag = "operation", request_body = PatchWorker,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
    ),
    responses((status = 200, description = "The worker as it is now", body = WorkerBody)),
)]
pub(super) async fn patch(
    State(app): State<Arc<App>>,
    admin: Admin,
    WorkerPath { pool, worker }: WorkerPath,
    Body(patch): Body<PatchWorker>,
) -> Result<Json<WorkerBody>, ApiError> {
    let overload = patch.overload.map(OverloadBody::checked).transpose()?;
    let changed = app.pools.set_overload(&pool, &worker, overload, audit(&app, &admin)).await?;
    said(&admin, &pool, &worker, changed, "a worker's overload thresholds were changed");
    one(&app, &pool, &worker).await.map(Json)
}

/// Removes a worker that was added: it takes nothing new, and is gone once nothing is in flight on it. Workers of the
/// configuration file and of DNS are removed there; here they can be drained.
#[utoipa::path(
    delete, path = "/api/v1/pools/{pool}/workers/{worker}", tag = "operation",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("worker" = String, Path, description = "The worker's name"),
        RemovalParams,
    ),
    responses(
        (status = 204, description = "It takes nothing new, and goes"),
        (status = 409, description = "It is from the configuration file or from DNS", body = super::ErrorBody),
    ),
)]
pub(super) async fn remove(
    State(app): State<Arc<App>>,
    admin: Admin,
    WorkerPath { pool, worker }: WorkerPath,
    Params(RemovalParams { now }): Params<RemovalParams>,
) -> Result<StatusCode, ApiError> {
    let removal = if now { Removal::Now } else { Removal::Drained };
    let changed = app.pools.remove_worker(&pool, &worker, removal, audit(&app, &admin)).await?;
    said(&admin, &pool, &worker, changed, "a worker was removed");
    Ok(StatusCode::NO_CONTENT)
}

async fn set_drained(
    app: &App,
    admin: &Admin,
    WorkerPath { pool, worker }: &WorkerPath,
    drained: bool,
) -> Result<Json<WorkerBody>, ApiError> {
    let changed = app.pools.drain_worker(pool, worker, drained, audit(app, admin)).await?;
    let words = if drained { "a worker was drained" } else { "a worker was undrained" };
    said(admin, pool, worker, changed, words);
    one(app, pool, worker).await.map(Json)
}

fn audit<'a>(app: &'a App, admin: &'a Admin) -> WorkerAudit<'a> {
    WorkerAudit { store: &app.store, actor: &admin.actor }
}

fn said(admin: &Admin, pool: &str, worker: &str, changed: Changed, words: &str) {
    if changed == Changed::Yes {
        tracing::info!(actor = admin.actor, pool, worker, "{words}");
    }
}

async fn one(app: &App, pool: &str, worker: &str) -> Result<WorkerBody, ApiError> {
    let workers = worker_bodies(app, &*named(app, pool)?).await?;
    let found = workers.into_iter().find(|body| body.name == worker);
    found.ok_or_else(|| ApiError::not_found("worker", worker))
}

fn within(field: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<u64, ApiError> {
    if range.contains(&value) {
        return Ok(value);
    }
    let message = format!("{field} must be from {} to {}", range.start(), range.end());
    Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message).in_field(field))
}

impl OverloadBody {
    fn checked(self) -> Result<Overload, ApiError> {
        let cache = self.cache_thousandths;
        let cache_milli =
            cache.map(|part| within("overload.cache_thousandths", part.0, 1..=1000)).transpose()?;
        Ok(Overload { waiting: self.waiting.map(|waiting| waiting.0), cache_milli })
    }
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
