//! `fairgate agent run`: claims tasks and runs a command for each.

mod environment;
mod folder;
mod group;
mod guard;
mod log_buffer;
mod mask;
mod outcome;
mod printed;
mod stop;
mod tail;
mod task;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use fairgate_fleet::Claim;
use tokio::time::sleep;

pub(crate) use guard::{GuardArgs, run as run_guard};

use crate::agent_api::{AgentApi, AgentArgs, Backoff, CallError, Lease, Say};
use stop::Stop;
use task::{Verdict, Work};

/// How long one call waits for a task.
const CLAIM_WAIT: Duration = Duration::from_secs(30);
/// The longest pause between two attempts while the gateway does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// How often a paused agent asks whether it may go on.
const PAUSED: Duration = Duration::from_secs(15);
/// A command that fails faster than this has probably not worked at all.
const QUICK: Duration = Duration::from_secs(2);
/// The longest pause of an agent whose commands fail at once.
const BRAKE_MAX: Duration = Duration::from_secs(60);

/// Claim tasks and run a command for each of them, one at a time, until told to stop.
///
/// The command runs in the task's workspace (else in the current folder) with the prompt on its standard input. It finds
/// there: FAIRGATE_TASK, FAIRGATE_PROJECT, FAIRGATE_EPOCH, FAIRGATE_TITLE, FAIRGATE_PROMPT (up to 64 KiB),
/// FAIRGATE_PROMPT_FILE, FAIRGATE_QUESTION and FAIRGATE_ANSWER where it asked before, and the address and key of this
/// task's LLM calls as OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN and
/// FAIRGATE_KEY. The agent's own token is not there.
///
/// Its exit status decides: 0 completes the task, with the content of the file FAIRGATE_RESULT_FILE as result, else the
/// last lines of standard output. 75 means later: the file's first line says in how many seconds (60 where it does not),
/// and it counts as no failure. 77 asks a person what the file says. Everything else is a failure.
///
/// When the task is cancelled or its lease lost, the command's whole process group gets SIGTERM, and SIGKILL when the grace
/// is over. SIGINT, SIGTERM and SIGHUP do the same and give the task back; a second one kills at once.
#[derive(Debug, Args)]
pub(crate) struct AgentRunArgs {
    #[command(flatten)]
    agent: AgentArgs,
    /// End after one task.
    #[arg(long, conflicts_with = "max_tasks")]
    once: bool,
    /// End after this many tasks.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tasks: Option<u64>,
    /// How many seconds a command has between SIGTERM and SIGKILL.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// The command and its arguments, after `--`.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs until told to stop, or until the tasks are done.
pub(crate) fn run(args: &AgentRunArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(claims(args));
    // A terminal that nobody reads must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

async fn claims(args: &AgentRunArgs) -> Result<()> {
    let say: Say = Arc::new(|text: &str| {
        let _ = writeln!(io::stderr(), "fairgate: {text}");
    });
    let work = Work {
        api: Arc::new(AgentApi::new(&args.agent)?),
        command: args.command.clone(),
        base_url: args.agent.base_url(),
        token: args.agent.token().to_owned(),
        grace: Duration::from_secs(args.grace),
        say,
        stop: Stop::listen()?,
    };
    let most = if args.once { Some(1) } else { args.max_tasks };
    let mut brake = Brake::default();
    let mut done = 0;
    while most.is_none_or(|most| done < most) {
        let Some((claim, lease)) = next_claim(&work).await? else { return Ok(()) };
        let (task, project, epoch) = (&claim.task, &claim.project, claim.epoch);
        (work.say)(&format!("task {task} of {project}, claim {epoch}: {}", claim.title));
        let start = Instant::now();
        let verdict = work.run(&claim, lease).await?;
        if verdict == Verdict::Stopped {
            return Ok(());
        }
        done += 1;
        if let Some(pause) = brake.after(&verdict, start.elapsed()) {
            let seconds = pause.as_secs();
            (work.say)(&format!("commands fail at once: no task is claimed for {seconds} s"));
            tokio::select! {
                () = sleep(pause) => {}
                () = work.stop.told() => {}
            }
        }
    }
    Ok(())
}

/// Waits for a task; none when told to stop.
async fn next_claim(work: &Work) -> Result<Option<(Claim, Lease)>> {
    let mut backoff = Backoff::new(PAUSE_MAX);
    let mut paused = false;
    loop {
        let asked = Instant::now();
        let claim = tokio::select! {
            claim = work.api.claim(CLAIM_WAIT) => claim,
            () = work.stop.told() => return Ok(None),
        };
        let pause = match claim {
            Ok(claim) => {
                if backoff.answered() {
                    (work.say)("the gateway answers again");
                }
                match claim {
                    Some(claim) => return Ok(Some(claim)),
                    // A gateway that drains does not let anybody wait.
                    None if asked.elapsed() < Duration::from_secs(1) => Duration::from_secs(1),
                    None => Duration::ZERO,
                }
            }
            Err(CallError::Paused(why)) => {
                if !std::mem::replace(&mut paused, true) {
                    (work.say)(&format!("{why}; waiting until it may go on"));
                }
                PAUSED
            }
            Err(CallError::Away(why) | CallError::Lost(why)) => {
                let (pause, tell) = backoff.failed();
                if tell {
                    (work.say)(&format!("no task can be claimed now ({why}); trying again"));
                }
                pause
            }
            Err(error @ CallError::Refused { .. }) => return Err(error.into()),
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = work.stop.told() => return Ok(None),
        }
    }
}

/// Keeps an agent whose command does not work from failing every task that there is.
#[derive(Default)]
struct Brake {
    failures: u32,
}

impl Brake {
    /// How long to claim nothing after this verdict: from the third quick failure in a row on, twice as long each time.
    fn after(&mut self, verdict: &Verdict, took: Duration) -> Option<Duration> {
        if *verdict != Verdict::Failed || took >= QUICK {
            self.failures = 0;
            return None;
        }
        self.failures += 1;
        let doublings = self.failures.checked_sub(3)?;
        Some(Duration::from_secs(1 << doublings.min(6)).min(BRAKE_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_whose_command_does_not_work_slows_down() {
        let mut brake = Brake::default();
        let quick = Duration::from_millis(5);
        let pauses: Vec<Option<u64>> = (0..11)
            .map(|_| brake.after(&Verdict::Failed, quick).map(|pause| pause.as_secs()))
            .collect();
        let expected = [None, None, Some(1), Some(2), Some(4), Some(8), Some(16), Some(32)];
        assert_eq!(pauses[..8], expected);
        assert_eq!(pauses[8..], [Some(60); 3]);
        assert_eq!(
            brake.after(&Verdict::Failed, Duration::from_secs(9)),
            None,
            "it worked a while"
        );
        assert_eq!(brake.after(&Verdict::Failed, quick), None);
        assert_eq!(brake.after(&Verdict::Well, quick), None);
    }
}
