//! The current task of an MCP server: its claim, its heartbeats and its end.

use std::fs;
use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use fairgate_api::agents::{Claim, NeededResult, TaskLeaseBody};
use fairgate_api::fleet::{AddedTasks, NewTask, NewTasks, ProjectView, TaskExplanation, TaskLine};
use fairgate_time::UnixMicros;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::task_names::PlainTaskNames;
use super::tool_schemas::{
    AddTasksArguments, AskArguments, ClaimArguments, CompleteArguments, FailArguments,
    ProgressArguments, WhyArguments,
};
use crate::agent_api::{
    AgentApi, AgentApiError, ClaimEnd, ClaimId, ClaimLease, ClaimProgress, HeartbeatTask,
    PrivateFolder, RetryBackoff, StatusCallback,
};

/// Seconds that the tool `claim` waits for a task if its arguments state no wait.
const WAIT_S: u64 = 30;
const WAIT_S_MAX: u64 = 60;
/// Time for which a request is retried while the gateway does not answer.
const RETRY_TIME: Duration = Duration::from_secs(20);
/// Longest pause between two attempts of a request to the gateway.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The reason why a tool failed, as one sentence for the agent.
pub(super) type ToolError = String;

/// The one task that the agent holds, shared by all connections.
pub(super) struct McpSession {
    api: Arc<AgentApi>,
    say: StatusCallback,
    holding: Mutex<Option<HeldClaim>>,
    /// Task that the agent completed last, until it claims the next one.
    completed: StdMutex<Option<TaskLine>>,
    /// Time of the last call of a tool.
    called: StdMutex<Instant>,
}

struct HeldClaim {
    claim: Claim,
    heartbeats: HeartbeatTask,
    /// Content of the next heartbeat.
    doing: Arc<StdMutex<ClaimProgress>>,
    /// Folder with the task's key.
    folder: Option<PrivateFolder>,
    /// Plain names of the tasks that the agent has added.
    added: PlainTaskNames,
}

impl HeldClaim {
    fn id(&self) -> ClaimId {
        (&self.claim).into()
    }

    /// Returns the parts of the claim that the agent sees.
    fn view(&self) -> McpClaim {
        let Claim {
            task,
            project,
            tenant,
            epoch,
            title,
            prompt,
            results,
            question,
            answer,
            workspace,
            workspace_path,
            reserved,
            timeout_s,
            timeout_at,
            // The key must not get into a conversation, and the heartbeats are sent here.
            key: _,
            lease_until: _,
            heartbeat_s: _,
        } = self.claim.clone();
        McpClaim {
            claimed: true,
            task,
            project,
            tenant,
            epoch,
            title,
            prompt,
            results,
            question,
            answer,
            workspace,
            workspace_path,
            reserved,
            timeout_s,
            timeout_at,
            key_file: self.folder.as_ref().map(|folder| folder.path().join("key")),
        }
    }
}

/// A claim as the agent's conversation sees it.
#[derive(Debug, Serialize)]
pub(super) struct McpClaim {
    /// Always true. The answer to a call that got no task has only this field, with false.
    pub(super) claimed: bool,
    pub(super) task: String,
    pub(super) project: String,
    pub(super) tenant: String,
    pub(super) epoch: u64,
    pub(super) title: String,
    pub(super) prompt: String,
    pub(super) results: Vec<NeededResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) question: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace_path: Option<String>,
    pub(super) reserved: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_at: Option<UnixMicros>,
    /// File with the task's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_file: Option<PathBuf>,
}

impl McpSession {
    pub(super) fn new(api: Arc<AgentApi>, say: StatusCallback) -> Self {
        let called = StdMutex::new(Instant::now());
        let completed = StdMutex::default();
        Self { api, say, holding: Mutex::new(None), completed, called }
    }

