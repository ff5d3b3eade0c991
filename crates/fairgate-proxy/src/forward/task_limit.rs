//! Reports to the fleet that a call with a task key was refused because of a provider's rate limit, a
//! budget without room or the task's cap, and when the limit ends. If the agent then gives up the
//! task, this does not count as a failure. The task waits until the limit ends; after a cap, which does
//! not end by itself, it is blocked.

use std::time::Duration;

use fairgate_dialect::rate_limit_headers::{self, ProviderRefusal as Said};
use fairgate_fleet::LimitCause;
use fairgate_store::{TaskClaim, UnixMicros};
use tokio::time::Instant;

use super::provider::pairs;
use fairgate_time::wall_clock;

use super::request_guard::RequestArrival;
use super::send::AnsweredRequest;
use crate::refusal::{Refusal, RefusalCode};

/// Longest wait for a provider that is reported to the fleet. Providers have no quotas longer than a day, so a longer
/// wait is cut to a day.
const PROVIDER_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Wait that is assumed if other tasks have reserved the rest of the budget, because the end of
/// those tasks is not known.
const RESERVED_WAIT: Duration = Duration::from_secs(60);

/// A task's call that failed because of a limit, with the time at which the limit ends.
pub(super) struct TaskLimitReport {
    claim: TaskClaim,
    /// End of the limit; `None` for a cap of the task, which does not end by itself.
    until: Option<UnixMicros>,
    cause: LimitCause,
}

impl TaskLimitReport {
    /// Returns the report if one of these limits caused the answer or refusal: a provider's rate
    /// limit, a budget that will have room again later, or the task's cap. Returns `None` if none
    /// of them did, or if the caller has no task key.
    pub(super) fn of(
        arrival: &RequestArrival,
        sent: &Result<AnsweredRequest, Refusal>,
    ) -> Option<Self> {
        let claim = arrival.caller.claim.clone()?;
        let now = wall_clock::now();
        if let Err(refusal) = sent
            && refusal.code == RefusalCode::TaskCapReached
        {
            return Some(Self { claim, until: None, cause: LimitCause::TaskCap });
        }
        let (wait, cause) = wait(sent, now)?;
        let micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
        Some(Self { claim, until: Some(UnixMicros(now.0.saturating_add(micros))), cause })
    }

    /// Reports the limit to the fleet. If the report fails, the fleet starts the task again without
    /// waiting for the limit, and counts this as a retry.
    pub(super) async fn report_to_fleet(self, arrival: &RequestArrival) {
        let noted = arrival.app.fleet.note_limit(&self.claim, self.until, self.cause).await;
        if let Err(error) = noted
            && let Some(left_out) = arrival.app.log_throttle.admit("limit", Instant::now())
        {
            tracing::warn!(request = %arrival.id, %error, left_out, "a limit is not noted for a task");
        }
    }
}

/// Returns the time until the limit behind the answer or refusal ends, and the kind of that limit.
fn wait(
    sent: &Result<AnsweredRequest, Refusal>,
    now: UnixMicros,
) -> Option<(Duration, LimitCause)> {
    let (wait, cause) = match sent {
        Err(refusal) => match refusal.code {
            RefusalCode::ProviderLimited => (refusal.retry_after, LimitCause::Provider),
            // Without a time, the call is larger than the whole budget, and waiting is pointless.
            RefusalCode::ProjectBudgetExhausted => (refusal.retry_after, LimitCause::ProjectBudget),
            RefusalCode::ProjectBudgetReserved => (Some(RESERVED_WAIT), LimitCause::ProjectBudget),
            RefusalCode::BudgetExhausted => (refusal.retry_after, LimitCause::TenantBudget),
            _ => return None,
        },
        Ok(sent) => {
            let now = rate_limit_headers::EpochMicros(now.0);
            let mut rate_limits =
                rate_limit_headers::read_rate_limits(pairs(sent.answer.headers()), now);
            match rate_limit_headers::classify_refusal(
                sent.answer.status(),
                b"",
                &mut rate_limits,
                now,
            ) {
                Said::Rate { retry_after, .. } => (retry_after, LimitCause::Provider),
                _ => return None,
            }
        }
    };
    let most = if cause == LimitCause::Provider { PROVIDER_WAIT_MAX } else { Duration::MAX };
    Some((wait?.min(most), cause))
}
