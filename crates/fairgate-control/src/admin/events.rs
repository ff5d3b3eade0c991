//! The stream of events: changes of the pools and the fleet, ended requests, and audited changes.
//!
//! One task finds the changes for all readers. A reader that is too slow gets a `gap` event, and
//! then a whole view again. Only a bounded number of events is kept for a reader.

mod fleet_changes;
mod hub;
mod pool_changes;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use fairgate_proxy::identity::Caller;
use fairgate_proxy::phase::GatewayPhase;
use fairgate_store::AttemptRow;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::error::RecvError;
use utoipa::{IntoParams, ToSchema};

use self::hub::{live_event, read_events, whole_pools};
use self::pool_changes::remove_former_names;
use super::api_error::ApiError;
use super::attempts::{attempt_body, for_tenant};
use super::auth::Viewer;
use super::me::pool_of;
use super::pools::pool_by_name;
use super::query::{NameFilter, QueryParams};
use crate::control_plane::ControlPlane;
use crate::event_hub::{HubEvent, HubReader};

/// Interval of the comments that keep the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Selects the events of a stream.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Kinds of events, separated by commas: `live`, `ended`, `fleet` and `audit`. The default is all that the caller may
    /// see; a tenant sees `live` and `ended`.
    #[param(value_type = Option<String>, nullable = false)]
    kinds: Option<EventKinds>,
    /// Returns only events `live` and `ended` of this pool.
    #[param(value_type = Option<String>, max_length = 512, nullable = false)]
    pool: Option<NameFilter>,
    /// Session of the browser's page: `admin` or `me`. It replaces the header `x-fairgate-session`,
    /// because an `EventSource` cannot send headers.
    #[param(nullable = false)]
    #[serde(rename = "session")]
    _session: Option<String>,
}

/// The kinds of events that a reader wants.
#[derive(Clone, Copy, Debug, Default)]
struct EventKinds {
    live: bool,
    ended: bool,
    fleet: bool,
    audit: bool,
}

impl EventKinds {
    fn names(self) -> Vec<&'static str> {
        let all = [
            (self.live, "live"),
            (self.ended, "ended"),
            (self.fleet, "fleet"),
            (self.audit, "audit"),
        ];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name).collect()
    }
}

impl<'de> Deserialize<'de> for EventKinds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut kinds = Self::default();
        for kind in text.split(',') {
            match kind.trim() {
                "live" => kinds.live = true,
                "ended" => kinds.ended = true,
                "fleet" => kinds.fleet = true,
                "audit" => kinds.audit = true,
                other => {
                    return Err(serde::de::Error::custom(format!(
                        "{other:?} is no kind of event: live, ended, fleet, audit"
                    )));
                }
            }
        }
        Ok(kinds)
    }
}

/// One server-sent event of the stream.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
#[schema(as = GatewayEvent)]
pub(super) struct GatewayEventBody {
    /// Type of the event: `live`, `ended`, `fleet`, `audit`, or `gap` if the reader was too slow and events are missing.
    event: String,
    /// JSON that depends on the type of the event:
    ///
    /// - `live`: `at`, `full` and `pools`. If `full` is true, the pools are whole, as in the live
    ///   view. Otherwise a pool has only its changed fields and its changed rows, and `gone` names
    ///   the rows that no longer exist. A tenant gets the changed pools of `/api/v1/me`.
    /// - `ended`: a row as in `/api/v1/attempts`.
    /// - `fleet`: the changed `projects`, `running` tasks and `agents`.
    /// - `audit`: an entry of the audit trail.
    /// - `gap`: `kinds`, and `missed`, the number of missing events.
    data: String,
}

