//! Old rows leave the ledger, and the logs of tasks that ended leave the fleet, where the configuration says so.

use std::sync::Arc;
use std::time::Duration;

use fairgate_fleet::FleetError;
use fairgate_store::UnixMicros;

use crate::app::App;
use crate::forward::unix_now;
use crate::phase::Stage;

/// How often rows are looked through.
const EVERY: Duration = Duration::from_secs(3600);
const DAY_US: i64 = 86_400_000_000;

/// Removes what the commands of tasks printed that ended before a moment; says of how many tasks.
async fn forget_logs(app: &App, before: UnixMicros) -> Result<u64, FleetError> {
    let mut tasks = 0;
    loop {
        match app.fleet.forget_logs(before).await? {
            0 => return Ok(tasks),
            more => tasks += more,
        }
    }
}

/// Removes rows, and logs of tasks that ended, that are older than `store.keep_days`, at the start and every hour, until the gateway closes.
pub(crate) async fn keep(app: Arc<App>) {
    let mut phase = app.phase.watch();
    loop {
        // Read anew each time: a reload may have changed it.
        let days = app.config.load().store.keep_days;
        if let Some(days) = days {
            let before = UnixMicros(unix_now().0.saturating_sub(i64::from(days) * DAY_US));
            match app.store.prune(before).await {
                Ok(0) => {}
                Ok(rows) => tracing::info!(rows, days, "old rows left the ledger"),
                Err(error) => tracing::error!(%error, days, "old rows could not be removed"),
            }
            match forget_logs(&app, before).await {
                Ok(0) => {}
                Ok(tasks) => {
                    tracing::info!(tasks, days, "the logs of tasks that ended were removed")
                }
                Err(error) => tracing::error!(%error, days, "old logs could not be removed"),
            }
        }
        let closing = phase.wait_for(|stage| *stage != Stage::Serving);
        if tokio::time::timeout(EVERY, closing).await.is_ok() {
            return;
        }
    }
}
