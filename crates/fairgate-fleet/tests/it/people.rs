//! Projects, agents and workspaces, and what people leave in the audit trail.

use std::collections::BTreeMap;

use fairgate_api::fleet::{
    AgentPatch, FleetAgentState, FleetProjectStatus, NewAgent, NewProject, NewTask, NewWorkspace,
    ProjectPatch, TaskState,
};
use fairgate_fleet::FleetError;
use fairgate_store::KeyHash;

use crate::world::{World, field, on_every_database, project, task_of};

on_every_database! {
    projects_are_checked, projects_are_patched, agents_have_tokens, retired_agents_give_back,
    workspaces_are_kept_while_needed, task_keys_are_found, a_first_ready_task_sets_the_baseline,
}

async fn projects_are_checked(world: World) {
    let long = "x".repeat(65);
    let types = |kind: &str| BTreeMap::from([(kind.to_owned(), 1)]);
    for (bad, name) in [
        (project("not good", "t"), "id"),
        (project("", "t"), "id"),
        (project(&long, "t"), "id"),
        (project("x", "none"), "tenant"),
        (NewProject { concurrency: Some(0), ..project("x", "t") }, "concurrency"),
        (NewProject { budget: Some(u64::MAX), ..project("x", "t") }, "budget"),
        (NewProject { agent_max: types("a b"), ..project("x", "t") }, "agent_max.a b"),
    ] {
        assert_eq!(field(world.add_project(bad).await), name);
    }
    let again = world.add_project(project("p", "u")).await;
    assert!(matches!(again, Err(FleetError::Exists { what: "project", .. })));
    let rich = NewProject {
        agent_max: types("coder"),
        budget: Some(0),
        concurrency: Some(u32::MAX),
        weight: Some("1000000000000000".parse().unwrap()),
        ..project("x", "t")
    };
    world.add_project(rich).await.unwrap();
    let entry = world.audit().await.remove(0);
    assert_eq!((entry.action.as_str(), entry.subject.as_str()), ("project.add", "x"));
    assert_eq!(entry.after.unwrap()["agent_max"]["coder"], 1);
}

async fn projects_are_patched(world: World) {
    let patch = |patch: ProjectPatch| async {
        match world.fleet.patch_project("admin:eve", "p", patch).await {
            // Its view may not be there; what counts is what the audit trail says.
            Ok(_) | Err(FleetError::Store(_)) => Ok(()),
            Err(error) => Err(error),
        }
    };
    let some = || ProjectPatch {
        weight: Some("2.5".parse().unwrap()),
        budget: Some(Some(5)),
        ..ProjectPatch::default()
    };
    patch(some()).await.unwrap();
    let entry = world.audit().await.remove(0);
    assert_eq!((entry.action.as_str(), entry.actor.as_str()), ("project.patch", "admin:eve"));
    let (before, after) = (entry.before.unwrap(), entry.after.unwrap());
    assert_eq!((&before["budget"], &after["budget"]), (&serde_json::Value::Null, &5.into()));
    assert_eq!(after["weight"].to_string(), "2.5");
    patch(some()).await.unwrap();
    assert_eq!(world.audit().await[0].id, entry.id, "a patch that changes nothing is no entry");
    patch(ProjectPatch { budget: Some(None), ..Default::default() }).await.unwrap();
    assert_eq!(world.audit().await[0].after.as_ref().unwrap()["budget"], serde_json::Value::Null);
    let none = patch(ProjectPatch { concurrency: Some(0), ..Default::default() }).await;
    assert_eq!(field(none), "concurrency");
    let unknown = world.fleet.patch_project("admin", "none", some()).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { what: "project", .. })));
    // One that agents work for is not archived.
    world.add(&["a"]).await;
    let epoch = world.hold("a", "a").await;
    let archive =
        || ProjectPatch { status: Some(FleetProjectStatus::Archived), ..Default::default() };
    let in_use = patch(archive()).await.unwrap_err();
    assert!(in_use.to_string().contains("agents work on 1 of its tasks"), "{in_use}");
    let agent = crate::world::agent("a");
    world.fleet.complete(&agent, "a", epoch, Default::default()).await.unwrap();
    patch(archive()).await.unwrap();
}

