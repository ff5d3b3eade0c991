//! Sends heartbeats for as long as an agent holds a task.

use std::sync::Arc;
use std::time::Duration;

use fairgate_api::agents::Claim;
use fairgate_time::UnixMicros;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{AgentApi, AgentApiError, ClaimId, ClaimLease, ClaimProgress, RetryBackoff};

/// Longest pause between two attempts while the gateway does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Longest time for which an agent keeps a lease that cannot be renewed because the gateway's database is unavailable.
/// If several gateways share the database, another gateway may still reach it and give the task to another agent.
const STORE_AWAY_MAX: Duration = Duration::from_secs(300);

/// Shortest time between two heartbeats.
const PACE_MIN: Duration = Duration::from_millis(100);

/// The reason why the agent no longer holds its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The gateway reports that the agent has lost the task.
    Lost(String),
    /// The gateway did not answer before the lease ran out.
    Expired(String),
    /// The gateway no longer knows the agent, or refuses it.
    Refused(String),
}

/// Callback that reports to the user that heartbeats fail, and that they work again.
pub(crate) type StatusCallback = Arc<dyn Fn(&str) + Send + Sync>;

/// Background task that sends heartbeats until this value is dropped or the lease ends.
pub(crate) struct HeartbeatTask {
    lease: watch::Receiver<ClaimLease>,
    ended: watch::Receiver<Option<LeaseEnd>>,
    task: JoinHandle<()>,
}

impl HeartbeatTask {
    /// Starts sending heartbeats. The first is sent at once and reports that the work has begun. `what` returns the
    /// content of each heartbeat.
    pub(crate) fn start(
        api: Arc<AgentApi>,
        claim: &Claim,
        lease: ClaimLease,
        what: impl Fn() -> ClaimProgress + Send + Sync + 'static,
        say: StatusCallback,
    ) -> Self {
        let (leases, lease_seen) = watch::channel(lease);
        let (end, ended) = watch::channel(None);
        let pace = Duration::from_secs(claim.heartbeat_s.into());
        let beating = HeartbeatLoop { api, claim: claim.into(), pace, leases, say };
        let task = tokio::spawn(async move {
            let why = beating.until_the_end(what).await;
            end.send_replace(Some(why));
        });
        Self { lease: lease_seen, ended, task }
    }

    /// Waits for the end of the lease, and returns its reason.
    pub(crate) async fn wait_ended(&self) -> LeaseEnd {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.unwrap_or_else(|| LeaseEnd::Lost("its heartbeats ended".to_owned()))
    }

    /// Returns the reason why the lease ended; `None` while it lasts.
    pub(crate) fn end(&self) -> Option<LeaseEnd> {
        self.ended.borrow().clone()
    }

    /// Returns the gateway's time, computed from the last renewed lease.
    pub(crate) fn server_now(&self) -> UnixMicros {
        self.lease.borrow().server_now()
    }
}

impl Drop for HeartbeatTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct HeartbeatLoop {
    api: Arc<AgentApi>,
    claim: ClaimId,
    pace: Duration,
    leases: watch::Sender<ClaimLease>,
    say: StatusCallback,
}

impl HeartbeatLoop {
    /// Returns the time until the next heartbeat, which is the interval that the claim states, but at most half the
    /// lease's length.
    fn pace_in(&self, lease: ClaimLease) -> Duration {
        self.pace.min(lease.length / 2).max(PACE_MIN)
    }

    async fn until_the_end(&self, what: impl Fn() -> ClaimProgress) -> LeaseEnd {
        let mut lease = *self.leases.borrow();
        let mut backoff = RetryBackoff::new(PAUSE_MAX.min(lease.length / 4));
        let mut store_away_since = None;
        loop {
            let content = what();
            let answer = self.api.heartbeat(&self.claim, &content, lease.call_timeout());
            let away = match timeout_at(lease.until, answer).await {
                Ok(Ok((_, renewed))) => {
                    if backoff.record_success() {
                        (self.say)("the gateway answers again");
                    }
                    lease = renewed;
                    store_away_since = None;
                    self.leases.send_replace(lease);
                    sleep(self.pace_in(lease)).await;
                    continue;
                }
                Ok(Err(AgentApiError::Lost(why))) => return LeaseEnd::Lost(why),
                Ok(Err(error @ AgentApiError::Refused { .. })) => {
                    return LeaseEnd::Refused(error.to_string());
                }
                Ok(Err(AgentApiError::StoreUnavailable(why))) => {
                    let since = *store_away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < STORE_AWAY_MAX {
                        lease.extend_during_outage();
                        self.leases.send_replace(lease);
                    }
                    why
                }
                Ok(Err(AgentApiError::Unavailable(why) | AgentApiError::Paused(why))) => why,
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() >= lease.until {
                return LeaseEnd::Expired(away);
            }
            let (pause, tell) = backoff.record_failure();
            if tell {
                let left = lease.until.saturating_duration_since(Instant::now()).as_secs();
                (self.say)(&format!(
                    "no sign of life got through ({away}); trying again, the lease lasts {left} s more"
                ));
            }
            sleep_until((Instant::now() + pause).min(lease.until)).await;
        }
    }
}
