//! Calls under the key of a task that a provider does not take on now: the fleet is told until when, so that a task which its
//! agent gives up for that waits until then, and has not failed.

use std::time::Duration;

use fairgate_dialect::limits::{self, Refusal as Said};
use fairgate_store::{TaskClaim, UnixMicros};
use tokio::time::Instant;

use super::passage::{Arrival, unix_now};
use super::provider::pairs;
use super::send::Sent;
use crate::refusal::Refusal;

/// The longest wait that is noted: quotas of a day are the longest that providers have, and one that states more is not believed.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A call of a task that came to nothing because of a provider's limit.
pub(super) struct Limited {
    claim: TaskClaim,
    until: UnixMicros,
}

impl Limited {
    /// Whether an answer means that.
    pub(super) fn of(arrival: &Arrival, sent: &Result<Sent, Refusal>) -> Option<Self> {
        let claim = arrival.caller.claim.clone()?;
        let now = unix_now();
        let wait = wait(sent, now)?.min(WAIT_MAX);
        let micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
        Some(Self { claim, until: UnixMicros(now.0.saturating_add(micros)) })
    }

    /// Tells the fleet. Where that fails, the task is tried again a little sooner, and that counts as a retry.
    pub(super) async fn tell_fleet(self, arrival: &Arrival) {
        let noted = arrival.app.fleet.note_limit(&self.claim, self.until).await;
        if let Err(error) = noted
            && let Some(left_out) = arrival.app.complaints.admit("limit", Instant::now())
        {
            tracing::warn!(request = %arrival.id, %error, left_out, "a provider's limit is not noted for a task");
        }
    }
}

/// How long a provider takes no more, where that is what an answer says.
fn wait(sent: &Result<Sent, Refusal>, now: UnixMicros) -> Option<Duration> {
    match sent {
        Err(refusal) if refusal.problem.code == "provider_limited" => refusal.retry_after,
        Err(_) => None,
        Ok(sent) => {
            let now = limits::UnixMicros(now.0);
            let mut told = limits::told(pairs(sent.answer.headers()), now);
            match limits::refusal(sent.answer.status(), b"", &mut told, now) {
                Said::Rate { retry_after, .. } => retry_after,
                _ => None,
            }
        }
    }
}
