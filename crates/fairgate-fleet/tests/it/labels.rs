//! Labels that tenants, projects and tasks require, workspaces that are bound to machines, and the bound on prompts.

use std::time::Duration;

use fairgate_api::fleet::{
    AgentPatch, FleetAgentState, NewAgent, NewTask, NewTasks, NewWorkspace, ProjectPatch,
    TaskAction, TaskPatch,
};
use fairgate_fleet::{Fleet, FleetError, FleetOptions, SystemClock, TaskCompletion};
use fairgate_store::{DirectoryChange, TenantPatch, UnixMicros};

use crate::world::{World, agent, field, on_every_database, task_of};

on_every_database![
    a_task_goes_only_to_agents_with_its_labels,
    tasks_behind_labelled_ones_are_found,
    labels_of_tenant_project_and_task_apply_together,
    a_bound_workspace_is_for_agents_of_its_machine,
    any_workspace_is_one_of_the_agent_s_machine,
    two_machines_may_have_the_same_folder,
    a_restarted_task_follows_its_workspace,
    labels_are_checked_and_can_be_changed,
    prompts_of_tenants_and_agents_are_bounded_in_all,
];

async fn add_agent(world: &World, id: &str, labels: &[&str]) {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    let agent = NewAgent { id: id.into(), labels, ..NewAgent::default() };
    world.fleet.add_agent("admin", agent).await.unwrap();
}

fn with_labels(id: &str, labels: &[&str]) -> NewTask {
    let requires = labels.iter().map(|label| (*label).to_owned()).collect();
    NewTask { requires, ..task_of("p", Some(id)) }
}

async fn claimed(world: &World, id: &str) -> Option<String> {
    let claim = world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap();
    claim.map(|claim| claim.task)
}

async fn give_back(world: &World, id: &str, task: &str) {
    let claim = world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap().unwrap();
    assert_eq!(claim.task, task);
    let done = TaskCompletion::default();
    world.fleet.complete(&agent(id), task, claim.epoch, done).await.unwrap();
}

async fn bind(
    world: &World,
    id: &str,
    path: &str,
    machine: Option<&str>,
) -> Result<(), FleetError> {
    let workspace = NewWorkspace {
        id: id.into(),
        project: "p".into(),
        path: path.into(),
        machine: machine.map(str::to_owned),
    };
    world.fleet.add_workspace("admin", workspace).await.map(drop)
}

async fn why(world: &World, task: &str) -> (String, String) {
    let why = world.fleet.why(task).await.unwrap();
    (why.code, why.sentence)
}

async fn a_task_goes_only_to_agents_with_its_labels(world: World) {
    tokio::spawn(world.fleet.run());
    add_agent(&world, "d", &["docker", "gpu"]).await;
    let added =
        world.add_all(vec![with_labels("one", &["gpu", "docker"]), with_labels("two", &["tpu"])]);
    let added = added.await.unwrap();
    assert!(added.unmatched.is_empty());
    assert_eq!(added.unmatched_tasks, ["two"], "said when it is added");
    assert_eq!(world.task("one").await.requires, ["docker", "gpu"]);
    assert_eq!(claimed(&world, "a").await, None);
    let (code, sentence) = why(&world, "two").await;
    assert_eq!(code, "no_matching_agent");
    assert_eq!(
        sentence,
        "It is not open to every agent, and none of 4 agents may take it: it waits for an agent that has the labels tpu and \
         may work for its tenant."
    );
    assert_eq!(claimed(&world, "d").await.as_deref(), Some("one"));
    // The same content is no other task.
    let again = world.add_all(vec![with_labels("one", &["docker", "gpu"])]).await.unwrap();
    assert_eq!(again.unchanged, ["one"]);
    let other = world.add_all(vec![with_labels("one", &["docker"])]).await;
    assert!(matches!(other, Err(FleetError::Exists { .. })), "{other:?}");
}

async fn tasks_behind_labelled_ones_are_found(world: World) {
    tokio::spawn(world.fleet.run());
    add_agent(&world, "d", &["docker"]).await;
    let labelled = (0..60)
        .map(|n| NewTask { priority: Some(1), ..with_labels(&format!("l{n}"), &["docker"]) });
    let others =
        (0..3).map(|n| NewTask { priority: Some(5), ..task_of("p", Some(&format!("o{n}"))) });
    let tpu =
        (0..60).map(|n| NewTask { priority: Some(0), ..with_labels(&format!("t{n}"), &["tpu"]) });
    world.add_all(tpu.chain(labelled).chain(others).collect()).await.unwrap();
    let (a, d) = tokio::join!(claimed(&world, "a"), claimed(&world, "d"));
    assert_eq!((a.as_deref(), d.as_deref()), (Some("o0"), Some("l0")));
    // An agent with labels takes tasks without labels too, in the order of the queue.
    let first = NewTask { priority: Some(0), ..task_of("p", Some("first")) };
    world.add_all(vec![first]).await.unwrap();
    let epoch = world.task("l0").await.epoch;
    world.fleet.complete(&agent("d"), "l0", epoch, TaskCompletion::default()).await.unwrap();
    assert_eq!(claimed(&world, "d").await.as_deref(), Some("first"));
}

