//! The task in hand: claimed, kept alive, ended.

use std::fs;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use fairgate_fleet::{
    AddedTasks, Claim, Completion, Failure, Heartbeat, Held, NewTasks, ProjectView, Question,
    Release, TaskLine, Why,
};
use fairgate_money::UnixMicros;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::tools::{
    AddTasksArguments, AskArguments, ClaimArguments, CompleteArguments, FailArguments,
    ProgressArguments, WhyArguments,
};
use crate::agent_api::{
    AgentApi, Backoff, CallError, ClaimId, End, Heartbeats, Lease, PrivateFolder, Say,
};

/// How long a claim waits where the agent does not say, and at most, in seconds.
const WAIT_S: u64 = 30;
const WAIT_S_MAX: u64 = 60;
/// How long a call may be tried again while the gateway does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Why a tool did not do what it should, as one sentence for the agent.
pub(super) type Refused = String;

/// The one task that the agent holds, whoever asks.
pub(super) struct Desk {
    api: Arc<AgentApi>,
    say: Say,
    holding: Mutex<Option<Holding>>,
    /// When a tool was last called.
    called: StdMutex<Instant>,
}

struct Holding {
    claim: Claim,
    heartbeats: Heartbeats,
    /// What the next sign of life says.
    doing: Arc<StdMutex<Heartbeat>>,
    /// Has the task's key.
    folder: Option<PrivateFolder>,
}

impl Holding {
    fn id(&self) -> ClaimId {
        (&self.claim).into()
    }
}

impl Desk {
    pub(super) fn new(api: Arc<AgentApi>, say: Say) -> Self {
        let called = StdMutex::new(Instant::now());
        Self { api, say, holding: Mutex::new(None), called }
    }

