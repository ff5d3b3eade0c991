//! Pools and their workers, and holding flows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_core::attribute::Attribute;
use fairgate_runtime::{ChangeError, Closed, JournalStatus};
use fairgate_store::Change;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Admin;
use super::body::Body;
use super::change::change;
use super::path::Named;
use crate::app::App;
use crate::live::{Unavailable, WorkerBody, algorithm, workers};
use crate::pools::PoolHandle;

/// A pool: models that share one capacity.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Pool)]
pub(super) struct PoolBody {
    /// Its name.
    name: String,
    /// The models it serves.
    models: Vec<String>,
    /// How it shares, from the root down.
    algorithm: String,
    /// How many requests may be in flight.
    capacity: u64,
    /// How many are.
    in_flight: u64,
    /// How many wait.
    queued: u64,
    /// How many may wait.
    queued_max: u64,
    /// How long a request may wait, in milliseconds.
    queue_timeout_ms: u64,
    /// Whether it is closing.
    draining: bool,
    /// The flows that are held.
    held: Vec<FlowBody>,
    /// Its workers.
    workers: Vec<WorkerBody>,
    /// Its journal.
    journal: JournalBody,
    /// What became of requests since the start.
    counts: CountsBody,
}

/// How a pool's journal is.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Journal)]
pub(super) struct JournalBody {
    /// `off`, `writing` or `stopped`.
    status: &'static str,
    /// Why it stopped.
    error: Option<String>,
    /// How many events are in no journal because it had stopped.
    events_lost: u64,
    /// How often it has stopped.
    gaps: u64,
}

/// What became of requests since the start.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Counts)]
pub(super) struct CountsBody {
    /// They were granted a slot.
    granted: u64,
    /// They were refused.
    rejected: u64,
    /// They waited too long.
    expired: u64,
    /// Their callers left while they waited.
    left: u64,
    /// They ended, and what they used is known.
    settled: u64,
    /// They failed in flight.
    failed: u64,
}

/// All pools.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PoolList)]
pub(super) struct PoolList {
    /// The pools, by name.
    items: Vec<PoolBody>,
}

/// A flow of a pool.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Flow)]
pub(super) struct FlowBody {
    /// By what it is named.
    by: FlowBy,
    /// Its name; a key's id.
    flow: String,
}

/// A flow to hold or resume.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FlowRef)]
pub(super) struct FlowRef {
    /// By what it is named.
    by: FlowBy,
    /// Its name; a key's id. It need not have sent anything yet, but a group, tenant or key that is held must exist.
    #[schema(min_length = 1, max_length = 256)]
    flow: String,
}

/// What a flow was told.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = FlowState)]
pub(super) struct FlowState {
    /// The pool.
    pool: String,
    /// By what the flow is named.
    by: FlowBy,
    /// Its name.
    flow: String,
    /// Whether it is held.
    held: bool,
}

/// By what flows are named.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FlowBy {
    Class,
    Tenant,
    Group,
    Key,
    Agent,
    Project,
    Session,
}

impl From<FlowBy> for Attribute {
    fn from(by: FlowBy) -> Self {
        match by {
            FlowBy::Class => Self::Class,
            FlowBy::Tenant => Self::Tenant,
            FlowBy::Group => Self::Group,
            FlowBy::Key => Self::Key,
            FlowBy::Agent => Self::Agent,
            FlowBy::Project => Self::Project,
            FlowBy::Session => Self::Session,
        }
    }
}

impl From<Attribute> for FlowBy {
    fn from(by: Attribute) -> Self {
        match by {
            Attribute::Class => Self::Class,
            Attribute::Tenant => Self::Tenant,
            Attribute::Group => Self::Group,
            Attribute::Key => Self::Key,
            Attribute::Agent => Self::Agent,
            Attribute::Project => Self::Project,
            Attribute::Session => Self::Session,
        }
    }
}

/// Lists pools with their workers.
#[utoipa::path(
    get, path = "/api/v1/pools", tag = "operation",
    responses((status = 200, description = "The pools", body = PoolList)),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    _: Admin,
) -> Result<Json<PoolList>, ApiError> {
    let mut items = Vec::new();
    for pool in app.pools.all() {
        items.push(body(&app, &pool).await?);
    }
    Ok(Json(PoolList { items }))
}

/// Shows a pool with its workers.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}", tag = "operation",
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "The pool", body = PoolBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    _: Admin,
    Named(name): Named,
) -> Result<Json<PoolBody>, ApiError> {
    body(&app, &*named(&app, &name)?).await.map(Json)
}

/// Stops a flow from getting slots until it is resumed. What is in flight goes on; what comes waits.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/hold", tag = "operation", request_body = FlowRef,
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "It is held", body = FlowState)),
)]
pub(super) async fn hold(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(name): Named,
    Body(flow): Body<FlowRef>,
) -> Result<Json<FlowState>, ApiError> {
    set_held(&app, &admin, name, flow, true).await
}

