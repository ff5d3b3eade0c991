//! Handlers that show pools, and that hold and resume flows of a pool.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::WorkerBody;
use fairgate_api::admin::{
    ChangedCapBody, ChangedWeightBody, CountsBody, FlowAttribute, FlowBody, FlowCapBody,
    FlowRefBody, FlowWeightBody, HeldFlowBody, JournalBody, PoolBody, PoolList,
};
use fairgate_core::attribute::Attribute;
use fairgate_core::units::Weight;
use fairgate_proxy::pools::{PoolHandle, has_caps, is_band, policy_classes, shares_by};
use fairgate_runtime::{GateChangeError, GateClosedError, JournalStatus};
use fairgate_store::DirectoryChange;
use http::StatusCode;
use tokio::time::Instant;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::change::change;
use super::flow_settings::FlowSettings;
use super::path::PathName;
use crate::control_plane::ControlPlane;
use crate::live::{PoolUnavailableError, describe_policy, workers};

/// Largest weight that an operator may set for a flow.
const FLOW_WEIGHT_MAX: u64 = 1_000_000;

/// Lists the pools with their workers.
#[utoipa::path(
    get, path = "/api/v1/pools", tag = "operation",
    responses((status = 200, description = "The pools", body = PoolList)),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
) -> Result<Json<PoolList>, ApiError> {
    let mut items = Vec::new();
    for pool in app.data.pools.all() {
        items.push(body(&app, &pool).await?);
    }
    Ok(Json(PoolList { items }))
}

/// Shows one pool with its workers.
#[utoipa::path(
    get, path = "/api/v1/pools/{pool}", tag = "operation",
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "The pool", body = PoolBody)),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<PoolBody>, ApiError> {
    body(&app, &*pool_by_name(&app, &name)?).await.map(Json)
}

/// Holds a flow, so that it gets no slots until it is resumed.
///
/// Requests in flight continue; new ones are queued.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/hold", tag = "operation", request_body = FlowRefBody,
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "It is held", body = HeldFlowBody)),
)]
pub(super) async fn hold(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
    JsonBody(flow): JsonBody<FlowRefBody>,
) -> Result<Json<HeldFlowBody>, ApiError> {
    set_held(&app, &admin, name, flow, true).await
}

/// Resumes a held flow, so that it gets slots again.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/resume", tag = "operation", request_body = FlowRefBody,
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, description = "It goes on", body = HeldFlowBody)),
)]
pub(super) async fn resume(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
    JsonBody(flow): JsonBody<FlowRefBody>,
) -> Result<Json<HeldFlowBody>, ApiError> {
    set_held(&app, &admin, name, flow, false).await
}

/// Changes the weight of a flow at once.
///
/// Scores, credits and queues stay as they are. The weight stays until it is changed again, or until a reload changes
/// the pool's policy.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/weight", tag = "operation", request_body = FlowWeightBody,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "It has this weight", body = ChangedWeightBody),
        (status = 409, description = "The policy has no such flows, or their weight is set elsewhere", body = super::ErrorBody),
    ),
)]
pub(super) async fn set_weight(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(pool): PathName,
    JsonBody(FlowWeightBody { by, flow, weight }): JsonBody<FlowWeightBody>,
) -> Result<Json<ChangedWeightBody>, ApiError> {
    let handle = pool_by_name(&app, &pool)?;
    let JsonWholeNumber(weight) = weight;
    let elsewhere = match by {
        FlowAttribute::Group => Some("the group: PATCH /api/v1/groups/NAME"),
        FlowAttribute::Tenant => Some("the tenant: PATCH /api/v1/tenants/NAME"),
        FlowAttribute::Key => Some("the key: PATCH /api/v1/keys/ID"),
        FlowAttribute::Project => Some("the project: PATCH /api/v1/fleet/projects/ID"),
        FlowAttribute::Class | FlowAttribute::Agent | FlowAttribute::Session => None,
    };
    check_changed_flow(&handle, by, &flow, "weight", elsewhere)?;
    if is_band(&handle.config().policy, by.into(), &flow) {
        let message = "a class of bands has no weight: strict priority decides";
        return Err(invalid("flow", message.to_owned()));
    }
    let valid = Weight::new(weight).ok().filter(|_| weight <= FLOW_WEIGHT_MAX);
    let Some(valid) = valid else {
        return Err(invalid("weight", format!("must be 1 to {FLOW_WEIGHT_MAX}")));
    };
    let _one_at_a_time = app.pool_changes.lock().await;
    let before = settings_now(&app, &handle, by, &flow).await?.weight;
    let entry =
        |weight: Option<u64>| serde_json::json!({ "by": by, "flow": flow, "weight": weight });
    let states = [entry(before), entry(Some(weight))];
    note_change(&app, &admin, "pool.weight", &pool, states).await?;
    handle.gate.set_weight(by.into(), &flow, valid).await.map_err(|e| refused(&handle, e))?;
    tracing::info!(
        actor = admin.actor,
        pool,
        by = Attribute::from(by).name(),
        flow,
        weight,
        "a weight was set"
    );
    Ok(Json(ChangedWeightBody { pool, by, flow, weight }))
}

