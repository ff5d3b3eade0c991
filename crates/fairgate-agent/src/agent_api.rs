//! The client of the agents' API, with one method for each endpoint.

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
use fairgate_api::JsonWholeNumber;
use fairgate_api::agents::{
    AskRequest, Claim, ClaimRequest, CompleteRequest, FailRequest, HeartbeatRequest, LogKeptBody,
    ReleaseRequest, TaskLeaseBody,
};
use fairgate_api::client::{
    DEFAULT_URL, GatewayHttpClient, GatewayHttpRequest, GatewayHttpResponse, JSON, base_path,
    escaped,
};
use fairgate_api::error::ErrorFields;
use fairgate_api::fleet::{AddedTasks, NewTasks, ProjectView, TaskExplanation, TaskLine};
use fairgate_time::UnixMicros;
use http::{HeaderMap, Method, StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

pub(crate) use backoff::RetryBackoff;
pub(crate) use heartbeats::{HeartbeatTask, LeaseEnd, StatusCallback};
pub(crate) use lease::ClaimLease;
pub(crate) use private_folder::PrivateFolder;

/// Environment variable that holds the agent's token.
pub(crate) const TOKEN_VARIABLE: &str = "FAIRGATE_AGENT_TOKEN";
/// Longest time that the client waits for the gateway's response, in addition to the wait that the request itself asks
/// for.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Options for the gateway's address and the agent's identity.
#[derive(Clone, Args)]
pub(crate) struct AgentArgs {
    /// Address of the gateway for clients, as `fairgate serve` prints it. Agents and their LLM calls use the same
    /// address.
    #[arg(long, env = "FAIRGATE_URL", default_value = DEFAULT_URL, value_name = "URL")]
    url: Uri,
    /// Name of the agent, as in `fairgate agent add NAME`.
    #[arg(long, env = "FAIRGATE_AGENT", value_name = "NAME")]
    name: String,
    /// Token of the agent. Prefer the variable FAIRGATE_AGENT_TOKEN, because others on this machine can read command
    /// lines.
    #[arg(long, env = TOKEN_VARIABLE, hide_env_values = true, value_name = "TOKEN")]
    token: String,
    /// PEM file of the certificate authorities to trust, instead of the built-in ones.
    #[arg(long, env = "FAIRGATE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

// Written by hand so that the token never gets into a log.
impl fmt::Debug for AgentArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentArgs").field("url", &self.url).field("name", &self.name).finish()
    }
}

impl AgentArgs {
    /// Returns the options of each agent. Without a number, this is one agent. With a number, these
    /// are the agents NAME-1, NAME-2 and so on. Each gets one token, in the order in which the
    /// tokens are given.
    pub(crate) fn agents(&self, count: Option<u16>) -> Result<Vec<Self>> {
        let Some(count) = count else { return Ok(vec![self.clone()]) };
        let tokens: Vec<&str> = self.token.split_whitespace().collect();
        if tokens.len() != usize::from(count) {
            bail!(
                "--count {count} needs {count} tokens in {TOKEN_VARIABLE}, not {}: `fairgate agent add {} --count \
                 {count}` prints them",
                tokens.len(),
                self.name
            );
        }
        let names = numbered_names(&self.name, count);
        let agents = names.zip(tokens).map(|(name, token)| Self {
            url: self.url.clone(),
            name,
            token: token.to_owned(),
            ca: self.ca.clone(),
        });
        Ok(agents.collect())
    }

    /// Returns the agent's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the agent's token, trimmed.
    pub(crate) fn token(&self) -> &str {
        self.token.trim()
    }

    /// Returns the gateway's address without the API's path and without a trailing slash.
    pub(crate) fn base_url(&self) -> String {
        let scheme = self.url.scheme_str().unwrap_or("http");
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        format!("{scheme}://{authority}{}", base_path(&self.url))
    }
}

/// Returns the names of several agents that are added and run together: NAME-1, NAME-2 and so on.
pub fn numbered_names(name: &str, count: u16) -> impl Iterator<Item = String> {
    (1..=count).map(move |number| format!("{name}-{number}"))
}