async fn agents_have_tokens(world: World) {
    let new = |id: &str| NewAgent {
        id: id.into(),
        kind: Some("coder".into()),
        reports_tokens: false,
        ..NewAgent::default()
    };
    assert_eq!(field(world.fleet.add_agent("admin", new("a b")).await), "id");
    let bad = NewAgent { kind: Some(String::new()), ..new("x") };
    assert_eq!(field(world.fleet.add_agent("admin", bad).await), "type");
    let made = world.fleet.add_agent("admin", new("x")).await.unwrap();
    assert!(made.token.starts_with("fga-") && made.token.len() == 47, "{}", made.token);
    assert!(made.token.ends_with(&made.agent.token_hint));
    let again = world.fleet.add_agent("admin", new("x")).await;
    assert!(matches!(again, Err(FleetError::Exists { what: "agent", .. })));
    let id = world.fleet.agent(&made.token).await.unwrap().unwrap();
    assert_eq!(id.id, "x");
    assert!(world.fleet.agent("fga-other").await.unwrap().is_none());
    assert_eq!(world.fleet.agent(&made.token).await.unwrap().unwrap().seed, id.seed);
    // A new token is a new seed; the old one opens nothing, and neither does a key that was made from it.
    world.add(&["a"]).await;
    world.hold("a", "x").await;
    let hash = KeyHash::of(b"a x");
    assert!(world.fleet.task_key(hash).await.unwrap().is_some());
    let rotated = world.fleet.rotate_agent("admin", "x").await.unwrap();
    assert!(world.fleet.agent(&made.token).await.unwrap().is_none());
    assert_ne!(world.fleet.agent(&rotated.token).await.unwrap().unwrap().seed, id.seed);
    assert!(world.fleet.task_key(hash).await.unwrap().is_none());
    let names: Vec<_> = world.fleet.agents().await.unwrap();
    assert_eq!(
        names.iter().map(|agent| agent.id.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c", "x"]
    );
    assert_eq!(names[3].task.as_deref(), Some("a"));
    // No token is in the audit trail.
    let trail = format!("{:?}", world.audit().await);
    assert!(!trail.contains(&made.token) && !trail.contains(&rotated.token));
    assert!(matches!(
        world.fleet.rotate_agent("admin", "none").await,
        Err(FleetError::NotFound { what: "agent", .. })
    ));
}

async fn retired_agents_give_back(world: World) {
    let workspace =
        NewWorkspace { id: "w".into(), project: "p".into(), path: "/w".into(), machine: None };
    world.fleet.add_workspace("admin", workspace).await.unwrap();
    let new = NewAgent { id: "x".into(), kind: None, reports_tokens: false, ..NewAgent::default() };
    let token = world.fleet.add_agent("admin", new).await.unwrap().token;
    world.add(&["a"]).await;
    world.hold("a", "x").await;
    world.sql("UPDATE fleet_workspaces SET task = 'a', agent = 'x'", vec![]).await;
    let patch = |state| AgentPatch { state: Some(state), ..AgentPatch::default() };
    let paused =
        world.fleet.patch_agent("admin", "x", patch(FleetAgentState::Paused)).await.unwrap();
    assert_eq!(paused.task.as_deref(), Some("a"), "a paused agent ends what it has begun");
    assert!(world.fleet.agent(&token).await.unwrap().is_some());
    let retired =
        world.fleet.patch_agent("admin", "x", patch(FleetAgentState::Retired)).await.unwrap();
    assert_eq!((retired.state, retired.task), (FleetAgentState::Retired, None));
    let task = world.task("a").await;
    assert_eq!((task.line.state, task.line.retries), (TaskState::Ready, 0));
    assert_eq!(task.history.last().unwrap().reason.as_deref(), Some("agent x was retired"));
    assert_eq!(world.fleet.workspaces(None).await.unwrap()[0].task, None);
    let error = world.fleet.agent(&token).await.err().unwrap();
    assert!(matches!(error, FleetError::Agent { .. }), "{error}");
    let revived = world.fleet.patch_agent("admin", "x", patch(FleetAgentState::Active)).await;
    assert!(matches!(revived, Err(FleetError::Agent { state: FleetAgentState::Retired, .. })));
    let rotated = world.fleet.rotate_agent("admin", "x").await;
    assert!(matches!(rotated, Err(FleetError::Agent { .. })));
    let waits = NewTask { affinity: Some("x".into()), ..task_of("p", None) };
    assert_eq!(field(world.add_all(vec![waits]).await), "tasks[0].affinity");
}

async fn workspaces_are_kept_while_needed(world: World) {
    let new = |id: &str, project: &str, path: &str| NewWorkspace {
        machine: None,
        id: id.into(),
        project: project.into(),
        path: path.into(),
    };
    let add = |workspace| world.fleet.add_workspace("admin", workspace);
    assert_eq!(field(add(new("w", "none", "/w")).await), "project");
    assert_eq!(field(add(new("w", "p", "")).await), "path");
    assert_eq!(field(add(new("w w", "p", "/w")).await), "id");
    add(new("w2", "p", "/w2")).await.unwrap();
    add(new("w1", "p", "/w1")).await.unwrap();
    add(new("w0", "q", "/w0")).await.unwrap();
    assert!(matches!(add(new("w1", "q", "/x")).await, Err(FleetError::Exists { .. })));
    // One folder is one workspace, whatever project it is for and however its path is written.
    for same in ["/w1", "/w1/", "//./w1", "/x/../w1"] {
        assert_eq!(field(add(new("w9", "q", same)).await), "path", "{same}");
    }
    let of = world.fleet.workspaces(Some("p")).await.unwrap();
    assert_eq!(of.iter().map(|w| w.id.as_str()).collect::<Vec<_>>(), ["w1", "w2"]);
    assert!(world.fleet.workspaces(Some("none")).await.is_err());
    let bound = NewTask { workspace: Some("w1".into()), ..task_of("p", Some("a")) };
    world.add_all(vec![bound]).await.unwrap();
    let remove = |id: &'static str| world.fleet.remove_workspace("admin", id);
    let error = remove("w1").await.unwrap_err();
    assert!(error.to_string().contains("task \"a\" must run in it"), "{error}");
    world.sql("UPDATE fleet_workspaces SET task = 'a' WHERE id = 'w2'", vec![]).await;
    let error = remove("w2").await.unwrap_err();
    assert!(error.to_string().contains("task \"a\" has it now"), "{error}");
    remove("w0").await.unwrap();
    assert!(matches!(remove("w0").await, Err(FleetError::NotFound { what: "workspace", .. })));
    assert_eq!(world.audit().await[0].action, "workspace.remove");
}

async fn task_keys_are_found(world: World) {
    world.add(&["a"]).await;
    let epoch = world.hold("a", "b").await;
    let key = world.fleet.task_key(KeyHash::of(b"a b")).await.unwrap().unwrap();
    assert_eq!((key.tenant.as_str(), key.project.as_str(), key.task.as_str()), ("t", "p", "a"));
    assert_eq!((key.epoch, key.agent.as_str()), (epoch, "b"));
    assert!(world.fleet.task_key(KeyHash::of(b"other")).await.unwrap().is_none());
    let agent = crate::world::agent("b");
    world.fleet.release(&agent, "a", epoch, Default::default()).await.unwrap();
    assert!(world.fleet.task_key(KeyHash::of(b"a b")).await.unwrap().is_none());
}

/// p has used 900 at weight 1 and works; q comes at weight 2 and joins at 1800.
async fn a_first_ready_task_sets_the_baseline(world: World) {
    let baseline = |id: &'static str| {
        let sql = format!("SELECT baseline FROM fleet_projects WHERE id = '{id}'");
        let world = &world;
        async move { world.number(&sql).await }
    };
    let patch = ProjectPatch { weight: Some("2".parse().unwrap()), ..Default::default() };
    let _ = world.fleet.patch_project("admin", "q", patch).await;
    world.add(&["a", "b"]).await;
    assert_eq!(baseline("p").await, 0, "nobody else was busy");
    let epoch = world.hold("a", "c").await;
    let said = fairgate_fleet::TaskHeartbeat { tokens: Some(900), progress: None };
    world.fleet.heartbeat(&crate::world::agent("c"), "a", epoch, said).await.unwrap();
    world.add_all(vec![task_of("q", Some("x"))]).await.unwrap();
    assert_eq!(baseline("q").await, 1_800);
    // It stays while q is busy, and a second task changes nothing.
    world.add_all(vec![task_of("q", Some("y"))]).await.unwrap();
    assert_eq!(baseline("q").await, 1_800);
    // r joins the least served: p at 900 for weight 1 against q at 0 + 1800 for weight 2 are level.
    world.add_all(vec![task_of("r", Some("z"))]).await.unwrap();
    assert_eq!(baseline("r").await, 900);
    let busy = "SELECT COUNT(*) FROM fleet_projects WHERE busy";
    assert_eq!(world.number(busy).await, 3);
    for task in ["x", "y"] {
        let cancel = fairgate_api::fleet::TaskAction::Cancel { reason: None };
        world.fleet.act("admin", task, cancel).await.unwrap();
    }
    assert_eq!(world.number(busy).await, 2);
}
