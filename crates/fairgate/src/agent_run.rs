//! The command `fairgate agent run`, which claims tasks and runs a command for each task.

mod claim_folder;
mod claim_runner;
mod command_guard;
mod command_output;
mod environment;
mod log_buffer;
mod outcome;
mod process_group;
mod secret_mask;
mod stop_signals;
mod tail;
mod workspace_lock;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use fairgate_fleet::Claim;
use tokio::time::sleep;

pub(crate) use command_guard::{GuardArgs, run as run_guard};

use crate::agent_api::{
    AgentApi, AgentApiError, AgentArgs, ClaimLease, RetryBackoff, StatusCallback,
};
use crate::text_format::one_line;
use claim_runner::{ClaimRunResult, ClaimRunner};
use stop_signals::StopSignals;

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

/// Claim tasks and run a command for each of them, one at a time, until stopped.
///
/// The command runs in the task's workspace (else in the current folder) with the prompt on its standard input. Its
/// environment has: FAIRGATE_TASK, FAIRGATE_PROJECT, FAIRGATE_EPOCH, FAIRGATE_TITLE, FAIRGATE_PROMPT (up to 64 KiB),
/// FAIRGATE_PROMPT_FILE, FAIRGATE_QUESTION and FAIRGATE_ANSWER if the task asked a question before, and the address and
/// key for this task's LLM calls as OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY,
/// ANTHROPIC_AUTH_TOKEN and FAIRGATE_KEY. The agent's own token is not included.
///
/// The exit status decides. 0 completes the task, with the content of the file FAIRGATE_RESULT_FILE as result, else the
/// last lines of standard output. 75 asks to run the command again later: the first line of that file is the number of
/// seconds to wait (default 60). This does not count as a failure. 77 asks a person the question in that file. Any
/// other status is a failure.
///
/// When the task's timeout or the one given here is over, or when the task is cancelled or its lease is lost, the
/// command's whole process group gets SIGTERM, and SIGKILL when the grace is over. If `agent run` gets SIGINT, SIGTERM or SIGHUP, it ends the command in the same way and gives the
/// task back. A second signal kills the command at once.
#[derive(Debug, Args)]
pub(crate) struct AgentRunArgs {
    #[command(flatten)]
    agent: AgentArgs,
    /// End after one task.
    #[arg(long, conflicts_with = "max_tasks")]
    once: bool,
    /// End after this number of tasks. Default: no end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tasks: Option<u64>,
    /// Seconds between SIGTERM and SIGKILL.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// Longest time that a command may take for one task, in seconds. A command that takes longer is ended, and its task
    /// has failed. A task may have a shorter timeout of its own. Default: no limit.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
    timeout: Option<u64>,
    /// Command and its arguments, after `--`.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs until a signal stops the agent, or until the given number of tasks is done.
pub(crate) fn run(args: &AgentRunArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(claims(args));
    // A terminal that no one reads must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

async fn claims(args: &AgentRunArgs) -> Result<()> {
    let say: StatusCallback = Arc::new(|text: &str| {
        // The text may repeat something that another program wrote.
        let _ = writeln!(io::stderr(), "fairgate: {}", one_line(text));
    });
    let work = ClaimRunner {
        api: Arc::new(AgentApi::new(&args.agent)?),
        command: args.command.clone(),
        base_url: args.agent.base_url(),
        token: args.agent.token().to_owned(),
        grace: Duration::from_secs(args.grace),
        timeout: args.timeout.map(Duration::from_secs),
        say,
        stop: StopSignals::listen()?,
    };
    let most = if args.once { Some(1) } else { args.max_tasks };
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
