//! Agents that claim tasks from a running loop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fairgate_api::agents::Claim;
use fairgate_api::fleet::{
    FleetAgentState, FleetProjectStatus, NewAgent, NewProject, NewTask, NewWorkspace, ProjectPatch,
    TaskAction, TaskState,
};
use fairgate_fleet::{
    Fleet, FleetError, FleetOptions, SystemClock, TaskCompletion, TaskHeartbeat, TaskRelease,
};
use fairgate_store::KeyHash;

use crate::world::{World, agent, on_every_database, project, task_of};

on_every_database![
    a_task_is_claimed_worked_on_and_completed,
    a_claim_waits_until_there_is_a_task,
    what_a_dead_agent_had_goes_to_another,
    projects_share_the_agents,
    limits_hold,
    affinity_holds_for_its_time,
    a_task_is_not_given_again_to_an_agent_that_cannot_work_on_it,
    two_servers_give_each_task_once,
    views_and_reasons,
    who_waits_with_a_token_of_before_gets_nothing,
];

const LONG: Duration = Duration::from_secs(30);

/// What this agent gets now.
async fn claim(world: &World, id: &str) -> Option<Claim> {
    world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap()
}

async fn claimed(world: &World, id: &str) -> String {
    claim(world, id).await.map_or_else(|| "-".into(), |claim| claim.task)
}

async fn a_task_is_claimed_worked_on_and_completed(world: World) {
    tokio::spawn(world.fleet.run());
    let workspace =
        NewWorkspace { id: "w".into(), project: "p".into(), path: "/src".into(), machine: None };
    world.fleet.add_workspace("admin", workspace).await.unwrap();
    world.add(&["one", "two<one"]).await;
    let claim_of_a = claim(&world, "a").await.unwrap();
    assert_eq!((claim_of_a.task.as_str(), claim_of_a.epoch), ("one", 1));
    assert_eq!(claim_of_a.workspace_path.as_deref(), Some("/src"));
    assert_eq!(claimed(&world, "b").await, "-", "two needs one");
    let key = claim_of_a.key.clone().unwrap();
    let owner = world.fleet.task_key(KeyHash::of(key.as_bytes())).await.unwrap().unwrap();
    assert_eq!((owner.task.as_str(), owner.agent.as_str(), owner.epoch), ("one", "a", 1));
    world.fleet.heartbeat(&agent("a"), "one", 1, TaskHeartbeat::default()).await.unwrap();
    assert_eq!(world.state("one").await, TaskState::InProgress);
    // It has forgotten what it does, and is told again.
    let again = claim(&world, "a").await.unwrap();
    assert_eq!((again.task.as_str(), again.epoch, again.key), ("one", 1, claim_of_a.key));
    world.fleet.complete(&agent("a"), "one", 1, TaskCompletion::default()).await.unwrap();
    assert_eq!(world.fleet.task_key(KeyHash::of(key.as_bytes())).await.unwrap(), None);
    let claim_of_c = claim(&world, "c").await.unwrap();
    assert_eq!((claim_of_c.task.as_str(), claim_of_c.key), ("two", None), "c reports what it uses");
    let steps = world.task("two").await.history.len();
    assert_eq!(steps, 2, "ready, then assigned");
}