/// Streams changes as server-sent events.
///
/// The first `live` event, and the first one after a `gap`, has whole pools. Later `live` events
/// have only changes, and come at most once a second. `ended` has the requests that this gateway
/// answers. The stream ends when the gateway drains.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "operation", params(EventsQuery), security(("admin" = []), ("tenant" = [])),
    responses(
        (status = 200, description = "The events", body = GatewayEventBody, content_type = "text/event-stream"),
        (status = 403, description = "A tenant asked for `fleet` or `audit`", body = super::ErrorBody),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
        (status = 503, description = "There are 64 readers already", body = super::ErrorBody),
    ),
)]
pub(super) async fn stream(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
    QueryParams(query): QueryParams<EventsQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    if let Some(pool) = &query.pool {
        pool_by_name(&app, &pool.0)?;
    }
    let tenant = match viewer {
        Viewer::Admin => None,
        Viewer::Tenant(caller) => Some(caller),
    };
    let of_admin = tenant.is_none();
    let all = EventKinds { live: true, ended: true, fleet: of_admin, audit: of_admin };
    let kinds = query.kinds.unwrap_or(all);
    if !of_admin && (kinds.fleet || kinds.audit) {
        let message = "a tenant's key reads the events live and ended";
        return Err(ApiError::new(http::StatusCode::FORBIDDEN, "admin_only", message));
    }
    let permit = app.watchers.clone().try_acquire_owned().map_err(|_| {
        ApiError::unavailable("too_many_watchers", "too many read events; try again later")
    })?;
    let reader = EventSubscriber {
        hub: read_events(&app),
        app,
        tenant,
        kinds,
        pool: query.pool.map(|pool| pool.0),
        is_whole: false,
        mine: HashMap::new(),
        ready: VecDeque::new(),
        _permit: permit,
    };
    let events = unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// State of one open stream of events.
struct EventSubscriber {
    hub: HubReader,
    app: Arc<ControlPlane>,
    /// The tenant that reads; `None` for the admin.
    tenant: Option<Arc<Caller>>,
    kinds: EventKinds,
    pool: Option<String>,
    /// True after the reader got whole views of the pools.
    is_whole: bool,
    /// State of each pool that a tenant was sent last.
    mine: HashMap<String, Value>,
    ready: VecDeque<Event>,
    _permit: OwnedSemaphorePermit,
}

impl EventSubscriber {
    /// Waits for the next event to send; `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        let mut phase = self.app.data.phase.watch();
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let received = tokio::select! {
                _ = phase.wait_for(|stage| *stage > GatewayPhase::Serving) => return None,
                received = self.hub.events.recv() => received,
            };
            match received {
                Ok(HubEvent::Live(news)) if self.kinds.live => self.live(news).await,
                Ok(HubEvent::Ended(row)) if self.kinds.ended => self.ended(&row),
                Ok(HubEvent::EndedMissed(missed)) if self.kinds.ended => {
                    self.put_gap(&["ended"], missed);
                }
                Ok(HubEvent::Fleet(text)) if self.kinds.fleet => self.put("fleet", &text),
                Ok(HubEvent::Audit(text)) if self.kinds.audit => self.put("audit", &text),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    self.put_gap(&self.kinds.names(), missed);
                    self.is_whole = false;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn put(&mut self, kind: &str, data: &str) {
        self.ready.push_back(Event::default().event(kind).data(data));
    }

    /// Sends a `gap` event, because events of these kinds are missing.
    fn put_gap(&mut self, kinds: &[&str], missed: u64) {
        self.put("gap", &json!({"kinds": kinds, "missed": missed}).to_string());
    }

    /// Sends the pools: all of them whole at first, then only changes.
    async fn live(&mut self, news: Option<Arc<str>>) {
        if self.tenant.is_some() {
            return self.live_of_tenant().await;
        }
        if !self.is_whole {
            self.is_whole = true;
            let mut pools = whole_pools(&self.app.event_hub);
            pools.retain(|pool| self.wants(pool));
            return self.put("live", &live_event(&pools, true));
        }
        let Some(news) = news else { return };
        let Some(_) = &self.pool else { return self.put("live", &news) };
        let mut event: Value = serde_json::from_str(&news).unwrap_or_default();
        let changed = event["pools"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let pools: Vec<Value> = changed.into_iter().filter(|pool| self.wants(pool)).collect();
        if !pools.is_empty() {
            self.put("live", &live_event(&pools, false));
        }
    }

    fn wants(&self, pool: &Value) -> bool {
        self.pool.as_deref().is_none_or(|wanted| pool["pool"] == wanted)
    }

    /// Sends a tenant the changes of the tenant's own flows.
    async fn live_of_tenant(&mut self) {
        let Some(caller) = self.tenant.clone() else { return };
        if !self.is_whole {
            self.mine.clear();
        }
        let directory = self.app.data.identity.directory();
        let mut changed = Vec::new();
        for pool in self.app.data.pools.all() {
            if self.pool.as_deref().is_some_and(|wanted| *wanted != *pool.name) {
                continue;
            }
            let Ok(body) = pool_of(&self.app, &pool, &caller, &directory).await else { continue };
            let mut body = serde_json::to_value(body).unwrap_or_default();
            remove_former_names(&mut body);
            let rows = body["classes"].as_array_mut();
            rows.into_iter().flatten().for_each(remove_former_names);
            if self.mine.get(&*pool.name) != Some(&body) {
                self.mine.insert(pool.name.to_string(), body.clone());
                changed.push(body);
            }
        }
        let full = !std::mem::replace(&mut self.is_whole, true);
        if full || !changed.is_empty() {
            self.put("live", &live_event(&changed, full));
        }
    }

    /// Sends an ended attempt, if it is in the wanted pool and the reader may see it.
    fn ended(&mut self, row: &AttemptRow) {
        let is_wanted = |wanted: &String| row.pool.as_deref() == Some(wanted.as_str());
        if !self.pool.as_ref().is_none_or(is_wanted) {
            return;
        }
        let body = attempt_body(row.clone());
        let body = match &self.tenant {
            None => body,
            Some(caller) if *caller.tenant != *row.tenant => return,
            Some(_) => for_tenant(&self.app, body),
        };
        if let Ok(text) = serde_json::to_string(&body) {
            self.put("ended", &text);
        }
    }
}