    /// Notes that somebody is there.
    pub(super) fn touch(&self) {
        *self.called.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long nobody called.
    pub(super) fn idle(&self) -> Duration {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(super) async fn claim(&self, arguments: ClaimArguments) -> Result<Option<Value>, Refused> {
        let wait_s = arguments.wait_s.unwrap_or(WAIT_S);
        if wait_s > WAIT_S_MAX {
            return Err(format!("wait_s is at most {WAIT_S_MAX}: claim again when it is over"));
        }
        let mut holding = self.holding.lock().await;
        // Asked of the gateway even where a task is in hand: it may be somebody else's by now.
        let wait = Duration::from_secs(if holding.is_some() { 0 } else { wait_s });
        let given = until_answered(|| self.api.claim(wait)).await.map_err(sentence)?;
        let Some((claim, lease)) = given else {
            *holding = None;
            return Ok(None);
        };
        let same = holding.as_ref().is_some_and(|held| {
            held.id() == ClaimId::from(&claim) && held.heartbeats.end().is_none()
        });
        if !same {
            *holding = Some(self.hold(claim, lease)?);
        }
        Ok(holding.as_ref().map(shown))
    }

    /// Keeps a claim alive from now on.
    fn hold(&self, claim: Claim, lease: Lease) -> Result<Holding, Refused> {
        let doing = Arc::new(StdMutex::new(Heartbeat::default()));
        let said = doing.clone();
        let what = move || said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let heartbeats = Heartbeats::start(self.api.clone(), &claim, lease, what, self.say.clone());
        let folder = claim.key.as_deref().map(with_key).transpose();
        let folder = folder.map_err(|error| format!("the task's key cannot be kept: {error}"))?;
        Ok(Holding { claim, heartbeats, doing, folder })
    }

    pub(super) async fn progress(&self, arguments: ProgressArguments) -> Result<Held, Refused> {
        let mut holding = self.holding.lock().await;
        let Some(held) = holding.as_mut() else { return Err(nothing_held()) };
        let said = Heartbeat { progress: Some(arguments.text), tokens: arguments.tokens };
        *held.doing.lock().unwrap_or_else(PoisonError::into_inner) = said.clone();
        let id = held.id();
        let answer = self.api.heartbeat(&id, &said, Duration::from_secs(10)).await;
        match answer {
            Ok((now, lease)) => {
                if held.heartbeats.end().is_some() {
                    // The gateway was away for a whole lease, and nobody took the task meanwhile.
                    let claim = held.claim.clone();
                    *held = self.hold(claim, lease)?;
                }
                Ok(now)
            }
            Err(error) => {
                if matches!(error, CallError::Lost(_)) {
                    *holding = None;
                }
                Err(sentence(error))
            }
        }
    }

    pub(super) async fn ask(&self, arguments: AskArguments) -> Result<TaskLine, Refused> {
        let AskArguments { question, tokens } = arguments;
        self.end(|_| End::Ask(Question { question, tokens })).await
    }

    pub(super) async fn complete(&self, arguments: CompleteArguments) -> Result<TaskLine, Refused> {
        let CompleteArguments { result, tokens } = arguments;
        let result = Some(result).filter(|result| !result.is_empty());
        self.end(|_| End::Complete(Completion { result, tokens })).await
    }

    pub(super) async fn fail(&self, arguments: FailArguments) -> Result<TaskLine, Refused> {
        let FailArguments { reason, retry_after_s, tokens } = arguments;
        self.end(|now| {
            let limited_until = retry_after_s.map(|seconds| {
                let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
                UnixMicros(now.0.saturating_add(micros))
            });
            End::Fail(Failure { reason: Some(reason), limited_until, tokens })
        })
        .await
    }

    /// Ends the claim in hand. `how` is told the server's time.
    async fn end(&self, how: impl FnOnce(UnixMicros) -> End) -> Result<TaskLine, Refused> {
        let mut holding = self.holding.lock().await;
        let Some(held) = holding.as_ref() else { return Err(nothing_held()) };
        let (id, end) = (held.id(), how(held.heartbeats.server_now()));
        let answer = until_answered(|| self.api.end(&id, &end)).await;
        if matches!(answer, Ok(_) | Err(CallError::Lost(_))) {
            *holding = None;
        }
        answer.map_err(sentence)
    }

    pub(super) async fn add_tasks(
        &self,
        arguments: AddTasksArguments,
    ) -> Result<AddedTasks, Refused> {
        let holding = self.holding.lock().await;
        let Some(held) = holding.as_ref() else { return Err(nothing_held()) };
        let mut tasks = Vec::new();
        for (place, mut task) in arguments.tasks.into_iter().enumerate() {
            task.insert("project".to_owned(), json!(held.claim.project));
            let task = serde_json::from_value(Value::Object(task));
            tasks.push(task.map_err(|error| format!("tasks[{place}]: {error}"))?);
        }
        let new = NewTasks { tasks, dry_run: arguments.dry_run };
        self.api.add_tasks(&new).await.map_err(sentence)
    }

    pub(super) async fn why(&self, arguments: WhyArguments) -> Result<Why, Refused> {
        let task = match arguments.task {
            Some(task) => task,
            None => {
                let holding = self.holding.lock().await;
                holding.as_ref().ok_or_else(nothing_held)?.claim.task.clone()
            }
        };
        until_answered(|| self.api.why(&task)).await.map_err(sentence)
    }

    pub(super) async fn my_share(&self) -> Result<ProjectView, Refused> {
        until_answered(|| self.api.share()).await.map_err(sentence)
    }

    /// Gives the task in hand back, where there is one.
    pub(super) async fn release(&self, why: &str) {
        let Some(held) = self.holding.lock().await.take() else { return };
        let end = End::Release(Release { reason: Some(why.to_owned()) });
        let id = held.id();
        match until_answered(|| self.api.end(&id, &end)).await {
            Ok(_) => (self.say)(&format!("task {} is given back: {why}", id.task)),
            Err(error) => (self.say)(&format!("task {} was not given back: {error}", id.task)),
        }
    }
}

/// Makes a call until it is answered, for a while.
async fn until_answered<T, F>(call: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut backoff = Backoff::new(PAUSE_MAX);
    let start = Instant::now();
    loop {
        match call().await {
            Err(CallError::Away(_)) if start.elapsed() < PATIENCE => {
                sleep(backoff.failed().0).await;
            }
            answered => return answered,
        }
    }
}

/// A folder with the task's key in it.
fn with_key(key: &str) -> std::io::Result<PrivateFolder> {
    let folder = PrivateFolder::make()?;
    fs::write(folder.path().join("key"), key)?;
    Ok(folder)
}

/// What an agent is shown of its claim: not the key, which belongs into no conversation.
fn shown(held: &Holding) -> Value {
    let mut claim = serde_json::to_value(&held.claim).unwrap_or_default();
    if let Value::Object(fields) = &mut claim {
        fields.remove("key");
        fields.remove("heartbeat_s");
        fields.remove("lease_until");
        fields.retain(|_, value| !value.is_null());
        if let Some(folder) = &held.folder {
            fields.insert("key_file".to_owned(), json!(folder.path().join("key")));
        }
    }
    claim
}

fn nothing_held() -> Refused {
    "you hold no task: call claim first".to_owned()
}

fn sentence(error: CallError) -> Refused {
    match error {
        CallError::Away(why) => format!("the gateway does not answer now ({why}); call again"),
        CallError::Lost(why) => format!("{why}. Stop working on it, and claim another task"),
        CallError::Paused(why) => format!("{why}: no tasks until a person resumes it"),
        CallError::Refused { .. } => error.to_string(),
    }
}

/// How long giving a task back may take when everything ends.
pub(super) async fn last_release(desk: &Desk, why: &str) {
    let _ = timeout(Duration::from_secs(5), desk.release(why)).await;
}
