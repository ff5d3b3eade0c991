//! An agent that claims tasks, sends the requests that each task needs, completes the task, and
//! counts the tokens that the answers report.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fairgate_api::agents::Claim;
use serde_json::{Value, json};

use super::api::GatewayApiClient;
use super::{FleetProgress, failed};
use crate::error::ProveError;
use crate::scenario::RequestPattern;

/// Behaviour of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentBehaviour {
    Honest,
    /// Reports a wrong number of used tokens: a million, or 0.
    Lies,
    /// After all agents together have completed `after` tasks, claims one more task, sends one
    /// request for it, and stops without a report.
    Dies {
        after: u64,
    },
}

pub(super) struct ProveAgent {
    pub(super) api: GatewayApiClient,
    pub(super) id: String,
    pub(super) token: String,
    pub(super) manner: AgentBehaviour,
    pub(super) pattern: RequestPattern,
    /// Names of the projects, in the order of the report.
    pub(super) projects: Vec<&'static str>,
    pub(super) tally: Arc<FleetProgress>,
}

/// Results that one agent counted itself.
#[derive(Debug, Default)]
pub(super) struct AgentWork {
    /// Tokens that the agent's requests used, by project.
    pub(super) tokens: [u64; 2],
    pub(super) calls: u64,
    /// Ids of the tasks whose completion the fleet acknowledged.
    pub(super) completed: Vec<String>,
    /// Id of the task that the agent held when it died, if it died.
    pub(super) died_with: Option<String>,
    /// Key of the task that the agent held when it died.
    pub(super) left_with: Option<String>,
    /// Refused requests and reports, one line each.
    pub(super) trouble: Vec<String>,
}

impl ProveAgent {
    pub(super) async fn run(self) -> Result<AgentWork, ProveError> {
        let mut work = AgentWork::default();
        while !self.tally.stop.load(Ordering::Relaxed) {
            let path = format!("/api/v1/agents/{}/claim", self.id);
            let (status, claim) = self.api.post(&path, &self.token, &json!({"wait_s": 1})).await?;
            match status {
                200 => {}
                204 => continue,
                _ => return Err(failed(&format!("{path}: {status} {claim}"))),
            }
            let claim: Claim =
                serde_json::from_value(claim).map_err(|error| failed(&error.to_string()))?;
            let completed = self.tally.completed.load(Ordering::Relaxed);
            if let AgentBehaviour::Dies { after } = self.manner
                && completed >= after
            {
                self.call(&claim, 0, &mut work).await?;
                work.died_with = Some(claim.task);
                work.left_with = claim.key;
                return Ok(work);
            }
            self.work_on(&claim, &mut work).await?;
        }
        Ok(work)
    }

    async fn work_on(&self, claim: &Claim, work: &mut AgentWork) -> Result<(), ProveError> {
        let calls =
            claim.prompt.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(1);
        for number in 0..calls {
            self.call(claim, number, work).await?;
        }
        let lie = |number: u64| json!(if number.is_multiple_of(2) { 1_000_000 } else { 0 });
        let mut said = json!({"epoch": claim.epoch});
        if self.manner == AgentBehaviour::Lies {
            said["tokens"] = lie(work.calls);
            let (status, answer) = self.report("heartbeat", claim, &said).await?;
            if status != 200 {
                work.trouble.push(format!("heartbeat: {status} {answer}"));
            }
        }
        let (status, answer) = self.report("complete", claim, &said).await?;
        if status == 200 {
            work.completed.push(claim.task.clone());
            self.tally.completed.fetch_add(1, Ordering::Relaxed);
        } else {
            work.trouble.push(format!("complete: {status} {answer}"));
        }
        Ok(())
    }

    async fn report(
        &self,
        what: &str,
        claim: &Claim,
        said: &Value,
    ) -> Result<(u16, Value), ProveError> {
        let path = format!("/api/v1/agents/{}/tasks/{}/{what}", self.id, claim.task);
        self.api.post(&path, &self.token, said).await
    }

    async fn call(
        &self,
        claim: &Claim,
        number: u64,
        work: &mut AgentWork,
    ) -> Result<(), ProveError> {
        let key = claim.key.as_deref().unwrap_or_default();
        let (least, most) = self.pattern.output_tokens;
        let output = least + (work.calls * 7 + number * 3) % (most - least + 1);
        let task = &claim.task;
        let prompt =
            format!("[sim:tokens={output}] call {number} for {task}, please do what is to be done");
        let (status, answer) = self.api.chat(key, &prompt, self.pattern.max_tokens).await?;
        work.calls += 1;
        if status != 200 {
            work.trouble.push(format!("call: {status} {answer}"));
            return Ok(());
        }
        let used = answer["usage"]["total_tokens"].as_u64().unwrap_or(0);
        let project = self.projects.iter().position(|it| claim.project == *it).unwrap_or(0);
        work.tokens[project] += used;
        self.tally.tokens[project].fetch_add(used, Ordering::Relaxed);
        Ok(())
    }
}
