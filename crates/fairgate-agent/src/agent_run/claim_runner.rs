//! Runs one claim, from the start of its command to the gateway's response about its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fairgate_api::agents::{Claim, NeededResult};
use fairgate_api::fleet::TaskLine;
use fairgate_time::UnixMicros;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::claim_folder::{ClaimFolder, tokens_in};
use super::command_guard::CommandGuard;
use super::command_output::{CommandOutput, OutputStream};
use super::environment::{ClaimFiles, WITHHELD, prompt, variables};
use super::outcome::{CommandResult, RESULT_BYTES_MAX};
use super::process_group::ProcessGroup;
use super::secret_mask::SecretTexts;
use super::stop_signals::StopSignals;
use super::terminal_output::TerminalOutput;
use super::workspace_lock::{WorkspaceLock, WorkspaceLockError};
use crate::agent_api::{
    AgentApi, AgentApiError, ClaimEnd, ClaimId, ClaimLease, ClaimProgress, HeartbeatTask, LeaseEnd,
    RetryBackoff, StatusCallback,
};

/// Number of last lines of output that become the result of a task, or a part of the reason for a failure.
const LINES_MAX: usize = 40;
/// Time to wait for more output of a command that has ended.
const REST_OF_STREAMS: Duration = Duration::from_secs(1);
/// Time to wait for the rest of the log before the end is reported without it.
const REST_OF_LOG: Duration = Duration::from_secs(30);
/// Longest pause between two attempts to report the end.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Largest total size of the results of needed tasks that are written into files, in bytes.
const RESULTS_BYTES_MAX: u64 = 64 << 20;
/// Pause of a task whose workspace's folder is in use on this machine, in microseconds.
const IN_USE_PAUSE_MICROS: i64 = 10_000_000;
/// Longest time for giving a task back after the second signal.
const GIVE_BACK_TIME: Duration = Duration::from_secs(2);

/// Settings of one agent of `agent run` that all its claims share.
pub(super) struct ClaimRunner {
    pub(super) api: Arc<AgentApi>,
    /// Name of the agent.
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    pub(super) base_url: String,
    pub(super) token: String,
    pub(super) grace: Duration,
    /// Longest time that a command may take; `None` if there is no limit.
    pub(super) timeout: Option<Duration>,
    pub(super) say: StatusCallback,
    pub(super) stop: StopSignals,
    pub(super) terminal: TerminalOutput,
    /// Name before each line on the terminal; `None` if this is the only agent of the process.
    pub(super) prefix: Option<String>,
}

/// The result of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClaimRunResult {
    /// The task is completed, or waits for an answer or for a later time.
    Well,
    /// The task failed, or its command could not be started.
    Failed,
    /// The agent lost the claim on the task before the end.
    Lost,
    /// `agent run` was stopped by a signal.
    Stopped,
}

/// A running command, and everything that watches it.
struct RunningCommand<'a> {
    child: Child,
    group: ProcessGroup,
    printed: Arc<CommandOutput>,
    streams: Vec<JoinHandle<()>>,
    log: JoinHandle<()>,
    heartbeats: HeartbeatTask,
    guard: Option<CommandGuard>,
    /// Lock of the workspace's folder; `None` once the command has ended. It must be free before the end of the claim is
    /// reported, because the fleet may then give the workspace to another agent on this machine at once.
    workspace: Option<WorkspaceLock>,
    folder: &'a ClaimFolder,
    secrets: SecretTexts,
}

impl RunningCommand<'_> {
    /// Returns the output of the command and its files.
    fn result(&self) -> CommandResult<'_> {
        let (stdout, printed) = self.printed.last_lines(LINES_MAX);
        CommandResult {
            result: self.folder.result(RESULT_BYTES_MAX),
            stdout,
            printed,
            tokens: self.folder.tokens(),
            secrets: &self.secrets,
        }
    }
}