async fn labels_of_tenant_project_and_task_apply_together(world: World) {
    tokio::spawn(world.fleet.run());
    let patch = TenantPatch { requires: Some(vec!["eu".into()]), ..TenantPatch::default() };
    let change = DirectoryChange::PatchTenant { name: "t".into(), patch };
    world.store.change("admin", UnixMicros(0), change).await.unwrap();
    let directory = world.store.directory().await.unwrap();
    let tenant = directory.tenants.iter().find(|tenant| tenant.name == "t").unwrap();
    assert_eq!(tenant.requires, ["eu"]);
    let patch = ProjectPatch { requires: Some(vec!["docker".into()]), ..ProjectPatch::default() };
    world.fleet.patch_project("admin", "p", patch).await.unwrap();
    for (id, labels) in
        [("x", &["docker", "gpu"][..]), ("y", &["eu", "gpu"]), ("z", &["eu", "docker"])]
    {
        add_agent(&world, id, labels).await;
    }
    let added = world.add_all(vec![with_labels("one", &["gpu"])]).await.unwrap();
    assert_eq!((added.unmatched.len(), added.unmatched_tasks), (0, vec!["one".to_owned()]));
    for id in ["a", "x", "y", "z"] {
        assert_eq!(claimed(&world, id).await, None, "{id}");
    }
    let (code, sentence) = why(&world, "one").await;
    assert_eq!(code, "no_matching_agent");
    assert!(sentence.contains("has the labels docker, eu and gpu and"), "{sentence}");
    add_agent(&world, "all", &["eu", "docker", "gpu"]).await;
    assert_eq!(claimed(&world, "all").await.as_deref(), Some("one"));
    // Another tenant requires nothing.
    world.add_all(vec![task_of("r", Some("two"))]).await.unwrap();
    assert_eq!(claimed(&world, "a").await.as_deref(), Some("two"));
    // A tenant that nobody serves is said too.
    let patch = TenantPatch { requires: Some(vec!["moon".into()]), ..TenantPatch::default() };
    let change = DirectoryChange::PatchTenant { name: "u".into(), patch };
    world.store.change("admin", UnixMicros(0), change).await.unwrap();
    let added = world.add_all(vec![task_of("r", Some("three"))]).await.unwrap();
    assert_eq!(added.unmatched, ["r"]);
}

async fn a_bound_workspace_is_for_agents_of_its_machine(world: World) {
    tokio::spawn(world.fleet.run());
    add_agent(&world, "m1", &["machine:m1"]).await;
    bind(&world, "w1", "/w1", Some("m1")).await.unwrap();
    bind(&world, "w2", "/w2", Some("m2")).await.unwrap();
    let in_workspace =
        |id: &str, name: &str| NewTask { workspace: Some(name.into()), ..task_of("p", Some(id)) };
    let added =
        world.add_all(vec![in_workspace("one", "w1"), in_workspace("two", "w2")]).await.unwrap();
    assert_eq!(added.unmatched_tasks, ["two"]);
    assert_eq!(claimed(&world, "a").await, None);
    let (code, sentence) = why(&world, "two").await;
    assert_eq!(code, "no_matching_agent");
    assert!(
        sentence.contains("it waits for an agent that has the labels machine:m2 and"),
        "{sentence}"
    );
    let claim = world.fleet.claim(&agent("m1"), Duration::ZERO).await.unwrap().unwrap();
    assert_eq!((claim.task.as_str(), claim.workspace.as_deref()), ("one", Some("w1")));
    add_agent(&world, "m2", &["machine:m2"]).await;
    assert_eq!(claimed(&world, "m2").await.as_deref(), Some("two"));
    let list = world.fleet.workspaces(Some("p")).await.unwrap();
    assert_eq!(list[1].machine.as_deref(), Some("m2"));
}

async fn any_workspace_is_one_of_the_agent_s_machine(world: World) {
    tokio::spawn(world.fleet.run());
    for (id, machine) in [("x", "m1"), ("y", "m2"), ("z", "m2")] {
        add_agent(&world, id, &[&format!("machine:{machine}")]).await;
    }
    let patch = ProjectPatch { concurrency: Some(9), ..ProjectPatch::default() };
    world.fleet.patch_project("admin", "p", patch).await.unwrap();
    bind(&world, "w1", "/w1", Some("m1")).await.unwrap();
    let added = world.add_all((0..6).map(|n| task_of("p", Some(&format!("t{n}")))).collect());
    assert!(added.await.unwrap().unmatched_tasks.is_empty());
    assert_eq!(claimed(&world, "y").await, None, "the only workspace is on another machine");
    let retire = AgentPatch { state: Some(FleetAgentState::Paused), ..AgentPatch::default() };
    world.fleet.patch_agent("admin", "x", retire).await.unwrap();
    let (code, sentence) = why(&world, "t0").await;
    assert_eq!(code, "no_matching_agent");
    assert!(sentence.contains("runs where its workspaces are (machine:m1) and"), "{sentence}");
    let added = world.add_all(vec![task_of("p", Some("late"))]).await.unwrap();
    assert_eq!(added.unmatched_tasks, ["late"]);
    let active = AgentPatch { state: Some(FleetAgentState::Active), ..AgentPatch::default() };
    world.fleet.patch_agent("admin", "x", active).await.unwrap();
    // One that is not bound is left to those that need it.
    bind(&world, "w0", "/w0", None).await.unwrap();
    let workspace = async |id: &str| {
        let claim = world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap();
        claim.and_then(|claim| claim.workspace)
    };
    assert_eq!(workspace("x").await.as_deref(), Some("w1"));
    assert_eq!(workspace("y").await.as_deref(), Some("w0"));
    assert_eq!(workspace("z").await, None);
    assert_eq!(why(&world, "t2").await.0, "no_workspace");
}

