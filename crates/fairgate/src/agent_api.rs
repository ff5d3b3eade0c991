//! What an agent says to the gateway: one method for each call of the agents' API.

mod backoff;
mod heartbeats;
mod lease;
mod private_folder;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use clap::Args;
use fairgate_fleet::{
    AddedTasks, Claim, Completion, Failure, Heartbeat, Held, NewTasks, ProjectView, Question,
    Release, TaskLine, Why,
};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::admin::{DEFAULT_URL, escaped};
use crate::wire::{Ask, JSON, Told, Wire, base, error_field};

pub(crate) use backoff::Backoff;
pub(crate) use heartbeats::{Heartbeats, LeaseEnd, Say};
pub(crate) use lease::Lease;
pub(crate) use private_folder::PrivateFolder;

/// The variable that holds the agent's token.
pub(crate) const TOKEN_VARIABLE: &str = "FAIRGATE_AGENT_TOKEN";
/// How long the gateway may take to answer beyond what it was asked to wait.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where the gateway is, and which agent this is.
#[derive(Clone, Args)]
pub(crate) struct AgentArgs {
    /// The gateway's address for clients, as `fairgate serve` prints it. Agents and their LLM calls use the same one.
    #[arg(long, env = "FAIRGATE_URL", default_value = DEFAULT_URL, value_name = "URL")]
    url: Uri,
    /// The agent's name, as in `fairgate agent add NAME`.
    #[arg(long, env = "FAIRGATE_AGENT", value_name = "NAME")]
    name: String,
    /// The agent's token. Better given by the variable: others on this machine can read command lines.
    #[arg(long, env = TOKEN_VARIABLE, hide_env_values = true, value_name = "TOKEN")]
    token: String,
    /// A PEM file of certificate authorities to trust, instead of the usual ones.
    #[arg(long, env = "FAIRGATE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

// The token is in no log, not even by accident.
impl fmt::Debug for AgentArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentArgs").field("url", &self.url).field("name", &self.name).finish()
    }
}

impl AgentArgs {
    /// The agent's token.
    pub(crate) fn token(&self) -> &str {
        self.token.trim()
    }

    /// The gateway's address without a path of the API, and without a slash at its end.
    pub(crate) fn base_url(&self) -> String {
        let scheme = self.url.scheme_str().unwrap_or("http");
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        format!("{scheme}://{authority}{}", base(&self.url))
    }
}

/// Why a call was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Nobody answered, or the gateway cannot now. The same call may be made again.
    #[error("{0}")]
    Away(String),
    /// The task is not this agent's any more.
    #[error("{0}")]
    Lost(String),
    /// The agent takes no tasks until somebody resumes it.
    #[error("{0}")]
    Paused(String),
    /// The gateway refuses; to ask again helps nothing.
    #[error("{message} ({code})")]
    Refused {
        /// The API's word for it, such as `invalid_agent_token`.
        code: String,
        /// The API's sentence.
        message: String,
    },
}

/// A way to the agents' API, as one agent.
pub(crate) struct AgentApi {
    wire: Wire,
    name: String,
}

/// A claim of a task: what everything that is said of it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimId {
    pub(crate) task: String,
    pub(crate) epoch: u64,
}

impl From<&Claim> for ClaimId {
    fn from(claim: &Claim) -> Self {
        Self { task: claim.task.clone(), epoch: claim.epoch }
    }
}

/// How a claim ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Well.
    Complete(Completion),
    /// Badly, or not now.
    Fail(Failure),
    /// With a question to a person.
    Ask(Question),
    /// Unharmed, for another agent.
    Release(Release),
}

impl AgentApi {
    /// Checks what was given; nothing is sent yet.
    pub(crate) fn new(args: &AgentArgs) -> Result<Self> {
        if args.token().is_empty() {
            bail!(
                "no token: set {TOKEN_VARIABLE} to what `fairgate agent add {}` printed",
                args.name
            );
        }
        if args.url.authority().is_none() {
            bail!("--url {}: name the gateway with http:// or https:// and its host", args.url);
        }
        let token = args.token().to_owned();
        let wire = Wire { url: args.url.clone(), token, ca: args.ca.clone() };
        Ok(Self { wire, name: args.name.clone() })
    }