/// The time at which a command must have ended.
#[derive(Clone, Copy, Debug)]
struct CommandTimeout {
    at: Instant,
    seconds: u64,
    /// The setting that the timeout comes from, as a part of a sentence.
    whose: &'static str,
}

impl CommandTimeout {
    /// Returns the timeout of the task or of `agent run`, whichever ends first; `None` if there is
    /// neither. The task's timeout is counted from the claim, even if `agent run` was restarted
    /// since.
    fn of(claim: &Claim, lease: &ClaimLease, own: Option<Duration>) -> Option<Self> {
        let task = claim.timeout_at.map(|at| Self {
            at: lease.instant_of(at),
            seconds: claim.timeout_s.unwrap_or_default(),
            whose: "the task's timeout",
        });
        let own = own.map(|own| Self {
            at: Instant::now() + own,
            seconds: own.as_secs(),
            whose: "the --timeout of agent run",
        });
        task.into_iter().chain(own).min_by_key(|timeout| timeout.at)
    }

    /// Waits until the timeout is over; for ever if there is none.
    async fn wait(timeout: Option<Self>) -> Self {
        match timeout {
            Some(timeout) => {
                sleep_until(timeout.at).await;
                timeout
            }
            None => std::future::pending().await,
        }
    }
}

impl ClaimRunner {
    /// Runs the command for a claim. An error means that this agent cannot continue.
    pub(super) async fn run(&self, claim: &Claim, lease: ClaimLease) -> Result<ClaimRunResult> {
        let id = ClaimId::from(claim);
        let mut folder = match ClaimFolder::make(&prompt(claim))
            .context("no folder for the prompt can be made")
        {
            Ok(folder) => folder,
            Err(error) => {
                let reason = format!("the command was not started: {error:#}");
                return self.report(&id, ClaimEnd::failure(reason)).await;
            }
        };
        let workspace = match WorkspaceLock::of(claim) {
            Ok(lock) => lock,
            Err(problem) => return self.without_workspace(&id, problem, &lease).await,
        };
        if let Err(why) = self.fetch_results(claim, &mut folder).await {
            self.give_back(&id, &format!("the results of needed tasks cannot be read: {why}"))
                .await;
            return Ok(ClaimRunResult::Failed);
        }
        let timeout = CommandTimeout::of(claim, &lease, self.timeout);
        let mut running = match self.start(claim, lease, &folder, workspace) {
            Ok(running) => running,
            Err(error) => {
                // Not the task's fault: it goes to another agent without a failure.
                let why = format!("the agent cannot start its command: {error:#}");
                self.give_back(&id, &why).await;
                return Err(error);
            }
        };
        tokio::select! {
            status = running.child.wait() => {
                let status = status.context("the command cannot be waited for")?;
                self.finish(&id, running, status).await
            }
            end = running.heartbeats.wait_ended() => self.abandon(&id, running, end).await,
            timeout = CommandTimeout::wait(timeout) => self.time_out(&id, running, timeout).await,
            () = self.stop.wait_first() => {
                (self.say)(&format!("told to stop: task {} is given back", id.task));
                self.end_group(&mut running).await;
                self.rest_of_output(&mut running).await;
                self.give_back(&id, "agent run was told to stop").await;
                Ok(ClaimRunResult::Stopped)
            }
        }
    }

    /// Writes the results of needed tasks into files, as many as fit into [`RESULTS_BYTES_MAX`].
    async fn fetch_results(&self, claim: &Claim, folder: &mut ClaimFolder) -> Result<()> {
        let mut left = RESULTS_BYTES_MAX;
        for NeededResult { task, bytes } in &claim.results {
            let Some(rest) = left.checked_sub(*bytes) else {
                (self.say)(&format!(
                    "task {}: the result of {task} is left out, as the results of all needed tasks have \
                                     more than {RESULTS_BYTES_MAX} bytes",
                    claim.task
                ));
                continue;
            };
            left = rest;
            let result = self.api.needed_result(&claim.into(), task).await?;
            folder.put_needed_result(task, &result).context("a result cannot be written")?;
        }
        Ok(())
    }

