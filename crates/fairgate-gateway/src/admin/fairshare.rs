//! The live view, once and as a stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::{IntoParams, ToSchema};

use super::api_error::ApiError;
use super::auth::Admin;
use super::moment;
use super::pools::named;
use super::query::{Filter, Params};
use crate::app::App;
use crate::forward::unix_now;
use crate::live::{LedgerView, LiveView};
use crate::phase::Stage;

/// Which pool to look at.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LiveQuery {
    /// This pool only; its fields are then also at the top.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<Filter>,
}

/// What to stream, and how often.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct StreamQuery {
    /// This pool only; its fields are then also at the top.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<Filter>,
    /// How often, in milliseconds (default 1000).
    #[param(minimum = 200, maximum = 60_000, nullable = false)]
    every_ms: Option<u64>,
    /// The stream ends after so many events; else when the gateway drains or the caller leaves.
    #[param(minimum = 1, maximum = 1_000_000, nullable = false)]
    events: Option<u64>,
}

/// One event of the stream.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct LiveEvent {
    /// `live`.
    event: String,
    /// A LiveView, as JSON.
    data: String,
}

/// Shows who has what of each pool, what they are due, and how far they are from it.
#[utoipa::path(
    get, path = "/api/v1/fairshare/live", tag = "operation", params(LiveQuery),
    responses(
        (status = 200, description = "The pools at this moment", body = LiveView),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn live(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<LiveQuery>,
) -> Result<Json<LiveView>, ApiError> {
    view(&app, query.pool.as_ref().map(|pool| pool.0.as_str())).await.map(Json)
}

/// The live view as server-sent events named `live`, one each second. It ends when the gateway drains.
#[utoipa::path(
    get, path = "/api/v1/fairshare/live/stream", tag = "operation", params(StreamQuery),
    responses(
        (status = 200, description = "Events named `live`, each with a LiveView as its data", body = LiveEvent, content_type = "text/event-stream"),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
    ),
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    _: Admin,
    Params(query): Params<StreamQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let every = bounded("every_ms", query.every_ms.unwrap_or(1000), 200, 60_000)?;
    let events = query.events.map(|events| bounded("events", events, 1, 1_000_000)).transpose()?;
    if let Some(pool) = &query.pool {
        named(&app, &pool.0)?;
    }
    let permit = app.control.watchers.clone().try_acquire_owned().map_err(|_| {
        ApiError::unavailable("too_many_watchers", "too many watch the live view; try again later")
    })?;
    let mut ticks = interval(Duration::from_millis(every));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watcher =
        Watcher { app, ticks, pool: query.pool.map(|pool| pool.0), left: events, _permit: permit };
    Ok(Sse::new(unfold(watcher, |mut watcher| async {
        let event = watcher.next().await?;
        Some((Ok(event), watcher))
    })))
}

/// Somebody who watches.
struct Watcher {
    app: Arc<App>,
    ticks: Interval,
    pool: Option<String>,
    left: Option<u64>,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Watcher {
    /// The next event; none where the stream is over.
    async fn next(&mut self) -> Option<Event> {
        self.left = match self.left {
            Some(left) => Some(left.checked_sub(1)?),
            None => None,
        };
        let mut phase = self.app.phase.watch();
        tokio::select! {
            _ = phase.wait_for(|stage| *stage > Stage::Serving) => return None,
            _ = self.ticks.tick() => {}
        }
        // A pool that is gone, or does not answer, ends the stream: who reconnects is told why.
        let view = view(&self.app, self.pool.as_deref()).await.ok()?;
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

async fn view(app: &App, pool: Option<&str>) -> Result<LiveView, ApiError> {
    let pools = match pool {
        Some(pool) => vec![named(app, pool)?],
        None => app.pools.all(),
    };
    let directory = app.identity.directory();
    let mut views = Vec::with_capacity(pools.len());
    for pool in &pools {
        let sight = app.control.sights.of(pool).await?;
        views.push(sight.view(&pool.name, &directory).clone().with_tiers(pool, &sight.snapshot));
    }
    let one = (views.len() == 1).then(|| views[0].clone());
    let ledger = LedgerView {
        rows_waiting: app.store.rows_waiting(),
        answers_without_row: app.metrics.answers_without_row(),
    };
    let currency = app.config.load().prices.currency().map(String::from);
    Ok(LiveView { at: moment::shown(unix_now()), ledger, currency, one, pools: views })
}