/// Changes the cap of a flow at once, or removes it.
///
/// Scores, credits and queues stay as they are. The cap stays until it is changed again, or until a reload changes the
/// pool's policy.
#[utoipa::path(
    post, path = "/api/v1/pools/{pool}/cap", tag = "operation", request_body = FlowCapBody,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "It has this cap", body = ChangedCapBody),
        (status = 409, description = "The policy has no such flows, or their cap is set elsewhere", body = super::ErrorBody),
    ),
)]
pub(super) async fn set_cap(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(pool): PathName,
    JsonBody(FlowCapBody { by, flow, slots }): JsonBody<FlowCapBody>,
) -> Result<Json<ChangedCapBody>, ApiError> {
    let handle = pool_by_name(&app, &pool)?;
    let slots = slots.map(|JsonWholeNumber(slots)| slots);
    let elsewhere = match by {
        FlowAttribute::Group => Some("the configuration file: caps of the policy"),
        FlowAttribute::Tenant => Some("the tenant: its limit in_flight"),
        FlowAttribute::Key => Some("the key: its limit in_flight"),
        FlowAttribute::Class
        | FlowAttribute::Project
        | FlowAttribute::Agent
        | FlowAttribute::Session => None,
    };
    check_changed_flow(&handle, by, &flow, "cap", elsewhere)?;
    if !has_caps(&handle.config().policy, by.into()) {
        let message = format!(
            "the policy of pool {pool:?} has no share or bands node by {}, so the cap would hold nothing back",
            Attribute::from(by).name()
        );
        return Err(no_effect(message));
    }
    let _one_at_a_time = app.pool_changes.lock().await;
    let before = settings_now(&app, &handle, by, &flow).await?.cap;
    let entry = |slots: Option<u64>| serde_json::json!({ "by": by, "flow": flow, "slots": slots });
    note_change(&app, &admin, "pool.cap", &pool, [entry(before), entry(slots)]).await?;
    handle.gate.set_cap(by.into(), &flow, slots).await.map_err(|e| refused(&handle, e))?;
    tracing::info!(
        actor = admin.actor,
        pool,
        by = Attribute::from(by).name(),
        flow,
        slots,
        "a cap was set"
    );
    Ok(Json(ChangedCapBody { pool, by, flow, slots }))
}

/// Checks that a change of this flow has an effect. It has no effect if the pool's policy has no
/// node by the attribute, or if the setting is kept in another place, which `elsewhere` names.
fn check_changed_flow(
    pool: &PoolHandle,
    by: FlowAttribute,
    flow: &str,
    what: &str,
    elsewhere: Option<&str>,
) -> Result<(), ApiError> {
    check_flow_length(flow)?;
    let (name, policy) = (Attribute::from(by).name(), &pool.config().policy);
    if let Some(elsewhere) = elsewhere {
        return Err(no_effect(format!("the {what} of a {name} is set on {elsewhere}")));
    }
    if !shares_by(policy, by.into()) {
        let message = format!("the policy of pool {:?} has no node by {name}", &*pool.name);
        return Err(no_effect(message));
    }
    if let FlowAttribute::Class = by
        && !policy_classes(policy).iter().any(|class| **class == *flow)
    {
        return Err(ApiError::not_found("class", flow));
    }
    Ok(())
}

/// Returns the error for a change that has no effect, because of the pool's policy or because the setting is kept in
/// another place.
fn no_effect(message: String) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "no_effect", message).in_field("by")
}

fn check_flow_length(flow: &str) -> Result<(), ApiError> {
    match flow.chars().count() {
        1..=256 => Ok(()),
        _ => Err(invalid("flow", "flow must be 1 to 256 characters long".to_owned())),
    }
}

fn invalid(field: &'static str, message: String) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message).in_field(field)
}

pub(super) fn refused(pool: &PoolHandle, error: GateChangeError) -> ApiError {
    match error {
        GateChangeError::Closed(_) => PoolUnavailableError(pool.name.clone()).into(),
        GateChangeError::Invalid { field, problem } => {
            invalid(field, format!("{field}: {problem}"))
        }
    }
}

/// Returns the settings of a flow as they are at this moment.
pub(super) async fn settings_now(
    app: &ControlPlane,
    pool: &PoolHandle,
    by: FlowAttribute,
    flow: &str,
) -> Result<FlowSettings, ApiError> {
    let newest = app.snapshots.newer_than(pool, Instant::now()).await?;
    Ok(FlowSettings::of_flow(&newest.snapshot, by.into(), flow))
}

