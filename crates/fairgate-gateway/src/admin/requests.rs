//! Requests: what waits and what is in flight, and where one of them is.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fairgate_core::attribute::Attribute;
use fairgate_core::explain::{Ahead, Readiness, Waiting, Whereabouts};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_store::{LedgerQuery, UnixMicros};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::attempts::AttemptBody;
use super::auth::Viewer;
use super::moment;
use super::page::page_length;
use super::path::Named;
use super::pools::named;
use super::query::{Filter, Params};
use super::story;
use crate::app::App;
use crate::forward::unix_now;
use crate::live::{ServiceView, Sight, Unavailable};
use crate::pools::PoolHandle;

/// How long it may take to work out where a request is.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows of one request that are shown.
const ROWS_SHOWN: u32 = 100;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RequestState {
    /// It waits for a slot.
    Waiting,
    /// It has one.
    InFlight,
}

/// A request that waits or is in flight.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Request)]
pub(super) struct RequestBody {
    /// Its id.
    id: String,
    /// Its pool.
    pool: String,
    /// `waiting` or `in_flight`.
    state: RequestState,
    /// The caller's group.
    group: Option<String>,
    /// The caller's tenant.
    tenant: Option<String>,
    /// The caller's key id.
    key: Option<String>,
    /// The project of the caller's task.
    project: Option<String>,
    /// The policy class.
    class: Option<String>,
    /// The agent that the caller named.
    agent: Option<String>,
    /// The session that the caller named.
    session: Option<String>,
    /// Higher goes first within its queue: what the request asked for, or more where it is tried again.
    priority: i64,
    /// The worker that it asked for, as `name` or `name/rank`; null where it did not.
    pin: Option<String>,
    /// The taints that its worker must have.
    requires: Vec<String>,
    /// What it is expected to use, in tokens.
    cost_tokens: u64,
    /// When it was submitted to its pool.
    #[schema(format = DateTime)]
    submitted_at: String,
    /// How long it waits, or waited, in microseconds.
    waited_us: u64,
    /// For how long it has been in flight, in microseconds; null where it waits.
    in_flight_us: Option<u64>,
    /// The worker it runs on; null where it waits, or its pool has no workers.
    worker: Option<String>,
}

/// What waits and what is in flight, in order of arrival in each pool.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = RequestList)]
pub(super) struct RequestList {
    /// The requests.
    items: Vec<RequestBody>,
    /// How many more there are.
    omitted: u64,
}

/// Where a request is, and why.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = RequestDetail)]
pub(super) struct RequestDetail {
    /// Its id.
    id: String,
    /// `waiting`, `in_flight` or `ended`.
    state: &'static str,
    /// The request, where it waits or is in flight.
    request: Option<RequestBody>,
    /// What it waits for, where it waits.
    waiting: Option<WaitingBody>,
    /// The same in words.
    story: Vec<String>,
    /// Its rows in the ledger, where it has ended or was tried before.
    attempts: Vec<AttemptBody>,
}

/// What a request waits for.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Waiting)]
pub(super) struct WaitingBody {
    /// How many grants would come before its own if nothing else arrived; null where it would never be granted as
    /// things are.
    grants_ahead: Option<u64>,
    /// How many requests stand before it in its own queue.
    ahead_in_queue: u64,
    /// What would be granted before it, by flow.
    ahead: Vec<AheadBody>,
    /// The flows it is in, from the root down.
    levels: Vec<LevelBody>,
}

/// What goes before a request in one flow.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Ahead)]
pub(super) struct AheadBody {
    /// The flow, from the root down; other tenants' are not named to a tenant.
    path: Vec<String>,
    /// How many requests.
    requests: u64,
    /// Their costs together, in tokens.
    tokens: u64,
}

/// One level of a waiting request's path.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Level)]
pub(super) struct LevelBody {
    /// By what flows are named here.
    by: &'static str,
    /// The flow.
    flow: String,
    /// `ready`, `held`, `at_cap` or `blocked`.
    readiness: &'static str,
    /// How many requests wait in the flow.
    waiting: u32,
    /// How many of its requests are in flight.
    in_flight: u32,
    /// What the flow was served beside what it was due.
    #[serde(flatten)]
    service: ServiceView,
}

/// Which requests.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Query {
    /// In this pool only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<Filter>,
    /// Of this tenant only.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<Filter>,
    /// Only those that are so.
    #[param(nullable = false)]
    state: Option<RequestState>,
    /// At most this many (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Lists what waits and what is in flight, in order of arrival. A tenant's key sees that tenant's.