    /// A task and its lease, once there is one; none when the wait is over.
    pub(crate) async fn claim(&self, wait: Duration) -> Result<Option<(Claim, Lease)>, CallError> {
        let sent = Instant::now();
        let body = json!({ "wait_s": wait.as_secs() });
        let path = self.path("claim");
        let told = self.send(Method::POST, path, body_of(&body), wait + PATIENCE).await?;
        if told.status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let claim: Claim = read(&told)?;
        let lease = Lease::new(claim.lease_until, told.date, sent);
        Ok(Some((claim, lease)))
    }

    /// A sign of life: until when the agent holds the task now.
    pub(crate) async fn heartbeat(
        &self,
        claim: &ClaimId,
        heartbeat: &Heartbeat,
        timeout: Duration,
    ) -> Result<(Held, Lease), CallError> {
        let sent = Instant::now();
        let body = with_epoch(claim, heartbeat);
        let path = self.task_path(claim, "heartbeat");
        let told = self.send(Method::POST, path, body_of(&body), timeout).await?;
        let held: Held = read(&told)?;
        let lease = Lease::new(held.lease_until, told.date, sent);
        Ok((held, lease))
    }

    /// Ends a claim. May be said twice.
    pub(crate) async fn end(&self, claim: &ClaimId, end: &End) -> Result<TaskLine, CallError> {
        let (verb, body) = match end {
            End::Complete(completion) => ("complete", with_epoch(claim, completion)),
            End::Fail(failure) => ("fail", with_epoch(claim, failure)),
            End::Ask(question) => ("ask", with_epoch(claim, question)),
            End::Release(release) => ("release", with_epoch(claim, release)),
        };
        let path = self.task_path(claim, verb);
        read(&self.send(Method::POST, path, body_of(&body), PATIENCE).await?)
    }

    /// Adds to what the claim's command printed: which byte comes next.
    pub(crate) async fn append_log(
        &self,
        claim: &ClaimId,
        first_byte: u64,
        bytes: Bytes,
    ) -> Result<u64, CallError> {
        let query = format!("log?epoch={}&first_byte={first_byte}", claim.epoch);
        let path = self.task_path(claim, &query);
        let body = ("application/octet-stream", bytes);
        let told = self.send(Method::POST, path, body, PATIENCE).await?;
        let kept: Value = read(&told)?;
        let next = kept.get("next_byte").and_then(Value::as_u64);
        next.ok_or_else(|| CallError::Away("the answer names no next_byte".to_owned()))
    }

    /// Adds tasks to the project of the task that the agent holds.
    pub(crate) async fn add_tasks(&self, tasks: &NewTasks) -> Result<AddedTasks, CallError> {
        let body = serde_json::to_value(tasks).unwrap_or_default();
        let path = self.path("tasks");
        read(&self.send(Method::POST, path, body_of(&body), PATIENCE).await?)
    }

    /// Why a task stands where it does.
    pub(crate) async fn why(&self, task: &str) -> Result<Why, CallError> {
        let path = self.path(&format!("tasks/{}/why", escaped(task)));
        read(&self.send(Method::GET, path, (JSON, Bytes::new()), PATIENCE).await?)
    }

    /// How the project of the task that the agent holds stands.
    pub(crate) async fn share(&self) -> Result<ProjectView, CallError> {
        read(&self.send(Method::GET, self.path("share"), (JSON, Bytes::new()), PATIENCE).await?)
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/agents/{}/{rest}", escaped(&self.name))
    }

