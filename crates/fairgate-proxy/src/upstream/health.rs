//! Checks the health of upstreams at intervals, and also after failed requests have made an
//! upstream suspect.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::HealthConfig;
use http::uri::PathAndQuery;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{FailureCause, StatusClass, Upstream};

/// Maximum number of bytes of a health check's answer that are read, so that the connection can be
/// reused.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Path that is requested to probe an upstream without a configured health check. Every server of
/// the supported dialects has this path.
const MODELS: &str = "/v1/models";
/// Minimum time between two probes, because one tenant's failed requests can cause probes.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Timeout of the request to [`MODELS`].
const MODELS_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks the health of an upstream at intervals, forever.
pub(super) async fn run_checks(upstream: Arc<Upstream>, health: HealthConfig) {
    let Ok(path) = PathAndQuery::try_from(health.path.as_str()) else {
        tracing::error!(upstream = %upstream.name, "the path of its health check is no path: not checked");
        return;
    };
    let mut ticks = interval(health.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut good, mut bad) = (0_u32, 0_u32);
    loop {
        let began = ticks.tick().await;
        upstream.condition.set_next_check(began + health.every);
        match check(&upstream, &path, Instant::now() + health.timeout).await {
            Ok(()) => (good, bad) = (good.saturating_add(1), 0),
            Err(cause) => {
                upstream.failure_log.record_check(cause);
                (good, bad) = (0, bad.saturating_add(1));
            }
        }
        if bad >= health.unhealthy_after {
            upstream.condition.set_healthy(false);
        } else if good >= health.healthy_after {
            upstream.condition.set_healthy(true);
        }
    }
}

/// Checks the upstream whenever it becomes suspect, forever.
pub(super) async fn run_probes(upstream: Arc<Upstream>) {
    let (path, timeout) = match &upstream.config.health {
        Some(health) => (PathAndQuery::try_from(health.path.as_str()), health.timeout),
        None => (Ok(PathAndQuery::from_static(MODELS)), MODELS_TIMEOUT),
    };
    let path = path.unwrap_or_else(|_| PathAndQuery::from_static(MODELS));
    loop {
        upstream.condition.suspected.notified().await;
        let next_probe = Instant::now() + PROBE_EVERY;
        let checked = check(&upstream, &path, Instant::now() + timeout).await;
        let well = match checked {
            Ok(()) => true,
            // The server is running and answers, even if only with "not found".
            Err(FailureCause::Answered(status)) => {
                !StatusClass::of(status).is_server_fault() && upstream.config.health.is_none()
            }
            Err(FailureCause::Failed(_)) => false,
        };
        let cause = checked.err().map(|cause| cause.to_string());
        tracing::info!(worker = %upstream.name, well, cause, "requests fail on a worker, so it was asked whether it is well");
        upstream.condition.record_probe(well);
        sleep_until(next_probe).await;
    }
}

async fn check(upstream: &Upstream, path: &PathAndQuery, due: Instant) -> Result<(), FailureCause> {
    let fetched =
        upstream.fetch(path, due, ANSWER_BYTES_MAX).await.map_err(FailureCause::Failed)?;
    let status = fetched.status;
    if status.is_success() { Ok(()) } else { Err(FailureCause::Answered(status.as_u16())) }
}
