//! The command `fairgate agent run`, which claims tasks and runs a command for each task.

mod agent_loop;
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
mod terminal_output;
mod workspace_lock;

use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use tokio::task::{Id, JoinError, JoinSet};

pub use command_guard::{GuardArgs, run as run_guard};

use crate::agent_api::{AgentApi, AgentArgs, StatusCallback};
use claim_runner::ClaimRunner;
use fairgate_journal::explain_text::{counted, one_line};
use stop_signals::StopSignals;
use terminal_output::TerminalOutput;

/// Claim tasks and run a command for each of them, one at a time, until stopped.
///
/// The command runs in the task's workspace (else in the current folder) with the prompt on its standard input. Its
/// environment has: FAIRGATE_TASK, FAIRGATE_PROJECT, FAIRGATE_EPOCH, FAIRGATE_TITLE, FAIRGATE_PROMPT (up to 64 KiB),
/// FAIRGATE_PROMPT_FILE, FAIRGATE_AGENT, FAIRGATE_QUESTION and FAIRGATE_ANSWER if the task asked a question before, and the address and
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
pub struct AgentRunArgs {
    #[command(flatten)]
    agent: AgentArgs,
    /// Run this many agents, each with its own task at a time: NAME-1, NAME-2 and so on, as
    /// `fairgate agent add NAME --count N` adds them. Their tokens are given in this order, separated by spaces or line
    /// ends. Each line of output begins with the name of its agent. If one agent cannot continue, the others do, and the
    /// status is 1 in the end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    count: Option<u16>,
    /// End after one task; with --count, after one task of each agent.
    #[arg(long, conflicts_with = "max_tasks")]
    once: bool,
    /// End after this number of tasks; with --count, of each agent. Default: no end.
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

/// Runs until a signal stops the agents, or until each has done the given number of tasks.
pub fn run(args: &AgentRunArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(run_agents(args));
    // A terminal that no one reads must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

/// Runs all agents of this process. If one of several agents cannot continue, this is reported at
/// once, the other agents continue, and the result is an error when all have ended.
async fn run_agents(args: &AgentRunArgs) -> Result<()> {
    let (stop, terminal) = (StopSignals::listen()?, TerminalOutput::new());
    let most = if args.once { Some(1) } else { args.max_tasks };
    // All options are checked before the first agent claims a task.
    let runners: Vec<ClaimRunner> = args
        .agent
        .agents(args.count)?
        .iter()
        .map(|agent| claim_runner(args, agent, &stop, &terminal))
        .collect::<Result<_>>()?;
    let mut agents = JoinSet::new();
    let mut names: Vec<(Id, String)> = Vec::new();
    for runner in runners {
        let name = runner.name.clone();
        names.push((agents.spawn(agent_loop::run_tasks(runner, most)).id(), name));
    }
    let mut failed = Vec::new();
    while let Some(ended) = agents.join_next_with_id().await {
        let Some((id, error)) = failure(ended) else { continue };
        if args.count.is_none() {
            return Err(error);
        }
        let name = names.iter().find(|(of, _)| *of == id).map_or("", |(_, name)| name);
        let others = match agents.len() {
            0 => "no other agent is left".to_owned(),
            1 => "1 other agent goes on".to_owned(),
            others => format!("{others} other agents go on"),
        };
        print_status(Some(name), &format!("this agent ends: {error:#}; {others}"));
        failed.push(name);
    }
    if failed.is_empty() {
        return Ok(());
    }
    let all = counted(args.count.unwrap_or(1), "agent");
    bail!("{} of {all} could not continue: {}", failed.len(), failed.join(", "))
}

/// Returns the error of an agent that could not continue; `None` if it ended as it should.
fn failure(ended: Result<(Id, Result<()>), JoinError>) -> Option<(Id, anyhow::Error)> {
    match ended {
        Ok((_, Ok(()))) => None,
        Ok((id, Err(error))) => Some((id, error)),
        Err(error) => Some((error.id(), anyhow!("a bug of fairgate: {error}"))),
    }
}

fn claim_runner(
    args: &AgentRunArgs,
    agent: &AgentArgs,
    stop: &StopSignals,
    terminal: &TerminalOutput,
) -> Result<ClaimRunner> {
    let prefix = args.count.map(|_| agent.name().to_owned());
    let shown = prefix.clone();
    let say: StatusCallback = Arc::new(move |text: &str| print_status(shown.as_deref(), text));
    Ok(ClaimRunner {
        api: Arc::new(AgentApi::new(agent)?),
        name: agent.name().to_owned(),
        command: args.command.clone(),
        base_url: agent.base_url(),
        token: agent.token().to_owned(),
        grace: Duration::from_secs(args.grace),
        timeout: args.timeout.map(Duration::from_secs),
        say,
        stop: stop.clone(),
        terminal: terminal.clone(),
        prefix,
    })
}

/// Prints a message of `agent run`, with the agent's name if there are several agents.
fn print_status(agent: Option<&str>, text: &str) {
    // The text may repeat something that another program wrote.
    let text = one_line(text);
    let _ = match agent {
        Some(agent) => writeln!(io::stderr(), "fairgate: [{agent}] {text}"),
        None => writeln!(io::stderr(), "fairgate: {text}"),
    };
}