async fn two_machines_may_have_the_same_folder(world: World) {
    bind(&world, "w1", "/src/web", Some("m1")).await.unwrap();
    bind(&world, "w2", "/src/web", Some("m2")).await.unwrap();
    assert_eq!(field(bind(&world, "w3", "/src/./web", Some("m2")).await), "path");
    assert_eq!(
        field(bind(&world, "w3", "/src/web", None).await),
        "path",
        "every machine may be m1"
    );
    assert_eq!(field(bind(&world, "w3", "/w3", Some("not good")).await), "machine");
    bind(&world, "w3", "/src/api", None).await.unwrap();
    assert_eq!(field(bind(&world, "w4", "/src/api", Some("m1")).await), "path");
}

async fn a_restarted_task_follows_its_workspace(world: World) {
    tokio::spawn(world.fleet.run());
    add_agent(&world, "m2", &["machine:m2"]).await;
    bind(&world, "w", "/w", Some("m1")).await.unwrap();
    let task = NewTask { workspace: Some("w".into()), ..task_of("p", Some("one")) };
    world.add_all(vec![task]).await.unwrap();
    world.fleet.act("admin", "one", TaskAction::Cancel { reason: None }).await.unwrap();
    world.fleet.remove_workspace("admin", "w").await.unwrap();
    bind(&world, "w", "/w", Some("m2")).await.unwrap();
    world.fleet.act("admin", "one", TaskAction::Restart).await.unwrap();
    give_back(&world, "m2", "one").await;
}

async fn labels_are_checked_and_can_be_changed(world: World) {
    tokio::spawn(world.fleet.run());
    assert_eq!(
        field(world.add_all(vec![with_labels("one", &["not good"])]).await),
        "tasks[0].requires"
    );
    world.add_all(vec![with_labels("one", &["tpu"])]).await.unwrap();
    assert_eq!(claimed(&world, "a").await, None);
    let patch = |labels: &[&str]| {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        TaskPatch { requires: Some(labels), ..TaskPatch::default() }
    };
    let wrong = world.fleet.patch_task("admin", "one", patch(&["a b"])).await;
    assert_eq!(field(wrong), "requires");
    let view = world.fleet.patch_task("admin", "one", patch(&[])).await.unwrap();
    assert!(view.requires.is_empty());
    let entry = world.audit().await.remove(0);
    assert_eq!(entry.before.unwrap()["requires"], serde_json::json!(["tpu"]));
    assert_eq!(claimed(&world, "a").await.as_deref(), Some("one"));
}

async fn prompts_of_tenants_and_agents_are_bounded_in_all(world: World) {
    let prompt = "x".repeat(1 << 20);
    let task = |prompt: &str| NewTask { prompt: prompt.into(), ..task_of("p", None) };
    let options = FleetOptions { prompt_bytes_max: 3 << 20, ..FleetOptions::default() };
    let clock = std::sync::Arc::new(SystemClock);
    let fleet = Fleet::new(world.store.clone(), clock, options);
    let add = async |tasks: Vec<NewTask>| {
        fleet.add_tasks_of_tenant("t", NewTasks { tasks, dry_run: false }).await
    };
    add(vec![task(&prompt), task(&prompt)]).await.unwrap();
    let refused = add(vec![task(&prompt), task("y")]).await.unwrap_err().to_string();
    assert!(refused.contains("fleet.prompt_size_max"), "{refused}");
    add(vec![task(&prompt)]).await.unwrap();
    assert_eq!(field(add(vec![task("y")]).await), "tasks");
    // Operators have no such limit, tasks that have ended do not count, and other projects have their own.
    let all = NewTasks { tasks: vec![task("y")], dry_run: false };
    fleet.add_tasks("admin", all).await.unwrap();
    fleet.act("admin", "p-1", TaskAction::Cancel { reason: None }).await.unwrap();
    let patch = TaskPatch { prompt: Some("z".into()), ..TaskPatch::default() };
    fleet.patch_task("admin", "p-2", patch).await.unwrap();
    add(vec![task(&prompt)]).await.unwrap();
    add(vec![NewTask { project: "q".into(), ..task(&prompt) }]).await.unwrap();
}