async fn a_claim_waits_until_there_is_a_task(world: World) {
    tokio::spawn(world.fleet.run());
    let fleet = world.fleet.clone();
    let waiting = tokio::spawn(async move { fleet.claim(&agent("a"), LONG).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.add(&["one"]).await;
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().task, "one");
    let paused = fairgate_api::fleet::AgentPatch {
        state: Some(FleetAgentState::Paused),
        ..Default::default()
    };
    world.fleet.patch_agent("admin", "b", paused).await.unwrap();
    let refused = world.fleet.claim(&agent("b"), LONG).await;
    assert!(matches!(refused, Err(FleetError::Agent { .. })), "{refused:?}");
}

async fn what_a_dead_agent_had_goes_to_another(world: World) {
    tokio::spawn(world.fleet.run());
    world.add(&["one", "two"]).await;
    for id in ["a", "b"] {
        assert!(claim(&world, id).await.is_some());
    }
    world.fleet.heartbeat(&agent("b"), "two", 1, TaskHeartbeat::default()).await.unwrap();
    world.pass(61);
    world.fleet.wake();
    // One that had not begun is tried at once, the other after a pause.
    let next = claim(&world, "c").await.unwrap();
    assert_eq!((next.task.as_str(), next.epoch), ("one", 2));
    let two = world.task("two").await;
    assert_eq!((two.line.state, two.line.retries), (TaskState::Paused, 1));
    let late = world.fleet.complete(&agent("a"), "one", 1, TaskCompletion::default()).await;
    assert!(matches!(late, Err(FleetError::LeaseLost { .. })), "{late:?}");
    world.pass(61);
    world.fleet.wake();
    assert_eq!(claimed(&world, "a").await, "one", "c's lease ran out too");
    assert_eq!(claimed(&world, "b").await, "two");
}

async fn add_agents(world: &World, count: usize) -> Vec<String> {
    let names: Vec<_> = (0..count).map(|number| format!("n{number}")).collect();
    for id in &names {
        let agent =
            NewAgent { id: id.clone(), kind: None, reports_tokens: false, ..NewAgent::default() };
        world.fleet.add_agent("admin", agent).await.unwrap();
    }
    names
}

async fn add_many(world: &World, project: &str, count: usize) {
    let task =
        |number| NewTask { id: Some(format!("{project}-{number}")), ..task_of(project, None) };
    world.add_all((0..count).map(task).collect()).await.unwrap();
}

/// All of them claim at once, each from one of these fleets; what they get.
async fn claim_all(fleets: &[&Fleet], names: &[String]) -> Vec<String> {
    let claims: Vec<_> = (names.iter().enumerate())
        .map(|(place, id)| {
            let (fleet, id) = (fleets[place % fleets.len()].clone(), id.clone());
            tokio::spawn(async move { fleet.claim(&agent(&id), LONG).await })
        })
        .collect();
    let mut tasks = Vec::new();
    for claim in claims {
        tasks.push(claim.await.unwrap().unwrap().unwrap().task);
    }
    tasks
}

async fn projects_share_the_agents(world: World) {
    tokio::spawn(world.fleet.run());
    for (id, weight) in [("heavy", "3"), ("light", "1")] {
        let weight = Some(weight.parse().unwrap());
        let project = NewProject { weight, concurrency: Some(100), ..project(id, "t") };
        world.add_project(project).await.unwrap();
        add_many(&world, id, 20).await;
    }
    let names = add_agents(&world, 12).await;
    let tasks = claim_all(&[&world.fleet], &names).await;
    let heavy = tasks.iter().filter(|task| task.starts_with("heavy")).count();
    assert_eq!((heavy, tasks.len() - heavy), (9, 3));
    let views = world.fleet.projects(None).await.unwrap();
    let reserved: Vec<_> = views.iter().map(|view| (view.id.as_str(), view.reserved)).collect();
    assert_eq!(&reserved[3..], [("heavy", 180_000), ("light", 60_000)]);
}

async fn limits_hold(world: World) {
    tokio::spawn(world.fleet.run());
    let patch = ProjectPatch {
        concurrency: Some(10),
        agent_max: Some([("big".to_owned(), 1)].into()),
        budget: Some(Some(45_000)),
        ..ProjectPatch::default()
    };
    world.fleet.patch_project("admin", "p", patch).await.unwrap();
    world.add(&["one", "two", "three"]).await;
    for id in ["big1", "big2"] {
        let agent = NewAgent {
            id: id.into(),
            kind: Some("big".into()),
            reports_tokens: false,
            ..NewAgent::default()
        };
        world.fleet.add_agent("admin", agent).await.unwrap();
    }
    assert_eq!(claimed(&world, "big1").await, "one");
    assert_eq!(claimed(&world, "big2").await, "-");
    assert_eq!(claimed(&world, "a").await, "two");
    // Two times 20 000 are set aside of 45 000.
    assert_eq!(claimed(&world, "b").await, "-");
    let why = world.fleet.why("three").await.unwrap();
    assert_eq!(why.code, "project_budget", "{}", why.sentence);
    world.fleet.complete(&agent("a"), "two", 1, TaskCompletion::default()).await.unwrap();
    assert_eq!(claimed(&world, "b").await, "three");
}

async fn affinity_holds_for_its_time(world: World) {
    tokio::spawn(world.fleet.run());
    let mine = NewTask { affinity: Some("a".into()), ..task_of("p", Some("mine")) };
    let other = NewTask { affinity: Some("a".into()), ..task_of("q", Some("other")) };
    world.add_all(vec![mine, other]).await.unwrap();
    assert_eq!(claimed(&world, "b").await, "-");
    assert_eq!(world.fleet.why("mine").await.unwrap().code, "affinity");
    assert_eq!(claimed(&world, "a").await, "mine");
    assert_eq!(claimed(&world, "b").await, "-");
    world.pass(120);
    assert_eq!(claimed(&world, "b").await, "other");
}

async fn a_task_is_not_given_again_to_an_agent_that_cannot_work_on_it(world: World) {
    tokio::spawn(world.fleet.run());
    // More tasks than a round loads for one agent at first.
    let names: Vec<String> = (0..6).map(|number| format!("t{number}")).collect();
    world.add_all(names.iter().map(|id| task_of("p", Some(id))).collect()).await.unwrap();
    let unfit = || TaskRelease { reason: Some("no folder".into()), unfit: true };
    for id in &names[..5] {
        assert_eq!(claimed(&world, "a").await, *id);
        for _ in 0..2 {
            let line = world.fleet.release(&agent("a"), id, 1, unfit()).await.unwrap();
            assert_eq!((line.state, line.retries), (TaskState::Ready, 0));
            assert_eq!(line.reason.as_deref(), Some("given back: no folder"));
        }
    }
    assert_eq!(claimed(&world, "a").await, "t5", "the first that it has not given back");
    world.fleet.complete(&agent("a"), "t5", 1, TaskCompletion::default()).await.unwrap();
    assert_eq!(claimed(&world, "a").await, "-");
    // Others may take it, and a person may say that the folder is there now.
    assert_eq!(claimed(&world, "b").await, "t0");
    for action in [TaskAction::Pause { until: None, reason: None }, TaskAction::Resume] {
        world.fleet.act("admin", "t3", action).await.unwrap();
    }
    assert_eq!(claimed(&world, "a").await, "t3");
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_unfit").await, 4);
    // Rows of ended tasks go with the next row.
    world.fleet.complete(&agent("b"), "t0", 2, TaskCompletion::default()).await.unwrap();
    world.fleet.release(&agent("a"), "t3", 2, unfit()).await.unwrap();
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_unfit WHERE task = 't0'").await, 0);
}

async fn two_servers_give_each_task_once(world: World) {
    let stores = [world.store.clone(), world.another_store().await];
    // In real time, as two processes would be.
    let fleet = |store| Fleet::new(store, Arc::new(SystemClock), FleetOptions::default());
    let servers = stores.map(fleet);
    for id in ["x", "y", "z"] {
        let project = NewProject { concurrency: Some(30), ..project(id, "t") };
        world.add_project(project).await.unwrap();
        add_many(&world, id, 30).await;
    }
    let names = add_agents(&world, 60).await;
    for server in &servers {
        tokio::spawn(server.run());
    }
    let tasks = claim_all(&[&servers[0], &servers[1]], &names).await;
    let different: BTreeSet<_> = tasks.iter().collect();
    assert_eq!(different.len(), 60, "{tasks:?}");
    for project in ["x-", "y-", "z-"] {
        assert_eq!(tasks.iter().filter(|task| task.starts_with(project)).count(), 20);
    }
    assert_eq!(
        world.number("SELECT COUNT(*) FROM fleet_history WHERE to_state = 'ASSIGNED'").await,
        60
    );
    for server in &servers {
        server.stop();
    }
}

async fn views_and_reasons(world: World) {
    tokio::spawn(world.fleet.run());
    world.add(&["one", "two<one", "three"]).await;
    let patch =
        ProjectPatch { status: Some(FleetProjectStatus::Paused), ..ProjectPatch::default() };
    world.fleet.patch_project("admin", "q", patch).await.unwrap();
    world.add_all(vec![task_of("q", Some("four"))]).await.unwrap();
    assert_eq!(claimed(&world, "a").await, "one");
    let codes =
        [("one", "assigned"), ("two", "needs"), ("three", "no_agent"), ("four", "project_paused")];
    for (task, code) in codes {
        let why = world.fleet.why(task).await.unwrap();
        assert_eq!(why.code, code, "{}", why.sentence);
    }
    let view = world.fleet.view().await.unwrap();
    assert_eq!(view.running.len(), 1);
    let waiting: Vec<_> = view.waiting.iter().map(|why| why.task.as_str()).collect();
    assert_eq!(waiting, ["three", "four"]);
    assert_eq!(view.reserved, 20_000);
    let p = world.fleet.project("p").await.unwrap();
    assert_eq!((p.ready, p.running, p.tasks.len()), (1, 1, 3));
    assert_eq!(world.fleet.projects(Some("u")).await.unwrap().len(), 1);
}

/// A lost laptop that waits for a task when its token is rotated must not be given one, nor a key for models with it.
async fn who_waits_with_a_token_of_before_gets_nothing(world: World) {
    tokio::spawn(world.fleet.run());
    let made =
        NewAgent { id: "d".into(), kind: None, reports_tokens: false, ..NewAgent::default() };
    let lost = world.fleet.add_agent("admin", made).await.unwrap().token;
    let thief = world.fleet.agent(&lost).await.unwrap().unwrap();
    let fleet = world.fleet.clone();
    let waiting = tokio::spawn(async move { fleet.claim(&thief, LONG).await });
    // It is the first in the queue.
    while world.fleet.view().await.unwrap().agents.iter().all(|agent| agent.last_seen.is_none()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let token = world.fleet.rotate_agent("admin", "d").await.unwrap().token;
    assert!(world.fleet.agent(&lost).await.unwrap().is_none());
    world.add(&["one", "two"]).await;
    assert_eq!(claimed(&world, "a").await, "one");
    let owner = world.fleet.agent(&token).await.unwrap().unwrap();
    let claim = world.fleet.claim(&owner, Duration::ZERO).await.unwrap().unwrap();
    assert_eq!((claim.task.as_str(), claim.epoch), ("two", 1));
    assert!(waiting.await.unwrap().unwrap().is_none());
}
