//! Handlers for requests that are queued or in flight, and for the history of one request.

use super::attempts::{attempt_body, for_tenant};
use crate::live::{service_of, without_tokens};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use fairgate_api::WeightNumber;
use fairgate_api::admin::AttemptBody;
use fairgate_api::admin::ServiceView;
use fairgate_api::admin::{
    AheadBody, LevelBody, RequestBody, RequestDetail, RequestList, RequestState, WaitingBody,
};
use fairgate_config::CostUnit;
use fairgate_core::attribute::Attribute;
use fairgate_core::explain::{RequestLocation, RequestsAhead, WaitingRequest};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_journal::explain_text;
use fairgate_proxy::pools::PoolHandle;
use fairgate_store::{AttemptRow, LedgerQuery, UnixMicros};
use fairgate_time::wall_clock;
use http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use utoipa::IntoParams;

use super::api_error::ApiError;
use super::auth::Viewer;
use super::explanation::{self, ShownTokens};
use super::page::page_length;
use super::path::PathName;
use super::pools::pool_by_name;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;
use crate::live::{PoolSnapshot, PoolUnavailableError};

/// Time limit for a pool to find a request.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of ledger rows that are shown for one request.
const ROWS_SHOWN: u32 = 100;

/// Filter for the list of requests.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RequestsQuery {
    /// Returns only requests in this pool.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<NameFilter>,
    /// Returns only requests of this tenant.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    tenant: Option<NameFilter>,
    /// Returns only requests in this state.
    #[param(nullable = false)]
    state: Option<RequestState>,
    /// Maximum number of requests, 1 to 1000 (default 100).
    #[param(minimum = 1, maximum = 1000, nullable = false)]
    limit: Option<u32>,
}

/// Lists the requests that are queued or in flight, in order of arrival in each pool.
///
/// A tenant's key sees only that tenant's requests.
#[utoipa::path(
    get, path = "/api/v1/requests", tag = "tenants", params(RequestsQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "The requests", body = RequestList),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<RequestsQuery>,
) -> Result<Json<RequestList>, ApiError> {
    let limit = page_length(query.limit)? as usize;
    let pools = match &query.pool {
        Some(pool) => vec![pool_by_name(&app, &pool.0)?],
        None => app.data.pools.all(),
    };
    let mut list = RequestList { items: Vec::new(), omitted: 0 };
    for pool in pools {
        let recent = app.snapshots.recent(&pool).await?;
        let waits = recent.expected_waits_ms();
        let requests = recent.snapshot.requests.iter().zip(waits);
        for (request, wait) in requests.filter(|(each, _)| wanted(&viewer, &query, each)) {
            if list.items.len() >= limit {
                list.omitted += 1;
            } else if let Some(body) = body_for(&viewer, &pool, &recent, request, wait) {
                list.items.push(body);
            }
        }
    }
    name_tasks(&app, list.items.iter_mut()).await;
    Ok(Json(list))
}

/// Fills in the tasks for which the requests were made. If the database does not answer, the tasks stay null, because
/// the other fields are still useful.
async fn name_tasks(app: &ControlPlane, requests: impl Iterator<Item = &mut RequestBody>) {
    let mut of_projects: Vec<_> = requests.filter(|request| request.project.is_some()).collect();
    if of_projects.is_empty() {
        return;
    }
    let ids = of_projects.iter().map(|request| request.id.clone()).collect();
    let mut tasks = app.fleet.tasks_of_calls(ids).await.unwrap_or_default();
    for request in &mut of_projects {
        request.task = tasks.remove(&request.id);
    }
}

