//! The loop of one agent, which claims a task, runs its command, and claims the next one.

use std::time::{Duration, Instant};

use anyhow::Result;
use fairgate_api::agents::Claim;
use tokio::time::sleep;

use super::claim_runner::{ClaimRunResult, ClaimRunner};
use crate::agent_api::{AgentApiError, ClaimLease, RetryBackoff};

/// Longest wait for a task in one request to the gateway.
const CLAIM_WAIT: Duration = Duration::from_secs(30);
/// Longest pause between two attempts while the gateway does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Pause between two claims of a paused agent.
const PAUSED: Duration = Duration::from_secs(15);
/// Time limit of a quick failure. A command that fails within this time has probably not worked at all.
const QUICK: Duration = Duration::from_secs(2);
/// Longest pause between tasks of an agent whose commands fail within [`QUICK`].
const QUICK_FAILURE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Runs tasks until a signal stops the agent, or until `most` tasks are done. An error means that this agent cannot
/// continue.
pub(super) async fn run_tasks(work: ClaimRunner, most: Option<u64>) -> Result<()> {
    let mut brake = QuickFailureBackoff::default();
    let mut done = 0;
    while most.is_none_or(|most| done < most) {
        let Some((claim, lease)) = next_claim(&work).await? else { return Ok(()) };
        let (task, project, epoch) = (&claim.task, &claim.project, claim.epoch);
        (work.say)(&format!("task {task} of {project}, claim {epoch}: {}", claim.title));
        let start = Instant::now();
        let verdict = work.run(&claim, lease).await?;
        if verdict == ClaimRunResult::Stopped {
            return Ok(());
        }
        done += 1;
        if let Some(pause) = brake.after(&verdict, start.elapsed()) {
            let seconds = pause.as_secs();
            (work.say)(&format!("commands fail at once: no task is claimed for {seconds} s"));
            tokio::select! {
                () = sleep(pause) => {}
                () = work.stop.wait_first() => {}
            }
        }
    }
    Ok(())
}

/// Waits for a task and claims it. Returns `None` if a signal stopped the agent.
async fn next_claim(work: &ClaimRunner) -> Result<Option<(Claim, ClaimLease)>> {
    let mut backoff = RetryBackoff::new(PAUSE_MAX);
    let mut paused = false;
    loop {
        let asked = Instant::now();
        let claim = tokio::select! {
            claim = work.api.claim(CLAIM_WAIT) => claim,
            () = work.stop.wait_first() => return Ok(None),
        };
        let pause = match claim {
            Ok(claim) => {
                if backoff.record_success() {
                    (work.say)("the gateway answers again");
                }
                match claim {
                    Some(claim) => return Ok(Some(claim)),
                    // A gateway that drains answers at once instead of waiting.
                    None if asked.elapsed() < Duration::from_secs(1) => Duration::from_secs(1),
                    None => Duration::ZERO,
                }
            }
            Err(AgentApiError::Paused(why)) => {
                if !std::mem::replace(&mut paused, true) {
                    (work.say)(&format!("{why}; waiting until it may go on"));
                }
                PAUSED
            }
            Err(
                AgentApiError::Unavailable(why)
                | AgentApiError::StoreUnavailable(why)
                | AgentApiError::Lost(why),
            ) => {
                let (pause, tell) = backoff.record_failure();
                if tell {
                    (work.say)(&format!("no task can be claimed now ({why}); trying again"));
                }
                pause
            }
            Err(error @ AgentApiError::Refused { .. }) => return Err(error.into()),
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = work.stop.wait_first() => return Ok(None),
        }
    }
}

/// Keeps an agent whose command does not work from failing every task in the fleet.
#[derive(Default)]
struct QuickFailureBackoff {
    failures: u32,
}

impl QuickFailureBackoff {
    /// Returns the pause before the next claim; `None` for no pause. The third quick failure in a row causes the first
    /// pause, and each further one doubles it.
    fn after(&mut self, verdict: &ClaimRunResult, took: Duration) -> Option<Duration> {
        if *verdict != ClaimRunResult::Failed || took >= QUICK {
            self.failures = 0;
            return None;
        }
        self.failures += 1;
        let doublings = self.failures.checked_sub(3)?;
        Some(Duration::from_secs(1 << doublings.min(6)).min(QUICK_FAILURE_PAUSE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_whose_command_does_not_work_slows_down() {
        let mut brake = QuickFailureBackoff::default();
        let quick = Duration::from_millis(5);
        let pauses: Vec<Option<u64>> = (0..11)
            .map(|_| brake.after(&ClaimRunResult::Failed, quick).map(|pause| pause.as_secs()))
            .collect();
        let expected = [None, None, Some(1), Some(2), Some(4), Some(8), Some(16), Some(32)];
        assert_eq!(pauses[..8], expected);
        assert_eq!(pauses[8..], [Some(60); 3]);
        assert_eq!(
            brake.after(&ClaimRunResult::Failed, Duration::from_secs(9)),
            None,
            "it worked a while"
        );
        assert_eq!(brake.after(&ClaimRunResult::Failed, quick), None);
        assert_eq!(brake.after(&ClaimRunResult::Well, quick), None);
    }
}