    /// Gives back a task whose workspace cannot be used here. That is not the task's fault, so no failure is counted.
    async fn without_workspace(
        &self,
        id: &ClaimId,
        problem: WorkspaceLockError,
        lease: &ClaimLease,
    ) -> Result<ClaimRunResult> {
        let end = match problem {
            WorkspaceLockError::Missing(reason) => ClaimEnd::Release { reason, unfit: true },
            WorkspaceLockError::InUse(reason) => {
                let until = lease.server_now().0.saturating_add(IN_USE_PAUSE_MICROS);
                ClaimEnd::Fail { reason, limited_until: Some(UnixMicros(until)), tokens: None }
            }
        };
        let ended = self.report(id, end).await?;
        // An agent that can do nothing for its tasks must not claim them all in a second.
        Ok(if ended == ClaimRunResult::Well { ClaimRunResult::Failed } else { ended })
    }

    fn start<'a>(
        &self,
        claim: &Claim,
        lease: ClaimLease,
        folder: &'a ClaimFolder,
        workspace: WorkspaceLock,
    ) -> Result<RunningCommand<'a>> {
        let files = ClaimFiles {
            prompt: &folder.prompt,
            result: &folder.result,
            results: folder.results.as_deref(),
            tokens: &folder.tokens,
        };
        let [program, args @ ..] = self.command.as_slice() else { bail!("there is no command") };
        let mut command = Command::new(resolve_program(program));
        for name in WITHHELD {
            command.env_remove(name);
        }
        command
            .args(args)
            .envs(variables(claim, &files, &self.name, &self.base_url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(path) = &claim.workspace_path {
            command.current_dir(path);
        }
        let named = || format!("{} cannot be started", Path::new(program).display());
        let mut child = command.spawn().with_context(named)?;
        let group = child.id().and_then(ProcessGroup::of).context("the command has no number")?;
        let guard = CommandGuard::start(group, self.grace);
        if let Err(error) = &guard {
            (self.say)(&format!(
                "the command has no guard: were agent run killed, it would go on alone: {error}"
            ));
        }
        let secrets =
            SecretTexts::new([self.token.as_str()].into_iter().chain(claim.key.as_deref()));
        let printed = Arc::new(CommandOutput::new());
        let mut streams = Vec::new();
        if let Some(mut stdin) = child.stdin.take() {
            let text = prompt(claim);
            // A command need not read its prompt.
            tokio::spawn(async move { stdin.write_all(text.as_bytes()).await });
        }
        if let Some(stdout) = child.stdout.take() {
            let printed = printed.clone();
            let terminal = self.terminal.stream(OutputStream::Stdout, self.prefix.as_deref());
            let passing = printed.pass_on(OutputStream::Stdout, stdout, terminal, secrets.clone());
            streams.push(tokio::spawn(passing));
        }
        if let Some(stderr) = child.stderr.take() {
            let printed = printed.clone();
            let terminal = self.terminal.stream(OutputStream::Stderr, self.prefix.as_deref());
            let passing = printed.pass_on(OutputStream::Stderr, stderr, terminal, secrets.clone());
            streams.push(tokio::spawn(passing));
        }
        let sending = printed.clone().send_log(self.api.clone(), claim.into(), self.say.clone());
        let log = tokio::spawn(sending);
        let what = heartbeat_content(printed.clone(), folder.tokens.clone());
        let heartbeats =
            HeartbeatTask::start(self.api.clone(), claim, lease, what, self.say.clone());
        let guard = guard.ok();
        Ok(RunningCommand {
            child,
            group,
            printed,
            streams,
            log,
            heartbeats,
            guard,
            workspace: Some(workspace),
            folder,
            secrets,
        })
    }

    /// Reports the end of a command that was not stopped by `agent run`.
    async fn finish(
        &self,
        id: &ClaimId,
        mut running: RunningCommand<'_>,
        status: ExitStatus,
    ) -> Result<ClaimRunResult> {
        if running.group.is_alive() {
            // Processes left in the background would continue in a folder that another task gets.
            self.end_group(&mut running).await;
        }
        running.workspace = None;
        self.rest_of_output(&mut running).await;
        let end = running.result().end(status, running.heartbeats.server_now());
        // Heartbeats continue until the gateway has the end.
        self.report(id, end).await
    }

    /// Ends a command that has taken longer than it may, and reports that as a failure.
    async fn time_out(
        &self,
        id: &ClaimId,
        mut running: RunningCommand<'_>,
        timeout: CommandTimeout,
    ) -> Result<ClaimRunResult> {
        let CommandTimeout { seconds, whose, .. } = timeout;
        let what = format!("did not end within {seconds} s, {whose}");
        (self.say)(&format!("task {}: the command {what}; it is ended", id.task));
        self.end_group(&mut running).await;
        self.rest_of_output(&mut running).await;
        let end = running.result().failure(&what);
        self.report(id, end).await
    }

    /// Ends the command of a task whose claim was lost, and reports nothing to the gateway.
    async fn abandon(
        &self,
        id: &ClaimId,
        mut running: RunningCommand<'_>,
        end: LeaseEnd,
    ) -> Result<ClaimRunResult> {
        let why = match &end {
            LeaseEnd::Lost(why) => why.clone(),
            LeaseEnd::Expired(why) => {
                format!("the lease ran out while the gateway was away ({why})")
            }
            LeaseEnd::Refused(why) => format!("the gateway refuses this agent: {why}"),
        };
        (self.say)(&format!("task {} is abandoned and its command ended: {why}", id.task));
        running.log.abort();
        self.end_group(&mut running).await;
        match end {
            LeaseEnd::Refused(why) => bail!("{why}"),
            _ => Ok(ClaimRunResult::Lost),
        }
    }

    async fn end_group(&self, running: &mut RunningCommand<'_>) {
        let group = running.group;
        let end = group.end(self.grace, self.stop.wait_second());
        // The leader is a zombie until it is waited for, and a zombie counts as alive.
        tokio::join!(end, async {
            let _ = running.child.wait().await;
        });
        running.guard = None;
        running.workspace = None;
    }

    /// Waits a moment for the rest of the output, then for the log to arrive.
    async fn rest_of_output(&self, running: &mut RunningCommand<'_>) {
        let rest = async {
            for stream in &mut running.streams {
                let _ = stream.await;
            }
        };
        if timeout(REST_OF_STREAMS, rest).await.is_err() {
            // A process that left the group holds the streams open.
            running.streams.iter().for_each(JoinHandle::abort);
        }
        running.printed.close();
        let limit = if self.stop.is_stopping() { self.grace.min(REST_OF_LOG) } else { REST_OF_LOG };
        tokio::select! {
            sent = timeout(limit, &mut running.log) => {
                if sent.is_err() {
                    (self.say)("the end of the log could not be sent");
                }
            }
            () = self.stop.wait_second() => {}
        }
        running.log.abort();
    }

    /// Reports the end of a claim, with retries until the gateway has answered.
    async fn report(&self, id: &ClaimId, end: ClaimEnd) -> Result<ClaimRunResult> {
        let ended = self.send_end(id, &end);
        let line = tokio::select! {
            line = ended => line,
            () = self.out_of_time() => {
                (self.say)(&format!("the end of task {} could not be reported; its lease will run out", id.task));
                return Ok(ClaimRunResult::Stopped);
            }
        };
        match line {
            Ok(line) => {
                (self.say)(&outcome(&line, &end));
                let failed = matches!(&end, ClaimEnd::Fail { limited_until: None, .. });
                Ok(if failed { ClaimRunResult::Failed } else { ClaimRunResult::Well })
            }
            Err(AgentApiError::Lost(why)) => {
                (self.say)(&format!("the end of task {} came too late: {why}", id.task));
                Ok(ClaimRunResult::Lost)
            }
            // If nothing were reported, the next claim would return the same task. And the output of a command must not
            // end the agent: the task would go to the next agent, and end that one too.
            Err(error) if !is_plain(&end) => {
                let reason = format!("the gateway did not take the command's result: {error}");
                (self.say)(&format!("task {}: {reason}", id.task));
                Box::pin(self.report(id, ClaimEnd::failure(reason))).await
            }
            Err(error) => Err(anyhow!("task {} cannot be ended: {error}", id.task)),
        }
    }

    /// Sends the end of a claim again and again, until the gateway accepts or refuses it.
    async fn send_end(&self, id: &ClaimId, end: &ClaimEnd) -> Result<TaskLine, AgentApiError> {
        let mut backoff = RetryBackoff::new(PAUSE_MAX);
        loop {
            let why = match self.api.end(id, end).await {
                Err(
                    AgentApiError::Unavailable(why)
                    | AgentApiError::StoreUnavailable(why)
                    | AgentApiError::Paused(why),
                ) => why,
                answered => return answered,
            };
            let (pause, tell) = backoff.record_failure();
            if tell {
                (self.say)(&format!(
                    "the end of task {} cannot be reported now ({why}); trying again until it is",
                    id.task
                ));
            }
            sleep(pause).await;
        }
    }

    /// Gives a task back to the gateway. If that fails, the task's lease runs out by itself.
    async fn give_back(&self, id: &ClaimId, why: &str) {
        let end = ClaimEnd::Release { reason: why.to_owned(), unfit: false };
        let limit = self.grace.max(GIVE_BACK_TIME);
        let told = tokio::select! {
            told = timeout(limit, self.send_end(id, &end)) => told.ok(),
            () = async { self.stop.wait_second().await; sleep(GIVE_BACK_TIME).await } => None,
        };
        match told {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                (self.say)(&format!("task {} was not given back: {error}", id.task))
            }
            None => {
                (self.say)(&format!("task {} was not given back; its lease will run out", id.task))
            }
        }
    }

    /// Completes when reporting must end: after the grace period that the first signal starts, or 2 seconds after the
    /// second signal.
    async fn out_of_time(&self) {
        self.stop.wait_first().await;
        tokio::select! {
            () = sleep(self.grace.max(GIVE_BACK_TIME)) => {}
            () = async { self.stop.wait_second().await; sleep(GIVE_BACK_TIME).await } => {}
        }
    }
}

