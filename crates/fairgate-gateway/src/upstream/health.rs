//! Asking a backend how it is: now and then, and when requests that fail on it make it suspect.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::HealthConfig;
use http::uri::PathAndQuery;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Cause, StatusClass, Upstream};

/// How much of a health check's answer is read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// What is asked for where no health check is configured: every server of these dialects has it.
const MODELS: &str = "/v1/models";
/// How long that may take.
const MODELS_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for ever.
pub(super) async fn ask(upstream: Arc<Upstream>, health: HealthConfig) {
    let Ok(path) = PathAndQuery::try_from(health.path.as_str()) else {
        tracing::error!(upstream = %upstream.name, "the path of its health check is no path: not checked");
        return;
    };
    let mut ticks = interval(health.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut good, mut bad) = (0_u32, 0_u32);
    loop {
        let began = ticks.tick().await;
        upstream.condition.checked_next_at(began + health.every);
        match check(&upstream, &path, Instant::now() + health.timeout).await {
            Ok(()) => (good, bad) = (good.saturating_add(1), 0),
            Err(cause) => {
                upstream.complaints.of_check(cause);
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

/// Asks whenever it is suspected, for ever.
pub(super) async fn probe(upstream: Arc<Upstream>) {
    let (path, timeout) = match &upstream.config.health {
        Some(health) => (PathAndQuery::try_from(health.path.as_str()), health.timeout),
        None => (Ok(PathAndQuery::from_static(MODELS)), MODELS_TIMEOUT),
    };
    let path = path.unwrap_or_else(|_| PathAndQuery::from_static(MODELS));
    loop {
        upstream.condition.suspected.notified().await;
        let checked = check(&upstream, &path, Instant::now() + timeout).await;
        let well = match checked {
            Ok(()) => true,
            // It is there and answers, if only with "not found".
            Err(Cause::Answered(status)) => {
                !StatusClass::of(status).is_server_fault() && upstream.config.health.is_none()
            }
            Err(Cause::Failed(_)) => false,
        };
        let cause = checked.err().map(|cause| cause.to_string());
        tracing::info!(worker = %upstream.name, well, cause, "requests fail on a worker, so it was asked whether it is well");
        upstream.condition.probed(well);
    }
}

async fn check(upstream: &Upstream, path: &PathAndQuery, due: Instant) -> Result<(), Cause> {
    let fetched = upstream.fetch(path, due, ANSWER_BYTES_MAX).await.map_err(Cause::Failed)?;
    let status = fetched.status;
    if status.is_success() { Ok(()) } else { Err(Cause::Answered(status.as_u16())) }
}