#[utoipa::path(
    get, path = "/api/v1/requests", tag = "tenants", params(Query), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "The requests", body = RequestList),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Params(query): Params<Query>,
) -> Result<Json<RequestList>, ApiError> {
    let limit = page_length(query.limit)? as usize;
    let pools = match &query.pool {
        Some(pool) => vec![named(&app, &pool.0)?],
        None => app.pools.all(),
    };
    let mut list = RequestList { items: Vec::new(), omitted: 0 };
    for pool in pools {
        let sight = app.control.sights.of(&pool).await?;
        for request in sight.snapshot.requests.iter().filter(|each| wanted(&viewer, &query, each)) {
            match list.items.len() < limit {
                true => list.items.push(body(&pool, &sight, request)),
                false => list.omitted += 1,
            }
        }
    }
    Ok(Json(list))
}

fn wanted(viewer: &Viewer, query: &Query, request: &RequestSnapshot) -> bool {
    let tenant = request.attributes.get(Attribute::Tenant).unwrap_or_default();
    let state = state_of(request);
    viewer.may_see(tenant)
        && query.tenant.as_ref().is_none_or(|wanted| wanted.is(tenant))
        && query.state.is_none_or(|wanted| wanted == state)
}

fn state_of(request: &RequestSnapshot) -> RequestState {
    match request.flight.is_some() {
        true => RequestState::InFlight,
        false => RequestState::Waiting,
    }
}

fn body(pool: &PoolHandle, sight: &Sight, request: &RequestSnapshot) -> RequestBody {
    let of = |by| request.attributes.get(by).map(str::to_owned);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let age = micros(sight.since(request.at));
    let flight = request.flight.as_ref();
    let in_flight_us = flight.map(|flight| micros(sight.since(flight.granted_at)));
    let worker = flight.and_then(|flight| flight.place).and_then(|(number, _)| {
        let workers = &sight.snapshot.workers.as_ref()?.list;
        let worker = workers.iter().find(|worker| worker.number == number)?;
        Some(worker.said.name.to_string())
    });
    let submitted = UnixMicros(unix_now().0.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX)));
    RequestBody {
        id: request.id.to_string(),
        pool: pool.name.to_string(),
        state: state_of(request),
        group: of(Attribute::Group),
        tenant: of(Attribute::Tenant),
        key: of(Attribute::Key),
        project: of(Attribute::Project),
        class: of(Attribute::Class),
        agent: of(Attribute::Agent),
        session: of(Attribute::Session),
        priority: request.priority,
        pin: request.pin.as_ref().map(|pin| match pin.rank {
            Some(rank) => format!("{}/{rank}", pin.worker),
            None => pin.worker.to_string(),
        }),
        requires: request.requires.iter().map(ToString::to_string).collect(),
        cost_tokens: request.cost.0,
        submitted_at: moment::shown(submitted),
        waited_us: age.saturating_sub(in_flight_us.unwrap_or(0)),
        in_flight_us,
        worker,
    }
}

/// Shows where a request is, what is ahead of it and why; or, where it has ended, its rows in the ledger. A tenant's key
/// sees that tenant's.
#[utoipa::path(
    get, path = "/api/v1/requests/{id}", tag = "tenants", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The request's id, as in the header x-fairgate-request-id of its answer")),
    responses(
        (status = 200, description = "Where it is", body = RequestDetail),
        (status = 429, description = "Too many ask where requests are", body = super::ErrorBody),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    viewer: Viewer,
    Named(id): Named,
) -> Result<Json<RequestDetail>, ApiError> {
    let Ok(_one_of_few) = app.control.searches.try_acquire() else {
        let message = "too many ask where requests are; try again in a second";
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_searches", message);
        return Err(error.retry_after(Duration::from_secs(1)));
    };
    let rows = app.store.attempts(LedgerQuery {
        request: Some(id.clone()),
        limit: ROWS_SHOWN,
        ..LedgerQuery::default()
    });
    let rows = rows.await?.into_iter().filter(|row| viewer.may_see(&row.tenant));
    let attempts: Vec<AttemptBody> = rows.map(AttemptBody::from).collect();
    for pool in app.pools.all() {
        if let Some(mut found) = look_in(&app, &pool, &viewer, &id).await? {
            found.attempts = attempts;
            return Ok(Json(found));
        }
    }
    if attempts.is_empty() {
        return Err(ApiError::not_found("request", &id));
    }
    let story = vec!["it has ended; its rows in the ledger tell how".to_owned()];
    Ok(Json(RequestDetail { id, state: "ended", request: None, waiting: None, story, attempts }))
}