    fn task_path(&self, claim: &ClaimId, rest: &str) -> String {
        self.path(&format!("tasks/{}/{rest}", escaped(&claim.task)))
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        (content_type, body): (&'static str, Bytes),
        timeout: Duration,
    ) -> Result<Told, CallError> {
        let headers = HeaderMap::new();
        let ask = Ask { method, path, content_type, body, headers, timeout };
        let told = self.wire.exchange(ask).await;
        let told = told.map_err(|error| CallError::Away(format!("{error:#}")))?;
        if told.status.is_success() { Ok(told) } else { Err(self.refusal(&told)) }
    }

    /// What an answer that is no success means for the agent.
    fn refusal(&self, told: &Told) -> CallError {
        let body: Value = serde_json::from_str(&told.text).unwrap_or_default();
        let (message, code) = (error_field(&body, "message"), error_field(&body, "code"));
        let status = told.status;
        let said = message.clone().unwrap_or_else(|| format!("the gateway answered {status}"));
        let later = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        if later {
            return CallError::Away(said);
        }
        let (url, name) = (&self.wire.url, &self.name);
        match (code.as_deref(), status) {
            (Some("lease_lost"), _) => CallError::Lost(said),
            (Some("agent_paused"), _) => CallError::Paused(said),
            (code, StatusCode::UNAUTHORIZED) => CallError::Refused {
                code: code.unwrap_or("unauthorized").to_owned(),
                message: format!(
                    "the gateway at {url} does not take the token for agent {name:?}: {said}; \
                     `fairgate agent rotate {name}` makes a new one"
                ),
            },
            (None, StatusCode::NOT_FOUND) => CallError::Refused {
                code: "not_found".to_owned(),
                message: format!("there is no agents' API at {url}; is that a Fairgate?"),
            },
            (code, _) => CallError::Refused {
                code: code.map_or_else(|| status.as_u16().to_string(), str::to_owned),
                message: said,
            },
        }
    }
}

fn body_of(body: &Value) -> (&'static str, Bytes) {
    (JSON, Bytes::from(body.to_string()))
}

/// What is said of a claim, with the claim's number in it.
fn with_epoch(claim: &ClaimId, said: &impl Serialize) -> Value {
    let mut body = serde_json::to_value(said).unwrap_or_else(|_| json!({}));
    if let Value::Object(fields) = &mut body {
        fields.insert("epoch".to_owned(), claim.epoch.into());
    }
    body
}

/// An answer that cannot be read counts as none: a proxy may have made it.
fn read<T: DeserializeOwned>(told: &Told) -> Result<T, CallError> {
    serde_json::from_str(&told.text)
        .map_err(|error| CallError::Away(format!("the gateway's answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api() -> AgentApi {
        let url = Uri::from_static("http://127.0.0.1:1");
        AgentApi { wire: Wire { url, token: "secret".into(), ca: None }, name: "a 1".into() }
    }

    fn told(status: u16, text: &str) -> Told {
        let status = StatusCode::from_u16(status).expect("a status");
        Told { status, date: None, text: text.to_owned() }
    }

    #[test]
    fn answers_are_sorted_by_what_an_agent_can_do_about_them() {
        let refusal = |status, code: &str| {
            let text = json!({"error": {"code": code, "message": "so it is"}}).to_string();
            api().refusal(&told(status, &text))
        };
        assert!(matches!(refusal(409, "lease_lost"), CallError::Lost(said) if said == "so it is"));
        assert!(matches!(refusal(403, "agent_paused"), CallError::Paused(_)));
        assert!(matches!(refusal(503, "store_unavailable"), CallError::Away(_)));
        assert!(matches!(refusal(429, "slow_down"), CallError::Away(_)));
        assert!(matches!(refusal(422, "invalid"), CallError::Refused { .. }));
        let token = refusal(401, "invalid_agent_token").to_string();
        assert!(token.contains("fairgate agent rotate a 1"), "{token}");
        assert!(!token.contains("secret"), "{token}");
        assert!(matches!(api().refusal(&told(404, "<html>")), CallError::Refused { .. }));
        assert!(matches!(api().refusal(&told(502, "<html>")), CallError::Away(_)));
    }

    #[test]
    fn what_is_said_of_a_claim_names_its_epoch() {
        let claim = ClaimId { task: "t/1".into(), epoch: 7 };
        let said = Release { reason: Some("r".into()) };
        assert_eq!(with_epoch(&claim, &said), json!({"reason": "r", "epoch": 7}));
        assert_eq!(api().task_path(&claim, "ask"), "/api/v1/agents/a%201/tasks/t%2F1/ask");
    }
}