/// Writes a change of a pool to the audit trail, with the states before and after it.
pub(super) async fn note_change(
    app: &ControlPlane,
    admin: &AdminCaller,
    action: &'static str,
    pool: &str,
    [before, after]: [serde_json::Value; 2],
) -> Result<(), ApiError> {
    let (subject, before) = (pool.to_owned(), Some(before));
    let note = DirectoryChange::Note { action, subject, before, after };
    change(app, admin, note).await.map(drop)
}

async fn set_held(
    app: &ControlPlane,
    admin: &AdminCaller,
    pool: String,
    FlowRefBody { by, flow }: FlowRefBody,
    held: bool,
) -> Result<Json<HeldFlowBody>, ApiError> {
    check_flow_length(&flow)?;
    let handle = pool_by_name(app, &pool)?;
    if held {
        check_flow_exists(app, by, &flow)?;
    }
    let action = if held { "pool.hold" } else { "pool.resume" };
    let _one_at_a_time = app.pool_changes.lock().await;
    let before = settings_now(app, &handle, by, &flow).await?.held;
    let entry = |held: bool| serde_json::json!({ "by": by, "flow": flow, "held": held });
    note_change(app, admin, action, &pool, [entry(before), entry(held)]).await?;
    let done = match held {
        true => handle.gate.hold(by.into(), &flow).await,
        false => handle.gate.resume(by.into(), &flow).await,
    };
    done.map_err(|error| refused(&handle, error))?;
    tracing::info!(
        actor = admin.actor,
        pool,
        by = Attribute::from(by).name(),
        flow,
        held,
        "a flow was held or resumed"
    );
    Ok(Json(HeldFlowBody { pool, by, flow, held }))
}

/// Returns an error for a group, tenant or key that does not exist. Without this check, holding a misspelt name would
/// seem to work and have no effect. Agents, sessions and classes are named by clients, so any name is accepted for
/// them.
fn check_flow_exists(app: &ControlPlane, by: FlowAttribute, flow: &str) -> Result<(), ApiError> {
    let directory = app.data.identity.directory();
    let (what, is_known) = match Attribute::from(by) {
        Attribute::Group => ("group", directory.groups.iter().any(|group| group.name == flow)),
        Attribute::Tenant => ("tenant", directory.tenants.iter().any(|tenant| tenant.name == flow)),
        Attribute::Key => ("key", directory.keys.iter().any(|key| key.id == flow)),
        _ => return Ok(()),
    };
    if is_known { Ok(()) } else { Err(ApiError::not_found(what, flow)) }
}

/// Returns the pool of that name, or a 404 error.
pub(super) fn pool_by_name(app: &ControlPlane, name: &str) -> Result<Arc<PoolHandle>, ApiError> {
    app.data.pools.named(name).ok_or_else(|| ApiError::not_found("pool", name))
}

async fn body(app: &ControlPlane, pool: &PoolHandle) -> Result<PoolBody, ApiError> {
    let closed = |_: GateClosedError| ApiError::from(PoolUnavailableError(pool.name.clone()));
    let live = pool.gate.status().await.map_err(closed)?;
    let recent = app.flows.recent(pool).await?;
    let config = pool.config();
    let held = recent.state().holds.iter();
    let (status, error) = match live.journal.status {
        JournalStatus::Off => ("off", None),
        JournalStatus::Writing => ("writing", None),
        JournalStatus::Stopped { error } => ("stopped", Some(error)),
    };
    Ok(PoolBody {
        name: pool.name.to_string(),
        models: config.models.iter().map(|model| model.name.clone()).collect(),
        unit: config.cost.unit.name().to_owned(),
        algorithm: describe_policy(&recent.state().policy),
        capacity: live.capacity,
        in_flight: live.in_flight,
        queued: live.waiting,
        queued_max: config.max_queue,
        queue_timeout_ms: u64::try_from(config.queue_timeout.as_millis()).unwrap_or(u64::MAX),
        draining: live.draining,
        held: held.map(|(by, flow)| FlowBody { by: (*by).into(), flow: (**flow).into() }).collect(),
        workers: workers(recent.state(), pool),
        journal: JournalBody {
            status: status.to_owned(),
            error,
            events_lost: live.journal.events_lost,
            gaps: live.journal.gaps,
        },
        counts: CountsBody {
            granted: live.counts.granted,
            rejected: live.counts.rejected,
            expired: live.counts.expired,
            left: live.counts.abandoned,
            settled: live.counts.settled,
            failed: live.counts.failed,
        },
    })
}

/// Returns the workers of a pool, as JSON bodies.
pub(super) async fn worker_bodies(
    app: &ControlPlane,
    pool: &PoolHandle,
) -> Result<Vec<WorkerBody>, ApiError> {
    let recent = app.flows.recent(pool).await?;
    Ok(workers(recent.state(), pool))
}
