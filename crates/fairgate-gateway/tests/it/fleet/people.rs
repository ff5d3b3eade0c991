//! Tests of changes and views by people, and of the views of tenants.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Fleet, expect, refused};
use crate::support::client::{get, post};
use fairgate_store::DirectoryLimits;

#[tokio::test]
async fn projects_are_made_changed_and_listed() {
    let it = Fleet::new().await;
    let made =
        it.project("web", json!({"weight": 2.5, "agent_max": {"claude": 2}, "budget": 1000})).await;
    assert_eq!((&made["weight"], &made["budget"]), (&json!(2.5), &json!(1000)));
    let patch = json!({"weight": 3, "budget": null, "status": "PAUSED"});
    let set = expect(it.patch("projects/web", patch).await, 200);
    assert_eq!(
        (&set["weight"], &set["budget"], &set["status"]),
        (&json!(3), &json!(null), &json!("PAUSED"))
    );
    assert_eq!(set["agent_max"], json!({"claude": 2}), "what is absent stays");
    it.project("api", json!({})).await;
    let page = it.get("projects?limit=1").await;
    assert_eq!((&page["items"][0]["id"], &page["next"]), (&json!("web"), &json!("web")));
    let page = it.get("projects?limit=1&after=web").await;
    assert_eq!((&page["items"][0]["id"], &page["next"]), (&json!("api"), &json!(null)));
    assert_eq!(
        refused(it.post("projects", json!({"id": "api", "tenant": "acme"})).await, 409),
        "exists"
    );
    let nobody = it.post("projects", json!({"id": "x", "tenant": "nobody"})).await;
    assert_eq!(refused(nobody, 404), "not_found");
    expect(it.patch("projects/api", json!({"status": "ARCHIVED"})).await, 200);
    let late = json!({"tasks": [{"project": "api", "prompt": "x"}]});
    assert_eq!(refused(it.post("tasks", late).await, 409), "archived");
    it.close().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_field() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    let task = |fields: Value| {
        let mut task = json!({"project": "web", "prompt": "x"});
        task.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        ("tasks", json!({"tasks": [task]}))
    };
    let project = |fields: Value| {
        let mut project = json!({"id": "p", "tenant": "acme"});
        project.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        ("projects", project)
    };
    for ((path, body), status, field) in [
        (project(json!({"weight": 0})), 422, "weight"),
        (project(json!({"weight": -1})), 422, "weight"),
        (project(json!({"weight": "NaN"})), 422, "weight"),
        (project(json!({"weight": 0.0005})), 422, "weight"),
        (project(json!({"budget": -5})), 422, "budget"),
        (project(json!({"concurrency": 0})), 422, "concurrency"),
        (project(json!({"id": "../etc"})), 422, "id"),
        (project(json!({"agent_max": {"no type": 1}})), 422, "agent_max.no type"),
        (task(json!({"prompt": "x".repeat((1 << 20) + 1)})), 422, "tasks[0].prompt"),
        (task(json!({"prompt": " "})), 422, "tasks[0].prompt"),
        (task(json!({"estimate": -1})), 422, "tasks[0].estimate"),
        (task(json!({"project": "nowhere"})), 404, "tasks[0].project"),
        (task(json!({"affinity": "nobody"})), 404, "tasks[0].affinity"),
        (task(json!({"promt": "x"})), 422, "tasks[0].promt"),
        (("tasks", json!({"tasks": []})), 422, "tasks"),
    ] {
        let answer = it.post(path, body).await;
        assert_eq!(answer.status.as_u16(), status, "{field}: {}", answer.text());
        assert_eq!(answer.json()["error"]["field"], field, "{}", answer.text());
    }
    // A prompt of 10 MB fits the body, and no prompt; one of 20 MB not even the body.
    let ten = task(json!({"prompt": "x".repeat(10 << 20)})).1;
    assert_eq!(it.post("tasks", ten).await.json()["error"]["field"], "tasks[0].prompt");
    let twenty = task(json!({"prompt": "x".repeat(20 << 20)})).1;
    assert_eq!(refused(it.post("tasks", twenty).await, 413), "body_too_large");
    it.close().await;
}

