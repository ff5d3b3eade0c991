//! Reports to the fleet that a provider refused a call with a task key because of a rate limit, and when the limit
//! ends. If the agent gives up the task because of that, the task waits until the limit ends, and does not count as
//! failed.

use std::time::Duration;

use fairgate_dialect::limits::{self, ProviderRefusal as Said};
use fairgate_store::{TaskClaim, UnixMicros};
use tokio::time::Instant;

use super::provider::pairs;
use super::request_guard::{RequestArrival, unix_now};
use super::send::AnsweredRequest;
use crate::refusal::{Refusal, RefusalCode};

/// Longest wait that is reported to the fleet. Providers have no quotas longer than a day, so a longer wait is cut to a
/// day.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A task's call that failed because of a provider's rate limit, with the time at which the limit ends.
pub(super) struct ProviderWaitForTask {
    claim: TaskClaim,
    until: UnixMicros,
}

impl ProviderWaitForTask {
    /// Returns `Some` if the caller has a task key, and the answer or refusal was caused by a provider's rate limit.
    pub(super) fn of(
        arrival: &RequestArrival,
        sent: &Result<AnsweredRequest, Refusal>,
    ) -> Option<Self> {
        let claim = arrival.caller.claim.clone()?;
        let now = unix_now();
        let wait = wait(sent, now)?.min(WAIT_MAX);
        let micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
        Some(Self { claim, until: UnixMicros(now.0.saturating_add(micros)) })
    }

    /// Reports the limit to the fleet. If the report fails, the fleet tries the task again before the limit has ended,
    /// and counts that as a retry.
    pub(super) async fn report_to_fleet(self, arrival: &RequestArrival) {
        let noted = arrival.app.fleet.note_limit(&self.claim, self.until).await;
        if let Err(error) = noted
            && let Some(left_out) = arrival.app.log_throttle.admit("limit", Instant::now())
        {
            tracing::warn!(request = %arrival.id, %error, left_out, "a provider's limit is not noted for a task");
        }
    }
}

/// Returns the time until the provider accepts requests again, if the answer states a rate limit.
fn wait(sent: &Result<AnsweredRequest, Refusal>, now: UnixMicros) -> Option<Duration> {
    match sent {
        Err(refusal) if refusal.code == RefusalCode::ProviderLimited => refusal.retry_after,
        Err(_) => None,
        Ok(sent) => {
            let now = limits::EpochMicros(now.0);
            let mut rate_limits = limits::read_rate_limits(pairs(sent.answer.headers()), now);
            match limits::classify_refusal(sent.answer.status(), b"", &mut rate_limits, now) {
                Said::Rate { retry_after, .. } => retry_after,
                _ => None,
            }
        }
    }
}
