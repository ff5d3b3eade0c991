//! An agent: it claims a task, makes the calls that the task asks for, completes it, and counts what the answers say that it
//! used.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::api::Api;
use super::{Tally, failed};
use crate::error::ProveError;
use crate::scenario::Ask;

/// What kind of an agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Honest,
    /// It says that it used a million tokens, or none.
    Lies,
    /// Once so many tasks are completed it makes one call for a task, and is never heard of again.
    Dies {
        after: u64,
    },
}

pub(super) struct Agent {
    pub(super) api: Api,
    pub(super) id: String,
    pub(super) token: String,
    pub(super) manner: Manner,
    pub(super) ask: Ask,
    /// The projects, in the order of the report.
    pub(super) projects: Vec<&'static str>,
    pub(super) tally: Arc<Tally>,
}

/// What an agent did.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Tokens that its calls used, by project.
    pub(super) tokens: [u64; 2],
    pub(super) calls: u64,
    /// Tasks whose completion was acknowledged.
    pub(super) completed: Vec<String>,
    /// The task that it died with.
    pub(super) died_with: Option<String>,
    /// The key that it still had then.
    pub(super) left_with: Option<String>,
    /// What went wrong.
    pub(super) trouble: Vec<String>,
}

impl Agent {
    pub(super) async fn run(self) -> Result<Work, ProveError> {
        let mut work = Work::default();
        while !self.tally.stop.load(Ordering::Relaxed) {
            let path = format!("/api/v1/agents/{}/claim", self.id);
            let (status, claim) = self.api.post(&path, &self.token, &json!({"wait_s": 1})).await?;
            match status {
                200 => {}
                204 => continue,
                _ => return Err(failed(&format!("{path}: {status} {claim}"))),
            }
            let completed = self.tally.completed.load(Ordering::Relaxed);
            if let Manner::Dies { after } = self.manner
                && completed >= after
            {
                self.call(&claim, 0, &mut work).await?;
                work.died_with = claim["task"].as_str().map(str::to_owned);
                work.left_with = claim["key"].as_str().map(str::to_owned);
                return Ok(work);
            }
            self.work_on(&claim, &mut work).await?;
        }
        Ok(work)
    }

    async fn work_on(&self, claim: &Value, work: &mut Work) -> Result<(), ProveError> {
        let prompt = claim["prompt"].as_str().unwrap_or_default();
        let calls = prompt.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(1);
        for number in 0..calls {
            self.call(claim, number, work).await?;
        }
        let lie = |number: u64| json!(if number.is_multiple_of(2) { 1_000_000 } else { 0 });
        let mut said = json!({"epoch": claim["epoch"]});
        if self.manner == Manner::Lies {
            said["tokens"] = lie(work.calls);
            let (status, answer) = self.say("heartbeat", claim, &said).await?;
            if status != 200 {
                work.trouble.push(format!("heartbeat: {status} {answer}"));
            }
        }
        let (status, answer) = self.say("complete", claim, &said).await?;
        if status == 200 {
            work.completed.push(claim["task"].as_str().unwrap_or_default().to_owned());
            self.tally.completed.fetch_add(1, Ordering::Relaxed);
        } else {
            work.trouble.push(format!("complete: {status} {answer}"));
        }
        Ok(())
    }

    async fn say(
        &self,
        what: &str,
        claim: &Value,
        said: &Value,
    ) -> Result<(u16, Value), ProveError> {
        let task = claim["task"].as_str().unwrap_or_default();
        let path = format!("/api/v1/agents/{}/tasks/{task}/{what}", self.id);
        self.api.post(&path, &self.token, said).await
    }

    async fn call(&self, claim: &Value, number: u64, work: &mut Work) -> Result<(), ProveError> {
        let key = claim["key"].as_str().unwrap_or_default();
        let (least, most) = self.ask.output_tokens;
        let output = least + (work.calls * 7 + number * 3) % (most - least + 1);
        let task = claim["task"].as_str().unwrap_or_default();
        let prompt =
            format!("[sim:tokens={output}] call {number} for {task}, please do what is to be done");
        let (status, answer) = self.api.chat(key, &prompt, self.ask.max_tokens).await?;
        work.calls += 1;
        if status != 200 {
            work.trouble.push(format!("call: {status} {answer}"));
            return Ok(());
        }
        let used = answer["usage"]["total_tokens"].as_u64().unwrap_or(0);
        let project = self.projects.iter().position(|it| claim["project"] == *it).unwrap_or(0);
        work.tokens[project] += used;
        self.tally.tokens[project].fetch_add(used, Ordering::Relaxed);
        Ok(())
    }
}
