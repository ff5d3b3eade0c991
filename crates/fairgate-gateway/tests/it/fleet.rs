//! Tests of the fleet through HTTP. People use the admin token, and agents use their own tokens.

mod agents;
mod cases;
mod holes;
mod life;
mod people;
mod webhooks;

use std::net::SocketAddr;

use fairgate_config::{Config, FleetConfig, FleetCreditUnit};
use fairgate_sim::Sim;
use http::Method;
use serde_json::{Value, json};

use crate::support::client::{Answer, Question, get, post};
use crate::support::{House, house_with, sim};

/// A gateway with a fleet, and its tenant `acme`.
pub struct Fleet {
    house: House,
    sim: Sim,
}

/// An agent and its token.
#[derive(Clone, Debug)]
pub struct Agent {
    addr: SocketAddr,
    name: String,
    token: String,
}

/// A task that an agent holds.
#[derive(Clone, Debug)]
pub struct Claimed {
    agent: Agent,
    task: String,
    epoch: u64,
    body: Value,
}

impl Fleet {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts a gateway with other settings of the fleet.
    pub async fn with(change: impl FnOnce(&mut FleetConfig)) -> Self {
        Self::configured(|config| change(&mut config.fleet)).await
    }

    /// Starts a gateway in which only tokens count, unless `change` says otherwise, because times
    /// differ from run to run.
    pub async fn configured(change: impl FnOnce(&mut Config)) -> Self {
        let sim = sim();
        let tokens_alone = |config: &mut Config| {
            config.fleet.credit = FleetCreditUnit::Tokens;
            change(config);
        };
        let house = house_with(&sim.url(), tokens_alone).await;
        Self { house, sim }
    }

    fn addr(&self) -> SocketAddr {
        self.house.gateway.admin_addr()
    }

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let question = Question { method, ..post(&format!("/api/v1/{path}"), body) };
        let question = question.header("content-type", "application/json").key("admin");
        question.ask(self.addr()).await
    }

    pub async fn get(&self, path: &str) -> Value {
        expect(get(&format!("/api/v1/{path}")).key("admin").ask(self.addr()).await, 200)
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &body).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, &body).await
    }

    /// Adds a project of `acme` with these fields.
    pub async fn project(&self, id: &str, fields: Value) -> Value {
        let mut body = json!({"id": id, "tenant": "acme", "concurrency": 100});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        expect(self.post("projects", body).await, 201)
    }

    /// Adds a task with these fields, and returns its name.
    pub async fn task(&self, project: &str, id: &str, fields: Value) -> String {
        let mut task = json!({"id": id, "project": project, "prompt": format!("do {id}")});
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let added = expect(self.post("tasks", json!({"tasks": [task]})).await, 201);
        added["added"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Adds this number of tasks `PROJECT-a`, `PROJECT-b`, … with this estimate each.
    pub async fn tasks(&self, project: &str, count: usize, estimate: u64) {
        let tasks: Vec<Value> = (0..count)
            .map(|i| json!({"project": project, "prompt": format!("{i}"), "estimate": estimate}))
            .collect();
        expect(self.post("tasks", json!({"tasks": tasks})).await, 201);
    }

    pub async fn agent(&self, name: &str, fields: Value) -> Agent {
        let mut body = json!({"id": name});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let made = expect(self.post("agents", body).await, 201);
        let token = made["token"].as_str().unwrap().to_owned();
        assert!(token.starts_with("fga-"), "{token}");
        Agent { addr: self.house.gateway.addr(), name: name.to_owned(), token }
    }

    /// Adds an agent that reports its usage itself.
    pub async fn reporter(&self, name: &str) -> Agent {
        self.agent(name, json!({"reports_tokens": true})).await
    }

    pub async fn close(self) {
        self.house.close().await;
        self.sim.stop().await;
    }
}

impl Agent {
    fn question(&self, path: &str, body: &Value) -> Question {
        let question = post(&format!("/api/v1/agents/{}/{path}", self.name), body);
        question.header("content-type", "application/json").key(&self.token)
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.question(path, &body).ask(self.addr).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        let path = format!("/api/v1/agents/{}/{path}", self.name);
        get(&path).key(&self.token).ask(self.addr).await
    }

    /// Returns the task that the agent gets within this number of seconds.
    pub async fn claims_within(&self, wait_s: u64) -> Option<Claimed> {
        let answer = self.post("claim", json!({"wait_s": wait_s})).await;
        if answer.status == 204 {
            return None;
        }
        let body = expect(answer, 200);
        Some(Claimed {
            agent: self.clone(),
            task: body["task"].as_str().unwrap().to_owned(),
            epoch: body["epoch"].as_u64().unwrap(),
            body,
        })
    }

    /// Returns the task that the agent gets; there must be one.
    pub async fn claims(&self) -> Claimed {
        self.claims_within(10).await.expect("there is a task")
    }

    /// Checks that the agent gets no task.
    pub async fn gets_nothing(&self) {
        let got = self.claims_within(0).await;
        assert!(got.is_none(), "{got:?}");
    }
}

impl Claimed {
    fn project(&self) -> &str {
        self.body["project"].as_str().unwrap()
    }

    pub async fn say(&self, what: &str, mut body: Value) -> Answer {
        body["epoch"] = json!(self.epoch);
        self.agent.post(&format!("tasks/{}/{what}", self.task), body).await
    }

    /// Completes the task, and reports this number of used tokens.
    pub async fn completes(&self, tokens: u64) {
        let line = expect(self.say("complete", json!({"tokens": tokens})).await, 200);
        assert_eq!(line["state"], "COMPLETED");
    }
}

/// Returns the JSON of an answer that must have this status.
pub fn expect(answer: Answer, status: u16) -> Value {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    if answer.body.is_empty() { Value::Null } else { answer.json() }
}

/// Returns the error code of an answer that must have this status.
pub fn refused(answer: Answer, status: u16) -> String {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    answer.code()
}