/// The reason why a request to the agents' API failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentApiError {
    /// The gateway did not respond, or cannot serve the request now. The request may be retried.
    #[error("{0}")]
    Unavailable(String),
    /// The gateway runs, but its database is unavailable. Until the database is back, this gateway ends no leases. The
    /// request may be retried.
    #[error("{0}")]
    StoreUnavailable(String),
    /// The gateway reports that the agent has lost its claim on the task (`lease_lost`), so the agent must stop its
    /// work on the task.
    #[error("{0}")]
    Lost(String),
    /// The agent is paused and gets no tasks until someone resumes it.
    #[error("{0}")]
    Paused(String),
    /// The gateway refuses the request, and a retry does not help.
    #[error("{message} ({code})")]
    Refused {
        /// The API's code, such as `invalid_agent_token`.
        code: String,
        /// The API's message, in words.
        message: String,
    },
}

/// A client of the agents' API, as one agent.
pub(crate) struct AgentApi {
    wire: GatewayHttpClient,
    name: String,
}

/// The identity of a claim, sent with every report about it.
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

/// The work on a claim so far, which each heartbeat reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimProgress {
    /// Current activity, for people.
    pub(crate) progress: Option<String>,
    /// Tokens that the claim used so far, in total; `None` if the gateway counts them.
    pub(crate) tokens: Option<u64>,
}

/// The end of a claim.
#[derive(Clone, Debug)]
pub(crate) enum ClaimEnd {
    /// The task is completed.
    Complete { result: Option<String>, tokens: Option<u64> },
    /// The task failed, or cannot be done before `limited_until`.
    Fail { reason: String, limited_until: Option<UnixMicros>, tokens: Option<u64> },
    /// The agent asks a person a question.
    Ask { question: String, tokens: Option<u64> },
    /// The task is given back for another agent, without counting as a failure. `unfit` is true if
    /// this agent cannot work on the task.
    Release { reason: String, unfit: bool },
}

impl ClaimEnd {
    /// Returns the end of a claim whose task failed for another reason than a limit.
    pub(crate) fn failure(reason: String) -> Self {
        Self::Fail { reason, limited_until: None, tokens: None }
    }

    /// Returns the word for this end in the API's paths, and the body to send.
    fn request(&self, claim: &ClaimId) -> (&'static str, Bytes) {
        let epoch = claim.epoch.into();
        match self.clone() {
            Self::Complete { result, tokens } => {
                ("complete", json(&CompleteRequest { epoch, result, tokens: whole(tokens) }))
            }
            Self::Fail { reason, limited_until, tokens } => {
                let limited_until = limited_until.map(|at| u64::try_from(at.0).unwrap_or(0));
                let request = FailRequest {
                    epoch,
                    reason: Some(reason),
                    limited_until: whole(limited_until),
                    tokens: whole(tokens),
                };
                ("fail", json(&request))
            }
            Self::Ask { question, tokens } => {
                ("ask", json(&AskRequest { epoch, question, tokens: whole(tokens) }))
            }
            Self::Release { reason, unfit } => {
                ("release", json(&ReleaseRequest { epoch, reason: Some(reason), unfit }))
            }
        }
    }
}

