//! One claim, from the start of its command to the word that the gateway has of its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use fairgate_fleet::{Claim, Failure, Heartbeat, Release, TaskLine};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::environment::{Files, WITHHELD, prompt, variables};
use super::folder::{ClaimFolder, tokens_in};
use super::group::Group;
use super::guard::Guard;
use super::mask::Secrets;
use super::outcome::{Left, RESULT_BYTES_MAX};
use super::printed::{Printed, Stream};
use super::stop::Stop;
use crate::agent_api::{
    AgentApi, Backoff, CallError, ClaimId, End, Heartbeats, Lease, LeaseEnd, Say,
};

/// How many of the last lines are the result, or part of a reason.
const LINES_MAX: usize = 40;
/// How long the streams of a command that has ended may still bring something.
const REST_OF_STREAMS: Duration = Duration::from_secs(1);
/// How long the rest of the log may take, before the end is reported without it.
const REST_OF_LOG: Duration = Duration::from_secs(30);
/// The longest pause between two attempts to report the end.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long giving a task back may take after the second signal.
const LAST_WORD: Duration = Duration::from_secs(2);

/// What is the same for all claims.
pub(super) struct Work {
    pub(super) api: Arc<AgentApi>,
    pub(super) command: Vec<OsString>,
    pub(super) base_url: String,
    pub(super) token: String,
    pub(super) grace: Duration,
    pub(super) say: Say,
    pub(super) stop: Stop,
}

/// What became of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its task is completed, waits for an answer, or waits for a moment.
    Well,
    /// It failed.
    Failed,
    /// The task is not this agent's any more.
    Lost,
    /// `agent run` was told to stop.
    Stopped,
}

/// A command that runs, and all that looks after it.
struct Running<'a> {
    child: Child,
    group: Group,
    printed: Arc<Printed>,
    streams: Vec<JoinHandle<()>>,
    log: JoinHandle<()>,
    heartbeats: Heartbeats,
    guard: Option<Guard>,
    folder: &'a ClaimFolder,
    secrets: Secrets,
}