fn wanted(viewer: &Viewer, query: &RequestsQuery, request: &RequestSnapshot) -> bool {
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

/// Returns a request as the viewer may see it. What is cached decides on the cost and the class, so
/// a tenant sees the cost without the cache, and the family of the class. Where tenants share
/// cached prompts, a tenant sees no worker. Returns `None` for a tenant if the cost is no longer
/// known, because the request has ended since the snapshot.
fn body_for(
    viewer: &Viewer,
    pool: &PoolHandle,
    recent: &PoolSnapshot,
    request: &RequestSnapshot,
    expected_wait_ms: Option<u64>,
) -> Option<RequestBody> {
    let body = body(pool, recent, request, expected_wait_ms);
    let setup = pool.setup();
    Some(match viewer {
        Viewer::Admin => body,
        Viewer::Tenant(_) => RequestBody {
            cost: body.cost_uncached?,
            cost_tokens: body.cost_uncached_tokens,
            class: body.class.map(|class| setup.family(&class).map(str::to_owned).unwrap_or(class)),
            worker: body.worker.filter(|_| !setup.shares_cached_prompts()),
            ..body
        },
    })
}

fn body(
    pool: &PoolHandle,
    recent: &PoolSnapshot,
    request: &RequestSnapshot,
    expected_wait_ms: Option<u64>,
) -> RequestBody {
    let of = |by| request.attributes.get(by).map(str::to_owned);
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let age = micros(recent.since(request.at));
    let flight = request.flight.as_ref();
    let in_flight_us = flight.map(|flight| micros(recent.since(flight.granted_at)));
    let worker = flight.and_then(|flight| flight.place).and_then(|(number, _)| {
        let workers = &recent.snapshot.workers.as_ref()?.list;
        let worker = workers.iter().find(|worker| worker.number == number)?;
        Some(worker.settings.name.to_string())
    });
    let submitted =
        UnixMicros(wall_clock::now().0.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX)));
    let unit = pool.setup().unit();
    let cost_uncached = match request.cached.is_empty() {
        false => pool.uncached_costs.cost(&request.id),
        true => Some(request.cost.0),
    };
    RequestBody {
        id: request.id.to_string(),
        pool: pool.name.to_string(),
        state: state_of(request),
        group: of(Attribute::Group),
        tenant: of(Attribute::Tenant),
        key: of(Attribute::Key),
        project: of(Attribute::Project),
        task: None,
        class: of(Attribute::Class),
        agent: of(Attribute::Agent),
        session: of(Attribute::Session),
        priority: request.priority,
        weight: WeightNumber::from_thousandths(request.weight.thousandths().into())
            .filter(|_| pool.setup().has_load_node),
        pin: request.pin.as_ref().map(|pin| match pin.rank {
            Some(rank) => format!("{}/{rank}", pin.worker),
            None => pin.worker.to_string(),
        }),
        requires: request.requires.iter().map(ToString::to_string).collect(),
        unit: unit.name().to_owned(),
        cost: request.cost.0,
        cost_uncached,
        cost_tokens: (unit == CostUnit::Tokens).then_some(request.cost.0),
        cost_uncached_tokens: cost_uncached.filter(|_| unit == CostUnit::Tokens),
        submitted_at: fairgate_time::to_rfc3339(submitted),
        waited_us: age.saturating_sub(in_flight_us.unwrap_or(0)),
        expected_wait_ms,
        in_flight_us,
        worker,
    }
}

/// Shows the state of a request with the requests ahead of it, and the request's rows in the ledger.
///
/// A tenant's key sees only that tenant's requests.
#[utoipa::path(
    get, path = "/api/v1/requests/{id}", tag = "tenants", security(("admin" = []), ("tenant" = [])),
    params(("id" = String, Path, description = "The request's id, as in the header x-fairgate-request-id of its answer")),
    responses(
        (status = 200, description = "Where it is", body = RequestDetail),
        (status = 429, description = "Too many ask where requests are", body = super::ErrorBody),
    ),
)]
pub(super) async fn show(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    PathName(id): PathName,
) -> Result<Json<RequestDetail>, ApiError> {
    let Ok(_one_of_few) = app.searches.try_acquire() else {
        let message = "too many ask where requests are; try again in a second";
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_searches", message);
        return Err(error.retry_after(Duration::from_secs(1)));
    };
    let rows = app.data.store.attempts(LedgerQuery {
        request: Some(id.clone()),
        limit: ROWS_SHOWN,
        ..LedgerQuery::default()
    });
    let rows = rows.await?.into_iter().filter(|row| viewer.may_see(&row.tenant));
    let rows: Vec<AttemptRow> = rows.collect();
    let summary = rows.iter().find(|row| row.last).map_or_else(
        || "It has not ended, and nothing more is known of it now".to_owned(),
        explanation::ended_sentence,
    );
    let shown = |row| match &viewer {
        Viewer::Admin => attempt_body(row),
        Viewer::Tenant(_) => for_tenant(&app, attempt_body(row)),
    };
    let attempts: Vec<AttemptBody> = rows.into_iter().map(shown).collect();
    for pool in app.data.pools.all() {
        if let Some(mut found) = find_in_pool(&app, &pool, &viewer, &id).await? {
            found.attempts = attempts;
            name_tasks(&app, found.request.iter_mut()).await;
            return Ok(Json(found));
        }
    }
    if attempts.is_empty() {
        return Err(ApiError::not_found("request", &id));
    }
    let story = vec!["it has ended; its rows in the ledger tell how".to_owned()];
    Ok(Json(RequestDetail {
        id,
        state: "ended".to_owned(),
        summary,
        expected_wait_ms: None,
        request: None,
        waiting: None,
        story,
        attempts,
    }))
}