#[tokio::test]
async fn tasks_are_listed_by_page_project_and_state() {
    let it = Fleet::new().await;
    it.project("web", json!({})).await;
    it.project("api", json!({})).await;
    for id in ["t-1", "t-2", "t-10"] {
        it.task("web", id, json!({})).await;
    }
    it.task("api", "other", json!({})).await;
    expect(it.post("tasks/t-2/actions", json!({"action": "pause", "reason": "later"})).await, 200);
    let ids = |page: &Value| -> Vec<String> {
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = it.get("tasks?project=web&limit=2").await;
    assert_eq!((ids(&first), &first["next"]), (vec!["t-1".into(), "t-2".into()], &json!("t-2")));
    let second = it.get("tasks?project=web&limit=2&after=t-2").await;
    assert_eq!((ids(&second), &second["next"]), (vec!["t-10".to_owned()], &json!(null)));
    assert_eq!(ids(&it.get("tasks?state=PAUSED,COMPLETED").await), ["t-2"]);
    let wrong = get("/api/v1/tasks?state=SLEEPING").key("admin").ask(it.addr()).await;
    assert_eq!(refused(wrong, 400), "invalid_query");
    let set = expect(it.patch("tasks/t-1", json!({"priority": 7, "title": "First"})).await, 200);
    assert_eq!((&set["priority"], &set["title"]), (&json!(7), &json!("First")));
    it.close().await;
}

#[tokio::test]
async fn a_tenants_key_sees_its_own_projects_and_tasks_alone() {
    let it = Fleet::new().await;
    let key = it.house.tenant("globex", DirectoryLimits::default()).await;
    it.project("web", json!({})).await;
    it.project("theirs", json!({"tenant": "globex"})).await;
    it.task("web", "t", json!({})).await;
    it.task("theirs", "mine", json!({})).await;
    for (id, project) in [("w1", "web"), ("w2", "theirs")] {
        let workspace = json!({"id": id, "project": project, "path": format!("/x/{id}")});
        expect(it.post("workspaces", workspace).await, 201);
    }
    let see = |path: &str| {
        let question = get(&format!("/api/v1/{path}")).key(&key);
        let addr = it.house.gateway.addr();
        async move { question.ask(addr).await }
    };
    let only = |page: Value| {
        let items = page["items"].as_array().unwrap().clone();
        assert_eq!(items.len(), 1, "{page}");
        items[0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(only(expect(see("projects").await, 200)), "theirs");
    assert_eq!(only(expect(see("tasks").await, 200)), "mine");
    assert_eq!(only(expect(see("workspaces").await, 200)), "w2");
    for path in [
        "projects/theirs",
        "tasks/mine",
        "tasks/mine/why",
        "tasks/mine/log",
        "tasks?project=theirs",
    ] {
        assert_eq!(see(path).await.status, StatusCode::OK, "{path}");
    }
    for path in [
        "projects/web",
        "projects?after=web",
        "tasks/t",
        "tasks/t/why",
        "tasks/t/log",
        "tasks?project=web",
        "tasks?after=t",
        "workspaces?project=web",
    ] {
        assert_eq!(refused(see(path).await, 404), "not_found", "{path}");
    }
    for path in ["fleet", "agents"] {
        assert_eq!(refused(see(path).await, 403), "admin_only", "{path}");
    }
    let change = it.send(Method::PATCH, "projects/web", &json!({"weight": 9})).await;
    assert_eq!(change.status, StatusCode::OK, "the admin may");
    it.close().await;
}

#[tokio::test]
async fn metrics_name_projects_for_the_admin_alone() {
    let it = Fleet::new().await;
    it.project("web", json!({"weight": 3})).await;
    it.project("api", json!({})).await;
    it.tasks("web", 3, 100).await;
    let text = get("/metrics").key("admin").ask(it.addr()).await.text();
    for line in [
        "fairgate_fleet_tasks{state=\"READY\"} 3",
        "fairgate_fleet_project_used_tokens{project=\"web\"} 0",
        "fairgate_fleet_project_tasks{project=\"web\",state=\"READY\"} 3",
        "fairgate_fleet_project_due_ratio{project=\"web\"} 0.75",
        "fairgate_fleet_project_target_ratio{project=\"web\"} 0.75",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = get("/metrics").ask(it.addr()).await.text();
    assert!(text.contains("fairgate_fleet_tasks{state=\"READY\"} 3") && !text.contains("project="));
    it.close().await;
}

#[tokio::test]
async fn the_fleet_is_seen_as_a_whole() {
    let it = Fleet::with(|fleet| fleet.budget = Some(1_000_000)).await;
    it.project("web", json!({"weight": 3})).await;
    it.project("api", json!({})).await;
    it.tasks("web", 2, 100).await;
    it.task("api", "later", json!({"needs": [it.task("api", "first", json!({})).await]})).await;
    let agent = it.reporter("a1").await;
    let claim = agent.claims().await;
    let seen = it.get("fleet").await;
    assert_eq!((&seen["budget"], &seen["used"]), (&json!(1_000_000), &json!(0)));
    assert_eq!(seen["running"][0]["id"].as_str(), Some(claim.task.as_str()));
    assert_eq!(seen["agents"][0]["task"].as_str(), Some(claim.task.as_str()));
    let due: Vec<(&Value, &Value)> = seen["projects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|project| (&project["due_share"], &project["target_ppm"]))
        .collect();
    for one in [(0.75, 750_000), (0.25, 250_000)] {
        assert!(due.contains(&(&json!(one.0), &json!(one.1))), "{seen}");
    }
    assert!(seen["waiting"].as_array().is_some_and(|waiting| !waiting.is_empty()), "{seen}");
    it.close().await;
}

/// With its key, a tenant adds, watches and answers its own tasks at the clients' address, and no
/// other tenant's tasks.
#[tokio::test]
async fn a_tenants_key_adds_and_answers_its_own_tasks() {
    let it = Fleet::new().await;
    let key = it.house.tenant("globex", DirectoryLimits::default()).await;
    it.project("web", json!({})).await;
    it.project("theirs", json!({"tenant": "globex"})).await;
    it.task("web", "t", json!({})).await;
    let workspace = json!({"id": "w1", "project": "web", "path": "/x"});
    expect(it.post("workspaces", workspace).await, 201);
    let agent = it.agent("ada", json!({})).await;
    let send = |path: &str, body: Value| {
        let question = post(&format!("/api/v1/{path}"), &body).key(&key);
        let question = question.header("content-type", "application/json");
        let addr = it.house.gateway.addr();
        async move { question.ask(addr).await }
    };
    let task = |project: &str, more: Value| {
        let mut task = json!({"project": project, "prompt": "do it"});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"tasks": [task]})
    };
    let added = expect(send("tasks", task("theirs", json!({"id": "theirs:mine"}))).await, 201);
    assert_eq!(added["added"][0]["state"], "READY");
    // Another tenant's project and one that does not exist get the same answer, and so do tasks and workspaces.
    for (known, unknown) in [
        (task("web", json!({})), task("nowhere", json!({}))),
        (task("theirs", json!({"needs": ["t"]})), task("theirs", json!({"needs": ["none"]}))),
        (task("theirs", json!({"workspace": "w1"})), task("theirs", json!({"workspace": "w9"}))),
    ] {
        let answers = [send("tasks", known).await, send("tasks", unknown).await];
        let texts = answers.map(|answer| {
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
            let text = answer.text().replace("nowhere", "web").replace("none", "t");
            text.replace("w9", "w1")
        });
        assert_eq!(texts[0], texts[1]);
    }
    // Names that all tenants share are refused alike, whether they are taken or not; so are those of another project.
    let (shared, foreign) = ((422, "invalid"), (404, "not_found"));
    let names = [("t", shared), ("free", shared), ("web:t", foreign), ("web:free", foreign)];
    for (name, (status, code)) in names {
        let answer = send("tasks", task("theirs", json!({"id": name}))).await;
        assert_eq!(answer.json()["error"]["field"], "tasks[0].id", "{name}: {}", answer.text());
        assert_eq!(refused(answer, status), code, "{name}");
    }
    let again = expect(send("tasks", task("theirs", json!({"id": "theirs:mine"}))).await, 201);
    assert_eq!(again["unchanged"], json!(["theirs:mine"]));
    let other = json!({"id": "theirs:mine", "priority": 1});
    assert_eq!(refused(send("tasks", task("theirs", other)).await, 409), "exists");
    let next = json!({"needs": ["theirs:mine"], "prompt": "with {{results.theirs:mine}}"});
    let next = expect(send("tasks", task("theirs", next)).await, 201);
    assert_eq!(next["added"][0]["state"], "DEFINED");
    let named = send("tasks", task("theirs", json!({"affinity": "ada"}))).await;
    assert_eq!(named.json()["error"]["field"], "tasks[0].affinity", "{}", named.text());

    // Both tasks' agents ask; the tenant answers its own.
    for agent in [agent, it.agent("ben", json!({})).await] {
        let claim = agent.claims().await;
        expect(claim.say("ask", json!({"question": "which?"})).await, 200);
    }
    let answer = json!({"action": "answer", "text": "the red one"});
    let seen = expect(send("tasks/theirs:mine/actions", answer.clone()).await, 200);
    assert_eq!((&seen["state"], &seen["answer"]), (&json!("READY"), &json!("the red one")));
    let last = seen["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["actor"], "tenant:globex");
    assert_eq!(refused(send("tasks/t/actions", answer).await, 404), "not_found");
    assert_eq!(it.get("tasks/t").await["state"], "WAITING_INPUT");
    for action in ["cancel", "pause", "resume", "restart", "skip"] {
        let refusal = send("tasks/theirs:mine/actions", json!({"action": action})).await;
        assert_eq!(refused(refusal, 403), "admin_only", "{action}");
        let refusal = send("tasks/t/actions", json!({"action": action})).await;
        assert_eq!(refused(refusal, 404), "not_found", "{action}");
    }
    it.close().await;
}