/// Lets a held flow go on.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/resume", tag = "operation", request_body = FlowRef,
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "It goes on", body = FlowState)),
)]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    admin: Admin,
    Named(name): Named,
    Body(flow): Body<FlowRef>,
) -> Result<Json<FlowState>, ApiError> {
    set_held(&app, &admin, name, flow, false).await
}

async fn set_held(
    app: &App,
    admin: &Admin,
    pool: String,
    FlowRef { by, flow }: FlowRef,
    held: bool,
) -> Result<Json<FlowState>, ApiError> {
    if !(1..=256).contains(&flow.chars().count()) {
        let message = "flow must be 1 to 256 characters long";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(ApiError::new(status, "invalid_value", message).in_field("flow"));
    }
    let handle = named(app, &pool)?;
    if held {
        known(app, by, &flow)?;
    }
    let action = if held { "pool.hold" } else { "pool.resume" };
    let after = serde_json::json!({ "by": by, "flow": flow });
    change(app, admin, Change::Note { action, subject: pool.clone(), after }).await?;
    let done = match held {
        true => handle.gate.hold(by.into(), &flow).await,
        false => handle.gate.resume(by.into(), &flow).await,
    };
    done.map_err(|error| match error {
        ChangeError::Closed(_) => Unavailable(handle.name.clone()).into(),
        ChangeError::Invalid { field, problem } => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            ApiError::new(status, "invalid_value", format!("{field}: {problem}")).in_field(field)
        }
    })?;
    tracing::info!(
        actor = admin.actor,
        pool,
        by = Attribute::from(by).name(),
        flow,
        held,
        "a flow was held or resumed"
    );
    Ok(Json(FlowState { pool, by, flow, held }))
}

/// Whoever holds a name that nobody has would believe to have stopped somebody. Agents, sessions and classes are named by
/// those who ask.
fn known(app: &App, by: FlowBy, flow: &str) -> Result<(), ApiError> {
    let directory = app.identity.directory();
    let (what, is_known) = match Attribute::from(by) {
        Attribute::Group => ("group", directory.groups.iter().any(|group| group.name == flow)),
        Attribute::Tenant => ("tenant", directory.tenants.iter().any(|tenant| tenant.name == flow)),
        Attribute::Key => ("key", directory.keys.iter().any(|key| key.id == flow)),
        _ => return Ok(()),
    };
    if is_known { Ok(()) } else { Err(ApiError::not_found(what, flow)) }
}

/// The pool of that name.
pub(super) fn named(app: &App, name: &str) -> Result<Arc<PoolHandle>, ApiError> {
    app.pools.named(name).ok_or_else(|| ApiError::not_found("pool", name))
}

async fn body(app: &App, pool: &PoolHandle) -> Result<PoolBody, ApiError> {
    let closed = |_: Closed| ApiError::from(Unavailable(pool.name.clone()));
    let live = pool.gate.live().await.map_err(closed)?;
    let sight = app.control.sights.of(pool).await?;
    let config = pool.config();
    let held = sight.snapshot.holds.iter();
    let (status, error) = match live.journal.status {
        JournalStatus::Off => ("off", None),
        JournalStatus::Writing => ("writing", None),
        JournalStatus::Stopped { error } => ("stopped", Some(error)),
    };
    Ok(PoolBody {
        name: pool.name.to_string(),
        models: config.models.iter().map(|model| model.name.clone()).collect(),
        algorithm: algorithm(&sight.snapshot.policy),
        capacity: live.capacity,
        in_flight: live.in_flight,
        queued: live.waiting,
        queued_max: config.max_queue,
        queue_timeout_ms: u64::try_from(config.queue_timeout.as_millis()).unwrap_or(u64::MAX),
        draining: live.draining,
        held: held.map(|(by, flow)| FlowBody { by: (*by).into(), flow: (**flow).into() }).collect(),
        workers: workers(&sight.snapshot, pool),
        journal: JournalBody {
            status,
            error,
            events_lost: live.journal.events_lost,
            gaps: live.journal.gaps,
        },
        counts: CountsBody {
            granted: live.counts.granted,
            rejected: live.counts.rejected,
            expired: live.counts.expired,
            left: live.counts.left,
            settled: live.counts.settled,
            failed: live.counts.failed,
        },
    })
}

/// The workers of a pool.
pub(super) async fn worker_bodies(
    app: &App,
    pool: &PoolHandle,
) -> Result<Vec<WorkerBody>, ApiError> {
    let sight = app.control.sights.of(pool).await?;
    Ok(workers(&sight.snapshot, pool))
}
