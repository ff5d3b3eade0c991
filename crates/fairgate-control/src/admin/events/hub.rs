//! Reads the pools, the fleet and the audit trail once for all readers of events, and only while
//! there are readers.

use std::sync::Arc;
use std::time::Duration;

use fairgate_proxy::phase::GatewayPhase;
use fairgate_store::AuditQuery;
use fairgate_time::wall_clock;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::{MissedTickBehavior, interval};

use super::super::audit::audit_body;
use super::super::fairshare::pool_view;
use super::fleet_changes::FleetLook;
use super::pool_changes::{change, whole};
use crate::control_plane::ControlPlane;
use crate::event_hub::{EventHub, HubEvent, HubReader};

/// Interval at which the pools and the audit trail are read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of looks from one reading of the fleet to the next.
const FLEET_EVERY: u64 = 2;
/// Maximum number of audit entries that one look reads.
const AUDIT_ROWS: u32 = 100;

/// Adds a reader. The first reader starts the task that looks for changes.
pub(super) fn read_events(app: &Arc<ControlPlane>) -> HubReader {
    let (reader, must_look) = HubReader::of(&app.event_hub);
    if must_look {
        tokio::spawn(look_until_unread(app.clone()));
    }
    reader
}

/// Returns all pools as they were at the last look.
pub(super) fn whole_pools(hub: &EventHub) -> Vec<Value> {
    hub.last_views().iter().map(|view| whole(view)).collect()
}

/// Looks for changes until there are no readers, or until the gateway drains.
async fn look_until_unread(app: Arc<ControlPlane>) {
    let mut ended = app.data.ended.subscribe();
    app.data.ended.watch(true);
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut phase = app.data.phase.watch();
    let (mut looks, mut fleet, mut newest_audit) = (0_u64, FleetLook::default(), None);
    app.event_hub.keep_views(|_| false);
    loop {
        tokio::select! {
            _ = phase.wait_for(|stage| *stage > GatewayPhase::Serving) => return,
            row = ended.recv() => {
                match row {
                    Ok(row) => app.event_hub.send(HubEvent::Ended(row)),
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        app.event_hub.send(HubEvent::EndedMissed(missed));
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                }
                continue;
            }
            _ = ticks.tick() => {}
        }
        if app.event_hub.stop_unread() {
            app.data.ended.watch(false);
            return;
        }
        look_at_pools(&app).await;
        look_at_audit(&app, &mut newest_audit).await;
        if looks.is_multiple_of(FLEET_EVERY)
            && let Some(change) = fleet.look(&app.fleet).await
        {
            app.event_hub.send(HubEvent::Fleet(change.to_string().into()));
        }
        looks += 1;
    }
}

/// Reads all pools, and sends the changes since the last look.
async fn look_at_pools(app: &ControlPlane) {
    let mut changes = Vec::new();
    let pools = app.data.pools.all();
    for pool in &pools {
        // A pool that does not answer is left out until it does.
        let Ok(view) = pool_view(app, pool).await else { continue };
        let view = Arc::new(view);
        match app.event_hub.put_view(&pool.name, &view) {
            Some(before) => changes.extend(change(&before, &view)),
            None => changes.push(whole(&view)),
        }
    }
    app.event_hub.keep_views(|name| pools.iter().any(|pool| *pool.name == *name));
    let news = (!changes.is_empty()).then(|| live_event(&changes, false).into());
    app.event_hub.send(HubEvent::Live(news));
}

/// Returns the data of an event `live`.
pub(super) fn live_event(pools: &[Value], full: bool) -> String {
    let at = fairgate_time::to_rfc3339(wall_clock::now());
    json!({"at": at, "full": full, "pools": pools}).to_string()
}

/// Sends the new entries of the audit trail. The first look sends nothing, and only finds the
/// newest entry.
async fn look_at_audit(app: &ControlPlane, newest: &mut Option<i64>) {
    let limit = if newest.is_some() { AUDIT_ROWS } else { 1 };
    // If the database does not answer, the next look finds the entries.
    let Ok(entries) = app.data.store.audit(AuditQuery { limit, ..AuditQuery::default() }).await
    else {
        return;
    };
    let before = *newest;
    *newest = entries.first().map(|entry| entry.id).or(before).or(Some(0));
    let Some(before) = before else { return };
    for entry in entries.into_iter().rev().filter(|entry| entry.id > before) {
        if let Ok(text) = serde_json::to_string(&audit_body(entry)) {
            app.event_hub.send(HubEvent::Audit(text.into()));
        }
    }
}
