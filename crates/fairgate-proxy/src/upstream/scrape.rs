//! Reads an engine's metrics at intervals, with limits on time and size.
//!
//! Reading is independent of requests. The rules that interpret the metrics are pure functions
//! (`upstream/engine/`). The results reach the pool through its only reporter.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::MetricsConfig;
use fairgate_store::LogThrottle;
use http::HeaderMap;
use http::uri::PathAndQuery;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::engine::{EngineChanges, EngineReading, EngineReadingError};
use super::watch::PoolsOfWorker;
use super::{FailureCause, FailureKind, Upstream};

/// Maximum size of an engine's metrics, in bytes. Those of vLLM have about 100 KB.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Maximum time that a reading may take.
const READING_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// Header in which llama.cpp states the start of its process.
const PROCESS_START: &str = "process-start-time-unix";

/// Reads the engine's metrics at intervals, forever. Skips a reading if this process observes none of the worker's
/// pools.
pub(super) async fn run_readings(
    upstream: Arc<Upstream>,
    metrics: MetricsConfig,
    told: Arc<PoolsOfWorker>,
) {
    let Ok(path) = PathAndQuery::try_from(metrics.path.as_str()) else {
        tracing::error!(upstream = %upstream.name, "the path of its metrics is no path: they are not read");
        return;
    };
    let complaints = LogThrottle::<()>::default();
    let mut ticks = interval(metrics.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !told.is_observed() {
            continue;
        }
        let due =
            Instant::now() + metrics.every.min(READING_TIMEOUT_MAX).max(Duration::from_millis(500));
        match read_metrics(&upstream, &path, due).await {
            Ok(reading) => {
                let learned = upstream.engine.learn(reading, told.in_flight());
                announce(&upstream, &told, learned);
            }
            Err(problem) => {
                upstream.engine.record_unreadable();
                if matches!(problem, ScrapeError::Cause(FailureCause::Failed(FailureKind::Connect)))
                {
                    // Nothing listens on the port, so the process has ended and its cache is lost.
                    told.for_each_hook(|hook| hook.restarted(&upstream.name));
                }
                if let Some(left_out) = complaints.admit((), Instant::now()) {
                    tracing::warn!(worker = %upstream.name, %problem, left_out, "an engine's metrics could not be read");
                }
            }
        }
        // The task that reports the standing also reports slots and overload.
        upstream.condition.changed.notify_one();
    }
}

/// Reason why metrics could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum ScrapeError {
    #[error("{0}")]
    Cause(FailureCause),
    #[error("more than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    #[error("its metrics are no text")]
    NoText,
    #[error(transparent)]
    Unreadable(#[from] EngineReadingError),
}

async fn read_metrics(
    upstream: &Upstream,
    path: &PathAndQuery,
    due: Instant,
) -> Result<EngineReading, ScrapeError> {
    let fetched = upstream.fetch(path, due, TEXT_BYTES_MAX).await;
    let fetched = fetched.map_err(|kind| ScrapeError::Cause(FailureCause::Failed(kind)))?;
    if !fetched.status.is_success() {
        return Err(ScrapeError::Cause(FailureCause::Answered(fetched.status.as_u16())));
    }
    let text = fetched.text.ok_or(ScrapeError::TooLong)?;
    let text = str::from_utf8(&text).map_err(|_| ScrapeError::NoText)?;
    let reading = EngineReading::of(text)?;
    Ok(EngineReading { started: reading.started.or_else(|| started(&fetched.headers)), ..reading })
}

/// Returns the start time of the process, which llama.cpp states in a header and not in its metrics.
fn started(headers: &HeaderMap) -> Option<u64> {
    headers.get(PROCESS_START)?.to_str().ok()?.parse().ok()
}

/// Logs the changes of a reading, and passes them to the observers of the engine's cache.
fn announce(upstream: &Upstream, told: &PoolsOfWorker, learned: EngineChanges) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama_cpp_says_in_a_header_when_it_started() {
        let mut headers = HeaderMap::new();
        assert_eq!(started(&headers), None);
        headers.insert(PROCESS_START, "41844942642".parse().unwrap());
        assert_eq!(started(&headers), Some(41_844_942_642));
        headers.insert(PROCESS_START, "this morning".parse().unwrap());
        assert_eq!(started(&headers), None);
    }
}