impl AgentApi {
    /// Creates a client after checking the options. Sends nothing yet.
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
        let wire = GatewayHttpClient { url: args.url.clone(), token, ca: args.ca.clone() };
        Ok(Self { wire, name: args.name.clone() })
    }

    /// Waits for a task. Returns the claim with its lease, or `None` if there was no task within the wait.
    pub(crate) async fn claim(
        &self,
        wait: Duration,
    ) -> Result<Option<(Claim, ClaimLease)>, AgentApiError> {
        let sent = Instant::now();
        let body = json(&ClaimRequest { wait_s: Some(wait.as_secs().into()) });
        let path = self.path("claim");
        let response = self.send(Method::POST, path, (JSON, body), wait + RESPONSE_TIMEOUT).await?;
        if response.status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let claim: Claim = read(&response)?;
        let lease = ClaimLease::new(claim.lease_until, response.date, sent);
        Ok(Some((claim, lease)))
    }

    /// Sends a heartbeat; returns the renewed lease.
    pub(crate) async fn heartbeat(
        &self,
        claim: &ClaimId,
        so_far: &ClaimProgress,
        timeout: Duration,
    ) -> Result<(TaskLeaseBody, ClaimLease), AgentApiError> {
        let sent = Instant::now();
        let ClaimProgress { progress, tokens } = so_far.clone();
        let epoch = claim.epoch.into();
        let body = json(&HeartbeatRequest { epoch, progress, tokens: whole(tokens) });
        let path = self.task_path(claim, "heartbeat");
        let response = self.send(Method::POST, path, (JSON, body), timeout).await?;
        let held: TaskLeaseBody = read(&response)?;
        let lease = ClaimLease::new(held.lease_until, response.date, sent);
        Ok((held, lease))
    }

    /// Ends a claim. The same end may be sent again if the response was lost.
    pub(crate) async fn end(
        &self,
        claim: &ClaimId,
        end: &ClaimEnd,
    ) -> Result<TaskLine, AgentApiError> {
        let (verb, body) = end.request(claim);
        let path = self.task_path(claim, verb);
        read(&self.send(Method::POST, path, (JSON, body), RESPONSE_TIMEOUT).await?)
    }

    /// Returns the result of a task that the claim's task needs.
    pub(crate) async fn needed_result(
        &self,
        claim: &ClaimId,
        need: &str,
    ) -> Result<String, AgentApiError> {
        let query = format!("results?epoch={}&task={}", claim.epoch, escaped(need));
        let path = self.task_path(claim, &query);
        let response = self.send(Method::GET, path, (JSON, Bytes::new()), RESPONSE_TIMEOUT).await?;
        Ok(response.text)
    }

    /// Appends output to the log of the claim's command. Returns the number of the byte that the gateway expects next.
    pub(crate) async fn append_log(
        &self,
        claim: &ClaimId,
        first_byte: u64,
        bytes: Bytes,
    ) -> Result<u64, AgentApiError> {
        let query = format!("log?epoch={}&first_byte={first_byte}", claim.epoch);
        let path = self.task_path(claim, &query);
        let body = ("application/octet-stream", bytes);
        let response = self.send(Method::POST, path, body, RESPONSE_TIMEOUT).await?;
        Ok(read::<LogKeptBody>(&response)?.next_byte)
    }

    /// Adds tasks to the project of the task that the agent holds.
    pub(crate) async fn add_tasks(&self, tasks: &NewTasks) -> Result<AddedTasks, AgentApiError> {
        let path = self.path("tasks");
        read(&self.send(Method::POST, path, (JSON, json(tasks)), RESPONSE_TIMEOUT).await?)
    }

    /// Returns the explanation of a task's state.
    pub(crate) async fn why(&self, task: &str) -> Result<TaskExplanation, AgentApiError> {
        let path = self.path(&format!("tasks/{}/why", escaped(task)));
        read(&self.send(Method::GET, path, (JSON, Bytes::new()), RESPONSE_TIMEOUT).await?)
    }

    /// Returns the project of the task that the agent holds.
    pub(crate) async fn share(&self) -> Result<ProjectView, AgentApiError> {
        read(
            &self
                .send(Method::GET, self.path("share"), (JSON, Bytes::new()), RESPONSE_TIMEOUT)
                .await?,
        )
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
    ) -> Result<GatewayHttpResponse, AgentApiError> {
        let headers = HeaderMap::new();
        let ask = GatewayHttpRequest { method, path, content_type, body, headers, timeout };
        let response = self.wire.send(ask).await;
        let response = response.map_err(|error| {
            // With the causes of the error.
            AgentApiError::Unavailable(format!("{:#}", anyhow::Error::from(error)))
        })?;
        if response.status.is_success() { Ok(response) } else { Err(self.refusal(&response)) }
    }

    /// Converts an error response of the gateway into the client's error.
    fn refusal(&self, response: &GatewayHttpResponse) -> AgentApiError {
        let ErrorFields { message, code, .. } = response.error();
        let status = response.status;
        let text = message.unwrap_or_else(|| format!("the gateway answered {status}"));
        if let Some("store_unavailable" | "store_full") = code.as_deref() {
            return AgentApiError::StoreUnavailable(text);
        }
        let later = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        if later {
            return AgentApiError::Unavailable(text);
        }
        let (url, name) = (&self.wire.url, &self.name);
        match (code.as_deref(), status) {
            (Some("lease_lost"), _) => AgentApiError::Lost(text),
            (Some("agent_paused"), _) => AgentApiError::Paused(text),
            (code, StatusCode::UNAUTHORIZED) => AgentApiError::Refused {
                code: code.unwrap_or("unauthorized").to_owned(),
                message: format!(
                    "the gateway at {url} does not take the token for agent {name:?}: {text}; \
                     `fairgate agent rotate {name}` makes a new one"
                ),
            },
            (None, StatusCode::NOT_FOUND) => AgentApiError::Refused {
                code: "not_found".to_owned(),
                message: format!("there is no agents' API at {url}; is that a Fairgate?"),
            },
            (code, _) => AgentApiError::Refused {
                code: code.map_or_else(|| status.as_u16().to_string(), str::to_owned),
                message: text,
            },
        }
    }
}

