//! Reading an engine's metrics now and then, bounded in time and size.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::MetricsConfig;
use fairgate_store::Throttle;
use http::uri::PathAndQuery;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::engine::{Learned, Reading};
use super::watch::Told;
use super::{Cause, Upstream};

/// How much of an answer is read. vLLM's are some 100 KB.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// How long a reading may take at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads for ever, while any pool observes its workers.
pub(super) async fn read(upstream: Arc<Upstream>, metrics: MetricsConfig, told: Arc<Told>) {
    let Ok(path) = PathAndQuery::try_from(metrics.path.as_str()) else {
        tracing::error!(upstream = %upstream.name, "the path of its metrics is no path: they are not read");
        return;
    };
    let complaints = Throttle::<()>::default();
    let mut ticks = interval(metrics.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !told.is_observed() {
            continue;
        }
        let due = Instant::now() + metrics.every.min(PATIENCE).max(Duration::from_millis(500));
        match look(&upstream, &path, due).await {
            Ok(reading) => {
                let learned = upstream.engine.learn(reading, told.in_flight());
                announce(&upstream, &told, learned);
            }
            Err(problem) => {
                upstream.engine.unreadable();
                if let Some(left_out) = complaints.admit((), Instant::now()) {
                    tracing::warn!(worker = %upstream.name, problem, left_out, "an engine's metrics could not be read");
                }
            }
        }
        // Slots and overload are told by whoever tells how it stands.
        upstream.condition.changed.notify_one();
    }
}

async fn look(upstream: &Upstream, path: &PathAndQuery, due: Instant) -> Result<Reading, String> {
    let (status, text) = upstream
        .fetch(path, due, TEXT_BYTES_MAX)
        .await
        .map_err(|kind| Cause::Failed(kind).to_string())?;
    if !status.is_success() {
        return Err(Cause::Answered(status.as_u16()).to_string());
    }
    let text = text.ok_or_else(|| format!("more than {TEXT_BYTES_MAX} bytes"))?;
    let text = str::from_utf8(&text).map_err(|_| "its metrics are no text".to_owned())?;
    Reading::of(text).map_err(|error| error.to_string())
}

/// Says what was learned: in the log, and to whoever believes something of its cache.
fn announce(upstream: &Upstream, told: &Told, learned: Learned) {
    let worker = &upstream.name;
    if learned.restarted {
        tracing::info!(%worker, "an engine was restarted: what was believed of its cache and slots is forgotten");
        told.for_each_hook(|hook| hook.restarted(worker));
    }
    if let Some(tokens) = learned.cache_tokens {
        told.for_each_hook(|hook| hook.cache_holds(worker, tokens));
    }
    if let Some((before, now, change)) = learned.slots {
        tracing::debug!(%worker, before, now, %change, "a worker's slots have changed");
    }
}
