//! Tests of the life of a task, from its creation to its end.

use http::Method;
use serde_json::json;

use super::{Fleet, expect, refused};
use crate::support::client::get;

#[tokio::test]
async fn a_task_is_made_claimed_worked_on_and_completed() {
    let it = Fleet::new().await;
    it.project("web", json!({"weight": 3})).await;
    it.task("web", "fix", json!({"title": "Fix it", "estimate": 500})).await;
    let agent = it.agent("a1", json!({})).await;
    let claim = agent.claims().await;
    assert_eq!((claim.task.as_str(), claim.epoch), ("fix", 1));
    assert_eq!((&claim.body["project"], &claim.body["tenant"]), (&json!("web"), &json!("acme")));
    assert_eq!((&claim.body["prompt"], &claim.body["reserved"]), (&json!("do fix"), &json!(500)));
    assert!(claim.body["key"].as_str().unwrap().starts_with("fgt-"));
    // Asked again, it is given the same.
    let again = agent.claims().await;
    assert_eq!(
        (&again.task, again.epoch, &again.body["key"]),
        (&claim.task, 1, &claim.body["key"])
    );
    assert_eq!(it.get("tasks/fix").await["state"], "ASSIGNED");

    let held = expect(claim.say("heartbeat", json!({"progress": "half"})).await, 200);
    assert!(held["lease_until"].as_i64() >= claim.body["lease_until"].as_i64());
    let task = it.get("tasks/fix").await;
    assert_eq!((&task["state"], &task["progress"]), (&json!("IN_PROGRESS"), &json!("half")));
    assert_eq!(it.get("agents").await["items"][0]["task"], "fix");
    assert_eq!(expect(agent.get("share").await, 200)["id"], "web");
    let why = expect(agent.get("tasks/fix/why").await, 200);
    assert_eq!((&why["task"], &why["state"]), (&json!("fix"), &json!("IN_PROGRESS")));

    for _ in 0..2 {
        let line = expect(claim.say("complete", json!({"result": "done"})).await, 200);
        assert_eq!(line["state"], "COMPLETED");
    }
    let task = it.get("tasks/fix").await;
    assert_eq!((&task["state"], &task["result"]), (&json!("COMPLETED"), &json!("done")));
    let steps: Vec<String> = task["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            format!(
                "{} {} {}",
                step["from"].as_str().unwrap(),
                step["to"].as_str().unwrap(),
                step["actor"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        steps,
        ["READY ASSIGNED fleet", "ASSIGNED IN_PROGRESS agent:a1", "IN_PROGRESS COMPLETED agent:a1",]
    );
    agent.gets_nothing().await;
    let no_task = agent.get("share").await;
    assert_eq!(refused(no_task, 409), "no_task");
    let audit = it.get("audit?limit=10").await;
    let actions: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["action"].as_str())
        .collect();
    assert!(actions.contains(&"project.add") && actions.contains(&"agent.add"), "{actions:?}");
    it.close().await;
}

#[tokio::test]
async fn what_needs_another_waits_for_it_and_a_circle_is_refused() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    let graph = json!({"dry_run": true, "tasks": [
        {"id": "ship", "project": "web", "prompt": "x", "needs": ["build"]},
        {"id": "build", "project": "web", "prompt": "y"},
    ]});
    let added = expect(it.post("tasks", graph.clone()).await, 200);
    assert_eq!(added["added"][0]["state"], "DEFINED");
    assert_eq!(it.get("tasks").await["items"], json!([]));
    let mut graph = graph;
    graph["dry_run"] = json!(false);
    expect(it.post("tasks", graph.clone()).await, 201);
    let twice = expect(it.post("tasks", graph).await, 201);
    assert_eq!(twice["unchanged"], json!(["ship", "build"]));
    let agent = it.agent("a1", json!({})).await;
    let build = agent.claims().await;
    assert_eq!(build.task, "build");
    let why = it.get("tasks/ship/why").await;
    assert_eq!(why["code"], "needs");
    assert!(why["sentence"].as_str().unwrap().contains("build"), "{why}");
    build.completes(0).await;
    assert_eq!(agent.claims().await.task, "ship");

    let circle = json!({"tasks": [
        {"id": "a", "project": "web", "prompt": "x", "needs": ["b"]},
        {"id": "b", "project": "web", "prompt": "y", "needs": ["a"]},
    ]});
    assert_eq!(refused(it.post("tasks", circle).await, 422), "cycle");
    let unknown =
        json!({"tasks": [{"id": "a", "project": "web", "prompt": "x", "needs": ["nothing"]}]});
    let unknown = it.post("tasks", unknown).await;
    assert_eq!(unknown.json()["error"]["field"], "tasks[0].needs[0]");
    assert_eq!(refused(unknown, 404), "not_found");
    it.close().await;
}

#[tokio::test]
async fn an_agent_asks_and_a_person_answers() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.task("web", "t", json!({})).await;
    let agent = it.agent("a1", json!({})).await;
    let claim = agent.claims().await;
    let line = expect(claim.say("ask", json!({"question": "which colour?"})).await, 200);
    assert_eq!(line["state"], "WAITING_INPUT");
    agent.gets_nothing().await;
    let restart = it.post("tasks/t/actions", json!({"action": "restart"})).await;
    assert!(
        restart.text().contains("WAITING_INPUT") && restart.text().contains("READY"),
        "{}",
        restart.text()
    );
    assert_eq!(refused(restart, 409), "illegal_transition");
    let answered = it.post("tasks/t/actions", json!({"action": "answer", "text": "blue"})).await;
    assert_eq!(expect(answered, 200)["state"], "READY");
    let claim = agent.claims().await;
    assert_eq!(
        (&claim.body["question"], &claim.body["answer"]),
        (&json!("which colour?"), &json!("blue"))
    );
    assert_eq!(claim.epoch, 2);
    it.close().await;
}

