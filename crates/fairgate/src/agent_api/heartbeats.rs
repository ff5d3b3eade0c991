//! Signs of life, for as long as an agent holds a task.

use std::sync::Arc;
use std::time::Duration;

use fairgate_fleet::{Claim, Heartbeat};
use fairgate_money::UnixMicros;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{AgentApi, Backoff, CallError, ClaimId, Lease};

/// The longest pause between two attempts while the gateway does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The shortest time between two signs.
const PACE_MIN: Duration = Duration::from_millis(100);

/// Why the agent does not hold its task any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The gateway says that the task is not this agent's.
    Lost(String),
    /// The gateway did not answer until the lease was over.
    Expired(String),
    /// The gateway does not know the agent any more, or does not let it.
    Refused(String),
}

/// Who is told that calls fail and work again.
pub(crate) type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Gives signs of life until it is dropped or the lease ends.
pub(crate) struct Heartbeats {
    lease: watch::Receiver<Lease>,
    ended: watch::Receiver<Option<LeaseEnd>>,
    task: JoinHandle<()>,
}

impl Heartbeats {
    /// The first sign goes out at once: it says that the work has begun. `what` says what the agent is doing.
    pub(crate) fn start(
        api: Arc<AgentApi>,
        claim: &Claim,
        lease: Lease,
        what: impl Fn() -> Heartbeat + Send + Sync + 'static,
        say: Say,
    ) -> Self {
        let (leases, lease_seen) = watch::channel(lease);
        let (end, ended) = watch::channel(None);
        let pace = Duration::from_secs(claim.heartbeat_s.into());
        let beating = Beating { api, claim: claim.into(), pace, leases, say };
        let task = tokio::spawn(async move {
            let why = beating.until_the_end(what).await;
            end.send_replace(Some(why));
        });
        Self { lease: lease_seen, ended, task }
    }

    /// Waits for the end of the lease.
    pub(crate) async fn ended(&self) -> LeaseEnd {
        let mut ended = self.ended.clone();
        let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        end.unwrap_or_else(|| LeaseEnd::Lost("its signs of life ended".to_owned()))
    }

    /// Why the lease ended, where it did.
    pub(crate) fn end(&self) -> Option<LeaseEnd> {
        self.ended.borrow().clone()
    }

    /// The server's clock, as far as it is known from the last lease.
    pub(crate) fn server_now(&self) -> UnixMicros {
        self.lease.borrow().server_now()
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Beating {
    api: Arc<AgentApi>,
    claim: ClaimId,
    pace: Duration,
    leases: watch::Sender<Lease>,
    say: Say,
}

impl Beating {
    /// How long until the next sign: as the claim has it, and at least two in a lease.
    fn pace_in(&self, lease: Lease) -> Duration {
        self.pace.min(lease.length / 2).max(PACE_MIN)
    }

    async fn until_the_end(&self, what: impl Fn() -> Heartbeat) -> LeaseEnd {
        let mut lease = *self.leases.borrow();
        let mut backoff = Backoff::new(PAUSE_MAX.min(lease.length / 4));
        loop {
            let said = what();
            let answer = self.api.heartbeat(&self.claim, &said, lease.call_timeout());
            let away = match timeout_at(lease.until, answer).await {
                Ok(Ok((_, renewed))) => {
                    if backoff.answered() {
                        (self.say)("the gateway answers again");
                    }
                    lease = renewed;
                    self.leases.send_replace(lease);
                    sleep(self.pace_in(lease)).await;
                    continue;
                }
                Ok(Err(CallError::Lost(why))) => return LeaseEnd::Lost(why),
                Ok(Err(error @ CallError::Refused { .. })) => {
                    return LeaseEnd::Refused(error.to_string());
                }
                Ok(Err(CallError::Away(why) | CallError::Paused(why))) => why,
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() >= lease.until {
                return LeaseEnd::Expired(away);
            }
            let (pause, tell) = backoff.failed();
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
