//! Tests of agents' identities and permissions.

use std::time::Duration;

use serde_json::json;

use super::{Agent, Fleet, expect, refused};
use crate::support::client::{get, post};

#[tokio::test]
async fn an_agent_needs_its_own_token_on_its_own_path() {
    let it = Fleet::new().await;
    let (one, two) = (it.agent("one", json!({})).await, it.agent("two", json!({})).await);
    let borrowed = Agent { name: "two".into(), ..one.clone() };
    assert_eq!(refused(borrowed.post("claim", json!({})).await, 403), "other_agent");
    for token in ["admin", it.house.key.as_str(), "fga-nobody", &format!("{}x", one.token)] {
        let stranger = Agent { token: token.to_owned(), ..one.clone() };
        let answer = stranger.post("claim", json!({})).await;
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(refused(answer, 401), "invalid_agent_token");
    }
    // An agent's token opens nothing else.
    let list = get("/api/v1/agents").key(&one.token).ask(it.addr()).await;
    assert_eq!(refused(list, 401), "invalid_api_key");

    let rotated = expect(it.post("agents/two/rotate", json!(null)).await, 200);
    assert_eq!(refused(two.post("claim", json!({})).await, 401), "invalid_agent_token");
    let two = Agent { token: rotated["token"].as_str().unwrap().into(), ..two };
    two.gets_nothing().await;
    expect(it.patch("agents/two", json!({"state": "PAUSED"})).await, 200);
    assert_eq!(refused(two.post("claim", json!({})).await, 403), "agent_paused");
    expect(it.patch("agents/two", json!({"state": "ACTIVE"})).await, 200);
    two.gets_nothing().await;
    expect(it.patch("agents/two", json!({"state": "RETIRED"})).await, 200);
    assert_eq!(refused(two.post("claim", json!({})).await, 403), "agent_retired");
    assert_eq!(
        refused(it.patch("agents/two", json!({"state": "ACTIVE"})).await, 403),
        "agent_retired"
    );
    assert_eq!(refused(it.post("agents", json!({"id": "one"})).await, 409), "exists");
    it.close().await;
}

#[tokio::test]
async fn agents_work_where_clients_connect() {
    let it = Fleet::configured(|config| {
        config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    })
    .await;
    assert_ne!(it.house.gateway.addr(), it.addr());
    it.project("web", json!({})).await;
    it.task("web", "t", json!({})).await;
    let agent = it.agent("a1", json!({})).await;
    assert_eq!(agent.addr, it.house.gateway.addr());
    agent.claims().await.completes(0).await;
    let there = Agent { addr: it.addr(), ..agent.clone() };
    there.gets_nothing().await;
    // What is for people is not here.
    let add = post("/api/v1/projects", &json!({})).key("admin").ask(agent.addr).await;
    assert!(add.text().contains("address of its own"), "{}", add.text());
    let rotate = post("/api/v1/agents/a1/rotate", &json!({})).key("admin").ask(agent.addr).await;
    assert_eq!(refused(rotate, 404), "not_found");
    it.close().await;
}

#[tokio::test]
async fn a_claim_waits_for_a_task() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    let agent = it.agent("a1", json!({})).await;
    // Somebody who leaves is not waited for, and takes nothing with it.
    let left = agent.question("claim", &json!({"wait_s": 60})).begin_stalled(agent.addr).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(left);
    let waiting = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.claims().await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    it.task("web", "t", json!({})).await;
    assert_eq!(waiting.await.unwrap().task, "t");
    let too_long = agent.post("claim", json!({"wait_s": 61})).await;
    assert_eq!(too_long.json()["error"]["field"], "wait_s");
    assert_eq!(refused(too_long, 422), "invalid");
    it.close().await;
}

#[tokio::test]
async fn a_claim_ends_when_the_gateway_drains() {
    let it = Fleet::new().await;
    let agent = it.agent("a1", json!({})).await;
    let waiting = {
        let agent = agent.clone();
        tokio::spawn(async move { agent.post("claim", json!({"wait_s": 60})).await })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    it.close().await;
    assert_eq!(waiting.await.unwrap().status, 204);
}

#[tokio::test]
async fn an_agent_adds_tasks_to_the_project_that_it_works_for_alone() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.project("api", json!({})).await;
    it.task("web", "t", json!({})).await;
    it.task("api", "elsewhere", json!({"resume_after": 4_000_000_000_000_000_i64})).await;
    let agent = it.agent("a1", json!({})).await;
    let named = |id: &str, project: &str| json!({"tasks": [{"id": id, "project": project, "prompt": "x", "needs": ["t"]}]});
    let new = |project: &str| named(&format!("{project}:more"), project);
    assert_eq!(refused(agent.post("tasks", new("web")).await, 409), "no_task");
    let claim = agent.claims().await;
    let other = agent.post("tasks", new("api")).await;
    assert_eq!(other.json()["error"]["field"], "tasks[0].project");
    assert_eq!(refused(other, 422), "invalid");
    let plain = agent.post("tasks", named("more", "web")).await;
    assert_eq!(plain.json()["error"]["field"], "tasks[0].id", "{}", plain.text());
    assert!(plain.text().contains("web:more"), "{}", plain.text());
    let added = expect(agent.post("tasks", new("web")).await, 201);
    assert_eq!(added["added"][0]["state"], "DEFINED");
    assert_eq!(refused(agent.get("tasks/elsewhere/why").await, 404), "not_found");
    expect(agent.get("tasks/web:more/why").await, 200);
    claim.completes(0).await;
    assert_eq!(agent.claims().await.task, "web:more");
    it.close().await;
}

#[tokio::test]
async fn only_reporters_say_what_they_used_and_each_token_counts_once() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.tasks("web", 2, 1000).await;
    let (honest, liar) = (it.reporter("honest").await, it.agent("liar", json!({})).await);
    let claim = honest.claims().await;
    assert_eq!(claim.body["key"], json!(null));
    for (say, tokens) in [
        ("heartbeat", 300),
        ("heartbeat", 300),
        ("heartbeat", 200),
        ("complete", 700),
        ("complete", 900),
    ] {
        expect(claim.say(say, json!({"tokens": tokens})).await, 200);
    }
    assert_eq!(it.get("projects/web").await["used"], 700);
    let claim = liar.claims().await;
    claim.completes(5_000_000).await;
    assert_eq!(it.get("projects/web").await["used"], 700);
    it.close().await;
}