/// Returns the pool's description of a request. `None` if the pool does not have the request, or the viewer may not see
/// it.
async fn find_in_pool(
    app: &ControlPlane,
    pool: &PoolHandle,
    viewer: &Viewer,
    id: &str,
) -> Result<Option<RequestDetail>, ApiError> {
    let asked = Instant::now();
    let unavailable = || PoolUnavailableError(pool.name.clone());
    let answer =
        timeout(SEARCH_TIMEOUT, pool.gate.whereabouts(id)).await.map_err(|_| unavailable())?;
    let Some(whereabouts) = answer.map_err(|_| unavailable())? else { return Ok(None) };
    // The snapshot names the tenant. If the request has ended meanwhile, its ledger row is shown instead.
    let recent = app.snapshots.newer_than(pool, asked).await?;
    let Some(request) = recent.request(id) else { return Ok(None) };
    if !viewer.may_see(request.attributes.get(Attribute::Tenant).unwrap_or_default()) {
        return Ok(None);
    }
    let place = match &whereabouts {
        RequestLocation::Waiting(waiting) => waiting.place,
        RequestLocation::InFlight { .. } => None,
    };
    let expected_wait_ms = place.and_then(|place| recent.expected_wait_ms(place.saturating_add(1)));
    let Some(shown) = body_for(viewer, pool, &recent, request, expected_wait_ms) else {
        return Ok(None);
    };
    let detail = RequestDetail {
        id: id.to_owned(),
        state: "in_flight".to_owned(),
        summary: String::new(),
        expected_wait_ms: None,
        request: Some(shown),
        waiting: None,
        story: Vec::new(),
        attempts: Vec::new(),
    };
    Ok(Some(match whereabouts {
        RequestLocation::Waiting(mut waiting) => {
            let ahead = ahead_for(viewer, &waiting);
            let full = explain_text::full_pool_flights(&recent.snapshot);
            if full.is_some() {
                explain_text::set_unblocked(&mut waiting);
            }
            let mut services = services(&recent, &waiting);
            let mut tokens = ShownTokens::All;
            if let Viewer::Tenant(_) = viewer {
                explanation::hide_others(&mut waiting, &mut services);
                let setup = pool.setup();
                let is_in_family = |class: &str| setup.family(class).is_some();
                explanation::hide_buckets(&mut waiting, &mut services, is_in_family);
                if setup.shares_cached_prompts() {
                    tokens = ShownTokens::Hidden;
                    services.iter_mut().for_each(|it| *it = without_tokens(std::mem::take(it)));
                }
            }
            let mut story = explanation::explain_waiting(&waiting, &ahead, &services, tokens);
            let unit = pool.setup().unit();
            let words = match unit {
                CostUnit::Tokens => None,
                CostUnit::WorkerTime => Some(explain_text::WORKER_TIME),
                CostUnit::Money => Some(explain_text::MONEY),
            };
            if let Some(words) = words {
                story.iter_mut().for_each(|told| *told = explain_text::in_unit(told, words));
                services.iter_mut().for_each(ServiceView::clear_token_names);
            }
            story.splice(0..0, full.map(explain_text::full_pool));
            let summary =
                explanation::first_sentence(&waiting, &ahead, full.is_some(), expected_wait_ms);
            let waiting = waiting_body(&waiting, &ahead, &services, expected_wait_ms, tokens, unit);
            RequestDetail {
                state: "waiting".to_owned(),
                summary,
                expected_wait_ms,
                waiting: Some(waiting),
                story,
                ..detail
            }
        }
        RequestLocation::InFlight { place, .. } => {
            let is_shown = detail.request.as_ref().is_some_and(|request| request.worker.is_some());
            let story = match place.filter(|_| is_shown) {
                Some(place) => format!("it has its slot, on worker {}", place.worker),
                None => "it has its slot".to_owned(),
            };
            let summary = explanation::capitalised(&story);
            RequestDetail { summary, story: vec![story], ..detail }
        }
    }))
}