/// What the pool says of a request that the viewer may see.
async fn look_in(
    app: &App,
    pool: &PoolHandle,
    viewer: &Viewer,
    id: &str,
) -> Result<Option<RequestDetail>, ApiError> {
    let asked = Instant::now();
    let unavailable = || Unavailable(pool.name.clone());
    let answer = timeout(PATIENCE, pool.gate.whereabouts(id)).await.map_err(|_| unavailable())?;
    let Some(whereabouts) = answer.map_err(|_| unavailable())? else { return Ok(None) };
    // Whose it is stands in the snapshot. It may have ended meanwhile: then its row tells.
    let sight = app.control.sights.newer_than(pool, asked).await?;
    let Some(request) = sight.request(id) else { return Ok(None) };
    if !viewer.may_see(request.attributes.get(Attribute::Tenant).unwrap_or_default()) {
        return Ok(None);
    }
    let detail = RequestDetail {
        id: id.to_owned(),
        state: "in_flight",
        request: Some(body(pool, &sight, request)),
        waiting: None,
        story: Vec::new(),
        attempts: Vec::new(),
    };
    Ok(Some(match whereabouts {
        Whereabouts::Waiting(waiting) => {
            let ahead = ahead_for(viewer, &waiting);
            let services = services(&sight, &waiting);
            let story = story::of_waiting(&waiting, &ahead, &services);
            let waiting = Some(waiting_body(&waiting, &ahead, &services));
            RequestDetail { state: "waiting", waiting, story, ..detail }
        }
        Whereabouts::InFlight { place, .. } => {
            let story = match place {
                Some(place) => format!("it has its slot, on worker {}", place.worker),
                None => "it has its slot".to_owned(),
            };
            RequestDetail { story: vec![story], ..detail }
        }
    }))
}

/// What is ahead, as this viewer may see it: a tenant sees its own flows, and what others have ahead as one.
fn ahead_for(viewer: &Viewer, waiting: &Waiting) -> Vec<Ahead> {
    let Viewer::Tenant(caller) = viewer else { return waiting.ahead.clone() };
    let depth = waiting.levels.iter().position(|level| level.by == Attribute::Tenant);
    let is_own = |ahead: &Ahead| {
        depth.and_then(|depth| ahead.path.get(depth)).is_some_and(|name| *name == caller.tenant)
    };
    let (mut seen, others): (Vec<Ahead>, Vec<Ahead>) =
        waiting.ahead.iter().cloned().partition(is_own);
    if !others.is_empty() {
        seen.push(Ahead {
            path: vec!["others".into()],
            requests: others.iter().map(|ahead| ahead.requests).sum(),
            tokens: others.iter().map(|ahead| ahead.tokens).sum(),
        });
    }
    seen
}

/// What the flows around a request were served, from the root down.
fn services(sight: &Sight, waiting: &Waiting) -> Vec<ServiceView> {
    let names: Vec<&str> = waiting.levels.iter().map(|level| &*level.flow).collect();
    let of_level = |depth: usize| {
        let around = names[..depth].iter().copied();
        let mut nodes = sight.fairness.iter();
        let node = nodes.find(|node| node.path.iter().map(|name| &**name).eq(around.clone()))?;
        node.flows.iter().find(|flow| *flow.name == *names[depth])
    };
    // A flow that came meanwhile, or was forgotten, has been served nothing that counts.
    (0..names.len()).map(|depth| of_level(depth).map(ServiceView::of).unwrap_or_default()).collect()
}

fn waiting_body(waiting: &Waiting, ahead: &[Ahead], services: &[ServiceView]) -> WaitingBody {
    let levels = waiting.levels.iter().zip(services).map(|(level, service)| LevelBody {
        by: level.by.name(),
        flow: level.flow.to_string(),
        readiness: match level.readiness {
            Readiness::Ready => "ready",
            Readiness::Held => "held",
            Readiness::AtCap => "at_cap",
            Readiness::Blocked => "blocked",
        },
        waiting: level.waiting,
        in_flight: level.in_flight,
        service: *service,
    });
    let ahead = ahead.iter().map(|ahead| AheadBody {
        path: ahead.path.iter().map(ToString::to_string).collect(),
        requests: ahead.requests,
        tokens: u64::try_from(ahead.tokens).unwrap_or(u64::MAX),
    });
    WaitingBody {
        grants_ahead: waiting.place,
        ahead_in_queue: waiting.ahead_in_queue,
        ahead: ahead.collect(),
        levels: levels.collect(),
    }
}