/// Writes a body. The types of the API have only fields that JSON can hold, so this does not fail.
fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).unwrap_or_default().into()
}

fn whole(number: Option<u64>) -> Option<JsonWholeNumber> {
    number.map(JsonWholeNumber)
}

/// Parses a response. A response that cannot be parsed counts as no response, because a proxy may have sent it.
fn read<T: DeserializeOwned>(response: &GatewayHttpResponse) -> Result<T, AgentApiError> {
    serde_json::from_str(&response.text).map_err(|error| {
        AgentApiError::Unavailable(format!("the gateway's answer cannot be read: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api() -> AgentApi {
        let url = Uri::from_static("http://127.0.0.1:1");
        AgentApi {
            wire: GatewayHttpClient { url, token: "secret".into(), ca: None },
            name: "a 1".into(),
        }
    }

    fn response(status: u16, text: &str) -> GatewayHttpResponse {
        let status = StatusCode::from_u16(status).expect("a status");
        GatewayHttpResponse { status, date: None, text: text.to_owned() }
    }

    #[test]
    fn answers_are_sorted_by_what_an_agent_can_do_about_them() {
        let refusal = |status, code: &str| {
            let text = format!(r#"{{"error":{{"code":"{code}","message":"so it is"}}}}"#);
            api().refusal(&response(status, &text))
        };
        assert!(
            matches!(refusal(409, "lease_lost"), AgentApiError::Lost(text) if text == "so it is")
        );
        assert!(matches!(refusal(403, "agent_paused"), AgentApiError::Paused(_)));
        assert!(matches!(refusal(503, "store_unavailable"), AgentApiError::StoreUnavailable(_)));
        assert!(matches!(refusal(507, "store_full"), AgentApiError::StoreUnavailable(_)));
        assert!(matches!(refusal(503, "too_many_claims"), AgentApiError::Unavailable(_)));
        assert!(matches!(refusal(429, "slow_down"), AgentApiError::Unavailable(_)));
        assert!(matches!(refusal(422, "invalid"), AgentApiError::Refused { .. }));
        let token = refusal(401, "invalid_agent_token").to_string();
        assert!(token.contains("fairgate agent rotate a 1"), "{token}");
        assert!(!token.contains("secret"), "{token}");
        assert!(matches!(api().refusal(&response(404, "<html>")), AgentApiError::Refused { .. }));
        assert!(matches!(api().refusal(&response(502, "<html>")), AgentApiError::Unavailable(_)));
    }

    #[test]
    fn what_is_said_of_a_claim_names_its_epoch() {
        let claim = ClaimId { task: "t/1".into(), epoch: 7 };
        let sent = |end: ClaimEnd| {
            let (verb, body) = end.request(&claim);
            format!("{verb} {}", String::from_utf8_lossy(&body))
        };
        let release = ClaimEnd::Release { reason: "r".into(), unfit: false };
        assert_eq!(sent(release), r#"release {"epoch":7,"reason":"r"}"#);
        let complete = ClaimEnd::Complete { result: None, tokens: Some(5) };
        assert_eq!(sent(complete), r#"complete {"epoch":7,"tokens":5}"#);
        let limited_until = Some(UnixMicros(9));
        let fail = ClaimEnd::Fail { reason: "r".into(), limited_until, tokens: None };
        assert_eq!(sent(fail), r#"fail {"epoch":7,"reason":"r","limited_until":9}"#);
        let ask = ClaimEnd::Ask { question: "q?".into(), tokens: None };
        assert_eq!(sent(ask), r#"ask {"epoch":7,"question":"q?"}"#);
        assert_eq!(api().task_path(&claim, "ask"), "/api/v1/agents/a%201/tasks/t%2F1/ask");
    }
}