    /// Records a call of a tool.
    pub(super) fn touch(&self) {
        *self.called.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns the time since the last call of a tool.
    pub(super) fn idle(&self) -> Duration {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(super) async fn claim(
        &self,
        arguments: ClaimArguments,
    ) -> Result<Option<McpClaim>, ToolError> {
        let wait_s = arguments.wait_s.unwrap_or(WAIT_S);
        if wait_s > WAIT_S_MAX {
            return Err(format!("wait_s is at most {WAIT_S_MAX}: claim again when it is over"));
        }
        let mut holding = self.holding.lock().await;
        // The gateway is asked even if a task is held: the agent may have lost it.
        let wait = Duration::from_secs(if holding.is_some() { 0 } else { wait_s });
        let given = retry_until_answered(|| self.api.claim(wait)).await.map_err(sentence)?;
        let Some((claim, lease)) = given else {
            *holding = None;
            return Ok(None);
        };
        let same = holding.as_ref().is_some_and(|held| {
            held.id() == ClaimId::from(&claim) && held.heartbeats.end().is_none()
        });
        if !same {
            *holding = Some(self.hold(claim, lease)?);
            self.set_completed(None);
        }
        Ok(holding.as_ref().map(HeldClaim::view))
    }

    /// Starts the heartbeats of a claim.
    fn hold(&self, claim: Claim, lease: ClaimLease) -> Result<HeldClaim, ToolError> {
        let doing = Arc::new(StdMutex::new(ClaimProgress::default()));
        let said = doing.clone();
        let what = move || said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let heartbeats =
            HeartbeatTask::start(self.api.clone(), &claim, lease, what, self.say.clone());
        let folder = claim.key.as_deref().map(with_key).transpose();
        let folder = folder.map_err(|error| format!("the task's key cannot be kept: {error}"))?;
        let added = PlainTaskNames::default();
        Ok(HeldClaim { claim, heartbeats, doing, folder, added })
    }

    pub(super) async fn progress(
        &self,
        arguments: ProgressArguments,
    ) -> Result<TaskLeaseBody, ToolError> {
        let mut holding = self.holding.lock().await;
        let Some(held) = holding.as_mut() else { return Err(nothing_held()) };
        let said = ClaimProgress { progress: Some(arguments.text), tokens: arguments.tokens };
        *held.doing.lock().unwrap_or_else(PoisonError::into_inner) = said.clone();
        let id = held.id();
        let answer = self.api.heartbeat(&id, &said, Duration::from_secs(10)).await;
        match answer {
            Ok((now, lease)) => {
                if held.heartbeats.end().is_some() {
                    // The gateway was unreachable for a whole lease, and no other agent took the task.
                    let claim = held.claim.clone();
                    let added = mem::take(&mut held.added);
                    *held = HeldClaim { added, ..self.hold(claim, lease)? };
                }
                Ok(now)
            }
            Err(error) => {
                if matches!(error, AgentApiError::Lost(_)) {
                    *holding = None;
                }
                Err(sentence(error))
            }
        }
    }

    pub(super) async fn ask(&self, arguments: AskArguments) -> Result<TaskLine, ToolError> {
        let AskArguments { question, tokens } = arguments;
        self.end(|_| ClaimEnd::Ask { question, tokens }).await
    }

    pub(super) async fn complete(
        &self,
        arguments: CompleteArguments,
    ) -> Result<TaskLine, ToolError> {
        let CompleteArguments { result, tokens } = arguments;
        // An agent that lost the first answer asks again, and must not get the error that it holds
        // no task.
        if self.holding.lock().await.is_none()
            && let Some(line) =
                self.completed.lock().unwrap_or_else(PoisonError::into_inner).clone()
        {
            return Ok(line);
        }
        let result = Some(result).filter(|result| !result.is_empty());
        let line = self.end(|_| ClaimEnd::Complete { result, tokens }).await?;
        self.set_completed(Some(line.clone()));
        Ok(line)
    }

    fn set_completed(&self, line: Option<TaskLine>) {
        *self.completed.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    pub(super) async fn fail(&self, arguments: FailArguments) -> Result<TaskLine, ToolError> {
        let FailArguments { reason, retry_after_s, tokens } = arguments;
        self.end(|now| {
            let limited_until = retry_after_s.map(|seconds| {
                let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
                UnixMicros(now.0.saturating_add(micros))
            });
            ClaimEnd::Fail { reason, limited_until, tokens }
        })
        .await
    }

    /// Ends the current claim. `how` builds the end from the gateway's current time.
    async fn end(&self, how: impl FnOnce(UnixMicros) -> ClaimEnd) -> Result<TaskLine, ToolError> {
        let mut holding = self.holding.lock().await;
        let Some(held) = holding.as_ref() else { return Err(nothing_held()) };
        let (id, end) = (held.id(), how(held.heartbeats.server_now()));
        let answer = retry_until_answered(|| self.api.end(&id, &end)).await;
        if matches!(answer, Ok(_) | Err(AgentApiError::Lost(_))) {
            *holding = None;
        }
        answer.map_err(sentence)
    }

    pub(super) async fn add_tasks(
        &self,
        arguments: AddTasksArguments,
    ) -> Result<AddedTasks, ToolError> {
        let mut holding = self.holding.lock().await;
        let Some(held) = holding.as_mut() else { return Err(nothing_held()) };
        let mut tasks = Vec::new();
        for (place, mut task) in arguments.tasks.into_iter().enumerate() {
            let own = json!(held.claim.project);
            if task.get("project").is_some_and(|project| *project != own) {
                return Err(format!(
                    "tasks[{place}].project: must be {own}, the project of your task, or absent"
                ));
            }
            task.insert("project".to_owned(), own);
            let task: Result<NewTask, _> = serde_json::from_value(Value::Object(task));
            tasks.push(task.map_err(|error| format!("tasks[{place}]: {error}"))?);
        }
        let names = held.added.complete(&held.claim.project, &mut tasks);
        let new = NewTasks { tasks, dry_run: arguments.dry_run };
        let added = self.api.add_tasks(&new).await.map_err(sentence)?;
        if !added.dry_run {
            held.added.remember(names);
        }
        Ok(added)
    }

    pub(super) async fn why(&self, arguments: WhyArguments) -> Result<TaskExplanation, ToolError> {
        let task = {
            let holding = self.holding.lock().await;
            match (arguments.task, holding.as_ref()) {
                (Some(task), Some(held)) => held.added.full(&held.claim.project, &task),
                (Some(task), None) => task,
                (None, Some(held)) => held.claim.task.clone(),
                (None, None) => return Err(nothing_held()),
            }
        };
        retry_until_answered(|| self.api.why(&task)).await.map_err(sentence)
    }

    pub(super) async fn my_share(&self) -> Result<ProjectView, ToolError> {
        retry_until_answered(|| self.api.share()).await.map_err(sentence)
    }

    /// Gives the current task back, if there is one.
    pub(super) async fn release(&self, why: &str) {
        let Some(held) = self.holding.lock().await.take() else { return };
        let end = ClaimEnd::Release { reason: why.to_owned(), unfit: false };
        let id = held.id();
        match retry_until_answered(|| self.api.end(&id, &end)).await {
            Ok(_) => (self.say)(&format!("task {} is given back: {why}", id.task)),
            Err(error) => (self.say)(&format!("task {} was not given back: {error}", id.task)),
        }
    }
}

/// Repeats a request until the gateway answers it, for at most [`RETRY_TIME`].
async fn retry_until_answered<T, F>(call: impl Fn() -> F) -> Result<T, AgentApiError>
where
    F: Future<Output = Result<T, AgentApiError>>,
{
    let mut backoff = RetryBackoff::new(PAUSE_MAX);
    let start = Instant::now();
    loop {
        match call().await {
            Err(AgentApiError::Unavailable(_) | AgentApiError::StoreUnavailable(_))
                if start.elapsed() < RETRY_TIME =>
            {
                sleep(backoff.record_failure().0).await;
            }
            answered => return answered,
        }
    }
}

/// Creates a folder with the task's key in it.
fn with_key(key: &str) -> std::io::Result<PrivateFolder> {
    let folder = PrivateFolder::make()?;
    fs::write(folder.path().join("key"), key)?;
    Ok(folder)
}

fn nothing_held() -> ToolError {
    "you hold no task: call claim first".to_owned()
}

fn sentence(error: AgentApiError) -> ToolError {
    match error {
        AgentApiError::Unavailable(why) | AgentApiError::StoreUnavailable(why) => {
            format!("the gateway does not answer now ({why}); call again")
        }
        AgentApiError::Lost(why) => format!("{why}. Stop working on it, and claim another task"),
        AgentApiError::Paused(why) => format!("{why}: no tasks until a person resumes it"),
        AgentApiError::Refused { .. } => error.to_string(),
    }
}

/// Gives the task back at the end of the process. Gives up after five seconds.
pub(super) async fn last_release(session: &McpSession, why: &str) {
    let _ = timeout(Duration::from_secs(5), session.release(why)).await;
}
