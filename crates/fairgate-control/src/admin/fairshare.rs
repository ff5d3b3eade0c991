//! Handlers that show the live view once, or as a stream of events.

use crate::live::{
    FlowNowSource, PoolUnavailableError, with_never_seen, with_tiers, with_unit, with_window,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use fairgate_api::admin::{LedgerView, LiveView, PoolView};
use fairgate_proxy::phase::GatewayPhase;
use fairgate_proxy::pools::PoolHandle;
use fairgate_store::Directory;
use fairgate_time::wall_clock;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::pools::pool_by_name;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;

/// Selects the pool of the live view.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LiveQuery {
    /// Returns only this pool; the pool's fields are then also at the top level.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<NameFilter>,
    /// True to list also the tenants of the directory that sent nothing to the pool, with the state
    /// `never_seen`.
    #[param(nullable = false)]
    all: Option<bool>,
}

/// Selects the pool, interval and length of the stream.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StreamQuery {
    /// Returns only this pool; the pool's fields are then also at the top level.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<NameFilter>,
    /// Interval between events in milliseconds, 200 to 60 000 (default 1000).
    #[param(minimum = 200, maximum = 60_000, nullable = false)]
    every_ms: Option<u64>,
    /// Number of events after which the stream ends. If absent, the stream ends when the gateway drains or the client
    /// leaves.
    #[param(minimum = 1, maximum = 1_000_000, nullable = false)]
    events: Option<u64>,
}

/// One server-sent event of the stream.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct LiveEvent {
    /// Type of the event; always `live`.
    event: String,
    /// A `LiveView` as JSON.
    data: String,
}

/// Shows the service that each group and tenant got in each pool, the service that it was due, and the difference.
#[utoipa::path(
    get, path = "/api/v1/fairshare/live", tag = "operation", params(LiveQuery),
    responses(
        (status = 200, description = "The pools at this moment", body = LiveView),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn live(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<LiveQuery>,
) -> Result<Json<LiveView>, ApiError> {
    let pool = query.pool.as_ref().map(|pool| pool.0.as_str());
    view(&app, pool, query.all == Some(true)).await.map(Json)
}

/// Streams the live view as server-sent events named `live`, one per second by default.
///
/// The stream ends when the gateway drains.
#[utoipa::path(
    get, path = "/api/v1/fairshare/live/stream", tag = "operation", params(StreamQuery),
    responses(
        (status = 200, description = "Events named `live`, each with a LiveView as its data", body = LiveEvent, content_type = "text/event-stream"),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn stream(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    QueryParams(query): QueryParams<StreamQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let every = bounded("every_ms", query.every_ms.unwrap_or(1000), 200, 60_000)?;
    let events = query.events.map(|events| bounded("events", events, 1, 1_000_000)).transpose()?;
    if let Some(pool) = &query.pool {
        pool_by_name(&app, &pool.0)?;
    }
    let permit = app.watchers.clone().try_acquire_owned().map_err(|_| {
        ApiError::unavailable("too_many_watchers", "too many watch the live view; try again later")
    })?;
    let mut ticks = interval(Duration::from_millis(every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher = LiveViewStream {
        app,
        ticks,
        pool: query.pool.map(|pool| pool.0),
        left: events,
        _permit: permit,
    };
    Ok(Sse::new(unfold(watcher, |mut watcher| async {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    })))
}

/// State of one open stream of the live view.
struct LiveViewStream {
    app: Arc<ControlPlane>,
    ticks: Interval,
    pool: Option<String>,
    left: Option<u64>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl LiveViewStream {
    /// Waits for the next tick and returns the event to send then; `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        self.left = match self.left {
            Some(left) => Some(left.checked_sub(1)?),
            None => None,
        };
        let mut phase = self.app.data.phase.watch();
        tokio::select! {
            _ = phase.wait_for(|stage| *stage > GatewayPhase::Serving) => return None,
            _ = self.ticks.tick() => {}
        }
        // A pool that is gone or does not answer ends the stream; a client that reconnects gets the reason.
        let view = view(&self.app, self.pool.as_deref(), false).await.ok()?;
        Event::default().event("live").json_data(view).ok()
    }
}

fn bounded(field: &str, value: u64, least: u64, most: u64) -> Result<u64, ApiError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let message = format!("{field} must be {least} to {most} and is {value}");
    Err(ApiError::bad_request("invalid_query", message).in_field(field))
}

async fn view(app: &ControlPlane, pool: Option<&str>, all: bool) -> Result<LiveView, ApiError> {
    let pools = match pool {
        Some(pool) => vec![pool_by_name(app, pool)?],
        None => app.data.pools.all(),
    };
    let mut views = Vec::with_capacity(pools.len());
    for pool in &pools {
        let view = pool_view(app, pool).await?;
        views.push(match all {
            true => {
                let directory = app.data.identity.directory();
                with_never_seen(view, &flow_source(app, &pool.name, &directory))
            }
            false => view,
        });
    }
    let one = (views.len() == 1).then(|| views[0].clone());
    let ledger = LedgerView {
        rows_waiting: app.data.store.rows_waiting(),
        answers_without_row: app.data.metrics.answers_without_row(),
    };
    let currency = app.data.config.load().prices.currency().map(String::from);
    Ok(LiveView {
        at: fairgate_time::to_rfc3339(wall_clock::now()),
        ledger,
        currency,
        one,
        pools: views,
    })
}

/// Returns the view of one pool, with the data of its scheduler and of the gateway.
pub(super) async fn pool_view(
    app: &ControlPlane,
    pool: &PoolHandle,
) -> Result<PoolView, PoolUnavailableError> {
    let all = app.data.pools.all();
    app.snapshots.keep_only(&all);
    app.flows.keep_only(&all);
    let directory = app.data.identity.directory();
    let recent = app.flows.recent(pool).await?;
    let source = flow_source(app, &pool.name, &directory);
    let view = recent.view(&pool.name, &directory).clone();
    let view = with_tiers(with_window(view, &source), pool, recent.state());
    Ok(with_unit(view, pool.setup().unit()))
}

/// Returns the sources of data about a pool's flows other than the scheduler.
pub(super) fn flow_source<'a>(
    app: &'a ControlPlane,
    pool: &'a str,
    directory: &'a Directory,
) -> FlowNowSource<'a> {
    FlowNowSource {
        pool,
        window: app.histories.window(pool),
        refusals: &app.data.refusals,
        directory,
    }
}