/// Returns the requests ahead of a queued request, as the viewer may see them. A tenant sees its own flows by name, and
/// the flows of all other tenants as one entry.
fn ahead_for(viewer: &Viewer, waiting: &WaitingRequest) -> Vec<RequestsAhead> {
    let Viewer::Tenant(caller) = viewer else { return waiting.ahead.clone() };
    let depth = waiting.levels.iter().position(|level| level.by == Attribute::Tenant);
    let is_own = |ahead: &RequestsAhead| {
        depth.and_then(|depth| ahead.path.get(depth)).is_some_and(|name| *name == caller.tenant)
    };
    let (mut seen, others): (Vec<RequestsAhead>, Vec<RequestsAhead>) =
        waiting.ahead.iter().cloned().partition(is_own);
    if !others.is_empty() {
        seen.push(RequestsAhead {
            path: vec![explanation::OTHERS.into()],
            requests: others.iter().map(|ahead| ahead.requests).sum(),
            tokens: others.iter().map(|ahead| ahead.tokens).sum(),
        });
    }
    seen
}

/// Returns the service of the flows that contain a request, from the root down.
fn services(recent: &PoolSnapshot, waiting: &WaitingRequest) -> Vec<ServiceView> {
    let names: Vec<&str> = waiting.levels.iter().map(|level| &*level.flow).collect();
    let of_level = |depth: usize| {
        let around = names[..depth].iter().copied();
        let mut nodes = recent.fairness.iter();
        let node = nodes.find(|node| node.path.iter().map(|name| &**name).eq(around.clone()))?;
        node.flows.iter().find(|flow| *flow.name == *names[depth])
    };
    // A flow that is newer than the snapshot, or was dropped, has no service to show.
    (0..names.len()).map(|depth| of_level(depth).map(service_of).unwrap_or_default()).collect()
}

fn waiting_body(
    waiting: &WaitingRequest,
    ahead: &[RequestsAhead],
    services: &[ServiceView],
    expected_wait_ms: Option<u64>,
    tokens: ShownTokens,
    unit: CostUnit,
) -> WaitingBody {
    let levels = waiting.levels.iter().zip(services).map(|(level, service)| LevelBody {
        by: level.by.name().to_owned(),
        flow: level.flow.to_string(),
        readiness: level.readiness.name().to_owned(),
        waiting: level.waiting,
        in_flight: level.in_flight,
        service: service.clone(),
    });
    let cost = |ahead: &RequestsAhead| {
        (tokens == ShownTokens::All).then(|| u64::try_from(ahead.tokens).unwrap_or(u64::MAX))
    };
    let ahead = ahead.iter().map(|ahead| AheadBody {
        path: ahead.path.iter().map(ToString::to_string).collect(),
        requests: ahead.requests,
        cost: cost(ahead),
        tokens: cost(ahead).filter(|_| unit == CostUnit::Tokens),
    });
    WaitingBody {
        grants_ahead: waiting.place,
        ahead_in_queue: waiting.ahead_in_queue,
        expected_wait_ms,
        ahead: ahead.collect(),
        levels: levels.collect(),
    }
}
