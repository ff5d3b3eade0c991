//! Removes old rows from the ledger and old task logs from the fleet, if the configuration sets `store.keep_days`.

use std::sync::Arc;
use std::time::Duration;

use fairgate_fleet::FleetError;
use fairgate_store::UnixMicros;

use crate::control_plane::ControlPlane;
use fairgate_proxy::phase::GatewayPhase;
use fairgate_time::wall_clock;

/// Interval between two removals of old rows and logs.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
const DAY_US: i64 = 86_400_000_000;

/// Removes the logs of all tasks that ended before `before`, in batches. Returns the number of tasks whose logs were
/// removed.
async fn remove_old_logs(app: &ControlPlane, before: UnixMicros) -> Result<u64, FleetError> {
    let mut tasks = 0;
    loop {
        match app.fleet.forget_logs(before).await? {
            0 => return Ok(tasks),
            more => tasks += more,
        }
    }
}

/// Removes ledger rows and logs of ended tasks that are older than `store.keep_days`. Runs at the start and every hour,
/// until the gateway stops serving.
pub async fn prune_until_closing(app: Arc<ControlPlane>) {
    let mut phase = app.data.phase.watch();
    loop {
        // The setting is read every time, because a reload may have changed it.
        let days = app.data.config.load().store.keep_days;
        if let Some(days) = days {
            let before = UnixMicros(wall_clock::now().0.saturating_sub(i64::from(days) * DAY_US));
            let removed = match &app.export {
                Some(export) => export.prune(before).await,
                None => app.data.store.prune(before).await,
            };
            match removed {
                Ok(0) => {}
                Ok(rows) => tracing::info!(rows, days, "old rows left the ledger"),
                Err(error) => tracing::error!(%error, days, "old rows could not be removed"),
            }
            match remove_old_logs(&app, before).await {
                Ok(0) => {}
                Ok(tasks) => {
                    tracing::info!(tasks, days, "the logs of tasks that ended were removed")
                }
                Err(error) => tracing::error!(%error, days, "old logs could not be removed"),
            }
        }
        let closing = phase.wait_for(|stage| *stage != GatewayPhase::Serving);
        if tokio::time::timeout(PRUNE_INTERVAL, closing).await.is_ok() {
            return;
        }
    }
}
