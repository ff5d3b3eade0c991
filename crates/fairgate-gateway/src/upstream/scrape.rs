//! Reading an engine's metrics now and then, bounded in time and size.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::MetricsConfig;
use fairgate_store::Throttle;
use http::HeaderMap;
use http::uri::PathAndQuery;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::engine::{Learned, Reading, Unreadable};
use super::watch::Told;
use super::{Cause, FailureKind, Upstream};

/// How much of an answer is read. vLLM's are some 100 KB.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// How long a reading may take at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// llama.cpp's header with its start.
const PROCESS_START: &str = "process-start-time-unix";

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
                if matches!(problem, Problem::Cause(Cause::Failed(FailureKind::Connect))) {
                    // Nobody listens there: the process has ended, and its cache with it.
                    told.for_each_hook(|hook| hook.restarted(&upstream.name));
                }
                if let Some(left_out) = complaints.admit((), Instant::now()) {
                    tracing::warn!(worker = %upstream.name, %problem, left_out, "an engine's metrics could not be read");
                }
            }
        }
        // Slots and overload are told by whoever tells how it stands.
        upstream.condition.changed.notify_one();
    }
}

/// Why metrics could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Cause(Cause),
    #[error("more than {TEXT_BYTES_MAX} bytes")]
    TooLong,
    #[error("its metrics are no text")]
    NoText,
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

async fn look(upstream: &Upstream, path: &PathAndQuery, due: Instant) -> Result<Reading, Problem> {
    let fetched = upstream.fetch(path, due, TEXT_BYTES_MAX).await;
    let fetched = fetched.map_err(|kind| Problem::Cause(Cause::Failed(kind)))?;
    if !fetched.status.is_success() {
        return Err(Problem::Cause(Cause::Answered(fetched.status.as_u16())));
    }
    let text = fetched.text.ok_or(Problem::TooLong)?;
    let text = str::from_utf8(&text).map_err(|_| Problem::NoText)?;
    let reading = Reading::of(text)?;
    Ok(Reading { started: reading.started.or_else(|| started(&fetched.headers)), ..reading })
}

/// When the process started, which llama.cpp says beside its metrics and not in them.
fn started(headers: &HeaderMap) -> Option<u64> {
    headers.get(PROCESS_START)?.to_str().ok()?.parse().ok()
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