impl Work {
    /// Runs the command for a claim. An error means that this agent cannot go on.
    pub(super) async fn run(&self, claim: &Claim, lease: Lease) -> Result<Verdict> {
        let id = ClaimId::from(claim);
        let folder = match workplace(claim) {
            Ok(folder) => folder,
            Err(error) => {
                let reason = Some(format!("the command was not started: {error:#}"));
                let failure = Failure { reason, ..Failure::default() };
                return self.report(&id, End::Fail(failure)).await;
            }
        };
        let mut running = match self.start(claim, lease, &folder) {
            Ok(running) => running,
            Err(error) => {
                // Not the task's fault: it goes to another agent unharmed.
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
            end = running.heartbeats.ended() => self.abandon(&id, running, end).await,
            () = self.stop.told() => {
                (self.say)(&format!("told to stop: task {} is given back", id.task));
                self.end_group(&mut running).await;
                self.rest_of_output(&mut running).await;
                self.give_back(&id, "agent run was told to stop").await;
                Ok(Verdict::Stopped)
            }
        }
    }

    fn start<'a>(
        &self,
        claim: &Claim,
        lease: Lease,
        folder: &'a ClaimFolder,
    ) -> Result<Running<'a>> {
        let files =
            Files { prompt: &folder.prompt, result: &folder.result, tokens: &folder.tokens };
        let [program, args @ ..] = self.command.as_slice() else { bail!("there is no command") };
        let mut command = Command::new(program);
        for name in WITHHELD {
            command.env_remove(name);
        }
        command
            .args(args)
            .envs(variables(claim, &files, &self.base_url))
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
        let group = child.id().and_then(Group::of).context("the command has no number")?;
        let guard = Guard::start(group, self.grace);
        if let Err(error) = &guard {
            (self.say)(&format!(
                "the command has no guard: were agent run killed, it would go on alone: {error}"
            ));
        }
        let secrets = Secrets::new([self.token.as_str()].into_iter().chain(claim.key.as_deref()));
        let printed = Arc::new(Printed::new());
        let mut streams = Vec::new();
        if let Some(mut stdin) = child.stdin.take() {
            let text = prompt(claim);
            // A command that does not read its prompt is free not to.
            tokio::spawn(async move { stdin.write_all(text.as_bytes()).await });
        }
        if let Some(stdout) = child.stdout.take() {
            let printed = printed.clone();
            let passing =
                printed.pass_on(Stream::Stdout, stdout, tokio::io::stdout(), secrets.clone());
            streams.push(tokio::spawn(passing));
        }
        if let Some(stderr) = child.stderr.take() {
            let printed = printed.clone();
            let passing =
                printed.pass_on(Stream::Stderr, stderr, tokio::io::stderr(), secrets.clone());
            streams.push(tokio::spawn(passing));
        }
        let sending = printed.clone().send_log(self.api.clone(), claim.into(), self.say.clone());
        let log = tokio::spawn(sending);
        let what = what_it_does(printed.clone(), folder.tokens.clone());
        let heartbeats = Heartbeats::start(self.api.clone(), claim, lease, what, self.say.clone());
        let guard = guard.ok();
        Ok(Running { child, group, printed, streams, log, heartbeats, guard, folder, secrets })
    }

    /// The command has ended by itself.
    async fn finish(
        &self,
        id: &ClaimId,
        mut running: Running<'_>,
        status: ExitStatus,
    ) -> Result<Verdict> {
        if running.group.is_alive() {
            // What it left running in the background would go on in a folder that is somebody else's.
            self.end_group(&mut running).await;
        }
        self.rest_of_output(&mut running).await;
        let (stdout, printed) = running.printed.last_lines(LINES_MAX);
        let left = Left {
            result: running.folder.result(RESULT_BYTES_MAX),
            stdout,
            printed,
            tokens: running.folder.tokens(),
            secrets: &running.secrets,
        };
        let end = left.end(status, running.heartbeats.server_now());
        // The signs of life go on until the end is known.
        self.report(id, end).await
    }

    /// The task is not this agent's any more: its command ends, and nothing is said of it.
    async fn abandon(
        &self,
        id: &ClaimId,
        mut running: Running<'_>,
        end: LeaseEnd,
    ) -> Result<Verdict> {
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
            _ => Ok(Verdict::Lost),
        }
    }

    async fn end_group(&self, running: &mut Running<'_>) {
        let group = running.group;
        let end = group.end(self.grace, self.stop.told_twice());
        // The leader is a zombie until it is waited for, and a zombie counts as alive.
        tokio::join!(end, async {
            let _ = running.child.wait().await;
        });
        running.guard = None;
    }

    /// Waits a moment for what the streams still bring, then for the log to arrive.
    async fn rest_of_output(&self, running: &mut Running<'_>) {
        let rest = async {
            for stream in &mut running.streams {
                let _ = stream.await;
            }
        };
        if timeout(REST_OF_STREAMS, rest).await.is_err() {
            // Somebody left the process group and holds them open.
            running.streams.iter().for_each(JoinHandle::abort);
        }
        running.printed.close();
        let limit = if self.stop.is_told() { self.grace.min(REST_OF_LOG) } else { REST_OF_LOG };
        tokio::select! {
            sent = timeout(limit, &mut running.log) => {
                if sent.is_err() {
                    (self.say)("the end of the log could not be sent");
                }
            }
            () = self.stop.told_twice() => {}
        }
        running.log.abort();
    }

    /// Tells the gateway how a claim ended, until it has answered.
    async fn report(&self, id: &ClaimId, end: End) -> Result<Verdict> {
        let ended = self.tell(id, &end);
        let line = tokio::select! {
            line = ended => line,
            () = self.out_of_time() => {
                (self.say)(&format!("the end of task {} could not be reported; its lease will run out", id.task));
                return Ok(Verdict::Stopped);
            }
        };
        match line {
            Ok(line) => {
                (self.say)(&outcome(&line, &end));
                let failed = matches!(&end, End::Fail(failure) if failure.limited_until.is_none());
                Ok(if failed { Verdict::Failed } else { Verdict::Well })
            }
            Err(CallError::Lost(why)) => {
                (self.say)(&format!("the end of task {} came too late: {why}", id.task));
                Ok(Verdict::Lost)
            }
            // Were nothing said, the next claim would give the same task again.
            Err(error) if !matches!(end, End::Fail(_)) => {
                let reason = format!("the gateway did not take the command's result: {error}");
                (self.say)(&format!("task {}: {reason}", id.task));
                let failure = Failure { reason: Some(reason), ..Failure::default() };
                Box::pin(self.report(id, End::Fail(failure))).await
            }
            Err(error) => Err(anyhow!("task {} cannot be ended: {error}", id.task)),
        }
    }

    /// Makes the call until it is answered.
    async fn tell(&self, id: &ClaimId, end: &End) -> Result<TaskLine, CallError> {
        let mut backoff = Backoff::new(PAUSE_MAX);
        loop {
            let why = match self.api.end(id, end).await {
                Err(CallError::Away(why) | CallError::Paused(why)) => why,
                answered => return answered,
            };
            let (pause, tell) = backoff.failed();
            if tell {
                (self.say)(&format!(
                    "the end of task {} cannot be reported now ({why}); trying again until it is",
                    id.task
                ));
            }
            sleep(pause).await;
        }
    }

    /// Gives a task back. Where that does not work, its lease runs out by itself.
    async fn give_back(&self, id: &ClaimId, why: &str) {
        let end = End::Release(Release { reason: Some(why.to_owned()) });
        let limit = self.grace.max(LAST_WORD);
        let told = tokio::select! {
            told = timeout(limit, self.tell(id, &end)) => told.ok(),
            () = async { self.stop.told_twice().await; sleep(LAST_WORD).await } => None,
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

    /// Done when reporting has to end: a grace after the first signal, a moment after the second.
    async fn out_of_time(&self) {
        self.stop.told().await;
        tokio::select! {
            () = sleep(self.grace.max(LAST_WORD)) => {}
            () = async { self.stop.told_twice().await; sleep(LAST_WORD).await } => {}
        }
    }
}

/// The claim's folder, once it is clear that the workspace is there.
fn workplace(claim: &Claim) -> Result<ClaimFolder> {
    if let Some(path) = &claim.workspace_path
        && !Path::new(path).is_dir()
    {
        let workspace = claim.workspace.as_deref().unwrap_or("of the task");
        bail!("the folder {path} of workspace {workspace} is not on this machine");
    }
    ClaimFolder::make(&prompt(claim)).context("no folder for the prompt can be made")
}

/// What a sign of life says: the last line that was printed, and the tokens that the command counted.
fn what_it_does(printed: Arc<Printed>, tokens: PathBuf) -> impl Fn() -> Heartbeat + Send + Sync {
    move || Heartbeat { progress: printed.last_line(), tokens: tokens_in(&tokens) }
}

fn outcome(line: &TaskLine, end: &End) -> String {
    let id = &line.id;
    let first_line = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or("for no reason that was said");
        text.lines().next().unwrap_or_default().to_owned()
    };
    match end {
        End::Complete(_) => format!("task {id} is completed"),
        End::Ask(_) => format!("task {id} waits for an answer"),
        End::Release(_) => format!("task {id} is given back"),
        End::Fail(failure) => {
            format!("task {id} is {} now: {}", line.state, first_line(&failure.reason))
        }
    }
}