#[tokio::test]
async fn a_task_that_fails_too_often_is_blocked_and_restarted_or_skipped() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.task("web", "t", json!({"retries": 0})).await;
    it.task("web", "after", json!({"needs": ["t"]})).await;
    let agent = it.agent("a1", json!({})).await;
    let claim = agent.claims().await;
    let line = expect(claim.say("fail", json!({"reason": "no compiler"})).await, 200);
    assert_eq!(line["state"], "BLOCKED");
    let task = it.get("tasks/t").await;
    assert_eq!(task["needed_by"], json!(["after"]));
    let restarted = expect(it.post("tasks/t/actions", json!({"action": "restart"})).await, 200);
    assert_eq!((&restarted["state"], &restarted["retries"]), (&json!("READY"), &json!(0)));
    let claim = agent.claims().await;
    expect(claim.say("fail", json!({})).await, 200);
    let skipped =
        it.post("tasks/t/actions", json!({"action": "skip", "reason": "not needed"})).await;
    assert_eq!(expect(skipped, 200)["state"], "COMPLETED");
    assert_eq!(agent.claims().await.task, "after");
    it.close().await;
}

#[tokio::test]
async fn a_cancelled_task_is_lost_to_its_agent() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.task("web", "t", json!({})).await;
    let agent = it.agent("a1", json!({})).await;
    let claim = agent.claims().await;
    let cancelled = it.post("tasks/t/actions", json!({"action": "cancel"})).await;
    assert_eq!(expect(cancelled, 200)["state"], "FAILED");
    assert_eq!(refused(claim.say("heartbeat", json!({})).await, 409), "lease_lost");
    assert_eq!(refused(claim.say("complete", json!({})).await, 409), "lease_lost");
    it.close().await;
}

#[tokio::test]
async fn a_task_whose_agent_is_silent_goes_to_another() {
    let it = Fleet::with(|fleet| fleet.lease = std::time::Duration::from_secs(1)).await;
    it.project("web", json!({})).await;
    it.task("web", "t", json!({})).await;
    let (silent, other) = (it.agent("a1", json!({})).await, it.agent("a2", json!({})).await);
    let lost = silent.claims().await;
    let taken = other.claims().await;
    assert_eq!((taken.task.as_str(), taken.epoch), ("t", 2));
    let told = lost.say("complete", json!({"result": "late"})).await;
    assert!(told.text().contains("a2"), "{}", told.text());
    assert_eq!(refused(told, 409), "lease_lost");
    expect(taken.say("complete", json!({"result": "in time"})).await, 200);
    assert_eq!(it.get("tasks/t").await["result"], "in time");
    it.close().await;
}

#[tokio::test]
async fn logs_are_kept_in_order_and_once() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.task("web", "t", json!({})).await;
    let agent = it.agent("a1", json!({})).await;
    let claim = agent.claims().await;
    let send = |first: usize, bytes: Vec<u8>| {
        let path = format!("/api/v1/agents/a1/tasks/t/log?epoch=1&first_byte={first}");
        let question = crate::support::client::raw(&path, bytes).key(&agent.token);
        async move { question.ask(agent.addr).await }
    };
    assert_eq!(expect(send(0, b"hello ".to_vec()).await, 200)["next_byte"], 6);
    assert_eq!(expect(send(0, b"hello wor".to_vec()).await, 200)["next_byte"], 9);
    let page = it.get("tasks/t/log").await;
    assert_eq!((&page["text"], &page["ended"]), (&json!("hello wor"), &json!(false)));
    let page = it.get("tasks/t/log?epoch=1&first_byte=6").await;
    assert_eq!((&page["text"], &page["next_byte"]), (&json!("wor"), &json!(9)));
    let flood = send(9, vec![b'x'; 256 * 1024 + 1]).await;
    assert_eq!(refused(flood, 413), "body_too_large");
    claim.completes(0).await;
    // The end of a log may come after the end of its task.
    assert_eq!(expect(send(9, b"ld\n".to_vec()).await, 200)["next_byte"], 12);
    let page = it.get("tasks/t/log?first_byte=9").await;
    assert_eq!((&page["text"], &page["ended"]), (&json!("ld\n"), &json!(true)));
    let never = get("/api/v1/tasks/t/log?epoch=7").key("admin").ask(it.addr()).await;
    assert_eq!(refused(never, 404), "not_found");
    it.close().await;
}

#[tokio::test]
async fn workspaces_come_and_go() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    let made =
        it.post("workspaces", json!({"id": "w1", "project": "web", "path": "/src/web"})).await;
    assert_eq!(expect(made, 201)["path"], "/src/web");
    it.task("web", "t", json!({"workspace": "w1"})).await;
    let agent = it.agent("a1", json!({})).await;
    let claim = agent.claims().await;
    assert_eq!(
        (&claim.body["workspace"], &claim.body["workspace_path"]),
        (&json!("w1"), &json!("/src/web"))
    );
    let none = json!(null);
    assert_eq!(refused(it.send(Method::DELETE, "workspaces/w1", &none).await, 409), "in_use");
    claim.completes(0).await;
    expect(it.send(Method::DELETE, "workspaces/w1", &none).await, 204);
    assert_eq!(it.get("workspaces?project=web").await["items"], json!([]));
    it.close().await;
}