/// Resolves the program. A relative path with several components is looked up in the folder where `agent run` was
/// started; if it is not there, it may be in the workspace.
fn resolve_program(program: &OsString) -> PathBuf {
    let path = Path::new(program);
    let is_path = path.is_relative() && path.components().count() > 1;
    let here = is_path.then(|| std::path::absolute(path).ok()).flatten();
    here.filter(|here| here.is_file()).unwrap_or_else(|| path.to_owned())
}

/// Returns the content of a heartbeat: the last line of output, and the tokens that the command counted.
fn heartbeat_content(
    printed: Arc<CommandOutput>,
    tokens: PathBuf,
) -> impl Fn() -> ClaimProgress + Send + Sync {
    move || ClaimProgress { progress: printed.last_line(), tokens: tokens_in(&tokens) }
}

/// Returns true if the end is a failure that states neither a time to wait nor a number of tokens. These two values
/// come from the command, and the gateway may refuse them.
fn is_plain(end: &ClaimEnd) -> bool {
    matches!(end, ClaimEnd::Fail { limited_until: None, tokens: None, .. })
}

fn outcome(line: &TaskLine, end: &ClaimEnd) -> String {
    let id = &line.id;
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    match end {
        ClaimEnd::Complete { .. } => format!("task {id} is completed"),
        ClaimEnd::Ask { .. } => format!("task {id} waits for an answer"),
        ClaimEnd::Release { reason, .. } => {
            format!("task {id} is given back: {}", first_line(reason))
        }
        ClaimEnd::Fail { reason, .. } => {
            format!("task {id} is {} now: {}", line.state, first_line(reason))
        }
    }
}
